"""What do token lists cost, and how far are they from exact means? 232,965 nodes x 602 features, ten tokens, two cores.

Writes results/tokens.json. Coordinates and features are those of communities inside communities; every level has
its own centroids in both. The features' noise is as long as their signal, or twice as long. Lists are made for
all nodes, in batches of random nodes as training sees them, and dropped; the error is against exact means over the
2^j nearest of sampled nodes, with a query's own node left out in both.

    python benchmarks/tokens.py
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin at barriers stand still on a shared machine

import faiss
import numpy as np
import torch

from _common import PeakMemory, Timer, record
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.tokens import TokenIndex, tokens_from_neighbors

BRANCHING = (41, 6, 4)  # blocks of about 237 nodes; 1,024 nearest span some of them
COLUMNS = [
    ["case", "case", ""],
    ["num_nodes", "nodes", ",d"],
    ["num_features", "features", "d"],
    ["seconds", "all lists, s", ".0f"],
    ["peak_gb", "peak memory, GB", ".1f"],
    ["error", "error of means over > 64 nodes, %", ".1f"],
    ["one_ms", "one list, one thread, p50 ms", ".2f"],
]


def coordinates(leaf: np.ndarray, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Each level moves a node half as far as the one above; what is left is noise of no structure."""
    out = np.float32(0.3) * rng.standard_normal((len(leaf), dim), dtype=np.float32)
    for block, scale in zip(levels(leaf), (1.0, 0.6, 0.36), strict=True):
        out += np.float32(scale) * rng.standard_normal((block.max() + 1, dim), dtype=np.float32)[block]
    return out


def features(leaf: np.ndarray, width: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Signal of variance one, a third of it from each level, plus noise; filled in blocks."""
    middles = [rng.standard_normal((b.max() + 1, width), dtype=np.float32) / np.float32(3**0.5) for b in levels(leaf)]
    out = np.empty((len(leaf), width), dtype=np.float32)
    for start in range(0, len(leaf), 8192):
        part = slice(start, start + 8192)
        rng.standard_normal(out=out[part], dtype=np.float32)
        out[part] *= np.float32(noise)
        for block, middle in zip(levels(leaf[part]), middles, strict=True):
            out[part] += middle[block]
    return out


def levels(leaf: np.ndarray) -> list[np.ndarray]:
    below = int(np.prod(BRANCHING))
    return [leaf // (below := below // width) for width in BRANCHING]


def exact(vectors: np.ndarray, nodes: np.ndarray, num_tokens: int) -> torch.Tensor:
    """The 2^K nearest others of ``nodes``, by brute force: (m, 2^K)."""
    ids = NeighborIndex.build(vectors, kind="exact").search(vectors[nodes], 2**num_tokens + 1)[1]
    return torch.from_numpy(np.stack([row[row != node][: 2**num_tokens] for row, node in zip(ids, nodes, strict=True)]))


def errors(index: TokenIndex, rows: np.ndarray, vectors: np.ndarray, nodes: np.ndarray, near: torch.Tensor) -> dict:
    """Relative error of every token, and of those over more than 64 nodes together, in per cent."""
    num_tokens = near.shape[1].bit_length() - 1
    squares = np.zeros((2, num_tokens))
    for part in torch.arange(len(nodes)).split(50):
        truth = tokens_from_neighbors(near[part], torch.from_numpy(rows), num_tokens)
        got = index.tokens(vectors[nodes[part]], num_tokens, exclude=nodes[part])
        squares[0] += (got - truth).square().sum(dim=(0, 2)).numpy()
        squares[1] += truth.square().sum(dim=(0, 2)).numpy()
    each = 100 * np.sqrt(squares[0] / squares[1])
    far = squares[:, 6:].sum(axis=1)
    return {"error_by_token": each.round(3).tolist(), "error": round(float(100 * np.sqrt(far[0] / far[1])), 3)}


def one_by_one(index: TokenIndex, vectors: np.ndarray, num_tokens: int, count: int = 300) -> float:
    """Median milliseconds of a single list on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times = []
    for i in range(count):
        with Timer() as timer:
            index.tokens(vectors[i : i + 1] + np.float32(0.01), num_tokens)
        times.append(1000 * timer.seconds)
    torch.set_num_threads(threads)
    return round(float(np.median(times)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-nodes", type=int, default=232_965)
    parser.add_argument("--num-features", type=int, default=602)
    parser.add_argument("--num-tokens", type=int, default=10)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--sample", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=None, help="default: results/tokens.json")
    args = parser.parse_args()
    faiss.omp_set_num_threads(torch.get_num_threads())
    rng = np.random.default_rng(0)
    leaf = rng.integers(int(np.prod(BRANCHING)), size=args.num_nodes)
    vectors = coordinates(leaf, args.dim, rng)
    rows = features(leaf, args.num_features, 1.0, rng)
    nodes = np.sort(rng.choice(args.num_nodes, args.sample, replace=False))
    shared = {"num_nodes": args.num_nodes, "num_features": args.num_features, "threads": torch.get_num_threads()}

    before = time.process_time()
    with PeakMemory() as memory:
        with Timer() as search:
            neighbors = NeighborIndex.build(vectors, seed=0)
        with Timer() as build:
            index = TokenIndex.build(neighbors, rows, seed=0)
        with Timer() as stream:
            for part in np.array_split(rng.permutation(args.num_nodes), -(-args.num_nodes // args.batch)):
                index.tokens(vectors[part], args.num_tokens, exclude=part)
    times = {"index_s": search.seconds, "cells_s": build.seconds, "lists_s": stream.seconds}
    first = {
        "case": "noise as long as the signal",
        **shared,
        "seconds": round(sum(times.values()), 2),
        **{name: round(value, 2) for name, value in times.items()},
        "core_seconds": round(time.process_time() - before, 2),  # what it would take one core that does nothing else
        **memory.as_dict(),
    }
    print(json.dumps(first), flush=True)
    near = exact(vectors, nodes, args.num_tokens)
    first |= errors(index, rows, vectors, nodes, near)
    first["one_ms"] = one_by_one(index, vectors, args.num_tokens)
    print(json.dumps(first), flush=True)

    del index
    rows = features(leaf, args.num_features, 2.0, rng)
    index = TokenIndex.build(neighbors, rows, seed=0)
    second = {"case": "noise twice as long", **shared, **errors(index, rows, vectors, nodes, near)}
    every = TokenIndex.build(neighbors, rows, seed=0, exact_tokens=args.num_tokens)
    third = {"case": "noise twice as long, all rows read", **shared, **errors(every, rows, vectors, nodes, near)}
    print(json.dumps(second), json.dumps(third), sep="\n", flush=True)
    bar = {"seconds": 180, "peak_gb": 4, "error": 5, "case": "232,965 x 602, 10 tokens, 2 cores"}
    record("tokens", {"bar": bar, "columns": COLUMNS, "rows": [first, second, third]}, args.output)


if __name__ == "__main__":
    main()
