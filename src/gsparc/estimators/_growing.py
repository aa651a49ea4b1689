"""New nodes join a fitted model without retraining.

Every function here answers with new values and leaves the model as it is; an estimator takes them over in one step
when all of them are there. So a call that fails, for whatever reason, changes nothing. Values that belong to seen nodes
are copied once, and nothing depends on the order in which nodes arrive, up to rounding.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gsparc._cuts import in_units
from gsparc._runtime import PlainTorch
from gsparc._validation import check_features, check_labels, check_positions
from gsparc.estimators._confidence import _MOST_BELIEFS, _MOST_UNLABELLED
from gsparc.estimators._heads import NetHead, seen_edges
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._ranking import leading_entries, mixed, popularity_of, unit
from gsparc.estimators._views import NodeView
from gsparc.exceptions import GraphError, LabelError
from gsparc.graph import Graph
from gsparc.nn.gcn import SpectralGCN, spectral_summary, with_constant
from gsparc.ops.combined import CombinedIndex
from gsparc.training.batches import FeatureSource

__all__ = ["GrowingClassifier", "grown_classifier", "grown_codes", "grown_graph", "grown_links", "joined_edges"]

_BLOCK = 8192


def grown_codes(y: Any, count: int, classes: np.ndarray) -> np.ndarray:
    """Class numbers of new nodes, -1 for unlabelled ones: those marked -1 (where that is no class) or None.

    Examples
    --------
    >>> grown_codes(["b", None, "a"], 3, np.array(["a", "b"])).tolist()
    [1, -1, 0]
    """
    if y is None:
        return np.full(count, -1, np.int64)
    labels = check_labels(y, count).tolist()
    known: dict[Any, int] = {-1: -1, None: -1} | {name: code for code, name in enumerate(classes.tolist())}
    codes = np.array([known.get(label, -2) for label in labels], np.int64)
    strange = [label for label, code in zip(labels, codes, strict=True) if code == -2]
    if strange:
        raise LabelError(
            f"y holds the label {strange[0]!r}, which is none of the {len(classes)} classes that the model was trained "
            f"on ({len(strange)} such rows). Mark them unlabelled by -1 or None, or fit again to learn a new class."
        )
    return codes


def joined_edges(edges: Any, nodes: NodeNames) -> Graph | None:
    """Edges between nodes given by id, as a graph over all ``nodes``; ``None`` where there are none.

    ``edges`` are two arrays of ids, and a third with weights if there are any.
    """
    if edges is None:
        return None
    if not isinstance(edges, (tuple, list, np.ndarray)) or len(edges) not in (2, 3):
        came = f"an array of shape {edges.shape}" if isinstance(edges, np.ndarray) else f"a {type(edges).__name__}"
        raise GraphError(
            f"edges={came} came, expected (sources, targets) or (sources, targets, weights): arrays of equal length, "
            "the ends as node ids."
        )
    source, target, *weights = (np.asarray(part) for part in edges)
    if source.ndim != 1 or source.shape != target.shape:
        raise GraphError(
            f"edges with sources of shape {source.shape} and targets of shape {target.shape} came, expected two flat "
            "arrays of equal length: one pair of node ids an edge."
        )
    if not len(source):
        return None
    ends = [check_positions(nodes.positions(part), len(nodes)) for part in (source, target)]
    graph = Graph.from_edges(np.stack(ends), num_nodes=len(nodes), weights=weights[0] if weights else None)
    return graph if graph.num_edges else None


def grown_graph(graph: Graph, more: Graph | None, num_nodes: int) -> Graph:
    """The graph over ``num_nodes`` nodes, old ones first, with the edges of both; of two weights the larger counts.

    Examples
    --------
    >>> path = Graph.from_edges([[0], [1]], num_nodes=2)
    >>> grown_graph(path, Graph.from_edges([[0, 1], [1, 2]], num_nodes=3), 3)
    Graph(num_nodes=3, num_edges=2)
    """
    rest = np.full(num_nodes - graph.num_nodes, graph.indptr[-1])
    wide = Graph._from_csr(np.concatenate([graph.indptr, rest]), graph.indices, graph.weights)
    if more is None:
        return wide
    both: Any = wide._matrix().maximum(more._matrix())
    both.sort_indices()
    weighted = graph.weights is not None or more.weights is not None
    indices = both.indices.astype(graph.indices.dtype, copy=False)
    return Graph._from_csr(both.indptr.astype(np.int64), indices, both.data if weighted else None)


class GrowingClassifier(PlainTorch):
    """The part of a classifier that takes in new nodes."""

    classes_: np.ndarray
    _nodes: NodeNames

    def grow(self, X: Any, y: Any = None, *, edges: Any = None, node_ids: Any = None) -> Self:
        """Let new nodes join the seen ones, at once and without retraining.

        From then on they are found as neighbours, stand in :meth:`evidence` with their ids and labels, vote, may be
        named as known neighbours of further nodes, and are in the token lists, summaries and edges that the networks
        read. Map, networks and calibration stay as they were fitted. Where anything is wrong nothing changes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        y : array of shape (m,), optional
            Their classes, out of `classes_`; -1 or None for unlabelled ones.
        edges : tuple of two arrays, or of three with weights, optional
            Ends as node ids, of old nodes or new ones. An edge that is known already counts once. A network of your own
            reads them around the inferred neighbours; the others read no edges to predict.
        node_ids : array of shape (m,), optional
            Ids of the new nodes. Needed where the graph that was fitted on has ids; otherwise they are
            the next positions.

        Notes
        -----
        Where a node's class counts, in the vote or as that of a known neighbour, an unlabelled node counts as what the
        model says of it.

        Examples
        --------
        >>> from gsparc import SparcClassifier
        >>> from gsparc.datasets import make_blocks
        >>> data = make_blocks(300, 1500, 8, random_state=0)
        >>> model = SparcClassifier("mlp", n_components=8, max_steps=40, random_state=0)
        >>> model = model.fit(data.X[:280], data.y[:280], graph=data.graph[range(280)])
        >>> model.grow(data.X[280:], data.y[280:], edges=([280], [3])).nearest(data.X[290:291], k=1)[0].tolist()
        [[290]]
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        codes = grown_codes(y, X.shape[0], self.classes_)
        nodes = self._nodes.grown(X.shape[0], node_ids)
        vars(self).update(grown_classifier(self, X, codes, nodes, joined_edges(edges, nodes)))
        return self


