"""A model of four nodes that answers at once, with the interface of a table model that the service uses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from gsparc.server.app import create_app
from gsparc.tables.columns import Columns

FORM = [
    {"name": "words", "kind": "text", "choices": None, "example": "a small tool"},
    {"name": "size", "kind": "number", "choices": None, "example": 3.5},
    {"name": "arch", "kind": "category", "choices": ["amd64", "arm64"], "example": "amd64"},
]
IDS = ["apt", "zlib1g", "zlib-dev", "org/pkg"]
CLASSES = ["admin", "libs", "libs", None]
PLACES = np.array([[0, 0], [1, 1], [1, 0], [0, 1]], np.float32)
WIDTH = 3


class FakePredictions:
    """What ``FakeModel.predict`` gives; the class is 'libs' where the first feature is positive."""

    def __init__(self, rows: np.ndarray, bad: dict[int, str], links: int, near: int, coverage: float) -> None:
        self.bad, self.memberships = bad, np.tile([0.25, 0.75], (len(rows), 1))
        self._rows, self._links, self._near, self._coverage = rows, links, near, coverage

    def records(self) -> list[dict[str, Any]]:
        return [
            {"id": i, "error": self.bad[i]} if i in self.bad else self._record(row) for i, row in enumerate(self._rows)
        ]

    def _record(self, row: np.ndarray) -> dict[str, Any]:
        name = "libs" if row[0] > 0 else "admin"
        return {
            "class": name,
            "confidence": 0.75,
            "probabilities": {"libs": 0.75, "admin": 0.25},
            "set": ["libs", "admin"] if self._coverage > 0.8 else [name],
            "abstained": False,
            "why": "",
            "cluster": 1,
            "links": [{"id": node, "score": 0.5} for node in IDS[: self._links]],
            "near": [{"id": node, "distance": 0.5, "class": label} for node, label in zip(IDS, CLASSES, strict=True)][
                : self._near
            ],
            "position": [0.5, float(row[1])],
        }


class FakeModel:
    """Counts its calls; ``gate`` holds them back, ``error`` lets them fail."""

    def __init__(self, *, links: bool = True, clusters: bool = True) -> None:
        self.classifier = object()
        self.links = object() if links else None
        self.clusterer = object() if clusters else None
        self.columns = Columns(id="package", text=("words",), numeric=("size",), categorical=("arch",))
        self.preprocess = SimpleNamespace(form=lambda: FORM, n_features=WIDTH)
        self.report = {"accuracy": 0.8}
        self.num_edges = 2
        self.class_names = np.array(["admin", "libs"])
        self.calls: list[int] = []
        self.edges: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.held = 0  # calls that stand at the gate
        self.pause = 0.0
        self.error: Exception | None = None

    def predict(self, table: Any, *, coverage: float, links: int, near: int, edges: Any = None) -> FakePredictions:
        self.held += 1
        self.gate.wait()
        self.held -= 1
        time.sleep(self.pause)
        rows, bad = _features(table)
        self.calls.append(len(rows))
        self.edges.append(edges)
        if self.error is not None:
            raise self.error
        return FakePredictions(rows, bad, links, near, coverage)

    def embed(self, table: Any) -> np.ndarray:
        return _features(table)[0]

    def nodes(self) -> dict[str, Any]:
        return {"id": IDS, "class": CLASSES, "cluster": [0, 1, 1, -1], "position": PLACES}

    def neighbours(self, index: int) -> list[int]:
        return [[1], [0, 2], [1], []][index]


def _features(table: Any) -> tuple[np.ndarray, dict[int, str]]:
    if isinstance(table, np.ndarray):
        return table, {}
    records = table.to_pylist()
    values = [[len(row["words"] or ""), row["size"] or 0.0, 0.0] for row in records]
    bad = {i: "words is 'BAD', which cannot be read" for i, row in enumerate(records) if row["words"] == "BAD"}
    return np.array(values, np.float32), bad


@pytest.fixture
def model() -> FakeModel:
    """The model that is loaded first."""
    return FakeModel()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a saved model from outside."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "checksums.json").write_text("{}")
    return path


class Client:
    """An app that runs in an event loop of its own; requests are made from the test's thread, several at once too."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self.service = app, app.state.service
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lifespan = app.router.lifespan_context(app)
        self.run(self._lifespan.__aenter__())
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://test")

    def run(self, task: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(30)

    def send(self, method: str, path: str, **options: Any) -> Future[httpx.Response]:
        return asyncio.run_coroutine_threadsafe(self._http.request(method, path, **options), self._loop)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.send("GET", path, **options).result(30)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.send("POST", path, **options).result(30)

    def stop(self) -> None:
        self.run(self._lifespan.__aexit__(None, None, None))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def start(folder: Path, model: FakeModel) -> Iterator[Callable[..., Client]]:
    """Starts an app with its settings, and stops it after the test."""
    running: list[Client] = []

    def begin(**settings: Any) -> Client:
        app = create_app(folder, **{"load": lambda _: model, "watch_s": None, "workers": 1, **settings})
        running.append(Client(app))
        return running[-1]

    yield begin
    model.gate.set()
    for client in running:
        client.stop()
        client.close()


@pytest.fixture
def client(start: Callable[..., Client]) -> Client:
    """An app with default settings."""
    return start()


@pytest.fixture(scope="session")
def make_model() -> type[FakeModel]:
    """For tests that need several models."""
    return FakeModel
