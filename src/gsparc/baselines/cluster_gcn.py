"""Cluster-GCN: a graph convolutional network trained on subgraphs of clusters, for nodes that have edges."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import nn

from gsparc._runtime import resolve_device, resolve_seed, seeded
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_graph, check_labels
from gsparc.baselines._cluster_training import ClusterGCNNet, ClusterTask, WholeGraph
from gsparc.baselines._connected import ConnectedBaseline, SeenGraph
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._labels import encode_labels, hold_out_labelled
from gsparc.estimators._partitions import node_partition
from gsparc.estimators._views import dense_rows
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import LabelError
from gsparc.graph import Graph
from gsparc.ops.clusters import ClusterEdges
from gsparc.ops.partition import check_partition, inner_share
from gsparc.training.batches import FeatureSource, Scaling, as_tensor
from gsparc.training.classify import Inputs, fit_temperature
from gsparc.training.loop import LoopSettings, run_loop

__all__ = ["ClusterGCNBaseline"]

_PART = 155  # nodes: 1,500 parts of Reddit
_LEAST_JUDGES = 20  # nodes that can tell a temperature


class ClusterGCNBaseline(ConnectedBaseline):
    """Cluster-GCN (Chiang et al., KDD 2019, arXiv 1905.07953) on random, METIS, diffusion or spectral clusters.

    It cannot say anything of a node without edges.

    Parameters
    ----------
    partition : {"spectral", "diffusion", "metis", "random"} or array of int
        How the seen nodes are cut into clusters, see :class:`~gsparc.integrations.pyg.SpectralClusterLoader`, or the
        cluster of each. The paper uses METIS.
    num_parts : int or None
        Clusters; ``None``: one for 155 nodes, as 1,500 of Reddit are.
    batch_clusters : int
        Clusters a batch.
    hidden_channels, num_layers, diag_lambda, dropout
        Width, layers, weight of the diagonal (the paper's diagonal enhancement), share of hidden entries dropped.
    learning_rate, weight_decay
        Of the optimiser.
    max_epochs, max_steps
        Epochs, each of which goes through all clusters once, and steps at most (``None``: no such limit).
    spectral_map : SpectralMap or None
        For ``"spectral"``: a fitted map, or one whose settings are used.
    device, random_state, verbose
        As elsewhere.

    Attributes
    ----------
    history_ : list of dict
        For each epoch: ``step``, ``loss``, ``seconds`` (of training so far: neither making clusters nor judging is
        counted), ``validation`` (accuracy on the held-out tenth of the labelled nodes), and ``watched`` where fit was
        given nodes to watch. Judging looks at the whole graph.
    partition_ : ndarray of shape (n,)
        The cluster of every node.
    partition_seconds_ : float
        What the clusters took to make, a spectral map included.
    inner_share_ : float
        Share of the edges that join nodes of one cluster.

    Notes
    -----
    The layers are torch_geometric's ClusterGCNConv. Where it differs from the paper: two layers of 128
    channels by default, the term ``X W_2`` of PyG's layer, no normalisation between layers, a learning rate that falls
    along a cosine, and the weights of the best epoch are kept. Weights of edges are ignored. The tests work out the
    diagonal enhancement on a path of three nodes by hand.

    Examples
    --------
    >>> from gsparc.datasets import make_blocks
    >>> made = make_blocks(300, 1500, 8, branching=(3, 2), random_state=0)
    >>> y = made.y.copy(); y[::3] = -1
    >>> model = ClusterGCNBaseline(partition="random", num_parts=6, batch_clusters=2, max_epochs=3, random_state=0)
    >>> model.fit(made.X, y, graph=made.graph).predict_seen().shape, len(model.history_)
    ((300,), 3)
    """

    def __init__(
        self,
        *,
        partition: Literal["spectral", "diffusion", "metis", "random"] | np.ndarray = "spectral",
        num_parts: int | None = None,
        batch_clusters: int = 20,
        hidden_channels: int = 128,
        num_layers: int = 2,
        diag_lambda: float = 1.0,
        dropout: float = 0.2,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
        max_epochs: int = 30,
        max_steps: int | None = None,
        spectral_map: SpectralMap | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.partition: Any = partition
        self.num_parts = num_parts
        self.batch_clusters = batch_clusters
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.diag_lambda = diag_lambda
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.max_steps: Any = max_steps
        self.spectral_map = spectral_map
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any, watch: Any = None) -> Self:
        """Learn from the labelled nodes of a graph; -1 marks the labels to be found.

        Parameters
        ----------
        X, y, graph
            Features, labels and edges of the seen nodes. A tenth of the labelled ones decides which epoch is kept,
            and the softmax temperature.
        watch : pair (rows, labels), optional
            Seen nodes whose accuracy is written down after every epoch. Nothing is decided by it.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        held = hold_out_labelled(codes, np.zeros(0, np.int64), seed)
        judged = {"validation": (held, codes[held])} if len(held) else {}
        if watch is not None:
            judged["watched"] = self._watched(watch, codes)
        clusters = self._clusters(X, graph, seed, device)
        data = SeenGraph(X, FeatureSource(X, Scaling.fit(X), device), graph, len(self.classes_), device, seed)
        with seeded(seed):
            module: Any = self._network(data)[0].to(device)
        rows = data.source.rows(torch.arange(graph.num_nodes, device=device))
        whole = WholeGraph(dense_rows(rows, data.source.num_columns), graph, self.diag_lambda)
        targets = codes.copy()
        targets[held] = -1
        task = ClusterTask(module, whole, clusters, targets, self.batch_clusters, judged)
        self._train(task, seed, device)
        logits = whole.logits(module)
        enough = len(held) >= _LEAST_JUDGES
        labels = as_tensor(codes[held]).to(device)
        temperature = fit_temperature(logits[as_tensor(held).to(device)], labels) if enough else 1.0
        self._proba = softmax((logits / temperature).cpu().numpy())
        return self

    def _watched(self, watch: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, labels = np.asarray(watch[0]), np.asarray(watch[1])
        if (
            rows.ndim != 1
            or rows.shape != labels.shape
            or (len(rows) and not 0 <= rows.min() <= rows.max() < len(codes))
        ):
            raise LabelError(
                f"watch=(rows of shape {rows.shape}, labels of shape {labels.shape}) came, expected positions of seen "
                "nodes and one label for each."
            )
        known = np.isin(labels, self.classes_)
        return rows[known].astype(np.int64), np.searchsorted(self.classes_, labels[known]).astype(np.int64)

    def _clusters(self, X: Any, graph: Graph, seed: int, device: torch.device) -> ClusterEdges:
        start, n = time.perf_counter(), graph.num_nodes
        if isinstance(self.partition, str):
            self.partition_, _ = node_partition(
                self.partition,
                max(1, n // _PART) if self.num_parts is None else self.num_parts,
                graph,
                X=X if self.partition == "spectral" else None,
                spectral_map=self.spectral_map if self.partition == "spectral" else None,
                device=self.device,
                seed=seed,
            )
        else:
            self.partition_ = check_partition(self.partition, n)
        self.partition_seconds_ = time.perf_counter() - start
        self.inner_share_ = inner_share(graph.indptr, graph.indices, self.partition_)
        sources = np.repeat(np.arange(n, dtype=graph.indices.dtype), np.diff(graph.indptr))
        return ClusterEdges(torch.from_numpy(np.stack([sources, graph.indices])).to(device), self.partition_)

    def _network(self, data: SeenGraph) -> tuple[nn.Module, Inputs]:
        net = ClusterGCNNet(
            data.source.num_columns,
            data.num_classes,
            hidden_channels=self.hidden_channels,
            num_layers=self.num_layers,
            diag_lambda=self.diag_lambda,
            dropout=self.dropout,
        )
        return net, lambda rows: (rows,)

    def _loop(self, seed: int) -> tuple[LoopSettings, int]:
        settings = LoopSettings(
            steps=self.max_epochs,  # of one batch each; _train knows how many there are
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            tolerance=0.0,
            patience=self.max_epochs + 1,  # every epoch is shown
            seed=seed,
            description=type(self).__name__,
            show_progress=bool(self.verbose),
        )
        return settings, self.batch_clusters

    def _train(self, task: ClusterTask, seed: int, device: torch.device) -> None:
        steps = self.max_epochs * task.batches
        steps = steps if self.max_steps is None else min(steps, self.max_steps)
        settings = replace(self._loop(seed)[0], steps=steps, eval_every=task.batches)
        task.start_clock()
        history = run_loop(task, settings, device).history
        self.history_ = [entry | epoch for entry, epoch in zip(history, task.epochs, strict=True)]
