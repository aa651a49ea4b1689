"""Links of cold nodes: filtered ranks against all seen nodes, and how much of a neighbourhood is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from gsparc.exceptions import InputError

__all__ = [
    "LinkRanks",
    "global_hits",
    "link_metrics",
    "neighborhood_prediction",
    "rank_links",
    "truth_matrix",
]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class LinkRanks:
    """Ranks of true links; among equal scores a link takes the mean of the ranks it could have.

    Attributes
    ----------
    rows : array of shape (num_evaluated,)
        Cold rows with at least one true seen neighbour.
    best_rank : array of shape (num_evaluated,)
        Of each row's best true neighbour: 1 + the seen nodes scoring above it + half of those that tie
        with it, other true neighbours left out.
    edge_row : array of shape (num_edges,)
        Position in ``rows`` of each true edge.
    edge_rank, raw_rank : arrays of shape (num_edges,)
        With and without the other true neighbours left out.
    num_excluded : int
        Cold rows without any true seen neighbour.
    """

    rows: Ids
    best_rank: Floats
    edge_row: Ids
    edge_rank: Floats
    raw_rank: Floats
    num_excluded: int


def truth_matrix(graph: Any, rows: ArrayLike, cols: ArrayLike) -> sp.csr_array:
    """True edges between ``rows`` (cold) and ``cols`` (seen), cut from the full graph, as zeros and ones.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> path = sp.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> truth_matrix(path, rows=[1], cols=[0, 2]).toarray().tolist()
    [[1.0, 1.0]]
    """
    block = _adjacency(graph)[np.asarray(rows)][:, np.asarray(cols)]
    return _pattern(block)


def _adjacency(graph: Any) -> sp.csr_array:
    return sp.csr_array(graph.to_scipy() if hasattr(graph, "to_scipy") else graph)


def _pattern(matrix: Any) -> sp.csr_array:
    """Ones where the matrix is not zero."""
    pattern = sp.csr_array(matrix, copy=True)
    pattern.sum_duplicates()
    pattern.eliminate_zeros()
    pattern.data = np.ones(pattern.nnz, dtype=np.float32)
    return pattern


def rank_links(score_batch: Callable[[Ids], ArrayLike], truth: Any, *, batch_size: int = 256) -> LinkRanks:
    """Rank every true link of every cold node among all seen nodes.

    Parameters
    ----------
    score_batch : callable
        Takes cold row numbers and returns their scores with all seen nodes, (len(rows), n_seen), higher is
        better. It is only asked for rows that have a true neighbour.
    truth : scipy sparse matrix of shape (n_cold, n_seen)
    batch_size : int
        Rows asked for at once.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> scores = np.array([[0.9, 0.5, 0.7, 0.1]])
    >>> ranks = rank_links(lambda rows: scores[rows], sp.csr_array(np.array([[0, 1, 1, 0]])))
    >>> ranks.best_rank.tolist(), ranks.edge_rank.tolist(), ranks.raw_rank.tolist()
    ([2.0], [2.0, 2.0], [3.0, 2.0])
    """
    true = _pattern(truth)
    n_cold, n_seen = truth.shape
    rows = np.flatnonzero(np.diff(true.indptr)).astype(np.int64)
    edge_rank, raw_rank = np.empty(true.nnz), np.empty(true.nnz)
    best_rank = np.empty(len(rows))
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        scores = np.asarray(score_batch(batch))
        if scores.shape != (len(batch), n_seen):
            raise InputError(
                f"score_batch returned shape {scores.shape} for {len(batch)} rows, expected "
                f"{(len(batch), n_seen)}: a score for every seen node."
            )
        if np.isnan(scores).any():
            raise InputError("score_batch returned NaN; ranks need numbers.")
        for i, row in enumerate(batch):
            edges = slice(true.indptr[row], true.indptr[row + 1])
            filtered, raw = _row_ranks(scores[i], true.indices[edges])
            edge_rank[edges], raw_rank[edges] = filtered, raw
            best_rank[start + i] = filtered.min()
    edge_row = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(true.indptr)[rows])
    return LinkRanks(rows, best_rank, edge_row, edge_rank, raw_rank, num_excluded=n_cold - len(rows))


def _row_ranks(scores: NDArray[Any], true: NDArray[Any]) -> tuple[Floats, Floats]:
    """Filtered and unfiltered ranks of one row's true neighbours."""
    of_true = scores[true]
    above, ties = _above_and_ties(scores, of_true)
    above_true, ties_true = _above_and_ties(of_true, of_true)
    filtered = 1.0 + (above - above_true) + (ties - ties_true) / 2
    raw = 1.0 + above + (ties - 1) / 2
    return filtered, raw


def _above_and_ties(scores: NDArray[Any], of: NDArray[Any]) -> tuple[Ids, Ids]:
    """How many scores lie above each of ``of``, and how many equal it."""
    if len(of) <= 4:  # a few passes are cheaper than sorting
        above = np.array([np.count_nonzero(scores > s) for s in of])
        return above, np.array([np.count_nonzero(scores == s) for s in of])
    ordered = np.sort(scores)
    right = np.searchsorted(ordered, of, side="right")
    return len(ordered) - right, right - np.searchsorted(ordered, of, side="left")


