"""Ten million nodes and two hundred million edges in six gigabytes: each step as a process of its own.

Generate the tables, ingest them, fit (F_theta, index of all nodes, network for the classes) and predict new rows::

    python benchmarks/beyond_memory.py                                    # writes results/beyond_memory.json
    python benchmarks/beyond_memory.py --nodes 500000 --edges 10000000 --output small.json

Nodes belong to communities, communities to classes. Features say the community with noise; four of five edges stay in
the community. Tables are written in parts, so the generator needs no more than one of them either. Peak memory is the
kernel's own figure for each process, mapped pages that were touched included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import Timer, record

COLUMNS = [
    ["stage", "step", ""],
    ["seconds", "seconds", ",.0f"],
    ["peak_gb", "peak memory, GB", ".2f"],
]
_PART = 1_000_000  # rows of a table part
_BAR = 6.0


class World:
    """Communities, classes and features as functions of a node's number."""

    def __init__(self, nodes: int, features: int, seed: int = 0) -> None:
        self.nodes, self.features = nodes, features
        rng = np.random.default_rng(seed)
        self.communities = max(20, min(1000, nodes // 5000))
        self.classes = 10
        self.centres = rng.normal(size=(self.communities, features)).astype(np.float32)
        self.class_of = rng.integers(self.classes, size=self.communities)

    def community(self, node: np.ndarray) -> np.ndarray:
        """Consecutive numbers are of one community."""
        return node * self.communities // self.nodes

    def rows(self, node: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((len(node), self.features), dtype=np.float32)
        return self.centres[self.community(node)] + 1.5 * noise


def generate(folder: Path, nodes: int, edges: int, features: int, new: int) -> None:
    """Write nodes/, edges/ and new.parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    world, rng = World(nodes, features), np.random.default_rng(1)

    def table(places: np.ndarray, ids: np.ndarray, known: bool) -> pa.Table:
        label = [f"class {c}" for c in range(world.classes)]
        codes = world.class_of[world.community(places)]
        codes = pa.array(codes, mask=rng.random(len(codes)) < 0.5) if known else pa.array(codes)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(world.rows(places, rng).ravel()), features)
        return pa.table({"id": ids, "v": vectors, "label": pa.array(label).take(codes)})

    for name in ("nodes", "edges"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for part, start in enumerate(range(0, nodes, _PART // 4)):
        places = np.arange(start, min(start + _PART // 4, nodes))
        pq.write_table(table(places, places * 7 + 3, True), folder / "nodes" / f"{part:05}.parquet")
    size = -(-nodes // world.communities)
    for part, start in enumerate(range(0, edges, 4 * _PART)):
        source = rng.integers(nodes, size=min(4 * _PART, edges - start))
        first = -(-world.community(source) * nodes // world.communities)
        inside = np.minimum(first + rng.integers(size, size=len(source)), nodes - 1)
        target = np.where(rng.random(len(source)) < 0.8, inside, rng.integers(nodes, size=len(source)))
        ends = {"source": source * 7 + 3, "target": target * 7 + 3}
        pq.write_table(pa.table(ends), folder / "edges" / f"{part:05}.parquet")
    places = rng.integers(nodes, size=new)
    pq.write_table(table(places, 7 * (nodes + np.arange(new)) + 3, False), folder / "new.parquet")


def run(name: str, *command: str) -> dict[str, Any]:
    """A process of its own, its seconds and its peak memory."""
    print(f"{name}: {' '.join(command)[:150]}", file=sys.stderr, flush=True)
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with status {process.returncode}")
    found = {"stage": name, "seconds": round(time.perf_counter() - start, 1), "peak_gb": usage.ru_maxrss * 1024 / 1e9}
    print(f"  {found['seconds']} s, {found['peak_gb']:.2f} GB", file=sys.stderr, flush=True)
    return found | {"said": json.loads(out) if out.strip().startswith("{") else {}}


def accuracy(folder: Path) -> float:
    """How often the class of a new row is right."""
    import pyarrow.parquet as pq

    truth = pq.read_table(folder / "new.parquet", columns=["label"])["label"].to_pylist()
    said = pq.read_table(folder / "out.parquet", columns=["class"])["class"].to_pylist()
    return float(np.mean([a == b for a, b in zip(truth, said, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=200_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--new", type=int, default=100_000)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--index-memory", default="1GB")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="Where the tables and the store lie; default: a temporary one.")
    parser.add_argument("--keep", action="store_true", help="Keep the folder, and use the tables that are in it.")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--generate", action="store_true", help="Only write the tables.")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="gsparc-beyond-"))
    sizes = [f"--{name}={getattr(asked, name)}" for name in ("nodes", "edges", "features", "new")]
    if asked.generate:
        generate(folder, asked.nodes, asked.edges, asked.features, asked.new)
        return
    os.environ.setdefault("TMPDIR", str(folder))  # temporary files of the index need room
    rows = []
    with Timer() as timer:
        if not (folder / "new.parquet").is_file():
            rows.append(run("generate tables", __file__, "--generate", "--folder", str(folder), *sizes))
        tables = ["--nodes", str(folder / "nodes"), "--edges", str(folder / "edges"), "--dtype", asked.dtype]
        store, model = str(folder / "store"), str(folder / "model")
        common = ["--quiet", "--json"]
        ingest = ["ingest", *tables, "--memory", asked.memory, "--fresh", "-o", store]
        rows.append(run("ingest", "-m", "gsparc", *ingest, *common))
        fit = ["fit", "--store", store, "--index-memory", asked.index_memory, "--max-steps", str(asked.max_steps)]
        rows.append(run("fit: F_theta, index, classes", "-m", "gsparc", *fit, "-o", model, *common))
        predict = ["predict", model, str(folder / "new.parquet"), "-o", str(folder / "out.parquet")]
        rows.append(run(f"predict {asked.new:,} new rows", "-m", "gsparc", *predict, *common))
    peak = max(row["peak_gb"] for row in rows)
    said = rows[-2]["said"]
    payload = {
        "question": "does a graph that does not fit into memory go through every step within six gigabytes?",
        "settings": {name: getattr(asked, name) for name in vars(asked) if name not in ("folder", "output", "keep")},
        "columns": COLUMNS,
        "rows": [{name: row[name] for name in ("stage", "seconds", "peak_gb")} for row in rows],
        "peak_gb": round(peak, 3),
        "bar_gb": _BAR,
        "reached": bool(peak <= _BAR),
        "accuracy_new": accuracy(folder),
        "measured": said.get("measured"),
        "fit_seconds": said.get("stage_seconds"),
        "index": said.get("index"),
        "store_megabytes": rows[-3]["said"].get("megabytes"),
        "seconds": round(timer.seconds, 1),
    }
    print(record("beyond_memory", payload, asked.output))
    if not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
