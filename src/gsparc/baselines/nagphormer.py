"""NAGphormer: a transformer over hop tokens, for nodes that have edges."""

from __future__ import annotations

import torch
from torch import nn

from gsparc._typing import RandomState
from gsparc._validation import check_count
from gsparc.baselines._connected import ConnectedBaseline, SeenGraph, true_eigenvectors
from gsparc.estimators._views import reduced_features
from gsparc.nn.phormer import TokenTransformer
from gsparc.ops.hops import HopTokens
from gsparc.ops.propagate import Propagation
from gsparc.training.classify import Inputs
from gsparc.training.loop import LoopSettings

__all__ = ["NAGphormerBaseline"]


class NAGphormerBaseline(ConnectedBaseline):
    """NAGphormer (Chen et al., arXiv 2206.04910): tokens ``[x, P x, ..., P^K x]`` by the true adjacency.

    The original of ``SparcClassifier(backbone="phormer")``, and the same network: only the tokens differ.
    It cannot say anything of a node without edges.

    Parameters
    ----------
    num_hops
        ``K``.
    n_eigenvectors
        Laplacian eigenvectors beside the features.
    hidden_channels, num_layers, num_heads, dropout, max_steps
        The transformer, and optimiser steps at most.
    device, random_state, verbose
        As elsewhere.

    Notes
    -----
    Where it differs from the paper: features wider than 512 columns are reduced to 256 singular directions; the
    eigenvectors are those of an adjacency with a small uniform jump, so that they are not indicators of
    components; and see the notes of :class:`~gsparc.nn.phormer.TokenTransformer`.

    Checked against the paper's equations, with numbers worked by hand: the tokens ``P^k X`` of Hop2Token on a path of
    three nodes, and the attention-based read-out ``z_0 + sum_k alpha_k z_k``.

    Examples
    --------
    >>> import numpy as np
    >>> from gsparc import Graph
    >>> ring = Graph.from_edges(np.array([np.arange(30), np.roll(np.arange(30), 1)]))
    >>> y = np.repeat([0, 1], 15); y[::3] = -1
    >>> model = NAGphormerBaseline(num_hops=2, n_eigenvectors=4, max_steps=25, random_state=0)
    >>> model.fit(np.eye(30), y, graph=ring).predict_seen().shape
    (30,)
    """

    _never_waits = True

    def __init__(
        self,
        *,
        num_hops: int = 5,
        n_eigenvectors: int = 16,
        hidden_channels: int = 128,
        num_layers: int = 1,
        num_heads: int = 8,
        dropout: float = 0.3,
        max_steps: int = 400,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.num_hops = num_hops
        self.n_eigenvectors = n_eigenvectors
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.dropout = dropout
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, data: SeenGraph) -> tuple[nn.Module, Inputs]:
        hops, count = check_count("num_hops", self.num_hops, 0), check_count("n_eigenvectors", self.n_eigenvectors, 0)
        x = reduced_features(data.X, data.source, data.seed)[0]
        if count:
            vectors = torch.from_numpy(true_eigenvectors(data.graph, count, data.seed)).to(data.device)
            x = torch.cat([x, vectors], dim=1)
        tokens = HopTokens(x, Propagation(data.graph, "sym", data.device), hops)
        module = TokenTransformer(
            x.shape[1],
            data.num_classes,
            num_tokens=hops + 1,
            hidden_channels=self.hidden_channels,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            dropout=self.dropout,
            input_dropout=0.3 if data.source.scaling.rows else 0.0,
        )
        return module, lambda rows: (tokens(rows),)

    def _loop(self, seed: int) -> tuple[LoopSettings, int]:
        return self._settings(1e-3, 1e-2, seed), 512
