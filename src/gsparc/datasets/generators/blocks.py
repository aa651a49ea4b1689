"""A hierarchical block model with features, of any size, made in streams.

Nodes are the leaves of a tree cut off above them: blocks inside blocks inside blocks. Most edges join nodes
of the same smallest block, some nodes of the same next larger one, and so on up to any two nodes at all.
A node's features are the sum of one centroid for every block that it lies in, plus noise.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc._runtime import resolve_seed
from gsparc._typing import RandomState
from gsparc.datasets.base import Dataset
from gsparc.exceptions import InputError, OutputError
from gsparc.graph import Graph

__all__ = ["make_blocks"]

logger = logging.getLogger(__name__)

_EDGE_CHUNK = 1 << 21
_CHUNK_VALUES = 1 << 23  # feature values written at a time: 32 MB
_LEAF_SIZE = 250  # default hierarchies stop dividing at blocks of about this size
_MAX_FILL = 0.5  # beyond this share of all possible pairs drawing distinct ones at random gets slow


def make_blocks(
    num_nodes: int,
    num_edges: int,
    num_features: int,
    *,
    branching: Sequence[int] | None = None,
    num_classes: int | None = None,
    within: float = 0.6,
    skew: float = 0.5,
    noise: float = 2.0,
    random_state: RandomState = None,
    out: str | os.PathLike[str] | None = None,
) -> Dataset:
    """A graph of nested blocks with features and classes.

    Parameters
    ----------
    num_nodes, num_edges, num_features : int
        Size. The graph has exactly ``num_edges`` distinct undirected edges.
    branching : sequence of int, optional
        Into how many blocks each level divides, from the top: ``(41, 10, 8)`` makes 41 blocks of 10 blocks
        of 8. Sizes of blocks differ by at most one node. Default: ``num_classes`` (or 10) at the top,
        then tens until blocks hold about 250 nodes.
    num_classes : int, optional
        Classes are the blocks of the first level that has at least this many, counted modulo
        ``num_classes``. Default: the blocks at the top.
    within : float
        Share of the edges inside the smallest blocks; of the others, the same share inside the next larger
        ones, and so on. The rest join any two nodes. A level that would be more than half full hands its
        surplus up.
    skew : float
        0: all nodes of a block are alike. Otherwise the share of edges that fall to the x-th part of a block
        grows as x ** (1 / (1 + skew)), which gives degrees a heavy tail.
    noise : float
        Standard deviation of the noise on each feature; the centroids together have 1.
    random_state : int, RandomState, Generator or None
        Seed.
    out : path, optional
        Folder for ``features.npy``, which is then mapped into memory rather than held in it.

    Returns
    -------
    Dataset
        ``extra["leaf"]`` is each node's smallest block, ``extra["branching"]`` the tree.

    Notes
    -----
    Memory is the result's own plus about 24 bytes an edge while the graph is sorted.

    Examples
    --------
    >>> from gsparc.datasets import make_blocks
    >>> data = make_blocks(60, 200, 5, branching=(3, 2), random_state=0)
    >>> data, data.X.shape
    (Dataset('blocks': 60 nodes, 200 edges, 5 features, 3 classes), (60, 5))
    """
    _check(num_nodes, num_edges, num_features, within=within, skew=skew, noise=noise)
    tree = _Tree.make(num_nodes, branching, num_classes)
    place_rng, edge_rng, feature_rng = np.random.default_rng(resolve_seed(random_state)).spawn(3)
    # numbering nodes at random keeps a block's nodes from being neighbours in memory, as in real data
    number = place_rng.permutation(num_nodes).astype(np.int32)
    graph = _make_graph(tree, num_edges, within=within, skew=skew, number=number, rng=edge_rng)
    leaf = np.empty(num_nodes, dtype=np.int32)
    leaf[number] = tree.leaf_of(np.arange(num_nodes, dtype=np.int64))
    y = tree.classes(leaf, num_classes)
    return Dataset(
        X=_make_features(tree, leaf, num_features, noise=noise, rng=feature_rng, out=out),
        y=y,
        graph=graph,
        class_names=np.array([f"block_{i}" for i in range(int(y.max()) + 1)]),
        name="blocks",
        description=f"hierarchical block model, branching {tree.branching}",
        source="generated",
        extra={"leaf": leaf, "branching": tree.branching},
    )


def _check(num_nodes: int, num_edges: int, num_features: int, *, within: float, skew: float, noise: float) -> None:
    if num_nodes < 2 or num_features < 1 or num_edges < 0:
        raise InputError(
            f"num_nodes={num_nodes}, num_edges={num_edges}, num_features={num_features}: at least 2 nodes, "
            "0 edges and 1 feature were expected."
        )
    most = int(_MAX_FILL * num_nodes * (num_nodes - 1) / 2)
    if num_edges > most:
        raise InputError(
            f"num_edges={num_edges} is more than half of all pairs of {num_nodes} nodes; pass at most {most}."
        )
    if not 0 < within < 1 or not 0 <= skew <= 2 or noise < 0:
        raise InputError(
            f"within={within}, skew={skew}, noise={noise}: expected 0 < within < 1, 0 <= skew <= 2 and noise >= 0."
        )


@dataclass(frozen=True)
class _Tree:
    """Blocks over positions 0 .. n-1; a block is a run of positions, so a few divisions find it."""

    num_nodes: int
    branching: tuple[int, ...]

    @classmethod
    def make(cls, num_nodes: int, branching: Sequence[int] | None, num_classes: int | None) -> _Tree:
        if num_classes is not None and num_classes < 1:
            raise InputError(f"num_classes={num_classes}: at least one class was expected.")
        if branching is None:
            levels = [min(num_classes or 10, num_nodes // 2)]
            while num_nodes / math.prod(levels) > 2 * _LEAF_SIZE:
                levels.append(min(10, round(num_nodes / math.prod(levels) / _LEAF_SIZE)))
            branching = levels
        tree = cls(num_nodes, tuple(int(width) for width in branching))
        if not tree.branching or min(tree.branching) < 1 or tree.leaves > num_nodes // 2:
            raise InputError(
                f"branching={tuple(branching)} makes {tree.leaves} blocks of {num_nodes} nodes; every width "
                "must be at least 1, and the smallest blocks must hold at least 2 nodes."
            )
        if num_classes is not None and num_classes > tree.leaves:
            raise InputError(f"num_classes={num_classes} is more than the {tree.leaves} blocks there are.")
        return tree

    @property
    def leaves(self) -> int:
        return math.prod(self.branching)

    def leaf_of(self, position: NDArray[np.int64]) -> NDArray[np.int64]:
        return position * self.leaves // self.num_nodes

    def starts(self) -> NDArray[np.int64]:
        """First position of every leaf, and the end: the inverse of :meth:`leaf_of`."""
        return -(-np.arange(self.leaves + 1, dtype=np.int64) * self.num_nodes // self.leaves)

    def leaves_below(self, level: int) -> int:
        """Number of leaves of one block of ``level``: level 0 is the root, the last one the leaves."""
        return math.prod(self.branching[level:])

    def classes(self, leaf: NDArray[Any], num_classes: int | None) -> NDArray[np.int64]:
        wanted = num_classes or self.branching[0]
        level = next(i for i in range(len(self.branching) + 1) if math.prod(self.branching[:i]) >= wanted)
        return leaf.astype(np.int64) // self.leaves_below(level) % wanted


def _edges_per_level(tree: _Tree, num_edges: int, within: float) -> list[int]:
    """How many edges join nodes of one block of level 0 (the root), 1, ..., leaves."""
    counts = [0] * (len(tree.branching) + 1)
    left = num_edges
    for level in range(len(tree.branching), 0, -1):
        size = tree.num_nodes // math.prod(tree.branching[:level])
        room = int(_MAX_FILL * tree.num_nodes * (size - 1) / 2) - sum(counts)
        counts[level] = max(0, min(round(within * left), room))
        left -= counts[level]
    counts[0] = left
    return counts


def _make_graph(
    tree: _Tree,
    num_edges: int,
    *,
    within: float,
    skew: float,
    number: NDArray[np.int32],
    rng: np.random.Generator,
) -> Graph:
    counts = _edges_per_level(tree, num_edges, within)
    keys = np.empty(0, dtype=np.int64)
    missing = counts
    while sum(missing):
        # repeats are few in sparse graphs; where they are many, the next round draws what is missing
        drawn = [count + count // 50 + (1 if count else 0) for count in missing]
        keys = _merge(keys, _draw_keys(tree, drawn, skew, rng))
        short = num_edges - keys.size
        missing = [math.ceil(short * count / num_edges) for count in counts] if short > 0 else []
    surplus = keys.size - num_edges
    if surplus:
        keys = np.delete(keys, rng.choice(keys.size, surplus, replace=False, shuffle=False))
    edges = np.empty((2, num_edges), dtype=np.int32)
    for start in range(0, num_edges, _EDGE_CHUNK):
        part = keys[start : start + _EDGE_CHUNK]
        low = part // tree.num_nodes
        edges[0, start : start + part.size] = number[low]
        edges[1, start : start + part.size] = number[part - low * tree.num_nodes]
    del keys
    return Graph.from_edges(edges, num_nodes=tree.num_nodes)


def _merge(keys: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted distinct keys of both."""
    merged = np.concatenate([keys, new]) if keys.size else new
    merged.sort()
    keep = np.empty(merged.size, dtype=bool)
    keep[:1] = True
    np.not_equal(merged[1:], merged[:-1], out=keep[1:])
    return merged if keep.all() else merged[keep]


