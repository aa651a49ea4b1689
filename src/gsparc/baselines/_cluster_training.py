"""What Cluster-GCN is trained with: its network, the batches of clusters, and the whole graph for judging."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gsparc._optional import import_optional
from gsparc._runtime import seeded
from gsparc.graph import Graph
from gsparc.ops.clusters import ClusterEdges
from gsparc.ops.dropout import dropout
from gsparc.ops.propagate import csr_tensor
from gsparc.training.batches import as_tensor

__all__ = ["ClusterGCNNet", "ClusterTask", "WholeGraph"]


class ClusterGCNNet(nn.Module):
    """Layers ``relu((A' + lambda diag(A')) X W_1 + X W_2)`` with ``A' = (D + I)^-1 (A + I)``; torch_geometric's own.

    Examples
    --------
    >>> net = ClusterGCNNet(3, 2, hidden_channels=8, num_layers=2, diag_lambda=1.0, dropout=0.2)
    >>> net(torch.zeros(4, 3), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int,
        num_layers: int,
        diag_lambda: float,
        dropout: float,
    ) -> None:
        super().__init__()
        layers: Any = import_optional("torch_geometric.nn", extra="pyg", purpose="the Cluster-GCN baseline")
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(layers.ClusterGCNConv(a, b, diag_lambda=diag_lambda) for a, b in pairwise(widths))
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of the nodes of a batch."""
        for number, conv in enumerate(self.convs):
            x = dropout(F.relu(x), self.dropout, self.training) if number else x
            x = conv(x, edge_index)
        return x


class WholeGraph:
    """All nodes and edges at once, for judging: the layers' own equation as sparse products.

    ``ClusterGCNConv`` would gather one row an edge, 56 GB for the features of Reddit.

    Parameters
    ----------
    x : tensor of shape (n, d)
    graph, diag_lambda
        The edges, and the weight of the diagonal.

    Examples
    --------
    >>> path = Graph.from_edges([[0, 1], [1, 2]])
    >>> WholeGraph(torch.tensor([[1.0], [2.0], [6.0]]), path, diag_lambda=1.0).first.ravel().tolist()
    [2.0, 3.6666667461395264, 7.0]
    """

    def __init__(self, x: Tensor, graph: Graph, diag_lambda: float) -> None:
        device = x.device
        ones = torch.ones(len(graph.indices), device=device)
        pointers, columns = as_tensor(graph.indptr).to(device), as_tensor(graph.indices).to(device)
        self._adjacency = csr_tensor(pointers, columns, ones, graph.num_nodes)
        self._inverse = (1.0 / (1.0 + pointers.diff())).unsqueeze(1).to(x.dtype)  # the node itself is a neighbour
        self._own = 1.0 + diag_lambda
        self.x, self.first = x, self.spread(x)  # of the features, which never change

    def spread(self, values: Tensor) -> Tensor:
        """``(A' + lambda diag(A')) values``."""
        return (self._adjacency @ values + self._own * values) * self._inverse

    @torch.no_grad()
    def logits(self, net: ClusterGCNNet) -> Tensor:
        """What ``net`` says of all nodes, without dropout."""
        x, spread = self.x, self.first
        for number, conv in enumerate(net.convs):
            if number:
                x = F.relu(x)
                spread = self.spread(x)
            layer: Any = conv
            x = layer.lin_out(spread) + layer.lin_root(x)
        return x.float()


class ClusterTask:
    """Cross-entropy on the subgraph of some clusters; an epoch goes through all of them once."""

    def __init__(
        self,
        module: ClusterGCNNet,
        whole: WholeGraph,
        clusters: ClusterEdges,
        targets: np.ndarray,
        batch_clusters: int,
        judged: dict[str, tuple[np.ndarray, np.ndarray]],
    ) -> None:
        device = whole.x.device
        self.module, self.whole, self.clusters, self.batch_clusters = module, whole, clusters, batch_clusters
        self.targets = as_tensor(targets).to(device)  # -1: not to be learned from
        self._order, self._used = torch.arange(clusters.num_parts, device=device), clusters.num_parts
        self._judged = {
            name: (as_tensor(rows).to(device), as_tensor(labels).to(device)) for name, (rows, labels) in judged.items()
        }
        self.epochs: list[dict[str, float]] = []
        self._seconds, self._since = 0.0, time.perf_counter()

    @property
    def batches(self) -> int:
        """Batches an epoch."""
        return -(-self.clusters.num_parts // self.batch_clusters)

    def loss(self, generator: torch.Generator) -> Tensor:
        """Mean over the labelled nodes of the next batch."""
        if self._used >= len(self._order):
            self._order = torch.randperm(len(self._order), generator=generator, device=self._order.device)
            self._used = 0
        start, self._used = self._used, self._used + self.batch_clusters
        found = self.clusters.induced(self._order[start : self._used])
        logits, targets = self.module(self.whole.x[found.nodes], found.edge_index), self.targets[found.nodes]
        total = F.cross_entropy(logits.float(), targets, ignore_index=-1, reduction="sum")
        return total / (targets >= 0).sum().clamp_min(1)

    def evaluate(self) -> float | None:
        """Accuracy on the judging nodes, with a little of their likelihood to order equals; the clock stands still."""
        self._stop_clock()
        logits = self.whole.logits(self.module)
        entry, score = {"seconds": self._seconds}, None
        for name, (rows, labels) in self._judged.items():
            accuracy = float((logits[rows].argmax(dim=1) == labels).double().mean())
            entry[name] = accuracy
            if name == "validation":
                score = accuracy - 0.05 * float(F.cross_entropy(logits[rows], labels))
        self.epochs.append(entry)
        self._since = time.perf_counter()
        return score

    def start_clock(self) -> None:
        """Training begins now, after a step that is thrown away.

        The first step in a process loads kernels, which would be counted against whichever method comes first.
        """
        device = self.targets.device
        with seeded(0, device):
            self.loss(torch.Generator(device).manual_seed(0)).backward()
        self.module.zero_grad(set_to_none=True)
        self._used = len(self._order)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._since = time.perf_counter()

    def _stop_clock(self) -> None:
        if self.targets.is_cuda:
            torch.cuda.synchronize(self.targets.device)
        self._seconds += time.perf_counter() - self._since
