"""How fast and complete is the approximate neighbour index? 500,000 x 64, one query at a time on one thread.

Writes results/index.json. Queries are fresh draws from the same distribution as the vectors.

    python benchmarks/index.py
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import faiss
import numpy as np

from _common import Timer, record
from gsparc.ops.neighbors import NeighborIndex

COLUMNS = [
    ["vectors", "vectors", ""],
    ["num_vectors", "number", ",d"],
    ["dim", "components", "d"],
    ["build_s", "build, s", ".0f"],
    ["p50_ms", "p50, ms", ".2f"],
    ["p99_ms", "p99, ms", ".2f"],
    ["recall_at_10", "recall@10", ".3f"],
]


def mixture(n: int, dim: int, spread: float, rng: np.random.Generator, centres: int = 1000) -> np.ndarray:
    """Rows around ``centres`` Gaussian centres; isotropic noise when ``spread`` is infinite."""
    if np.isinf(spread):
        return rng.standard_normal((n, dim), dtype=np.float32)
    middle = rng.standard_normal((centres, dim), dtype=np.float32)
    return middle[rng.integers(centres, size=n)] + np.float32(spread) * rng.standard_normal((n, dim), dtype=np.float32)


def measure(name: str, spread: float, n: int, dim: int, num_queries: int) -> dict[str, float | str | int]:
    """Build once, then time one query at a time on one thread."""
    rng = np.random.default_rng(0)
    rows = mixture(n + num_queries, dim, spread, rng)
    rows, queries = rows[:n], rows[n:]
    with Timer() as build:
        index = NeighborIndex.build(rows, kind="ivf", seed=0)
    truth = NeighborIndex.build(rows, kind="exact").search(queries, 10)[1]
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    times, hits = [], 0
    for i in range(num_queries):
        with Timer() as query:
            found = index.search(queries[i : i + 1], 10)[1]
        times.append(query.seconds)
        hits += len(np.intersect1d(found[0], truth[i]))
    faiss.omp_set_num_threads(threads)
    milliseconds = np.array(times) * 1000
    return {
        "vectors": name,
        "num_vectors": n,
        "dim": dim,
        "build_s": round(build.seconds, 2),
        "p50_ms": round(float(np.percentile(milliseconds, 50)), 4),
        "p99_ms": round(float(np.percentile(milliseconds, 99)), 4),
        "recall_at_10": round(hits / (10 * num_queries), 4),
        "recall_at_build": round(index.recall_, 4),
        "num_probes": index.num_probes_ or 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-vectors", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--num-queries", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=None, help="default: results/index.json")
    args = parser.parse_args()
    cases = {
        "1000 clusters, spread 0.3": 0.3,
        "1000 clusters, spread 1.0": 1.0,
        "isotropic (no structure at all)": np.inf,
    }
    rows = []
    for name, spread in cases.items():
        rows.append(measure(name, spread, args.num_vectors, args.dim, args.num_queries))
        print(json.dumps(rows[-1]), flush=True)
    bar = {"recall_at_10": 0.98, "p50_ms": 0.3, "vectors": "clustered, 500,000 x 64, CPU"}
    record("index", {"bar": bar, "columns": COLUMNS, "rows": rows}, args.output)


if __name__ == "__main__":
    main()
