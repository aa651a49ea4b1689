"""Does a training step cost more on a larger graph?

    python benchmarks/edge_scaling.py

Random graphs of 1 to 60 million edges (25 edges a node), 64 features, the same number of edge samples: seconds
a step, and the exponent of its growth with the number of edges.
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

COLUMNS = [
    ["edges", "edges", ",d"],
    ["nodes", "nodes", ",d"],
    ["milliseconds", "a step, ms", ".1f"],
]


def measure(edges: int, steps: int, seed: int) -> dict[str, float]:
    """Seconds a step on one random graph, after a warm-up."""
    rng = np.random.default_rng(seed)
    nodes = edges // 25
    graph = Graph.from_edges(rng.integers(0, nodes, (2, edges), dtype=np.int32), num_nodes=nodes)
    X = rng.standard_normal((nodes, 64), dtype=np.float32)
    features = FeatureSource(X, Scaling.fit(X))
    torch.manual_seed(seed)
    module = SpectralNet(64, 64, hidden_channels=(256, 256, 256), linear_path=False)
    sampler = EdgeSampler(graph)
    train = np.arange(nodes)
    task = SpectralTask(module, features, sampler, train, None, objective="contrastive", batch_size=2048)
    run_loop(task, LoopSettings(steps=10, eval_every=10), torch.device("cpu"))
    with Timer() as timer:
        run_loop(task, LoopSettings(steps=steps, eval_every=steps), torch.device("cpu"))
    return {"edges": graph.num_edges, "nodes": nodes, "milliseconds": 1000 * timer.seconds / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 4_000_000, 16_000_000, 60_000_000])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    rows = []
    for edges in args.edges:
        rows.append(measure(edges, args.steps, 0))
        print(rows[-1], flush=True)
    logs = np.log([[row["edges"], row["milliseconds"]] for row in rows])
    exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    print("exponent", exponent)
    record(
        "edge_scaling", {"columns": COLUMNS, "rows": rows, "exponent": exponent, "bar": "exponent <= 0.3"}, args.output
    )


if __name__ == "__main__":
    main()
