"""A new model takes the place of the old one while requests go on; a damaged one does not."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gsparc.exceptions import DamagedModelError, ModelFolderError
from gsparc.server.app import create_app

ROW = {"vectors": [[1, 2, 3]]}
TOKEN = {"Authorization": "Bearer long-enough"}


def replace(folder: Path, text: str) -> None:
    """As a save does it: a whole new folder under the old name."""
    fresh = folder.with_name("fresh")
    fresh.mkdir()
    (fresh / "checksums.json").write_text(text)
    old = folder.with_name("old")
    os.rename(folder, old)
    os.rename(fresh, folder)
    (old / "checksums.json").unlink()
    old.rmdir()


def wait_until(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_a_replaced_folder_is_taken_into_use(start, folder: Path, make_model) -> None:
    loads = []
    client = start(load=lambda _: loads.append(1) or make_model(), watch_s=0.02)
    first = client.post("/v1/predict", json=ROW).json()["model"]
    replace(folder, '{"new": 1}')
    wait_until(lambda: client.post("/v1/predict", json=ROW).json()["model"] != first)
    assert len(loads) == 2
    text = client.get("/metrics").text
    assert 'gsparc_model_reloads_total{result="ok"} 1.0' in text
    assert text.count("gsparc_model_info{") == 1
    assert client.get("/ready").json()["version"] != first


def test_no_request_is_dropped_by_swaps(start, folder: Path, make_model) -> None:
    client = start(load=lambda _: make_model(), watch_s=0.01)
    statuses: list[int] = []
    models: set[str] = set()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            response = client.post("/v1/predict", json=ROW)
            statuses.append(response.status_code)
            models.add(response.json()["model"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(models) == 1)
    for i in range(4):
        replace(folder, f'{{"version": {i}}}')
        wait_until(lambda i=i: len(models) == i + 2)  # the new one has answered
    done.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}
    assert len(models) == 5


def test_a_request_is_answered_by_the_model_it_came_to(start, model, make_model) -> None:
    models = iter([model, make_model()])
    client = start(load=lambda _: next(models), token="long-enough")
    first = client.service.holder.current
    model.gate.clear()
    waiting = [client.send("POST", "/v1/predict", json=ROW, headers=TOKEN) for _ in range(3)]
    wait_until(lambda: client.service.batcher.open_requests == 3)
    time.sleep(0.05)
    assert client.post("/v1/reload", headers=TOKEN).status_code == 200
    assert client.service.holder.current is not first
    model.gate.set()
    assert [each.result(10).status_code for each in waiting] == [200] * 3


def test_a_damaged_folder_changes_nothing_and_is_reported(start, folder: Path, model) -> None:
    contents: list = [model]

    def load(_: Path):
        if isinstance(contents[0], Exception):
            raise contents[0]
        return contents[0]

    client = start(load=load, watch_s=0.02)
    old = client.service.holder.current
    contents[0] = DamagedModelError("the model is damaged: weights.safetensors: cut off. Restore it.")
    replace(folder, '{"broken": 1}')
    wait_until(lambda: not client.get("/ready").json()["reload"]["ok"])
    assert client.service.holder.current is old
    assert client.post("/v1/predict", json=ROW).status_code == 200
    assert "weights.safetensors" in client.get("/info").json()["reload"]["message"]
    assert "weights" not in client.get("/ready").text
    text = client.get("/metrics").text
    assert 'gsparc_model_reloads_total{result="failed"} 1.0' in text  # tried once, not every time it is looked at
    assert "gsparc_model_stale 1.0" in text
    contents[0] = model
    replace(folder, '{"mended": 1}')
    wait_until(lambda: client.get("/ready").json()["reload"]["ok"])
    assert "gsparc_model_stale 0.0" in client.get("/metrics").text


def test_a_model_that_cannot_answer_is_not_taken(start, folder: Path, model, make_model, caplog) -> None:
    broken = make_model()
    broken.error = RuntimeError("shapes do not fit")
    models = iter([model, broken])
    client = start(load=lambda _: next(models), token="long-enough")
    response = client.post("/v1/reload", headers=TOKEN)
    assert response.status_code == 409
    assert "the old model stays in use" in response.json()["error"]["message"]
    assert client.service.holder.current.model is model
    assert "shapes do not fit" in caplog.text


def test_a_missing_folder_is_waited_out(start, folder: Path, model) -> None:
    client = start(watch_s=0.01)
    os.rename(folder, folder.with_name("away"))
    time.sleep(0.1)
    assert client.get("/ready").json()["reload"]["ok"]
    assert client.post("/v1/predict", json=ROW).status_code == 200


def whole_or_damaged(folder: Path) -> None:
    """As loading does it: every file must be there as it was saved."""
    for name in ("config.json", "weights.safetensors"):
        if not (folder / name).is_file() or (folder / name).read_text() != "whole":
            raise DamagedModelError(f"the model is damaged: {name}. Restore it.")


@pytest.fixture
def saved(folder: Path) -> Path:
    """A folder whose checksums name its files."""
    (folder / "checksums.json").write_text('{"config.json": "1", "weights.safetensors": "2"}')
    for name in ("config.json", "weights.safetensors"):
        (folder / name).write_text("whole")
    return folder


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
@pytest.mark.parametrize("harm", [lambda path: path.write_text("w"), lambda path: path.unlink()], ids=["cut", "lost"])
def test_a_folder_that_is_damaged_in_place_is_reported(start, saved: Path, model, name: str, harm) -> None:
    client = start(load=lambda folder: whole_or_damaged(folder) or model, watch_s=0.01)
    harm(saved / name)
    wait_until(lambda: not client.get("/ready").json()["reload"]["ok"])
    assert name in client.get("/info").json()["reload"]["message"]
    assert client.post("/v1/predict", json=ROW).status_code == 200
    (saved / name).write_text("whole")
    wait_until(lambda: client.get("/ready").json()["reload"]["ok"])


def test_a_deleted_folder_is_reported(start, saved: Path, model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsparc.server.models._GONE_S", 0.0)
    client = start(load=lambda folder: whole_or_damaged(folder) or model, watch_s=0.01)
    os.rename(saved, saved.with_name("away"))
    wait_until(lambda: not client.get("/ready").json()["reload"]["ok"])
    assert client.post("/v1/predict", json=ROW).status_code == 200
    assert 'gsparc_model_reloads_total{result="failed"} 1.0' in client.get("/metrics").text
    os.rename(saved.with_name("away"), saved)
    wait_until(lambda: client.get("/ready").json()["reload"]["ok"])


def test_notes_beside_a_model_do_not_load_it_again(start, saved: Path, model) -> None:
    client = start(load=lambda _: model)
    (saved / "notes.txt").write_text("ours")
    assert not client.service.holder.behind
    (saved / "checksums.json").write_text("no JSON")
    assert client.service.holder.behind


def test_reloading_by_request_needs_a_token(client) -> None:
    response = client.post("/v1/reload")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "no_token_set")


def test_a_damaged_first_folder_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="not a gsparc model"):
        create_app(tmp_path)
