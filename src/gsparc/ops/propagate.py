"""Averages over the neighbours of a graph, as a fixed linear operator that gradients pass through."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsparc._cuts import in_units
from gsparc._runtime import torch_generator
from gsparc._validation import check_name
from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.ops._sparse import csr_tensor
from gsparc.ops.laplacian import operator_degrees

__all__ = ["Propagation", "csr_tensor", "diffused_signals", "fixed_product", "lazy_walk"]

_INT32 = 2**31 - 1


class _Product(torch.autograd.Function):
    """``matrix @ values``; torch's own backward would transpose the matrix anew in every step."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.matrix, ctx.transpose = matrix, transpose
        with torch.autocast(values.device.type, enabled=False):
            return (matrix @ values.to(matrix.dtype)).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return fixed_product(ctx.transpose, ctx.matrix, grads[0].contiguous()), None, None


def fixed_product(matrix: Tensor, transpose: Tensor, values: Tensor) -> Tensor:
    """``matrix @ values`` where the sparse ``matrix`` is constant and its ``transpose`` was made beforehand."""
    out = _Product.apply(values, matrix, transpose)
    assert isinstance(out, Tensor)
    return out


class Propagation:
    """One step of propagation along the edges: ``P values`` for ``values [num_nodes, channels]``.

    Parameters
    ----------
    graph
        The adjacency ``A``, with or without weights.
    kind : {"sym", "mean"}
        ``"sym"`` is ``D^-1/2 (A + I) D^-1/2`` with the degrees of ``A + I``, its own transpose, for weights in
        multiples of their mean. ``"mean"`` is ``D^-1 A``, the weighted mean over the neighbours and without the node
        itself; zero for an isolated node.
    device, dtype
        Where the operator is kept and how exactly; ``values`` must be on the same device.

    Notes
    -----
    The adjacency is symmetric, so an operator and its transpose share their pattern and differ in their values.
    Memory: 8 bytes an entry of ``A``, and 4 more for ``"mean"``.

    Examples
    --------
    >>> import torch
    >>> from gsparc.graph import Graph
    >>> mean = Propagation(Graph.from_edges([[0, 1], [1, 2]], num_nodes=4), "mean")
    >>> mean(torch.tensor([[1.0], [2.0], [5.0], [7.0]])).ravel().tolist()
    [2.0, 3.0, 2.0, 0.0]
    """

    def __init__(
        self,
        graph: Graph,
        kind: Literal["sym", "mean"] = "sym",
        device: torch.device | str = "cpu",
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        check_name("propagation", kind, ("sym", "mean"))
        self.num_nodes, self.kind, self.device = graph.num_nodes, kind, torch.device(device)
        indptr, indices, weights = graph.indptr, graph.indices, graph.weights
        rows = np.repeat(np.arange(self.num_nodes, dtype=indices.dtype), np.diff(indptr))
        if kind == "sym":
            weights = in_units(graph).weights  # a self-loop weighs as much as a mean edge
            scale = 1.0 / np.sqrt(operator_degrees(indptr, weights))
            weights = np.ones(len(indices), np.float32) if weights is None else weights
            indptr, indices, rows, weights = _with_self_loops(indptr, indices, rows, weights)
            self.matrix = self._csr(indptr, indices, scale[rows] * weights * scale[indices], dtype)
            self.transpose = self.matrix
        else:
            weights = np.ones(len(indices), np.float32) if weights is None else weights
            degrees = graph.degrees()
            scale = np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)
            self.matrix = self._csr(indptr, indices, scale[rows] * weights, dtype)
            values = torch.from_numpy(weights * scale[indices]).to(self.device, dtype)
            # the patterns are equal: share them, they are the larger part
            self.transpose = csr_tensor(self.matrix.crow_indices(), self.matrix.col_indices(), values, self.num_nodes)

    def _csr(self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], dtype: torch.dtype) -> Tensor:
        kind = np.int32 if len(indices) <= _INT32 else np.int64
        pointers, columns = torch.from_numpy(indptr.astype(kind)), torch.from_numpy(indices.astype(kind))
        numbers = torch.from_numpy(values).to(self.device, dtype)
        return csr_tensor(pointers.to(self.device), columns.to(self.device), numbers, self.num_nodes)

    def __call__(self, values: Tensor) -> Tensor:
        """``P values``, differentiable in ``values``."""
        if values.ndim != 2 or len(values) != self.num_nodes:
            raise InputError(
                f"values of shape {tuple(values.shape)} came, expected [{self.num_nodes}, channels]: "
                "one row for each node of the graph."
            )
        return fixed_product(self.matrix, self.transpose, values)

    def __repr__(self) -> str:
        return f"Propagation({self.kind!r}, num_nodes={self.num_nodes}, device={str(self.device)!r})"


