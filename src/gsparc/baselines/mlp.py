"""A plain MLP on the features: what every claim about the graph is measured against."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import PlainTorch, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_labels
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._heads import HeadData, HeadSettings, NetHead, choose_judges
from gsparc.estimators._labels import check_validation, encode_labels
from gsparc.estimators._views import NodeView
from gsparc.training.batches import FeatureSource, Scaling

__all__ = ["MLPBaseline"]


class MLPBaseline(ClassifierMixin, PlainTorch, BaseEstimator):
    """The network of :class:`~gsparc.SparcClassifier` without coordinates: features only, no graph.

    Same width, dropout, optimiser, stopping rule and calibration; a tenth of the labelled nodes judge.

    Notes
    -----
    A plain network has no paper of its own. It is checked against its equation, ``W_2 gelu(LN(W_1 x + b_1)) + b_2``,
    worked by hand for a row of two features.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4)); y = (X[:, 0] > 0).astype(int)
    >>> MLPBaseline(max_steps=50, random_state=0).fit(X, y).predict(X).shape
    (100,)
    """

    def __init__(
        self,
        *,
        max_steps: int = 600,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any = None, validation: Any = None) -> Self:
        """Learn from labelled nodes; the graph is not read, and -1 is as in :class:`~gsparc.SparcClassifier`.

        ``validation``: a pair (X, y) of nodes that judge, as there; without it a tenth of the labelled ones do.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        labels = check_labels(y, X.shape[0])
        self.classes_, codes = encode_labels(labels)
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        judges = check_validation(self, validation, self.classes_)
        self.scaling_ = Scaling.fit(X)
        view = self._view(X, device)
        outside = None if judges is None else (self._view(judges.X, device), judges.codes)
        judged, codes, _ = choose_judges(view, codes, outside, np.zeros(0, np.int64), seed)
        rows = np.flatnonzero(codes >= 0)
        settings = HeadSettings(coordinates=False, max_steps=self.max_steps, seed=seed, verbose=self.verbose)
        self.head_ = NetHead.fit(settings, HeadData(view, rows, codes[rows], len(self.classes_), judged), device)
        return self

    def _view(self, X: Any, device: Any) -> NodeView:
        return NodeView(FeatureSource(X, self.scaling_, device), None)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        blocks = range(0, X.shape[0], 65_536)
        device = resolve_device(self.device)
        return np.concatenate([softmax(self.head_.logits(self._view(X[i : i + 65_536], device))) for i in blocks])

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
