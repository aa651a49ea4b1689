"""Several real processes, started by torchrun: equal to one large batch, of one mind, and back after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gsparc._processes import World, launched, world
from gsparc.training.distributed import average, everyone, joined

SCRIPT = Path(__file__).with_name("_ranks.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(folder: Path, name: str, *rest: str, restarts: int = 0) -> list[dict[str, Any]]:
    """What both processes answer."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*TORCHRUN, "--max-restarts", str(restarts), str(SCRIPT), name, str(folder), *rest]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes answers to everything."""
    folder = tmp_path_factory.mktemp("ranks")
    answers = run(folder, "everything", str(folder / "kept"))
    assert len(answers) == 2
    return answers


def test_shares_of_a_batch_give_its_loss_and_gradients(both: list[dict[str, Any]]) -> None:
    errors = [answer["equality"] for answer in both]
    contrastive = [f"contrastive {nested}{how}" for nested in (False, True) for how in ("", ", one message")]
    for name in (*contrastive, "layer", "rayleigh", "edges", "links", "classes"):
        assert max(error[name] for error in errors) < 1e-10, name  # float64


def test_what_processes_tell_each_other(both: list[dict[str, Any]]) -> None:
    first, second = (answer["messages"] for answer in both)
    assert first["first"] == second["first"] == [10.0, 3.0]
    assert first["mean"] == second["mean"] == 0.5
    assert first["everyone"] == second["everyone"] == [True, False]
    assert (second["bytes"], second["nothing"]) == ("abc", None)
    assert first["rows"] == second["rows"] == [0, 2, 4, 6, 8, 10, 12]
    assert second["one row"] == [0]
    assert first["fresh seeds"] == second["fresh seeds"]
    assert len(set(first["fresh seeds"])) == 2
    assert (first["own seed"], second["own seed"] != 5) == (5, True)


def test_processes_keep_the_same_weights_and_stop_alike(both: list[dict[str, Any]]) -> None:
    whole = [answer["loop"] for answer in both]
    assert whole[0]["weights"] == whole[1]["weights"]
    assert whole[0]["best"] == whole[1]["best"] > 0  # judged by the first process, though the second disagrees
    assert whole[0]["losses"] == whole[1]["losses"]
    assert "kept' was written by a fit with other data or settings" in whole[0]["refused"]
    assert whole[0]["refused"] == whole[1]["refused"]


def test_a_killed_process_comes_back_and_training_ends_the_same(both: list[dict[str, Any]], tmp_path: Path) -> None:
    whole = [answer["loop"] for answer in both]
    killed = run(tmp_path / "killed", "loop", str(tmp_path / "again"), "35", restarts=1)
    assert killed[0]["calls"] == killed[1]["calls"] == 30  # it went on from step 30
    assert [entry["weights"] for entry in killed] == [entry["weights"] for entry in whole]


def test_both_objectives_find_the_ring(both: list[dict[str, Any]]) -> None:
    first, second = (answer["spectral"] for answer in both)
    assert first == second
    steps = np.array([1, 2, 3])
    # A + I of a ring in which each node is linked to three on either side
    exact = [1 - (1 + 2 * np.cos(2 * np.pi * k * steps / 300).sum()) / 7 for k in (1, 1, 2, 2)]
    for objective in ("contrastive", "rayleigh"):
        assert first[objective]["values"] == pytest.approx(exact, abs=2e-4)


def test_a_store_is_fitted_by_all_and_indexed_by_the_first(both: list[dict[str, Any]]) -> None:
    first, second = (answer["stored"] for answer in both)
    assert (first["model"], second["model"]) == (True, False)
    assert first["values"] == sorted(first["values"])
    assert first["values"][3] < 0.05  # cut at the nodes that are held out, but still long pieces
    assert first["measured"]["accuracy"] > 0.9
    assert first["measured"]["linked_among_10"] > 0.9


def test_a_process_that_never_joins_is_named(tmp_path: Path) -> None:
    (answer,) = run(tmp_path, "late")
    assert "within 2 s not all have joined process 0; missing: 1" in answer["error"]
    assert "--join-timeout" in answer["error"]


def test_alone_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as here:
        assert (here.rank, here.size, here.first, here.share(7), here.seed(3)) == (0, 1, True, 7, 3)
        assert everyone(True)
        assert average(value := torch.ones(2)) is value
    assert world() == World()


def test_what_torchrun_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = launched()
    assert found is not None
    assert (found.rank, found.size, found.local_rank, found.local_size, found.first) == (3, 4, 1, 2, False)
    assert [World(rank, 3).share(10) for rank in range(3)] == [4, 4, 4]
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert launched() is None
