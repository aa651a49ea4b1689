"""SparcClusterer: clusters of a graph, and the cluster of a node that has no edges yet."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_count, check_features, check_graph, check_share
from gsparc.estimators._affinity import likeness_graph, mixed_graph
from gsparc.estimators._auto import softmax
from gsparc.estimators._base import SavedEstimator, part_of, prefixed
from gsparc.estimators._directions import DirectionView
from gsparc.estimators._kmeans import KMeansResult, kmeans, nearest_centers
from gsparc.estimators._modularity import foretells_edges, modularity
from gsparc.estimators._ranking import unit
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.training.spectral import held_in

__all__ = ["SparcClusterer"]

_MIX_UP_TO = 100_000  # nodes up to which feature neighbours are looked for by default
_BLOCK = 65_536  # new nodes at once
_SHARES, _KEPT = (0.7, 0.5), 0.9  # of features, tried in this order; of the modularity that must stay
_JUDGES = 30  # held-out nodes that can tell edges from chance; fewer would find no difference in good ones either
_SPREAD_ROWS = 20_000  # rows that the spread of the clusters is measured on


class SparcClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, SavedEstimator):
    """Find clusters by k-means in the graph's eigenspace; a node without edges joins the nearest centroid.

    A :class:`SpectralMap` is learned on the seen graph. Coordinates are weighed by their eigenvalues (diffusion
    distance) and rows scaled to length one. Beside them stand the features along the directions that linked nodes
    share. k-means finds the centroids. A new node needs its features only.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.
    n_components : int
        Eigenfunctions that the nodes are compared by. More than clusters: `diffusion_time` damps the rough ones.
    alpha : float or "auto"
        Share of feature likeness in the graph that is clustered, ``alpha W + (1 - alpha) A``: ``W`` joins each node to
        its nearest ones by features (counts: cosine with rare words counting more), scaled to the weight of
        ``A``. ``0``: edges alone. ``"auto"``: 0.5 up to 100,000 nodes, else 0.
    n_neighbors : int
        Feature neighbours in ``W``, at most half of an average cluster; also the graph where none is passed.
    k_power : int
        Walks of 1 to `k_power` steps make the operator (the paper's k-power view).
    diffusion_time : float
        Component l is weighed by ``mu_l ** diffusion_time``.
    feature_share : float or "auto"
        Share of the features in squared distances, the rest is the eigenspace's. Features (counts: rare words count
        more) are compared along as many directions as there are components: those that lead after the rows
        are averaged along the edges. ``0``: the eigenspace alone. ``"auto"``: 0.7, or 0.5, or 0, the first whose
        clusters hold the edges nearly as well as those of the eigenspace alone (nine tenths of their modularity).
        Where 30 or more nodes that the map has held out are not clearly (by two standard errors) linked to their own
        cluster more often than by chance, 0.7.
    spectral_map : SpectralMap or None
        A map with other settings; it replaces `n_components`, `k_power`, `max_steps`, and the time where it has one.
    n_init : int
        Starts of k-means; the best one counts.
    max_steps : int
        Training steps of the map at most.
    device, random_state, verbose
        As in :class:`SpectralMap`.

    Attributes
    ----------
    labels_ : ndarray of shape (n,), int32
        Clusters of the seen nodes.
    cluster_centers_ : ndarray of shape (n_clusters, k)
        Centroids, in the space of :meth:`embed`.
    inertia_ : float
        Sum of squared distances of the seen nodes to their centroids.
    sigma_ : float
        Spread within clusters, see :meth:`predict_proba`.
    feature_share_ : float
        The share that was used.
    map_ : SpectralMap

    Notes
    -----
    The paper (arXiv 2411.01532) clusters the plain coordinates of F_theta. On Citeseer, where most papers have one or
    two links, clusters of links alone are hardly better than those of words; both together are, and rows of
    length one (Ng, Jordan and Weiss, 2001) do better than coordinates as they are (``gsparc reproduce clustering``).
    A map that keeps to few smooth functions loses what single words tell, and the features' own directions bring it
    back; averaging along the edges is what SSGC (Zhu and Koniusz, 2021) and R-GAE cluster by, on connected nodes.
    ``alpha=0, diffusion_time=0, k_power=1, feature_share=0`` comes closest to the paper.

    On more than 50,000 nodes k-means is faiss's, or one in torch on a GPU or where faiss is not installed; both fit the
    centroids on at most 256 nodes a cluster.

    Examples
    --------
    >>> from gsparc.datasets import communities_of_blobs
    >>> data = communities_of_blobs(300, num_blobs=12, dim=8, degree=10, random_state=0)
    >>> model = SparcClusterer(4, n_components=8, max_steps=50, random_state=0)
    >>> model.fit(data.X[:280], graph=data.graph[range(280)]).predict(data.X[280:]).shape
    (20,)
    >>> model.predict_proba(data.X[280:]).shape
    (20, 4)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_components: int = 32,
        alpha: float | Literal["auto"] = "auto",
        n_neighbors: int = 30,
        k_power: int = 3,
        diffusion_time: float = 4.0,
        feature_share: float | Literal["auto"] = "auto",
        spectral_map: SpectralMap | None = None,
        n_init: int = 10,
        max_steps: int = 1000,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.alpha: float | Literal["auto"] = alpha
        self.n_neighbors = n_neighbors
        self.k_power = k_power
        self.diffusion_time = diffusion_time
        self.feature_share: float | Literal["auto"] = feature_share
        self.spectral_map = spectral_map
        self.n_init = n_init
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]  # the network computes in float32
        tags.classifier_tags = ClassifierTags()  # scikit-learn looks there for the columns of any predict_proba
        return tags

    def fit(self, X: Any, y: Any = None, *, graph: Any = None) -> Self:
        """Learn the map and the clusters from the seen nodes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d)
        y : ignored
        graph : Graph, or anything that :meth:`Graph.from_any` takes
            Edges among the seen nodes. Without it a graph of feature neighbours is used.
        """
        self._check_parameters()
        X = check_features(self, X, reset=True)
        n = X.shape[0]
        if n < max(3, self.n_clusters):
            raise InputError(
                f"{n} node(s) came (n_samples = {n}), expected at least {max(3, self.n_clusters)} for "
                f"n_clusters={self.n_clusters}. Pass fewer clusters or more nodes; 1 sample is never enough."
            )
        seed = resolve_seed(self.random_state)
        edges = None if graph is None else check_graph(graph, n, optional=True)
        self.map_ = self._new_map(seed)
        self.map_.n_features_in_ = X.shape[1]
        affinity = self._affinity(X, edges, seed)
        self.map_._fit(X, affinity)
        graph = affinity if edges is None else edges
        self._find_directions(X, graph, seed)
        found, rows = self._best_clusters(X, graph, seed)
        self.cluster_centers_, self.labels_, self.inertia_ = found
        self._n_features_out = self.n_clusters
        self.sigma_ = within_spread(rows, self.cluster_centers_, self.labels_)
        return self

    def _find_directions(self, X: Any, graph: Graph, seed: int) -> None:
        self._words = None
        if self.feature_share != 0:
            self._words = DirectionView.fit(X, graph, self.map_.n_components, seed=seed)

    def _best_clusters(self, X: Any, graph: Graph, seed: int) -> tuple[KMeansResult, np.ndarray]:
        """k-means with the first share of features that does not tear the graph apart; and the rows it is in."""

        def clusters(share: float) -> tuple[KMeansResult, np.ndarray]:
            self.feature_share_ = share
            rows = self._embed(X)
            device = resolve_device(self.device)
            return kmeans(rows, self.n_clusters, n_init=self.n_init, seed=seed, device=device), rows

        if self.feature_share != "auto":
            return clusters(float(self.feature_share))
        plain = clusters(0.0)
        least = self._least_modularity(graph, plain[0].labels)
        for share in _SHARES:
            tried = clusters(share)
            if modularity(graph, tried[0].labels) >= least:
                return tried
        self.feature_share_, self._words = 0.0, None
        return plain

    def _least_modularity(self, graph: Graph, labels: np.ndarray) -> float:
        """What clusters must hold, given those of the eigenspace; nothing where these hold only what the map was shown.

        Such edges are noise beside the features, or features say nothing of them: a new node's cluster cannot follow
        them in either case.
        """
        held = self.map_._held
        judges = None if held is None else held_in(graph, held.nodes, held.train)
        if judges is not None and len(judges.nodes) >= _JUDGES and not foretells_edges(graph, labels, judges):
            return -np.inf
        return _KEPT * modularity(graph, labels)

    def _check_parameters(self) -> None:
        for name in ("n_clusters", "n_components", "n_neighbors", "k_power", "n_init", "max_steps"):
            check_count(name, getattr(self, name), 1)
        if self.alpha != "auto":
            check_share("alpha", self.alpha)
        check_share("diffusion_time", self.diffusion_time, high=1e6)
        if self.feature_share != "auto":
            check_share("feature_share", self.feature_share)
        if self.spectral_map is not None and not isinstance(self.spectral_map, SpectralMap):
            raise InputError(f"spectral_map={self.spectral_map!r} came, expected a SpectralMap or None.")

    def _new_map(self, seed: int) -> SpectralMap:
        if self.spectral_map is None:
            fresh = SpectralMap(
                self.n_components,
                laplacian="k-power",
                k_power=self.k_power,
                hidden_channels=(256,),
                dropout=0.3,
                max_steps=self.max_steps,
            )
        else:
            fresh = clone(self.spectral_map)
        assert isinstance(fresh, SpectralMap)
        # one seed and one device for all of it; the weight of the eigenvalues is applied here, see _scale
        fresh.set_params(random_state=seed, device=self.device, verbose=self.verbose)
        fresh._check_parameters()
        return fresh

    def _affinity(self, X: Any, edges: Graph | None, seed: int) -> Graph:
        """What the map is learned on: edges, feature neighbours, or both."""
        alpha = (0.5 if X.shape[0] <= _MIX_UP_TO else 0.0) if self.alpha == "auto" else self.alpha
        if edges is not None and alpha == 0:
            return edges
        # neighbours beyond half of a cluster would tie clusters together
        near = min(self.n_neighbors, max(5, X.shape[0] // (2 * self.n_clusters)))
        likeness = likeness_graph(X, near, seed, resolve_device(self.device))
        return likeness if edges is None else mixed_graph(likeness, edges, alpha)

    def _scale(self) -> np.ndarray:
        time = self.map_.diffusion_time or self.diffusion_time
        mu = np.clip(1.0 - self.map_.eigenvalues_, 0.0, None)
        # relative to the first: the rows get length one anyway, and small powers must not vanish
        return ((mu / max(mu.max(initial=0.0), 1e-12)) ** time).astype(np.float32)

    def _embed(self, X: Any) -> np.ndarray:
        coordinates = self.map_._transform(X)
        rows = unit(coordinates if self.map_.diffusion_time else coordinates * self._scale())
        if self._words is None or self.feature_share_ == 0:
            return rows
        return self._words.beside(rows, X, self.feature_share_)

    def embed(self, X: Any) -> np.ndarray:
        """Positions of nodes in the space of the centroids, ``[m, k]``.

        Coordinates of the map, then those of the features, each part with rows of one length: that of its share.
        """
        check_is_fitted(self)
        return self._embed(check_features(self, X, reset=False))

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each node, by features alone: the nearest centroid."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        device, blocks = resolve_device(self.device), range(0, X.shape[0], _BLOCK)
        parts = [nearest_centers(self._embed(X[i : i + _BLOCK]), self.cluster_centers_, device)[0] for i in blocks]
        return np.concatenate(parts)

    def grow(self, X: Any, *, edges: Any = None, node_ids: Any = None) -> Self:
        """Let new nodes join the seen ones: `labels_` goes on with their clusters, `inertia_` with their distances.

        Centroids stay, so nothing else changes and :meth:`predict` gives what it gave before.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        edges, node_ids : ignored
            Taken so that the call is that of the other estimators. A node's cluster depends on its features alone.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        device, blocks = resolve_device(self.device), range(0, X.shape[0], _BLOCK)
        parts = [nearest_centers(self._embed(X[i : i + _BLOCK]), self.cluster_centers_, device) for i in blocks]
        labels = np.concatenate([self.labels_, *(label for label, _ in parts)])
        inertia = self.inertia_ + float(sum(near.sum(dtype=np.float64) for _, near in parts))
        self.labels_, self.inertia_ = labels, inertia
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Distance of each node to each centroid, ``[m, n_clusters]``."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        parts = [self._squares(X[i : i + _BLOCK]) for i in range(0, X.shape[0], _BLOCK)]
        return np.sqrt(np.concatenate(parts))

    def _squares(self, X: Any) -> np.ndarray:
        rows = self._embed(X)
        squares = np.square(rows).sum(axis=1, keepdims=True) + np.square(self.cluster_centers_).sum(axis=1)
        return np.clip(squares - 2 * rows @ self.cluster_centers_.T, 0.0, None)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Soft memberships ``[m, n_clusters]``, rows summing to one.

        ``softmax(-d^2 / (2 sigma^2))`` over the distances ``d`` to the centroids: the posterior of clusters of equal
        size that are equally wide in all directions. ``sigma_`` is how wide the clusters of the seen nodes are. The
        memberships rank nodes from typical to doubtful; they are not calibrated against classes, which
        a clusterer never sees.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        parts = [
            softmax(-self._squares(X[i : i + _BLOCK]) / (2 * self.sigma_**2)) for i in range(0, X.shape[0], _BLOCK)
        ]
        return np.concatenate(parts)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        saved_map, arrays = self.map_._as_part()
        arrays = prefixed("map", arrays) | {"centers": self.cluster_centers_, "labels": self.labels_}
        if self._words is not None:
            arrays |= self._words.arrays()
        fitted = {
            "map": saved_map,
            "view": None if self._words is None else self._words.config(),
            "feature_share": self.feature_share_,
            "own_map": self.spectral_map is not None,
            "inertia": self.inertia_,
            "sigma": self.sigma_,
        }
        return fitted, arrays

    def _restore(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.map_ = SpectralMap._from_part(fitted["map"], part_of(arrays, "map"), self.n_features_in_)
        if fitted["own_map"]:
            self.spectral_map = SpectralMap(**fitted["map"]["parameters"])  # a clone fits as this one did
        self.cluster_centers_, self.labels_ = arrays["centers"], arrays["labels"]
        self.inertia_, self.sigma_ = float(fitted["inertia"]), float(fitted["sigma"])
        width = self.map_.n_components_ + self._restore_directions(fitted, arrays)
        expected = (check_count("n_clusters", self.n_clusters, 1), width)
        if self.cluster_centers_.shape != expected or not np.isfinite(self.cluster_centers_).all():
            raise ValueError(f"centroids of shape {self.cluster_centers_.shape}, expected finite ones of {expected}")
        if self.labels_.ndim != 1 or self.labels_.dtype != np.int32 or not len(self.labels_):
            raise ValueError("labels that are no whole numbers")
        if self.labels_.min() < 0 or self.labels_.max() >= self.n_clusters:
            raise ValueError("labels of the seen nodes that are no clusters")
        if not (np.isfinite(self.sigma_) and self.sigma_ > 0 and np.isfinite(self.inertia_)):
            raise ValueError(f"a spread of {self.sigma_}")
        self._n_features_out = self.n_clusters

    def _restore_directions(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> int:
        """How many columns the features add; none in folders from before there were any."""
        self._words = None
        self.feature_share_ = check_share("feature_share", fitted.get("feature_share", 0.0))
        if self.feature_share_ == 0:
            return 0
        self._words = DirectionView.from_state(arrays, fitted["view"], self.n_features_in_)
        return self._words.directions.shape[1]


def within_spread(rows: np.ndarray, centers: np.ndarray, labels: np.ndarray) -> float:
    """Standard deviation within clusters, in each of the directions that they really spread in.

    The mean squared distance to the own centroid, divided by the number of directions, and the root of it. They are
    counted by the participation ratio of the covariance within clusters, ``(sum l)^2 / sum l^2`` of its eigenvalues.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [0.0, -1.0], [5.0, 1.0], [5.0, -1.0]], np.float32)
    >>> within_spread(rows, np.array([[0.0, 0.0], [5.0, 0.0]], np.float32), np.array([0, 0, 1, 1]))
    1.0
    """
    step = max(1, len(rows) // _SPREAD_ROWS)
    off = (rows[::step] - centers[labels[::step]]).astype(np.float64)
    covariance = off.T @ off / len(off)
    total = float(np.trace(covariance))
    if total <= 1e-12:
        return 1e-3  # all nodes sit on their centroids
    directions = total**2 / float(np.square(covariance).sum())
    return float(np.sqrt(total / directions))
