"""What methods share that learn from edges and then predict from features alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gsparc._runtime import PlainTorch, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_graph, check_labels
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._labels import Validation, check_validation, encode_labels, hold_out_labelled
from gsparc.graph import Graph
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.classify import Inputs, Judge
from gsparc.training.loop import LoopSettings

__all__ = ["GraphTaughtBaseline", "Lesson", "walk_batch"]

_BLOCK = 65_536


@dataclass(frozen=True)
class Lesson:
    """What may be learned from: seen nodes and their edges, and nodes without edges that judge."""

    X: Any
    source: FeatureSource
    graph: Graph
    codes: np.ndarray  # class numbers of the seen nodes, -1 for unlabelled
    num_classes: int
    judges: FeatureSource | None
    judge_codes: np.ndarray
    device: torch.device
    seed: int

    @property
    def labelled(self) -> np.ndarray:
        """Rows that have a label."""
        return np.flatnonzero(self.codes >= 0)

    def judge(self, inputs: Inputs | None = None) -> Judge | None:
        """The judging nodes for a network that reads ``inputs`` of them, by default their features."""
        source = self.judges
        if source is None:
            return None
        return Judge(inputs or (lambda rows: (source.rows(rows),)), np.arange(source.num_rows), self.judge_codes)


def walk_batch(graph: Graph, count: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Up to ``count`` distinct nodes, ascending: random starts and the nodes on random walks from them.

    Nodes drawn one by one from a large graph hardly share an edge; those on walks do. Weights are not looked at.
    """
    starts = rng.choice(graph.num_nodes, min(max(1, count // (length + 1)), graph.num_nodes), replace=False)
    places, here = [starts], starts
    for _ in range(length):
        first = graph.indptr[here]
        degree = graph.indptr[here + 1] - first
        step = first + (rng.random(len(here)) * degree).astype(np.int64)
        moved = graph.indices[np.minimum(step, max(len(graph.indices) - 1, 0))] if len(graph.indices) else here
        here = np.where(degree > 0, moved, here).astype(np.int64)
        places.append(here)
    return np.unique(np.concatenate(places))


class GraphTaughtBaseline(ClassifierMixin, PlainTorch, BaseEstimator, ABC):
    """A classifier whose training sees edges and whose predictions read features only.

    Subclasses say what is learned (:meth:`_learn`) and how new rows are scored (:meth:`_logits`).
    """

    device: str
    random_state: RandomState
    verbose: int
    classes_: np.ndarray
    scaling_: Scaling
    temperature_: float

    def _check_own(self) -> None:
        """Refuse what only this baseline cannot use."""

    @abstractmethod
    def _learn(self, lesson: Lesson) -> float:
        """Fit to the lesson; returns the softmax temperature."""

    @abstractmethod
    def _logits(self, source: FeatureSource) -> Tensor:
        """Class scores of all rows of ``source``, before the temperature."""

    def fit(self, X: Any, y: Any, *, graph: Any, validation: Any = None) -> Self:
        """Learn from seen nodes and the edges among them.

        Parameters
        ----------
        X, y, graph
            Features, labels (-1: unlabelled) and edges of the seen nodes.
        validation : pair (X, y), optional
            Labelled nodes without edges that decide when to stop, and the temperature. Without it a tenth of the
            labelled nodes does: they and their edges are then left out of everything else.
        """
        check_parameters(self)
        self._check_own()
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        judges = check_validation(self, validation, self.classes_)
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        self._places = np.arange(len(codes))  # of the rows among those that are learned from; -1: they judge
        if judges is None:
            X, graph, codes, judges, kept = _without_judges(X, graph, codes, seed)
            self._places = np.full(len(self._places), -1)
            self._places[kept] = np.arange(len(kept))
        self.scaling_ = Scaling.fit(X)
        outside = None if judges is None else FeatureSource(judges.X, self.scaling_, device)
        marks = np.zeros(0, np.int64) if judges is None else judges.codes
        source = FeatureSource(X, self.scaling_, device)
        source.settle()
        lesson = Lesson(X, source, graph, codes, len(self.classes_), outside, marks, device, seed)
        self.temperature_ = self._learn(lesson)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, from features alone."""
        check_is_fitted(self, "temperature_")
        X = check_features(self, X, reset=False)
        device, parts = resolve_device(self.device), []
        for start in range(0, X.shape[0], _BLOCK):
            logits = self._logits(FeatureSource(X[start : start + _BLOCK], self.scaling_, device))
            parts.append(softmax((logits / self.temperature_).cpu().numpy()))
        return np.concatenate(parts)

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self, "temperature_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _settings(self, steps: int, learning_rate: float, weight_decay: float, **others: Any) -> LoopSettings:
        numbers = {"eval_every": 25, "tolerance": 0.0, "description": type(self).__name__} | others
        return LoopSettings(
            steps=steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            show_progress=bool(self.verbose),
            **numbers,
        )


def _without_judges(
    X: Any, graph: Graph, codes: np.ndarray, seed: int
) -> tuple[Any, Graph, np.ndarray, Any, np.ndarray]:
    """Take a tenth of the labelled nodes out of features, labels and graph, to judge as if they were cold.

    The last of the answer are the rows that stay.
    """
    held = hold_out_labelled(codes, np.zeros(0, np.int64), seed)
    if not len(held):
        return X, graph, codes, None, np.arange(len(codes))
    kept = np.setdiff1d(np.arange(len(codes)), held)
    return X[kept], graph[kept], codes[kept], Validation(X[held], codes[held]), kept
