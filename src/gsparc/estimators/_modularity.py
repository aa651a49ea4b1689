"""How well clusters hold the edges of a graph."""

from __future__ import annotations

import numpy as np

from gsparc.graph import Graph

__all__ = ["modularity"]

_ROWS = 65_536  # nodes whose edges are looked at at once


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
