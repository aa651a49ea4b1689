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

__all__ = ["BULK_ROWS", "FarTest"]

BULK_ROWS = 2048  # rows from which the rough index pays
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
        self._pairs = index if isinstance(index, CombinedIndex) else None
        nearest = index.neighbors if isinstance(index, CombinedIndex) else index
        self._rough = nearest._ivf
        if self._rough is None:
            rows = nearest.rows().cpu().numpy()
            cells = max(1, round(len(rows) ** 0.5))
            self._rough = ivf_build(rows, inner=True, num_cells=min(cells, len(rows)), num_probes=1, seed=0)[0]
        self._limit = _largest_usual(classifier._calibration.distances, level)

    def far(self, view: Any) -> NDArray[np.bool_]:
        """Which nodes of a view are far."""
        coordinates = unit_rows(view._coordinates.cpu()).numpy()
        doubtful = np.arange(len(view))
        for count, probes in _TIERS:
            bound = self._bound(view, coordinates, doubtful, count, probes)
            doubtful = doubtful[~(bound <= self._limit)]
            if not len(doubtful):
                break
        out = np.zeros(len(view), bool)
        if len(doubtful):
            if self._pairs is not None:
                exact = self.classifier._near(view, _NEAR, doubtful)[1]
            else:
                exact = self.classifier.index_.search(coordinates[doubtful], _NEAR)[0]
            out[doubtful] = self.classifier._far(view, exact, doubtful) > self._limit
        return out

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
