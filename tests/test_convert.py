"""The ways into a Graph and out of it."""

from __future__ import annotations

import logging
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from gsparc import _csr
from gsparc.exceptions import GraphError, GraphShapeError
from gsparc.graph import Graph

with warnings.catch_warnings():
    # importing torch_geometric calls torch.jit.script, which recent versions of torch deprecate
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data, HeteroData

TRIANGLE = [[0, 1, 2], [1, 2, 0]]


def dense(graph: Graph) -> np.ndarray:
    return graph.to_scipy().toarray()


# edges


@pytest.mark.parametrize(
    "edges",
    [
        TRIANGLE,
        np.array(TRIANGLE, dtype=np.int32),
        np.array(TRIANGLE, dtype=np.uint64),
        np.array(TRIANGLE, dtype=float),
        torch.tensor(TRIANGLE),
        [(0, 1), (1, 2), (2, 0)],
        np.asfortranarray(np.array(TRIANGLE).T),
    ],
)
def test_every_form_of_edges(edges) -> None:
    assert_array_equal(dense(Graph.from_edges(edges)), [[0, 1, 1], [1, 0, 1], [1, 1, 0]])


def test_two_by_two_is_read_as_rows_of_ends() -> None:
    # as (2, E): 0 - 1 and 2 - 3; as (E, 2) it would be 0 - 2 and 1 - 3
    graph = Graph.from_edges([[0, 2], [1, 3]])
    assert_array_equal(graph.neighbors(0), [1])
    assert_array_equal(graph.neighbors(2), [3])


@pytest.mark.parametrize("read", [Graph.from_edges, Graph.from_any])
def test_a_list_of_tuples_is_a_list_of_edges(read) -> None:
    assert read([(0, 1), (2, 3)]) == Graph.from_edges([[0, 2], [1, 3]])
    assert read([(0, 1)]) == Graph.from_edges([[0], [1]])
    assert read([(0, 1), (1, 2), (2, 3)]) == Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    # two rows of any other length, and arrays, stay (2, E)
    assert read([(0, 1, 2), (1, 2, 3)]) == Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    assert read(np.array([(0, 1), (2, 3)])) == Graph.from_edges([[0, 1], [2, 3]])


def test_weights_of_a_list_of_tuples() -> None:
    graph = Graph.from_edges([(0, 1), (1, 2)], weights=[2.0, 0.5])
    assert_array_equal(dense(graph), [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]])


def test_repeats_and_self_loops(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="gsparc"):
        graph = Graph.from_edges([[0, 1, 0, 1, 2], [1, 0, 1, 1, 2]], num_nodes=4)
    assert graph == Graph.from_edges([[0], [1]], num_nodes=4)
    assert "dropped 2 self-loops" in caplog.text


def test_input_edges_are_left_alone() -> None:
    edges = np.array([[2, 1, 1], [1, 0, 1]])
    before = edges.copy()
    Graph.from_edges(edges)
    assert_array_equal(edges, before)
    assert edges.flags.writeable


def test_weights_rule() -> None:
    # 0 -> 1 twice: 1 + 2 = 3, against 1 -> 0 with 2.5: the larger counts.
    # 2 -> 1 is given one way only, 1 -> 1 is dropped.
    graph = Graph.from_edges([[0, 0, 1, 2, 1], [1, 1, 0, 1, 1]], weights=[1, 2, 2.5, 0.25, 9])
    assert_array_equal(dense(graph), [[0, 3, 0], [3, 0, 0.25], [0, 0.25, 0]])
    assert graph.weights is not None
    assert graph.weights.dtype == np.float32


def test_zero_weight_is_no_edge(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="gsparc"):
        graph = Graph.from_edges([[0, 1], [1, 2]], weights=[0.0, 2.0])
    assert_array_equal(dense(graph), [[0, 0, 0], [0, 0, 2], [0, 2, 0]])
    assert "dropped 1 edges of weight zero" in caplog.text


