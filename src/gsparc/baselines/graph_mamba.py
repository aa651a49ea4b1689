"""Graph Mamba: hop tokens through selective state spaces, for nodes that have edges."""

from __future__ import annotations

from torch import nn

from gsparc._typing import RandomState
from gsparc._validation import check_count
from gsparc.baselines._connected import ConnectedBaseline, SeenGraph
from gsparc.estimators._views import reduced_features
from gsparc.nn.samba import SambaNet
from gsparc.ops.hops import HopTokens
from gsparc.ops.propagate import Propagation
from gsparc.training.classify import Inputs
from gsparc.training.loop import LoopSettings

__all__ = ["GraphMambaBaseline"]


class GraphMambaBaseline(ConnectedBaseline):
    """Graph Mamba (Behrouz and Hashemi, arXiv 2402.08678) with hop tokens ``[x, P x, ..., P^K x]``.

    The original of ``SparcClassifier(backbone="samba")``, and the same network: only the tokens differ.
    It cannot say anything of a node without edges.

    Parameters
    ----------
    num_hops
        ``K``.
    hidden_channels, num_layers, state_channels, dropout, max_steps
        The network, and optimiser steps at most.
    device, random_state, verbose
        As elsewhere.

    Notes
    -----
    Where it differs from the paper: a token is the average over ``j`` steps along the edges, where the paper
    encodes subgraphs sampled by random walks with a message-passing network of its own; there is no positional
    encoding and no further block over the whole graph. Features wider than 512 columns are reduced to 256
    singular directions.

    Checked against equations, number by number: the tokens ``P^k X`` on a path of three nodes, read with the largest
    neighbourhood first and the node itself last, as the paper orders them; Mamba's selective recurrence ``h_t =
    exp(delta A) h_{t-1} + delta B x_t, y_t = C h_t + D x_t`` and the block around it; and that a layer reads both ways.

    Examples
    --------
    >>> import numpy as np
    >>> from gsparc import Graph
    >>> ring = Graph.from_edges(np.array([np.arange(30), np.roll(np.arange(30), 1)]))
    >>> y = np.repeat([0, 1], 15); y[::3] = -1
    >>> model = GraphMambaBaseline(num_hops=2, hidden_channels=16, max_steps=25, random_state=0)
    >>> model.fit(np.eye(30), y, graph=ring).predict_seen().shape
    (30,)
    """

    _never_waits = True

    def __init__(
        self,
        *,
        num_hops: int = 5,
        hidden_channels: int = 128,
        num_layers: int = 1,
        state_channels: int = 16,
        dropout: float = 0.3,
        max_steps: int = 400,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.num_hops = num_hops
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.state_channels = state_channels
        self.dropout = dropout
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, data: SeenGraph) -> tuple[nn.Module, Inputs]:
        hops = check_count("num_hops", self.num_hops, 0)
        x = reduced_features(data.X, data.source, data.seed)[0]
        tokens = HopTokens(x, Propagation(data.graph, "sym", data.device), hops)
        module = SambaNet(
            x.shape[1],
            data.num_classes,
            num_tokens=hops + 1,
            hidden_channels=self.hidden_channels,
            num_layers=self.num_layers,
            state_channels=self.state_channels,
            dropout=self.dropout,
            input_dropout=0.3 if data.source.scaling.rows else 0.0,
        )
        return module, lambda rows: (tokens(rows),)

    def _loop(self, seed: int) -> tuple[LoopSettings, int]:
        return self._settings(1e-3, 1e-2, seed), 512
