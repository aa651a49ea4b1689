"""What a data set is: features, labels and a graph whose rows agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._typing import Features
from gsparc.exceptions import GraphShapeError, LabelError
from gsparc.graph import Graph

__all__ = ["Dataset", "DatasetInfo", "as_csr", "shape_of"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A graph whose nodes have features and, perhaps, classes.

    Attributes
    ----------
    X : ndarray or scipy.sparse.csr_array of float32, shape (n, d)
        Features, one row a node.
    y : ndarray of int64, shape (n,), or None
        Classes 0, 1, ...; -1 is unlabelled.
    graph : Graph
        Undirected graph on the same n nodes.
    node_ids : ndarray of str or int, or None
        Names of the nodes; ``None`` where a node is only its position.
    class_names, feature_names : ndarray of str, or None
        What the classes and the columns of X are called.
    name, description, source : str
        What it is and where it comes from.
    groups : ndarray of int, shape (n,), or None
        Nodes of one group share (nearly) one text; grouped splits keep them on one side.
    coordinates : ndarray of float64, shape (n, 1 or 2), or None
        Generated manifolds only: where each point lies on the manifold.
    extra : dict
        Other facts that a generator knows: the settings that give the true structure.

    Examples
    --------
    >>> from gsparc.datasets import make_blocks
    >>> make_blocks(40, 100, 3, branching=(2, 2), random_state=0)
    Dataset('blocks': 40 nodes, 100 edges, 3 features, 2 classes)
    """

    X: Features
    y: NDArray[np.int64] | None
    graph: Graph
    node_ids: NDArray[Any] | None = None
    class_names: NDArray[Any] | None = None
    feature_names: NDArray[Any] | None = None
    name: str = "data"
    description: str = ""
    source: str = ""
    groups: NDArray[Any] | None = None
    coordinates: NDArray[np.float64] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = self.graph.num_nodes
        rows, _ = shape_of(self.X)
        if rows != n:
            raise GraphShapeError(
                f"data set {self.name!r}: graph has {n} nodes but X has {rows} rows. "
                "Give X one row a node, nodes without edges included."
            )
        for label in ("y", "node_ids", "groups", "coordinates"):
            values = getattr(self, label)
            if values is not None and len(values) != n:
                raise LabelError(
                    f"data set {self.name!r}: {label} has {len(values)} entries, but there are {n} nodes. "
                    "Give one entry a node."
                )

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 where there are no labels."""
        if self.class_names is not None:
            return len(self.class_names)
        return 0 if self.y is None or not self.y.size else int(self.y.max()) + 1

    def __repr__(self) -> str:
        rows, columns = shape_of(self.X)
        return (
            f"Dataset({self.name!r}: {rows:,} nodes, {self.graph.num_edges:,} edges, "
            f"{columns:,} features, {self.num_classes} classes)"
        )


@dataclass(frozen=True)
class DatasetInfo:
    """One line of :func:`list_datasets`: the size of a data set and whether it is on this machine."""

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    source: str
    available: bool
    how_to_get: str


def as_csr(data: Any, indices: Any, indptr: Any, shape: Any) -> sp.csr_array:
    """A float32 CSR array whose two index arrays share one type, 32 bits wherever that is enough."""
    kind = np.int32 if len(data) < 2**31 and int(shape[1]) < 2**31 else np.int64
    parts = (
        np.asarray(data, dtype=np.float32),
        np.asarray(indices, dtype=kind),
        np.asarray(indptr, dtype=kind),
    )
    return sp.csr_array(parts, shape=(int(shape[0]), int(shape[1])))


def shape_of(X: Features) -> tuple[int, int]:
    """Rows and columns; scipy types the shape of its arrays as one that may be missing."""
    rows, columns = X.shape  # pyright: ignore[reportGeneralTypeIssues]
    return int(rows), int(columns)