def test_no_edges() -> None:
    for edges in ([], [[], []], np.empty((0, 2)), torch.empty(2, 0, dtype=torch.long)):
        assert Graph.from_edges(edges, num_nodes=3) == Graph.empty(3)
    assert Graph.from_edges([], node_ids=["a", "b"]).num_nodes == 2
    assert Graph.from_edges([], 2, weights=[]) == Graph.empty(2)


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ([[0, -1], [1, 2]], {}, r"negative node id \(-1\)"),
        ([[0, 5], [1, 2]], {"num_nodes": 3}, "node id 5, but num_nodes=3 allows 0 to 2"),
        ([[0, 0.5], [1, 2]], {}, r"1 node ids that are not whole numbers \(first: 0.5\)"),
        ([[0, np.nan], [1, 2]], {}, "not whole numbers"),
        (np.array([[0.0, 1e30], [1.0, 2.0]]), {}, "node id 1000000000000000019884624838656 of the edges is too large"),
        (np.array([[0.0, 1e30], [1.0, 2.0]]), {"num_nodes": 3}, "but num_nodes=3 allows 0 to 2"),
        (np.array([[0.0, -1e30], [1.0, 2.0]]), {}, "negative node id"),
        (np.array([[0, 2**63], [1, 2]], np.uint64), {}, "node id 9223372036854775808 of the edges is too large"),
        ([["a", "b"], ["c", "d"]], {}, "Graph.from_table"),
        ([[True, False], [False, True]], {}, "dtype bool"),
        ([0, 1, 2], {}, r"shape \(3,\)"),
        (np.zeros((3, 4), int), {}, r"shape \(3, 4\); \(2, E\) or \(E, 2\)"),
        ([[0, 1], [1]], {}, "unequal length"),
        ([], {}, "at least one node, got 0"),
        ([[0], [1]], {"num_nodes": 2.5}, "num_nodes=2.5 is not an integer"),
        ([[0], [1]], {"num_nodes": True}, "num_nodes=True is not an integer"),
        ([[0], [1]], {"num_nodes": 4_000_000_000}, "num_nodes=4000000000 is too large: gsparc can index"),
        ([[0, 1], [1, 2]], {"weights": [1.0]}, r"weights have shape \(1,\), but there are 2 edges"),
        ([[0, 1], [1, 2]], {"weights": [1.0, np.nan]}, "1 NaN or infinite"),
        ([[0, 1], [1, 2]], {"weights": [1.0, np.inf]}, "1 NaN or infinite"),
        ([[0, 1], [1, 2]], {"weights": [1.0, -2.0]}, r"negative value \(-2.0\)"),
        ([[0, 1], [1, 2]], {"weights": ["a", "b"]}, "weights have dtype"),
        ([[0, 1], [1, 2]], {"weights": [1.0, 1e300]}, "do not fit float32"),
        ([[0, 1], [1, 2]], {"weights": [1.0, 1e-300]}, "do not fit float32"),
    ],
)
def test_bad_edges(edges, options, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(edges, **options)


def edge_lists(max_nodes: int = 8):
    return st.integers(1, max_nodes).flatmap(
        lambda n: st.tuples(
            st.just(n),
            hnp.arrays(np.int64, st.tuples(st.just(2), st.integers(0, 25)), elements=st.integers(0, n - 1)),
        )
    )


@given(edge_lists(), st.sampled_from([1, 2, 3, 7, 1 << 22]))
@settings(max_examples=100, deadline=None)
def test_unweighted_against_a_dense_matrix(case, chunk: int) -> None:
    nodes, edges = case
    expected = np.zeros((nodes, nodes), dtype=np.float32)
    for i, j in edges.T:
        if i != j:
            expected[i, j] = expected[j, i] = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_csr, "_CHUNK", chunk)  # so that repeats straddle chunks
        graph = Graph.from_edges(edges, nodes)
    assert_array_equal(dense(graph), expected)
    assert Graph(graph.indptr, graph.indices) == graph


