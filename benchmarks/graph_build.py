"""How long, and in how much memory, a random edge list becomes a Graph.

    python benchmarks/graph_build.py --edges 60000000 --nodes 2400000

Peak memory is that of the whole process: Python, the input edges and the finished graph.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from _common import PeakMemory, Timer, record
from gsparc.graph import Graph

COLUMNS = [
    ["edge_dtype", "edge ids", ""],
    ["nodes", "nodes", ",d"],
    ["edges", "edges given", ",d"],
    ["distinct_edges", "edges kept", ",d"],
    ["weighted", "weighted", ""],
    ["seconds", "seconds", ".1f"],
    ["maxrss_gb", "peak memory, GB", ".2f"],
]


def measure(num_edges: int, num_nodes: int, dtype: str, weighted: bool, seed: int) -> dict[str, object]:
    """Build one graph; returns the figures."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, size=(2, num_edges), dtype=np.dtype(dtype))
    weights = rng.random(num_edges, dtype=np.float32) + np.float32(0.5) if weighted else None
    with PeakMemory() as memory, Timer() as timer:
        graph = Graph.from_edges(edges, num_nodes, weights=weights)
    return {
        "edges": num_edges,
        "nodes": num_nodes,
        "edge_dtype": dtype,
        "weighted": weighted,
        "distinct_edges": graph.num_edges,
        "seconds": round(timer.seconds, 2),
        **memory.as_dict(),
        "input_gb": round((edges.nbytes + (0 if weights is None else weights.nbytes)) / 1e9, 3),
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=60_000_000)
    parser.add_argument("--nodes", type=int, default=2_400_000)
    parser.add_argument("--dtype", choices=("int32", "int64"), default="int64")
    parser.add_argument("--weighted", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=None, help="default: results/graph_build.json")
    args = parser.parse_args()
    row = measure(args.edges, args.nodes, args.dtype, args.weighted, args.seed)
    path = record("graph_build", {"columns": COLUMNS, "rows": [row]}, args.output)
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
