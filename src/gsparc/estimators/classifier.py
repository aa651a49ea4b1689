"""SparcClassifier: classes of nodes that have no edges."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_count, check_features, check_graph, check_labels, check_name, check_share
from gsparc.estimators._base import SavedEstimator, class_array, class_list, part_of, prefixed
from gsparc.estimators._head import FeatureHead, HeadSettings, encode_labels
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._ranking import FeatureView, unit
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError, LabelError
from gsparc.ops.combined import CombinedIndex

__all__ = ["SparcClassifier"]


class SparcClassifier(ClassifierMixin, SavedEstimator):
    """Classify nodes from their features and their place in the graph's eigenspace.

    A :class:`SpectralMap` is fitted on the seen graph; its coordinates join the features as input of a
    network. A new node needs features only. Labelled nodes that the map was not trained on, with edges held
    out, judge the network (only the map's final rotation has seen those edges).

    Parameters
    ----------
    backbone : {"mlp"}
        Network on features and coordinates.
    n_components : int
        Spectral coordinates.
    spectral_map : SpectralMap or None
        Settings of the map; ``None`` for the defaults with `n_components`.
    hidden_channels, dropout, input_dropout, batch_size, max_steps, learning_rate, weight_decay, patience
        Network and optimiser.
    device, random_state, verbose
        As in :class:`SpectralMap`.

    Attributes
    ----------
    classes_ : ndarray
    map_ : SpectralMap
    temperature_ : float
        Softmax temperature fitted on held-out nodes.
    history_ : list of dict

    Notes
    -----
    With numbers as labels, ``-1`` marks unlabelled nodes, scikit-learn's convention: they take part in the map
    through their features and edges. It is read so where no label is below -1, and -1 and 1 are not the only two.

    Examples
    --------
    >>> from gsparc.datasets import make_blocks
    >>> data = make_blocks(300, 1500, 8, random_state=0)
    >>> model = SparcClassifier(n_components=8, max_steps=40, random_state=0).fit(data.X, data.y, graph=data.graph)
    >>> model.predict(data.X[:5]).shape
    (5,)
    """

    def __init__(
        self,
        backbone: Literal["mlp"] = "mlp",
        *,
        n_components: int = 64,
        spectral_map: SpectralMap | None = None,
        hidden_channels: int = 256,
        dropout: float = 0.5,
        input_dropout: float | Literal["auto"] = "auto",
        batch_size: int = 1024,
        max_steps: int = 600,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        patience: int = 8,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.backbone = backbone
        self.n_components = n_components
        self.spectral_map = spectral_map
        self.hidden_channels = hidden_channels
        self.dropout = dropout
        self.input_dropout: float | Literal["auto"] = input_dropout
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any = None) -> Self:
        """Learn from the seen nodes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d)
        y : array of shape (n,)
            Classes; -1 for unlabelled nodes where the labels are integers.
        graph : Graph, or anything that :meth:`Graph.from_any` takes
            Edges among the seen nodes. Without it a graph of feature neighbours is used.
        """
        check_name("backbone", self.backbone, ("mlp",))
        for name in ("n_components", "hidden_channels", "batch_size", "max_steps", "patience"):
            check_count(name, getattr(self, name), 1)
        check_share("dropout", self.dropout, high=0.95)
        check_share("learning_rate", self.learning_rate, low=1e-8, high=10.0)
        check_share("weight_decay", self.weight_decay, high=100.0)
        if self.input_dropout != "auto":
            check_share("input_dropout", self.input_dropout, high=0.95)
        if self.spectral_map is not None and not isinstance(self.spectral_map, SpectralMap):
            raise InputError(f"spectral_map={self.spectral_map!r} came, expected a SpectralMap or None.")
        if y is None:
            raise LabelError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. "
                "Pass one class for each node, -1 for unlabelled ones."
            )
        X = check_features(self, X, reset=True)
        labels = check_labels(y, X.shape[0])
        edges = None if graph is None else check_graph(graph, X.shape[0])
        self.classes_, codes = encode_labels(labels)
        if X.shape[0] < 3:
            raise InputError(f"n_samples = {X.shape[0]} came, expected at least 3 nodes; 1 sample is not enough.")
        self._fit(X, codes, edges, resolve_seed(self.random_state))
        return self

    def _fit(self, X: Any, codes: np.ndarray, graph: Any, seed: int) -> None:
        base = SpectralMap(self.n_components) if self.spectral_map is None else self.spectral_map
        parameters = base.get_params(deep=False) | {
            "device": self.device,
            "random_state": seed,
            "verbose": self.verbose,
        }
        self.map_ = SpectralMap(**parameters)
        self.map_.n_features_in_ = X.shape[1]
        self.map_._check_parameters()
        self.map_._fit(X, graph)
        coordinates = self._coordinates(X)
        held = np.zeros(0, np.int64) if self.map_._held is None else self.map_._held.nodes
        settings = HeadSettings(
            hidden_channels=self.hidden_channels,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            batch_size=self.batch_size,
            max_steps=self.max_steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self.patience,
            verbose=self.verbose,
            seed=seed,
        )
        device = resolve_device(self.device)
        self.head_ = FeatureHead.fit(X, coordinates, codes, len(self.classes_), held, settings, device)
        self.temperature_, self.history_ = self.head_.temperature, self.head_.history
        self._view = FeatureView.fit(X)
        self._nodes = NodeNames(X.shape[0], None if graph is None else graph.node_ids)
        self.index_ = CombinedIndex.build(coordinates, self._view.rows(X), 0.5, device=device, seed=seed)

    def _coordinates(self, X: Any) -> np.ndarray:
        """Coordinates with every row of one length: what matters is the direction, and tails stay bounded."""
        values = self.map_._transform(X) * np.sqrt(np.clip(1 - self.map_.eigenvalues_, 0, None)).astype(np.float32)
        return unit(values) * np.float32(values.shape[1] ** 0.5)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, ``[m, n_classes]``, columns as `classes_`."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return self.head_.probabilities(X, self._coordinates(X), resolve_device(self.device))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def nearest(self, X: Any, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Seen nodes most like each new one, by coordinates and features together.

        Returns
        -------
        ids : ndarray of shape (m, k)
            Node ids of the graph that was fitted on; positions in X where it has none.
        distances : ndarray of shape (m, k)
            One minus the mean of the two cosines, nearest first.
        """
        check_is_fitted(self)
        check_count("k", k, 1)
        X = check_features(self, X, reset=False)
        scores, ids = self.index_.search(self._coordinates(X), self._view.rows(X), k)
        return self._nodes.names(ids), 1.0 - scores

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        saved_map, map_arrays = self.map_._as_part()
        index_arrays, index = self.index_.state()
        arrays = prefixed("map", map_arrays) | prefixed("index", index_arrays) | prefixed("head", self.head_.arrays())
        arrays |= prefixed("view", self._view.arrays()) | prefixed("nodes", self._nodes.arrays())
        fitted = {
            "classes": class_list(self.classes_),
            "map": saved_map,
            "own_map": self.spectral_map is not None,
            "head": self.head_.config(),
            "index": index,
            "nodes": self._nodes.config(),
            "view": self._view.config(),
        }
        return fitted, arrays

    def _restore(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.classes_ = class_array(fitted["classes"])
        self.map_ = SpectralMap._from_part(fitted["map"], part_of(arrays, "map"), self.n_features_in_)
        if fitted["own_map"]:
            self.spectral_map = SpectralMap(**fitted["map"]["parameters"])  # a clone fits as this one did
        self.head_ = FeatureHead.from_state(fitted["head"], part_of(arrays, "head"), self.map_._scaling)
        if self.head_.module.out_channels != len(self.classes_):
            raise ValueError("the network does not have one output for each class")
        self.temperature_, self.history_ = self.head_.temperature, self.head_.history
        self._view = FeatureView.from_state(part_of(arrays, "view"), fitted["view"], self.n_features_in_)
        self.index_ = CombinedIndex.from_state(
            part_of(arrays, "index"), fitted["index"], device=resolve_device(self.device)
        )
        if self.index_.widths != (self.map_.n_components_, self.n_features_in_):
            raise ValueError(f"the index has columns {self.index_.widths}, the map {self.map_.n_components_}")
        self._nodes = NodeNames.from_state(part_of(arrays, "nodes"), fitted["nodes"], self.index_.num_vectors)
