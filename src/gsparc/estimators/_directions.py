"""Directions of the features that neighbours share: linear coordinates of a node, beside those of the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gsparc._cuts import in_units
from gsparc.graph import Graph
from gsparc.ops.laplacian import operator_degrees, walk

__all__ = ["shared_directions"]

_ROUNDS = 4  # of the range finder
_MORE = 10  # directions that it looks at beyond those wanted
_OWN = 0.05  # share of a node's own row in what it is averaged to


def shared_directions(rows: Any, graph: Graph, rank: int, *, steps: int = 2, seed: int = 0) -> np.ndarray:
    """Leading right singular vectors ``[d, rank]`` of the rows after averaging them along the edges.

    A row becomes the mean of those that walks of 1 to ``steps`` steps lead to, with a little of itself. Directions in
    which linked nodes agree keep their length, what is each node's own fades. By a randomised range finder (Halko,
    Martinsson and Tropp, arXiv 0909.4061); averaged rows are never made, only their products with a few vectors, so
    sparse rows stay sparse.

    Parameters
    ----------
    rows
        Features ``[n, d]``, dense or sparse, each row of length one.

    Examples
    --------
    Two pairs of neighbours: within each the first word is shared, and the others cancel less than it.

    >>> rows = np.array([[1, 1, 0], [1, -1, 0], [-1, 0, 1], [-1, 0, -1]], np.float32)
    >>> pairs = Graph.from_edges([[0, 2], [1, 3]])
    >>> np.abs(shared_directions(rows, pairs, 1)).round(2).ravel().tolist()
    [1.0, 0.0, 0.0]
    """
    n, d = rows.shape
    rank = min(rank, n, d)
    forth, back = _averaging(in_units(graph), steps)
    found = np.random.default_rng(seed).standard_normal((d, min(rank + _MORE, n, d))).astype(np.float32)
    for _ in range(_ROUNDS):
        images = np.linalg.qr(forth(np.asarray(rows @ found)))[0]
        found = np.linalg.qr(np.asarray(rows.T @ back(images)))[0]
    _, _, turned = np.linalg.svd(forth(np.asarray(rows @ found)), full_matrices=False)
    return np.ascontiguousarray(found @ turned.T[:, :rank], dtype=np.float32)


Map = Callable[[np.ndarray], np.ndarray]


def _averaging(graph: Graph, steps: int) -> tuple[Map, Map]:
    """``M = own I + (1 - own) / steps (P + P^2 + ...)`` and its transpose, as functions of columns ``[n, k]``."""
    degrees = np.asarray(operator_degrees(graph.indptr, graph.weights), np.float32)[:, None]

    def step(columns: np.ndarray) -> np.ndarray:
        there = torch.from_numpy(np.ascontiguousarray(columns, np.float32))
        return walk(graph.indptr, graph.indices, graph.weights, there).numpy()

    def back_step(columns: np.ndarray) -> np.ndarray:
        return degrees * step(columns / degrees)  # P = D^-1 (A + I), and A is symmetric

    def mean(columns: np.ndarray, once: Map) -> np.ndarray:
        out, moved = _OWN * columns, columns
        for _ in range(steps):
            moved = once(moved)
            out = out + (1 - _OWN) / steps * moved
        return out

    return (lambda columns: mean(columns, step)), (lambda columns: mean(columns, back_step))
