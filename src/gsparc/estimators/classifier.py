"""SparcClassifier: classes of nodes that have no edges."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._runtime import resolve_device, resolve_seed, timed
from gsparc._typing import RandomState
from gsparc._validation import (
    check_count,
    check_features,
    check_graph,
    check_labels,
    check_memory,
    check_name,
)
from gsparc.estimators._auto import Mixture, choose_mixture, softmax
from gsparc.estimators._base import SavedEstimator, class_array, class_list, feature_graph, part_of, prefixed
from gsparc.estimators._confidence import ConfidentClassifier
from gsparc.estimators._directions import features_beside
from gsparc.estimators._evidence import module_or_gcn_weights, token_shares
from gsparc.estimators._fitting import Fitter, prior_weights, random_starts
from gsparc.estimators._growing import GrowingClassifier
from gsparc.estimators._heads import NetHead, attached, choose_judges
from gsparc.estimators._labels import Validation, check_validation, encode_labels
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._parameters import BACKBONES, check_classifier, check_own_module, head_settings
from gsparc.estimators._ranking import FeatureView, unit
from gsparc.estimators._seen import SeenClassifier
from gsparc.estimators._views import NodeView, SeenNodes
from gsparc.estimators._vote import VoteHead, vote_weights
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import BackboneError, InputError, LabelError
from gsparc.graph import Graph
from gsparc.ops._knn import unit_rows
from gsparc.ops.combined import CombinedIndex
from gsparc.ops.neighbors import NeighborIndex
from gsparc.training.batches import FeatureSource

__all__ = ["Evidence", "SparcClassifier"]

_log = logging.getLogger(__name__)

_BLOCK = 65_536  # new nodes at once
# Share of unlabelled nodes from which teachers are worth their time. Clear of a tenth, which is what people hide to
# test on seen nodes: there it would depend on the rounding of the tenth whether teachers are used.
_MANY_UNLABELLED = 0.15


class Evidence(NamedTuple):
    """Seen nodes that a prediction rests on, nearest first; each ``[m, k]``."""

    ids: np.ndarray
    """Node ids of the graph that was fitted on; positions in X where it has none."""
    distances: np.ndarray
    """How far they are, as the backbone measures it (:meth:`SparcClassifier.evidence`)."""
    weights: np.ndarray
    """How much they count (:meth:`SparcClassifier.evidence`), rows summing to one."""
    labels: np.ndarray
    """Their classes as positions in ``classes_``; -1 where the node was unlabelled."""


class SparcClassifier(ConfidentClassifier, SeenClassifier, GrowingClassifier, ClassifierMixin, SavedEstimator):
    """Classify nodes from their features and their place in the graph's eigenspace.

    A :class:`SpectralMap` is fitted on the seen graph. It gives coordinates to nodes without edges, and with them
    neighbours among the seen nodes; a network reads both.

    Parameters
    ----------
    backbone : {"auto", "gcn", "phormer", "samba", "mlp"} or torch.nn.Module
        ``"auto"``: several networks, weighed on pretend-cold nodes; `report_` says what helped.
        ``"gcn"``: spectral convolutions ``U g U^T X``. ``"phormer"``: a transformer over means of the ``2^j`` nearest
        nodes. ``"samba"``: a selective state-space model over the same. ``"mlp"``: features and coordinates.
        A module, such as one of torch_geometric's: called as ``module(x, edge_index)`` on the new node,
        its inferred neighbours and their real edges, one hop deep, or two where it has three layers or more.
    n_components : int
        Spectral coordinates.
    spectral_map : SpectralMap or None
        Settings of the map; ``None`` for the defaults with `n_components`.
    heads : sequence of str or None
        What ``"auto"`` is made of, some of "mlp", "distilled", "spectral", "gcn", "phormer", "samba", "vote";
        ``None``: all up to 100,000 nodes; beyond, without samba and vote.
    distill : bool or "auto"
        Train on soft labels that teachers (graph networks on the seen graph) give to seen nodes. ``"auto"``: where
        15 % or more of the seen nodes are unlabelled; in the mixture always. Needs a graph.
    hidden_channels : int, sequence of int or None
        Widths; a sequence for gcn.
    num_layers, num_tokens, num_heads
        Depth; means of nearest nodes a node (``2^1 ... 2^num_tokens``); heads of the transformer.
    n_neighbors : int or None
        Inferred neighbours that gcn convolves over, or that a module's node is attached to.
    feature_share : float or "auto"
        How much the features count beside the spectral coordinates in telling which nodes are near, 0 to 0.9; of the
        features, the directions that linked nodes share. ``0``: the coordinates alone (the paper). ``"auto"``:
        0.75 where nodes that the map has held out rank their neighbours clearly better with it, else 0. It is 0, too,
        without a graph or held-out nodes, on more than 100,000 nodes or 134 million dense numbers, and where no
        neighbours are looked for (mlp, ``gcn_inference="summary"``).
    gcn_inference : {"neighbors", "summary"}
        gcn convolves over a node and its nearest ones (the paper), or with stored sums ``U^T X`` over all seen nodes:
        no neighbours are looked for, O(k d) a node.
    dropout, input_dropout, batch_size, max_steps, learning_rate, weight_decay, patience
        Network and optimiser; ``None`` for the backbone's own defaults.
    index_memory : int, str or None
        Bytes, or a text such as ``"2GB"``, that the indexes of the seen nodes may keep in memory; beyond, they hold
        codes and the rows lie in a mapped file. ``None``: as much as they need.
    device, random_state, verbose
        As in :class:`SpectralMap`.

    Attributes
    ----------
    classes_ : ndarray
    map_ : SpectralMap
    feature_share_ : float
        The share that was used; 0 for ``"mlp"``, which looks for no neighbours.
    report_ : str
        What was trained, how it did on pretend-cold nodes, and for ``"auto"`` what helped and by how much.
    weights_ : dict of float
        Weight of each head.
    history_ : list of dict

    Notes
    -----
    With numbers as labels, ``-1`` marks unlabelled nodes, scikit-learn's convention: they take part in the map
    through their features and edges, and through the teachers' soft labels. It is read so where no label is
    below -1, and -1 and 1 are not the only two.

    Pretend-cold nodes are those of ``validation``, or else some of the labelled seen nodes: teachers and networks know
    neither their labels nor their edges, and of the map only the final rotation has seen their edges. (Where fewer
    than five labelled nodes are among those that the map holds out, others stand in, whose edges the map has
    seen.) They stop the training, weigh the heads and calibrate. Edges of all nodes that the map holds out also say
    whether features count in nearness (`feature_share`).

    Examples
    --------
    >>> from gsparc.datasets import make_blocks
    >>> data = make_blocks(300, 1500, 8, random_state=0)
    >>> model = SparcClassifier("mlp", n_components=8, max_steps=40, random_state=0)
    >>> model.fit(data.X, data.y, graph=data.graph).predict(data.X[:5]).shape
    (5,)
    """

    def __init__(
        self,
        backbone: Any = "auto",
        *,
        n_components: int = 64,
        spectral_map: SpectralMap | None = None,
        heads: Sequence[str] | None = None,
        distill: bool | Literal["auto"] = "auto",
        hidden_channels: int | Sequence[int] | None = None,
        num_layers: int | None = None,
        num_tokens: int = 7,
        num_heads: int = 8,
        n_neighbors: int | None = None,
        feature_share: float | Literal["auto"] = "auto",
        gcn_inference: Literal["neighbors", "summary"] = "neighbors",
        dropout: float | None = None,
        input_dropout: float | Literal["auto"] = "auto",
        batch_size: int | None = None,
        max_steps: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        patience: int = 8,
        index_memory: int | str | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.backbone = backbone
        self.n_components = n_components
        self.spectral_map = spectral_map
        self.heads = heads
        self.distill: bool | Literal["auto"] = distill
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.num_tokens = num_tokens
        self.num_heads = num_heads
        self.n_neighbors = n_neighbors
        self.feature_share: float | Literal["auto"] = feature_share
        self.gcn_inference: Literal["neighbors", "summary"] = gcn_inference
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
        self.index_memory = index_memory

    def fit(self, X: Any, y: Any, *, graph: Any = None, validation: Any = None) -> Self:
        """Learn from the seen nodes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d)
        y : array of shape (n,)
            Classes; -1 for unlabelled nodes where the labels are integers.
        graph : Graph, or anything that :meth:`Graph.from_any` takes
            Edges among the seen nodes. Without it a graph of feature neighbours is used.
        validation : pair (X, y), optional
            Labelled nodes without edges. They play cold nodes: they judge, and nothing is trained on them.
            Without them some of the labelled seen nodes do.
        """
        check_classifier(self)
        if y is None:
            raise LabelError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. "
                "Pass one class for each node, -1 for unlabelled ones."
            )
        X = check_features(self, X, reset=True)
        labels = check_labels(y, X.shape[0])
        edges = None if graph is None else check_graph(graph, X.shape[0], optional=True)
        self.classes_, codes = encode_labels(labels)
        if X.shape[0] < 3:
            raise InputError(f"n_samples = {X.shape[0]} came, expected at least 3 nodes; 1 sample is not enough.")
        judges = check_validation(self, validation, self.classes_)
        if isinstance(self.backbone, torch.nn.Module):
            check_own_module(self.backbone, X.shape[1], len(self.classes_))
        if self.distill is True and edges is None:
            raise InputError("distill=True came without a graph. Teachers learn from edges: pass graph=.")
        self._fit(X, codes, edges, judges, resolve_seed(self.random_state))
        return self

    def _fit(self, X: Any, codes: np.ndarray, graph: Graph | None, validation: Validation | None, seed: int) -> None:
        device = resolve_device(self.device)
        self._kind = "module" if isinstance(self.backbone, torch.nn.Module) else str(self.backbone)
        if 2**self.num_tokens > X.shape[0] and self._kind in ("phormer", "samba"):
            words = "num_tokens=%d reaches beyond the %d seen nodes: the last tokens are means of all of them"
            _log.info(words, self.num_tokens, X.shape[0])
        with timed("map"):
            self._fit_map(X, graph, seed)
        self._codes, self._nodes = codes, NodeNames(X.shape[0], None if graph is None else graph.node_ids)
        with timed("coordinates"):
            coordinates = self._coordinates(X)
        with timed("index"):
            view = self._fit_views(X, graph, coordinates, device, seed)
        held = np.zeros(0, np.int64) if self.map_._held is None else self.map_._held.nodes
        outside = None if validation is None else (self._view(validation.X, device), validation.codes)
        judges, train, free = choose_judges(view, codes, outside, held, seed)
        own_graph = graph is not None
        if self._kind == "module" and graph is None:
            graph = feature_graph(X, self.map_.n_neighbors, seed, device)
        fitter = Fitter(
            head_settings(self, seed),
            view,
            train,
            free,
            len(self.classes_),
            judges,
            graph,
            device,
            own_graph,
            random_starts(X.shape[0]) if self._kind == "auto" and self.heads is None else 1,
        )
        with timed("networks"):
            if self._kind == "auto":
                self._fit_mixture(fitter)
            else:
                self._fit_single(fitter)
        with timed("confidence"):
            self._fit_confidence(fitter)
        self.weights_, self.report_ = dict(self._mixture.weights), self._mixture.report
        self.history_ = [entry for head in self._heads.values() for entry in head.history]

    def _fit_map(self, X: Any, graph: Graph | None, seed: int) -> None:
        base = SpectralMap(self.n_components) if self.spectral_map is None else self.spectral_map
        changes = {"device": self.device, "random_state": seed, "verbose": self.verbose}
        self.map_ = SpectralMap(**(base.get_params(deep=False) | changes))
        self.map_.n_features_in_ = X.shape[1]
        self.map_._check_parameters()
        self.map_._fit(X, graph)

    def _fit_views(
        self, X: Any, graph: Graph | None, coordinates: np.ndarray, device: torch.device, seed: int
    ) -> NodeView:
        """What the networks read of the seen nodes, and what finds the nearest of them."""
        self._seen: SeenNodes | None = None
        memory = None if self.index_memory is None else check_memory("index_memory", self.index_memory)
        if memory is not None and self._kind == "auto":
            memory //= 2  # one index for the networks, one for evidence
        if self._kind in ("auto", "mlp"):
            self._compared = FeatureView.fit(X)
            rows = self._compared.rows(X)
            self.index_: CombinedIndex | NeighborIndex = CombinedIndex.build(
                coordinates, rows, 0.5, device=device, memory=memory, seed=seed
            )
        if self._kind == "mlp":
            source = FeatureSource(X, self.map_._scaling, device)
            return NodeView(source, torch.from_numpy(coordinates).to(device), own=True)
        summed = self._kind == "gcn" and self.gcn_inference == "summary"  # it looks for no neighbours
        wanted = 0.0 if self.feature_share == "auto" and summed else self.feature_share
        words, share = features_beside(wanted, X, graph, self.map_, coordinates, seed=seed, device=device)
        self._seen, view = SeenNodes.fit(X, self.map_._scaling, coordinates, device, seed, memory, words, share)
        if self._kind != "auto":
            self.index_ = self._seen.index
        return view

    @property
    def feature_share_(self) -> float:
        """How much features counted in telling who is near."""
        check_is_fitted(self)
        return 0.0 if self._seen is None else self._seen.share

    def _fit_single(self, fitter: Fitter) -> None:
        kind = self._kind
        wanted = self._many_unlabelled if self.distill == "auto" else bool(self.distill)
        if wanted and self.distill != "auto" and not fitter.can_teach:
            raise InputError(f"distill=True came, but: {fitter.no_teachers()} Pass distill=False.")
        distilled = wanted and fitter.can_teach
        module = self.backbone if kind == "module" else None
        head = fitter.head(kind, fitter.soft if distilled else None, module=module)
        self._heads, self._vote = {kind: head}, None
        labels = fitter.judges[2]
        text = f"One network ({kind}) on {len(fitter.labelled)} labelled nodes"
        text += f" and the teachers' soft labels of {len(fitter.free)}" if distilled else ""
        accuracy = {}
        if len(labels) >= 20:
            view, rows, _ = fitter.judges
            accuracy[kind] = float((head.logits(view, rows).argmax(axis=1) == labels).mean())
            text += f": right for {100 * accuracy[kind]:.1f} % of {len(labels)} pretend-cold nodes"
        self._mixture = Mixture({kind: 1.0}, 1.0, len(labels), accuracy, text + ".")

    @property
    def _many_unlabelled(self) -> bool:
        return bool((self._codes < 0).mean() >= _MANY_UNLABELLED)

    def _fit_mixture(self, fitter: Fitter) -> None:
        names = fitter.plan(self.heads)
        self._heads = fitter.mixture_heads(names)
        self._vote = None
        if "vote" in names:
            if fitter.can_teach:
                labels = fitter.soft.copy()
            else:
                labels = np.zeros((len(fitter.codes), fitter.num_classes), np.float32)
            labels[fitter.labelled] = np.eye(fitter.num_classes)[fitter.codes[fitter.labelled]]
            self._vote = VoteHead(labels)
        view, rows, labels = fitter.judges
        probabilities = self._head_probabilities(view, rows=rows)
        prior = prior_weights(list(probabilities), fitter.labelled_share)
        chosen = choose_mixture(probabilities, prior, labels)
        self._mixture = replace(chosen, report=f"{chosen.report} {fitter.no_teachers()}".rstrip())

    def _coordinates(self, X: Any) -> np.ndarray:
        """Coordinates with every row of one length: what matters is the direction, and tails stay bounded."""
        scale = np.sqrt(np.clip(1 - self.map_.eigenvalues_, 0, None)).astype(np.float32)
        length = np.float32(len(scale) ** 0.5)
        if resolve_device(self.map_.device).type == "cuda":  # before they leave it: the host takes seconds for millions
            return self.map_._transform(
                X, lambda part: unit_rows(part * torch.from_numpy(scale).to(part)) * float(length)
            )
        return unit(self.map_._transform(X) * scale) * length

    def _view(self, X: Any, device: torch.device, places: np.ndarray | None = None) -> NodeView:
        """New nodes, or seen ones at ``places``."""
        coordinates = self._coordinates(X)
        if self._seen is not None:
            return self._seen.view(X, coordinates, places)
        source = FeatureSource(X, self.map_._scaling, device)
        own = False if places is None else torch.from_numpy(places).to(device)
        return NodeView(source, torch.from_numpy(coordinates).to(device), own=own)

    def _head_probabilities(
        self, view: NodeView, names: Sequence[str] | None = None, rows: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        wanted = [*self._heads, "vote"] if names is None else names
        out = {name: softmax(head.logits(view, rows)) for name, head in self._heads.items() if name in wanted}
        if self._vote is not None and "vote" in wanted:
            scores, ids = self._alike(view, self._vote.n_neighbors, rows)
            out["vote"] = self._vote.probabilities(scores, ids)
        return out

    def _alike(self, view: NodeView, k: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Likeness and positions of the seen nodes most like each node of a view, itself left out."""
        assert isinstance(self.index_, CombinedIndex)
        rows = np.arange(len(view)) if rows is None else rows
        at = torch.from_numpy(rows).to(view.source.device)
        coordinates, own = view.coordinates(at).cpu().numpy(), view.places(at)
        features = self._compared.rows(view.source.matrix(rows))
        scores, ids = self.index_.search(coordinates, features, k + view.own)
        if own is None:
            return scores, ids
        strange = ids != own.cpu().numpy()[:, None]
        strange[strange.all(axis=1), -1] = False  # not found itself: drop the farthest
        shape = (len(rows), ids.shape[1] - 1)
        return scores[strange].reshape(shape), ids[strange].reshape(shape)

    def evidence(self, X: Any, k: int = 10) -> Evidence:
        """Seen nodes behind the prediction of each new node.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        k : int
            How many.

        Returns
        -------
        Evidence
            ``ids, distances, weights, labels``, each ``[m, k]``, nearest first. For gcn, phormer, samba and modules
            the distance is one minus the cosine of the spectral coordinates; where `feature_share_` is not 0, one minus
            the mean of that cosine and the one along the features' directions, weighed by this share (a node without
            any of these features is placed by its coordinates alone). For mlp and auto it is one minus the plain mean
            of that cosine and of the features' own. The weights are for phormer and samba each node's part in the
            token lists (for phormer by the attention that reads them out), for a module those of its edges. For the
            others they fall off with the distance and say how alike the nodes are, not how the network used them: gcn
            with ``gcn_inference="summary"`` and mlp look for no neighbours at all to predict.
        """
        check_is_fitted(self)
        check_count("k", k, 1)
        X = check_features(self, X, reset=False)
        device = resolve_device(self.device)
        parts = [self._evidence(self._view(X[i : i + _BLOCK], device), k) for i in range(0, X.shape[0], _BLOCK)]
        ids, distances, weights = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return Evidence(self._nodes.names(ids), distances, weights, self._codes[ids])

    def _evidence(self, view: NodeView, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._kind in ("auto", "mlp"):
            scores, ids = self._alike(view, k)
            return ids, 1.0 - scores, vote_weights(scores)
        rows = torch.arange(len(view), device=view.source.device)
        head = self._heads[self._kind]
        ids, distances = view.neighbors(rows, k)
        if self._kind in ("phormer", "samba"):
            weights = token_shares(head, view, rows, ids.shape[1])
        else:
            weights = module_or_gcn_weights(head, distances)
        return ids.cpu().numpy(), distances.cpu().numpy(), weights.cpu().numpy()

    def nearest(self, X: Any, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Seen nodes most like each new one: ids and distances of :meth:`evidence`."""
        found = self.evidence(X, k)
        return found.ids, found.distances

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        saved_map, arrays = self.map_._as_part()
        arrays = prefixed("map", arrays) | prefixed("nodes", self._nodes.arrays()) | {"codes": self._codes}
        fitted: dict[str, Any] = {
            "classes": class_list(self.classes_),
            "kind": self._kind,
            "map": saved_map,
            "own_map": self.spectral_map is not None,
            "nodes": self._nodes.config(),
            "heads": {name: head.config() for name, head in self._heads.items()},
            "mixture": self._mixture.config(),
            "module": repr(next(iter(self._heads.values())).module.module) if self._kind == "module" else None,
        }
        for number, head in enumerate(self._heads.values()):
            arrays |= prefixed(f"head{number}", head.arrays())
        if self._seen is not None:
            fitted["seen"] = self._seen.config()
            arrays |= prefixed("seen", self._seen.arrays())
        if isinstance(self.index_, CombinedIndex):
            index_arrays, fitted["index"] = self.index_.state()
            fitted["compared"] = self._compared.config()
            arrays |= prefixed("index", index_arrays) | prefixed("compared", self._compared.arrays())
        if self._vote is not None:
            fitted["vote"] = self._vote.config()
            arrays |= prefixed("vote", self._vote.arrays())
        confidence, more = self._confidence_state()
        return fitted | confidence, arrays | more

    def _restore(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        device = resolve_device(self.device)
        self._kind = check_name("kind of network", fitted["kind"], (*BACKBONES, "module"))
        self.classes_ = class_array(fitted["classes"])
        self.map_ = SpectralMap._from_part(fitted["map"], part_of(arrays, "map"), self.n_features_in_)
        if fitted["own_map"]:
            self.spectral_map = SpectralMap(**fitted["map"]["parameters"])  # a clone fits as this one did
        self._codes = arrays["codes"]
        n = len(self._codes)
        self._nodes = NodeNames.from_state(part_of(arrays, "nodes"), fitted["nodes"], n)
        self._restore_views(fitted, arrays, n, device)
        module = self._module_for(fitted)
        self._heads = {}
        for number, (name, config) in enumerate(fitted["heads"].items()):
            part = part_of(arrays, f"head{number}")
            head = NetHead.from_state(config, part, device, self.map_._scaling, module)
            if getattr(head.module, "out_channels", None) != len(self.classes_):
                raise ValueError("a network does not have one output for each class")
            self._heads[name] = head
        self._mixture = Mixture(**fitted["mixture"])
        self._mixture.check({*self._heads, *(["vote"] if "vote" in fitted else [])})
        if self._kind != "auto" and list(self._heads) != [self._kind]:
            raise ValueError(f"a {self._kind} with the networks {list(self._heads)}")
        if not ((self._codes >= -1) & (self._codes < len(self.classes_))).all():
            raise ValueError("labels of the seen nodes that are no classes")
        self._vote = None
        if "vote" in self._mixture.weights:
            votes = part_of(arrays, "vote")["labels"]
            if votes.shape != (n, len(self.classes_)):
                raise ValueError(f"votes of shape {votes.shape} for {n} nodes")
            self._vote = VoteHead(votes, check_count("n_neighbors", fitted["vote"]["n_neighbors"], 1))
        self._restore_confidence(fitted, arrays)
        self.weights_, self.report_ = dict(self._mixture.weights), self._mixture.report
        self.history_ = [entry for head in self._heads.values() for entry in head.history]

    def _restore_views(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray], n: int, device: Any) -> None:
        self._seen = None
        if self._kind != "mlp":
            part, width = part_of(arrays, "seen"), self.n_features_in_
            self._seen = SeenNodes.from_state(fitted["seen"], part, self.map_._scaling, width, device)
            if self._seen.index.num_vectors != n or self._seen.coordinates.shape[1] != self.map_.n_components_:
                raise ValueError("the seen nodes do not fit the map")
            self.index_ = self._seen.index
        if self._kind in ("auto", "mlp"):
            part = part_of(arrays, "compared")
            self._compared = FeatureView.from_state(part, fitted["compared"], self.n_features_in_)
            index = CombinedIndex.from_state(part_of(arrays, "index"), fitted["index"], device=device)
            widths = (self.map_.n_components_, self.n_features_in_)
            if index.widths != widths or index.num_vectors != n:
                raise ValueError(f"the index has columns {index.widths}, expected {widths}")
            self.index_ = index

    def _module_for(self, fitted: dict[str, Any]) -> torch.nn.Module | None:
        """The user's network around its saved weights: code is never loaded from a model folder."""
        given, saved = isinstance(self.backbone, torch.nn.Module), fitted["module"]
        if self._kind != "module":
            if given:
                raise BackboneError(f"backbone= came, but this model is a {self._kind}: it needs no network of yours.")
            return None
        if not given:
            raise BackboneError(
                f"this model holds the weights of a network of your own and not its code: {saved}. "
                "Build such a network and pass it: load_model(folder, backbone=network)."
            )
        try:
            return attached(self.backbone, self.n_features_in_, len(self.classes_))
        except InputError as error:
            raise BackboneError(f"{error} Saved was {saved}.") from error