@given(edge_lists(), st.data())
@settings(max_examples=100, deadline=None)
def test_weighted_against_a_dense_matrix(case, data) -> None:
    nodes, edges = case
    weights = data.draw(hnp.arrays(np.float64, edges.shape[1], elements=st.sampled_from([0, 0.5, 1, 3])))
    one_way = np.zeros((nodes, nodes))
    np.add.at(one_way, (edges[0], edges[1]), weights)
    expected = np.maximum(one_way, one_way.T)
    np.fill_diagonal(expected, 0)
    graph = Graph.from_edges(edges, nodes, weights=weights)
    assert_array_equal(dense(graph), expected)
    assert Graph(graph.indptr, graph.indices, graph.weights) == graph


@given(edge_lists())
@settings(max_examples=50, deadline=None)
def test_order_and_direction_do_not_matter(case) -> None:
    nodes, edges = case
    graph = Graph.from_edges(edges, nodes)
    assert Graph.from_edges(edges[::-1, ::-1], nodes) == graph
    assert Graph.from_edges(np.concatenate([edges, edges[::-1]], axis=1), nodes) == graph


# scipy


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_array])
def test_from_scipy_keeps_the_weights_of_a_symmetric_matrix(kind) -> None:
    weights = np.array([[0, 2.5, 0], [2.5, 0, 1], [0, 1, 0]], dtype=np.float32)
    assert_array_equal(dense(Graph.from_scipy(kind(weights))), weights)


def test_from_scipy_unweighted() -> None:
    one_way = sp.csr_array(np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool))
    graph = Graph.from_scipy(one_way, node_ids=["a", "b", "c"])
    assert repr(graph) == "Graph(num_nodes=3, num_edges=2, with node ids)"
    # ones given twice in a COO matrix are one edge, also where int8 would overflow
    many = sp.coo_array((np.ones(300, np.int8), (np.zeros(300, int), np.ones(300, int))), shape=(2, 2))
    assert Graph.from_scipy(many) == Graph.from_edges([[0], [1]])


def test_from_scipy_drops_stored_zeros_without_touching_the_matrix() -> None:
    matrix = sp.coo_array((np.array([1.0, 0.0]), (np.array([0, 1]), np.array([1, 2]))), shape=(3, 3))
    assert Graph.from_scipy(matrix) == Graph.from_edges([[0], [1]], num_nodes=3)
    assert matrix.nnz == 2


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (sp.csr_array((2, 3)), r"square, got shape \(2, 3\).*cut by rows"),
        (sp.csr_array((0, 0)), "at least one node"),
        (sp.csr_array([[0, np.nan], [1, 0]]), "NaN"),
        (sp.csr_array([[0, -1], [1, 0]]), "negative"),
        (sp.csr_array([[0, 2j], [1, 0]]), "dtype complex"),
        (np.eye(2), "got ndarray"),
    ],
)
def test_bad_scipy(matrix, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_scipy(matrix)


@given(edge_lists())
@settings(max_examples=25, deadline=None)
def test_scipy_round_trip(case) -> None:
    graph = Graph.from_edges(case[1], case[0])
    assert Graph.from_scipy(graph.to_scipy()) == graph


# sparse tensors


def test_from_any_sparse_tensor() -> None:
    weights = torch.tensor([[0, 2.5, 0], [2.5, 0, 1], [0, 1, 0]])
    for tensor in (weights.to_sparse(), weights.to_sparse().requires_grad_()):
        assert_array_equal(dense(Graph.from_any(tensor, num_nodes=3)), weights)
    # a one that is given twice is one edge, as in a scipy matrix
    twice = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], torch.ones(3), (4, 4), check_invariants=True)
    assert Graph.from_any(twice) == Graph.from_edges([[0, 1], [1, 2]], num_nodes=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls this layout a beta
        compressed = weights.to_sparse_csr()
    assert_array_equal(dense(Graph.from_any(compressed)), weights)


def test_bad_sparse_tensors() -> None:
    with pytest.raises(GraphShapeError, match=r"square, got shape \(2, 3\)"):
        Graph.from_any(torch.ones(2, 3).to_sparse())
    with pytest.raises(GraphShapeError, match=r"shape \(2, 2, 2\) came, expected an adjacency matrix"):
        Graph.from_any(torch.ones(2, 2, 2).to_sparse(2))
    with pytest.raises(GraphError, match=r"sparse torch tensor came.*Graph\.from_any"):
        Graph.from_edges(torch.eye(2).to_sparse())


# PyG


def test_from_pyg_ignores_direction_and_keeps_isolated_nodes() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=5)
    assert Graph.from_pyg(data) == Graph.from_edges([[0, 1], [1, 2]], num_nodes=5)
    by_features = Data(x=torch.zeros(6, 2), edge_index=torch.tensor([[0], [1]]))
    assert Graph.from_pyg(by_features).num_nodes == 6


