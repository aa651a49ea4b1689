"""LLP-MLP: an MLP on features that learned from true edges alone; the plain student of LLP."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gsparc._typing import RandomState
from gsparc.baselines._pair_links import EdgeTask, LinkData, LinkMLP, LinkNet, PairLinks
from gsparc.training.batches import FeatureSource
from gsparc.training.loop import LoopResult, run_loop

__all__ = ["LLPMLPBaseline"]


class LLPMLPBaseline(PairLinks):
    """Link scores by an MLP on features and a decoder of elementwise products, trained on edges.

    The "MLP" of Guo et al., "Linkless Link Prediction via Relational Distillation" (arXiv 2210.05801, ICML 2023): two
    layers embed a node, the product of two vectors goes through an MLP of one hidden layer, and true edges are told
    from random pairs by cross-entropy.

    Parameters
    ----------
    hidden_channels : int
        Width of the encoder, of the vectors and of the decoder.
    max_steps, batch_size, learning_rate, weight_decay, dropout
        Steps at most; true edges a step, and as many random pairs; optimiser and regularisation.
    n_starts : int or "auto"
        Networks that are fitted, each with its own held-out nodes; the mean of their log-odds ranks.
        ``"auto"``: as many as :class:`~gsparc.SparcLinkPredictor` has maps.
    device, random_state, verbose
        As elsewhere.

    Attributes
    ----------
    modules_ : list of torch.nn.Module
        The network of each start.
    histories_ : list of list of dict
        Losses of each start, and reciprocal ranks of its held-out nodes; ``history_`` is the first.

    Notes
    -----
    Where it differs: the encoder normalises its hidden layer (it is the network of
    :class:`~gsparc.baselines.MLPBaseline`), a step takes a batch of edges rather than all of them, and training
    stops by the reciprocal rank of held-out nodes, as for every link method here, not by Hits@20 of held-out edges.
    The authors report single fits; here several are averaged, as in our own method.
    The decoder and the loss are checked by values worked out by hand.

    Examples
    --------
    >>> import numpy as np
    >>> model = LLPMLPBaseline(hidden_channels=8, max_steps=5, random_state=0)
    >>> ids, scores = model.fit(np.eye(6), graph=[[0, 1, 2], [1, 2, 3]]).predict_links(np.eye(6)[:1], k=2)
    >>> ids.shape, scores.shape
    ((1, 2), (1, 2))
    """

    def __init__(
        self,
        *,
        hidden_channels: int = 256,
        max_steps: int = 1000,
        batch_size: int = 2048,
        learning_rate: float = 5e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.5,
        n_starts: int | Literal["auto"] = "auto",
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_channels = hidden_channels
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.n_starts: int | Literal["auto"] = n_starts
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, data: LinkData, start: int) -> tuple[LinkNet, LoopResult]:
        net = self._student(data)
        return net, self._learn(self._task(net, data), data)

    def _student(self, data: LinkData) -> LinkMLP:
        width = data.features.num_columns
        return LinkMLP(width, self.hidden_channels, self.dropout, data.input_dropout).to(data.device)

    def _learn(self, task: EdgeTask, data: LinkData) -> LoopResult:
        settings = self._loop(data, self.max_steps, learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        return run_loop(task, settings, data.device)

    def _task(self, net: LinkMLP, data: LinkData) -> EdgeTask:
        """What the student learns from the edges alone."""

        def embed_rows(rows: Tensor) -> Tensor:
            return net.encoder(data.features.rows(rows))

        return EdgeTask(
            net,
            lambda nodes: embed_rows(data.train[nodes]),
            net.decoder,
            data,
            batch_size=self.batch_size,
            embed_held=embed_rows,
        )

    def _embed_new(self, net: LinkNet, features: FeatureSource) -> Tensor:
        index = torch.arange(features.num_rows, device=features.device)
        with torch.no_grad():
            return torch.cat([net.encoder(features.rows(part)) for part in index.split(16_384)])
