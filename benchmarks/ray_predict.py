"""Rows a second of ``--engine ray`` with two workers against the local engine, with one worker killed on the way.

    python benchmarks/ray_predict.py

A classifier is fitted on a generated graph with 100 numeric columns, and a folder of Parquet files is predicted by
both engines, each in a process of its own and with the same number of cores. Seconds are those of the whole engine:
Ray's include its start and the loading of the model by every worker. When a quarter of the rows is done, the
worker that did the last of them is killed with SIGKILL. Both outputs must then hold the same rows, to the bit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from _common import record

BLOCK = 1 << 16
OPTIONS = {"links": 0, "near": 0}
COLUMNS = [
    ["engine", "engine", ""],
    ["rows", "rows", ",d"],
    ["seconds", "seconds", ".1f"],
    ["rows_per_second", "rows a second", ",.0f"],
    ["killed", "workers killed", "d"],
]


def write_rows(folder: Path, count: int, files: int) -> None:
    """``count`` rows near the known ones, in some Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = pq.read_table(folder / "nodes.parquet").drop_columns(["id", "label"])
    X = np.column_stack([column.to_numpy() for column in known.columns]).astype(np.float32)
    rng = np.random.default_rng(1)
    (folder / "new").mkdir()
    schema = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in known.column_names)])
    for number, ids in enumerate(np.array_split(np.arange(len(X), len(X) + count), files)):
        with pq.ParquetWriter(folder / "new" / f"{number:03d}.parquet", schema) as writer:
            for some in np.array_split(ids, max(1, len(ids) // 100_000)):
                part = X[rng.integers(0, len(X), len(some))]
                part += 0.3 * rng.standard_normal(part.shape, dtype=np.float32)
                arrays = [pa.array(some), *(pa.array(part[:, i]) for i in range(X.shape[1]))]
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def score(folder: Path, engine: str, workers: int, kill_after: int) -> dict[str, Any]:
    """What one process does: predict all rows with one engine."""
    if engine == "local":
        import torch

        from gsparc.tables.model import TableModel
        from gsparc.tables.streaming import predict_file

        torch.set_num_threads(workers)
        model = TableModel.load(folder / "model", mapped=True)
        return predict_file(model, folder / "new", folder / "local.parquet", workers=workers, **OPTIONS) | {"killed": 0}
    from gsparc.integrations import ray

    killed = []

    class Watched(ray.Tally):
        def add(self, outcome: Any) -> None:
            super().add(outcome)
            if self.rows >= kill_after and not killed:
                killed.append(outcome.worker)
                os.kill(int(outcome.worker.split(":")[-1]), signal.SIGKILL)

    ray.Tally = Watched
    done = ray.predict_on_ray(folder / "model", folder / "new", folder / "ray", workers=workers, **OPTIONS)
    return done | {"killed": len(killed)}


def in_a_process(folder: Path, engine: str, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--engine", engine, "--folder", str(folder), "--workers", str(args.workers)]
    done = subprocess.run([*command, "--rows", str(args.rows)], stdout=subprocess.PIPE, text=True, check=True)
    return {"engine": engine, **json.loads(done.stdout.splitlines()[-1])}


def equal_rows(folder: Path) -> bool:
    """Whether both outputs hold the same rows in the same order, compared a block at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gsparc.tables.reading import table_files

    def rows(name: str) -> Iterator[Any]:
        for file in table_files(folder / name):
            yield from pq.ParquetFile(file).iter_batches(BLOCK)

    def cut(batches: Iterator[Any]) -> Iterator[Any]:
        """Batches of equal sizes, since the two outputs have theirs at other places."""
        waiting = pa.table({})
        for batch in batches:
            more = pa.Table.from_batches([batch])
            waiting = more if not waiting.num_rows else pa.concat_tables([waiting, more])
            while waiting.num_rows >= BLOCK:
                yield waiting.slice(0, BLOCK)
                waiting = waiting.slice(BLOCK)
        yield waiting

    pairs = zip_longest(cut(rows("local.parquet")), cut(rows("ray")))
    return all(one is not None and other is not None and one.equals(other) for one, other in pairs)


def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    from table_predict import write_tables

    write_tables(folder, args.seen, 1000)
    if args.model is not None:
        shutil.copytree(args.model, folder / "model")
    else:
        fit = ("fit", "--nodes", str(folder / "nodes.parquet"), "--edges", str(folder / "edges.parquet"))
        settings = ("--target", "label", "--task", "classes", "--backbone", args.backbone, "-q")
        command = [sys.executable, "-m", "gsparc", *fit, *settings, "-o", str(folder / "model")]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    write_rows(folder, args.rows, args.files)
    rows = []
    for engine in ("local", "ray"):
        rows.append(in_a_process(folder, engine, args))
        print(rows[-1], flush=True)
    return {
        "columns": COLUMNS,
        "rows": rows,
        "workers": args.workers,
        "ratio": round(rows[1]["rows_per_second"] / rows[0]["rows_per_second"], 3),
        "identical": equal_rows(folder),
        "bar": "at least 0.6 times the local engine's rows a second, identical rows, one worker killed on the way",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seen", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--backbone", default="phormer")
    parser.add_argument("--model", type=Path, default=None, help="fitted before on the same number of known nodes")
    parser.add_argument("--engine", default=None, help="only predict what is in --folder, with this engine")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    if args.engine is not None:
        print(json.dumps(score(args.folder, args.engine, args.workers, args.rows // 4)))
        return
    with tempfile.TemporaryDirectory() as folder:
        payload = measure(Path(folder), args)
    print({key: payload[key] for key in ("ratio", "identical")})
    record("ray_predict", payload, args.output)


if __name__ == "__main__":
    main()
