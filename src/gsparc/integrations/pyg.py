"""PyTorch Geometric: spectral coordinates as a transform, clusters as mini-batches, new nodes as a ``Data``."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone

from gsparc._optional import import_optional
from gsparc._typing import RandomState
from gsparc._validation import check_count
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import FeatureError, GraphShapeError, InputError
from gsparc.graph import Graph
from gsparc.integrations.cluster_loader import SpectralClusterLoader
from gsparc.ops.neighbors import NeighborIndex

__all__ = ["AddSpectralEmbedding", "SpectralClusterLoader", "cold_data"]

# The whole file is about this package, and a transform must inherit from it; nothing else imports this file.
_pyg: Any = import_optional("torch_geometric", extra="pyg", purpose="gsparc.integrations.pyg")
_transforms: Any = import_optional("torch_geometric.transforms", extra="pyg", purpose="gsparc.integrations.pyg")


class AddSpectralEmbedding(_transforms.BaseTransform):
    """Add spectral coordinates of the nodes to a PyG ``Data``.

    The first ``Data``, passed to :meth:`fit` or simply to the transform, is the seen graph: a
    :class:`~gsparc.SpectralMap` is fitted on its ``x`` and edges. From then on the map is kept, and every
    ``Data`` gets coordinates from ``x`` alone, whether it has edges or not. The input is never changed.

    Parameters
    ----------
    n_components : int
        Number of coordinates. Not used when `spectral_map` is given.
    attr_name : str or None
        Attribute that receives the coordinates, ``[num_nodes, k]``. ``None`` appends them to ``x`` as columns.
    spectral_map : SpectralMap, optional
        A fitted map, which is used as it is, or an unfitted one, whose settings are used.
    max_steps, device, random_state
        Of the map that is fitted when `spectral_map` is None; see :class:`~gsparc.SpectralMap`.

    Attributes
    ----------
    map_ : SpectralMap or None
        The fitted map; ``None`` before the first ``Data``.

    Notes
    -----
    In a data set of many graphs the first graph that comes fits the map for all of them. Call :meth:`fit` on
    purpose, or make one transform for each graph. Directions of edges are ignored; ``edge_weight``, or
    ``edge_attr`` with one column, are weights, as in :meth:`gsparc.Graph.from_pyg`.

    Examples
    --------
    >>> from torch_geometric.data import Data
    >>> from gsparc.datasets import make_circle
    >>> circle = make_circle(300, n_neighbors=10, noise_features=0, n_unseen=5, random_state=0)
    >>> add = AddSpectralEmbedding(4, max_steps=50, random_state=0)
    >>> add(circle.graph.to_pyg(circle.X)).spectral.shape
    torch.Size([300, 4])
    >>> new = Data(x=torch.from_numpy(circle.extra["X_unseen"]).float())  # no edges
    >>> add(new).spectral.shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        n_components: int = 64,
        *,
        attr_name: str | None = "spectral",
        spectral_map: SpectralMap | None = None,
        max_steps: int = 1000,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        if spectral_map is not None and not isinstance(spectral_map, SpectralMap):
            raise InputError(f"spectral_map={spectral_map!r} came, expected a SpectralMap or None.")
        if attr_name is not None and (not isinstance(attr_name, str) or not attr_name.isidentifier()):
            raise InputError(f"attr_name={attr_name!r} came, expected the name of an attribute, or None.")
        if attr_name in ("x", "edge_index"):
            raise InputError(f"attr_name={attr_name!r} would replace {attr_name}. Pass None to append columns to x.")
        self.n_components = check_count("n_components", n_components, 1)
        self.attr_name = attr_name
        self.spectral_map = spectral_map
        self.max_steps, self.device, self.random_state = max_steps, device, random_state
        self.map_ = spectral_map if spectral_map is not None and hasattr(spectral_map, "module_") else None

    def fit(self, data: Any) -> Self:
        """Fit the map on the seen graph, also when there was one before."""
        X = _features_of(data)
        edges = data.edge_index
        if edges is None or not edges.shape[1]:
            raise InputError(
                f"{data} has no edges to fit the spectral map on. Pass the seen graph first, to fit(data) or to the "
                "transform; nodes without edges come after it."
            )
        base = self.spectral_map
        if base is None:
            settings: dict[str, Any] = {
                "max_steps": self.max_steps,
                "device": self.device,
                "random_state": self.random_state,
            }
            base = SpectralMap(self.n_components, **settings)
        fresh: Any = clone(base)  # whoever passed a map in keeps it as it was
        self.map_ = fresh.fit(X, graph=Graph.from_pyg(data))
        return self

    def forward(self, data: Any) -> Any:
        """The copy that ``transform(data)`` made of the input, with coordinates."""
        X = _features_of(data)
        if self.map_ is None:
            self.fit(data)
        fitted: Any = self.map_
        coordinates = torch.from_numpy(fitted.transform(X)).to(data.x.device)
        if self.attr_name is None:
            data.x = _append(data.x, coordinates)
        else:
            data[self.attr_name] = coordinates
        return data

    def __repr__(self) -> str:
        count = self.n_components if self.map_ is None else self.map_.n_components_
        state = "not fitted" if self.map_ is None else "fitted"
        return f"{type(self).__name__}({count}, attr_name={self.attr_name!r}, {state})"


