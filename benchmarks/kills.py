"""Kill ``fit``, ``grow`` and ``predict`` with -9 at random moments: is a whole model always there, and does all go on?

    python benchmarks/kills.py --times 50

After every kill the model must load and answer as one of the versions that were saved whole, the output of predict is
either not there or complete, and at the end each command is run to its end once more.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import record

COLUMNS = [
    ["command", "command", ""],
    ["kills", "killed", ",d"],
    ["finished", "had finished before", ",d"],
    ["lost", "models lost", ",d"],
    ["partial", "outputs half written", ",d"],
    ["next_run", "the next run succeeds", ""],
]


def write_tables(folder: Path) -> None:
    """Three tables of a small generated graph: the first nodes, more of them, and rows to predict."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gsparc.datasets import make_blocks

    data = make_blocks(700, 4000, 16, num_classes=4, random_state=0)
    X, names = np.asarray(data.X, np.float32), [f"c{i}" for i in range(16)]
    columns: dict[str, Any] = {name: X[:, i] for i, name in enumerate(names)}
    table = pa.table({"id": np.arange(700), **columns, "label": data.y})
    source, target = data.graph.to_scipy().nonzero()
    edges = pa.table({"source": source, "target": target})
    inside = (source < 500) & (target < 500) & (source < target)
    pq.write_table(table.slice(0, 500), folder / "nodes.parquet")
    pq.write_table(table.slice(500, 100), folder / "more.parquet")
    pq.write_table(edges.filter(inside), folder / "edges.parquet")
    pq.write_table(edges.filter((np.maximum(source, target) < 600) & ~inside), folder / "more_edges.parquet")
    pq.write_table(pa.concat_tables([table.slice(600, 100).drop(["label"])] * 300), folder / "new.parquet")


def commands(folder: Path) -> dict[str, list[str]]:
    run = [sys.executable, "-m", "gsparc"]
    model = str(folder / "model")
    fit = [
        "fit",
        "--nodes",
        str(folder / "nodes.parquet"),
        "--edges",
        str(folder / "edges.parquet"),
        "--target",
        "label",
    ]
    grow = ["grow", model, "--nodes", str(folder / "more.parquet"), "--edges", str(folder / "more_edges.parquet")]
    predict = ["predict", model, str(folder / "new.parquet"), "-q", "-o", str(folder / "out.parquet")]
    fit += ["--target", "label", "--task", "classes", "--backbone", "mlp", "--max-steps", "60", "-q", "-o", model]
    return {"fit": run + fit, "grow": run + grow, "predict": run + predict}


def complete(folder: Path) -> bool:
    """Whether the output of predict is not there, or whole."""
    import pyarrow.parquet as pq

    path = folder / "out.parquet"
    return not path.exists() or pq.read_metadata(path).num_rows == 30_000


def run_whole(command: list[str]) -> float:
    """Run to the end; seconds."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - start


def measure(folder: Path, times: int) -> list[dict[str, Any]]:
    from gsparc.exceptions import GsparcError
    from gsparc.tables.model import TableModel

    write_tables(folder)
    every = commands(folder)
    usual = {name: run_whole(command) for name, command in every.items()}
    print("usual seconds", usual, flush=True)
    counts = {name: {"kills": 0, "finished": 0, "lost": 0, "partial": 0} for name in every}
    rng = np.random.default_rng(0)
    for number in range(times):
        name = list(every)[number % 3]
        (folder / "out.parquet").unlink(missing_ok=True)
        if name == "grow":
            run_whole([*every["fit"]])  # growing by the same nodes twice adds none
        process = subprocess.Popen(every[name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=float(rng.uniform(0.1, 1.0)) * usual[name])
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        counts[name]["finished" if ended else "kills"] += 1
        try:
            nodes = len(TableModel.load(folder / "model").node_ids)
            counts[name]["lost"] += nodes not in (500, 600)
        except GsparcError as error:
            counts[name]["lost"] += 1
            print(name, error, flush=True)
        counts[name]["partial"] += not complete(folder)
        print(number, name, counts[name], flush=True)
    rows = []
    for name, command in every.items():
        run_whole(command)
        rows.append({"command": name, **counts[name], "next_run": True})
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
    print("left behind:", left, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), args.times)
    record("kills", {"columns": COLUMNS, "rows": rows, "bar": "no model lost, nothing half written"}, args.output)


if __name__ == "__main__":
    main()
