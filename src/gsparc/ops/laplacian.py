"""The operator whose eigenfunctions gsparc learns, as functions of a CSR adjacency.

With self-loops, ``K = A + I`` (plus ``tau / n`` in every entry when the adjacency is
regularised), degrees ``d = K 1`` and ``pi = d / sum(d)``, the random walk ``P = D^-1 K`` is
self-adjoint under ``pi``. Its eigenvalues ``mu`` are those of ``D^-1/2 K D^-1/2``, so
``1 - mu`` are the eigenvalues of the symmetric Laplacian, and its eigenfunctions ``f``
are the eigenvectors divided by ``sqrt(d)``: orthonormal under ``pi``, the first one constant.
Weights come in multiples of their mean (:func:`gsparc._cuts.in_units`), so that the loop weighs as much as a mean edge.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsparc.ops._sparse import csr_tensor

__all__ = ["normalized_affinity", "operator_degrees", "row_steps", "walk", "walk_reference"]

_CHUNK_ENTRIES = 8_000_000


def operator_degrees(
    indptr: NDArray[np.integer], weights: NDArray[np.floating] | None, *, tau: float = 0.0
) -> NDArray[np.float64]:
    """Row sums of ``A + I + tau/n``: ordinary degrees plus one, plus ``tau``.

    Examples
    --------
    >>> operator_degrees(np.array([0, 1, 3, 4]), None).tolist()
    [2.0, 3.0, 2.0]
    """
    if weights is None:
        degrees = np.diff(indptr).astype(np.float64)
    else:
        sums = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
        degrees = sums[indptr[1:]] - sums[indptr[:-1]]
    return degrees + 1.0 + tau


def normalized_affinity(adjacency: sp.csr_array, *, tau: float = 0.0) -> sp.csr_array:
    """``D^-1/2 (A + I) D^-1/2`` as a sparse matrix; the reference for small graphs.

    ``tau`` only enters the degrees here: the dense rank-one part is left to the caller.
    """
    n = len(adjacency.indptr) - 1
    affinity = sp.csr_array(adjacency, dtype=np.float64) + sp.eye_array(n, format="csr")
    scale = 1.0 / np.sqrt(np.asarray(affinity.sum(axis=1)).ravel() + tau)
    return sp.csr_array(affinity.multiply(scale[:, None]).multiply(scale[None, :]))


def walk_reference(adjacency: sp.csr_array, values: NDArray[np.floating], *, tau: float = 0.0):
    """``P values`` by one dense expression; :func:`walk` must agree with it."""
    dense = adjacency.toarray().astype(np.float64)
    n = len(dense)
    affinity = dense + np.eye(n) + tau / n
    return (affinity @ values) / affinity.sum(axis=1, keepdims=True)


def walk(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    weights: NDArray[np.floating] | None,
    values: Tensor,
    *,
    tau: float = 0.0,
) -> Tensor:
    """One random-walk average ``P values`` of a function on the nodes, streamed over the edges.

    Parameters
    ----------
    indptr, indices, weights
        CSR adjacency without self-loops; ``weights=None`` means ones.
    values
        ``[n, k]`` function values, on any device.
    tau
        Weight of the uniform jump that the regularised adjacency adds.
    """
    degrees = torch.from_numpy(operator_degrees(indptr, weights, tau=tau)).to(values)
    out = values + (tau * values.mean(dim=0) if tau else 0.0)
    for start, stop in row_steps(indptr, _CHUNK_ENTRIES):
        if indptr[stop] > indptr[start]:
            out[start:stop] += _rows_times(indptr, indices, weights, values, start, stop)
    return out / degrees[:, None]


def row_steps(indptr: NDArray[np.integer], entries: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold about so many entries each, at least one row and at most ``most``.

    Examples
    --------
    >>> list(row_steps(np.array([0, 2, 4, 4, 9]), 4))
    [(0, 3), (3, 4)]
    >>> list(row_steps(np.array([0, 2, 4, 4, 9]), 4, most=2))
    [(0, 2), (2, 3), (3, 4)]
    """
    start, rows = 0, len(indptr) - 1
    while start < rows:
        stop = max(start + 1, int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1)
        stop = stop if most is None else min(stop, start + most)
        yield start, stop
        start = stop


def _rows_times(indptr, indices, weights, values: Tensor, start: int, stop: int) -> Tensor:
    """Rows ``start`` to ``stop`` of the adjacency times ``values``."""
    first, last = int(indptr[start]), int(indptr[stop])
    pointers = indptr[start : stop + 1] - first
    columns = indices[first:last]
    shape = (stop - start, values.shape[0])
    if values.device.type == "cpu":
        data = np.ones(last - first, np.float32) if weights is None else weights[first:last]
        block = sp.csr_array((data.astype(values.numpy().dtype, copy=False), columns, pointers), shape=shape)
        return torch.from_numpy(block @ values.numpy())
    device = values.device
    data = torch.ones(last - first, device=device, dtype=values.dtype)
    if weights is not None:
        data = torch.from_numpy(np.ascontiguousarray(weights[first:last])).to(values)
    starts, ends = (torch.tensor(part, device=device) for part in (pointers, columns))
    return csr_tensor(starts, ends, data, values.shape[0]) @ values
