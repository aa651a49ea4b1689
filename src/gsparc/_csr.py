"""From a list of edges to symmetric CSR arrays, within a small multiple of the input's memory.

Directions are ignored, self-loops dropped and repeated edges merged. All functions take plain numpy
arrays whose ids have been checked by :func:`check_edge_ids`.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._mapped import release
from gsparc.exceptions import GraphError

__all__ = [
    "STREAMED",
    "check_csr",
    "check_edge_ids",
    "check_weights",
    "component_labels",
    "index_dtype",
    "merge_edges",
    "merge_weighted_edges",
]

logger = logging.getLogger(__name__)

MAX_NODES = 3_037_000_499  # the largest n whose keys i * n + j fit into 63 bits
STREAMED = 1 << 26
"""Entries from which a graph is worked through a block of rows at a time."""
_CHUNK = 1 << 22  # temporary arrays stay near 32 MB
CSR = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32] | None]


def index_dtype(num_nodes: int) -> type[np.int32] | type[np.int64]:
    """The integer type that holds a position among ``num_nodes`` nodes."""
    return np.int32 if num_nodes < 2**31 else np.int64


def check_edge_ids(ends: NDArray[Any], num_nodes: int | None) -> tuple[NDArray[Any], int]:
    """Whole, non-negative ids below ``num_nodes``; ``None`` counts the nodes as the largest id + 1."""
    if ends.size and ends.dtype.kind == "f":
        if not (np.isfinite(ends).all() and np.array_equal(ends, np.trunc(ends))):
            bad = ends[~(np.isfinite(ends) & (ends == np.trunc(ends)))].ravel()
            raise GraphError(
                f"edges hold {bad.size} node ids that are not whole numbers (first: {bad[0]}). Node ids are "
                "positions 0, 1, 2, ...; pass edge weights as weights=."
            )
    elif ends.size and ends.dtype.kind not in "iu":
        raise GraphError(
            f"edges have dtype {ends.dtype}; integer positions were expected. For edges between string ids "
            "use Graph.from_table(edges)."
        )
    low, high = (int(ends.min()), int(ends.max())) if ends.size else (0, -1)
    if low < 0:
        raise GraphError(f"edges hold a negative node id ({low}). Node ids are positions 0, 1, 2, ...")
    count = high + 1 if num_nodes is None else num_nodes
    if count < 1:
        raise GraphError(
            f"a graph needs at least one node, got {count}. Pass num_nodes= when there are no edges to count."
        )
    if high >= count:
        raise GraphError(
            f"edges hold the node id {high}, but num_nodes={count} allows 0 to {count - 1}. "
            "Raise num_nodes, or map the ids with Graph.from_table(edges, nodes=...)."
        )
    if count > MAX_NODES:
        what = f"num_nodes={count}" if num_nodes is not None else f"the node id {high} of the edges"
        raise GraphError(
            f"{what} is too large: gsparc can index {MAX_NODES:,} nodes. Ids that are no positions 0, 1, 2, ... are "
            "mapped to positions by Graph.from_table(edges)."
        )
    return (ends.astype(np.int64) if ends.dtype.kind == "f" else ends), count  # all of them fit by now


def check_weights(weights: NDArray[Any], num_edges: int) -> NDArray[np.floating[Any]]:
    """One finite weight >= 0 an edge, as float32 or float64."""
    if weights.ndim != 1 or weights.size != num_edges:
        raise GraphError(
            f"weights have shape {weights.shape}, but there are {num_edges} edges. Pass one weight an edge."
        )
    if weights.dtype.kind not in "biuf":
        raise GraphError(f"weights have dtype {weights.dtype}; numbers were expected.")
    if weights.dtype != np.float32:
        weights = weights.astype(np.float64, copy=False)
    if weights.size == 0:
        return weights
    low, high = weights.min(), weights.max()  # NaN wins both
    if not (np.isfinite(low) and np.isfinite(high)):
        bad = int(np.count_nonzero(~np.isfinite(weights)))
        raise GraphError(f"weights hold {bad} NaN or infinite values. Remove or fill those edges.")
    if low < 0:
        raise GraphError(f"weights hold a negative value ({low}); edge weights must be positive.")
    return weights


def merge_edges(source: NDArray[Any], target: NDArray[Any], num_nodes: int) -> CSR:
    """CSR arrays of the unweighted graph: one sort of the keys ``i * n + j`` of both directions."""
    keys = np.empty(2 * source.size, dtype=np.int64)
    filled = 0
    for start in range(0, source.size, _CHUNK):
        one, two = source[start : start + _CHUNK], target[start : start + _CHUNK]
        keep = one != two
        if not keep.all():
            one, two = one[keep], two[keep]
        for left, right in ((one, two), (two, one)):
            out = keys[filled : filled + left.size]
            np.multiply(left, num_nodes, out=out, dtype=np.int64, casting="unsafe")
            np.add(out, right, out=out, dtype=np.int64, casting="unsafe")
            filled += left.size
    _log_loops(source.size - filled // 2)
    keys = keys[:filled]
    keys.sort()
    keys = keys[: _drop_repeats(keys)]
    indptr = np.searchsorted(keys, np.arange(num_nodes + 1, dtype=np.int64) * num_nodes).astype(np.int64)
    indices = np.empty(keys.size, dtype=index_dtype(num_nodes))
    for start in range(0, keys.size, _CHUNK):
        indices[start : start + _CHUNK] = keys[start : start + _CHUNK] % num_nodes
    return indptr, indices, None


def _drop_repeats(keys: NDArray[np.int64]) -> int:
    """Move the distinct values of sorted ``keys`` to its front; their number is returned."""
    kept, previous = 0, -1
    for start in range(0, keys.size, _CHUNK):
        part = keys[start : start + _CHUNK]
        last = int(part[-1])
        new = np.empty(part.size, dtype=bool)
        new[0] = part[0] != previous
        np.not_equal(part[1:], part[:-1], out=new[1:])
        distinct = part[new]  # a copy, so writing below cannot disturb it
        keys[kept : kept + distinct.size] = distinct
        kept, previous = kept + distinct.size, last
    return kept


def merge_weighted_edges(
    source: NDArray[Any], target: NDArray[Any], weights: NDArray[np.floating[Any]], num_nodes: int
) -> CSR:
    """CSR arrays of the weighted graph: repeats of one direction add up, two directions take the larger."""
    keep = source != target
    _log_loops(source.size - int(np.count_nonzero(keep)))
    zeros = weights == 0
    if zeros.any():
        logger.debug("dropped %d edges of weight zero", np.count_nonzero(zeros))
        keep &= ~zeros
    if not keep.all():
        source, target, weights = source[keep], target[keep], weights[keep]
    # ids beyond what int64 holds were refused before, so the cast of unsigned ids is exact
    kind = index_dtype(max(num_nodes, source.size))
    ends = (source.astype(kind, copy=False), target.astype(kind, copy=False))
    one_way = sp.coo_array((weights, ends), shape=(num_nodes, num_nodes)).tocsr()
    one_way.sum_duplicates()
    both = sp.csr_array(one_way.maximum(one_way.T.tocsr()))
    del one_way
    both.sort_indices()
    with np.errstate(over="ignore", under="ignore"):  # told below, in words
        values = both.data.astype(np.float32)
    if values.size and not (np.isfinite(values.max()) and values.min() > 0):
        raise GraphError(
            "weights, once the repeats of an edge are added up, do not fit float32 "
            f"(they span {both.data.min()} to {both.data.max()}). Rescale them."
        )
    return both.indptr.astype(np.int64), both.indices.astype(index_dtype(num_nodes), copy=False), values


def _log_loops(count: int) -> None:
    if count:
        logger.debug("dropped %d self-loops", count)


def check_csr(indptr: NDArray[Any], indices: NDArray[Any], weights: NDArray[Any] | None) -> None:
    """Refuse arrays that are not the CSR form of an undirected graph without self-loops."""
    if any(array.ndim != 1 or (array.size and array.dtype.kind not in "iu") for array in (indptr, indices)):
        raise GraphError(
            f"indptr and indices must be flat arrays of integers, got {indptr.dtype} of shape {indptr.shape} "
            f"and {indices.dtype} of shape {indices.shape}."
        )
    if indptr.size < 2:
        raise GraphError(f"indptr has {indptr.size} entries: one more than nodes, of which at least one.")
    if indptr[0] != 0 or indptr[-1] != indices.size or np.any(indptr[1:] < indptr[:-1]):
        raise GraphError(
            f"indptr does not describe rows of the {indices.size} indices: it must start at 0, never fall "
            f"and end at {indices.size}. Build the graph with Graph.from_edges or Graph.from_scipy."
        )
    nodes = indptr.size - 1
    check_edge_ids(indices, nodes)
    rises = np.ones(indices.size + 1, dtype=bool)
    np.greater(indices[1:], indices[:-1], out=rises[1 : indices.size])
    rises[indptr] = True  # the first entry of a row has none before it
    rows = np.repeat(np.arange(nodes, dtype=index_dtype(nodes)), np.diff(indptr.astype(np.int64)))
    if not rises.all() or np.any(rows == indices):
        raise GraphError(
            "rows must be sorted, without repeats and without self-loops. Build the graph with "
            "Graph.from_edges or Graph.from_scipy, which see to it."
        )
    del rows
    _check_symmetric(indptr, indices, weights)


def _check_symmetric(indptr: NDArray[Any], indices: NDArray[Any], weights: NDArray[Any] | None) -> None:
    values = np.ones(indices.size, np.int8) if weights is None else check_weights(weights, indices.size)
    if values.size and values.min() <= 0:
        raise GraphError("weights hold a zero; leave such edges out.")
    shape = (indptr.size - 1, indptr.size - 1)
    ends = indices.astype(index_dtype(max(shape[0], indices.size)), copy=False)
    matrix = sp.csr_array((values, ends, indptr.astype(np.int64, copy=False)), shape=shape)
    other = matrix.T.tocsr()
    same = np.array_equal(matrix.indptr, other.indptr) and np.array_equal(matrix.indices, other.indices)
    if not (same and np.array_equal(matrix.data, other.data)):
        raise GraphError(
            "the arrays are not symmetric: some edge lacks its other direction or its weight differs there. "
            "Build the graph with Graph.from_edges or Graph.from_scipy, which symmetrise."
        )


def component_labels(
    indptr: NDArray[np.int64], indices: NDArray[Any], chunk: int = 2 * _CHUNK
) -> tuple[int, NDArray[np.int32]]:
    """Connected components a block of rows at a time: what is known to hang together counts as one node from then on.

    scipy's own needs nine bytes an entry at once. Components are numbered by their first node.

    Examples
    --------
    >>> component_labels(np.array([0, 1, 2, 3, 4, 4]), np.array([2, 3, 0, 1]), chunk=1)
    (3, array([0, 1, 0, 1, 2], dtype=int32))
    """
    from scipy.sparse.csgraph import connected_components

    nodes, start = indptr.size - 1, 0
    count, labels = nodes, np.arange(nodes, dtype=np.int32)
    while start < nodes and count > 1:
        stop = max(start + 1, int(np.searchsorted(indptr, indptr[start] + chunk, side="right")) - 1)
        ends = np.asarray(indices[indptr[start] : indptr[stop]])
        rows = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(indptr[start : stop + 1]))
        one, two = labels[rows], labels[ends]
        new = one != two
        if new.any():
            ones = np.ones(int(new.sum()), np.int8)
            joined = sp.coo_array((ones, (one[new], two[new])), shape=(count, count)).tocsr()
            count, merged = connected_components(joined, directed=False)
            labels = merged[labels]
        release(indices)
        start = stop
    _, first = np.unique(labels, return_index=True)
    renumber = np.empty(count, dtype=np.int32)
    renumber[np.argsort(first)] = np.arange(count, dtype=np.int32)
    return int(count), renumber[labels]
