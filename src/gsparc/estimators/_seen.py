"""Classes of seen nodes as training sees them: none is among its own neighbours. Mixed into SparcClassifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import PlainTorch, resolve_device
from gsparc._validation import check_features, check_positions, check_seen_ids
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._views import NodeView, SeenNodes
from gsparc.exceptions import InputError

__all__ = ["SeenClassifier"]

_BLOCK = 65_536  # nodes at once
_APART = 0.01  # squared distance of two rows of coordinates, by their squared length, that rounding does not make


class SeenClassifier(PlainTorch):
    """The part of a classifier that fills in labels of the nodes it was fitted on."""

    classes_: np.ndarray
    device: str
    _nodes: NodeNames
    _seen: SeenNodes | None
    _view: Any
    _mixed: Any

    def predict_seen_proba(self, X: Any, ids: Any = None) -> np.ndarray:
        """Calibrated class probabilities of seen nodes, ``[m, n_classes]``, each left out of its own neighbours.

        :meth:`predict_proba` takes every row for a new node: one that was fitted on would find itself as the nearest
        of all, which it never does in training. Use this to fill in the labels of seen nodes that have none.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
            Their features, the same as in fit or :meth:`grow`: a model does not keep them.
        ids : array of shape (m,), optional
            Which nodes they are: node ids of the graph that was fitted on, positions where it has none. They may be in
            any order and occur more than once. None: X holds all seen nodes in their order.

        Notes
        -----
        Neighbours are inferred here too: the node's own edges are not read. ``predict_proba(X, edges=...)`` reads
        edges, of nodes that are new. A node's own label has no part in its prediction but through the weights that
        were trained on it.

        Examples
        --------
        >>> from gsparc import SparcClassifier
        >>> from gsparc.datasets import make_blocks
        >>> data = make_blocks(300, 1500, 8, random_state=0)
        >>> y = data.y.copy(); y[::3] = -1
        >>> model = SparcClassifier("mlp", n_components=8, max_steps=40, random_state=0)
        >>> model = model.fit(data.X, y, graph=data.graph)
        >>> model.predict_seen_proba(data.X[[3, 6]], [3, 6]).shape == (2, len(model.classes_))
        True
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        places = check_seen_ids(ids, X.shape[0], len(self._nodes))
        if ids is not None:
            places = check_positions(self._nodes.positions(places), len(self._nodes))
        device, parts = resolve_device(self.device), []
        for start in range(0, X.shape[0], _BLOCK):
            some = places[start : start + _BLOCK]
            view = self._view(X[start : start + _BLOCK], device, some)
            self._check_same(view, some, start)
            parts.append(self._mixed(view))
        return np.concatenate(parts)

    def predict_seen(self, X: Any, ids: Any = None) -> np.ndarray:
        """Most probable classes of seen nodes; `X` and `ids` as in :meth:`predict_seen_proba`."""
        check_is_fitted(self)
        return self.classes_[self.predict_seen_proba(X, ids).argmax(axis=1)]

    def _check_same(self, view: NodeView, places: np.ndarray, start: int) -> None:
        """Rows that are not those of the nodes they are said to be would keep these as neighbours unnoticed."""
        if self._seen is None:  # features and coordinates alone: no neighbours that could be wrong
            return
        known = self._seen.coordinates[torch.from_numpy(places).to(view.source.device)]
        given = view.coordinates(torch.arange(len(view), device=view.source.device))
        apart = ((given - known).square().sum(dim=1) > _APART * known.shape[1]).nonzero().ravel()
        if len(apart):
            row = int(apart[0])
            name = self._nodes.names(places[row : row + 1])[0].item()
            raise InputError(
                f"row {start + row} of X is not that of node {name!r}, which ids names ({len(apart)} such rows). Pass "
                "the features that the nodes were fitted with, one row for each id, in the order of ids."
            )
