"""The best of all nodes without the exact score of each: rough scores first, exact ones of those that may be best.

Rough scores are at most ``slack`` below the exact ones. The exact scores of the roughly best nodes give a score that
the k best reach at least; a node whose rough score lies farther below it than the slack is none of them. The answer is
that of the full ranking, equal scores by the lower id.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from gsparc._typing import FloatArray

__all__ = ["RoughRows", "best_reference", "screened_best"]

_FIRST = 16  # nodes beyond k that are scored exactly first
_MOST = 512  # nodes beyond which a query is better compared with all of them
_HALF_ERROR = 2.0**-7  # of a product of unit rows rounded to eight bits each, the result too: 3 / 2^9 and some room
_ROUNDING = 1e-5  # of a float32 product, with room
_TRIAL_ROWS = 2048

PairScores = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
Found = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]


def best_reference(scores: FloatArray, k: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """The ``k`` largest scores of each row and their places, equal scores by the lower place: what is to be found.

    Examples
    --------
    >>> best_reference(np.array([[1.0, 3.0, 3.0]]), 2)[1].tolist()
    [[1, 2]]
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


class RoughRows:
    """Products of unit queries with all unit rows, in half precision where this processor is faster at that.

    Parameters
    ----------
    rows : float32 tensor of shape (n, dim)
        Of length one, or zero.
    half : bool, optional
        Whether to round; by default a short trial decides. It changes the time and never the answer.
    """

    def __init__(self, rows: torch.Tensor, *, half: bool | None = None) -> None:
        self.half = _half_is_faster(rows) if half is None else half
        self._rows = rows.bfloat16() if self.half else rows

    @property
    def error(self) -> float:
        """By how much a product may differ from the exact one."""
        return _HALF_ERROR if self.half else _ROUNDING

    def products(self, queries: torch.Tensor) -> torch.Tensor:
        """(m, n) float32; queries of length one."""
        return (queries.to(self._rows.dtype) @ self._rows.T).float()


def _half_is_faster(rows: torch.Tensor) -> bool:
    """Time both; processors without such instructions take many times longer."""
    part = rows[:_TRIAL_ROWS]
    best = []
    for kind in (torch.float32, torch.bfloat16):
        left, right = part[:16].to(kind), part.to(kind)
        seconds = []
        for _ in range(6):  # the first one prepares
            started = time.thread_time()
            torch.mm(left, right.T)
            seconds.append(time.thread_time() - started)
        best.append(min(seconds[1:]))
    return best[1] < 0.8 * best[0]


def screened_best(rough: torch.Tensor, slack: float, exact: PairScores, k: int) -> Found:
    """The ``k`` best of each row by exact scores, their places, and the rows for which that is left to the caller.

    Those are rows in which too many nodes lie close together (all of them, where nothing is known of a query), and rows
    with scores that are no numbers.

    Parameters
    ----------
    rough : tensor of shape (m, n)
        Nowhere farther than ``slack`` below the exact scores.
    exact : callable
        Scores of pairs ``(rows, nodes)``, one of each for a pair.

    Examples
    --------
    >>> scores = np.array([[0.1, 0.9, 0.5, 0.9]], np.float32)
    >>> found = screened_best(torch.from_numpy(scores + 0.01), 0.02, lambda row, node: scores[row, node], k=2)
    >>> found[1].tolist(), found[2].tolist()
    ([[1, 3]], [])
    """
    m, n = rough.shape
    first = torch.topk(rough, min(k + _FIRST, n), dim=1, sorted=False).indices.numpy()
    known = (np.arange(m)[:, None] * n + first).ravel()  # a pair as one number
    found = exact(known // n, known % n)
    place = first.shape[1] - k
    reached = np.partition(found.reshape(first.shape), place, axis=1)[:, place]  # the k-th best of these
    above = rough >= torch.from_numpy(reached - np.float32(slack)).unsqueeze(1)
    counts = above.sum(dim=1).numpy()
    sure = (counts >= k) & (counts <= _MOST)
    if not sure.all():
        above[torch.from_numpy(~sure)] = False
    pairs = torch.nonzero(above.view(-1)).view(-1).numpy()
    pair_scores = _completed(pairs, known, found, lambda rest: exact(rest // n, rest % n))
    order = np.lexsort((pairs, -pair_scores, pairs // n))
    starts = np.cumsum(counts[sure]) - counts[sure]  # pairs come row by row
    chosen = order[starts[:, None] + np.arange(k)]
    scores, nodes = np.empty((m, k), np.float32), np.empty((m, k), np.int64)
    scores[sure], nodes[sure] = pair_scores[chosen], pairs[chosen] % n
    return scores, nodes, np.flatnonzero(~sure)


def _completed(
    pairs: NDArray[np.int64],
    known: NDArray[np.int64],
    scores: NDArray[np.float32],
    exact: Callable[[NDArray[np.int64]], NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Scores of ``pairs``: those of ``known`` ones as they are, the others computed.

    Examples
    --------
    >>> scores = np.array([0.3, 0.1], np.float32)
    >>> found = _completed(np.array([1, 5, 7]), np.array([7, 1]), scores, lambda rest: rest.astype(np.float32))
    >>> found.astype(float).round(1).tolist()
    [0.1, 5.0, 0.3]
    """
    order = np.argsort(known)
    at = order[np.minimum(np.searchsorted(known, pairs, sorter=order), len(order) - 1)]
    out = scores[at]
    rest = np.flatnonzero(known[at] != pairs)
    if len(rest):
        out[rest] = exact(pairs[rest])
    return out
