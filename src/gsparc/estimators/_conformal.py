"""Split conformal prediction: sets that hold the true class as often as promised, and p-values of distances.

The mathematics of Papadopoulos et al. (2002) and Sadinle, Lei and Wasserman (2019): a score for each class of a node,
and a threshold at the right rank among the scores that the true classes of calibration nodes had. Nothing is drawn
at random, so a node gets the same set every time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Calibration", "class_scores", "label_scores", "p_values", "prediction_sets", "threshold"]

_LEAST_LINKED = 50  # calibration nodes with edges below which those without serve for both


def class_scores(proba: np.ndarray) -> np.ndarray:
    """``1 - p``, and 0 for the most probable class: it is in every set, and the thresholds know it.

    Of the scores compared (this, cumulated probabilities with and without a penalty on ranks, margins) none made
    smaller sets at equal coverage on one split each of Cora, Citeseer and Pubmed; the differences are mostly small.

    Examples
    --------
    >>> class_scores(np.array([[0.75, 0.25], [0.5, 0.5]])).tolist()
    [[0.0, 0.75], [0.0, 0.5]]
    """
    scores = 1.0 - proba
    scores[np.arange(len(proba)), proba.argmax(axis=1)] = 0.0
    return scores


def label_scores(proba: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Scores of the true classes; infinite (no set holds it) where ``codes`` has -1: a class that nobody knew."""
    known = codes >= 0
    scores = np.full(len(codes), np.inf)
    scores[known] = class_scores(proba[known])[np.arange(np.count_nonzero(known)), codes[known]]
    return scores


def threshold(scores: np.ndarray, coverage: float) -> float:
    """The score that a new node's true class stays below with probability ``coverage`` or a little more.

    The ``ceil((n + 1) coverage)``-th smallest of the ``n`` sorted `scores`: with exchangeable nodes the coverage is
    then between ``coverage`` and ``coverage + 1 / (n + 1)`` (up to ties). Infinite where there are too few nodes.

    Examples
    --------
    >>> scores = np.arange(1, 10) / 10
    >>> threshold(scores, 0.9), threshold(scores, 0.5), threshold(scores[:8], 0.9)
    (0.9, 0.5, inf)
    """
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)  # 0.9 * 10 is not 9 in floating point
    if rank < 1:
        return -math.inf
    return math.inf if rank > len(scores) else float(scores[rank - 1])


def prediction_sets(proba: np.ndarray, limits: np.ndarray | float) -> np.ndarray:
    """Classes whose score is at most the limit, ``[m, C]``; the most probable one always.

    Examples
    --------
    >>> prediction_sets(np.array([[0.6, 0.3, 0.1]]), 0.75).tolist()
    [[True, True, False]]
    """
    inside = class_scores(proba) <= (np.reshape(limits, (-1, 1)) if np.ndim(limits) else limits)
    inside[np.arange(len(proba)), proba.argmax(axis=1)] = True
    return inside


def p_values(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Share of the sorted ``reference`` values that are at least as large, the value itself counted with them.

    Examples
    --------
    >>> p_values(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 9.0])).tolist()
    [1.0, 0.75, 0.25]
    """
    at_least = len(reference) - np.searchsorted(reference, values, side="left")
    return (1.0 + at_least) / (len(reference) + 1.0)


def _none() -> np.ndarray:
    return np.zeros(0)


@dataclass(frozen=True)
class Calibration:
    """Sorted figures of nodes that took no part in training."""

    scores: np.ndarray = field(default_factory=_none)
    """Of their true classes, predicted without edges."""
    linked: np.ndarray = field(default_factory=_none)
    """The same predicted with their first edges, where they have any."""
    distances: np.ndarray = field(default_factory=_none)
    """To the nearest seen nodes."""

    @classmethod
    def of(cls, scores: np.ndarray, linked: np.ndarray, distances: np.ndarray) -> Calibration:
        """From figures in any order."""
        return cls(*(np.sort(np.asarray(part, np.float64)) for part in (scores, linked, distances)))

    def sets(self, proba: np.ndarray, coverage: float, with_edges: np.ndarray) -> np.ndarray:
        """Prediction sets; ``with_edges [m]`` says which rows were predicted with edges."""
        cold = threshold(self.scores, coverage)
        linked = threshold(self.linked, coverage) if len(self.linked) >= _LEAST_LINKED else cold
        return prediction_sets(proba, np.where(with_edges, linked, cold))

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return dict(vars(self))

    def counts(self) -> list[int]:
        """How many figures of each kind there are."""
        return [len(part) for part in vars(self).values()]

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], counts: list[int]) -> Calibration:
        """What :meth:`arrays` and :meth:`counts` gave; ValueError where it cannot be that."""
        parts = [arrays[name] for name in ("scores", "linked", "distances")]
        if [len(part) for part in parts] != counts:
            raise ValueError(f"other than {counts} figures of a calibration")
        for part in parts:
            if part.ndim != 1 or part.dtype != np.float64 or np.isnan(part).any() or (part[1:] < part[:-1]).any():
                raise ValueError("figures of a calibration that are not sorted numbers")
        return cls(*parts)
