"""What the methods for connected nodes share: hidden labels among seen nodes, one loop, true eigenvectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gsparc._cuts import in_units
from gsparc._runtime import PlainTorch, resolve_device, resolve_seed, seeded
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_graph, check_labels
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._labels import encode_labels, hold_out_labelled
from gsparc.graph import Graph
from gsparc.ops.laplacian import normalized_affinity
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.classify import ClassTask, Inputs, Judge, class_logits
from gsparc.training.loop import LoopSettings, run_loop
from gsparc.training.teach import RECORDED_ROWS

__all__ = ["ConnectedBaseline", "SeenGraph", "true_eigenvectors"]

_DENSE = 300  # nodes up to which all eigenvectors are computed
_TAU = 1.0  # weight of the uniform jump that ties components together


def true_eigenvectors(graph: Graph, count: int, seed: int) -> np.ndarray:
    """Leading eigenvectors ``[n, count]`` of the regularised normalised adjacency, the first left out.

    A uniform jump of total weight one a node is added to the adjacency: otherwise each component of the graph
    would fill a column with its indicator. Columns have norm ``sqrt(n)``; a graph of too few nodes fills
    up with zeros. Signs are fixed: the largest entry of a column is positive.
    """
    graph, n = in_units(graph), graph.num_nodes
    shape = (n, n)
    weights = np.ones(len(graph.indices)) if graph.weights is None else graph.weights
    affinity = normalized_affinity(sp.csr_array((weights, graph.indices, graph.indptr), shape=shape), tau=_TAU)
    root = np.sqrt(_TAU / n / (graph.degrees() + 1.0 + _TAU))  # the jump is root root^T
    found = min(count + 1, n)
    if n <= max(_DENSE, 2 * found):
        vectors = np.linalg.eigh(affinity.toarray() + np.outer(root, root))[1][:, ::-1][:, :found]
    else:
        operator = LinearOperator(shape, matvec=lambda v: affinity @ v + root * (root @ v), dtype=np.float64)  # type: ignore[call-arg]
        start = np.random.default_rng(seed).standard_normal(n)
        values, vectors = eigsh(operator, k=found, which="LA", v0=start)
        vectors = vectors[:, np.argsort(-values)]
    vectors = vectors[:, 1:] * n**0.5
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    vectors = np.where(largest < 0, -vectors, vectors)
    return np.pad(vectors, ((0, 0), (0, count - vectors.shape[1]))).astype(np.float32)


@dataclass(frozen=True)
class SeenGraph:
    """The nodes and edges that a connected method is fitted on."""

    X: Any
    source: FeatureSource
    graph: Graph
    num_classes: int
    device: torch.device
    seed: int


class ConnectedBaseline(PlainTorch, BaseEstimator, ABC):
    """A method that needs a node's edges: it fills in the hidden labels of seen nodes, and knows no others.

    Subclasses say which network reads what (:meth:`_network`) and how it is trained (:meth:`_loop`).
    """

    device: str
    random_state: RandomState
    verbose: int
    max_steps: int
    _never_waits = False  # whether the network and what it reads leave a GPU to itself: its steps may be recorded
    classes_: np.ndarray
    history_: list[dict[str, float]]
    n_steps_: int

    @abstractmethod
    def _network(self, data: SeenGraph) -> tuple[nn.Module, Inputs]:
        """The network, and what it reads of a row."""

    @abstractmethod
    def _loop(self, seed: int) -> tuple[LoopSettings, int]:
        """Settings of the loop, and rows a step."""

    def fit(self, X: Any, y: Any, *, graph: Any) -> Self:
        """Learn from the labelled nodes of a graph; -1 marks the labels to be found.

        A tenth of the labelled nodes decides after how many steps to stop (``n_steps_``), and the softmax temperature.
        Then the network is trained again from the same start on all labels, for as many steps of the same schedule.
        ``history_`` is that of the first training, which has scores.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        source = FeatureSource(X, Scaling.fit(X), device)
        with seeded(seed):
            module, inputs = self._network(SeenGraph(X, source, graph, len(self.classes_), device, seed))
        module = module.to(device)
        temperature = self._train_twice(module, inputs, codes, device, seed)
        everyone = torch.arange(len(codes), device=device)
        logits = class_logits(module, inputs, everyone, chunk=self._chunk(len(codes), seed))
        self._proba = softmax((logits / temperature).cpu().numpy())
        return self

    def _train_twice(
        self, module: nn.Module, inputs: Inputs, codes: np.ndarray, device: torch.device, seed: int
    ) -> float:
        """Train until held-out nodes say when to stop, then so long on all labels; returns the temperature."""
        settings, batch_size = self._loop(seed)

        def task(rows: np.ndarray, judge: Judge | None) -> ClassTask:
            return ClassTask(
                module,
                inputs,
                rows,
                codes[rows],
                judge,
                device,
                batch_size=batch_size,
                chunk=self._chunk(len(codes), seed),
                capturable=self._never_waits and len(codes) <= RECORDED_ROWS,
            )

        labelled, held = np.flatnonzero(codes >= 0), hold_out_labelled(codes, np.zeros(0, np.int64), seed)
        start = {name: value.detach().clone() for name, value in module.state_dict().items()}
        first = task(np.setdiff1d(labelled, held), Judge(inputs, held, codes[held]) if len(held) else None)
        result = run_loop(first, settings, device)
        self.history_, self.n_steps_ = result.history, result.best_step if len(held) else result.steps
        if not len(held):  # all labels were trained on already
            return 1.0
        temperature = first.temperature()
        module.load_state_dict(start)
        run_loop(task(labelled, None), replace(settings, stop_at=self.n_steps_), device)
        return temperature

    def _chunk(self, count: int, seed: int) -> int:
        """Rows at once when judging: all where a step computes all nodes anyhow."""
        return count if self._loop(seed)[1] >= count else 4096

    def predict_seen_proba(self) -> np.ndarray:
        """Calibrated class probabilities of all nodes passed to fit."""
        check_is_fitted(self, "classes_")
        return self._proba

    def predict_seen(self) -> np.ndarray:
        """Most probable classes of all nodes passed to fit."""
        probabilities = self.predict_seen_proba()
        return self.classes_[probabilities.argmax(axis=1)]

    def _settings(self, learning_rate: float, weight_decay: float, seed: int) -> LoopSettings:
        return LoopSettings(
            steps=self.max_steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            eval_every=25,
            tolerance=0.0,
            seed=seed,
            description=type(self).__name__,
            show_progress=bool(self.verbose),
        )