def test_from_pyg_weights() -> None:
    index = torch.tensor([[0, 1], [1, 2]])
    expected = Graph.from_edges(index, weights=[2.0, 0.5])
    weights = torch.tensor([2.0, 0.5])
    assert Graph.from_pyg(Data(edge_index=index, num_nodes=3, edge_weight=weights)) == expected
    assert Graph.from_pyg(Data(edge_index=index, num_nodes=3, edge_attr=weights)) == expected
    assert Graph.from_pyg(Data(edge_index=index, num_nodes=3, edge_attr=weights[:, None])) == expected
    features = Data(edge_index=index, num_nodes=3, edge_attr=torch.rand(2, 4))
    assert Graph.from_pyg(features) == Graph.from_edges(index)


def test_to_pyg() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, weights=[2.0, 0.5])
    data = graph.to_pyg(np.eye(4), [0, 1, 1, -1])
    assert_array_equal(data.edge_index, [[0, 1, 1, 2], [1, 0, 2, 1]])
    assert_array_equal(data.edge_attr, [2.0, 2.0, 0.5, 0.5])
    assert data.is_undirected()
    assert data.x.dtype == torch.float32
    assert data.y.tolist() == [0, 1, 1, -1]
    assert data.num_nodes == 4
    assert Graph.from_pyg(data) == graph
    plain = Graph.from_edges([[0], [1]], num_nodes=3).to_pyg(sp.csr_array(np.eye(3)))
    assert plain.edge_attr is None
    assert_array_equal(plain.x, np.eye(3))


def test_bad_pyg() -> None:
    for data in (Data(x=torch.zeros(2, 1)), HeteroData(), "graph"):
        with pytest.raises(GraphError, match="has no edge_index"):
            Graph.from_pyg(data)


# networkx


def test_from_networkx() -> None:
    G = nx.DiGraph()
    G.add_nodes_from(["z", "lonely"])
    G.add_edge("a", "z", weight=2.0)
    G.add_edge("z", "a", weight=3.0)
    G.add_edge("a", "b")
    graph = Graph.from_networkx(G, weight="weight")
    assert_array_equal(graph.node_ids, ["z", "lonely", "a", "b"])
    assert_array_equal(dense(graph), [[0, 0, 3, 0], [0, 0, 0, 0], [3, 0, 0, 1], [0, 0, 1, 0]])
    assert Graph.from_networkx(G).weights is None


def test_from_networkx_numbered_nodes_need_no_ids() -> None:
    assert Graph.from_networkx(nx.path_graph(3)) == Graph.from_edges([[0, 1], [1, 2]])
    assert_array_equal(Graph.from_networkx(nx.path_graph([5, 3])).node_ids, [5, 3])
    multi = nx.MultiGraph([(0, 1), (0, 1)])
    assert Graph.from_networkx(multi) == Graph.from_edges([[0], [1]])


