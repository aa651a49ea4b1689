"""The vote of a node's nearest seen nodes, by coordinates and features together."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["VoteHead"]

_SHARPNESS = 0.1  # a neighbour this much less alike counts 1/e
_FLOOR = 1e-3


class VoteHead:
    """Weighted mean of the labels, or soft labels, of the nearest seen nodes; nothing is trained.

    Parameters
    ----------
    labels
        ``[n, C]`` distributions over the classes; a row of zeros does not vote.
    n_neighbors
        Voters.
    """

    def __init__(self, labels: np.ndarray, n_neighbors: int = 32) -> None:
        self.labels, self.n_neighbors = np.asarray(labels, np.float32), n_neighbors

    def probabilities(self, scores: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Class probabilities from the likeness ``scores [m, k]`` of the seen nodes ``ids [m, k]``."""
        weights = vote_weights(scores)
        total = np.einsum("mk,mkc->mc", weights, self.labels[ids]).astype(np.float64)
        total += _FLOOR * self.labels.mean(axis=0)
        return total / np.maximum(total.sum(axis=1, keepdims=True), 1e-12)

    def grown(self, labels: np.ndarray) -> VoteHead:
        """The same with further voters."""
        return VoteHead(np.concatenate([self.labels, labels.astype(np.float32)]), self.n_neighbors)

    def config(self) -> dict[str, Any]:
        """What is not an array."""
        return {"n_neighbors": self.n_neighbors}

    def arrays(self) -> dict[str, np.ndarray]:
        """The voters' labels."""
        return {"labels": self.labels}


def vote_weights(scores: np.ndarray) -> np.ndarray:
    """Shares of neighbours with these likenesses, rows summing to one.

    Examples
    --------
    >>> vote_weights(np.array([[0.9, 0.8, 0.8]])).round(3).tolist()
    [[0.576, 0.212, 0.212]]
    """
    weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / _SHARPNESS)
    return weights / weights.sum(axis=1, keepdims=True)
