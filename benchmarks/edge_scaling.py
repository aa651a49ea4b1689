"""Does a training step cost more on a larger graph?

    python benchmarks/edge_scaling.py                    # one core
    python benchmarks/edge_scaling.py --device cuda      # one GPU

Random graphs of 1 to 200 million edges (25 edges a node), 64 features, the same number of edge samples. All graphs are
kept in memory (about 8 GB, 13 while the largest is made) and the rounds go from one to the next, so that what else the
machine does falls on all of them: the median over the rounds of seconds a step, how far the slowest and the
fastest lie apart, and the exponent of the growth with the number of edges. On a GPU the graphs are made there, and a
round has more steps: each records its step anew, which is part of its time.
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
    ["milliseconds", "a step, ms", ".2f"],
    ["nanoseconds", "an edge sample, ns", ",.0f"],
]


def random_graph(edges: int, nodes: int, seed: int, device: torch.device) -> Graph:
    """Ends drawn evenly; made on the GPU where there is one, since sorting takes the host a minute."""
    if device.type == "cpu":
        ends = np.random.default_rng(seed).integers(0, nodes, (2, edges), dtype=np.int32)
        return Graph.from_edges(ends, num_nodes=nodes)
    generator = torch.Generator(device).manual_seed(seed)
    source, target = torch.randint(nodes, (2, edges), generator=generator, device=device)
    source, target = source[source != target], target[source != target]
    keys = torch.unique(torch.cat([source * nodes + target, target * nodes + source]))
    pointers = torch.searchsorted(keys, torch.arange(nodes + 1, device=device) * nodes)
    return Graph._from_csr(pointers.cpu().numpy(), (keys % nodes).int().cpu().numpy())


def make_task(edges: int, seed: int, device: torch.device) -> SpectralTask:
    """Training on one random graph."""
    nodes = edges // 25
    graph = random_graph(edges, nodes, seed, device)
    X = np.random.default_rng(seed).standard_normal((nodes, 64), dtype=np.float32)
    torch.manual_seed(seed)
    module = SpectralNet(64, 64, hidden_channels=(256, 256, 256), linear_path=False).to(device)
    features = FeatureSource(X, Scaling.fit(X), device)
    sampler = EdgeSampler(graph, device)
    return SpectralTask(module, features, sampler, np.arange(nodes), None, objective="contrastive", batch_size=BATCH)


def milliseconds(task: SpectralTask, steps: int, device: torch.device) -> float:
    """A step's time, over ``steps`` of them."""
    with Timer() as timer:
        run_loop(task, LoopSettings(steps=steps, eval_every=steps, bf16=device.type == "cuda"), device)
        if device.type == "cuda":
            torch.cuda.synchronize()
    return 1000 * timer.seconds / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1_000_000, 4_000_000, 16_000_000, 60_000_000, 200_000_000]
    parser.add_argument("--edges", type=int, nargs="+", default=sizes)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=None, help="a round; 40, on a GPU 1000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    device = torch.device(args.device)
    steps = args.steps or (1000 if device.type == "cuda" else 40)
    # the largest first: it needs most room
    tasks = [make_task(edges, 0, device) for edges in sorted(args.edges, reverse=True)][::-1]
    for task in tasks:
        milliseconds(task, 10, device)
    times = np.array([[milliseconds(task, steps, device) for task in tasks] for _ in range(args.rounds)])
    rows = []
    for task, taken in zip(tasks, np.median(times, axis=0), strict=True):
        counts = {"edges": task.sampler._entries // 2, "nodes": task.sampler.num_nodes}
        rows.append({**counts, "milliseconds": float(taken), "nanoseconds": 1e6 * float(taken) / BATCH})
        print(rows[-1], flush=True)
    logs = np.log([[row["edges"], row["milliseconds"]] for row in rows])
    exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    apart = max(row["milliseconds"] for row in rows) / min(row["milliseconds"] for row in rows)
    print("exponent", exponent, "slowest over fastest", apart)
    result = {"columns": COLUMNS, "rows": rows, "exponent": exponent, "slowest_over_fastest": apart, "steps": steps}
    name = "edge_scaling" if device.type == "cpu" else "edge_scaling_gpu"
    record(name, {**result, "device": device.type, "rounds": times.tolist(), "bar": "within 1.5 x"}, args.output)


if __name__ == "__main__":
    main()
