"""The Graph on graphs small enough to draw."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import cross_validate

from gsparc.exceptions import GraphError
from gsparc.graph import Graph


@pytest.fixture
def path() -> Graph:
    """0 - 1 - 2 - 3."""
    return Graph.from_edges([[0, 1, 2], [1, 2, 3]])


@pytest.fixture
def named() -> Graph:
    """A triangle a, b, c with a tail c - d; weights 1, 2, 3 and 0.5."""
    return Graph.from_edges([[0, 0, 1, 2], [1, 2, 2, 3]], weights=[1.0, 2.0, 3.0, 0.5], node_ids=["a", "b", "c", "d"])


def test_arrays(path: Graph) -> None:
    assert_array_equal(path.indptr, [0, 1, 3, 5, 6])
    assert_array_equal(path.indices, [1, 0, 2, 1, 3, 2])
    assert path.indptr.dtype == np.int64
    assert path.indices.dtype == np.int32
    assert path.weights is None
    assert path.node_ids is None
    assert (path.num_nodes, path.num_edges, path.shape, len(path)) == (4, 3, (4, 4), 4)


def test_repr(path: Graph, named: Graph) -> None:
    assert repr(path) == "Graph(num_nodes=4, num_edges=3)"
    assert repr(named) == "Graph(num_nodes=4, num_edges=4, weighted, with node ids)"


@pytest.mark.parametrize("how", [lambda g: g, copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_immutable_even_after_copying(named: Graph, how) -> None:
    graph = how(named)
    assert graph == named
    for array in (graph.indptr, graph.indices, graph.weights, graph.node_ids):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(AttributeError):
        graph.indptr = np.zeros(5)
    with pytest.raises(AttributeError):
        graph.colour = "red"


def test_equality_is_by_content_and_hashing_is_refused(path: Graph, named: Graph) -> None:
    assert path == Graph.from_edges([[3, 2, 1], [2, 1, 0]])
    assert path != Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=5)
    assert path != Graph.from_edges([[0, 1, 2], [1, 2, 3]], weights=[1, 1, 2])
    assert path != Graph.from_edges([[0, 1, 2], [1, 2, 3]], node_ids=[5, 6, 7, 8])
    assert path != "graph"
    with pytest.raises(TypeError, match="unhashable"):
        hash(named)


def test_weights_of_one_are_no_weights(path: Graph) -> None:
    assert path == Graph.from_edges([[0, 1, 2], [1, 2, 3]], weights=[1.0, 1.0, 1.0])


def test_degrees(path: Graph, named: Graph) -> None:
    assert_array_equal(path.degrees(), [1, 2, 2, 1])
    assert_array_equal(named.degrees(), [3.0, 4.0, 5.5, 0.5])
    assert named.degrees().dtype == np.float64


def test_degrees_skip_nodes_without_edges() -> None:
    graph = Graph.from_edges([[1], [3]], num_nodes=6, weights=[2.5])
    assert_array_equal(graph.degrees(), [0, 2.5, 0, 2.5, 0, 0])
    assert_array_equal(Graph.empty(3).degrees(), [0, 0, 0])


def test_neighbors(path: Graph) -> None:
    assert_array_equal(path.neighbors(1), [0, 2])
    assert_array_equal(path.neighbors(-1), [2])
    assert path.neighbors(0).size == 1
    with pytest.raises(GraphError, match="node 4 is out of range for a graph of 4 nodes"):
        path.neighbors(4)


def test_connected_components_are_numbered_by_first_appearance() -> None:
    graph = Graph.from_edges([[0, 1, 3], [4, 3, 5]], num_nodes=7)
    count, labels = graph.connected_components()
    assert count == 4
    assert_array_equal(labels, [0, 1, 2, 1, 0, 1, 3])
    assert labels.dtype == np.int32


def test_one_node_and_no_edges_are_graphs() -> None:
    graph = Graph.empty(1)
    assert repr(graph) == "Graph(num_nodes=1, num_edges=0)"
    assert graph.connected_components()[0] == 1
    assert graph.to_scipy().nnz == 0
    assert graph[[0]] == graph


def test_no_node_is_no_graph() -> None:
    with pytest.raises(GraphError, match="at least one node, got 0"):
        Graph.empty(0)


# ids


def test_ids_to_index(named: Graph, path: Graph) -> None:
    assert_array_equal(named.ids_to_index(["d", "a", "a"]), [3, 0, 0])
    assert_array_equal(named.ids_to_index(np.array(["c"])), [2])
    assert_array_equal(named.ids_to_index("b"), [1])
    assert_array_equal(path.ids_to_index([3, 0]), [3, 0])
    assert path.ids_to_index([]).dtype == np.int64
    numbers = Graph.from_edges([[0], [1]], node_ids=[70, -2])
    assert_array_equal(numbers.ids_to_index([-2, 70]), [1, 0])


def test_unknown_ids_are_named(named: Graph, path: Graph) -> None:
    with pytest.raises(GraphError, match=r"2 not among the 4 known nodes \(first: 'x', 'y'\)"):
        named.ids_to_index(["a", "x", "y"])
    with pytest.raises(GraphError, match=r"2 ids are not among the graph's 4 nodes \(first: 9, -1\)"):
        path.ids_to_index([0, 9, -1])
    with pytest.raises(GraphError, match="of type int64, but the node ids are of type large_string"):
        named.ids_to_index([0, 1])
    with pytest.raises(GraphError, match="the graph has no node ids"):
        path.ids_to_index(["a"])


@pytest.mark.parametrize(
    ("node_ids", "message"),
    [
        (["a", "b", "a", "c"], r"1 node ids are given more than once \(first: 'a'\)"),
        (["a", "b"], "there are 2 node_ids for 4 nodes"),
        ([1, 2, "x", 4], "all strings or all integers"),
        (["a", None, "b", "c"], r"1 missing \(first at row 1\)"),
        ([0.5, 1, 2, 3], "not whole"),
        ([True, False, True, False], "type bool"),
        ([[1, 2], [3, 4]], "flat sequence"),
    ],
)
def test_bad_node_ids(node_ids, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_edges([[0], [1]], num_nodes=4, node_ids=node_ids)


# cutting


def test_subgraph_keeps_the_order_asked_for(named: Graph) -> None:
    part = named[[3, 2, 0]]
    # d - c (0.5) and c - a (2) remain
    assert_array_equal(part.to_scipy().toarray(), [[0, 0.5, 0], [0.5, 0, 2], [0, 2, 0]])
    assert_array_equal(part.node_ids, ["d", "c", "a"])
    assert_array_equal(part.indices, [1, 0, 2, 1])


def test_all_ways_to_ask_agree(path: Graph) -> None:
    expected = Graph.from_edges([[0], [1]], num_nodes=3)  # 0 - 1 and 3 alone
    idx = [0, 1, 3]
    mask = np.array([True, True, False, True])
    for key in (
        idx,
        np.array(idx),
        np.array(idx, np.uint8),
        mask,
        mask.tolist(),
        (idx, ...),
        (mask, ...),
        [0, 1, -1],
    ):
        assert path[key] == expected
    assert path[:2] == Graph.from_edges([[0], [1]])
    assert path[::-1] == path
    assert path[:, ...] == path


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (1, r"Use graph\[\[1\]\]"),
        (np.int64(1), "is one node, not a graph"),
        ([0, 0], "node 0 is selected more than once"),
        ([3, -1], "node 3 is selected more than once"),
        ([0, 4], "node 4 is out of range"),
        ([-5], "node -5 is out of range"),
        ([], "selects no node"),
        (slice(4, None), "selects no node"),
        ([True, False], "mask has 2 entries, but the graph has 4 nodes"),
        ([0.0, 1.0], "dtype float64"),
        (["a"], "ids_to_index"),
        (([0], [1]), "cut by nodes"),
        ([[0, 1]], r"shape \(1, 2\)"),
    ],
)
def test_bad_cuts(path: Graph, key, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        path[key]


@st.composite
def weighted_graphs(draw) -> tuple[int, np.ndarray, np.ndarray]:
    nodes = draw(st.integers(1, 7))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=20))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=len(edges), max_size=len(edges)))
    return nodes, np.array(edges, dtype=np.int64).reshape(-1, 2).T, np.array(weights)


@given(weighted_graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_cutting_is_fancy_indexing_of_the_dense_matrix(case, data) -> None:
    nodes, edges, weights = case
    graph = Graph.from_edges(edges, nodes, weights=weights)
    order = np.array(data.draw(st.permutations(range(nodes))))[: data.draw(st.integers(1, nodes))]
    part = graph[order]
    assert_array_equal(part.to_scipy().toarray(), graph.to_scipy().toarray()[np.ix_(order, order)])
    # the checking constructor accepts what cutting makes
    assert Graph(part.indptr, part.indices, part.weights) == part


# the checking constructor


def test_constructor_copies_and_agrees_with_from_edges(path: Graph) -> None:
    indptr, indices = np.array([0, 1, 3, 5, 6]), np.array([1, 0, 2, 1, 3, 2])
    graph = Graph(indptr, indices)
    indices[0] = 3
    assert graph == path
    assert Graph([0, 0], []) == Graph.empty(1)


@pytest.mark.parametrize(
    ("indptr", "indices", "weights", "message"),
    [
        ([0], [], None, r"indptr has 1 entries.*at least one"),
        ([0.0, 1.0, 2.0], [1, 0], None, "flat arrays of integers, got float64"),
        ([0, 1, 2], [[1, 0]], None, r"int64 of shape \(1, 2\)"),
        (np.array([0, 2, 1, 2], np.uint64), [1, 0], None, "never fall"),
        ([0, 1, 3], [1, 0], None, "indptr does not describe rows of the 2 indices"),
        ([0, 2, 1, 2], [1, 0], None, "never fall"),
        ([0, 1, 2], [1, 2], None, "node id 2"),
        ([0, 1, 2], [0, 1], None, "self-loops"),
        ([0, 2, 3, 4], [2, 1, 0, 0], None, "sorted"),
        ([0, 2, 4], [1, 1, 0, 0], None, "without repeats"),
        ([0, 1, 1], [1], None, "not symmetric"),
        ([0, 1, 2], [1, 0], [1.0, 2.0], "not symmetric"),
        ([0, 1, 2], [1, 0], [1.0], r"weights have shape \(1,\)"),
        ([0, 1, 2], [1, 0], [0.0, 0.0], "hold a zero"),
        ([0, 1, 2], [1, 0], [np.nan, np.nan], "NaN"),
    ],
)
def test_constructor_refuses(indptr, indices, weights, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph(indptr, indices, weights)


# scikit-learn


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers the graphs that it was fitted with."""

    seen: list[Graph] = []  # noqa: RUF012

    def fit(self, X, y, *, graph=None):
        self.classes_ = np.unique(y)
        Recorder.seen.append(graph)
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


