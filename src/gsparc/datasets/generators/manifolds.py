"""Points on manifolds whose Laplacian eigenfunctions are known in closed form.

Points are drawn uniformly from the manifold, the graph joins near neighbours on it, and the features are
the coordinates of the point followed by columns of pure noise. As the number of points grows, the
eigenvectors of the graph's Laplacian go to the eigenfunctions given here, so a map from features to
eigenvectors can be checked against the truth, on points that no graph has seen too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from gsparc._runtime import resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_name
from gsparc.datasets.base import Dataset
from gsparc.exceptions import InputError
from gsparc.graph import Graph

__all__ = ["make_circle", "make_swiss_roll", "make_torus", "true_eigenfunctions", "true_eigenvalues"]

Array = NDArray[np.float64]

# The roll is the Archimedean spiral r = t for t in [pi, 3.25 pi] (1.13 turns), shrunk so that each
# coordinate has a standard deviation near one. With 5,000 points, 100 neighbours reach 0.86 at most and the
# layers lie 1.14 apart, so no edge jumps from one layer to the next. The squared ratio 5.6 of length to
# height puts a factor of 1.35 between the 4th and 5th and between the 8th and 9th eigenvalue.
_SHRINK = 5.5
_T_START, _T_END = math.pi, 3.25 * math.pi
_RATIO_SQUARED = 5.6


def _spiral_length(t: Array | float) -> Array:
    return 0.5 * (t * np.sqrt(1 + np.square(t)) + np.arcsinh(t))


_ROLL_LENGTH = float(_spiral_length(_T_END) - _spiral_length(_T_START)) / _SHRINK
_ROLL_HEIGHT = _ROLL_LENGTH / math.sqrt(_RATIO_SQUARED)


def _embed_angles(angles: Array) -> Array:
    """Each angle becomes a point of a unit circle of its own."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(len(angles), -1)


def _embed_roll(coordinates: Array) -> Array:
    table = np.linspace(_T_START, _T_END, 20_001)
    lengths = (_spiral_length(table) - _spiral_length(_T_START)) / _SHRINK
    t = np.interp(coordinates[:, 0], lengths, table)
    return np.stack([t * np.cos(t) / _SHRINK, coordinates[:, 1], t * np.sin(t) / _SHRINK], axis=1)


@dataclass(frozen=True)
class _Manifold:
    sides: tuple[float, ...]  # range of each intrinsic coordinate
    embed: Callable[[Array], Array]
    periodic: bool


_MANIFOLDS = {
    "circle": _Manifold((2 * math.pi,), _embed_angles, True),
    "torus": _Manifold((2 * math.pi, 2 * math.pi), _embed_angles, True),
    "swiss_roll": _Manifold((_ROLL_LENGTH, _ROLL_HEIGHT), _embed_roll, False),
}


def make_circle(
    n_samples: int = 5000,
    *,
    n_neighbors: int = 100,
    noise_features: int = 20,
    noise: float = 1.0,
    n_unseen: int = 0,
    random_state: RandomState = None,
) -> Dataset:
    """Points drawn uniformly from the unit circle.

    Parameters
    ----------
    n_samples : int
        Number of points.
    n_neighbors : int
        Each point is joined to this many nearest ones; an edge stays if either end chose it.
    noise_features : int
        Columns of independent normal noise after the coordinates.
    noise : float
        Standard deviation of the noise columns.
    n_unseen : int
        Further points of the same kind, outside the graph: ``extra["X_unseen"]`` and
        ``extra["coordinates_unseen"]``.
    random_state : int, RandomState, Generator or None
        Seed.

    Returns
    -------
    Dataset
        ``coordinates`` is the angle; :func:`true_eigenfunctions` takes the data set. There are no labels.

    Examples
    --------
    >>> from gsparc.datasets import make_circle
    >>> make_circle(200, n_neighbors=10, random_state=0).coordinates.shape
    (200, 1)
    """
    counts = _Counts(n_samples, n_neighbors, noise_features, n_unseen)
    return _make("circle", counts, noise, random_state)


