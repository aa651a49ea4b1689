"""Directions of the features that neighbours share: linear coordinates of a node, beside those of the map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
import torch

from gsparc._cuts import in_units
from gsparc._runtime import further_seed
from gsparc.estimators._base import part_of, prefixed
from gsparc.estimators._ranking import FeatureView, unit
from gsparc.graph import Graph
from gsparc.ops.laplacian import operator_degrees, walk
from gsparc.training.links import Retrieval, mean_log_ranks
from gsparc.training.spectral import held_in

__all__ = ["MOST_SHARE", "DirectionView", "best_share", "features_beside", "shared_directions"]

MOST_SHARE = 0.9
"""Of features beside coordinates: with more, what is left of the coordinates would drown in rounding."""

_ROUNDS = 4  # of the range finder
_MORE = 10  # directions that it looks at beyond those wanted
_SHARES = (0.0, 0.75)  # of features in nearness
_CLEAR = 2.0  # standard errors
_FEATURES_UP_TO = 100_000  # nodes; beyond, an index of twice the width would cost more than it gains
_DENSE_UP_TO = 1 << 27  # numbers in dense features, 512 MB: finding their directions takes a few times that
_ROWS = 16_384  # features made ready at once
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


class DirectionView:
    """Features along directions that linked nodes share, as rows of length one to stand beside coordinates."""

    def __init__(self, view: FeatureView, directions: np.ndarray) -> None:
        self._view, self.directions = view, directions

    @classmethod
    def fit(cls, X: Any, graph: Graph, rank: int, *, seed: int = 0, hidden: np.ndarray | None = None) -> Self:
        """``rank`` directions of the seen nodes; features and edges of those that are ``hidden`` have no part in it."""
        if hidden is not None and len(hidden):
            rest = np.delete(np.arange(X.shape[0]), hidden)
            X, graph = X[rest], graph[rest]
        view = FeatureView.fit(X)
        return cls(view, shared_directions(unit(view.rows(X)), graph, rank, seed=seed))

    def rows(self, X: Any) -> np.ndarray:
        """``[m, rank]``; a row without any feature that counts is zero."""
        blocks = (X[start : start + _ROWS] for start in range(0, X.shape[0], _ROWS))
        return unit(np.concatenate([np.asarray(unit(self._view.rows(block)) @ self.directions) for block in blocks]))

    def beside(self, coordinates: np.ndarray, X: Any, share: float) -> np.ndarray:
        """Rows of coordinates, of length one, and then those of the features, which make up a share of each square."""
        own, words = np.float32(np.sqrt(1 - share)), np.float32(np.sqrt(share))
        return np.concatenate([own * coordinates, words * self.rows(X)], axis=1)

    def config(self) -> dict[str, bool]:
        """What is not an array."""
        return self._view.config()

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return prefixed("view", self._view.arrays()) | {"directions": self.directions}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], config: dict[str, bool], width: int) -> Self:
        """What :meth:`arrays` and :meth:`config` described, for features of ``width`` columns."""
        view, found = FeatureView.from_state(part_of(arrays, "view"), config, width), arrays["directions"]
        if found.ndim != 2 or len(found) != width or not np.isfinite(found).all():
            raise ValueError(f"directions of shape {found.shape}, expected finite ones, {width} rows")
        return cls(view, found)


def best_share(coordinates: np.ndarray, words: np.ndarray, retrieval: Retrieval, shares: Sequence[float]) -> float:
    """The share of the features' cosine with which held-out nodes rank their neighbours best.

    The first of ``shares`` unless another one is clearly better: by twice the standard error of what it gains, over the
    held-out nodes. All neighbours count, by the logarithm of their ranks. The rank of the best one alone would not do:
    where any member of a large community may be a neighbour, which of them comes first is chance.

    Parameters
    ----------
    coordinates, words
        Rows of length one of all seen nodes: of the map, and along directions of the features.
    """
    by_map, by_words = (
        torch.from_numpy(rows[retrieval.queries] @ rows[retrieval.candidates].T).to(retrieval.truth.device)
        for rows in (coordinates, words)
    )
    found = {s: mean_log_ranks((1 - s) * by_map + s * by_words, retrieval.truth) for s in shares}
    best = min(shares, key=lambda s: float(found[s].mean()))
    gains = found[shares[0]] - found[best]
    error = float(gains.std(correction=0)) / len(gains) ** 0.5
    return best if float(gains.mean()) > _CLEAR * error else shares[0]


def features_beside(
    share: float | Literal["auto"],
    X: Any,
    graph: Graph | None,
    spectral_map: Any,
    coordinates: np.ndarray,
    *,
    seed: int,
    device: torch.device,
) -> tuple[DirectionView | None, float]:
    """Features that count beside coordinates in telling who is near, and how much; none where they do not.

    Parameters
    ----------
    share
        As the user asked. ``"auto"``: chosen by :func:`best_share` on nodes that the map has held out, by their edges
        in ``graph``, whatever graph the map itself was learned on.
    spectral_map
        A fitted :class:`~gsparc.SpectralMap`; ``coordinates`` are those of all seen nodes.
    """
    held = spectral_map._held
    judges = None if held is None or graph is None else held_in(graph, held.nodes, held.train)
    many = X.shape[0] > _FEATURES_UP_TO or (not sp.issparse(X) and X.size > _DENSE_UP_TO)
    if share == 0 or (share == "auto" and (judges is None or many)):
        return None, 0.0
    edges = Graph.from_edges(np.zeros((2, 0), np.int64), num_nodes=X.shape[0]) if graph is None else graph
    hidden = None if held is None else held.nodes
    words = DirectionView.fit(X, edges, spectral_map.n_components, seed=seed, hidden=hidden)
    if share == "auto":
        assert judges is not None
        retrieval = Retrieval(judges, further_seed(seed, 1), device)
        share = best_share(unit(coordinates), words.rows(X), retrieval, _SHARES)
    return (words, float(share)) if share else (None, 0.0)


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
