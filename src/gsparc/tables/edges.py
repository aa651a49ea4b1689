"""The edges between the nodes that a table model knows, kept once in a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from gsparc.estimators._growing import grown_graph
from gsparc.graph import Graph

__all__ = ["bare", "kept_edges", "with_edges"]


def kept_edges(links: Any) -> Graph | None:
    """The edges that a link predictor holds for its own purpose, if it does."""
    return None if links is None else links._graph


def bare(graph: Graph) -> Graph:
    """The same edges without weights: who is linked to whom."""
    return Graph._from_csr(graph.indptr, graph.indices)


def with_edges(graph: Graph, edges: Any, num_nodes: int) -> Graph:
    """The graph over ``num_nodes`` nodes, old ones first, with more edges ``(sources, targets, ...)``.

    Examples
    --------
    >>> path = Graph.from_edges([[0], [1]], num_nodes=2)
    >>> with_edges(path, ([2], [0]), 3).neighbors(0).tolist()
    [1, 2]
    """
    more = None if edges is None else Graph.from_edges(np.stack(edges[:2]), num_nodes=num_nodes)
    return bare(grown_graph(graph, more, num_nodes))
