"""Parts of graphs that lie in files, made a block of rows at a time in temporary files of their own."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc._csr import index_dtype
from gsparc._mapped import release
from gsparc.graph import Graph

__all__ = ["induced_part", "without_edges_of"]

_ROWS = 1 << 18


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


def _mapped(file: Any, dtype: Any, count: int) -> NDArray[Any]:
    file.flush()
    return np.memmap(file, dtype=dtype, mode="r", shape=(count,)) if count else np.zeros(0, dtype)
