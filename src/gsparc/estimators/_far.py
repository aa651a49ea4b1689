"""Whether rows are far from everything known, for thousands of rows at once.

A row is far when its distance to the nearest known nodes exceeds a limit. A few nodes found in a rough index bound that
distance from above: most rows are thereby known not to be far, and only the others are looked for exactly. The
answer is that of the exact search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc.ops._knn import ivf_build, ivf_search, unit_rows
from gsparc.ops.combined import CombinedIndex

__all__ = ["FarTest"]

_TIERS = ((3, 1), (64, 8))  # nodes that bound a distance, and cells that they are looked for in
_NEAR = 3  # as the classifier's novelty


class FarTest:
    """The test for one fitted classifier; the rough index is made once.

    Parameters
    ----------
    classifier : SparcClassifier
    level : float
        The p-value (:meth:`SparcClassifier.novelty`) up to which a row is far.
    """

    def __init__(self, classifier: Any, level: float) -> None:
        self.classifier, self.level = classifier, level
        index = classifier.index_
        self._index, self._calibration = index, classifier._calibration
        self._pairs = index if isinstance(index, CombinedIndex) else None
        nearest = index.neighbors if isinstance(index, CombinedIndex) else index
        self._nodes = nearest.rows().cpu().numpy()
        self._rough = nearest._ivf
        if self._rough is None:
            count = len(self._nodes)
            cells = max(1, min(count, round(count**0.5)))
            self._rough = ivf_build(self._nodes, inner=True, num_cells=cells, num_probes=1, seed=0)[0]
        self._limit = _largest_usual(classifier._calibration.distances, level)

    def fits(self, classifier: Any, level: float) -> bool:
        """Whether this is still the test of a classifier, which may have grown or been calibrated since."""
        same = self._index is classifier.index_ and self._calibration is classifier._calibration
        return same and self.level == level

    def far(self, view: Any) -> NDArray[np.bool_]:
        """Which nodes of a view are far."""
        asked = view._queries if self._pairs is None else view._coordinates
        coordinates = unit_rows(asked.cpu()).numpy()
        doubtful = np.flatnonzero(~(self._bound_by_tokens(view, coordinates) <= self._limit))
        for count, probes in _TIERS:
            if not len(doubtful):
                break
            bound = self._bound(view, coordinates, doubtful, count, probes)
            doubtful = doubtful[~(bound <= self._limit)]
        out = np.zeros(len(view), bool)
        if len(doubtful):
            if self._pairs is not None:
                exact = self.classifier._near(view, _NEAR, doubtful)[1]
            else:
                exact = self.classifier.index_.search(coordinates[doubtful], _NEAR)[0]
            out[doubtful] = self.classifier._far(view, exact, doubtful) > self._limit
        return out

    def _bound_by_tokens(self, view: Any, coordinates: Any) -> NDArray[np.float64]:
        """The same by nodes that were found for the tokens already; infinite where none were."""
        near = None if self._pairs is not None else view.known_near()
        if near is None or near.shape[1] < _NEAR:
            return np.full(len(view), np.inf)
        rows = self._nodes[near[:, :_NEAR].numpy()]
        return self.classifier._far(view, 1.0 - np.einsum("md,mkd->mk", coordinates, rows))

    def _bound(self, view: Any, coordinates: Any, rows: NDArray[Any], count: int, probes: int) -> NDArray[np.float64]:
        """No row is farther than this from what is known."""
        own = coordinates[rows]
        distances, ids = ivf_search(self._rough, own, min(count, int(self._rough.ntotal)), probes, inner=True)
        if self._pairs is not None:
            features = self.classifier._compared.rows(view.source.matrix()[rows])
            distances = np.sort(1.0 - self._pairs.score_pairs(own, features, ids), axis=1)
        return self.classifier._far(view, distances[:, :_NEAR], rows)


def _largest_usual(reference: NDArray[np.float64], level: float) -> float:
    """The largest distance whose p-value is still above ``level``.

    Examples
    --------
    >>> _largest_usual(np.arange(1.0, 100.0), 0.05)
    95.0
    """
    allowed = int(np.floor(level * (len(reference) + 1) - 1 + 1e-9))  # calibration rows that a far row leaves behind it
    if allowed < 0 or allowed >= len(reference):
        return np.inf if allowed < 0 else -np.inf
    return float(reference[len(reference) - 1 - allowed])
