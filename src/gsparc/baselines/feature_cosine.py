"""Links by the cosine of features, raw or weighed, by popularity, or by both; nothing is learned but weights."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import PlainTorch, further_seed, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_graph, check_name, check_pair_ids
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._ranking import (
    POPULARITY,
    FeatureView,
    LinkWeights,
    choose_weights,
    leading_entries,
    popularity_of,
    smoothed,
    unit,
)
from gsparc.estimators._shift import NodeShift, link_shifts
from gsparc.graph import Graph
from gsparc.ops.combined import CombinedIndex
from gsparc.training.links import Retrieval, default_fits, held_out_share, mean_reciprocal_rank
from gsparc.training.spectral import hold_out

__all__ = ["FeatureCosineLinks", "WeighedCosineLinks"]


class _CosineLinks(PlainTorch, BaseEstimator):
    """Ranking by an index of the seen nodes' features."""

    index_: CombinedIndex
    _nodes: NodeNames

    def _compared(self, X: Any) -> Any:
        """Features as they are compared."""
        return X

    def score_all(self, X: Any) -> np.ndarray:
        """Scores of new nodes with every seen node."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return self.index_.score_all(_ones(X), self._compared(X))

    def predict_links(self, X: Any, k: int = 20) -> tuple[np.ndarray, np.ndarray]:
        """Ids and scores of the ``k`` best seen nodes."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        scores, ids = self.index_.search(_ones(X), self._compared(X), k)
        return self._nodes.names(ids), scores

    def score_pairs(self, X: Any, ids: Any) -> np.ndarray:
        """Score of each new node with the seen nodes ``ids`` (node ids), ``[m, p]``."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        wanted, flat = check_pair_ids(ids, X.shape[0])
        where = self._nodes.positions(wanted)
        scores = self.index_.score_pairs(_ones(X), self._compared(X), where)
        return scores[:, 0] if flat else scores


def _ones(X: Any) -> np.ndarray:
    """In place of a learned space, whose weight is zero: one column of ones."""
    return np.ones((X.shape[0], 1), np.float32)


class FeatureCosineLinks(_CosineLinks):
    """Rank seen nodes by the cosine of the raw features.

    Parameters
    ----------
    prior : {"none", "degree", "only"}
        ``"degree"`` adds log-degree with a weight chosen on held-out seen nodes, over the grid that
        :class:`~gsparc.SparcLinkPredictor` uses; ``"only"`` ranks by degree alone.
    random_state : int or None

    Notes
    -----
    A floor without a paper of its own. The tests work out cosines and log-degrees of four nodes by hand.

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
        popularity = popularity_of(graph)
        self.weight_ = {"none": 0.0, "only": 1.0}.get(self.prior, 0.0)
        if self.prior == "degree":
            self.weight_ = self._choose(X, graph, resolve_seed(self.random_state))
        self._nodes = NodeNames.of(graph)
        rows = X if self.prior != "only" else X * 0
        self.index_ = CombinedIndex.build(_ones(X), rows, 0.0, prior=self.weight_ * popularity, kind="exact")
        return self

    @staticmethod
    def _choose(X: Any, graph: Graph, seed: int) -> float:
        held = hold_out(graph, held_out_share(graph), seed)
        if held is None:
            return 0.0
        retrieval = Retrieval(held, seed, torch.device("cpu"))
        left, right = unit(X[retrieval.queries]), unit(X[retrieval.candidates])
        product = left @ right.T
        product = product.toarray() if hasattr(product, "toarray") else product
        cosines = torch.from_numpy(np.ascontiguousarray(product))
        popularity = popularity_of(graph[held.train])[retrieval.positions]
        bonus = torch.from_numpy(popularity.astype(np.float32))
        scores = [mean_reciprocal_rank(cosines + weight * bonus, retrieval.truth) for weight in POPULARITY]
        return POPULARITY[int(np.argmax(scores))]


class WeighedCosineLinks(_CosineLinks):
    """Rank seen nodes by all that :class:`~gsparc.SparcLinkPredictor` ranks by, except its maps.

    Features are compared as there: rare words count more, dense columns are standardised. On the seen side they
    may be averaged over a node's neighbours, and log-degree may be added. Both weights are chosen as there: on the same
    grids, by the reciprocal rank of as many held-out nodes, held out as many times. What our own method adds to this
    is what its maps have learned.

    Parameters
    ----------
    device : str
        Where the weights are chosen and nodes are ranked.
    random_state : int or None
        Of the nodes that are held out.

    Attributes
    ----------
    weights_ : LinkWeights
        ``smooth_features``, the share of the neighbours' mean, and ``popularity``, the weight of log-degree.
    shift_ : NodeShift
        What makes scores of different new nodes comparable, chosen as there.
    report_ : dict
        The weights, and the mean reciprocal rank of held-out nodes with them and with the features alone.

    Notes
    -----
    It has no paper of its own: it is the control of ours. The tests work out by hand how much a rare word counts, and
    the mean over neighbours with log-degree on a star of four nodes.

    Examples
    --------
    >>> import numpy as np
    >>> model = WeighedCosineLinks(random_state=0).fit(np.eye(4), graph=[[0, 1, 2], [1, 2, 3]])
    >>> model.predict_links(np.eye(4)[:1], k=1)[0].tolist()
    [[0]]
    """

    def __init__(self, *, device: str = "auto", random_state: RandomState = None) -> None:
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, graph: Any) -> Self:
        """Choose the weights on held-out nodes and index the seen nodes."""
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        self._view = FeatureView.fit(X)
        view = self._view.rows(X)
        trials = []
        for i in range(default_fits(X.shape[0])):
            own = further_seed(seed, i)
            held = hold_out(graph, held_out_share(graph), own)
            if held is not None:
                trials.append((graph[held.train], held.train, Retrieval(held, own, device), None))
        self.weights_, self.shift_, self.report_ = LinkWeights(map_share=0.0), NodeShift(), {"held_out_nodes": 0}
        if trials:
            self.weights_, self.shift_, self.report_ = choose_weights(
                trials, view, popularity=True, exact=True, device=device
            )
        self._nodes = NodeNames.of(graph)
        rows = leading_entries(smoothed(graph, unit(view), self.weights_.smooth_features))
        prior = (self.weights_.popularity * popularity_of(graph)).astype(np.float32)
        self.index_ = CombinedIndex.build(_ones(X), rows, 0.0, prior=prior, kind="exact", device=device)
        return self

    def _compared(self, X: Any) -> Any:
        return self._view.rows(X)

    def score_all(self, X: Any, *, comparable: bool = False) -> np.ndarray:
        """Scores of new nodes with every seen node; ``comparable`` as in :class:`~gsparc.SparcLinkPredictor`."""
        scores = super().score_all(X)
        if not comparable:
            return scores
        X = check_features(self, X, reset=False)
        return scores - link_shifts(self, _ones(X), self._compared(X), scores)[:, None]