def _append(x: torch.Tensor, coordinates: torch.Tensor) -> torch.Tensor:
    """``x`` with more columns; sparse stays sparse."""
    more = coordinates.to(x.dtype if x.dtype.is_floating_point else torch.float32)
    if x.layout == torch.strided:
        return torch.cat([x.to(more.dtype), more], dim=1)
    joined = torch.cat([x.to_sparse_coo().to(more.dtype), more.to_sparse_coo()], dim=1)
    return joined.to_sparse_csr() if x.layout == torch.sparse_csr else joined.coalesce()


def cold_data(model: Any, X_new: Any, k: int = 10, *, seen: Any = None, num_hops: int = 1) -> Any:
    """New nodes and their inferred neighbours as one PyG ``Data``.

    The new nodes come first, as seed nodes do in PyG's loaders, so ``gnn(data.x, data.edge_index)[:data.batch_size]``
    are the answers for them. An inferred edge leads from the seen node to the new one.

    Parameters
    ----------
    model : SparcClassifier, SparcLinkPredictor or SpectralMap
        Fitted. Neighbours are the classifier's nearest nodes, the predicted links, or the nearest nodes in the
        map's coordinates. A SpectralMap needs `seen`, which is then indexed anew in every call.
    X_new : array, sparse matrix, table, tensor or Data, of shape (m, d)
        Features of the new nodes.
    k : int
        Inferred neighbours of each.
    seen : Data or feature matrix of shape (n, d), optional
        What the model was fitted on. Fills ``x``; a Data with edges also adds the real edges among the seen nodes
        within `num_hops` of an inferred neighbour.
    num_hops : int
        Of those real edges. A module of L layers makes full use of L - 1.

    Returns
    -------
    torch_geometric.data.Data
        - ``x`` [N, d] float32, only with `seen`;
        - ``edge_index`` [2, E], inferred edges first, then real ones as they are stored in `seen`;
        - ``edge_weight`` [E]: real edges have their own weight, or one; the inferred edges of a new node have a
          weight proportional to likeness, its best neighbour one, and none that is not positive;
        - ``n_id`` [N]: positions among the seen nodes, -1 for new ones;
        - ``is_new`` [N] bool; ``is_inferred`` [E] bool; ``batch_size`` = m.

    Notes
    -----
    Nodes of one batch share seen nodes, so a module that normalises by degree may answer a little differently for
    a node in another batch. Where this matters use one node a batch, or :mod:`gsparc.nn.attach`, which keeps the
    nodes of a batch apart.

    Examples
    --------
    >>> from gsparc import SparcLinkPredictor
    >>> from gsparc.datasets import make_circle
    >>> circle = make_circle(200, n_neighbors=5, noise_features=0, n_unseen=2, random_state=0)
    >>> links = SparcLinkPredictor(8, n_maps=1, spectral_steps=20, refine_steps=20, random_state=0)
    >>> links = links.fit(circle.X, graph=circle.graph)
    >>> data = cold_data(links, circle.extra["X_unseen"], k=3, seen=circle.X)
    >>> data.batch_size, data.edge_index.shape, int(data.is_new.sum())
    (2, torch.Size([2, 6]), 2)
    """
    check_count("k", k, 1)
    check_count("num_hops", num_hops, 0)
    X_new, X_seen = _matrix(X_new), None if seen is None else _matrix(seen)
    positions, weights, count = _inferred(model, X_new, k, X_seen)
    if X_seen is not None and X_seen.shape[0] != count:
        raise GraphShapeError(
            f"seen has {X_seen.shape[0]} nodes but the model was fitted on {count}. Pass what it was fitted on."
        )
    if X_seen is not None and X_seen.shape[1] != X_new.shape[1]:
        raise FeatureError(
            f"seen has {X_seen.shape[1]} features but the model was fitted on {X_new.shape[1]}. "
            "Pass what it was fitted on."
        )
    new, column = np.nonzero(weights > 0)
    used = positions[new, column]
    nodes, real, strength = np.unique(used), np.empty((2, 0), np.int64), np.empty(0, np.float32)
    if getattr(seen, "edge_index", None) is not None:
        nodes, real, strength = _around(seen, nodes, num_hops)
    m = positions.shape[0]
    inferred = np.stack([m + np.searchsorted(nodes, used), new])
    data = _pyg.data.Data(
        edge_index=torch.from_numpy(np.concatenate([inferred, m + real], axis=1)),
        edge_weight=torch.from_numpy(np.concatenate([weights[new, column], strength]).astype(np.float32)),
        n_id=torch.from_numpy(np.concatenate([np.full(m, -1, np.int64), nodes])),
        is_new=torch.arange(m + len(nodes)) < m,
        is_inferred=torch.arange(len(used) + real.shape[1]) < len(used),
        num_nodes=m + len(nodes),
        batch_size=m,
    )
    if X_seen is not None:
        data.x = torch.cat([_dense_rows(X_new, slice(None)), _dense_rows(X_seen, nodes)])
    return data