def test_from_networkx_numbers_are_positions_in_whatever_order_they_were_added() -> None:
    path = nx.Graph([(3, 2), (2, 1), (1, 0)])  # its nodes are in the order 3, 2, 1, 0
    path.add_edge(0, 4)
    expected = Graph.from_edges([[0, 1, 2, 0], [1, 2, 3, 4]])
    assert Graph.from_networkx(path) == expected
    assert Graph.from_any(path, num_nodes=5) == expected
    weighted = nx.Graph()
    weighted.add_edge(2, 0, w=0.5)
    weighted.add_edge(1, 0, w=2)
    assert_array_equal(dense(Graph.from_networkx(weighted, weight="w")), [[0, 2, 0.5], [2, 0, 0], [0.5, 0, 0]])


def test_networkx_round_trip() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, weights=[2.0, 0.5], node_ids=["d", "c", "b", "a"])
    G = graph.to_networkx()
    assert sorted(G.edges(data="weight")) == [("c", "b", 0.5), ("d", "c", 2.0)]
    assert Graph.from_networkx(G, weight="weight") == graph
    assert sorted(Graph.from_edges(TRIANGLE).to_networkx().edges()) == [(0, 1), (0, 2), (1, 2)]


def test_bad_networkx() -> None:
    with pytest.raises(GraphError, match="convert_node_labels_to_integers"):
        Graph.from_networkx(nx.grid_2d_graph(2, 2))
    with pytest.raises(GraphError, match="has no node"):
        Graph.from_networkx(nx.Graph())


def test_bad_networkx_weights() -> None:
    G = nx.Graph()
    G.add_edge("a", "b", capacity=2.0)
    with pytest.raises(GraphError, match="no edge has the attribute 'weigth'; they have 'capacity'"):
        Graph.from_networkx(G, weight="weigth")
    with pytest.raises(GraphError, match="they have none at all"):
        Graph.from_networkx(nx.path_graph(2), weight="w")
    assert Graph.from_networkx(nx.empty_graph(2), weight="w") == Graph.empty(2)  # no edge lacks it
    for value in ("2.0", "heavy", None, [1]):
        G.add_edge("b", "c", capacity=value)
        with pytest.raises(GraphError, match=r"between 'b' and 'c' has capacity=.*a number was expected"):
            Graph.from_networkx(G, weight="capacity")


# tables

FRAMES = pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])


@FRAMES
def test_from_table_strings(frame) -> None:
    graph = Graph.from_table(frame({"package": ["vim", "bash", "libc6"], "needs": ["libc6", "libc6", "vim"]}))
    assert_array_equal(graph.node_ids, ["bash", "libc6", "vim"])  # sorted, not by row
    assert_array_equal(dense(graph), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])


@FRAMES
def test_from_table_integers_and_weights(frame) -> None:
    table = frame({"w": [2.0, 0.5], "dst": [10, 100], "src": [9, 10]})
    graph = Graph.from_table(table, weight="w")
    assert_array_equal(graph.node_ids, [9, 10, 100])  # by value, not as text
    assert_array_equal(dense(graph), [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]])


@FRAMES
def test_from_table_with_nodes(frame) -> None:
    edges = frame({"from": ["b"], "to": ["a"]})
    nodes = frame({"size": [1, 2, 3], "id": ["c", "b", "a"]})
    graph = Graph.from_table(edges, nodes=nodes)
    assert_array_equal(graph.node_ids, ["c", "b", "a"])
    assert_array_equal(graph.neighbors(1), [2])
    for sequence in (
        ["c", "b", "a"],
        np.array(["c", "b", "a"]),
        pd.Series(["c", "b", "a"]),
        pl.Series(["c", "b", "a"]),
    ):
        assert Graph.from_table(edges, nodes=sequence) == graph
    with pytest.raises(GraphError, match=r"column 'from': 1 not among the 1 known nodes \(first: 'b'\)"):
        Graph.from_table(edges, nodes=["a"])
    with pytest.raises(GraphError, match="no column 'key'; it has 'size', 'id'"):
        Graph.from_table(edges, nodes=nodes, id="key")


