"""The operator against dense expressions and values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsparc.graph import Graph
from gsparc.ops import laplacian
from gsparc.ops.laplacian import normalized_affinity, operator_degrees, walk, walk_reference


def random_graph(seed: int, n: int = 12, *, weighted: bool) -> Graph:
    """A third of all pairs; node 3 and the last two nodes have no edges."""
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.3, 1) * rng.uniform(0.2, 3.0, (n, n))
    dense[[3, n - 2, n - 1]] = dense[:, [3, n - 2, n - 1]] = 0
    return Graph.from_scipy(sp.csr_array(dense + dense.T if weighted else (dense + dense.T > 0).astype(float)))


def moved(graph: Graph, values: np.ndarray, tau: float) -> np.ndarray:
    return walk(graph.indptr, graph.indices, graph.weights, torch.from_numpy(values), tau=tau).numpy()


def test_degrees_by_hand() -> None:
    # path 0 - 1 - 2 with weights 2 and 5, node 3 alone
    indptr = np.array([0, 1, 3, 4, 4])
    assert operator_degrees(indptr, None).tolist() == [2, 3, 2, 1]
    assert operator_degrees(indptr, np.array([2.0, 2, 5, 5])).tolist() == [3, 8, 6, 1]
    assert operator_degrees(indptr, None, tau=0.5).tolist() == [2.5, 3.5, 2.5, 1.5]


def test_one_step_by_hand(tiny_graph: Graph) -> None:
    # path 0 - 1 - 2 - 3, each node with itself: means of (0, 1), (0, 1, 2), (1, 2, 3), (2, 3)
    out = moved(tiny_graph, np.array([[0.0], [6.0], [12.0], [24.0]]), 0.0)
    np.testing.assert_allclose(out[:, 0], [3, 6, 14, 18])


@given(seed=st.integers(0, 50), weighted=st.booleans(), tau=st.sampled_from([0.0, 0.3, 4.0]))
def test_walk_is_the_dense_walk(seed: int, weighted: bool, tau: float) -> None:
    graph = random_graph(seed, weighted=weighted)
    values = np.random.default_rng(seed).standard_normal((12, 3))
    np.testing.assert_allclose(
        moved(graph, values, tau), walk_reference(graph.to_scipy(), values, tau=tau), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_chunks_change_nothing(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(1, weighted=True)
    values = np.random.default_rng(0).standard_normal((12, 2))
    whole = moved(graph, values, 0.7)
    calls = []
    real = laplacian._rows_times
    monkeypatch.setattr(laplacian, "_rows_times", lambda *a: calls.append(a[-2:]) or real(*a))
    monkeypatch.setattr(laplacian, "_CHUNK_ENTRIES", entries)
    np.testing.assert_array_equal(moved(graph, values, 0.7), whole)
    assert len(calls) > 3


def test_walk_leaves_its_input_alone_and_keeps_its_type(tiny_graph: Graph) -> None:
    values = torch.arange(8, dtype=torch.float32).reshape(4, 2)
    before = values.clone()
    out = walk(tiny_graph.indptr, tiny_graph.indices, None, values)
    assert torch.equal(values, before)
    assert out.dtype == torch.float32


def test_constants_stay_and_pi_is_stationary() -> None:
    graph = random_graph(2, weighted=True)
    np.testing.assert_allclose(moved(graph, np.ones((12, 1)), 1.5), 1.0, rtol=1e-6)
    degrees = operator_degrees(graph.indptr, graph.weights)
    values = np.random.default_rng(3).standard_normal((12, 1))
    # sum_i pi_i (P f)_i = sum_i pi_i f_i
    np.testing.assert_allclose(degrees @ moved(graph, values, 0.0), degrees @ values, rtol=1e-5)


def test_normalized_affinity_by_hand(tiny_graph: Graph) -> None:
    a, b = 1 / 2, 1 / np.sqrt(6)
    expected = [[a, b, 0, 0], [b, 1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3, b], [0, 0, b, a]]
    np.testing.assert_allclose(normalized_affinity(tiny_graph.to_scipy()).toarray(), expected, rtol=1e-12)