def grown_classifier(model: Any, X: Any, codes: np.ndarray, nodes: NodeNames, edges: Graph | None) -> dict[str, Any]:
    """Attributes of a classifier that also knows the nodes of ``X``, with class numbers ``codes``."""
    coordinates = model._coordinates(X)
    fresh: dict[str, Any] = {"_codes": np.concatenate([model._codes, codes]), "_nodes": nodes}
    if isinstance(model.index_, CombinedIndex):
        fresh["index_"] = model.index_.copy()
        fresh["index_"].add(coordinates, model._compared.rows(X))
    view = None
    if model._seen is not None:
        view = model._seen.view(X, coordinates)
        fresh["_seen"] = model._seen.grown(X, coordinates)
        fresh.setdefault("index_", fresh["_seen"].index)
    fresh["_heads"] = {name: grown_head(head, view, X, edges, len(model._codes)) for name, head in model._heads.items()}
    return fresh | _grown_beliefs(model, X, codes)


def grown_head(head: NetHead, view: NodeView | None, X: Any, edges: Graph | None, before: int) -> NetHead:
    """The same network; what it keeps of the seen nodes takes in those of ``view``."""
    if head.summaries is not None:
        assert view is not None
        head = copy.copy(head)
        assert head.summaries is not None
        head.fitted_summaries = head.fitted_summaries or head.summaries
        sums = _layer_sums(head.module, view, head.fitted_summaries)
        total = before + len(view)
        head.summaries = [old * (before / total) + new / total for old, new in zip(head.summaries, sums, strict=True)]
    if head.edges is not None and head.source is not None:
        head = copy.copy(head)
        assert head.edges is not None
        assert head.source is not None
        old = Graph._from_csr(*(None if part is None else part.cpu().numpy() for part in head.edges))  # type: ignore[arg-type]
        device = head.source.device
        more = None if edges is None else in_units(edges, head.unit)
        head.edges = seen_edges(grown_graph(old, more, before + X.shape[0]), device)
        head.source = FeatureSource(_stacked(head.source.matrix(), X), head.source.scaling, device)
    return head


def _stacked(matrix: Any, more: Any) -> Any:
    """Rows of both, sparse or dense as the first is."""
    if sp.issparse(matrix):
        return sp.csr_array(sp.vstack([matrix, sp.csr_array(more, dtype=np.float32)], format="csr"))
    return np.concatenate([matrix, more.toarray() if sp.issparse(more) else more])


