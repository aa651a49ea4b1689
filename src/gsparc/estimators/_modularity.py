"""How well clusters hold the edges of a graph."""

from __future__ import annotations

import numpy as np

from gsparc.graph import Graph
from gsparc.training.spectral import HeldOut

__all__ = ["foretells_edges", "modularity"]

_ROWS = 65_536  # nodes whose edges are looked at at once
_CLEAR = 2.0  # standard errors


def modularity(graph: Graph, labels: np.ndarray) -> float:
    """Share of the edges within clusters, less what it would be if ends were drawn by degree.

    Examples
    --------
    >>> path = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> round(modularity(path, np.array([0, 0, 1, 1])), 4)  # 2 of 3 edges; half of the ends in each cluster
    0.1667
    """
    degrees = np.asarray(graph.degrees(), np.float64)
    total = degrees.sum()
    if not total:
        return 0.0
    within = 0.0
    for start in range(0, graph.num_nodes, _ROWS):
        stop = min(start + _ROWS, graph.num_nodes)
        part = slice(graph.indptr[start], graph.indptr[stop])
        owner = np.repeat(labels[start:stop], np.diff(graph.indptr[start : stop + 1]))
        same = owner == labels[graph.indices[part]]
        within += float(same.sum() if graph.weights is None else graph.weights[part][same].sum(dtype=np.float64))
    return float(within / total - np.square(np.bincount(labels, degrees) / total).sum())


def foretells_edges(graph: Graph, labels: np.ndarray, held: HeldOut) -> bool:
    """Whether nodes whose edges nobody was shown are linked to their own cluster clearly more often than by chance.

    A cluster's chance is its share of the ends of edges among the nodes that were shown. Edges of one node hang
    together, so the standard error is that over nodes.

    Examples
    --------
    Five new nodes, each with a link to a node of its own cluster; then to one of the other cluster.

    >>> ring = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=9)
    >>> labels = np.array([0, 0, 1, 1, 0, 0, 1, 1, 1])
    >>> new = np.arange(4, 9)
    >>> foretells_edges(ring, labels, HeldOut(np.arange(4), new, np.arange(6), np.array([0, 1, 2, 3, 2])))
    True
    >>> foretells_edges(ring, labels, HeldOut(np.arange(4), new, np.arange(6), np.array([2, 3, 0, 1, 0])))
    False
    """
    degrees = np.diff(graph.indptr)[held.train]
    chance = np.bincount(labels[held.train], degrees, minlength=int(labels.max()) + 1) / max(degrees.sum(), 1)
    own = np.repeat(labels[held.nodes], np.diff(held.pointers))
    beyond = (own == labels[held.train][held.neighbours]) - chance[own]
    each = np.add.reduceat(beyond, held.pointers[:-1])
    return float(each.sum()) > _CLEAR * float(np.sqrt(np.square(each).sum()))