def test_from_table_choice_of_columns() -> None:
    table = pd.DataFrame({"x": [0], "y": [1], "source": [2], "target": [3]})
    assert_array_equal(Graph.from_table(table).node_ids, [2, 3])
    assert_array_equal(Graph.from_table(table, source="x", target="y").node_ids, [0, 1])
    assert_array_equal(Graph.from_table(table[["y", "x"]]).node_ids, [0, 1])


def test_from_table_with_columns_named_by_numbers() -> None:
    table = pd.DataFrame([[7, 9, 0.5], [9, 30, 2.0]])  # as read with header=None
    assert_array_equal(Graph.from_table(table).node_ids, [7, 9, 30])
    weighted = Graph.from_table(table, source=0, target=1, weight=2)
    assert_array_equal(dense(weighted), [[0, 0.5, 0], [0.5, 0, 2], [0, 2, 0]])
    assert Graph.from_any(table, num_nodes=31) == Graph.from_edges([[7, 9], [9, 30]], 31, node_ids=np.arange(31))
    nodes = pd.DataFrame([[1.5, 30], [2.5, 9], [3.5, 7]])
    assert_array_equal(Graph.from_table(table, nodes=nodes, id=1).node_ids, [30, 9, 7])
    with pytest.raises(GraphError, match="no column 'a'; it has 0, 1, 2"):
        Graph.from_table(table, source="a", target=1)


@FRAMES
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_a_table_that_is_an_adjacency_matrix(frame, weight: float) -> None:
    path = frame({"a": [0.0, weight, 0.0], "b": [weight, 0.0, 1.0], "c": [0.0, 1.0, 0.0]})
    for read in (Graph.from_table, Graph.from_any, lambda table: Graph.from_any(table, num_nodes=3)):
        with pytest.raises(GraphError, match=r"3 rows and 3 columns looks like an adjacency matrix.*Graph\.from_scipy"):
            read(path)
    edges = frame({"a": [0, 1, 2], "b": [1, 2, 3], "c": [0.5, 0.5, 2.0]})  # square as well, but ids and weights
    assert Graph.from_any(edges, num_nodes=4).num_edges == 3
    assert (
        Graph.from_table(frame({"a": [0, 1, 0], "b": [1, 0, 1], "c": [0, 1, 0]}), source="a", target="b").num_edges == 1
    )


