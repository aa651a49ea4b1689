"""Nearest labelled nodes by the cosine of the features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import PlainTorch, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_labels
from gsparc.baselines._parameters import check_parameters
from gsparc.baselines.logistic_regression import judge_score, temperature_of
from gsparc.estimators._auto import softmax
from gsparc.estimators._labels import check_validation, encode_labels, hold_out_labelled
from gsparc.estimators._views import _reduce, reduced_features
from gsparc.ops.combined import CombinedIndex
from gsparc.ops.neighbors import EXACT_UP_TO, NeighborIndex
from gsparc.training.batches import FeatureSource, Scaling

__all__ = ["FeatureKNNBaseline", "vote_logits"]

_GRID = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100)
_BLOCK = 16_384


def vote_logits(cosines: np.ndarray, codes: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Log-shares ``[m, C]`` of the classes among neighbours ``[m, k]``, each counting by its cosine.

    The class shares of all labelled nodes count as one further neighbour of cosine one, so that nothing is impossible,
    and a node that is like no other gets these shares. A negative cosine counts nothing.

    Examples
    --------
    >>> logits = vote_logits(np.array([[1.0, 0.5]]), np.array([[1, 0]]), np.array([0.5, 0.5]))
    >>> np.exp(logits).round(2).tolist()
    [[0.4, 0.6]]
    """
    weights = np.clip(cosines, 0.0, None).astype(np.float64)
    width = len(prior)
    place = np.arange(len(codes))[:, None] * width + codes
    votes = np.bincount(place.ravel(), weights.ravel(), len(codes) * width).reshape(-1, width) + prior
    return np.log(np.maximum(votes, 1e-12) / votes.sum(axis=1, keepdims=True))


class FeatureKNNBaseline(ClassifierMixin, PlainTorch, BaseEstimator):
    """Weighted vote of the ``k`` labelled nodes with the most similar features.

    Parameters
    ----------
    n_neighbors : int, optional
        ``k``; the value of 1, 2, 3, 5, ... 100 that does best on the validation nodes by default, by the rule that
        stops the networks.
    max_steps, device, random_state, verbose
        As elsewhere; there are no steps to limit.

    Notes
    -----
    The rule of Cover and Hart (1967) with cosine weights (:func:`vote_logits`, worked by hand in the tests). Rows are
    compared one by one up to 50,000 labelled nodes. Beyond, the index is approximate, and sparse rows are reduced to
    their 256 leading directions. The softmax temperature of the log-shares is set by the validation nodes.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> FeatureKNNBaseline(1, random_state=0).fit(X, [0, 0, 1, 1]).predict([[3.0, 1.0]]).tolist()
    [0]
    """

    def __init__(
        self,
        n_neighbors: int | None = None,
        *,
        max_steps: int | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any = None, validation: Any = None) -> Self:
        """Index the labelled nodes (-1: unlabelled); the graph is not read.

        ``validation``: a pair (X, y) of nodes that choose ``k`` and the temperature; without it a tenth of the
        labelled nodes does, each not counting as its own neighbour.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        judges = check_validation(self, validation, self.classes_)
        seed = resolve_seed(self.random_state)
        rows = np.flatnonzero(codes >= 0)
        self.scaling_ = Scaling.fit(X)
        self._build(X[rows], seed)
        self._codes = codes[rows]
        self.prior_ = np.bincount(self._codes, minlength=len(self.classes_)) / len(rows)
        if judges is None:
            held = hold_out_labelled(codes, np.zeros(0, np.int64), seed)
            judged, truth, own = X[held], codes[held], np.searchsorted(rows, held)
        else:
            judged, truth, own = *judges, None
        self.n_neighbors_, self.temperature_ = self._choose(judged, truth, own)
        return self

    def _build(self, X: Any, seed: int) -> None:
        device = resolve_device(self.device)
        self._exact = bool(sp.issparse(X) and self.scaling_.rows and X.shape[0] <= EXACT_UP_TO)
        if self._exact:
            ones = np.ones((X.shape[0], 1), np.float32)  # no other space than the features: weight zero
            self.index_: Any = CombinedIndex.build(ones, X, 0.0, kind="exact", device=device)
            return
        rows, self._directions, self._scale = reduced_features(X, FeatureSource(X, self.scaling_, device), seed)
        self.index_ = NeighborIndex.build(rows, metric="cosine", device=device, seed=seed)

    def _search(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and positions of the nearest labelled nodes, nearest first."""
        k = min(k, len(self._codes))
        if self._exact:
            return self.index_.search(np.ones((X.shape[0], 1), np.float32), sp.csr_array(X), k)
        source = FeatureSource(X, self.scaling_, self.index_.device)
        every = torch.arange(source.num_rows, device=source.device)
        rows = _reduce(source.rows(every), source.num_columns, self._directions) * self._scale
        distances, ids = self.index_.search(rows, k)
        return 1.0 - distances, ids

    def _choose(self, X: Any, truth: np.ndarray, own: np.ndarray | None) -> tuple[int, float]:
        grid = _GRID if self.n_neighbors is None else (self.n_neighbors,)
        if not len(truth):
            return min(grid[-1], 10), 1.0
        cosines, ids = self._search(X, max(grid) + (own is not None))
        if own is not None:  # nobody judges by the own label
            cosines = np.where(ids == own[:, None], 0.0, cosines)
            order = np.argsort(ids == own[:, None], axis=1, kind="stable")
            cosines, ids = np.take_along_axis(cosines, order, axis=1), np.take_along_axis(ids, order, axis=1)
        logits = [vote_logits(cosines[:, :k], self._codes[ids[:, :k]], self.prior_) for k in grid]
        best = int(np.argmax([judge_score(part, truth) for part in logits]))
        return grid[best], temperature_of(logits[best], truth)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, from features alone."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        parts = []
        for start in range(0, X.shape[0], _BLOCK):
            cosines, ids = self._search(X[start : start + _BLOCK], self.n_neighbors_)
            parts.append(vote_logits(cosines, self._codes[ids], self.prior_) / self.temperature_)
        return softmax(np.concatenate(parts))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
