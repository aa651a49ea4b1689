"""Does a training step cost more on a larger graph?

    python benchmarks/edge_scaling.py

Random graphs of 1 to 200 million edges (25 edges a node), 64 features, the same number of edge samples. All graphs are
kept in memory (about 8 GB, 13 while the largest is made) and the rounds go from one to the next, so that what else the
machine does falls on all of them: the median over the rounds of seconds a step, how far the slowest and the
fastest lie apart, and the exponent of the growth with the number of edges.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from _common import Timer, record
from gsparc.graph import Graph
from gsparc.nn.spectral_map import SpectralNet
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling
from gsparc.training.loop import LoopSettings, run_loop
from gsparc.training.spectral import SpectralTask

BATCH = 2048
COLUMNS = [
    ["edges", "edges", ",d"],
    ["nodes", "nodes", ",d"],
    ["milliseconds", "a step, ms", ".1f"],
    ["nanoseconds", "an edge sample, ns", ",.0f"],
]


def make_task(edges: int, seed: int) -> SpectralTask:
    """Training on one random graph."""
    rng = np.random.default_rng(seed)
    nodes = edges // 25
    graph = Graph.from_edges(rng.integers(0, nodes, (2, edges), dtype=np.int32), num_nodes=nodes)
    X = rng.standard_normal((nodes, 64), dtype=np.float32)
    torch.manual_seed(seed)
    module = SpectralNet(64, 64, hidden_channels=(256, 256, 256), linear_path=False)
    features = FeatureSource(X, Scaling.fit(X))
    return SpectralTask(
        module, features, EdgeSampler(graph), np.arange(nodes), None, objective="contrastive", batch_size=BATCH
    )


def milliseconds(task: SpectralTask, steps: int) -> float:
    """A step's time, over ``steps`` of them."""
    with Timer() as timer:
        run_loop(task, LoopSettings(steps=steps, eval_every=steps), torch.device("cpu"))
    return 1000 * timer.seconds / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1_000_000, 4_000_000, 16_000_000, 60_000_000, 200_000_000]
    parser.add_argument("--edges", type=int, nargs="+", default=sizes)
    parser.add_argument("--steps", type=int, default=40, help="a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    tasks = [make_task(edges, 0) for edges in sorted(args.edges, reverse=True)][::-1]  # the largest needs most room
    for task in tasks:
        milliseconds(task, 10)
    times = np.array([[milliseconds(task, args.steps) for task in tasks] for _ in range(args.rounds)])
    rows = []
    for task, taken in zip(tasks, np.median(times, axis=0), strict=True):
        counts = {"edges": task.sampler._entries // 2, "nodes": task.sampler.num_nodes}
        rows.append({**counts, "milliseconds": float(taken), "nanoseconds": 1e6 * float(taken) / BATCH})
        print(rows[-1], flush=True)
    logs = np.log([[row["edges"], row["milliseconds"]] for row in rows])
    exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    apart = max(row["milliseconds"] for row in rows) / min(row["milliseconds"] for row in rows)
    print("exponent", exponent, "slowest over fastest", apart)
    result = {"columns": COLUMNS, "rows": rows, "exponent": exponent, "slowest_over_fastest": apart}
    record("edge_scaling", {**result, "rounds": times.tolist(), "bar": "within 1.5 x"}, args.output)


if __name__ == "__main__":
    main()