def _inferred(model: Any, X_new: Any, k: int, X_seen: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Positions [m, k] of inferred neighbours, weights [m, k], and how many seen nodes there are."""
    if isinstance(model, SpectralMap):
        if X_seen is None:
            raise InputError("a SpectralMap keeps no seen nodes. Pass seen= what it was fitted on.")
        index = NeighborIndex.build(model.transform(X_seen), metric="cosine")
        distances, positions = index.search(model.transform(X_new), k)
        return positions, _weights(1.0 - distances), X_seen.shape[0]
    if hasattr(model, "predict_links"):
        names, likeness = model.predict_links(X_new, k)
    elif hasattr(model, "nearest"):
        names, distances = model.nearest(X_new, k)
        likeness = 1.0 - distances
    else:
        raise InputError(
            f"{type(model).__name__} came, expected a fitted SparcClassifier, SparcLinkPredictor or SpectralMap."
        )
    return model._nodes.positions(names), _weights(likeness), model.index_.num_vectors


def _weights(likeness: np.ndarray) -> np.ndarray:
    """Likeness over the best one of the row; where none is positive all are equally good."""
    positive = np.where(np.isfinite(likeness), np.clip(likeness, 0.0, None), 0.0)
    best = positive.max(axis=1, keepdims=True)
    return np.where(best > 0, positive / np.where(best > 0, best, 1.0), 1.0).astype(np.float32)


def _around(seen: Any, nodes: np.ndarray, num_hops: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seen nodes within ``num_hops`` of ``nodes``, real edges among them in their numbering, and the weights."""
    source, target = (row.cpu().numpy() for row in seen.edge_index)
    reached = np.zeros(seen.num_nodes, bool)
    reached[nodes] = True
    for _ in range(num_hops):
        reached[source[reached[target]]] = True  # messages come from there
    kept = np.flatnonzero(reached[source] & reached[target])
    nodes = np.flatnonzero(reached)
    weights = seen.edge_weight if "edge_weight" in seen else seen.edge_attr
    if weights is None or weights.numel() != len(source):  # several features an edge are no weight
        weights = torch.ones(len(source))
    real = np.searchsorted(nodes, np.stack([source[kept], target[kept]]))
    return nodes, real, weights.detach().cpu().numpy().reshape(-1)[kept]


def _features_of(data: Any) -> Any:
    """``x`` of a Data as a numpy array or CSR matrix."""
    if not isinstance(data, _pyg.data.Data):
        raise InputError(
            f"{type(data).__name__} came, expected a torch_geometric.data.Data (HeteroData: data.to_homogeneous())."
        )
    if data.x is None:
        raise FeatureError(f"{data} has no x. Coordinates are a function of the features: set data.x.")
    return _matrix(data.x)


def _matrix(values: Any) -> Any:
    """Features as the estimators take them: CSR for what is sparse, otherwise an array or a table."""
    if isinstance(values, _pyg.data.Data):
        return _features_of(values)
    if isinstance(values, torch.Tensor):
        x = values.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x  # numpy has no such type
        if x.layout == torch.strided:
            return x.numpy()
        x = x.to_sparse_coo().coalesce()  # not by way of torch's CSR, which warns that it is a beta
        return sp.coo_array((x.values().numpy(), tuple(x.indices().numpy())), shape=tuple(x.shape)).tocsr()
    if sp.issparse(values):
        return sp.csr_array(values)
    return values if hasattr(values, "shape") else np.asarray(values)


def _dense_rows(X: Any, rows: Any) -> torch.Tensor:
    """Some rows as a float32 tensor."""
    part = X[rows].toarray() if sp.issparse(X) else np.asarray(X)[rows]
    return torch.from_numpy(part.astype(np.float32))