def test_cross_validation_cuts_the_graph_with_X() -> None:
    from sklearn.model_selection import KFold

    n = 9
    ring = Graph.from_edges(np.stack([np.arange(n), (np.arange(n) + 1) % n]))
    X, y = np.arange(n, dtype=float)[:, None], np.arange(n) % 2
    Recorder.seen.clear()
    folds = KFold(3)
    cross_validate(Recorder(), X, y, params={"graph": ring}, cv=folds, error_score="raise")
    trained = [train for train, _ in folds.split(X)]
    assert [len(graph) for graph in Recorder.seen] == [6, 6, 6]
    for graph, train in zip(Recorder.seen, trained, strict=True):
        assert graph == ring[train]
        assert_array_equal(graph.to_scipy().toarray(), ring.to_scipy().toarray()[np.ix_(train, train)])


def test_to_scipy_gives_a_matrix_of_its_own(named: Graph) -> None:
    matrix = named.to_scipy()
    assert isinstance(matrix, sp.csr_array)
    assert matrix.dtype == np.float32
    matrix.data[:] = 7
    matrix.indices[:] = 0
    assert_array_equal(named.degrees(), [3.0, 4.0, 5.5, 0.5])
    assert named.neighbors(3)[0] == 2


def test_ids_that_an_array_would_cut() -> None:
    with pytest.raises(GraphError, match=r"1 node ids hold the character NUL \(first: 'a\\x00'\)"):
        Graph.from_edges([[0], [1]], node_ids=["a", "a\0"])
    with pytest.raises(GraphError, match="hold the character NUL"):
        Graph.from_table(pa.table({"source": ["a", "b"], "target": ["a\0", "a"]}))
    with pytest.raises(GraphError, match="2 node ids hold the character NUL"):
        Graph.from_edges([[0], [1]], node_ids=["a\0b", "a\0c"])


def test_isolated_nodes_keep_their_place_and_lose_their_edges() -> None:
    graph = Graph.from_edges([[0, 1, 2, 0], [1, 2, 3, 3]], weights=[1.0, 2.0, 3.0, 4.0], node_ids=["a", "b", "c", "d"])
    alone = graph.isolate([1])
    expected = np.zeros((4, 4))
    expected[2, 3] = expected[3, 2] = 3.0
    expected[0, 3] = expected[3, 0] = 4.0
    np.testing.assert_array_equal(alone.to_scipy().toarray(), expected)
    assert alone.node_ids is not None
    assert alone.node_ids.tolist() == ["a", "b", "c", "d"]
    assert graph.num_edges == 4
    for nobody in ([], np.zeros(4, bool), slice(0, 0), np.zeros(0, int)):
        assert graph.isolate(nobody) == graph
    with pytest.raises(GraphError, match="the mask has 3 entries"):
        graph.isolate(np.zeros(3, bool))
    assert graph.isolate([0, 2]).num_edges == 0
