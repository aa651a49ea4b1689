"""Every node as a point in the plane: a layout of some, and all others placed among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc.experiments.layout import project_2d, sample_rows

__all__ = ["Picture"]

_LANDMARKS = 2500  # t-SNE of so many takes seconds; of all nodes it would take hours
_NEAREST = 6
_BLOCK = 8192
Floats = NDArray[np.float32]


class Picture:
    """Landmarks with their places; a node lies at the weighted mean of the landmarks nearest to it.

    Parameters
    ----------
    rows
        ``[L, k]`` coordinates of the landmarks, rows of length one.
    points
        ``[L, 2]`` their places, within about -1 and 1.

    Examples
    --------
    >>> rows = np.eye(4, dtype=np.float32)
    >>> Picture.draw(rows, seed=0).place(rows).shape
    (4, 2)
    """

    def __init__(self, rows: Floats, points: Floats) -> None:
        if rows.ndim != 2 or points.shape != (len(rows), 2) or not len(rows):
            raise ValueError(f"landmarks of shape {rows.shape} with places of shape {points.shape}")
        self.rows, self.points = rows, points

    @classmethod
    def draw(cls, coordinates: Any, seed: int) -> Picture:
        """Lay a sample of the nodes out."""
        from threadpoolctl import threadpool_limits

        chosen = sample_rows(len(coordinates), _LANDMARKS, np.random.default_rng(seed))
        rows = _unit(np.asarray(coordinates)[chosen])
        with threadpool_limits(1):  # threads that wait for each other take longer than one
            points, _ = project_2d(rows, np.ones(rows.shape[1]), seed)
        points = points - np.median(points, axis=0)
        reach = float(np.quantile(np.abs(points), 0.995)) or 1.0
        return cls(rows, (points / reach).astype(np.float32))

    def place(self, coordinates: Any) -> Floats:
        """``[m, 2]``: where nodes with these coordinates lie."""
        out = np.empty((len(coordinates), 2), np.float32)
        k = min(_NEAREST, len(self.rows))
        for start in range(0, len(out), _BLOCK):
            likeness = _unit(np.asarray(coordinates[start : start + _BLOCK])) @ self.rows.T
            near = np.argpartition(likeness, -k, axis=1)[:, -k:]
            score = np.take_along_axis(likeness, near, axis=1)
            best, least = score.max(axis=1, keepdims=True), score.min(axis=1, keepdims=True)
            # as wide as this node's own neighbourhood: crowded places keep their detail, sparse ones do not collapse
            weights = np.exp(3.0 * (score - best) / np.maximum(best - least, 1e-6))
            weights /= weights.sum(axis=1, keepdims=True)
            out[start : start + _BLOCK] = np.einsum("mk,mkc->mc", weights, self._together(near, weights))
        return out

    def _together(self, near: NDArray[np.int64], weights: Floats) -> Floats:
        """Places of the nearest landmarks; those far from the nearest on the layout count as being there.

        Landmarks that are alike lie side by side, but for a few that the layout tore apart: a mean over both
        sides of a tear would lie in the void between them.
        """
        points = self.points[near]
        first = np.take_along_axis(points, weights.argmax(axis=1)[:, None, None], axis=1)
        far = np.linalg.norm(points - first, axis=2) > 0.15
        return np.where(far[:, :, None], first, points)


def _unit(rows: Any) -> Floats:
    rows = np.asarray(rows, np.float32)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)
