"""k-means on the features: clusters that know nothing of the graph."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from gsparc._runtime import PlainTorch, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_name
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._ranking import FeatureView, unit
from gsparc.exceptions import InputError

__all__ = ["KMeansBaseline"]

_ALL_UP_TO = 100_000  # rows; beyond, mini-batches


class KMeansBaseline(ClusterMixin, PlainTorch, BaseEstimator):
    """k-means on node features (Lloyd, 1982; scikit-learn's); a new node takes the nearest centroid.

    The paper's feature-based (FB) baseline. Checked against centroids worked out by hand.

    Parameters
    ----------
    n_clusters : int
    rows : {"as they are", "weighed"}
        ``"weighed"``: counts times the logarithm of how rare a word is, rows of length one; columns
        of other features standardised. A stronger baseline on binary words, a weaker one where features are weighed
        already.
    n_init : int
        Starts; the best one counts.
    device, verbose
        Taken and not used: all baselines have them.

    Examples
    --------
    >>> X = np.array([[0.0], [0.2], [4.0], [4.2]])
    >>> model = KMeansBaseline(2, random_state=0).fit(X)
    >>> bool(model.predict([[3.0]])[0] == model.labels_[2])
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        rows: Literal["as they are", "weighed"] = "as they are",
        n_init: int = 10,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.rows: Literal["as they are", "weighed"] = rows
        self.n_init = n_init
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, graph: Any = None) -> Self:
        """Find the centroids of the seen nodes; the graph is not looked at."""
        check_parameters(self)
        check_name("rows", self.rows, ("as they are", "weighed"))
        X = check_features(self, X, reset=True)
        if X.shape[0] < self.n_clusters:
            raise InputError(f"n_clusters={self.n_clusters} came for {X.shape[0]} nodes. Pass at most one a node.")
        self._view = FeatureView.fit(X) if self.rows == "weighed" else None
        kind = KMeans if X.shape[0] <= _ALL_UP_TO else MiniBatchKMeans
        settings: dict[str, Any] = {"n_init": self.n_init, "random_state": resolve_seed(self.random_state)}
        with threadpool_limits(limits=1):  # the same bytes each time
            self.model_ = kind(self.n_clusters, **settings).fit(self._compared(X))
        self.labels_, self.cluster_centers_ = self.model_.labels_, self.model_.cluster_centers_
        return self

    def _compared(self, X: Any) -> Any:
        if self._view is None:
            return X
        rows = self._view.rows(X)
        return unit(rows) if self._view.by_rows else rows

    def predict(self, X: Any) -> np.ndarray:
        """The nearest centroid of each node."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return np.asarray(self.model_.predict(self._compared(X)))
