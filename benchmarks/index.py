"""How fast and complete is the approximate neighbour index? 500,000 x 64, one query at a time on one thread.

Writes results/index.json. Queries are nodes without edges, or fresh draws from the distribution of the vectors.

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
from gsparc import SpectralMap
from gsparc.datasets import make_blocks
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


def coordinates(n: int, dim: int, num_queries: int) -> np.ndarray:
    """Spectral coordinates of a generated graph; the last ``num_queries`` rows are nodes without edges."""
    data = make_blocks(n + num_queries, 10 * n, 32, random_state=0)
    shuffled = np.random.default_rng(0).permutation(n + num_queries)
    seen, cold = np.sort(shuffled[:n]), shuffled[n:]
    spectral = SpectralMap(dim, max_steps=300, random_state=0).fit(data.X[seen], graph=data.graph[seen])
    return np.concatenate([spectral.transform(data.X[seen]), spectral.transform(data.X[cold])])


def measure(name: str, rows: np.ndarray, num_queries: int) -> dict[str, float | str | int]:
    """Build once, then time one query at a time on one thread."""
    rows, queries = rows[:-num_queries], rows[-num_queries:]
    n, dim = rows.shape
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
    for name, spread in {"spectral coordinates of a generated graph": None, **cases}.items():
        if spread is None:
            vectors = coordinates(args.num_vectors, args.dim, args.num_queries)
        else:
            vectors = mixture(args.num_vectors + args.num_queries, args.dim, spread, np.random.default_rng(0))
        rows.append(measure(name, vectors, args.num_queries))
        print(json.dumps(rows[-1]), flush=True)
    bar = {"recall_at_10": 0.98, "p50_ms": 0.3, "vectors": "500,000 x 64, CPU"}
    record("index", {"bar": bar, "columns": COLUMNS, "rows": rows}, args.output)


if __name__ == "__main__":
    main()