def make_torus(
    n_samples: int = 5000,
    *,
    n_neighbors: int = 100,
    noise_features: int = 20,
    noise: float = 1.0,
    n_unseen: int = 0,
    random_state: RandomState = None,
) -> Dataset:
    """Points drawn uniformly from the flat torus: two angles, each on a unit circle, in four dimensions.

    The parameters are those of :func:`make_circle`; ``coordinates`` are the two angles.

    Examples
    --------
    >>> from gsparc.datasets import make_torus
    >>> make_torus(200, n_neighbors=10, noise_features=0, random_state=0).X.shape
    (200, 4)
    """
    counts = _Counts(n_samples, n_neighbors, noise_features, n_unseen)
    return _make("torus", counts, noise, random_state)


def make_swiss_roll(
    n_samples: int = 5000,
    *,
    n_neighbors: int = 100,
    noise_features: int = 20,
    noise: float = 1.0,
    n_unseen: int = 0,
    random_state: RandomState = None,
) -> Dataset:
    """Points drawn uniformly from a rectangle that is rolled up in three dimensions.

    Unlike scikit-learn's roll this one is uniform in arc length, so the density is the same everywhere and
    the eigenfunctions are those of the flat rectangle: products of cosines. The parameters are those of
    :func:`make_circle`; ``coordinates`` are arc length and height.

    Examples
    --------
    >>> from gsparc.datasets import make_swiss_roll
    >>> make_swiss_roll(200, n_neighbors=5, noise_features=2, random_state=0).feature_names
    array(['x', 'height', 'z', 'noise_0', 'noise_1'], dtype='<U7')
    """
    counts = _Counts(n_samples, n_neighbors, noise_features, n_unseen)
    return _make("swiss_roll", counts, noise, random_state)


_AXES = {"circle": ["x", "y"], "torus": ["x_0", "y_0", "x_1", "y_1"], "swiss_roll": ["x", "height", "z"]}


class _Counts(NamedTuple):
    n_samples: int
    n_neighbors: int
    noise_features: int
    n_unseen: int


def _make(name: str, counts: _Counts, noise: float, random_state: RandomState) -> Dataset:
    _check_counts(*counts, noise=noise)
    n_samples, n_neighbors, noise_features, n_unseen = counts
    manifold = _MANIFOLDS[name]
    rng = np.random.default_rng(resolve_seed(random_state))
    total = n_samples + n_unseen
    coordinates = rng.random((total, len(manifold.sides))) * np.array(manifold.sides)
    points = manifold.embed(coordinates)
    X = np.empty((total, points.shape[1] + noise_features), dtype=np.float32)
    X[:, : points.shape[1]] = points
    X[:, points.shape[1] :] = noise * rng.standard_normal((total, noise_features), dtype=np.float32)
    extra = {"X_unseen": X[n_samples:], "coordinates_unseen": coordinates[n_samples:]} if n_unseen else {}
    return Dataset(
        X=X[:n_samples],
        y=None,
        graph=_neighbour_graph(points[:n_samples], n_neighbors),
        feature_names=np.array(_AXES[name] + [f"noise_{i}" for i in range(noise_features)]),
        name=name,
        description=f"points on a {name.replace('_', ' ')}, joined to their {n_neighbors} nearest",
        source="generated",
        coordinates=coordinates[:n_samples],
        extra=extra,
    )


def _check_counts(n_samples: int, n_neighbors: int, noise_features: int, n_unseen: int, *, noise: float) -> None:
    if n_samples < 2:
        raise InputError(f"n_samples={n_samples}: at least 2 points are needed.")
    if not 1 <= n_neighbors < n_samples:
        raise InputError(
            f"n_neighbors={n_neighbors} with n_samples={n_samples}: pass at least 1 and fewer than n_samples."
        )
    if noise_features < 0 or n_unseen < 0 or noise < 0:
        raise InputError(
            f"noise_features={noise_features}, n_unseen={n_unseen} and noise={noise} must not be negative."
        )


def _neighbour_graph(points: Array, n_neighbors: int) -> Graph:
    n = len(points)
    _, nearest = KDTree(points).query(points, k=n_neighbors + 1)
    rows = np.repeat(np.arange(n), n_neighbors + 1)
    return Graph.from_edges(np.stack([rows, nearest.ravel()]), num_nodes=n)  # a point's self is dropped


