"""A graph that is needed: features tell blobs apart, and only edges say which blobs form a class.

Blobs lie at random places, and each belongs to a class at random, so that a blob's neighbours in feature space are of
its class no more often than chance has it. Whoever sees the labels of a few blobs knows nothing about the
others, unless the edges say so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gsparc._runtime import resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_count, check_share
from gsparc.datasets.base import Dataset
from gsparc.exceptions import InputError
from gsparc.graph import Graph

__all__ = ["communities_of_blobs"]

_MAX_FILL = 0.5  # beyond this share of all possible pairs drawing distinct ones at random gets slow
_ROWS = 1 << 18  # rows of features made at a time


def communities_of_blobs(
    num_nodes: int = 3000,
    *,
    num_blobs: int = 200,
    num_classes: int = 4,
    dim: int = 32,
    degree: float = 20.0,
    within: float = 0.9,
    noise: float = 0.25,
    random_state: RandomState = None,
) -> Dataset:
    """Blobs of features that edges join into classes.

    Parameters
    ----------
    num_nodes : int
        Number of nodes. Blobs are of equal size up to one node.
    num_blobs : int
        Number of blobs in feature space.
    num_classes : int
        Number of classes; each has the same number of blobs up to one, chosen at random.
    dim : int
        Number of features. The centres of the blobs are normal with standard deviation one in each.
    degree : float
        Mean number of neighbours. The graph has exactly ``round(num_nodes * degree / 2)`` distinct edges.
    within : float
        Share of the edges that join two nodes of one class, whichever blobs they are in; the others join any
        two nodes.
    noise : float
        Standard deviation of the features around the centre of the blob.
    random_state : int, RandomState, Generator or None
        Seed.

    Returns
    -------
    Dataset
        ``extra["blob"]`` is each node's blob, ``extra["blob_class"]`` each blob's class, ``extra["centres"]``
        where the blobs lie.

    Notes
    -----
    A method without edges that has labels from ``m`` blobs knows ``m / num_blobs`` of the nodes and guesses the
    others: with 4 classes and 5 labels of each, no more than 0.1 + 0.9 / 4 = 33 % on average. The
    first ``num_classes - 1`` non-trivial eigenfunctions, of eigenvalues near ``1 - within``, are the
    classes, and they are functions of the features, since they are constant on each blob.

    Examples
    --------
    >>> from gsparc.datasets import communities_of_blobs
    >>> data = communities_of_blobs(400, num_blobs=20, dim=8, degree=10, random_state=0)
    >>> data
    Dataset('communities_of_blobs': 400 nodes, 2,000 edges, 8 features, 4 classes)
    """
    num_edges = _check(num_nodes, num_blobs, num_classes, dim, degree=degree, within=within, noise=noise)
    place_rng, edge_rng, feature_rng = np.random.default_rng(resolve_seed(random_state)).spawn(3)
    # positions 0 .. n-1 run through class after class and blob after blob; node numbers are dealt at random
    number = place_rng.permutation(num_nodes)
    name = place_rng.permutation(num_blobs)  # names in no order: blob 0 is of any class
    blob_at = np.arange(num_nodes, dtype=np.int64) * num_blobs // num_nodes
    class_of = np.arange(num_blobs, dtype=np.int64) * num_classes // num_blobs
    blob, y = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    blob[number], y[number] = name[blob_at], class_of[blob_at]
    starts = np.searchsorted(class_of[blob_at], np.arange(num_classes + 1))
    edges = number[_draw_edges(starts, num_edges, within, edge_rng)]
    centres = feature_rng.standard_normal((num_blobs, dim), dtype=np.float32)
    blob_class = np.empty(num_blobs, np.int64)
    blob_class[name] = class_of
    return Dataset(
        X=_features(centres, blob, noise, feature_rng),
        y=y,
        graph=Graph.from_edges(edges, num_nodes=num_nodes),
        class_names=np.array([f"community_{i}" for i in range(num_classes)]),
        name="communities_of_blobs",
        description=f"{num_blobs} blobs of features that edges join into {num_classes} classes",
        source="generated",
        extra={"blob": blob, "blob_class": blob_class, "centres": centres},
    )


def _check(
    num_nodes: int, num_blobs: int, num_classes: int, dim: int, *, degree: float, within: float, noise: float
) -> int:
    """The number of edges, if everything fits together."""
    for label, value, least in (
        ("num_nodes", num_nodes, 2),
        ("num_blobs", num_blobs, 1),
        ("num_classes", num_classes, 1),
        ("dim", dim, 1),
    ):
        check_count(label, value, least)
    if not num_classes <= num_blobs <= num_nodes // 2:
        raise InputError(
            f"num_nodes={num_nodes}, num_blobs={num_blobs}, num_classes={num_classes}: expected at least one blob "
            "a class and two nodes a blob."
        )
    check_share("within", within)
    check_share("noise", noise, high=1e6)
    # within classes there are fewer pairs than in the whole graph, so they are what fills up
    smallest = num_nodes // num_blobs * (num_blobs // num_classes)
    most = _MAX_FILL * ((smallest if within else num_nodes) - 1)
    check_share("degree", degree, high=1e6)
    if degree > most:
        raise InputError(
            f"degree={degree:g} is more than half of the nodes that a node can be joined to in a class of "
            f"{smallest}; pass at most {most:g}, or more nodes."
        )
    return round(num_nodes * degree / 2)


def _draw_edges(
    starts: NDArray[np.int64], num_edges: int, within: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Distinct pairs of positions, ``[2, num_edges]``; ``starts`` are the first positions of the classes."""
    num_nodes = int(starts[-1])
    inside = round(within * num_edges)
    parts = [_distinct(np.empty(0, np.int64), inside, starts, rng)]
    # the others are drawn until none repeats one that is there
    parts.append(_distinct(parts[0], num_edges - inside, np.array([0, num_nodes]), rng))
    keys = np.concatenate(parts)
    return np.stack(np.divmod(keys, num_nodes))


def _distinct(
    taken: NDArray[np.int64], count: int, starts: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """``count`` pairs i < j of one run of positions each, as i * n + j; none twice, none that is ``taken``."""
    num_nodes = int(starts[-1])
    found = np.empty(0, np.int64)
    while found.size < count:
        short = count - found.size
        first = rng.integers(0, num_nodes, short + short // 20 + 8)
        run = np.searchsorted(starts, first, side="right") - 1
        second = rng.integers(starts[run], starts[run + 1])
        low, high = np.minimum(first, second), np.maximum(first, second)
        found = np.union1d(found, (low * num_nodes + high)[low != high])
        found = np.setdiff1d(found, taken, assume_unique=True)
    return found if found.size == count else np.delete(found, rng.choice(found.size, found.size - count, replace=False))


def _features(
    centres: NDArray[np.float32], blob: NDArray[np.int64], noise: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Centre plus noise, a run of rows at a time."""
    X = np.empty((len(blob), centres.shape[1]), np.float32)
    for start in range(0, len(blob), _ROWS):
        part = X[start : start + _ROWS]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= noise
        part += centres[blob[start : start + _ROWS]]
    return X
