"""An ingest that is killed, or that finds the disk full: nothing half written is taken for a store, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc import OutputError, StoreError, open_store
from gsparc._store import Store
from gsparc.storage import IngestSettings, ingest

NODES, EDGES = 3000, 60_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nodes in two parts, weighted edges with repeats."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    (folder / "nodes").mkdir()
    values = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=NODES * 8).astype(np.float32)), 8)
    nodes = pa.table({"id": np.arange(NODES) * 3 + 1, "v": values, "label": (np.arange(NODES) % 5).astype(str)})
    pq.write_table(nodes.slice(0, 2000), folder / "nodes" / "0.parquet")
    pq.write_table(nodes.slice(2000), folder / "nodes" / "1.parquet")
    ends = rng.integers(NODES, size=(2, EDGES)) * 3 + 1
    weight = rng.random(EDGES) + 0.5
    pq.write_table(pa.table({"source": ends[0], "target": ends[1], "weight": weight}), folder / "edges.parquet")
    return folder


@pytest.fixture(scope="module")
def whole(tables: Path) -> Store:
    return ingest(tables / "nodes", tables / "edges.parquet", tables / "whole", IngestSettings(target="label"))


def command(tables: Path, store: Path) -> list[str]:
    asked = ["ingest", "--nodes", tables / "nodes", "--edges", tables / "edges.parquet", "--target", "label"]
    return [sys.executable, "-m", "gsparc", *map(str, asked), "-o", str(store)]


def killed_in(command: list[str], words: str) -> None:
    """Start the command and end it by -9 when it says that a stage begins."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(words):
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stderr.close()


def same_files(one: Store, other: Store) -> bool:
    """The same files with the same bytes; the transformers' own file holds the time and addresses of its making."""
    first, second = (
        {name: said["sha256"] for name, said in store.meta["files"].items() if name != "preprocess.skops"}
        for store in (one, other)
    )
    return first == second and sorted(os.listdir(one.path)) == sorted(os.listdir(other.path))


def test_a_killed_ingest_goes_on_to_the_same_store(tables: Path, whole: Store, tmp_path: Path) -> None:
    again = command(tables, tmp_path / "store")
    for stage in ("joining", "sorting"):
        killed_in(again, stage)
        with pytest.raises(StoreError, match="half written"):
            open_store(tmp_path / "store")
    kept = json.loads((tmp_path / "store" / "ingest" / "stages.json").read_text())["stages"]
    assert sorted(kept) == ["edges", "nodes"]
    done = subprocess.run([*again, "--json"], capture_output=True, text=True, check=True)
    assert "reading the nodes: done before" in done.stderr
    assert "joining the edges to the nodes: done before" in done.stderr
    store = open_store(tmp_path / "store")
    store.verify()
    assert same_files(store, whole)
    assert os.listdir(store.path / "ingest") == ["stages.json"]


def test_what_a_kill_leaves_of_the_database_is_no_obstacle(tables: Path, whole: Store, tmp_path: Path) -> None:
    work = tmp_path / "store" / "ingest"
    (work / "spill").mkdir(parents=True)
    (work / "edges.duckdb").write_bytes(b"half a header")
    (work / "edges.duckdb.wal").write_bytes(b"half an entry")
    asked = IngestSettings(target="label")
    assert same_files(ingest(tables / "nodes", tables / "edges.parquet", tmp_path / "store", asked), whole)


def test_what_a_kill_leaves_of_an_old_store_may_be_removed(tables: Path, whole: Store, tmp_path: Path) -> None:
    asked, store = IngestSettings(target="label"), tmp_path / "store"
    ingest(tables / "nodes", tables / "edges.parquet", store, IngestSettings(target="label", seed=1))
    (store / "store.json").unlink()  # what is removed first; the folder of the work is removed last
    (store / "features.npy").unlink()
    with pytest.raises(StoreError, match="half written"):
        open_store(store)
    assert same_files(ingest(tables / "nodes", tables / "edges.parquet", store, asked), whole)


@pytest.fixture
def limited() -> Iterator[object]:
    """Set how many bytes a file may have; writing more fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [5_000, 40_000, 300_000, 1_500_000])
def test_a_disk_that_fills_up_is_said_and_the_next_run_goes_on(
    tables: Path, whole: Store, tmp_path: Path, limited, size: int
) -> None:
    asked, store = IngestSettings(target="label"), tmp_path / "store"
    limited(size)
    with pytest.raises(OutputError, match=r"could not be finished|cannot be written"):
        ingest(tables / "nodes", tables / "edges.parquet", store, asked)
    with pytest.raises(StoreError, match="half written"):
        open_store(store)
    limited(-1)
    assert same_files(ingest(tables / "nodes", tables / "edges.parquet", store, asked), whole)
