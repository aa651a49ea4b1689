"""A plain MLP on the features: what every claim about the graph is measured against."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_labels
from gsparc.estimators._head import FeatureHead, HeadSettings, encode_labels

__all__ = ["MLPBaseline"]


class MLPBaseline(ClassifierMixin, BaseEstimator):
    """The network of :class:`~gsparc.SparcClassifier` without coordinates: features only, no graph.

    Same width, dropout, optimiser, stopping rule and calibration; a tenth of the labelled nodes judge.

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

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from labelled nodes; -1 is read as in :class:`~gsparc.SparcClassifier`."""
        X = check_features(self, X, reset=True)
        labels = check_labels(y, X.shape[0])
        self.classes_, codes = encode_labels(labels)
        settings = HeadSettings(max_steps=self.max_steps, seed=resolve_seed(self.random_state), verbose=self.verbose)
        nobody = np.zeros(0, np.int64)
        device = resolve_device(self.device)
        self.head_ = FeatureHead.fit(X, None, codes, len(self.classes_), nobody, settings, device)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return self.head_.probabilities(X, None, resolve_device(self.device))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
