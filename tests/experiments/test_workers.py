"""Workers that need the same thing wait for the one that makes it."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from gsparc.experiments import provenance, workers
from gsparc.experiments.workers import as_finished, one_at_a_time


def make(folder: str) -> bool:
    """Whether this worker had to make what all need."""
    with one_at_a_time(Path(folder)):
        file = Path(folder) / "made"
        if file.is_file():
            return False
        time.sleep(0.3)
        file.touch()
        return True


def threads(_: int) -> dict[str, int]:
    """Threads that the libraries of this worker use."""
    import scipy.linalg  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch
    from threadpoolctl import threadpool_info

    found = {Path(library["filepath"]).name: library["num_threads"] for library in threadpool_info()}
    return {**found, "torch": torch.get_num_threads()}


def test_workers_share_the_cores_in_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in workers._POOLS:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    for _, found in as_finished(threads, [0, 1], 2):
        assert any("openblas" in name for name in found)  # numpy's, loaded before a worker's first line
        assert set(found.values()) == {1}, found
    assert dict(os.environ) == before


def test_threads_that_the_user_chose_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with workers._threads(1):
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert dict(os.environ) == before


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be held on Windows")
def test_processes_that_come_at_once_make_it_once(tmp_path: Path) -> None:
    found = [made for _, made in as_finished(make, [str(tmp_path / "folder")] * 4, 2)]
    assert sorted(found) == [False, False, False, True]


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be held on Windows")
def test_other_folders_do_not_wait_and_an_error_lets_go(tmp_path: Path) -> None:
    inside = threading.Event()
    thread = threading.Thread(target=lambda: (make(str(tmp_path / "a")), inside.set()))

    def hold() -> None:
        with one_at_a_time(tmp_path / "a"), one_at_a_time(tmp_path / "b"):
            thread.start()
            assert not inside.wait(0.5)
            raise RuntimeError("broke")

    with pytest.raises(RuntimeError, match="broke"):
        hold()
    assert inside.wait(10)
    thread.join()


@pytest.mark.parametrize(
    ("device", "cores", "memory", "expected"),
    [("cpu", 2, 24.0, 2), ("cpu", 64, 24.0, 6), ("cpu", 8, None, 4), ("cpu", 8, 2.0, 1), ("cuda", 16, 128.0, 4)],
)
def test_processes_where_nobody_says(
    monkeypatch: pytest.MonkeyPatch, device: str, cores: int, memory: float | None, expected: int
) -> None:
    monkeypatch.setattr(workers, "resolve_device", torch.device)
    monkeypatch.setattr(workers, "cores", lambda: cores)
    monkeypatch.setattr(workers, "memory_gb", lambda: memory)
    monkeypatch.setattr(workers, "container_limits", lambda: (None, None))
    assert workers.usual_jobs(device) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "12000000000"}, 2),  # one core and a half; memory for three
        ({"cpu.max": "max 100000", "memory.max": "12000000000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        ({"cpu/cpu.cfs_quota_us": "500000", "cpu/cpu.cfs_period_us": "100000"}, 5),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, 16),  # no limit, in the older way to say it
        ({}, 16),
    ],
)
def test_a_container_has_what_it_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    monkeypatch.setattr(provenance, "_CONTROL", tmp_path)
    monkeypatch.setattr(workers, "cores", lambda: 16)
    monkeypatch.setattr(workers, "memory_gb", lambda: 128.0)
    assert workers.usual_jobs("cpu") == expected