def _draw_keys(tree: _Tree, counts: list[int], skew: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Pairs of positions i < j as i * n + j, perhaps with repeats; pairs of a node with itself left out."""
    starts = tree.starts()
    keys = np.empty(sum(counts), dtype=np.int64)
    filled = 0
    for level, count in enumerate(counts):
        below = tree.leaves_below(level)
        for begin in range(0, count, _EDGE_CHUNK):
            size = min(_EDGE_CHUNK, count - begin)
            first = rng.integers(0, tree.leaves, size)
            second = first - first % below + rng.integers(0, below, size) if below > 1 else first
            i, j = _draw_in_leaf(starts, first, skew, rng), _draw_in_leaf(starts, second, skew, rng)
            apart = i != j
            low, high = np.minimum(i, j)[apart], np.maximum(i, j)[apart]
            keys[filled : filled + low.size] = low * tree.num_nodes + high
            filled += low.size
    return keys[:filled]


def _draw_in_leaf(
    starts: NDArray[np.int64], leaf: NDArray[np.int64], skew: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """One position in each of the leaves."""
    uniform = rng.random(leaf.size)
    if skew:
        np.power(uniform, 1.0 + skew, out=uniform)
    begin = starts[leaf]
    return begin + (uniform * (starts[leaf + 1] - begin)).astype(np.int64)


def _make_features(
    tree: _Tree,
    leaf: NDArray[np.int32],
    num_features: int,
    *,
    noise: float,
    rng: np.random.Generator,
    out: str | os.PathLike[str] | None,
) -> NDArray[np.float32]:
    """Centroid of the leaf plus noise, filled a run of rows at a time."""
    centroids = np.zeros((tree.leaves, num_features), dtype=np.float32)
    for level in range(1, len(tree.branching) + 1):
        own = rng.standard_normal((math.prod(tree.branching[:level]), num_features), dtype=np.float32)
        centroids += np.repeat(own, tree.leaves_below(level), axis=0)
    centroids /= math.sqrt(len(tree.branching))
    X = _allocate((tree.num_nodes, num_features), out)
    rows = max(1, _CHUNK_VALUES // num_features)
    for start in range(0, tree.num_nodes, rows):
        part = X[start : start + rows]
        block = rng.standard_normal(part.shape, dtype=np.float32)
        block *= noise
        block += centroids[leaf[start : start + rows]]
        part[...] = block
    if isinstance(X, np.memmap):
        X.flush()
    return X


def _allocate(shape: tuple[int, int], out: str | os.PathLike[str] | None) -> NDArray[np.float32]:
    if out is None:
        return np.empty(shape, dtype=np.float32)
    path = Path(out) / "features.npy"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}. Choose a folder that can be written.") from error
