"""Do two processes train F_theta faster than one, and as well?

    python benchmarks/processes.py

The same fit of a spectral map by one process with one thread, and by two (torchrun, gloo), in turns: edge samples a
second of the training loop, evaluations on held-out nodes included; then new nodes look for their neighbours in the
space of the map. Every process has one thread, and the batch of all of them together is the same. Each fits a small
map beforehand: what torch loads when it is first used is no part of training.

A batch computes each of its nodes once, and a larger batch has more repeats: what one process saves by them, two that
draw edges of their own do not. And whatever the batch, messages take the same time. So the gain depends on it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import record

COLUMNS = [
    ["batch", "edges a step", ",d"],
    ["processes", "processes", ",d"],
    ["samples_per_second", "edge samples a second", ",.0f"],
    ["ratio", "times as many", ".2f"],
    ["fit_seconds", "whole fit, s", ".1f"],
    ["mrr", "MRR of new nodes' links", ".4f"],
    ["eigenvalue_sum", "sum of the eigenvalues", ".4f"],
]


def worker(nodes: int, edges: int, steps: int, batch: int, seed: int) -> None:
    """Fit; the first process prints what it has measured."""
    from gsparc.datasets import make_blocks
    from gsparc.estimators import embedding
    from gsparc.training.distributed import joined

    data = make_blocks(nodes, edges, 64, num_classes=16, random_state=0)
    cold = np.sort(np.random.default_rng(0).choice(nodes, nodes // 50, replace=False))
    seen = np.setdiff1d(np.arange(nodes), cold)
    spent: list[float] = []
    loop = embedding.run_loop

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        result = loop(*args)
        spent.append(time.perf_counter() - start)
        return result

    embedding.run_loop = timed
    with joined() as together:
        small = make_blocks(200, 1000, 8, random_state=0)  # the first optimiser of a process makes torch load a second
        embedding.SpectralMap(4, max_steps=2, random_state=0).fit(small.X, graph=small.graph)
        spent.clear()
        model = embedding.SpectralMap(64, max_steps=steps, batch_size=batch, patience=1000, random_state=seed)
        X, graph = np.asarray(data.X, np.float32), data.graph[seen]
        start = time.perf_counter()
        model.fit(X[seen], graph=graph)
        fit_seconds = time.perf_counter() - start
        if together.first:
            row = {"samples_per_second": model.n_steps_ * model.batch_size / spent[0], "fit_seconds": fit_seconds}
            row |= {
                "mrr": retrieval(model, X, data.graph, seen, cold),
                "eigenvalue_sum": float(sum(model.eigenvalues_)),
            }
            print(json.dumps(row))


def retrieval(model: Any, X: np.ndarray, graph: Any, seen: np.ndarray, cold: np.ndarray) -> float:
    """Mean reciprocal rank of the nearest true neighbour among all seen nodes, for up to 500 new nodes."""
    from gsparc.metrics.links import link_metrics, rank_links, truth_matrix

    scale = np.sqrt(np.clip(1 - model.eigenvalues_, 0, None))
    known, new = model.transform(X[seen]) * scale, model.transform(X[cold[:500]]) * scale
    ranks = rank_links(lambda rows: new[rows] @ known.T, truth_matrix(graph, cold[:500], seen))
    return link_metrics(ranks)["mrr"]


def measure(processes: int, arguments: list[str]) -> dict[str, float]:
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command += [__file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batches", type=int, nargs="+", default=[2048, 4096, 8192], help="Edges a step.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)  # the batch of this one
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    if args.worker:
        return worker(args.nodes, args.edges, args.steps, args.worker, args.seed)
    cases = [(batch, count) for batch in args.batches for count in args.processes]
    found: dict[tuple[int, int], list[dict[str, float]]] = {case: [] for case in cases}
    for seed in range(args.repeats):
        for batch, count in cases:  # in turns: the machine may not be as quiet at all times
            size = ["--nodes", str(args.nodes), "--edges", str(args.edges), "--steps", str(args.steps)]
            found[batch, count].append(measure(count, ["--worker", str(batch), *size, "--seed", str(seed)]))
            print(batch, count, found[batch, count][-1], flush=True)
    rows: list[dict[str, Any]] = []
    for (batch, count), runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        spread = {f"{name}_range": [min(run[name] for run in runs), max(run[name] for run in runs)] for name in runs[0]}
        rows.append({"batch": batch, "processes": count, **middle, **spread})
        alone = next(row for row in rows if row["batch"] == batch)
        rows[-1]["ratio"] = rows[-1]["samples_per_second"] / alone["samples_per_second"]
        print(batch, count, "times as many edge samples a second:", rows[-1]["ratio"])
    bar = "two processes: at least 1.6 times the edge samples a second of one, same MRR within noise"
    payload = {"columns": COLUMNS, "rows": rows, "steps": args.steps, "repeats": args.repeats, "bar": bar}
    record("processes", payload, args.output)
    return None


if __name__ == "__main__":
    main()
