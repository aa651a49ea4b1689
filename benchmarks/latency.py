"""Time to classify one cold node on a CPU, with 500,000 seen nodes.

    python benchmarks/latency.py

The model is fitted for a few steps only: how long an answer takes does not depend on what was learned.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from _common import record
from gsparc import SparcClassifier, SpectralMap
from gsparc.datasets import make_blocks

COLUMNS = [
    ["backbone", "backbone", ""],
    ["seen", "seen nodes", ",d"],
    ["p50_ms", "p50, ms", ".1f"],
    ["p99_ms", "p99, ms", ".1f"],
    ["batch_ms", "a node in a batch of 1,000, ms", ".2f"],
]


def measure(backbone: str, data: object, n: int, queries: int) -> dict[str, float | str | int]:
    """Milliseconds of single calls of ``predict_proba``."""
    X, y, graph = data.X, data.y, data.graph  # type: ignore[attr-defined]
    seen = np.arange(n)
    inference = {"gcn_inference": "summary"} if backbone == "gcn, summary" else {}
    model = SparcClassifier(
        backbone.split(",", maxsplit=1)[0],
        spectral_map=SpectralMap(64, max_steps=100),
        num_tokens=10,
        max_steps=20,
        distill=False,
        device="cpu",
        random_state=0,
        **inference,  # type: ignore[arg-type]
    )
    model.fit(X[seen], y[seen], graph=graph[seen])
    for row in range(n, n + 20):
        model.predict_proba(X[row : row + 1])
    times = []
    for row in range(n + 20, n + 20 + queries):
        start = time.perf_counter()
        model.predict_proba(X[row : row + 1])
        times.append(1000 * (time.perf_counter() - start))
    start = time.perf_counter()
    model.predict_proba(X[n : n + 1000])
    batch = time.perf_counter() - start
    p50, p99 = np.percentile(times, [50, 99])
    return {"backbone": backbone, "seen": n, "p50_ms": float(p50), "p99_ms": float(p99), "batch_ms": batch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seen", type=int, default=500_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--backbones", nargs="+", default=["phormer", "gcn, summary"])
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    data = make_blocks(args.seen + 2000, 10 * args.seen, 100, num_classes=20, random_state=0)
    rows = []
    for backbone in args.backbones:
        rows.append(measure(backbone, data, args.seen, args.queries))
        print(rows[-1], flush=True)
    record("latency", {"columns": COLUMNS, "rows": rows, "bar": "phormer p50 <= 10 ms"}, args.output)


if __name__ == "__main__":
    main()
