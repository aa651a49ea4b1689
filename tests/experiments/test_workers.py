"""Workers that need the same thing wait for the one that makes it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

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
