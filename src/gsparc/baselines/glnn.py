"""GLNN: an MLP on features that learned from a graph network, the standing answer to nodes without edges."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import PlainTorch, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_graph, check_labels
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._heads import HeadData, HeadSettings, NetHead, choose_judges
from gsparc.estimators._labels import check_validation, encode_labels
from gsparc.estimators._views import NodeView
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.teach import distilled_targets, soft_labels

__all__ = ["GLNNBaseline"]

_BLOCK = 65_536


class GLNNBaseline(ClassifierMixin, PlainTorch, BaseEstimator):
    """Graph-less neural network (Zhang et al., arXiv 2110.08727): GraphSAGE teaches an MLP on features.

    The student is the network of :class:`~gsparc.baselines.MLPBaseline`: same width, dropout, optimiser, stopping
    rule and calibration. Only its targets differ: soft labels on all seen nodes.

    Parameters
    ----------
    max_steps, teacher_steps
        Optimiser steps of the student at most, and of the teacher (``None``: 200, and fewer on graphs of more than
        10,000 nodes).
    device, random_state, verbose
        As elsewhere.

    Notes
    -----
    The paper weighs the loss on true labels by a factor tuned for each data set, zero by default. Here the target of a
    labelled node is half its true class and half the teacher's word, everywhere. The teacher has full
    neighbourhoods instead of sampled ones. Where nearly all seen nodes are labelled, the teacher repeats what it has
    learnt by heart, and the student is then hardly more than the plain MLP.

    Checked against the equations of the paper: its loss, ``lambda`` times that of the label and ``1 - lambda`` times
    that of the teacher's word, worked by hand on three nodes, and the formula of its teacher, GraphSAGE with means.

    Examples
    --------
    >>> import numpy as np
    >>> from gsparc import Graph
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4)); y = (X[:, 0] > 0).astype(int)
    >>> graph = Graph.from_edges(np.array([np.arange(59), np.arange(1, 60)]))
    >>> GLNNBaseline(max_steps=25, teacher_steps=10, random_state=0).fit(X, y, graph=graph).predict(X).shape
    (60,)
    """

    def __init__(
        self,
        *,
        max_steps: int = 600,
        teacher_steps: int | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.max_steps = max_steps
        self.teacher_steps = teacher_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any, validation: Any = None) -> Self:
        """Learn from seen nodes and the edges among them.

        Parameters
        ----------
        X, y, graph
            Features, labels (-1: unlabelled) and edges of the seen nodes.
        validation : pair (X, y), optional
            Labelled nodes without edges that decide when to stop, and the temperature. Without it a tenth
            of the labelled nodes does, and neither the teacher nor the student is shown their labels.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        judges = check_validation(self, validation, self.classes_)
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        self.scaling_ = Scaling.fit(X)
        view = self._view(X, device)
        outside = None
        if judges is not None:
            outside = (NodeView(FeatureSource(judges.X, self.scaling_, device), None), judges.codes)
        judge, codes, rows = choose_judges(view, codes, outside, np.zeros(0, np.int64), seed)
        num_classes = len(self.classes_)
        soft = soft_labels(
            view.source,
            graph,
            codes,
            num_classes,
            kinds=("sage",),
            steps=self.teacher_steps,
            seed=seed,
            device=device,
            show_progress=bool(self.verbose),
        )
        data = HeadData(view, rows, distilled_targets(soft, codes)[rows], num_classes, judge)
        settings = HeadSettings(coordinates=False, max_steps=self.max_steps, seed=seed, verbose=self.verbose)
        self.teacher_proba_ = soft
        self.head_ = NetHead.fit(settings, data, device)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, from features alone."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        device = resolve_device(self.device)
        blocks = range(0, X.shape[0], _BLOCK)
        return np.concatenate([softmax(self.head_.logits(self._view(X[i : i + _BLOCK], device))) for i in blocks])

    def _view(self, X: Any, device: Any) -> NodeView:
        return NodeView(FeatureSource(X, self.scaling_, device), None)

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
