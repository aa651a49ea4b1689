"""What all estimators share: parameters, saving, and the operator that a fit learns from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator

from gsparc._cuts import in_units, induced_part
from gsparc._mapped import is_mapped, release, row_blocks
from gsparc._runtime import PlainTorch, plain_torch
from gsparc._validation import check_name
from gsparc.exceptions import BackboneError, DamagedModelError, ModelFolderError
from gsparc.graph import Graph
from gsparc.model_store import bounded_tensors, read_folder, write_folder
from gsparc.ops._knn import blocks, smallest
from gsparc.ops._sparse import dense_pays
from gsparc.ops.neighbors import NeighborIndex

__all__ = [
    "LAPLACIANS",
    "Operator",
    "SavedEstimator",
    "build_operator",
    "class_array",
    "class_list",
    "feature_graph",
    "fingerprint",
    "jsonable",
    "load_model",
    "part_of",
    "prefixed",
]

CPU = torch.device("cpu")
LAPLACIANS = ("sym", "k-power", "feature-edge")
_log = logging.getLogger(__name__)
_AFTERWARDS = {"verbose", "diffusion_time", "random_state"}  # change nothing in training; the seed counts by itself
_EXACT_SPARSE = 20_000  # rows of sparse features up to which all pairs are compared
_LARGE_SHARE = 0.2  # of the nodes with edges
_SQUARABLE = (1e-15, 1e15)  # sizes whose squares, summed over many columns, are far from the ends of float32
_SPARSE_BLOCK = 1024  # rows that are compared with all at once
_FILLED = {"cpu": 1 << 26, "cuda": 1 << 28}  # entries that sparse features may be filled up to for that
_CLASSES: dict[str, type[SavedEstimator]] = {}
Arrays = dict[str, np.ndarray]


class SavedEstimator(PlainTorch, BaseEstimator):
    """A scikit-learn estimator that is saved as a model folder."""

    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _CLASSES[cls.__name__] = cls

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to ``folder``; an existing model there is replaced as a whole."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        fitted, arrays = self._state()
        names = getattr(self, "feature_names_in_", None)
        config = {
            "class": type(self).__name__,
            "parameters": jsonable(self.get_params(deep=False)),
            "n_features_in": int(self.n_features_in_),
            "feature_names": None if names is None else [str(name) for name in names],
            "fitted": fitted,
        }
        write_folder(folder, config, arrays)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        raise TypeError(f"{type(self).__name__} does not say how it is saved")

    def _restore(self, fitted: dict[str, Any], arrays: Arrays) -> None:
        raise TypeError(f"{type(self).__name__} does not say how it is loaded")

    @classmethod
    def _from_config(cls, config: dict[str, Any], arrays: Arrays) -> Self:
        estimator = cls(**config["parameters"])
        estimator.n_features_in_ = int(config["n_features_in"])
        if config["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(config["feature_names"], dtype=object)
        with plain_torch():
            estimator._restore(config["fitted"], arrays)
        return estimator


def load_model(folder: str | os.PathLike[str], *, backbone: Any = None) -> SavedEstimator:
    """Load an estimator that was written by ``save``; nothing in the folder is executed.

    Parameters
    ----------
    folder : path
    backbone : torch.nn.Module, optional
        For a classifier around a network of your own: the network, built as it was for fit. The folder holds its
        weights and not its code.

    Examples
    --------
    >>> import tempfile
    >>> from gsparc import SpectralMap, load_model
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> fitted = SpectralMap(2, max_steps=5, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(folder)
    ...     loaded = load_model(folder)
    >>> bool((loaded.transform(X) == fitted.transform(X)).all())
    True
    """
    config, arrays = read_folder(folder)
    if config.get("class") in ("StoreModel", "TableModel"):
        raise ModelFolderError(
            f"{str(folder)!r} holds a model of tables. Load it with gsparc.tables.model.TableModel.load(folder), or "
            "use it with gsparc predict."
        )
    try:
        kind = _CLASSES[check_name("model class", config["class"], _CLASSES)]
        if backbone is not None:
            if "backbone" not in config["parameters"]:
                raise BackboneError(
                    f"backbone= came, but this model is a {config['class']}: it has no network of yours."
                )
            config["parameters"]["backbone"] = backbone
        with bounded_tensors(sum(array.size for array in arrays.values()) + 1_000_000):
            return kind._from_config(config, arrays)
    except (DamagedModelError, BackboneError):
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        raise DamagedModelError(
            f"the model in {str(folder)!r} is damaged: its parts do not fit together ({error}). "
            "Restore the folder from a copy, or fit and save again."
        ) from error


def jsonable(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as they are written to JSON."""
    machine = {"device": "auto", "checkpoint": None}  # belong to the machine, not to the model
    return {name: machine.get(name, _jsonable_value(value)) for name, value in parameters.items()}


def _jsonable_value(value: Any) -> Any:
    if isinstance(value, (np.random.RandomState, np.random.Generator, SavedEstimator, torch.nn.Module)):
        return None  # spent, or saved by itself with what was fitted, or code
    if isinstance(value, (list, tuple)):
        return [_jsonable_value(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def class_list(classes: np.ndarray) -> dict[str, Any]:
    """Class labels as JSON, with the type that they come back as."""
    kind = {"i": "integers", "u": "integers", "b": "booleans", "f": "floats"}.get(classes.dtype.kind, "strings")
    values = [str(value) for value in classes] if kind == "strings" else classes.tolist()
    return {"kind": kind, "values": values}


def class_array(saved: dict[str, Any]) -> np.ndarray:
    """What :func:`class_list` described."""
    kinds = {"integers": np.int64, "booleans": np.bool_, "floats": np.float64, "strings": np.str_}
    kind, values = kinds[saved["kind"]], saved["values"]
    if kind is np.int64 and max(values) > np.iinfo(np.int64).max:
        kind = np.uint64  # such as hashes
    return np.array(values, dtype=kind)


def prefixed(prefix: str, arrays: Arrays) -> Arrays:
    """Arrays of one part of a model, under names of their own."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def part_of(arrays: Arrays, prefix: str) -> Arrays:
    """What :func:`prefixed` put there."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


@dataclass(frozen=True)
class Operator:
    """The graph whose random walk is learned, over the nodes that take part."""

    graph: Graph
    nodes: np.ndarray  # rows of X
    walk_length: int
    description: dict[str, Any]


def feature_graph(X: Any, n_neighbors: int, seed: int, device: torch.device = CPU) -> Graph:
    """Gaussian affinity of feature neighbours: ``exp(-d^2 / 2 s^2)``, ``s`` the median distance."""
    n, X = X.shape[0], _squarable(X)
    k = min(n_neighbors, n - 1)
    if sp.issparse(X) and n <= _EXACT_SPARSE:
        distances, ids = _sparse_neighbors(X, k, device)
    else:
        rows = _projected(X, seed) if sp.issparse(X) else X
        distances, ids = NeighborIndex.build(rows, metric="euclidean", seed=seed).search(rows, k + 1)
    source = np.repeat(np.arange(n), ids.shape[1])
    width = float(np.median(distances[:, -1])) or 1.0
    weights = np.exp(-(distances.ravel().astype(np.float64) ** 2) / (2 * width**2))
    keep = (source != ids.ravel()) & (weights > 1e-6)
    edges = np.stack([source[keep], ids.ravel()[keep]])
    return Graph.from_edges(edges, num_nodes=n, weights=weights[keep].astype(np.float32))


def _squarable(X: Any) -> Any:
    """``X``, or a multiple whose squared distances single precision can hold; neighbours and affinities are the same.

    Examples
    --------
    >>> _squarable(np.array([[3e25], [1e25]], np.float32)).ravel().astype(float).round(3).tolist()
    [1.551, 0.517]
    """
    size = max(float(X.max()), -float(X.min()))
    if size == 0 or _SQUARABLE[0] < size < _SQUARABLE[1]:
        return X
    return X * np.float32(2.0 ** -np.floor(np.log2(size)))  # a power of two: no digit changes


def _projected(X: Any, seed: int, width: int = 128) -> np.ndarray:
    """Sparse rows on random directions, which keep distances up to a few percent (Johnson-Lindenstrauss)."""
    directions = np.random.default_rng(seed).standard_normal((X.shape[1], width), dtype=np.float32)
    return np.asarray(X @ directions, dtype=np.float32) / np.float32(width**0.5)


def _sparse_neighbors(
    X: Any, k: int, device: torch.device, *, dense: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k + 1`` nearest rows of each row of a sparse matrix, itself among them, from products of blocks of rows.

    ``dense``: whether the rows are filled up for that, on ``device``; by default where it is faster and there is room.
    Otherwise only a block of products is ever dense.
    """
    n, width = X.shape
    if dense is None:
        dense = n * width <= _FILLED[device.type] and dense_pays(X, X, device)
    square = torch.from_numpy(np.asarray(X.multiply(X).sum(axis=1), np.float32).ravel())
    if dense:
        filled, square = torch.from_numpy(X.toarray()).to(device), square.to(device)
    else:
        columns = sp.csr_array(X.T)
    distances, ids = np.empty((n, k + 1), np.float32), np.empty((n, k + 1), np.int64)
    for part in blocks(n, _SPARSE_BLOCK):
        products = filled[part] @ filled.T if dense else torch.from_numpy((X[part] @ columns).toarray())
        near, found = smallest(square[part, None] + square - 2 * products, k + 1)
        distances[part], ids[part] = near.clamp_min(0).sqrt().cpu().numpy(), found.cpu().numpy()
    return distances, ids


def _large_components(graph: Graph, label: np.ndarray, count: int) -> np.ndarray:
    """Which components are learned from: those of 1 % of the nodes and 10, and the largest.

    All of them where those hold less than a fifth of the nodes that have edges: such a graph is made of small parts,
    and the few largest say nothing of the others.
    """
    sizes = np.bincount(label, minlength=count)
    large = sizes >= max(10, 0.01 * graph.num_nodes)
    large[sizes.argmax()] = True
    held, linked = int(sizes[large].sum()), int(np.count_nonzero(np.diff(graph.indptr)))
    if held >= _LARGE_SHARE * linked:
        return large
    _log.info(
        "the graph has %d connected components, and the large ones hold only %d of the %d nodes with edges: "
        "the map is learned on all of them",
        count,
        held,
        linked,
    )
    return np.ones(count, bool)


def build_operator(
    X: Any,
    graph: Graph | None,
    *,
    laplacian: str,
    components: str,
    k_power: int,
    alpha: float,
    n_neighbors: int,
    seed: int,
    device: str = "cpu",
) -> Operator:
    """The affinity that the eigenfunctions belong to, cut to the components that are worth learning."""
    description: dict[str, Any] = {"laplacian": laplacian, "edges_from": "graph"}
    graph = None if graph is None else in_units(graph)  # self-loops, tau and feature neighbours weigh about one
    if graph is None:
        graph = feature_graph(X, n_neighbors, seed, torch.device(device))
        description["edges_from"] = "feature neighbours"
    elif laplacian == "feature-edge":
        near = feature_graph(X, n_neighbors, seed, torch.device(device))
        graph = Graph.from_scipy(alpha * near.to_scipy() + (1 - alpha) * graph.to_scipy())
    count, label = graph.connected_components(device)
    nodes = np.arange(graph.num_nodes)
    if components == "large" and count > 1:
        large = _large_components(graph, label, count)
        nodes = np.flatnonzero(large[label])
        description["components_kept"] = int(large.sum())
        if len(nodes) < graph.num_nodes:
            graph = induced_part(graph, nodes) if is_mapped(graph.indices) else graph[nodes]
    description |= {"components": int(count), "nodes": len(nodes), "edges": graph.num_edges}
    if description.get("components_kept", count) < count:
        _log.info(
            "the graph has %d connected components; the map is learned on the large ones: %d, with %d nodes",
            count,
            description["components_kept"],
            len(nodes),
        )
    walk_length = k_power if laplacian == "k-power" else 1
    return Operator(graph, nodes, walk_length, description)


def fingerprint(parameters: dict[str, Any], X: Any, graph: Graph, run: str) -> str:
    """Identity of a fit: parameters that shape the weights, data, and `run` (seed, kind of device)."""
    shaping = {name: value for name, value in jsonable(parameters).items() if name not in _AFTERWARDS}
    digest = hashlib.sha256(json.dumps(shaping, sort_keys=True).encode())
    digest.update(f"{run} {X.shape} {torch.__version__}".encode())
    arrays = [graph.indptr, graph.indices, graph.weights]
    arrays += [X.indptr, X.indices, X.data] if sp.issparse(X) else [X]
    for array in arrays:
        if array is not None:
            for part in row_blocks(array):  # of what lies in a file, no more than a block stays in memory
                digest.update(np.ascontiguousarray(array[part]).data.cast("B"))
                release(array)
    return digest.hexdigest()
