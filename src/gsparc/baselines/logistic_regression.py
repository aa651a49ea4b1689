"""Logistic regression on the features: the linear floor, and hard to beat on very sparse text."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted
from torch.nn import functional as F

from gsparc._runtime import PlainTorch, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_labels
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._labels import check_validation, encode_labels, hold_out_labelled
from gsparc.training.batches import Scaling
from gsparc.training.classify import fit_temperature

__all__ = ["LogisticRegressionBaseline", "judge_score", "temperature_of"]

_GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
_SAMPLE = 50_000  # labelled rows beyond which a sample of them chooses C
_LEAST = 20  # judging nodes below which nothing is calibrated by them


def judge_score(logits: np.ndarray, codes: np.ndarray) -> float:
    """Accuracy with a little of the likelihood to order equals: the rule that stops the networks.

    Examples
    --------
    >>> judge_score(np.array([[50.0, 0.0], [50.0, 0.0]]), np.array([0, 1]))
    -0.75
    """
    right = float((logits.argmax(axis=1) == codes).mean())
    return right - 0.05 * float(F.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(codes)))


def temperature_of(logits: np.ndarray, codes: np.ndarray) -> float:
    """Softmax temperature by the judging nodes; 1 where they are too few to tell."""
    if len(codes) < _LEAST:
        return 1.0
    return fit_temperature(torch.from_numpy(logits).float(), torch.from_numpy(codes))


class LogisticRegressionBaseline(ClassifierMixin, PlainTorch, BaseEstimator):
    """Multinomial logistic regression with an L2 penalty, on features alone.

    Counts and sparse text are scaled to rows of length one, other columns to mean zero and variance one. The strength
    of the penalty is the value of the grid that does best on the validation nodes, by the rule that stops the networks.

    Parameters
    ----------
    C : float, optional
        Inverse strength of the penalty; chosen from 0.01, 0.1, ... 1000 by default.
    max_steps
        Iterations of L-BFGS at most.
    device, random_state, verbose
        ``device`` is taken for the sake of the other baselines: this one runs on the CPU.

    Notes
    -----
    It is scikit-learn's (L-BFGS; a convex problem needs no training loop): each value of the grid starts from the
    solution of the one before, and beyond 50,000 labelled rows a sample of them chooses. Where the validation nodes
    are at least 20 they also set the softmax temperature. The tests check the equation that the minimum of
    ``C sum_i loss_i + |W|^2 / 2`` must satisfy: ``W = C sum_i (e_{y_i} - p_i) x_i^T``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4)); y = (X[:, 0] > 0).astype(int)
    >>> float((LogisticRegressionBaseline(random_state=0).fit(X, y).predict(X) == y).mean()) > 0.9
    True
    """

    def __init__(
        self,
        C: float | None = None,
        *,
        max_steps: int = 200,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any = None, validation: Any = None) -> Self:
        """Learn from labelled nodes (-1: unlabelled); the graph is not read.

        ``validation``: a pair (X, y) of nodes that choose ``C`` and the temperature; without it a tenth of the
        labelled nodes does, and is not trained on.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        judges = check_validation(self, validation, self.classes_)
        seed, _ = resolve_seed(self.random_state), resolve_device(self.device)
        self.scaling_, self._centred = Scaling.fit(X), not sp.issparse(X)
        rows = np.flatnonzero(codes >= 0)
        if judges is None:
            held = hold_out_labelled(codes, np.zeros(0, np.int64), seed)
            rows = np.setdiff1d(rows, held)
            judged, truth = X[held], codes[held]
        else:
            judged, truth = judges
        inputs, judged = self._scaled(X[rows]), self._scaled(judged) if len(truth) else None
        self.C_ = self._choose(inputs, codes[rows], judged, truth, seed)
        self.model_ = self._solve(inputs, codes[rows], self.C_)
        self.temperature_ = 1.0 if judged is None else temperature_of(self._logits(self.model_, judged), truth)
        return self

    def _choose(self, X: Any, codes: np.ndarray, judged: Any, truth: np.ndarray, seed: int) -> float:
        if self.C is not None:
            return float(self.C)
        if judged is None:
            return 1.0
        if len(codes) > _SAMPLE:
            some = np.sort(np.random.default_rng(seed).choice(len(codes), _SAMPLE, replace=False))
            X, codes = X[some], codes[some]
        scores, model = [], None
        for C in _GRID:
            model = self._solve(X, codes, C, start=model)
            scores.append(judge_score(self._logits(model, judged), truth))
        return _GRID[int(np.argmax(scores))]

    def _solve(self, X: Any, codes: np.ndarray, C: float, start: LogisticRegression | None = None) -> Any:
        model = LogisticRegression(C=C, max_iter=self.max_steps, warm_start=True)
        if start is not None:
            model.coef_, model.intercept_, model.classes_ = start.coef_, start.intercept_, start.classes_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the last digits of a weak penalty change nothing
            return model.fit(X, codes)

    def _logits(self, model: LogisticRegression, X: Any) -> np.ndarray:
        """``[n, classes]``; a class that only judging nodes have seen cannot be among the model's."""
        scores = model.decision_function(X)
        scores = np.stack([-scores / 2, scores / 2], axis=1) if scores.ndim == 1 else scores
        out = np.full((len(scores), len(self.classes_)), -1e4, np.float64)
        out[:, model.classes_] = scores
        return out

    def _scaled(self, X: Any) -> Any:
        if self.scaling_.rows:
            return normalize(X)
        shift, factor = self.scaling_.shift, self.scaling_.factor
        assert shift is not None
        assert factor is not None
        if self._centred:
            return ((X.toarray() if sp.issparse(X) else X) - shift) * factor
        # fitted on sparse rows, which stay sparse: the intercept takes up the shift
        return sp.csr_array(X @ sp.diags_array(factor)) if sp.issparse(X) else X * factor

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, from features alone."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return softmax(self._logits(self.model_, self._scaled(X)) / self.temperature_)

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