@torch.no_grad()
def _layer_sums(module: Any, view: NodeView, summaries: list[Tensor]) -> list[Tensor]:
    """``U^T X`` of every layer over new nodes, each of them as the fitted summaries make it.

    The rows of a layer depend on the summaries of the layer before. Those that were fitted are used throughout, as
    they are for a node that is predicted: then sums add up in any order and no old node has to be read again.
    """
    assert isinstance(module, SpectralGCN)
    module.to(view.source.device).eval()
    sums = [torch.zeros_like(summary) for summary in summaries]
    for rows in torch.arange(len(view), device=view.source.device).split(_BLOCK):
        own = view.features(rows) if module.own_channels else None
        h, u = module._start(view.table(rows).unsqueeze(0), own), with_constant(view.coordinates(rows).unsqueeze(0))
        for number, conv in enumerate(module.convs):
            sums[number] += spectral_summary(h, u)[0] * len(rows)
            h = conv(h, u, summaries[number])
    return sums


def _said(model: Any, X: Any) -> np.ndarray:
    """What the model says of new nodes, ``[m, C]``: its networks on features and coordinates, if it has any.

    Those know no neighbours, so what they say of a node does not depend on who joined before.
    """
    names = [name for name, head in model._heads.items() if head.kind == "mlp"]
    if not names:
        return model._proba(X, None)
    weights = np.array([model._mixture.weights[name] for name in names])
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(names), 1 / len(names))
    parts = []
    for view in model._views(X):
        said = model._head_probabilities(view, names)
        parts.append(sum(weight * said[name] for weight, name in zip(weights, names, strict=True)))
    return np.concatenate(parts)


def _grown_beliefs(model: Any, X: Any, codes: np.ndarray) -> dict[str, Any]:
    """The vote, and the beliefs that known neighbours are read by, with those of the new nodes.

    A new node counts as its class, and an unlabelled one as what the model says of it.
    """
    unlabelled, first = np.flatnonzero(codes < 0), model._first
    most = min(_MOST_UNLABELLED, _MOST_BELIEFS // len(model.classes_))
    if first is not None and len(first.unlabelled) + len(unlabelled) > most:
        first = None  # too many: those that are not held say nothing as neighbours
    said = np.zeros((0, len(model.classes_)))
    if len(unlabelled) and (model._vote is not None or first is not None):
        said = _said(model, X[unlabelled])
    fresh: dict[str, Any] = {}
    if model._vote is not None:
        votes = np.zeros((len(codes), len(model.classes_)), np.float32)
        votes[codes >= 0, codes[codes >= 0]] = 1.0
        votes[unlabelled] = said
        fresh["_vote"] = model._vote.grown(votes)
    if first is not None and len(unlabelled):
        fresh["_first"] = first.grown(len(model._codes) + unlabelled, said)
    return fresh


def grown_links(model: Any, X: Any, nodes: NodeNames, edges: Graph | None) -> dict[str, Any]:
    """Attributes of a link predictor that also offers the nodes of ``X``."""
    before, weights = model.index_.num_vectors, model.weights_
    edges = None if edges is None else in_units(edges, model._unit)
    own, view = model._embed(X), unit(model._view.rows(X))
    if edges is not None and (weights.smooth_map or weights.smooth_features):
        own, view = _moved(model.index_, own, view, edges._matrix()[before:, : model._fitted_nodes], weights)
    fresh: dict[str, Any] = {"_nodes": nodes, "index_": model.index_.copy()}
    fresh["index_"].add(own, view)
    if weights.popularity:
        fresh["_graph"] = grown_graph(model._graph, edges, len(nodes))
        fresh["index_"].prior = (weights.popularity * popularity_of(fresh["_graph"])).astype(np.float32)
    return fresh


def _moved(index: CombinedIndex, own: np.ndarray, view: Any, links: Any, weights: Any) -> tuple[np.ndarray, Any]:
    """Vectors of new nodes moved towards the fitted nodes that they link to (``links [m, fitted]``), as in fit.

    The fitted nodes enter as they are kept, moved towards their own neighbours.
    """
    links = sp.csr_array(links, dtype=np.float32)
    used, columns = np.unique(links.indices, return_inverse=True)
    if not len(used):
        return own, view
    links = sp.csr_array((links.data, columns, links.indptr), shape=(links.shape[0], len(used)))
    spectral, features = index.rows_at(used)
    mean = sp.diags_array((1.0 / (1.0 + np.asarray(links.sum(axis=1)).ravel())).astype(np.float32))
    if weights.smooth_map:
        own = mixed(own, mean @ (links @ spectral.cpu().numpy() + own), weights.smooth_map)
    if weights.smooth_features:
        near = links @ (features if sp.issparse(features) else features.cpu().numpy())
        view = leading_entries(mixed(view, mean @ (near + view), weights.smooth_features))
    return own, view
