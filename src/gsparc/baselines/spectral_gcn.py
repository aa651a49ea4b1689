"""Spectral-GCN: the convolution U g U^T X with true eigenvectors, for nodes that have edges."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gsparc._typing import RandomState
from gsparc._validation import check_count
from gsparc.baselines._connected import ConnectedBaseline, SeenGraph, true_eigenvectors
from gsparc.estimators._views import reduced_features
from gsparc.nn.gcn import SpectralGCN
from gsparc.training.classify import Inputs
from gsparc.training.loop import LoopSettings

__all__ = ["SpectralGCNBaseline"]

_EVERYBODY = 2**62


class _OneSet(nn.Module):
    """The convolution over one set that holds all nodes, read at some of them."""

    def __init__(self, network: SpectralGCN, x: Tensor, u: Tensor) -> None:
        super().__init__()
        self.network = network
        self._held = (x.unsqueeze(0), u.unsqueeze(0))  # by reference: no part of the state

    def forward(self, rows: Tensor) -> Tensor:
        return self.network(*self._held)[0, rows]


class SpectralGCNBaseline(ConnectedBaseline):
    """Spectral graph convolution (Bruna et al., arXiv 1312.6203) with the true leading eigenvectors of the seen graph.

    The original of ``SparcClassifier(backbone="gcn")``, and the same network: only ``U`` differs, and all nodes
    are one set. It cannot say anything of a node without edges.

    Parameters
    ----------
    n_eigenvectors
        Columns of ``U``.
    hidden_channels, dropout, max_steps
        Widths of the convolutions, and optimiser steps at most, each over all nodes.
    device, random_state, verbose
        As elsewhere.

    Notes
    -----
    Where it differs from the paper: the filters are diagonal and shared by the channels, ``U`` is cut to its leading
    columns, and a small uniform jump in the adjacency keeps indicators of components out of it; see also the notes of
    :class:`~gsparc.nn.gcn.SpectralGCN`. Features wider than 512 columns are reduced to 256 singular directions.

    Checked against the paper's equation: the convolution ``U g U^T X`` is worked by hand on three nodes, and on two
    triangles, with all eigenvectors and their eigenvalues as ``g``, it is the adjacency times ``X``.

    Examples
    --------
    >>> import numpy as np
    >>> from gsparc import Graph
    >>> ring = Graph.from_edges(np.array([np.arange(30), np.roll(np.arange(30), 1)]))
    >>> y = np.repeat([0, 1], 15); y[::3] = -1
    >>> model = SpectralGCNBaseline(n_eigenvectors=4, hidden_channels=(8, 8), max_steps=25, random_state=0)
    >>> model.fit(np.eye(30), y, graph=ring).predict_seen().shape
    (30,)
    """

    _never_waits = True

    def __init__(
        self,
        *,
        n_eigenvectors: int = 64,
        hidden_channels: Sequence[int] = (64, 256),
        dropout: float = 0.5,
        max_steps: int = 400,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_eigenvectors = n_eigenvectors
        self.hidden_channels = hidden_channels
        self.dropout = dropout
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, data: SeenGraph) -> tuple[nn.Module, Inputs]:
        count = check_count("n_eigenvectors", self.n_eigenvectors, 1)
        x = reduced_features(data.X, data.source, data.seed)[0]
        u = torch.from_numpy(true_eigenvectors(data.graph, count, data.seed)).to(data.device)
        network = SpectralGCN(
            x.shape[1],
            data.num_classes,
            coordinate_channels=count,
            hidden_channels=self.hidden_channels,
            dropout=self.dropout,
            input_dropout=0.3 if data.source.scaling.rows else 0.0,
        )
        return _OneSet(network, x, u), lambda rows: (rows,)

    def _loop(self, seed: int) -> tuple[LoopSettings, int]:
        return self._settings(3e-3, 1e-2, seed), _EVERYBODY