def link_metrics(ranks: LinkRanks, ks: Iterable[int] = (1, 3, 10, 20, 50)) -> dict[str, float]:
    """Figures from ranks; NaN where no cold node has a true seen neighbour.

    ``mrr``
        Mean over cold nodes of 1 / rank of the best true neighbour (filtered).
    ``mrr_edges``
        Mean over true edges of 1 / rank (filtered).
    ``hits@k``
        Share of cold nodes whose best true neighbour is in the top k.
    ``recall@k``
        Share of a node's true neighbours in its top k (not filtered), averaged over nodes.
    ``num_evaluated``, ``num_excluded``
        Cold nodes with and without a true seen neighbour.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> scores = np.array([[0.9, 0.5, 0.7, 0.1]])
    >>> ranks = rank_links(lambda rows: scores[rows], sp.csr_array(np.array([[0, 1, 1, 0]])))
    >>> link_metrics(ranks, ks=(2,))
    {'mrr': 0.5, 'mrr_edges': 0.5, 'hits@2': 1.0, 'recall@2': 0.5, 'num_evaluated': 1, 'num_excluded': 0}
    """
    count = len(ranks.rows)
    degree = np.bincount(ranks.edge_row, minlength=count)

    def mean(values: NDArray[Any]) -> float:
        return float(values.mean()) if len(values) else float("nan")

    ks = list(ks)
    figures = {"mrr": mean(1.0 / ranks.best_rank), "mrr_edges": mean(1.0 / ranks.edge_rank)}
    figures |= {f"hits@{k}": mean(ranks.best_rank <= k) for k in ks}
    for k in ks:
        found = np.bincount(ranks.edge_row, weights=ranks.raw_rank <= k, minlength=count)
        figures[f"recall@{k}"] = mean(found / degree)
    return {**figures, "num_evaluated": count, "num_excluded": ranks.num_excluded}


def global_hits(positive: ArrayLike, negative: ArrayLike, ks: Iterable[int] = (10, 20, 30, 50)) -> dict[str, float]:
    """Hits@k against one global set of negatives: share of true pairs above the k-th best false pair.

    The protocol of LLP and of the OGB link data sets. Fewer than k negatives: every true pair is a hit.

    Examples
    --------
    >>> global_hits([0.9, 0.4], [0.8, 0.5, 0.1], ks=(1, 3))
    {'hits@1': 0.5, 'hits@3': 1.0}
    """
    true, false = (
        np.asarray(positive, dtype=np.float64),
        np.sort(np.asarray(negative, dtype=np.float64))[::-1],
    )
    if true.ndim != 1 or false.ndim != 1 or not len(true):
        raise InputError(
            f"scores of shapes {true.shape} and {false.shape} came; pass two vectors, at least one true pair."
        )
    return {f"hits@{k}": float(np.mean(true > false[k - 1])) if k <= len(false) else 1.0 for k in ks}


def neighborhood_prediction(
    nearest: ArrayLike, graph: Any, rows: ArrayLike, cols: ArrayLike, *, batch_size: int = 4096
) -> dict[str, float]:
    """How much of a cold node's neighbourhood its nearest seen nodes are.

    With deg(v) the number of true seen neighbours of v, ``strict`` is the share of them among the deg(v)
    nearest, and ``loose`` the share of the deg(v) nearest within two hops of v in the full graph; both are
    means over nodes with deg(v) > 0.

    Parameters
    ----------
    nearest : int array of shape (len(rows), K)
        Positions in ``cols``, nearest first; K at least the largest deg(v).
    graph : Graph or scipy sparse matrix
        The full graph, with the edges of the cold nodes.
    rows, cols : int arrays
        Cold and seen nodes.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> path = sp.csr_array(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]))
    >>> neighborhood_prediction([[1, 0, 2]], path, rows=[0], cols=[1, 2, 3])
    {'strict': 0.0, 'loose': 1.0, 'num_evaluated': 1, 'num_excluded': 0}
    """
    adjacency = _adjacency(graph)
    cold, seen, ids = np.asarray(rows), np.asarray(cols), np.asarray(nearest)
    truth = truth_matrix(adjacency, cold, seen)
    degree = np.diff(truth.indptr)
    if ids.ndim != 2 or len(ids) != len(cold) or ids.shape[1] < degree.max(initial=0):
        raise InputError(
            f"nearest has shape {ids.shape}, expected {len(cold)} rows of at least "
            f"{degree.max(initial=0)} ids, the largest number of true neighbours."
        )
    to_seen = _pattern(adjacency[:, seen])
    strict, loose = np.zeros(len(cold)), np.zeros(len(cold))
    for start in range(0, len(cold), batch_size):
        part = slice(start, start + batch_size)
        near = truth[part] + _pattern(adjacency[cold[part]]) @ to_seen  # paths of one or two edges
        use = np.arange(ids.shape[1]) < degree[part, None]
        where, what = np.nonzero(use)[0], ids[part][use]
        strict[part] = _count(truth[part], where, what)
        loose[part] = _count(near, where, what)
    has = degree > 0
    figures = {
        name: float((hits[has] / degree[has]).mean()) if has.any() else float("nan")
        for name, hits in (("strict", strict), ("loose", loose))
    }
    return {**figures, "num_evaluated": int(has.sum()), "num_excluded": int((~has).sum())}


def _count(matrix: Any, rows: Ids, cols: Ids) -> Floats:
    """For each row of the matrix, how many of the given entries are not zero."""
    size = int(matrix.shape[0])
    if not len(rows):
        return np.zeros(size)
    present = np.asarray(sp.csr_array(matrix)[rows, cols]).ravel() != 0
    return np.bincount(rows, weights=present, minlength=size).astype(np.float64)
