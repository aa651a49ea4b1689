"""The script that runs tables in pieces: a real shell, a real process, no GPU needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reproduce_gpu.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *words],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def test_tables_one_after_another_and_again(tmp_path: Path) -> None:
    words = ("-j", "1", "-o", str(tmp_path), "laplacians", "--", "--smoke", "--device", "cpu", "-q")
    done = call(*words)
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "laplacians.json").read_text())["cells"]
    assert first
    assert "status 0" in (tmp_path / "seconds.txt").read_text()
    assert call(*words).returncode == 0  # goes on from what is there
    assert json.loads((tmp_path / "laplacians.json").read_text())["cells"] == first
    assert len((tmp_path / "seconds.txt").read_text().splitlines()) == 2


def test_a_table_that_fails_is_told_and_the_next_runs(tmp_path: Path) -> None:
    done = call("-j", "1", "-o", str(tmp_path), "nothing", "laplacians", "--", "--smoke", "--device", "cpu", "-q")
    assert done.returncode == 1
    assert "nothing" in done.stderr
    assert (tmp_path / "laplacians.json").is_file()


def test_time_that_is_up_stops_a_table_as_an_interrupt_does(tmp_path: Path) -> None:
    done = call("-j", "1", "-s", "1", "-o", str(tmp_path), "laplacians", "--", "--device", "cpu", "--smoke", "-q")
    assert done.returncode == 130
    assert "goes on from here" in done.stderr


def test_without_a_table_it_says_how_to_call_it() -> None:
    done = call()
    assert done.returncode == 2
    assert "TABLE" in done.stderr