def _modes(manifold: _Manifold, k: int) -> list[tuple[float, tuple[int, ...]]]:
    """(eigenvalue, one whole number a coordinate) of the first k non-constant eigenfunctions, ascending.

    On a closed coordinate -m stands for sine and +m for cosine; on an interval only cosines occur.
    """
    reach = k + 1  # one coordinate alone offers more than k functions up to here
    if len(manifold.sides) == 2:
        # of the functions below lambda = c^2 there are ~c^2, so c ~ sqrt(k) times the sides' ratio is enough
        reach = math.ceil(math.sqrt(k) * max(manifold.sides) / min(manifold.sides)) + 1
    low = -reach if manifold.periodic else 0
    axes = [np.arange(low, reach + 1)] * len(manifold.sides)
    numbers = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    period = np.array(manifold.sides) / (2 * math.pi if manifold.periodic else math.pi)
    values = np.square(numbers / period).sum(axis=1)
    # ties (cosine before sine, first coordinate first) are broken by the numbers themselves
    keys = [*(-numbers.T[::-1]), np.round(values, 9)]
    order = np.lexsort(keys)[1 : k + 1]
    return [(float(values[i]), tuple(int(m) for m in numbers[i])) for i in order]


def _manifold_of(which: Dataset | str) -> _Manifold:
    name = which.name if isinstance(which, Dataset) else str(which).lower().replace("-", "_")
    return _MANIFOLDS[check_name("manifold", name, _MANIFOLDS)]


def true_eigenvalues(which: Dataset | str, k: int) -> Array:
    """The first k non-zero eigenvalues of the manifold's Laplacian, ascending, with multiplicity.

    Examples
    --------
    >>> from gsparc.datasets import true_eigenvalues
    >>> true_eigenvalues("torus", 8).round(6)
    array([1., 1., 1., 1., 2., 2., 2., 2.])
    """
    return np.array([value for value, _ in _modes(_manifold_of(which), _check_k(k))])


def true_eigenfunctions(which: Dataset | str, coordinates: Array | None = None, k: int = 8) -> Array:
    """The first k non-constant eigenfunctions of the manifold's Laplacian at given points.

    Parameters
    ----------
    which : Dataset or {"circle", "torus", "swiss_roll"}
        The manifold.
    coordinates : array, shape (n, 1 or 2), optional
        Where to evaluate, in the intrinsic coordinates. Default: the data set's own points.
    k : int
        How many; ordered as :func:`true_eigenvalues`.

    Returns
    -------
    array, shape (n, k)
        Mean 0, mean square 1 and uncorrelated under the uniform distribution on the manifold.

    Examples
    --------
    >>> import numpy as np
    >>> from gsparc.datasets import true_eigenfunctions
    >>> true_eigenfunctions("circle", np.array([[0.0], [np.pi / 2]]), k=2).round(3) + 0.0
    array([[1.414, 0.   ],
           [0.   , 1.414]])
    """
    manifold = _manifold_of(which)
    if coordinates is None and isinstance(which, Dataset):
        coordinates = which.coordinates
    points = np.asarray(coordinates, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != len(manifold.sides):
        raise InputError(
            f"coordinates have shape {points.shape}; (n, {len(manifold.sides)}) was expected: the intrinsic "
            "coordinates in Dataset.coordinates."
        )
    columns = [_product(manifold, points, numbers) for _, numbers in _modes(manifold, _check_k(k))]
    return np.stack(columns, axis=1)


def _product(manifold: _Manifold, points: Array, numbers: tuple[int, ...]) -> Array:
    """The product over coordinates of one cosine or sine each, scaled to mean square one."""
    result = np.ones(len(points))
    for axis, (m, side) in enumerate(zip(numbers, manifold.sides, strict=True)):
        if m:
            angle = (2 if manifold.periodic else 1) * math.pi * abs(m) * points[:, axis] / side
            result *= math.sqrt(2) * (np.cos(angle) if m > 0 else np.sin(angle))
    return result


def _check_k(k: int) -> int:
    if k < 1:
        raise InputError(f"k={k}: ask for at least one eigenfunction.")
    return int(k)
