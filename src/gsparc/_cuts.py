"""Graphs made from others: parts of them, and the same with other weights. Of those in files, a block at a time."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc._csr import index_dtype
from gsparc._mapped import is_mapped, release, row_blocks
from gsparc.graph import Graph

__all__ = ["in_units", "induced_part", "mean_weight", "without_edges_of"]

_ROWS = 1 << 18
_ROUNDING = 1e-6  # weights that were divided by their mean have a mean of one but for the last digits


def induced_part(graph: Graph, nodes: NDArray[np.integer]) -> Graph:
    """``graph[nodes]`` for ascending ``nodes``; TMPDIR says on which disk.

    Examples
    --------
    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> induced_part(graph, np.array([0, 1, 3])) == graph[[0, 1, 3]]
    True
    """
    place = np.full(graph.num_nodes, -1, index_dtype(graph.num_nodes))
    place[nodes] = np.arange(len(nodes))
    return _filtered(graph, place, np.asarray(nodes))


def without_edges_of(graph: Graph, gone: NDArray[np.bool_]) -> Graph:
    """``graph.isolate(gone)``.

    Examples
    --------
    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> without_edges_of(graph, np.array([False, True, False, False])) == graph.isolate([1])
    True
    """
    place = np.arange(graph.num_nodes, dtype=index_dtype(graph.num_nodes))
    place[gone] = -1
    return _filtered(graph, place, None)


def _filtered(graph: Graph, place: NDArray[Any], nodes: NDArray[Any] | None) -> Graph:
    """Entries whose two ends have a ``place``; rows of ``nodes`` only, or all of them."""
    degrees = np.zeros(graph.num_nodes, np.int64)
    with tempfile.TemporaryFile(prefix="gsparc-") as ends, tempfile.TemporaryFile(prefix="gsparc-") as values:
        for start in range(0, graph.num_nodes, _ROWS):
            stop = min(start + _ROWS, graph.num_nodes)
            span = slice(int(graph.indptr[start]), int(graph.indptr[stop]))
            rows = np.repeat(np.arange(stop - start), np.diff(graph.indptr[start : stop + 1]))
            found = place[graph.indices[span]]
            keep = (found >= 0) & (place[start:stop] >= 0)[rows]
            degrees[start:stop] = np.bincount(rows[keep], minlength=stop - start)
            found[keep].tofile(ends)
            if graph.weights is not None:
                graph.weights[span][keep].tofile(values)
            release(graph.indices, graph.weights)
        indptr = np.concatenate([[0], np.cumsum(degrees if nodes is None else degrees[nodes])])
        indices = _mapped(ends, place.dtype, int(indptr[-1]))
        weights = None if graph.weights is None else _mapped(values, graph.weights.dtype, int(indptr[-1]))
        return Graph._from_mapped(indptr, indices, weights)


def mean_weight(graph: Graph) -> float:
    """Mean weight of the edges; one where they have none, and where there are none.

    Examples
    --------
    >>> mean_weight(Graph.from_edges([[0, 1], [1, 2]], weights=[1.0, 4.0])), mean_weight(Graph.from_edges([[0], [1]]))
    (2.5, 1.0)
    """
    weights, total = graph.weights, 0.0
    if weights is None or not len(weights):
        return 1.0
    for part in row_blocks(weights):
        total += float(weights[part].sum(dtype=np.float64))
        release(weights)
    return total / len(weights) or 1.0


def in_units(graph: Graph, unit: float | None = None) -> Graph:
    """The graph with its weights in multiples of ``unit``, by default of their mean; itself where that is one.

    What adds to weights something of its own, such as a self-loop of one, works on these: then no answer depends on
    whether distances were counted in metres or in miles.

    Examples
    --------
    >>> in_units(Graph.from_edges([[0, 1], [1, 2]], weights=[1.0, 4.0])).weights.tolist()
    [0.4000000059604645, 0.4000000059604645, 1.600000023841858, 1.600000023841858]
    """
    unit = mean_weight(graph) if unit is None else unit
    if abs(unit - 1.0) < _ROUNDING:
        return graph
    if graph.weights is None:
        return Graph._from_csr(
            graph.indptr, graph.indices, np.full(len(graph.indices), 1 / unit, np.float32), graph.node_ids
        )
    if not is_mapped(graph.weights):
        weights = np.asarray(graph.weights / unit, np.float32)
        return Graph._from_csr(graph.indptr, graph.indices, weights, graph.node_ids)
    with tempfile.TemporaryFile(prefix="gsparc-") as values:
        for part in row_blocks(graph.weights):
            np.asarray(graph.weights[part] / unit, np.float32).tofile(values)
            release(graph.weights)
        return Graph._from_mapped(graph.indptr, graph.indices, _mapped(values, np.float32, len(graph.weights)))


def _mapped(file: Any, dtype: Any, count: int) -> NDArray[Any]:
    file.flush()
    return np.memmap(file, dtype=dtype, mode="r", shape=(count,)) if count else np.zeros(0, dtype)
