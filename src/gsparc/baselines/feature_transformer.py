"""The transformer of SPARCphormer with neighbours found in feature space: what the architecture does by itself."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gsparc._runtime import PlainTorch, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_labels, check_positions, check_seen_ids
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._auto import softmax
from gsparc.estimators._heads import HeadData, HeadSettings, NetHead, choose_judges
from gsparc.estimators._labels import check_validation, encode_labels
from gsparc.estimators._views import NodeView, SeenNodes, reduced_features
from gsparc.ops.neighbors import NeighborIndex
from gsparc.training.batches import FeatureSource, Scaling

__all__ = ["FeatureTransformerBaseline"]

_BLOCK = 16_384


class _FeatureNodes(SeenNodes):
    """Seen nodes indexed by their features; there are no coordinates beside these."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.coordinates = self.rows[:, :0]

    def nodes(self, X: Any, *, own: bool | Tensor) -> _FeatureNodeView:
        source = FeatureSource(X, self.scaling, self.device)
        return _FeatureNodeView(source, torch.zeros(source.num_rows, 0, device=self.device), self, own=own)


class _FeatureNodeView(NodeView):
    """Nodes whose neighbours are found by the same rows that are averaged."""

    def queries(self, rows: Tensor) -> Tensor:
        return self.reduced(rows)


class FeatureTransformerBaseline(ClassifierMixin, PlainTorch, BaseEstimator):
    """The "feature-based transformer" of the SPARC paper (arXiv 2411.01532): no adjacency at all.

    The same network, token lists, optimiser, stopping rule and calibration as ``SparcClassifier("phormer")``. Token
    ``j`` of a node is the mean over the ``2^j`` seen nodes with the most similar features, where SPARCphormer has those
    that are near in the eigenspace, too.

    Parameters
    ----------
    num_tokens
        Neighbourhoods of a node: the largest has ``2^num_tokens`` nodes.
    hidden_channels, num_layers, num_heads, max_steps
        As in :class:`~gsparc.SparcClassifier`; ``None``: its defaults.
    device, random_state, verbose
        As elsewhere.

    Notes
    -----
    Features wider than 512 columns (dense: 1,024) are compared and averaged by their 256 leading singular directions,
    as SPARCphormer averages them; the node's own features are read in full beside them. Similar means a large
    cosine. The paper gives no further detail. The tests check the tokens against their definition.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4)); y = (X[:, 0] > 0).astype(int)
    >>> FeatureTransformerBaseline(num_tokens=3, max_steps=25, random_state=0).fit(X, y).predict(X).shape
    (100,)
    """

    def __init__(
        self,
        *,
        num_tokens: int = 7,
        hidden_channels: int | None = None,
        num_layers: int | None = None,
        num_heads: int = 8,
        max_steps: int | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.num_tokens = num_tokens
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, graph: Any = None, validation: Any = None) -> Self:
        """Learn from seen nodes (-1: unlabelled); the graph is not read.

        Unlabelled nodes are neighbours, too. ``validation``: a pair (X, y) of nodes that decide when to stop, and the
        temperature; without it a tenth of the labelled ones does.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        self.classes_, codes = encode_labels(check_labels(y, X.shape[0]))
        judges = check_validation(self, validation, self.classes_)
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        scaling = Scaling.fit(X)
        rows, directions, scale = reduced_features(X, FeatureSource(X, scaling, device), seed)
        index = NeighborIndex.build(rows, metric="cosine", device=device, seed=seed)
        self._seen = _FeatureNodes(scaling, directions, scale, rows, index, device, seed=seed)
        view = self._seen.nodes(X, own=True)
        outside = None if judges is None else (self._seen.nodes(judges.X, own=False), judges.codes)
        judge, codes, _ = choose_judges(view, codes, outside, np.zeros(0, np.int64), seed)
        labelled = np.flatnonzero(codes >= 0)
        data = HeadData(view, labelled, codes[labelled], len(self.classes_), judge)
        self.head_ = NetHead.fit(self._settings(seed), data, device)
        return self

    def _settings(self, seed: int) -> HeadSettings:
        return HeadSettings(
            kind="phormer",
            num_tokens=self.num_tokens,
            hidden_channels=self.hidden_channels,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            max_steps=self.max_steps,
            seed=seed,
            verbose=self.verbose,
            description="feature transformer",
        )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, from features alone."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        blocks = range(0, X.shape[0], _BLOCK)
        parts = [self.head_.logits(self._seen.nodes(X[i : i + _BLOCK], own=False)) for i in blocks]
        return softmax(np.concatenate(parts))

    def predict_seen(self, X: Any, ids: Any = None) -> np.ndarray:
        """Most probable classes of nodes that were fitted on, at the rows ``ids``; none is its own neighbour."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        count = self._seen.index.num_vectors
        own = torch.from_numpy(check_positions(check_seen_ids(ids, X.shape[0], count), count)).to(self._seen.device)
        blocks = range(0, X.shape[0], _BLOCK)
        parts = [self.head_.logits(self._seen.nodes(X[i : i + _BLOCK], own=own[i : i + _BLOCK])) for i in blocks]
        return self.classes_[np.concatenate(parts).argmax(axis=1)]

    def predict(self, X: Any) -> np.ndarray:
        """Most probable classes."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