def test_from_table_categories_and_whole_floats() -> None:
    table = pd.DataFrame({"src": pd.Categorical(["b", "a"]), "dst": ["c", "c"]})
    assert_array_equal(Graph.from_table(table).node_ids, ["a", "b", "c"])
    assert_array_equal(Graph.from_table(pd.DataFrame({"src": [1.0], "dst": [7]})).node_ids, [1, 7])


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"src": ["a", None], "dst": ["b", "c"]}, {}, r"column 'src': 1 missing \(first at row 1\)"),
        ({"src": [1.0, np.nan], "dst": [1, 2]}, {}, "column 'src': 1 missing"),
        ({"src": [1.5], "dst": [1]}, {}, "not whole"),
        ({"src": ["a"], "dst": [1]}, {}, "ids of both ends must be of the same type"),
        ({"src": ["a"]}, {}, "needs two columns of node ids, this one has 1"),
        ({"src": ["a"], "dst": ["b"]}, {"source": "src"}, "both source= and target="),
        (
            {"src": ["a"], "dst": ["b"]},
            {"source": "src", "target": "end"},
            "no column 'end'; it has 'src', 'dst'",
        ),
        ({"src": ["a"], "dst": ["b"]}, {"weight": "w"}, "no column 'w'"),
        ({"src": ["a"], "dst": ["b"], "w": ["x"]}, {"weight": "w"}, "weights have dtype"),
        ({"src": ["a"], "dst": ["b"]}, {"nodes": ["a", "b", "a"]}, "given more than once"),
        (
            {"src": ["a"], "dst": ["b"]},
            {"nodes": [1, 2]},
            "of type large_string, but the node ids are of type int64",
        ),
        ({"src": [], "dst": []}, {}, "names no node"),
        ({"src": [True], "dst": [False]}, {}, "type bool"),
    ],
)
def test_bad_tables(table, options, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_table(pd.DataFrame(table), **options)


def test_not_a_table() -> None:
    for table in (np.zeros((2, 3)), pl.LazyFrame({"src": [1], "dst": [2]})):
        with pytest.raises(GraphError, match="a pandas, polars or pyarrow table was expected"):
            Graph.from_table(table)


@given(edge_lists())
@settings(max_examples=25, deadline=None)
def test_table_with_nodes_agrees_with_positions(case) -> None:
    nodes, edges = case
    names = [f"n{i}" for i in range(nodes)][::-1]
    table = pa.table(
        {
            "a": pa.array([names[i] for i in edges[0]], pa.string()),
            "b": pa.array([names[i] for i in edges[1]], pa.string()),
        }
    )
    assert Graph.from_table(table, nodes=names) == Graph.from_edges(edges, nodes, node_ids=names)


# anything


def test_from_any() -> None:
    graph = Graph.from_edges(TRIANGLE)
    assert Graph.from_any(graph) is graph
    for thing in (
        TRIANGLE,
        np.array(TRIANGLE),
        np.array(TRIANGLE).T,
        torch.tensor(TRIANGLE),
        graph.to_scipy(),
    ):
        assert Graph.from_any(thing, num_nodes=3) == graph
    for thing in (graph.to_pyg(), graph.to_networkx(), dense(graph), dense(graph).astype(bool)):
        assert Graph.from_any(thing, num_nodes=3) == graph
    table = pd.DataFrame({"src": TRIANGLE[0], "dst": TRIANGLE[1]})
    assert_array_equal(Graph.from_any(table).node_ids, [0, 1, 2])
    # with the number of nodes, ids are positions and nodes without edges stay
    assert Graph.from_any(table, num_nodes=5).num_nodes == 5
    assert Graph.from_any([[0, 1], [1, 2]]) == Graph.from_edges([[0, 1], [1, 2]])
    assert Graph.from_any([[0]]) == Graph.empty(1)


def test_from_any_checks_the_size() -> None:
    graph = Graph.from_edges(TRIANGLE)
    for thing in (graph, graph.to_scipy(), graph.to_pyg(), dense(graph)):
        with pytest.raises(GraphShapeError, match=r"graph has 3 nodes but 7 were expected.*cut together with X"):
            Graph.from_any(thing, num_nodes=7)
    with pytest.raises(GraphError, match="node id 2, but num_nodes=2"):
        Graph.from_any(TRIANGLE, num_nodes=2)


def test_from_any_with_a_table_of_names() -> None:
    table = pd.DataFrame({"source": ["vim", "bash"], "target": ["libc6", "libc6"]})
    with pytest.raises(GraphError, match=r"'source' .* strings.*0 to 2.*Graph.from_table\(edges, nodes=ids\)"):
        Graph.from_any(table, num_nodes=3)


@pytest.mark.parametrize("thing", [None, "edges.csv", {"a": 1}])
def test_from_any_refuses(thing) -> None:
    with pytest.raises(GraphError, match="cannot read a graph from"):
        Graph.from_any(thing)


def test_from_any_refuses_a_dense_matrix_of_weights() -> None:
    with pytest.raises(GraphError, match=r"zeros and ones only.*Graph.from_scipy"):
        Graph.from_any(np.full((3, 3), 0.5))
