"""Two dimensions to look at: spectral coordinates of known and new nodes drawn as one map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["project_2d", "sample_rows"]

_TSNE_FROM = 60  # fewer points do not need it


def sample_rows(count: int, at_most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most ``at_most`` row numbers out of ``count``, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> sample_rows(3, 5, np.random.default_rng(0))
    array([0, 1, 2])
    """
    if count <= at_most:
        return np.arange(count)
    return np.sort(rng.choice(count, at_most, replace=False)).astype(np.int64)


def project_2d(coordinates: Any, weights: Any, seed: int) -> tuple[NDArray[np.float64], str]:
    """Positions in the plane, and a sentence that says how they were found.

    Parameters
    ----------
    coordinates : array of shape (n, k)
    weights : array of shape (k,)
        How much each component counts; smooth ones more.
    seed : int

    Returns
    -------
    points : array of shape (n, 2)
    how : str

    Examples
    --------
    >>> import numpy as np
    >>> project_2d(np.eye(4), np.ones(4), 0)[0].shape
    (4, 2)
    """
    values = np.asarray(coordinates, np.float64) * np.asarray(weights, np.float64)
    if len(values) < _TSNE_FROM or values.shape[1] <= 2:
        return _principal(values), "Principal components of the spectral coordinates."
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    # direction says where in the graph a node lies, length mostly how central it is there
    unit = values / np.where(norm > 0, norm, 1.0)
    from sklearn.manifold import TSNE

    start = _principal(unit)
    start *= 1e-4 / (start.std() or 1.0)
    tsne = TSNE(
        perplexity=30 if len(unit) > 300 else 10,
        init=start,  # pyright: ignore[reportArgumentType]
        max_iter=500,
        random_state=seed,
    )
    points = tsne.fit_transform(unit.astype(np.float32))
    return points.astype(np.float64), (
        "t-SNE of the spectral coordinates: neighbours on the map are neighbours in the graph, but distances "
        "between far groups mean little."
    )


def _principal(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    points = centred @ axes[:2].T
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
