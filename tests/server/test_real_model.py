"""The service with a real model of two small tables: from columns to answers, and from one save to the next."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gsparc.server.app import create_app
from gsparc.tables.columns import guess_columns, guess_edge_columns
from gsparc.tables.model import TableModel

WORDS = {"libs": "shared library runtime", "games": "arcade game puzzle"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty nodes of two kinds, told apart by their words; edges within a kind."""
    rng = np.random.default_rng(0)
    kinds = ["libs"] * 40 + ["games"] * 40
    words = [" ".join(rng.choice(WORDS[kind].split(), 2)) + f" w{rng.integers(20)}" for kind in kinds]
    nodes = pa.table(
        {"package": [f"p{i}" for i in range(80)], "words": words, "size": rng.random(80), "section": kinds}
    )
    ends = rng.integers(0, 40, (2, 300)) + 40 * rng.integers(0, 2, 300)
    edges = pa.table({"source": [f"p{i}" for i in ends[0]], "target": [f"p{i}" for i in ends[1]]})
    roles = guess_columns(nodes, id="package", target="section", text=["words"], numeric=["size"])
    tasks = ("classes", "links", "clusters")
    model = TableModel.fit(
        nodes,
        edges,
        roles,
        guess_edge_columns(edges),
        tasks=tasks,
        n_clusters=2,
        backbone="mlp",
        max_steps=20,
        holdout=0.0,
    )
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save(folder)
    return folder


@pytest.fixture
def service(saved: Path, tmp_path: Path, start: Any) -> Any:
    """A service of a copy of it."""
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    client = type(start())(create_app(folder, watch_s=0.02))
    yield client
    client.stop()
    client.close()


def test_records_are_answered(service) -> None:
    records = [
        {"package": "new", "words": "arcade puzzle game", "size": 0.5},
        {"words": "runtime library", "size": None},
    ]
    answer = service.post("/v1/predict", json={"records": records, "k": 3, "edges": [[0, "p41"], [0, "p45"]]}).json()
    first, second = answer["predictions"]
    assert (first["id"], second["id"]) == ("new", None)
    assert (first["class"], second["class"]) == ("games", "libs")
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert first["class"] in first["set"]
    assert len(first["links"]) == len(first["near"]) == 3
    for node in first["near"]:
        assert service.get(f"/v1/nodes/by-position/{node['index']}").json()["id"] == node["id"]


def test_a_row_is_answered_alike_alone_and_in_company(service) -> None:
    records = [{"words": text, "size": 0.1} for text in ("arcade puzzle", "library", "nothing known here")]
    together = service.post("/v1/predict", json={"records": records}).json()["predictions"]
    alone = [service.post("/v1/predict", json={"records": [record]}).json()["predictions"][0] for record in records]
    for one, other in zip(together, alone, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
        assert [node["id"] for node in one["near"]] == [node["id"] for node in other["near"]]
        assert one["why"] == other["why"]


def test_answers_do_not_depend_on_what_other_threads_do(service) -> None:
    records = [{"words": f"arcade w{i % 20} {'library' * (i % 3)}", "size": i / 200} for i in range(200)]
    alone = service.post("/v1/predict", json={"records": records}).json()["predictions"]
    at_once = [service.send("POST", "/v1/predict", json={"records": [record]}) for record in records]
    for one, other in zip(alone, at_once, strict=True):
        for row in other.result(60).json()["predictions"]:
            assert row["probabilities"] == pytest.approx(one["probabilities"], abs=1e-4)
            assert row["position"] == pytest.approx(one["position"], abs=1e-3)


def test_no_network_is_left_in_training(service) -> None:
    """Of two threads one would switch dropout on for the other."""
    model = service.service.holder.current.model
    networks = [model.classifier.map_.module_, *(head.module for head in model.classifier._heads.values())]
    networks += [one.module_ for one in model.links.maps_]
    assert [network.training for network in networks] == [False] * len(networks)


def test_the_other_routes_answer(service) -> None:
    width = service.get("/info").json()["n_features"]
    rows = {"vectors": [[0.5] * width]}
    assert service.post("/v1/cluster", json=rows).json()["predictions"][0]["cluster"] in (0, 1)
    assert len(service.post("/v1/links", json={**rows, "k": 100}).json()["predictions"][0]["links"]) == 80
    assert len(service.post("/v1/embed", json=rows).json()["predictions"][0]["embedding"]) > 1
    assert service.get("/v1/nodes/p3").json()["class"] == "libs"
    assert len(service.get("/v1/map").content) > 12 * 80


def test_a_grown_model_is_taken_into_use_and_a_cut_file_is_not(service, saved: Path) -> None:
    folder = service.service.holder.folder
    assert service.get("/v1/nodes/new").status_code == 404
    model = TableModel.load(saved)
    model.grow(
        pa.table({"package": ["new"], "words": ["arcade"], "size": [0.5], "section": ["games"]}),
        pa.table({"source": ["new"], "target": ["p50"]}),
    )
    model.save(folder)
    wait_for(lambda: service.get("/v1/nodes/new").status_code == 200)
    version = service.get("/ready").json()["version"]
    weights = folder / "weights.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    os.utime(folder / "checksums.json")
    wait_for(lambda: not service.get("/ready").json()["reload"]["ok"])
    assert "damaged" in service.get("/info").json()["reload"]["message"]
    assert service.get("/ready").json()["version"] == version
    assert service.post("/v1/predict", json={"records": [{"words": "arcade"}]}).status_code == 200


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
