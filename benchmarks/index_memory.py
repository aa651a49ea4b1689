"""What does an index cost that has to fit into so much memory? Recall, time and memory of each kind, 500,000 x 64.

    python benchmarks/index_memory.py
    python benchmarks/index_memory.py --num-vectors 10000000 --memory 2GB 600MB   # what each size picks

Each kind is built in a process of its own from a mapped file of vectors, so that the memory of the build is its own.
Queries are fresh draws from the distribution of the vectors, one at a time on one thread. ``anonymous`` is memory that
cannot be given back (the rest lies in files); the rows themselves are in a mapped file for the two kinds with codes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _common import PeakMemory, Timer, record

COLUMNS = [
    ["asked", "asked for", ""],
    ["kind", "kind", ""],
    ["num_vectors", "vectors", ",d"],
    ["index_mb", "index in memory, MB", ",.0f"],
    ["built_mb", "peak of the build beyond the start, MB", ",.0f"],
    ["build_s", "build, s", ".0f"],
    ["p50_ms", "p50, ms", ".2f"],
    ["recall_at_10", "recall@10 of new queries", ".3f"],
    ["recall_at_100", "recall@100", ".3f"],
    ["reported", "recall@10 reported", ".3f"],
]
KINDS = ("exact", "ivf", "ivf-sq8", "ivf-pq")


def anonymous() -> int:
    """Bytes of this process that lie in no file."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:")) * 1024


def write_vectors(path: Path, n: int, dim: int) -> None:
    """Unit rows around a thousand centres, a block at a time."""
    rng = np.random.default_rng(0)
    middle = rng.standard_normal((1000, dim), dtype=np.float32)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, dim))
    for start in range(0, n, 1 << 18):
        size = min(1 << 18, n - start)
        noise = rng.standard_normal((size, dim), dtype=np.float32)
        rows[start : start + size] = middle[rng.integers(1000, size=size)] + np.float32(0.5) * noise
    rows.flush()


def measure(path: Path, asked: str, num_queries: int) -> dict[str, float | str | int]:
    """Build once, then ask one query at a time."""
    import faiss  # noqa: F401 - its own memory is not the index's

    from gsparc.ops._knn import near_exactly
    from gsparc.ops.neighbors import NeighborIndex

    every = np.load(path, mmap_mode="r")
    vectors, queries = every[:-num_queries], np.array(every[-num_queries:])
    chosen = {"kind": asked} if asked in KINDS else {"memory": asked}
    before = anonymous()
    with PeakMemory() as memory, Timer() as build:
        index = NeighborIndex.build(vectors, metric="cosine", seed=0, **chosen)
    after = anonymous()
    rows = index.rows().numpy()
    asked_rows = index.prepare(queries).numpy()
    near = near_exactly(asked_rows, rows, 100, inner=True)[1]
    times = []
    for i in range(num_queries):
        with Timer() as query:
            index.search(queries[i : i + 1], 10)
        times.append(query.seconds)
    recalls = {}
    for k in (10, 100):
        found = index.search(queries, k)[1]
        recalls[k] = np.mean([len(np.intersect1d(found[i], near[i, :k])) / k for i in range(num_queries)])
    return {
        "asked": asked,
        "kind": index.kind,
        "num_vectors": len(vectors),
        "dim": index.dim,
        "index_mb": round(index.num_bytes / 1e6, 1),
        "anonymous_mb": round((after - before) / 1e6, 1),
        "built_mb": round((memory.peak_bytes - memory.start_bytes) / 1e6, 1),
        "build_s": round(build.seconds, 1),
        "p50_ms": round(float(np.median(times)) * 1000, 3),
        "recall_at_10": round(float(recalls[10]), 4),
        "recall_at_100": round(float(recalls[100]), 4),
        "reported": round(index.recall_, 4),
        "num_probes": index.num_probes_ or 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-vectors", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--num-queries", type=int, default=500)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--memory", nargs="*", default=[], help="sizes such as 60MB: what they pick")
    parser.add_argument("--output", type=Path, default=None, help="default: results/index_memory.json")
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)  # a file and a kind: in its own process
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(measure(Path(args.one[0]), args.one[1], args.num_queries)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        write_vectors(path, args.num_vectors + args.num_queries, args.dim)
        for asked in (*args.memory, *(() if args.memory else args.kinds)):
            command = [sys.executable, __file__, "--one", str(path), asked, "--num-queries", str(args.num_queries)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(rows[-1]), flush=True)
    record("index_memory", {"columns": COLUMNS, "rows": rows}, args.output)


if __name__ == "__main__":
    main()
