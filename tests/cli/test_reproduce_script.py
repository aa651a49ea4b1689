"""The script that runs tables in pieces: a real shell, no GPU needed; one run with the real command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gsparc.cli.reproduce import TABLES

SCRIPT = Path(__file__).parents[2] / "scripts" / "reproduce_gpu.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")

# Stands in for the interpreter: notes how it is called; a first table "bad" fails, "slow" ends by an interrupt only.
FAKE = """#!/usr/bin/env bash
echo "$@" >> "$(dirname "$0")/calls.txt"
case $7 in  # after -m gsparc reproduce --resume -o DIR
  bad) exit 1 ;;
  slow) trap 'exit 130' INT; for _ in $(seq 600); do sleep 0.1; done ;;
esac
"""


def call(*words: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": python}
    return subprocess.run(["bash", str(SCRIPT), *words], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    file = tmp_path / "python"
    file.write_text(FAKE)
    file.chmod(0o755)
    return file


def calls(fake: Path) -> list[list[str]]:
    return [line.split()[6:] for line in (fake.parent / "calls.txt").read_text().splitlines()]


def test_the_real_command_fills_the_folder(tmp_path: Path) -> None:
    done = call("-j", "1", "-o", str(tmp_path), "laplacians", "--", "--smoke", "--device", "cpu", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "laplacians.json").read_text())["cells"]
    assert "laplacians" in (tmp_path / "seconds.txt").read_text()


def test_all_tables_by_one_command_with_the_options(tmp_path: Path, fake: Path) -> None:
    done = call("-j", "3", "-o", str(tmp_path), "links", "clustering", "--", "--generated", python=str(fake))
    assert done.returncode == 0, done.stderr
    assert calls(fake) == [["links", "clustering", "--jobs", "3", "--generated"]]
    assert call("-o", str(tmp_path), "bad", python=str(fake)).returncode == 1
    lines = [line.split(" ", 1)[1] for line in (tmp_path / "seconds.txt").read_text().splitlines()]
    assert [line.split(":")[0] for line in lines] == ["links clustering", "bad"]
    assert [line.split("status ")[1] for line in lines] == ["0", "1"]


def test_time_that_is_up_interrupts(tmp_path: Path, fake: Path) -> None:
    done = call("-j", "1", "-s", "1", "-o", str(tmp_path), "slow", "links", python=str(fake))
    assert done.returncode == 130
    assert "stopped; the same command goes on" in done.stderr
    assert len(calls(fake)) == 1


def test_the_leak_test_runs_beside_tables(tmp_path: Path, fake: Path) -> None:
    options = ("--seeds", "2", "--data-dir", "here", "--device", "cuda")
    done = call("-j", "9", "-o", str(tmp_path), "links", "audit", "--", *options, python=str(fake))
    assert done.returncode == 0, done.stderr
    assert sorted(calls(fake)) == [["audit", "--data-dir", "here", "--jobs", "3"], ["links", "--jobs", "9", *options]]
    assert call("-j", "2", "-o", str(tmp_path), "audit", python=str(fake)).returncode == 0
    assert calls(fake)[2:] == [["audit", "--jobs", "2"]]  # by itself it has all processes
    assert call("-j", "4", "-o", str(tmp_path), "all", python=str(fake)).returncode == 0
    (leaks, tables) = sorted(calls(fake)[3:])
    assert leaks == ["audit", "--jobs", "1"]
    assert set(tables[:7]) == set(TABLES)


def test_a_leak_fails_the_whole_run(tmp_path: Path, fake: Path) -> None:
    fake.write_text(FAKE.replace("bad)", "audit) echo the leak test failed; exit 1 ;;\n  bad)"))
    done = call("-j", "1", "-o", str(tmp_path), "links", "audit", python=str(fake))
    assert done.returncode == 1
    assert "the leak test ended with status 1:\nthe leak test failed" in done.stderr


@pytest.mark.parametrize("table", ["slow", "links"])
def test_time_that_is_up_ends_the_leak_test_too(table: str, tmp_path: Path, fake: Path) -> None:
    waits = "audit) trap 'echo told to end; exit 143' TERM; for _ in $(seq 600); do sleep 0.1; done ;;"
    fake.write_text(FAKE.replace("bad)", f"{waits}\n  bad)"))
    done = call("-s", "1", "-o", str(tmp_path), table, "audit", python=str(fake))
    assert done.returncode == 130, done.stderr
    assert "stopped; the same command goes on" in done.stderr
    assert "told to end" in (tmp_path / "audit.log").read_text()


def test_without_a_table_it_says_how_to_call_it() -> None:
    done = call()
    assert done.returncode == 2
    assert "TABLE" in done.stderr
