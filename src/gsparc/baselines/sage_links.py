"""GraphSAGE for links: seen nodes with their neighbours, a new node by its own row alone."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor

from gsparc._typing import RandomState
from gsparc.baselines._pair_links import EdgeTask, LinkData, LinkNet, PairDecoder, PairLinks
from gsparc.graph import Graph
from gsparc.nn.teacher import FixedRows, SageTeacher
from gsparc.ops.propagate import Propagation
from gsparc.training.batches import FeatureSource
from gsparc.training.loop import LoopResult, run_loop
from gsparc.training.teach import default_steps

__all__ = ["SAGELinksBaseline", "SageLinks", "placed"]


def placed(encoder: SageTeacher, features: FeatureSource, rows: Tensor, graph: Graph | None) -> Tensor:
    """Vectors by a trained encoder of other nodes: ``rows`` of ``features``, with the edges of ``graph`` or none."""
    other = copy.copy(encoder)  # shares the weights
    other.x = FixedRows(features.fixed_rows(rows), features.num_columns)
    other.propagation = Propagation(Graph.empty(len(rows)) if graph is None else graph, "mean", features.device)
    return other(torch.arange(len(rows), device=features.device))


class SageLinks(LinkNet):
    """GraphSAGE over the whole graph, and the decoder of pairs of its outputs."""

    encoder: SageTeacher

    def __init__(self, data: LinkData, hidden_channels: int, dropout: float) -> None:
        super().__init__()
        rows = FixedRows(data.features.fixed_rows(data.train), data.features.num_columns)
        self.encoder = SageTeacher(
            rows,
            Propagation(data.graph, "mean", data.device),
            data.features.num_columns,
            hidden_channels,
            hidden_channels=hidden_channels,
            dropout=dropout,
            input_dropout=0.5 if data.features.scaling.rows else 0.2,
        )
        self.decoder = PairDecoder(hidden_channels, hidden_channels, dropout)

    def task(self, data: LinkData, batch_size: int) -> EdgeTask:
        """Edges among the training nodes, which have their neighbours; held-out nodes judge by their own rows."""

        def alone(rows: Tensor) -> Tensor:
            return placed(self.encoder, data.features, rows, None)

        return EdgeTask(self, self.encoder, self.decoder, data, batch_size=batch_size, embed_held=alone)


class SAGELinksBaseline(PairLinks):
    """GraphSAGE (Hamilton et al., arXiv 1706.02216) with a decoder of pairs, trained on edges: LLP's teacher by itself.

    A new node has no neighbours, so the mean over them is zero and its own row speaks alone; seen nodes
    have theirs.

    Parameters
    ----------
    max_steps : int, optional
        Steps at most, each over the whole graph; by default 400, and fewer on graphs of more than 10,000 nodes.
    hidden_channels, batch_size, dropout, n_starts, device, random_state, verbose
        As in :class:`~gsparc.baselines.LLPMLPBaseline`.

    Notes
    -----
    Where it differs: no neighbours are sampled, the hidden layer is normalised by LayerNorm, and supervision is by a
    decoder of pairs as in LLP (arXiv 2210.05801). Held-out nodes, embedded by their own rows, decide when to stop.
    What it makes of a node without edges is checked against its equation worked out by hand.

    Examples
    --------
    >>> import numpy as np
    >>> model = SAGELinksBaseline(hidden_channels=8, max_steps=5, random_state=0)
    >>> model.fit(np.eye(6), graph=[[0, 1, 2], [1, 2, 3]]).score_pairs(np.eye(6)[:2], [[3], [4]]).shape
    (2, 1)
    """

    def __init__(
        self,
        *,
        hidden_channels: int = 256,
        max_steps: int | None = None,
        batch_size: int = 2048,
        dropout: float = 0.5,
        n_starts: int | Literal["auto"] = "auto",
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_channels = hidden_channels
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.dropout = dropout
        self.n_starts: int | Literal["auto"] = n_starts
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, data: LinkData, start: int) -> tuple[LinkNet, LoopResult]:
        net = SageLinks(data, self.hidden_channels, self.dropout).to(data.device)
        steps = 2 * default_steps(len(data.train)) if self.max_steps is None else self.max_steps
        settings = self._loop(data, steps, learning_rate=0.01, weight_decay=1e-2)
        return net, run_loop(net.task(data, self.batch_size), settings, data.device)

    @torch.no_grad()
    def _embed_new(self, net: LinkNet, features: FeatureSource) -> Tensor:
        index = torch.arange(features.num_rows, device=features.device)
        return placed(net.encoder, features, index, None)

    @torch.no_grad()
    def _embed_seen(self, net: LinkNet, features: FeatureSource, graph: Graph) -> Tensor:
        index = torch.arange(features.num_rows, device=features.device)
        return placed(net.encoder, features, index, graph)
