"""The ways into a Graph and out of it: arrays, scipy, PyG, networkx and tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._csr import check_edge_ids, check_weights, merge_edges, merge_weighted_edges
from gsparc._ids import IdLookup, as_id_column, as_node_ids, ids_to_numpy
from gsparc._optional import import_optional
from gsparc.exceptions import GraphError, GraphShapeError
from gsparc.graph import Graph

__all__ = [
    "graph_from_any",
    "graph_from_edges",
    "graph_from_networkx",
    "graph_from_pyg",
    "graph_from_scipy",
    "graph_from_table",
    "graph_to_networkx",
    "graph_to_pyg",
]

logger = logging.getLogger(__name__)

_END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))
_ID_NAMES = ("id", "node_id", "node", "name")


def to_numpy(values: Any) -> NDArray[Any]:
    """A numpy array from an array, a torch tensor on any device, or a list; no copy where none is needed."""
    if hasattr(values, "detach"):
        if _is_sparse_tensor(values):
            raise GraphError("a sparse torch tensor came, expected a dense array. As a graph use Graph.from_any.")
        values = values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise GraphError(f"expected a regular array of numbers, got rows of unequal length ({error}).") from error


def graph_from_edges(
    edges: Any, num_nodes: int | None = None, *, weights: Any = None, node_ids: Iterable[Any] | None = None
) -> Graph:
    """See :meth:`gsparc.Graph.from_edges`."""
    pairs = _edge_pairs(edges)
    ids = None
    if node_ids is not None:
        ids = as_node_ids(node_ids, num_nodes)
        num_nodes = ids.size
    pairs, count = check_edge_ids(pairs, _check_num_nodes(num_nodes))
    if weights is None:
        return Graph._from_csr(*merge_edges(pairs[0], pairs[1], count), ids)
    values = check_weights(to_numpy(weights), pairs.shape[1])
    return Graph._from_csr(*merge_weighted_edges(pairs[0], pairs[1], values, count), ids)


def _edge_pairs(edges: Any) -> NDArray[Any]:
    """Edges as (2, E), a view where it can be."""
    pairs = to_numpy(edges)
    if pairs.size == 0:
        return np.empty((2, 0), dtype=np.int64)
    if _is_list_of_pairs(edges):
        return pairs.T
    if pairs.ndim == 2 and pairs.shape[0] == 2:
        return pairs
    if pairs.ndim == 2 and pairs.shape[1] == 2:
        return pairs.T
    raise GraphError(f"edges have shape {pairs.shape}; (2, E) or (E, 2) was expected: one pair of nodes an edge.")


def _is_list_of_pairs(edges: Any) -> bool:
    """Whether this is a list of tuples of two: then each tuple is an edge, even where there are two of them."""
    return isinstance(edges, list) and all(isinstance(edge, tuple) and len(edge) == 2 for edge in edges)


def _check_num_nodes(num_nodes: Any) -> int | None:
    if num_nodes is None:
        return None
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, (int, np.integer)):
        raise GraphError(f"num_nodes={num_nodes!r} is not an integer >= 1.")
    return int(num_nodes)


def graph_from_scipy(A: Any, *, node_ids: Iterable[Any] | None = None) -> Graph:
    """See :meth:`gsparc.Graph.from_scipy`."""
    if not sp.issparse(A):
        raise GraphError(f"expected a scipy sparse matrix, got {type(A).__name__}. Use Graph.from_any.")
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise GraphShapeError(
            f"an adjacency matrix is square, got shape {A.shape}. If cross-validation cut it, pass a "
            "gsparc.Graph instead: it is cut by rows and columns together, a plain matrix by rows only."
        )
    count = A.shape[0]
    ids = None if node_ids is None else as_node_ids(node_ids, count)
    check_edge_ids(np.empty(0, np.int64), count)
    matrix = A.tocoo()
    (row, col), data = matrix.coords, matrix.data
    stored = data != 0
    if not stored.all():
        row, col, data = row[stored], col[stored], data[stored]
    if np.all(data == 1):
        return Graph._from_csr(*merge_edges(row, col, count), ids)
    return Graph._from_csr(*merge_weighted_edges(row, col, check_weights(data, row.size), count), ids)


def _is_sparse_tensor(obj: Any) -> bool:
    """Whether this is a torch tensor in one of its sparse layouts; torch need not be loaded to know."""
    return hasattr(obj, "detach") and str(getattr(obj, "layout", "")).startswith("torch.sparse")


def _graph_from_sparse_tensor(tensor: Any) -> Graph:
    matrix = tensor.detach().cpu()
    if matrix.ndim != 2 or matrix.dense_dim() != 0:
        raise GraphShapeError(
            f"a sparse tensor of shape {tuple(tensor.shape)} came, expected an adjacency matrix: two sparse dimensions."
        )
    matrix = matrix.to_sparse_coo()
    # not coalesced, which would add up repeats: ones given twice are one edge, as in a scipy matrix
    indices, values = matrix._indices().numpy(), matrix._values()
    return graph_from_scipy(sp.coo_array((values.numpy(), (indices[0], indices[1])), shape=tuple(matrix.shape)))


def graph_from_pyg(data: Any) -> Graph:
    """See :meth:`gsparc.Graph.from_pyg`."""
    edges = getattr(data, "edge_index", None)
    if edges is None:
        raise GraphError(
            f"{type(data).__name__} has no edge_index. Pass a homogeneous torch_geometric.data.Data with "
            "edge_index (HeteroData: data.to_homogeneous())."
        )
    weights = getattr(data, "edge_weight", None)
    if weights is None:
        weights = _single_column(getattr(data, "edge_attr", None))
    return graph_from_edges(edges, data.num_nodes, weights=None if weights is None else to_numpy(weights))


def _single_column(edge_attr: Any) -> NDArray[Any] | None:
    """``edge_attr`` as weights, or nothing when it holds several features an edge."""
    if edge_attr is None:
        return None
    values = to_numpy(edge_attr)
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim == 1:
        return values
    logger.debug("edge_attr of shape %s holds features of edges, not weights: left out", values.shape)
    return None


def graph_from_networkx(G: Any, weight: str | None = None) -> Graph:
    """See :meth:`gsparc.Graph.from_networkx`."""
    count = G.number_of_nodes()
    if count == 0:
        raise GraphError("the networkx graph has no node; a graph needs at least one.")
    try:
        node_ids = as_node_ids(list(G.nodes))
    except GraphError as error:
        raise GraphError(
            "the nodes of the networkx graph are neither all strings nor all integers. Rename them first: "
            "networkx.convert_node_labels_to_integers(G)."
        ) from error
    # ids are distinct, so these two say that they are 0, 1, 2, ... in some order: then each is its own position, as
    # in a table or an array, whatever the order in which the nodes were added
    numbered = node_ids.dtype.kind == "i" and node_ids.min() == 0 and node_ids.max() == count - 1
    place = dict(zip(G.nodes, node_ids.tolist() if numbered else range(count), strict=True))
    # networkx keeps edges in dictionaries, so this is the one builder that walks them one by one
    ends = np.fromiter((place[end] for edge in G.edges() for end in edge), np.int64, 2 * G.number_of_edges())
    weights = None if weight is None else _networkx_weights(G, weight)
    return graph_from_edges(ends.reshape(-1, 2).T, count, weights=weights, node_ids=None if numbered else node_ids)


def _networkx_weights(G: Any, weight: str) -> NDArray[np.float64]:
    """The attribute of every edge, 1 where an edge lacks it; one that no edge has is a mistake."""
    missing = object()
    values = [value for _, _, value in G.edges(data=weight, default=missing)]
    if values and all(value is missing for value in values):
        names = sorted({str(name) for _, _, data in G.edges(data=True) for name in data})
        known = f"they have {', '.join(map(repr, names))}" if names else "they have none at all"
        raise GraphError(f"no edge has the attribute {weight!r}; {known}. Name one of those, or leave weight= out.")
    for (one, two), value in zip(G.edges(), values, strict=True):
        if value is not missing and not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
            raise GraphError(
                f"the edge between {one!r} and {two!r} has {weight}={value!r}; a number was expected. "
                "Turn the weights into numbers first."
            )
    return np.fromiter((1 if value is missing else value for value in values), np.float64, len(values))


def graph_from_table(
    edges: Any,
    *,
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    nodes: Any = None,
    id_column: str | int | None = None,
) -> Graph:
    """See :meth:`gsparc.Graph.from_table`."""
    table = _as_table(edges, "edges")
    source, target = _end_columns(table, source, target)
    one = as_id_column(_column(table, source), f"column {source!r}")
    two = as_id_column(_column(table, target), f"column {target!r}")
    if one.type != two.type:
        raise GraphError(
            f"column {source!r} holds {one.type} and column {target!r} {two.type}: ids of both ends must "
            "be of the same type."
        )
    node_ids = _sorted_ids(one, two) if nodes is None else as_node_ids(_node_column(nodes, id_column))
    lookup = IdLookup(node_ids)
    pairs = np.empty((2, len(one)), dtype=np.int64)
    pairs[0] = lookup.positions(one, f"column {source!r}")
    pairs[1] = lookup.positions(two, f"column {target!r}")
    weights = None if weight is None else _column(table, weight).to_numpy()
    return graph_from_edges(pairs, node_ids.size, weights=weights, node_ids=node_ids)


def _as_table(table: Any, what: str) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(table, eager_only=True)
    except TypeError as error:
        raise GraphError(
            f"{what} is a {type(table).__name__}; a pandas, polars or pyarrow table was expected (collect a "
            "lazy one first). For an array of positions use Graph.from_edges."
        ) from error


def _column(table: Any, name: Any) -> Any:
    if name not in table.columns:
        raise GraphError(f"the table has no column {name!r}; it has {', '.join(map(repr, table.columns))}.")
    return table.get_column(name)  # and not table[name]: pandas has columns named 0, 1, ..., which would be rows there


def _end_columns(table: Any, source: Any, target: Any) -> tuple[Any, Any]:
    columns = list(table.columns)
    if (source is None) != (target is None):
        raise GraphError("name both source= and target=, or neither.")
    if source is not None and target is not None:
        return source, target
    if len(columns) < 2:
        raise GraphError(f"an edge table needs two columns of node ids, this one has {len(columns)}.")
    for one, two in _END_NAMES:
        if one in columns and two in columns:
            return one, two
    _refuse_adjacency(table)
    return columns[0], columns[1]


def _refuse_adjacency(table: Any) -> None:
    """A square table of numbers, symmetric or all of zeros and ones, holds no ids in its first two columns."""
    import narwhals as nw

    rows, width = table.shape
    if rows != width or width < 3 or not all(kind.is_numeric() or kind == nw.Boolean for kind in table.schema.values()):
        return
    values = np.asarray(table.to_numpy(), dtype=np.float64)
    if np.array_equal(values, values.T) or np.isin(values, (0, 1)).all():
        raise GraphError(
            f"the table of {rows} rows and {width} columns looks like an adjacency matrix; a table of edges was "
            "expected, one edge a row. Pass Graph.from_scipy(scipy.sparse.csr_array(table.to_numpy())) instead, or "
            "name source= and target= of Graph.from_table if these are edges after all."
        )


def _node_column(nodes: Any, id_column: str | int | None) -> Any:
    import narwhals as nw

    if not nw.dependencies.is_into_dataframe(nodes):
        return nodes
    table = _as_table(nodes, "nodes")
    if id_column is None:
        id_column = next((name for name in _ID_NAMES if name in table.columns), table.columns[0])
    return _column(table, id_column)


def _sorted_ids(one: Any, two: Any) -> NDArray[Any]:
    import pyarrow as pa

    distinct = pa.chunked_array([one.unique(), two.unique()]).unique()
    if len(distinct) == 0:
        raise GraphError("the edge table is empty, so it names no node. Pass nodes= to say which there are.")
    return np.sort(ids_to_numpy(distinct))


def graph_from_any(obj: Any, num_nodes: int | None = None) -> Graph:
    """See :meth:`gsparc.Graph.from_any`."""
    import narwhals as nw

    num_nodes = _check_num_nodes(num_nodes)
    if isinstance(obj, Graph):
        graph = obj
    elif sp.issparse(obj):
        graph = graph_from_scipy(obj)
    elif _is_sparse_tensor(obj):
        graph = _graph_from_sparse_tensor(obj)
    elif hasattr(obj, "edge_index"):
        graph = graph_from_pyg(obj)
    elif hasattr(obj, "number_of_nodes") and hasattr(obj, "edges"):
        graph = graph_from_networkx(obj)
    elif nw.dependencies.is_into_dataframe(obj):
        graph = graph_from_table(obj) if num_nodes is None else _from_table_of_positions(obj, num_nodes)
    elif _is_list_of_pairs(obj):
        graph = graph_from_edges(obj, num_nodes)
    else:
        graph = _from_array(obj, num_nodes)
    if num_nodes is not None and graph.num_nodes != num_nodes:
        raise GraphShapeError(
            f"graph has {graph.num_nodes} nodes but {num_nodes} were expected, one a row of X. Pass a "
            "gsparc.Graph: it is cut together with X in cross-validation; a plain matrix is cut by rows only."
        )
    return graph


def _from_table_of_positions(edges: Any, num_nodes: int) -> Graph:
    table = _as_table(edges, "edges")
    ends = _end_columns(table, None, None)
    for name in ends:
        if ids_to_numpy(as_id_column(_column(table, name), f"column {name!r}")[:1]).dtype.kind != "i":
            raise GraphError(
                f"column {name!r} of the edge table holds strings; the ends of edges were expected as rows of X, "
                f"0 to {num_nodes - 1}. Pass Graph.from_table(edges, nodes=ids) instead, with ids the id of each "
                "row of X, in the order of the rows."
            )
    return graph_from_table(edges, source=ends[0], target=ends[1], nodes=np.arange(num_nodes))


def _from_array(obj: Any, num_nodes: int | None) -> Graph:
    if obj is None or isinstance(obj, (str, bytes, dict)):
        raise GraphError(
            f"cannot read a graph from {type(obj).__name__}. Pass a Graph, a scipy sparse matrix, a PyG "
            "Data, a networkx graph, a table of edges, or an array of shape (2, E)."
        )
    array = to_numpy(obj)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape == (2, 2):
        return graph_from_edges(array, num_nodes)
    if array.dtype.kind not in "biuf" or not np.all((array == 0) | (array == 1)):
        raise GraphError(
            f"a square array of shape {array.shape} is read as an adjacency matrix and must hold zeros and "
            "ones only. For weights use Graph.from_scipy(scipy.sparse.csr_array(W)), for edges from_edges."
        )
    return graph_from_edges(np.stack(np.nonzero(array)), array.shape[0])


def graph_to_pyg(graph: Graph, X: Any = None, y: Any = None) -> Any:
    """See :meth:`gsparc.Graph.to_pyg`."""
    pyg = import_optional("torch_geometric.data", extra="pyg", purpose="Graph.to_pyg")
    import torch

    rows = np.repeat(np.arange(graph.num_nodes, dtype=np.int64), np.diff(graph.indptr))
    data = pyg.Data(
        edge_index=torch.from_numpy(np.stack([rows, graph.indices.astype(np.int64)])),
        num_nodes=graph.num_nodes,
    )
    if graph.weights is not None:
        data.edge_attr = torch.from_numpy(graph.weights.copy())
    if X is not None:
        X = X.toarray() if sp.issparse(X) else X
        data.x = X if isinstance(X, torch.Tensor) else torch.as_tensor(np.asarray(X), dtype=torch.float32)
    if y is not None:
        data.y = y if isinstance(y, torch.Tensor) else torch.as_tensor(np.array(y))
    return data


def graph_to_networkx(graph: Graph) -> Any:
    """See :meth:`gsparc.Graph.to_networkx`."""
    nx = import_optional("networkx", extra="networkx", purpose="Graph.to_networkx")
    names = list(range(graph.num_nodes)) if graph.node_ids is None else graph.node_ids.tolist()
    result = nx.Graph()
    result.add_nodes_from(names)
    rows = np.repeat(np.arange(graph.num_nodes, dtype=np.int64), np.diff(graph.indptr))
    once = rows < graph.indices
    pairs = zip(rows[once].tolist(), graph.indices[once].tolist(), strict=True)
    if graph.weights is None:
        result.add_edges_from((names[i], names[j]) for i, j in pairs)
    else:
        weights = graph.weights[once].tolist()
        result.add_weighted_edges_from((names[i], names[j], w) for (i, j), w in zip(pairs, weights, strict=True))
    return result
