"""Rows a second, and memory, of ``gsparc predict`` over a table of a million rows, beside a bare MLP.

    python benchmarks/table_predict.py

The default mixture and a phormer are fitted on a generated graph with 100 numeric columns; then the command streams a
Parquet file through each, in a process of its own. The bare MLP is a torch network of the same width on the same
columns: it reads the same file in the same blocks, standardises nothing, looks for no neighbour, and writes a class and
its probability. Memory beyond the model is the peak of the large run less that of the same command on a thousand rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import record

BLOCK = 32_768
WIDTH = 128  # of the phormer by default
COLUMNS = [
    ["what", "what", ""],
    ["rows", "rows", ",d"],
    ["seconds", "seconds", ".1f"],
    ["rows_per_second", "rows a second", ",.0f"],
    ["ratio", "of the bare MLP's", ".2f"],
    ["peak_gb", "peak memory, GB", ".2f"],
    ["beyond_gb", "beyond the model, GB", ".2f"],
]


def write_tables(folder: Path, seen: int, new: int) -> None:
    """Nodes and edges to fit on, and a file of further rows of the same kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gsparc.datasets import make_blocks

    data = make_blocks(seen, 10 * seen, 100, num_classes=10, random_state=0)
    X = np.asarray(data.X, np.float32)
    names = [f"c{i}" for i in range(X.shape[1])]
    columns: dict[str, Any] = {name: X[:, i] for i, name in enumerate(names)}
    pq.write_table(pa.table({"id": np.arange(seen), **columns, "label": data.y}), folder / "nodes.parquet")
    source, target = data.graph.to_scipy().nonzero()
    keep = source < target
    pq.write_table(pa.table({"source": source[keep], "target": target[keep]}), folder / "edges.parquet")
    rng = np.random.default_rng(1)
    for name, count in (("new", new), ("few", 1000)):
        schema = pa.schema([("id", pa.int64()), *((column, pa.float32()) for column in names)])
        with pq.ParquetWriter(folder / f"{name}.parquet", schema) as writer:
            for start in range(0, count, BLOCK):
                rows = min(BLOCK, count - start)
                part = X[rng.integers(0, seen, rows)] + rng.normal(0, 0.3, (rows, X.shape[1])).astype(np.float32)
                ids = np.arange(seen + start, seen + start + rows)
                arrays = [pa.array(ids), *(pa.array(part[:, i]) for i in range(X.shape[1]))]
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def bare_mlp(source: Path, output: Path) -> None:
    """What a plain script would do: read a block, one forward pass, write."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    layers = [torch.nn.Linear(100, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10), torch.nn.Softmax(dim=1)).eval()
    schema = pa.schema([("id", pa.int64()), ("class", pa.int64()), ("confidence", pa.float32())])
    with pq.ParquetWriter(output, schema) as writer, torch.inference_mode():
        for batch in pq.ParquetFile(source).iter_batches(BLOCK):
            X = np.column_stack([batch.column(i).to_numpy() for i in range(1, batch.num_columns)])
            sure, best = network(torch.from_numpy(X)).max(dim=1)
            arrays = [batch.column(0), pa.array(best.numpy()), pa.array(sure.numpy())]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def timed(*command: str) -> tuple[float, float, str]:
    """Seconds, peak memory in GB and standard output of a command in a process of its own."""
    watch = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)\n"
        "sys.stdout.buffer.write(done.stdout)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", watch, sys.executable, *command], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return seconds, 1024 * int(done.stderr.split()[-1]) / 1e9, done.stdout


def predict(folder: Path, model: Path, name: str, *options: str) -> dict[str, Any]:
    """The command on one file."""
    command = ("-m", "gsparc", "predict", str(model), str(folder / f"{name}.parquet"), "-q", "--json")
    seconds, peak, said = timed(*command, "-o", str(folder / f"{name}.out.parquet"), *options)
    return {"seconds": seconds, "peak_gb": peak, **{key: json.loads(said)[key] for key in ("rows", "rows_per_second")}}


def fitted(folder: Path, backbone: str, models: Path | None) -> Path:
    """A model of the tables: one that was fitted before, or one that is fitted now."""
    if models is not None:
        return models / f"model_{backbone}"
    model = folder / f"model_{backbone}"
    fit = ("-m", "gsparc", "fit", "--nodes", str(folder / "nodes.parquet"), "--edges", str(folder / "edges.parquet"))
    timed(*fit, "--target", "label", "--task", "classes", "--backbone", backbone, "-o", str(model), "-q")
    return model


def measure(folder: Path, seen: int, new: int, backbones: list[str], models: Path | None) -> list[dict[str, Any]]:
    """One row for the bare MLP, and two for each backbone; ``ratio`` is to the bare MLP."""
    write_tables(folder, seen, new)
    script = str(Path(__file__).resolve())
    small, _, _ = timed(script, "--mlp", str(folder / "few.parquet"), "--output", str(folder / "mlp.parquet"))
    seconds, peak, _ = timed(script, "--mlp", str(folder / "new.parquet"), "--output", str(folder / "mlp.parquet"))
    rate = new / max(seconds - small, 1e-9)  # without starting Python
    bare = {"what": f"a bare MLP, {WIDTH} wide", "rows": new, "seconds": seconds, "peak_gb": peak}
    rows: list[dict[str, Any]] = [{**bare, "rows_per_second": rate, "ratio": 1.0}]
    print(rows[-1], flush=True)
    for backbone in backbones:
        model = fitted(folder, backbone, models)
        for what, options in (
            ("class and set, rows far from all known ones marked", ("--links", "0", "--near", "0")),
            ("all of that and the 5 nearest known nodes", ("--links", "0", "--near", "5")),
        ):
            few, many = predict(folder, model, "few", *options), predict(folder, model, "new", *options)
            facts = {"beyond_gb": many["peak_gb"] - few["peak_gb"], "ratio": many["rows_per_second"] / rate}
            rows.append({"what": f"gsparc, {backbone}: {what}", "backbone": backbone, **many, **facts})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seen", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--backbones", nargs="+", default=["auto", "phormer"])
    parser.add_argument("--models", type=Path, default=None, help="model_BACKBONE in this folder, fitted on the tables")
    parser.add_argument("--mlp", type=Path, default=None, help="only run the bare MLP over this file")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    if args.mlp is not None:
        bare_mlp(args.mlp, args.output)
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), args.seen, args.rows, args.backbones, args.models)
    bar = "at most 2 GB beyond the model; at least 0.2 times the rows a second of the bare MLP, phormer or auto"
    record("table_predict", {"columns": COLUMNS, "rows": rows, "bar": bar}, args.output)


if __name__ == "__main__":
    main()
