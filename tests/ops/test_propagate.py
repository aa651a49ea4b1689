"""Propagation along edges: by hand, against dense matrices, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc._cuts import in_units
from gsparc.exceptions import InputError, UnknownNameError
from gsparc.graph import Graph
from gsparc.ops.laplacian import normalized_affinity
from gsparc.ops.propagate import Propagation, csr_tensor, diffused_signals, fixed_product, lazy_walk

STAR = Graph.from_edges([[0, 0, 0], [1, 2, 3]], num_nodes=5)  # node 4 is isolated


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 8))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    weights = draw(st.none() | st.lists(st.floats(0.25, 4.0), min_size=len(pairs), max_size=len(pairs)))
    return Graph.from_edges(edges, num_nodes=n, weights=weights)


def dense(graph: Graph, kind: str) -> np.ndarray:
    if kind == "sym":
        return normalized_affinity(in_units(graph).to_scipy()).toarray()
    adjacency = graph.to_scipy().toarray().astype(np.float64)
    degrees = adjacency.sum(axis=1, keepdims=True)
    return np.divide(adjacency, degrees, out=np.zeros_like(adjacency), where=degrees > 0)


def test_means_of_a_star_by_hand() -> None:
    values = torch.tensor([[1.0, 0], [2, 1], [4, 1], [6, 1], [9, 9]])
    expected = [[4, 1], [1, 0], [1, 0], [1, 0], [0, 0]]
    assert Propagation(STAR, "mean")(values).tolist() == expected


def test_symmetric_step_of_a_star_by_hand() -> None:
    # degrees with self-loops: 4, 2, 2, 2, 1
    out = Propagation(STAR, "sym")(torch.eye(5))
    np.testing.assert_allclose(out[0], [1 / 4, *[8**-0.5] * 3, 0], rtol=1e-6)
    np.testing.assert_allclose(out[1], [8**-0.5, 1 / 2, 0, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(out[4], [0, 0, 0, 0, 1], rtol=1e-6)


@pytest.mark.parametrize("kind", ["sym", "mean"])
@settings(max_examples=60, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 2**16))
def test_equal_to_the_dense_matrix_in_value_and_gradient(kind, graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = dense(graph, kind)
    step = Propagation(graph, kind, dtype=torch.float64)
    values = torch.from_numpy(rng.standard_normal((graph.num_nodes, 3))).requires_grad_()
    coming = rng.standard_normal((graph.num_nodes, 3))
    out = step(values)
    out.backward(torch.from_numpy(coming))
    assert values.grad is not None
    np.testing.assert_allclose(out.detach(), matrix @ values.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(values.grad, matrix.T @ coming, atol=1e-6)


@pytest.mark.parametrize("kind", ["sym", "mean"])
def test_gradients_of_the_first_and_second_order(kind) -> None:
    graph = Graph.from_edges([[0, 0, 1, 3], [1, 2, 2, 4]], weights=[1.0, 0.5, 2.0, 1.0])
    step = Propagation(graph, kind, dtype=torch.float64)
    values = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(step, (values,))
    assert torch.autograd.gradgradcheck(step, (values,))


def test_a_rectangular_product() -> None:
    matrix = csr_tensor(np.array([0, 2, 3]), np.array([0, 2, 1]), np.array([1.0, 2.0, 3.0]), columns=3)
    back = csr_tensor(np.array([0, 1, 2, 3]), np.array([0, 1, 0]), np.array([1.0, 3.0, 2.0]), columns=2)
    values = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64, requires_grad=True)
    out = fixed_product(matrix, back, values)
    assert out.ravel().tolist() == [201.0, 30.0]
    out.backward(torch.tensor([[1.0], [7.0]], dtype=torch.float64))
    assert values.grad is not None
    assert values.grad.ravel().tolist() == [1.0, 21.0, 2.0]


def test_the_pattern_is_shared_with_the_transpose() -> None:
    step = Propagation(STAR, "mean")
    assert step.transpose.col_indices().data_ptr() == step.matrix.col_indices().data_ptr()
    same = Propagation(STAR, "sym")
    assert same.transpose is same.matrix


def test_lower_precision_comes_back_as_it_came() -> None:
    out = Propagation(STAR, "mean")(torch.ones(5, 1, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert out.ravel().tolist() == [1, 1, 1, 1, 0]


def lazy_steps(graph: Graph, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """A power of the dense matrix of a lazy walk, in which a node without edges stays where it is; and the degrees."""
    A = graph.to_scipy().toarray().astype(np.float64)
    degrees = A.sum(axis=1, keepdims=True)
    step = 0.5 * (np.eye(len(A)) + np.divide(A, degrees, out=np.eye(len(A)), where=degrees > 0))
    return np.linalg.matrix_power(step, rounds), degrees[:, 0]


@given(graph=graphs(), rounds=st.integers(0, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_lazy_walk_is_a_power_of_the_dense_matrix(graph: Graph, rounds: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(graph.num_nodes, 3))
    found = lazy_walk(torch.from_numpy(values), graph, rounds)
    np.testing.assert_allclose(found.numpy(), lazy_steps(graph, rounds)[0] @ values, atol=1e-6)


def test_a_row_without_edges_outlives_any_number_of_rounds() -> None:
    pair = Graph.from_edges([[0], [1]], num_nodes=3)
    values = torch.tensor([[1.0], [3.0], [2.0**-60]])
    assert lazy_walk(values, pair, 300).ravel().tolist() == [2.0, 2.0, 2.0**-60]


@given(graph=graphs(), rounds=st.integers(0, 5), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_distances_of_many_signals_are_diffusion_distances(graph: Graph, rounds: int, seed: int) -> None:
    walk, degrees = lazy_steps(graph, rounds)
    linked = degrees > 0
    found = diffused_signals(graph, rounds, 4000, seed=seed).double().numpy()
    assert not found[~linked].any()
    if linked.any():  # the part that all rows end at was taken off
        np.testing.assert_allclose(degrees @ found / degrees.sum(), 0, atol=1e-4)
    i, j = np.nonzero(np.triu(np.outer(linked, linked), 1))
    expected = ((walk[i] - walk[j]) ** 2).sum(axis=1)
    np.testing.assert_allclose(((found[i] - found[j]) ** 2).mean(axis=1), expected, rtol=0.15, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_signals_are_those_of_the_host() -> None:
    found = diffused_signals(STAR, 3, 16, "cuda", seed=1)
    torch.testing.assert_close(found.cpu(), diffused_signals(STAR, 3, 16, seed=1))


def test_a_lazy_walk_forgets_the_sides_of_a_bipartite_graph_and_keeps_its_input() -> None:
    sides = Graph.from_edges([[0, 0, 1, 1], [2, 3, 2, 3]], num_nodes=4)  # every edge joins the two sides
    values = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])
    assert lazy_walk(values, sides, 1).abs().max() == 0  # a walk that always moves would swap them for ever
    assert values.ravel().tolist() == [1, 1, -1, -1]


def test_bad_input() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown propagation 'means'\. Did you mean 'mean'"):
        Propagation(STAR, "means")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"shape \(4, 2\) came, expected \[5, channels\]"):
        Propagation(STAR)(torch.zeros(4, 2))
    assert repr(Propagation(STAR)) == "Propagation('sym', num_nodes=5, device='cpu')"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("kind", ["sym", "mean"])
def test_cuda_gives_the_same(kind) -> None:
    values = torch.randn(5, 3)
    here, there = Propagation(STAR, kind)(values), Propagation(STAR, kind, "cuda")(values.cuda())
    torch.testing.assert_close(here, there.cpu())
