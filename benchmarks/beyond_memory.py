"""Ten million nodes and two hundred million edges in six gigabytes: each step as a process of its own.

Generate the tables, ingest them, fit (F_theta, index of all nodes, network for the classes) and predict new rows::

    python benchmarks/beyond_memory.py                                    # adds to results/beyond_memory.json
    python benchmarks/beyond_memory.py --nodes 500000 --edges 10000000    # another size beside it

Nodes belong to communities, communities to classes. Features say the community with noise; four of five edges stay in
the community. Tables are written in parts, so the generator needs no more than one of them either. Runs of other sizes
that the result file holds are kept: what a step costs by node and by edge can be read from them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, Timer, record
from _watch import watched

COLUMNS = [
    ["nodes", "nodes", ",d"],
    ["edges", "edges", ",d"],
    ["stage", "step", ""],
    ["seconds", "seconds", ",.0f"],
    ["cpu_seconds", "processor seconds", ",.0f"],
    ["peak_gb", "peak memory, GB", ".2f"],
    ["anonymous_gb", "its own, GB", ".2f"],
    ["file_gb", "pages of files, GB", ".2f"],
]
INGEST = {
    "reading a sample": "sample",
    "reading the nodes": "nodes",
    "joining the edges": "join",
    "sorting": "sort",
    "writing checksums": "checksums",
}
FIT = {
    "leaving out": "cut",
    "fitting the spectral map": "map",
    "computing": "coordinates",
    "indexing": "index",
    "fitting the network": "classes",
    "measuring": "measure",
    "writing the model": "save",
}
_PART = 1_000_000  # rows of a table part
_BAR, _BAR_NODES = 6.0, 10_000_000


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


def accuracy(folder: Path) -> float:
    """How often the class of a new row is right."""
    import pyarrow.parquet as pq

    truth = pq.read_table(folder / "new.parquet", columns=["label"])["label"].to_pylist()
    said = pq.read_table(folder / "out.parquet", columns=["class"])["class"].to_pylist()
    return float(np.mean([a == b for a, b in zip(truth, said, strict=True)]))


def folder_gb(path: Path) -> float:
    """Bytes of a file, or of all files below a folder, in gigabytes."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return round(sum(file.stat().st_size for file in files) / 1e9, 3)


def measure(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """All steps at one size."""
    store, model, out = folder / "store", folder / "model", folder / "out.parquet"
    rows = []
    if not (folder / "new.parquet").is_file():
        sizes = [f"--{name}={getattr(asked, name)}" for name in ("nodes", "edges", "features", "new")]
        rows.append(watched("generate", [__file__, "--generate", "--folder", str(folder), *sizes], {}))
    tables = ["--nodes", str(folder / "nodes"), "--edges", str(folder / "edges"), "--dtype", asked.dtype]
    ingest = ["ingest", *tables, "--memory", asked.memory, "--fresh", "-o", str(store), "--json"]
    rows.append(watched("ingest", ["-m", "gsparc", *ingest], INGEST))
    fit = ["fit", "--store", str(store), "--index-memory", asked.index_memory, "--max-steps", str(asked.max_steps)]
    fitted = watched("fit", ["-m", "gsparc", *fit, "-o", str(model), "--json"], FIT)
    predict = ["predict", str(model), str(folder / "new.parquet"), "-o", str(out), "--json"]
    rows += [fitted, watched("predict", ["-m", "gsparc", *predict], {})]
    said = fitted["said"]
    sizes = {"tables": folder_gb(folder / "nodes") + folder_gb(folder / "edges"), "store": folder_gb(store)}
    return {
        "nodes": asked.nodes,
        "edges": asked.edges,
        "settings": {name: getattr(asked, name) for name in ("features", "new", "memory", "index_memory", "dtype")}
        | {"max_steps": asked.max_steps, "threads": os.environ.get("OMP_NUM_THREADS")},
        "steps": [{name: value for name, value in row.items() if name != "said"} for row in rows],
        "disk_gb": sizes | {"model": folder_gb(model)},
        "peak_gb": max(row["peak_gb"] for row in rows if row["stage"] != "generate"),
        "accuracy_new": accuracy(folder),
        "measured": said.get("measured"),
        "map_seconds": said.get("map_seconds"),
        "index": said.get("index"),
    }


def runs_of(path: Path) -> list[dict[str, Any]]:
    """The runs of a result file."""
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else []


def write_result(new: list[dict[str, Any]], output: Path) -> Path:
    """Add runs to a result file, each in the place of an older one of its size."""
    found = {(run["nodes"], run["edges"]): run for run in [*runs_of(output), *new]}
    runs = [found[size] for size in sorted(found)]
    rows = [{"nodes": run["nodes"], "edges": run["edges"]} | step for run in runs for step in run["steps"]]
    largest = runs[-1]
    payload = {
        "question": "does a graph that does not fit into memory go through every step within six gigabytes?",
        "columns": COLUMNS,
        "rows": [{key: row[key] for key, *_ in COLUMNS} for row in rows if row["stage"] != "generate"],
        "peak_gb": largest["peak_gb"],
        "bar_gb": _BAR,
        "reached": largest["nodes"] >= _BAR_NODES and largest["peak_gb"] <= _BAR,
        "runs": runs,
    }
    return record("beyond_memory", payload, output)


def main() -> None:
    parser = argparse.ArgumentParser(description="Each step of a store as a process of its own, measured.")
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
    parser.add_argument("--output", type=Path, default=RESULTS / "beyond_memory.json")
    parser.add_argument("--generate", action="store_true", help="Only write the tables.")
    parser.add_argument("--merge", type=Path, nargs="+", help="Only add the runs of other result files.")
    asked = parser.parse_args()
    if asked.merge:
        print(write_result([run for file in asked.merge for run in runs_of(file)], asked.output))
        return
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="gsparc-beyond-"))
    if asked.generate:
        generate(folder, asked.nodes, asked.edges, asked.features, asked.new)
        return
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TMPDIR", str(folder))  # temporary files of the index need room
    with Timer() as timer:
        run = measure(folder, asked)
    from gsparc.experiments.provenance import commit

    run |= {"seconds": round(timer.seconds, 1), "commit": commit(), "date": datetime.date.today().isoformat()}
    print(write_result([run], asked.output))
    if not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
