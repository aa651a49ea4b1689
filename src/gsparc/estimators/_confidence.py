"""How sure a classifier is: prediction sets, novelty, and what first edges change. Mixed into SparcClassifier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import PlainTorch, resolve_device
from gsparc._validation import (
    check_count,
    check_features,
    check_first_edges,
    check_labels,
    check_positions,
    check_share,
)
from gsparc.estimators._auto import Mixture
from gsparc.estimators._base import part_of, prefixed
from gsparc.estimators._conformal import Calibration, label_scores, p_values
from gsparc.estimators._far import FarTest
from gsparc.estimators._first_edges import FirstEdges, KnownEdges, few_of_each
from gsparc.estimators._fitting import Fitter
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._views import NodeView
from gsparc.exceptions import InputError, LabelError
from gsparc.graph import Graph
from gsparc.training.batches import FeatureSource, Scaling

__all__ = ["Assessment", "ConfidentClassifier", "Screening", "row_lengths"]

_BLOCK = 65_536  # nodes at once
_NEAR = 3  # seen nodes whose mean distance says how far a node is from all of them
_FAR_LENGTH = 99.0  # percentile of the seen rows' lengths beyond which a row is far by its length alone
_MAKING = threading.Lock()
_MOST_UNLABELLED, _MOST_BELIEFS = 200_000, 20_000_000  # nodes, and numbers, that beliefs are kept for


class Assessment(NamedTuple):
    """Everything about new nodes from one pass over them (:meth:`SparcClassifier.assess`)."""

    proba: np.ndarray
    """``[m, C]``, as ``predict_proba`` gives them."""
    sets: np.ndarray
    """``[m, C]`` bool, as ``predict_set`` gives them."""
    novelty: np.ndarray
    """``[m]``, as ``novelty`` gives it."""
    near_ids: np.ndarray
    """``[m, k]`` nearest seen nodes, as ``evidence`` gives them, like the next two."""
    near_distances: np.ndarray
    near_labels: np.ndarray


class Screening(NamedTuple):
    """What is asked of very many new nodes (:meth:`SparcClassifier.screen`)."""

    proba: np.ndarray
    """``[m, C]``, as ``predict_proba`` gives them."""
    sets: np.ndarray | None
    """``[m, C]`` bool, as ``predict_set`` gives them."""
    far: np.ndarray | None
    """``[m]`` bool: whether ``novelty`` is ``far_level`` or less."""


class ConfidentClassifier(PlainTorch):
    """Probabilities, prediction sets and novelty of a fitted classifier."""

    classes_: np.ndarray
    map_: Any
    device: str
    _kind: str
    _codes: np.ndarray
    _nodes: NodeNames
    _mixture: Mixture
    _view: Any
    _head_probabilities: Any
    _alike: Any
    _calibration: Calibration
    _first: FirstEdges | None
    _reach: float | None
    _far_test: FarTest | None = None

    def predict_proba(self, X: Any, *, edges: Any = None) -> np.ndarray:
        """Calibrated class probabilities, ``[m, n_classes]``, columns as `classes_`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        edges : pair (rows, node ids), or triple with weights, optional
            Known neighbours of new nodes that have some already: row ``rows[i]`` of X is linked to the seen node
            ``node ids[i]``. Each neighbour moves the odds of the classes by how often they meet on seen edges; the
            probabilities of rows without edges are the same as without this argument. An unlabelled neighbour counts
            two thirds, as what the model says of it (up to 200,000 unlabelled nodes; beyond, not at all).
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        known = self._known_edges(edges, X.shape[0])
        return self._proba(X, known)

    def predict(self, X: Any, *, edges: Any = None) -> np.ndarray:
        """Most probable classes; `edges` as in :meth:`predict_proba`."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X, edges=edges).argmax(axis=1)]

    def calibrate(self, X: Any, y: Any, *, edges: Any = None) -> Self:
        """Measure the model on nodes that took no part in fit, so that sets and novelty keep what they promise.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
            Such nodes as will be predicted: a random part of the data that neither fit nor its ``validation`` saw.
            Coverage is as promised on average over such parts; with ``m`` nodes one part differs from it by about
            ``sqrt(coverage (1 - coverage) / m)``: two points at 90 % and 225 nodes.
        y : array of shape (m,)
            Their classes. A class that fit never saw counts as one that no set holds, which it will be. -1 for
            unlabelled nodes (where labels are numbers): only their distances count.
        edges : pair (rows, node ids), or triple with weights, optional
            Their real edges to seen nodes, as in :meth:`predict_proba`. They tell how much edges are worth beside
            features, and calibrate the sets of rows that come with edges; the rows are still measured without them too.

        Examples
        --------
        >>> from gsparc import SparcClassifier
        >>> from gsparc.datasets import make_blocks
        >>> data = make_blocks(400, 2000, 8, random_state=0)
        >>> model = SparcClassifier("mlp", n_components=8, max_steps=40, random_state=0)
        >>> model = model.fit(data.X[:300], data.y[:300], graph=data.graph[range(300)])
        >>> model = model.calibrate(data.X[300:350], data.y[300:350])
        >>> model.predict_set(data.X[350:], coverage=0.8).shape == (50, len(model.classes_))
        True
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        codes, counted = _calibration_codes(check_labels(y, X.shape[0]), self.classes_)
        known = self._known_edges(edges, X.shape[0])
        distances = np.concatenate([self._far(view, self._near(view, _NEAR)[1]) for view in self._views(X)])
        proba = self._proba(X, None)
        linked = np.zeros(0)
        if known is not None and self._first is not None:
            few = few_of_each(known)
            few = few.part(counted[few.rows])
            first = self._first.learned(proba, codes, few, self._codes)
            linked = self._linked_scores(first, proba, codes, few)
            self._first = first
        self._calibration = Calibration.of(label_scores(proba, codes)[counted], linked, distances)
        return self

    def predict_set(self, X: Any, coverage: float = 0.9, *, edges: Any = None) -> np.ndarray:
        """Classes that a node may have: sets that hold the true one with probability `coverage`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        coverage : float from 0 to 1
        edges : pair (rows, node ids), or triple with weights, optional
            As in :meth:`predict_proba`. Rows with edges are held to the scores of calibration nodes with edges
            where there are fifty of them, else to those of all.

        Returns
        -------
        bool array of shape (m, n_classes)
            The most probable class is in every set, so where it is right more often than `coverage`, sets hold the true
            class that much more often.

        Notes
        -----
        Split conformal prediction: no assumption but that new nodes are drawn as the calibration nodes were. Those are
        the nodes of :meth:`calibrate`. Without it the pretend-cold nodes of fit serve; they stopped the training and
        weighed the networks, so the sets are slightly optimistic. With too few nodes for a coverage every class is in
        the set.
        """
        check_is_fitted(self)
        check_share("coverage", coverage)
        X = check_features(self, X, reset=False)
        known = self._known_edges(edges, X.shape[0])
        return self._sets(self._proba(X, known), coverage, known)

    def novelty(self, X: Any) -> np.ndarray:
        """How ordinary the distance of each node to its nearest seen nodes is, in (0, 1]: small is far from all seen.

        Returns
        -------
        array of shape (m,)
            The share of calibration nodes (as in :meth:`predict_set`) that are at least as far: of nodes like those a
            share ``p`` falls below ``p``. The distance is the mean of the three nearest in :meth:`evidence`, plus,
            where columns of numbers were standardised, the logarithm by which a row is longer than 99 % of the seen.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        distances = [self._far(view, self._near(view, _NEAR)[1]) for view in self._views(X)]
        return p_values(self._calibration.distances, np.concatenate(distances))

    def assess(self, X: Any, coverage: float = 0.9, k: int = 5, *, edges: Any = None) -> Assessment:
        """:meth:`predict_proba`, :meth:`predict_set`, :meth:`novelty` and the nearest nodes, looked for once."""
        check_is_fitted(self)
        check_share("coverage", coverage)
        check_count("k", k, 1)
        X = check_features(self, X, reset=False)
        known, parts = self._known_edges(edges, X.shape[0]), []
        for view in self._views(X):
            ids, distances = self._near(view, max(k, _NEAR))
            parts.append((self._mixed(view), ids[:, :k], distances[:, :k], self._far(view, distances[:, :_NEAR])))
        proba, ids, distances, far = (np.concatenate(part) for part in zip(*parts, strict=True))
        if known is not None and self._first is not None:
            proba = self._first.update(proba, known, self._codes)
        sets, novelty = self._sets(proba, coverage, known), p_values(self._calibration.distances, far)
        return Assessment(proba, sets, novelty, self._nodes.names(ids), distances, self._codes[ids])

    @property
    def least_novelty_(self) -> float:
        """The smallest value that :meth:`novelty` can have: that of a node farther out than any calibration node."""
        return 1.0 / (1 + len(self._calibration.distances))

    def screen(
        self, X: Any, coverage: float | None = 0.9, far_level: float | None = 0.01, *, edges: Any = None
    ) -> Screening:
        """:meth:`predict_proba`, :meth:`predict_set` and whether nodes are far from all seen, for very many nodes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        coverage : float from 0 to 1, or None for no sets
        far_level : float from 0 to 1, or None
            Nodes whose :meth:`novelty` is no more than this are far. The answer is the same; but since it is yes or no,
            a node that is clearly not far is never compared with all seen ones. None: do not look.
        edges : pair (rows, node ids), or triple with weights, optional
            As in :meth:`predict_proba`.
        """
        check_is_fitted(self)
        if coverage is not None:
            check_share("coverage", coverage)
        if far_level is not None:
            check_share("far_level", far_level)
        X = check_features(self, X, reset=False)
        known = self._known_edges(edges, X.shape[0])
        test = None if far_level is None else self._test_of_far(far_level)
        mixed, far = [], []
        for view in self._views(X):
            mixed.append(self._mixed(view))
            if test is not None:
                far.append(test.far(view))
        proba = np.concatenate(mixed)
        if known is not None and self._first is not None:
            proba = self._first.update(proba, known, self._codes)
        sets = None if coverage is None else self._sets(proba, coverage, known)
        return Screening(proba, sets, np.concatenate(far) if far else None)

    def _test_of_far(self, level: float) -> FarTest:
        with _MAKING:  # several threads may ask at once; it is made once
            if self._far_test is None or not self._far_test.fits(self, level):
                self._far_test = FarTest(self, level)
            return self._far_test

    def _views(self, X: Any) -> Iterator[NodeView]:
        device = resolve_device(self.device)
        for start in range(0, X.shape[0], _BLOCK):
            yield self._view(X[start : start + _BLOCK], device)

    def _proba(self, X: Any, known: KnownEdges | None) -> np.ndarray:
        proba = np.concatenate([self._mixed(view) for view in self._views(X)])
        if known is None or self._first is None:
            return proba
        return self._first.update(proba, known, self._codes)

    def _mixed(self, view: NodeView, rows: np.ndarray | None = None) -> np.ndarray:
        used = [name for name, weight in self._mixture.weights.items() if weight > 0]
        return self._mixture.combine(self._head_probabilities(view, used, rows))

    def _sets(self, proba: np.ndarray, coverage: float, known: KnownEdges | None) -> np.ndarray:
        linked = np.zeros(len(proba), bool)
        if known is not None:
            linked[known.rows] = True
        return self._calibration.sets(proba, coverage, linked)

    def _known_edges(self, edges: Any, num_new: int) -> KnownEdges | None:
        found = check_first_edges(edges, num_new)
        if found is None:
            return None
        if self._first is None:
            raise InputError(
                "edges came, but this model was fitted without a graph, so it cannot tell what an edge means. Fit with "
                "graph=, or pass no edges."
            )
        rows, names, weights = found
        nodes = check_positions(self._nodes.positions(names), len(self._codes))
        return KnownEdges.merged(rows, nodes, weights)

    def _near(self, view: NodeView, k: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Nearest seen nodes and their distances, as :meth:`evidence` measures them."""
        if self._kind in ("auto", "mlp"):
            scores, ids = self._alike(view, k, rows)
            return ids, 1.0 - scores
        wanted = torch.from_numpy(np.arange(len(view)) if rows is None else rows).to(view.source.device)
        ids, distances = view.neighbors(wanted, k, once=True)
        return ids.cpu().numpy(), distances.cpu().numpy()

    def _far(self, view: NodeView, distances: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """How far nodes are from the seen ones; ``distances [m, k]`` to the nearest."""
        far = distances.astype(np.float64).mean(axis=1) if distances.shape[1] else np.zeros(len(distances))
        if self._reach is None or not len(far):
            return far
        lengths = row_lengths(view.source.matrix(rows), self.map_._scaling)
        return far + np.log(np.maximum(lengths / self._reach, 1.0))

    def _fit_confidence(self, fitter: Fitter) -> None:
        """Beliefs, discount and calibration from the nodes that judge."""
        view, rows, labels = fitter.judges
        scaling = self.map_._scaling
        self._reach = None
        if not scaling.rows:
            usual = float(np.percentile(_all_lengths(fitter.view.source, scaling), _FAR_LENGTH))
            self._reach = usual if usual > 0 else None
        graph = fitter.graph if fitter.own_graph else None
        self._first = None if graph is None else self._fit_first_edges(fitter.view, graph)
        proba, linked = self._mixed(view, rows), np.zeros(0)
        if self._first is not None and graph is not None and view.own:
            few = few_of_each(_edges_of(graph, rows))
            self._first = self._first.learned(proba, labels, few, self._codes)
            linked = self._linked_scores(self._first, proba, labels, few)
        distances = self._far(view, self._near(view, _NEAR, rows)[1], rows) if len(rows) else np.zeros(0)
        self._calibration = Calibration.of(label_scores(proba, labels), linked, distances)

    def _fit_first_edges(self, view: NodeView, graph: Graph) -> FirstEdges:
        unlabelled, count = np.flatnonzero(self._codes < 0), len(self.classes_)
        if len(unlabelled) > _MOST_UNLABELLED or len(unlabelled) * count > _MOST_BELIEFS:
            unlabelled = unlabelled[:0]
        blocks = [unlabelled[i : i + _BLOCK] for i in range(0, len(unlabelled), _BLOCK)]
        soft = np.concatenate([np.zeros((0, count)), *(self._mixed(view, block) for block in blocks)])
        return FirstEdges.fit(graph, self._codes, unlabelled, soft, view.source.device)

    def _linked_scores(self, first: FirstEdges, proba: np.ndarray, codes: np.ndarray, edges: KnownEdges) -> np.ndarray:
        rows = np.unique(edges.rows)
        return label_scores(first.update(proba, edges, self._codes)[rows], codes[rows])

    def _confidence_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        first = None if self._first is None else self._first.config()
        arrays = prefixed("calibration", self._calibration.arrays())
        if self._first is not None:
            arrays |= prefixed("first_edges", self._first.arrays())
        saved = {"reach": self._reach, "first_edges": first, "calibration": self._calibration.counts()}
        return {"confidence": saved}, arrays

    def _restore_confidence(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self._first, saved = None, fitted["confidence"]
        reach = saved["reach"]
        if reach is not None and not (isinstance(reach, float) and 0 < reach < float("inf")):
            raise ValueError(f"a length {reach} of the seen rows")
        self._reach = reach
        self._calibration = Calibration.from_arrays(part_of(arrays, "calibration"), saved["calibration"])
        if saved["first_edges"] is not None:
            part = part_of(arrays, "first_edges")
            self._first = FirstEdges.from_state(saved["first_edges"], part, len(self.classes_))


def _all_lengths(source: FeatureSource, scaling: Scaling) -> np.ndarray:
    """:func:`row_lengths` of all rows, on the GPU where they are there already."""
    if source.device.type == "cuda" and source.dense and source.resident:
        return source.lengths()
    return row_lengths(source.matrix(), scaling)


def row_lengths(X: Any, scaling: Scaling) -> np.ndarray:
    """Lengths of rows whose columns are standardised; sparse ones stay sparse.

    Examples
    --------
    >>> scaling = Scaling(False, np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    >>> row_lengths(np.array([[1.0, 0.0], [3.0, 3.0]]), scaling).tolist()
    [0.0, 5.0]
    """
    assert scaling.shift is not None
    assert scaling.factor is not None
    shift, factor = scaling.shift.astype(np.float64), scaling.factor.astype(np.float64)
    parts = []
    for start in range(0, X.shape[0], _BLOCK):
        rows = X[start : start + _BLOCK]
        if sp.issparse(rows):
            # in double precision by entry: scipy would square in the type of the rows
            of_zeros, at = np.square(shift * factor), rows.indices
            moved = np.square((rows.data - shift[at]) * factor[at]) - of_zeros[at]
            square = sp.csr_array((moved, at, rows.indptr), shape=rows.shape).sum(axis=1) + of_zeros.sum()
        else:
            square = np.square((rows - shift) * factor).sum(axis=1)
        parts.append(np.sqrt(np.clip(square, 0, None)))
    return np.concatenate(parts) if parts else np.zeros(0)


def _edges_of(graph: Graph, rows: np.ndarray) -> KnownEdges:
    """Edges of the nodes ``rows``, the first of them called row 0."""
    counts = graph.indptr[rows + 1] - graph.indptr[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    entry = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + graph.indptr[rows][owner]
    weights = np.ones(len(owner)) if graph.weights is None else graph.weights[entry].astype(np.float64)
    return KnownEdges(owner, graph.indices[entry].astype(np.int64), weights)


def _calibration_codes(labels: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Class numbers, -1 for a class that is not known, and which nodes are labelled at all."""
    known = np.isin(labels, classes)
    unlabelled = ~known & (labels == -1) if labels.dtype.kind in "iuf" else np.zeros(len(labels), bool)
    if not known.any():
        shown = labels[:1].tolist()[0] if len(labels) else None
        raise LabelError(
            f"none of the {len(labels)} labels is a class that fit saw (the first is {shown!r}). "
            f"Expected some of {classes.tolist()}."
        )
    codes = np.full(len(labels), -1, np.int64)
    codes[known] = np.searchsorted(classes, labels[known])
    return codes, ~unlabelled