def lazy_walk(values: Tensor, graph: Graph, rounds: int) -> Tensor:
    """Average each row with the mean over its neighbours, ``rounds`` times: ``((I + D^-1 A) / 2)^rounds values``.

    It is power iteration. What differs between densely linked groups stays, and what differs between linked nodes
    fades; as half of each row is its own, so does what differs between the two sides of a bipartite graph. The row of
    a node without edges stays as it is. ``O(rounds * edges * channels)``.

    Examples
    --------
    >>> import torch
    >>> from gsparc.graph import Graph
    >>> lazy_walk(torch.tensor([[0.0], [4.0], [8.0], [1.0]]), Graph.from_edges([[0], [1]], num_nodes=4), 2).tolist()
    [[2.0], [2.0], [8.0], [1.0]]
    """
    if rounds == 0:
        return values
    mean = Propagation(graph, "mean", values.device, dtype=values.dtype)
    half = torch.from_numpy(np.where(np.diff(graph.indptr) > 0, 0.5, 1.0)[:, None]).to(values)
    with torch.no_grad():
        for _ in range(rounds):
            values = (values + mean(values)).mul_(half)
    return values


def diffused_signals(
    graph: Graph, rounds: int, channels: int, device: torch.device | str = "cpu", *, seed: int = 0
) -> Tensor:
    """Random signals after a lazy walk: ``[num_nodes, channels]``, in which nodes are near that share neighbourhoods.

    Distances between rows of ``((I + D^-1 A) / 2)^rounds`` are diffusion distances, in as many dimensions as there are
    nodes. Normal random signals project them to a few, which changes them little (Johnson and Lindenstrauss, 1984),
    however many groups there are; eigenvectors would have to be as many as the groups. The mean weighted by degrees,
    which every walk ends at, is taken off. Rows of nodes without edges are zero. Signals are drawn on the host, so that
    every device gets the same.

    Examples
    --------
    >>> from gsparc.graph import Graph
    >>> two_pairs_and_a_node = Graph.from_edges([[0, 2], [1, 3]], num_nodes=5)
    >>> rows = diffused_signals(two_pairs_and_a_node, 1, 8)
    >>> bool((rows[0] == rows[1]).all()), bool((rows[0] == rows[2]).all()), rows[4].any().item()
    (True, False, False)
    """
    linked = torch.from_numpy(np.diff(graph.indptr) > 0).to(device)
    degrees = torch.from_numpy(graph.degrees()).float().to(device)
    values = torch.randn(graph.num_nodes, channels, generator=torch_generator(seed)).to(device)
    values -= (degrees @ values) / degrees.sum().clamp_min(torch.finfo(torch.float32).tiny)
    return lazy_walk(values, graph, rounds).masked_fill_(~linked[:, None], 0.0)


def _with_self_loops(
    indptr: NDArray[Any], indices: NDArray[Any], rows: NDArray[Any], weights: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """CSR arrays of ``A + I``, columns ascending: the loop of row ``i`` goes after its smaller neighbours."""
    n = len(indptr) - 1
    nodes = np.arange(n, dtype=indices.dtype)
    smaller = np.concatenate([[0], np.cumsum(indices < rows)])
    place = indptr[:-1] + (smaller[indptr[1:]] - smaller[indptr[:-1]])
    return (
        indptr + np.arange(n + 1),
        np.insert(indices, place, nodes),
        np.insert(rows, place, nodes),
        np.insert(weights, place, np.ones(n, weights.dtype)),
    )
