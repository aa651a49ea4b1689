"""Data sets as one ``.npz`` file without pickles.

Arrays of the file, n nodes and E edges:

=========================================  ===================================================
``x_data x_indices x_indptr x_shape``      features as CSR, or instead of the four:
``x``                                      features, dense, shape (n, d)
``edges``                                  node positions, shape (2, E), each edge once
``weights``                                optional: float32, one weight an edge, shape (E,)
``y``                                      optional: classes, -1 unlabelled, shape (n,)
``node_ids class_names feature_names``     optional: names
``groups``                                 optional: siblings that a split must keep together
``name description source``                optional: one string each
=========================================  ===================================================
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._typing import Features
from gsparc.datasets.base import Dataset, as_csr, shape_of
from gsparc.exceptions import DataNotFoundError, FeatureError, InputError, LabelError, OutputError
from gsparc.graph import Graph

__all__ = ["load_npz", "read_arrays", "read_features", "save_npz"]

_CSR_KEYS = ("x_data", "x_indices", "x_indptr", "x_shape")


def load_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a data set from an ``.npz`` file; nothing in it is ever executed.

    Parameters
    ----------
    path : path
        A file with the arrays listed at the top of :mod:`gsparc.datasets.npz`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from gsparc.datasets import load_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/path.npz", x=np.eye(3), edges=[[0, 1], [1, 2]], y=[0, 0, 1])
    ...     load_npz(f"{folder}/path.npz")
    Dataset('path': 3 nodes, 2 edges, 3 features, 2 classes)
    """
    path = Path(path)
    arrays = read_arrays(path)
    if "edges" not in arrays:
        raise InputError(f"{path} holds no array 'edges'. Expected shape (2, E): node positions, each edge once.")
    X = read_features(path, arrays)
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise InputError(f"{path}: 'edges' has shape {edges.shape}; (2, E) was expected.")
    node_ids, weights = arrays.get("node_ids"), arrays.get("weights")
    return Dataset(
        X=X,
        y=_labels(path, arrays),
        graph=Graph.from_edges(edges, num_nodes=shape_of(X)[0], weights=weights, node_ids=node_ids),
        node_ids=node_ids,
        class_names=arrays.get("class_names"),
        feature_names=arrays.get("feature_names"),
        groups=arrays.get("groups"),
        name=str(arrays.get("name", path.stem)),
        description=str(arrays.get("description", "")),
        source=str(arrays.get("source", "")),
    )


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an ``.npz`` file; one that holds Python objects is refused."""
    if not path.is_file():
        raise DataNotFoundError(f"there is no file {path}. Pass the path of an existing .npz file.")
    try:
        # opened here, because numpy leaves a damaged file open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read as an .npz file of plain arrays ({error}). It may be cut short, or hold "
            "Python objects (dtype=object); write it again with plain arrays, or with save_npz."
        ) from error


def read_features(path: Path, arrays: dict[str, NDArray[Any]]) -> Features:
    """The features among the arrays of the file ``path``, dense or CSR, as float32."""
    if "x" in arrays:
        dense = arrays["x"]
        if dense.ndim != 2 or dense.dtype.kind not in "biuf":
            raise FeatureError(
                f"{path}: 'x' has shape {dense.shape} and dtype {dense.dtype}; numbers of shape (n, d) were expected."
            )
        return np.ascontiguousarray(dense, dtype=np.float32)
    missing = [key for key in _CSR_KEYS if key not in arrays]
    if missing:
        raise FeatureError(
            f"{path} holds no features: {', '.join(missing)} missing. Expected a dense array 'x' of shape "
            f"(n, d), or a sparse matrix as {', '.join(_CSR_KEYS)}."
        )
    try:
        matrix = as_csr(*(arrays[key] for key in _CSR_KEYS))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise FeatureError(f"{path}: {', '.join(_CSR_KEYS)} are no valid CSR matrix: {error}.") from error
    return matrix


def _labels(path: Path, arrays: dict[str, NDArray[Any]]) -> NDArray[np.int64] | None:
    if "y" not in arrays:
        return None
    y = arrays["y"]
    if y.ndim != 1 or y.dtype.kind not in "iu" or (y.size and y.min() < -1):
        raise LabelError(
            f"{path}: 'y' has shape {y.shape} and dtype {y.dtype}; integers of shape (n,) were expected, "
            "classes 0, 1, ... and -1 for unlabelled."
        )
    count = len(arrays["class_names"]) if "class_names" in arrays else None
    if count is not None and y.size and y.max() >= count:
        raise LabelError(f"{path}: 'y' holds class {y.max()}, but 'class_names' has {count} entries.")
    return y.astype(np.int64)


def save_npz(dataset: Dataset, path: str | os.PathLike[str]) -> Path:
    """Write ``dataset`` to one compressed file that :func:`load_npz` reads.

    Useful once for the public data sets whose own files need pickles: afterwards they load without.

    Examples
    --------
    >>> import tempfile
    >>> from gsparc.datasets import load_npz, make_circle, save_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_npz(save_npz(make_circle(50, n_neighbors=4, random_state=0), f"{folder}/ring.npz")).X.shape
    (50, 22)
    """
    path = Path(path)
    if path.suffix != ".npz":
        path = path.with_name(path.name + ".npz")
    arrays: dict[str, Any] = _edges_once(dataset.graph)
    if sp.issparse(dataset.X):
        csr = sp.csr_array(dataset.X)
        arrays |= dict(zip(_CSR_KEYS, (csr.data, csr.indices, csr.indptr, np.array(csr.shape)), strict=True))
    else:
        arrays["x"] = dataset.X
    for key in ("y", "node_ids", "class_names", "feature_names", "groups"):
        if getattr(dataset, key) is not None:
            arrays[key] = np.asarray(getattr(dataset, key))
    for key in ("name", "description", "source"):
        arrays[key] = np.array(getattr(dataset, key))
    try:
        np.savez_compressed(path, **arrays)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}. Choose a folder that can be written.") from error
    return path


def _edges_once(graph: Graph) -> dict[str, NDArray[Any]]:
    """Edges [2, E] with the smaller end first, and their weights where there are any."""
    rows = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), np.diff(graph.indptr))
    keep = rows < graph.indices
    edges = np.stack([rows[keep], graph.indices[keep]])
    return {"edges": edges} if graph.weights is None else {"edges": edges, "weights": graph.weights[keep]}
