"""``gsparc fit --processes``: one result, one sentence for an error, and a killed worker comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from gsparc.cli import processes


def start(folder: Path, *arguments: object, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gsparc", "fit", *map(str, arguments), "--processes", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def worker(parent: int, rank: int) -> int:
    """The process of that rank among the children of the command."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise LookupError(f"no worker {rank} among {children}")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the worker in /proc")
def test_a_killed_worker_comes_back(small: Path, tmp_path: Path) -> None:
    running = start(tmp_path, "--dataset", small, "--backbone", "mlp", "--max-steps", 5, "--json", "-o", "model")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            victim = worker(running.pid, 1)
            break
        except (LookupError, OSError):
            time.sleep(0.02)
    os.kill(victim, signal.SIGKILL)
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, err
    assert json.loads(out)["nodes"] == 150  # one document
    assert (tmp_path / "model" / "config.json").exists()


def test_a_store_is_fitted_by_two_processes(small: Path, tmp_path: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gsparc.storage import IngestSettings, ingest
    from gsparc.tables.model import TableModel

    data = np.load(small, allow_pickle=False)
    names = data["class_names"][data["y"]]
    nodes = pa.table({"id": data["node_ids"], "v": data["x"].tolist(), "kind": names})
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    ends = [data["node_ids"][row] for row in data["edges"]]
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), tmp_path / "edges.parquet")
    chosen = IngestSettings(target="kind")
    ingest(tmp_path / "nodes.parquet", tmp_path / "edges.parquet", tmp_path / "store", chosen)
    asked = ("--store", "store", "--backbone", "mlp", "--max-steps", 30, "--json", "-o", "model")
    out, err = (running := start(tmp_path, *asked)).communicate(timeout=240)
    assert running.returncode == 0, err
    assert json.loads(out)["nodes"] == 150  # one document
    said = TableModel.load(tmp_path / "model").predict(nodes.slice(0, 100)).classes
    assert said is not None
    assert np.mean(said == names[:100]) > 0.9
    assert not (tmp_path / ".model.fit").exists()


def test_an_error_is_said_once_and_not_tried_again(tmp_path: Path) -> None:
    out, err = (running := start(tmp_path, "--dataset", "nothing.npz", "-q", "-o", "model")).communicate(timeout=240)
    assert (running.returncode, out) == (1, "")
    assert err.count("error: ") == 1
    assert "nothing.npz" in err


def test_wrong_usage_starts_nothing(inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_run", lambda *_: pytest.fail("processes were started"))
    assert inside("fit", "--processes", 2, "-o", "model").returncode == 2
    assert inside("fit", "--processes", 0, "-o", "model").returncode == 2


def test_more_processes_than_cores_are_noted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(processes, "_run", lambda *_: 0)
    monkeypatch.setattr(processes, "usable_cores", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(typer.Exit) as left:
        processes.start_processes(8, quiet=False)
    assert left.value.exit_code == 0
    assert "8 processes share 2 core(s)" in capsys.readouterr().err
    processes.start_processes(1, quiet=False)  # one is the command itself


def test_sigterm_ends_all_in_one_sentence(small: Path, tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    asked = ("--dataset", small, "--backbone", "mlp", "--max-steps", 1_000_000, "-o", "model")
    running = start(tmp_path, *asked, TMPDIR=str(temporary))
    assert running.stderr is not None
    while "fitting on" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 143
    assert "error: interrupted; outputs that were not finished have not been written." in err
    assert "death signal" not in err  # the engine's own words
    assert not list(temporary.glob("gsparc-*"))
