"""Links by the cosine of raw features, by popularity, or by both."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_graph, check_name, check_pair_ids
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._ranking import POPULARITY, unit
from gsparc.graph import Graph
from gsparc.ops.combined import CombinedIndex
from gsparc.training.links import Retrieval, mean_reciprocal_rank
from gsparc.training.spectral import hold_out

__all__ = ["FeatureCosineLinks"]


class FeatureCosineLinks(BaseEstimator):
    """Rank seen nodes by the cosine of the raw features.

    Parameters
    ----------
    prior : {"none", "degree", "only"}
        ``"degree"`` adds log-degree with a weight chosen on held-out seen nodes, over the grid that
        :class:`~gsparc.SparcLinkPredictor` uses; ``"only"`` ranks by degree alone.
    random_state : int or None

    Examples
    --------
    >>> import numpy as np
    >>> model = FeatureCosineLinks().fit(np.eye(4), graph=[[0, 1, 2], [1, 2, 3]])
    >>> model.predict_links(np.eye(4)[:1], k=1)[0].tolist()
    [[0]]
    """

    def __init__(self, prior: Literal["none", "degree", "only"] = "none", *, random_state: RandomState = None) -> None:
        self.prior = prior
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, graph: Any) -> Self:
        """Index the seen nodes."""
        check_name("prior", self.prior, ("none", "degree", "only"))
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        popularity = np.log1p(graph.degrees())
        self.weight_ = {"none": 0.0, "only": 1.0}.get(self.prior, 0.0)
        if self.prior == "degree":
            self.weight_ = self._choose(X, graph, resolve_seed(self.random_state))
        self._nodes = NodeNames.of(graph)
        rows = X if self.prior != "only" else X * 0
        # no learned space here: one column of ones, with weight zero
        ones = np.ones((X.shape[0], 1), np.float32)
        self.index_ = CombinedIndex.build(ones, rows, 0.0, prior=self.weight_ * popularity, kind="exact")
        return self

    @staticmethod
    def _choose(X: Any, graph: Graph, seed: int) -> float:
        linked = max(1, int((np.diff(graph.indptr) > 0).sum()))
        held = hold_out(graph, float(np.clip(500 / linked, 0.05, 0.2)), seed)
        if held is None:
            return 0.0
        retrieval = Retrieval(held, seed, torch.device("cpu"))
        left, right = unit(X[retrieval.queries]), unit(X[retrieval.candidates])
        product = left @ right.T
        product = product.toarray() if hasattr(product, "toarray") else product
        cosines = torch.from_numpy(np.ascontiguousarray(product))
        degrees = graph[held.train].degrees()[retrieval.positions]
        bonus = torch.from_numpy(np.log1p(degrees).astype(np.float32))
        scores = [mean_reciprocal_rank(cosines + weight * bonus, retrieval.truth) for weight in POPULARITY]
        return POPULARITY[int(np.argmax(scores))]

    def score_all(self, X: Any) -> np.ndarray:
        """Scores of new nodes with every seen node."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return self.index_.score_all(np.ones((X.shape[0], 1), np.float32), X)

    def predict_links(self, X: Any, k: int = 20) -> tuple[np.ndarray, np.ndarray]:
        """Ids and scores of the ``k`` best seen nodes."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        scores, ids = self.index_.search(np.ones((X.shape[0], 1), np.float32), X, k)
        return self._nodes.names(ids), scores

    def score_pairs(self, X: Any, ids: Any) -> np.ndarray:
        """Score of each new node with the seen nodes ``ids`` (node ids), ``[m, p]``."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        wanted, flat = check_pair_ids(ids, X.shape[0])
        where = self._nodes.positions(wanted)
        scores = self.index_.score_pairs(np.ones((X.shape[0], 1), np.float32), X, where)
        return scores[:, 0] if flat else scores
