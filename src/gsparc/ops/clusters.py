"""Subgraphs on unions of parts: edges are sorted by part once, and a batch reads only its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["ClusterEdges", "Induced"]


class Induced(NamedTuple):
    """The subgraph on some parts.

    nodes : (m,) node numbers of the whole graph, part after part
    edge_index : (2, e) edges between them, as positions in ``nodes``
    edges : (e,) positions of these edges in the whole graph's edge list
    """

    nodes: Tensor
    edge_index: Tensor
    edges: Tensor


class ClusterEdges:
    """Edges of a directed graph, sorted by the part of their source; on the device that they came on.

    Repeated edges, self-loops and single directions are kept as they are. Making a subgraph costs as much as the edges
    that leave its nodes, and a table of the parts.

    Parameters
    ----------
    edge_index : tensor of shape (2, E)
        Sources and targets.
    label : array of shape (n,)
        The part of every node: ``0, 1, ...``, none of them empty.

    Attributes
    ----------
    order : tensor of shape (n,)
        Nodes, part after part: part ``p`` is ``order[pointers[p]:pointers[p + 1]]``.
    pointers : tensor of shape (num_parts + 1,)

    Examples
    --------
    >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> clusters = ClusterEdges(path, np.array([0, 1, 1, 0]))
    >>> clusters.induced([1])
    Induced(nodes=tensor([1, 2]), edge_index=tensor([[0, 1],
            [1, 0]]), edges=tensor([2, 3]))
    """

    def __init__(self, edge_index: Tensor, label: np.ndarray) -> None:
        device = edge_index.device
        part = torch.from_numpy(np.asarray(label, np.int64)).to(device)
        sizes = torch.bincount(part)
        self.order = torch.sort(part, stable=True).indices
        self.pointers = _running(sizes)
        place = torch.empty_like(self.order)  # of a node in the order
        place[self.order] = torch.arange(len(part), device=device)
        source = place[edge_index[0].long()]
        self._edges = torch.sort(source, stable=True).indices  # of the edge list, by source in the order
        self._sources = source[self._edges]
        self._targets = place[edge_index[1].long()[self._edges]]
        self._part = part[self.order]  # of a place in the order
        self._edge_pointers = torch.searchsorted(self._sources, self.pointers)  # edges that start in a part

    @property
    def num_parts(self) -> int:
        return len(self.pointers) - 1

    @property
    def num_nodes(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"ClusterEdges(num_nodes={self.num_nodes}, num_edges={len(self._edges)}, num_parts={self.num_parts})"

    def induced(self, parts: Any) -> Induced:
        """The subgraph on the union of different ``parts``, which keep the order they are given in."""
        chosen = torch.as_tensor(parts, dtype=torch.int64, device=self.order.device)
        starts = self.pointers[chosen]
        sizes = self.pointers[chosen + 1] - starts
        places = _ranges(starts, sizes)
        first = self._edge_pointers[chosen]
        edges = _ranges(first, self._edge_pointers[chosen + 1] - first)
        shift = torch.full((self.num_parts,), -1 - self.num_nodes, device=chosen.device)  # from place to batch row
        shift[chosen] = _running(sizes)[:-1] - starts
        targets = self._targets[edges]
        ends = targets + shift[self._part[targets]]
        inside = ends >= 0  # other parts are shifted below zero
        edges, ends = edges[inside], ends[inside]
        sources = self._sources[edges]
        sources = sources + shift[self._part[sources]]
        return Induced(self.order[places], torch.stack([sources, ends]), self._edges[edges])


def _running(sizes: Tensor) -> Tensor:
    """Running sums with a leading zero."""
    sums = torch.zeros(len(sizes) + 1, dtype=torch.int64, device=sizes.device)
    torch.cumsum(sizes, 0, out=sums[1:])
    return sums


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """``starts[0], starts[0] + 1, ...`` for every run, one after the other."""
    ends = _running(lengths)
    total = int(ends[-1])
    offset = torch.repeat_interleave(starts - ends[:-1], lengths, output_size=total)
    return offset + torch.arange(total, device=starts.device)
