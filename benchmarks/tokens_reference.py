"""Token lists of every node of Pubmed: how many times faster than the way the paper's public code makes them?

    python benchmarks/tokens_reference.py

The public code asks scikit-learn for the 16,384 nearest nodes of every node, itself included, and then averages, token
by token and a thousand nodes at a time, the feature rows of the first 2, 4, 8 ... of them. Here that is done a
block of nodes at a time, which is the same work and keeps the table of neighbours (5 GB) out of memory. A second,
kinder reading asks only for the 2^K neighbours that are used. All run on one thread over the same nodes; ours in one
call, and the time to build it counts in full. The error is the relative root mean square difference of all tokens,
and of those over more than 64 nodes, from the means of the public code's way.

Coordinates are those of a fitted spectral map as the classifier compares them: scaled by the square root of one less
the eigenvalue, each row of length one. Without the data (GSPARC_DATA) a graph of the same size is made up. CPU seconds
are given beside seconds: they hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import faiss
import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from _common import record
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.tokens import TokenIndex

ASKED = 2**14  # neighbours that the public code asks for, however few it uses
CHUNK = 1024
COLUMNS = [
    ["num_tokens", "tokens", "d"],
    ["neighbours", "neighbours asked for", ",d"],
    ["reference_s", "public code's way, s", ".0f"],
    ["ours_s", "ours, s", ".2f"],
    ["ratio", "times faster", ".0f"],
    ["error", "error, %", ".2f"],
    ["error_far", "of means over > 64 nodes, %", ".2f"],
]


def data(dim: int, max_steps: int | None) -> tuple[str, np.ndarray, np.ndarray]:
    """Name, coordinates and feature rows of the nodes."""
    from gsparc import SpectralMap, load_dataset
    from gsparc.datasets import make_blocks
    from gsparc.exceptions import DataNotFoundError

    try:
        found, name = load_dataset("pubmed"), "Pubmed"
    except DataNotFoundError:
        found, name = make_blocks(19_717, 44_324, 500, num_classes=3, random_state=0), "made up"
    X = found.X
    rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float32)
    steps = {} if max_steps is None else {"max_steps": max_steps}
    embedding = SpectralMap(n_components=dim, random_state=0, device="cpu", **steps).fit(X, graph=found.graph)
    vectors = embedding.transform(X) * np.sqrt(np.clip(1 - embedding.eigenvalues_, 0, None))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return name, np.ascontiguousarray(vectors, np.float32), rows


def reference(search: NearestNeighbors, vectors: np.ndarray, rows: torch.Tensor, nodes: np.ndarray, num_tokens: int):
    """Token lists of some nodes as the public code makes them: (m, num_tokens, d)."""
    near = search.kneighbors(vectors[nodes])[1]
    out = torch.empty(len(nodes), num_tokens, rows.shape[1])
    for token in range(num_tokens):
        first = near[:, : 2 ** (token + 1)]
        for start in range(0, len(nodes), CHUNK):
            out[start : start + CHUNK, token] = rows[first[start : start + CHUNK]].mean(dim=1)
    return out


class Stopwatch:
    """Seconds and CPU seconds of ``with`` blocks, added up."""

    def __init__(self) -> None:
        self.total = np.zeros(2)

    def __enter__(self) -> None:
        self._start = np.array([time.perf_counter(), time.process_time()])

    def __exit__(self, *_: object) -> None:
        self.total += np.array([time.perf_counter(), time.process_time()]) - self._start


def measure(vectors: np.ndarray, rows: np.ndarray, num_tokens: int, asked: int, blocks: int, options: dict) -> dict:
    """Seconds for all nodes, from ``blocks`` blocks of them that are spread over all (0: all blocks)."""
    n, tensor = len(vectors), torch.from_numpy(rows)
    every = np.array_split(np.random.default_rng(0).permutation(n), -(-n // CHUNK))
    used = every if not blocks else every[:blocks]
    share = sum(map(len, used)) / n
    build, ours, prepare, theirs = (Stopwatch() for _ in range(4))
    with build:
        index = TokenIndex.build(NeighborIndex.build(vectors, metric="cosine", seed=0), rows, seed=0, **options)
    with ours:
        found = index.tokens(vectors[np.concatenate(used)], num_tokens)
    with prepare:
        search = NearestNeighbors(n_neighbors=min(asked, n), algorithm="auto").fit(vectors)
    squares = np.zeros((2, num_tokens))
    for nodes, got in zip(used, found.split([len(nodes) for nodes in used]), strict=True):
        with theirs:
            truth = reference(search, vectors, tensor, nodes, num_tokens)
        squares[0] += (got - truth).square().sum(dim=(0, 2)).numpy()
        squares[1] += truth.square().sum(dim=(0, 2)).numpy()
    slow, fast = prepare.total + theirs.total / share, build.total + ours.total / share
    return {
        "num_tokens": num_tokens,
        "neighbours": min(asked, n),
        "reference_s": round(slow[0], 2),
        "reference_cpu_s": round(slow[1], 2),
        "ours_s": round(fast[0], 3),
        "ours_cpu_s": round(fast[1], 3),
        "build_s": round(build.total[0], 3),
        "ratio": round(slow[0] / fast[0], 1),
        "ratio_cpu": round(slow[1] / fast[1], 1),
        "error": percent(*squares.sum(axis=1)),
        "error_far": percent(*squares[:, 6:].sum(axis=1)) if num_tokens > 6 else None,
        "error_by_token": [percent(*both) for both in squares.T],
        "share_measured": round(share, 3),
        **options,
    }


def percent(difference: float, size: float) -> float:
    return round(float(100 * np.sqrt(difference / size)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--max-steps", type=int, default=None, help="of the spectral map")
    parser.add_argument("--blocks", type=int, default=0, help="measure only so many blocks of 1,024 nodes")
    parser.add_argument("--exact-tokens", type=int, default=None)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    name, vectors, rows = data(args.dim, args.max_steps)
    options: dict[str, Any] = {} if args.exact_tokens is None else {"exact_tokens": args.exact_tokens}
    results = []
    for num_tokens, asked in ((7, ASKED), (10, ASKED), (7, 2**7), (10, 2**10)):
        results.append(measure(vectors, rows, num_tokens, asked, args.blocks, options))
        print(results[-1], flush=True)
    size = {"num_nodes": len(vectors), "num_features": rows.shape[1], "dim": args.dim, "threads": 1}
    bar = {"ratio": 50, "error": 5, "case": "the public code's own 7 tokens and its 16,384 neighbours"}
    record("tokens_reference", {"data": name, **size, "bar": bar, "columns": COLUMNS, "rows": results}, args.output)


if __name__ == "__main__":
    main()
