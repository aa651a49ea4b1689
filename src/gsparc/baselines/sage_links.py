"""GraphSAGE for links: seen nodes with their neighbours, a new node by its own row alone."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gsparc._typing import RandomState
from gsparc.baselines._pair_links import EdgeTask, LinkData, PairLinks
from gsparc.baselines.llp import SageLinks
from gsparc.graph import Graph
from gsparc.nn.teacher import FixedRows, SageTeacher
from gsparc.ops.propagate import Propagation
from gsparc.training.batches import FeatureSource
from gsparc.training.loop import run_loop
from gsparc.training.teach import default_steps

__all__ = ["SAGELinksBaseline", "placed"]


def placed(encoder: SageTeacher, features: FeatureSource, rows: Tensor, graph: Graph | None) -> Tensor:
    """Vectors by a trained encoder of other nodes: ``rows`` of ``features``, with the edges of ``graph`` or none."""
    other = copy.copy(encoder)  # shares the weights
    other.x = FixedRows(features.fixed_rows(rows), features.num_columns)
    other.propagation = Propagation(Graph.empty(len(rows)) if graph is None else graph, "mean", features.device)
    return other(torch.arange(len(rows), device=features.device))


class SAGELinksBaseline(PairLinks):
    """GraphSAGE (Hamilton et al., arXiv 1706.02216) with a decoder of pairs, trained on edges: LLP's teacher by itself.

    A new node has no neighbours, so the mean over them is zero and its own row speaks alone; seen nodes
    have theirs.

    Parameters
    ----------
    max_steps : int, optional
        Steps at most, each over the whole graph; by default 400, and fewer on graphs of more than 10,000 nodes.
    hidden_channels, batch_size, dropout, device, random_state, verbose
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
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_channels = hidden_channels
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.dropout = dropout
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, data: LinkData) -> None:
        rows = FixedRows(data.features.fixed_rows(data.train), data.features.num_columns)
        net = SageLinks(rows, data.graph, data, self.hidden_channels, self.dropout).to(data.device)
        task = EdgeTask(
            net,
            net.encoder,
            net.decoder,
            data,
            batch_size=self.batch_size,
            embed_held=lambda held: placed(net.encoder, data.features, held, None),
        )
        steps = 2 * default_steps(len(data.train)) if self.max_steps is None else self.max_steps
        settings = self._loop(data, steps, learning_rate=0.01, weight_decay=1e-2)
        self.history_ = run_loop(task, settings, data.device).history
        self.module_, self.decoder_ = net, net.decoder

    @torch.no_grad()
    def _embed_new(self, features: FeatureSource) -> Tensor:
        index = torch.arange(features.num_rows, device=features.device)
        return placed(self.module_.encoder, features, index, None)

    @torch.no_grad()
    def _embed_seen(self, features: FeatureSource, graph: Graph) -> Tensor:
        index = torch.arange(features.num_rows, device=features.device)
        return placed(self.module_.encoder, features, index, graph)
