"""The Graph: an immutable undirected graph that can be cut together with the feature matrix."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from gsparc._csr import STREAMED, check_csr, component_labels, index_dtype
from gsparc._ids import IdLookup, as_node_ids, as_positions, positions_in_range
from gsparc.exceptions import GraphError

if TYPE_CHECKING:
    import networkx
    import torch_geometric.data

__all__ = ["Graph"]


class Graph:
    """An undirected graph in compressed sparse rows (CSR), never changed after it is made.

    Make one with :meth:`from_edges`, :meth:`from_scipy`, :meth:`from_pyg`, :meth:`from_networkx`,
    :meth:`from_table` or :meth:`from_any`, or open one that lies in a store with :meth:`open`. They all follow
    the same rules:

    - directions are ignored: ``(i, j)`` and ``(j, i)`` are the same edge, and both are stored;
    - self-loops are dropped (their number goes to the debug log);
    - repeated edges are merged into one. With weights, repeats of the same direction add up; where both
      directions are present and differ, the larger weight counts, so a symmetric matrix keeps its weights;
    - weights are finite and positive; an edge of weight zero is no edge and is left out;
    - nodes without edges are legal, and so is a graph without any edge, but not one without nodes.

    The constructor itself takes finished CSR arrays, copies them and checks all of the above.

    Parameters
    ----------
    indptr : array of int, shape (num_nodes + 1,)
        Row ``i`` is ``indices[indptr[i]:indptr[i + 1]]``.
    indices : array of int, shape (2 * num_edges,)
        Neighbours, ascending within each row; every edge appears in both of its rows.
    weights : array of float, shape (2 * num_edges,), optional
        One weight an entry. ``None`` means that all are one, and weights that are all one are stored as
        ``None``.
    node_ids : sequence of str or int, shape (num_nodes,), optional
        A unique name for each node.

    Notes
    -----
    Two graphs are equal when their arrays are. A Graph is not hashable, as numpy arrays are not.

    ``graph[idx]`` is the induced subgraph on the nodes ``idx``, in that order. It has ``shape`` and
    ``len`` too, which makes scikit-learn cut it together with X:
    ``cross_validate(estimator, X, y, params={"graph": graph})`` fits on the graph of the training nodes
    alone, so each held-out node is a node without edges.

    Examples
    --------
    >>> from gsparc import Graph
    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> graph
    Graph(num_nodes=4, num_edges=3)
    >>> graph.neighbors(1)
    array([0, 2], dtype=int32)
    >>> graph[[3, 2, 0]]
    Graph(num_nodes=3, num_edges=1)
    """

    __slots__ = ("_id_lookup", "_indices", "_indptr", "_node_ids", "_weights")
    __hash__ = None  # type: ignore[assignment]

    _indptr: NDArray[np.int64]
    _indices: NDArray[Any]
    _weights: NDArray[np.float32] | None
    _node_ids: NDArray[Any] | None
    _id_lookup: Any

    def __init__(
        self,
        indptr: ArrayLike,
        indices: ArrayLike,
        weights: ArrayLike | None = None,
        node_ids: Iterable[Any] | None = None,
    ) -> None:
        starts, ends = np.array(indptr), np.array(indices)
        values = None if weights is None else np.array(weights)
        check_csr(starts, ends, values)
        nodes = starts.size - 1
        names = None if node_ids is None else as_node_ids(node_ids, nodes)
        self._set(starts.astype(np.int64), ends.astype(index_dtype(nodes)), values, names)

    def _set(
        self,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        weights: NDArray[Any] | None,
        node_ids: NDArray[Any] | None,
    ) -> None:
        if weights is not None:
            weights = None if np.all(weights == 1) else weights.astype(np.float32, copy=False)
        self._indptr, self._indices, self._weights, self._node_ids = indptr, indices, weights, node_ids
        self._id_lookup = None
        for array in (indptr, indices, weights, node_ids):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def _from_csr(
        cls,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        weights: NDArray[Any] | None = None,
        node_ids: NDArray[Any] | None = None,
    ) -> Graph:
        """Take over arrays that are known to be right: no copy, no check."""
        graph = cls.__new__(cls)
        graph._set(indptr, indices, weights, node_ids)
        return graph

    @classmethod
    def _from_mapped(cls, indptr: NDArray[Any], indices: NDArray[Any], weights: NDArray[Any] | None) -> Graph:
        """Take over arrays of a store, which are known to be right and are not looked at."""
        graph = cls._from_csr(indptr, indices)
        graph._weights = weights
        return graph

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, node_ids: bool = False) -> Graph:
        """The graph of a store that ``gsparc ingest`` wrote, mapped from disk and not read.

        Parameters
        ----------
        folder : path
        node_ids : bool
            Attach the ids of the nodes. Strings are read into memory for it; whole numbers stay mapped.

        See Also
        --------
        gsparc.open_store : The same with features and classes.
        """
        from gsparc._store import open_store

        store = open_store(folder)
        graph = store.graph
        return graph if not node_ids else cls._with_ids(graph, store.node_ids)

    @classmethod
    def _with_ids(cls, graph: Graph, node_ids: NDArray[Any]) -> Graph:
        named = cls._from_mapped(graph._indptr, graph._indices, graph._weights)
        named._node_ids = node_ids
        return named

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each row starts, shape (num_nodes + 1,); read-only."""
        return self._indptr

    @property
    def indices(self) -> NDArray[Any]:
        """Neighbours of all rows, int32 (int64 from 2**31 nodes on); read-only."""
        return self._indices

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """One float32 an entry of ``indices``, or ``None`` when all are one; read-only."""
        return self._weights

    @property
    def node_ids(self) -> NDArray[Any] | None:
        """One unique id a node, or ``None``; read-only."""
        return self._node_ids

    @property
    def num_nodes(self) -> int:
        """Number of nodes, those without edges included."""
        return self._indptr.size - 1

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return self._indices.size // 2

    @property
    def shape(self) -> tuple[int, int]:
        """``(num_nodes, num_nodes)``, as an adjacency matrix has."""
        return self.num_nodes, self.num_nodes

    def __len__(self) -> int:
        return self.num_nodes

    def __repr__(self) -> str:
        notes = ", weighted" * (self._weights is not None) + ", with node ids" * (self._node_ids is not None)
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{notes})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        pairs = (
            (self._indptr, other._indptr),
            (self._indices, other._indices),
            (self._weights, other._weights),
            (self._node_ids, other._node_ids),
        )
        return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)

    def __reduce__(self) -> tuple[Any, ...]:
        # numpy forgets "read-only" when it is copied or sent to a worker; going through here restores it
        return Graph._from_csr, (self._indptr, self._indices, self._weights, self._node_ids)

    def degrees(self) -> NDArray[np.float64]:
        """Sum of the weights of each node's edges.

        Examples
        --------
        >>> Graph.from_edges([[0, 0], [1, 2]], weights=[1.0, 0.5]).degrees()
        array([1.5, 1. , 0.5])
        """
        if self._weights is None:
            return np.diff(self._indptr).astype(np.float64)
        sums = np.zeros(self.num_nodes)
        rows = np.flatnonzero(np.diff(self._indptr))  # reduceat misreads empty rows
        if rows.size:
            sums[rows] = np.add.reduceat(self._weights, self._indptr[rows], dtype=np.float64)
        return sums

    def neighbors(self, i: int) -> NDArray[Any]:
        """Positions of the nodes that share an edge with node ``i``, ascending."""
        if not -self.num_nodes <= i < self.num_nodes:
            raise GraphError(f"node {i} is out of range for a graph of {self.num_nodes} nodes.")
        i = int(i) % self.num_nodes
        return self._indices[self._indptr[i] : self._indptr[i + 1]]

    def connected_components(self, device: str = "cpu") -> tuple[int, NDArray[np.int32]]:
        """Number of connected components, and the component of each node (numbered by first appearance).

        Parameters
        ----------
        device : str
            ``"cuda"`` finds them on a GPU; the answer is the same.

        Examples
        --------
        >>> Graph.from_edges([[0, 1], [2, 3]], num_nodes=5).connected_components()
        (3, array([0, 1, 0, 1, 2], dtype=int32))
        """
        from scipy.sparse.csgraph import connected_components

        if device != "cpu":
            return self._components_on(device)
        if self._indices.size > STREAMED:
            return component_labels(self._indptr, self._indices)
        # on a symmetric matrix strong components are the components, and no transposed copy is made
        count, labels = connected_components(self._matrix(), directed=True, connection="strong")
        _, first = np.unique(labels, return_index=True)
        renumber = np.empty(count, dtype=np.int32)
        renumber[np.argsort(first)] = np.arange(count, dtype=np.int32)
        return int(count), renumber[labels]

    def _components_on(self, device: str) -> tuple[int, NDArray[np.int32]]:
        """The components by torch; a component's smallest node names it, so they come in order of appearance."""
        import torch

        from gsparc.ops.components import connected_labels

        arrays = (torch.tensor(array, device=device) for array in (self._indptr, self._indices))
        names, labels = torch.unique(connected_labels(*arrays), return_inverse=True)
        return len(names), labels.to(torch.int32).cpu().numpy()

    def ids_to_index(self, ids: Any) -> NDArray[np.int64]:
        """Positions of nodes given by id; without ``node_ids`` the ids are positions already.

        Examples
        --------
        >>> graph = Graph.from_edges([[0], [1]], node_ids=["bash", "libc6"])
        >>> graph.ids_to_index(["libc6"])
        array([1])
        """
        if np.ndim(ids) == 0:
            ids = [ids]
        if self._node_ids is None:
            return positions_in_range(ids, self.num_nodes)
        if self._id_lookup is None:
            self._id_lookup = IdLookup(self._node_ids)
        return self._id_lookup.positions(ids, what="ids")

    def _matrix(self) -> sp.csr_array:
        """The adjacency matrix over the graph's own arrays, without copies; not to be changed."""
        data = np.ones(self._indices.size, dtype=np.int8) if self._weights is None else self._weights
        return sp.csr_array((data, self._indices, self._indptr), shape=self.shape)

    def __getitem__(self, idx: Any) -> Graph:
        """The induced subgraph on the nodes ``idx``, which keep the order they are given in."""
        nodes = as_positions(idx, self.num_nodes)
        part = self._matrix()[nodes][:, nodes]
        part.sort_indices()
        return Graph._from_csr(
            part.indptr.astype(np.int64),
            part.indices.astype(index_dtype(nodes.size), copy=False),
            None if self._weights is None else part.data,
            None if self._node_ids is None else self._node_ids[nodes],
        )

    def isolate(self, idx: Any) -> Graph:
        """The same nodes without the edges of the nodes ``idx``; an index or a mask of none leaves all edges.

        Examples
        --------
        >>> Graph.from_edges([[0, 1, 2], [1, 2, 3]]).isolate([1])
        Graph(num_nodes=4, num_edges=1)
        """
        nodes = as_positions(idx, self.num_nodes, or_none=True)
        if not nodes.size:
            return self
        gone = np.zeros(self.num_nodes, bool)
        gone[nodes] = True
        kept = ~gone[self._indices]
        kept[np.repeat(gone, np.diff(self._indptr))] = False
        sums = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
        weights = None if self._weights is None else self._weights[kept]
        return Graph._from_csr(sums[self._indptr], self._indices[kept], weights, self._node_ids)

    # The work of the ways in and out is in gsparc.convert, which imports this class: hence the late imports.

    @classmethod
    def empty(cls, num_nodes: int) -> Graph:
        """A graph of ``num_nodes`` nodes and no edge."""
        return cls.from_edges(np.empty((2, 0), dtype=np.int64), num_nodes)

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        num_nodes: int | None = None,
        *,
        weights: Any = None,
        node_ids: Iterable[Any] | None = None,
    ) -> Graph:
        """A graph from pairs of node positions.

        Parameters
        ----------
        edges : array, tensor or list of int, shape (2, E) or (E, 2)
            A 2 x 2 array or list of lists is read as (2, E): sources in the first row, targets in the
            second. A list of tuples of two is a list of edges, however long: ``[(0, 1), (2, 3)]`` joins 0
            to 1 and 2 to 3.
        num_nodes : int, optional
            Default: the number of ``node_ids``, or the largest position + 1.
        weights : array of float, shape (E,), optional
        node_ids : sequence of str or int, optional

        Examples
        --------
        >>> Graph.from_edges([[0, 1], [1, 0], [1, 1], [2, 1]], num_nodes=5)
        Graph(num_nodes=5, num_edges=2)
        >>> Graph.from_edges([(0, 1), (2, 3)]).neighbors(0)
        array([1], dtype=int32)
        """
        from gsparc import convert

        return convert.graph_from_edges(edges, num_nodes, weights=weights, node_ids=node_ids)

    @classmethod
    def from_scipy(cls, A: Any, *, node_ids: Iterable[Any] | None = None) -> Graph:
        """A graph from a square sparse matrix; a matrix whose stored values are all one is unweighted.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> Graph.from_scipy(sp.csr_array([[0, 2.5], [2.5, 0]])).weights
        array([2.5, 2.5], dtype=float32)
        """
        from gsparc import convert

        return convert.graph_from_scipy(A, node_ids=node_ids)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """A graph from a PyG ``Data``: ``edge_index``, ``num_nodes`` and, if there, a weight an edge.

        Weights are ``edge_weight``, or else ``edge_attr`` when it has one column; wider ``edge_attr`` are
        features of edges and are left out.
        """
        from gsparc import convert

        return convert.graph_from_pyg(data)

    @classmethod
    def from_networkx(cls, G: Any, weight: str | None = None) -> Graph:
        """A graph from a networkx graph.

        Nodes must be strings or integers. Where they are the integers 0 to n - 1, each is its own position, in
        whatever order they were added: node ``i`` goes with row ``i`` of X. Otherwise positions follow the order of
        ``G.nodes``, and the nodes become ``node_ids``.

        Parameters
        ----------
        G : networkx graph
        weight : str, optional
            Attribute of the edges that holds their weight; an edge that lacks it has weight one. Default:
            unweighted.

        Examples
        --------
        >>> import networkx as nx
        >>> Graph.from_networkx(nx.Graph([(2, 0), (0, 1)])).neighbors(0)
        array([1, 2], dtype=int32)
        """
        from gsparc import convert

        return convert.graph_from_networkx(G, weight=weight)

    @classmethod
    def from_table(
        cls,
        edges: Any,
        *,
        source: str | int | None = None,
        target: str | int | None = None,
        weight: str | int | None = None,
        nodes: Any = None,
        id: str | int | None = None,
    ) -> Graph:
        """A graph from a pandas, polars or pyarrow table with one edge a row.

        Parameters
        ----------
        edges : table
            Ends are strings or integers.
        source, target : str, optional
            Columns of the two ends. Default: source/target, src/dst or from/to where the table has them,
            otherwise its first two columns. pandas may name columns by whole numbers, here as below.
        weight : str, optional
            Column of weights. Default: unweighted.
        nodes : table or sequence of ids, optional
            Fixes the nodes and their order; an edge to any other id is an error. Default: the ids found in
            the edges, sorted (integers by value, strings by code point), whatever the order of the rows.
        id : str, optional
            Column of ids in a table of ``nodes``. Default: id, node_id, node or name, otherwise the first.

        Examples
        --------
        >>> import pyarrow as pa
        >>> table = pa.table({"package": ["vim", "bash"], "needs": ["libc6", "libc6"]})
        >>> Graph.from_table(table).node_ids
        array(['bash', 'libc6', 'vim'], dtype='<U5')
        """
        from gsparc import convert

        return convert.graph_from_table(edges, source=source, target=target, weight=weight, nodes=nodes, id_column=id)

    @classmethod
    def from_any(cls, obj: Any, num_nodes: int | None = None) -> Graph:
        """A graph from whatever describes one.

        Parameters
        ----------
        obj : Graph, sparse matrix of scipy or torch, PyG Data, networkx graph, table or array
            An array is a list of edges, (2, E) or (E, 2); a square one, larger than 2 x 2, is an adjacency
            matrix of zeros and ones. A sparse torch tensor is an adjacency matrix too. The nodes of a networkx graph
            are positions where they are 0 to n - 1, else they come in its own order.
        num_nodes : int, optional
            Number of nodes that the graph must have. The ids of a table are positions when it is given.
        """
        from gsparc import convert

        return convert.graph_from_any(obj, num_nodes)

    def to_scipy(self) -> sp.csr_array:
        """The adjacency matrix as float32 CSR; its arrays are copies and may be changed."""
        data = np.ones(self._indices.size, np.float32) if self._weights is None else self._weights.copy()
        return sp.csr_array((data, self._indices.copy(), self._indptr.copy()), shape=self.shape)

    def to_pyg(self, X: Any = None, y: Any = None) -> torch_geometric.data.Data:
        """A PyG ``Data`` with ``edge_index`` in both directions, and ``edge_attr`` when weighted."""
        from gsparc import convert

        return convert.graph_to_pyg(self, X, y)

    def to_networkx(self) -> networkx.Graph:
        """A networkx graph; its nodes are the node ids, or positions where there are none."""
        from gsparc import convert

        return convert.graph_to_networkx(self)
