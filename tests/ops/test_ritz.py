"""Rayleigh-Ritz against dense eigensolvers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch

from gsparc.graph import Graph
from gsparc.ops import ritz
from gsparc.ops.laplacian import normalized_affinity, operator_degrees
from gsparc.ops.ritz import RitzPairs, rayleigh_ritz, solve_ritz


@pytest.fixture(params=[False, True], ids=["unweighted", "weighted"])
def graph(request: pytest.FixtureRequest) -> Graph:
    rng = np.random.default_rng(4)
    dense = np.triu(rng.random((15, 15)) < 0.35, 1) * (rng.uniform(0.5, 2.0, (15, 15)) if request.param else 1.0)
    return Graph.from_scipy(sp.csr_array(dense + dense.T))


def solve(graph: Graph, values: np.ndarray, *, tau: float = 0.0, walk_length: int = 1) -> tuple[RitzPairs, np.ndarray]:
    degrees = operator_degrees(graph.indptr, graph.weights, tau=tau)
    pi = degrees / degrees.sum()
    pairs = rayleigh_ritz(
        graph.indptr,
        graph.indices,
        graph.weights,
        torch.from_numpy(pi),
        torch.from_numpy(values),
        tau=tau,
        walk_length=walk_length,
    )
    return pairs, pi


@pytest.mark.parametrize("tau", [0.0, 0.8])
def test_all_indicator_functions_give_the_eigenpairs(graph: Graph, tau: float) -> None:
    pairs, pi = solve(graph, np.eye(15), tau=tau)
    root = np.sqrt(operator_degrees(graph.indptr, graph.weights, tau=tau))
    dense = normalized_affinity(graph.to_scipy(), tau=tau).toarray() + tau / 15 / np.outer(root, root)
    mu, vectors = scipy.linalg.eigh(dense)
    mu, vectors = mu[::-1], vectors[:, ::-1]
    assert len(pairs.mu) == 14  # all but the constant function
    np.testing.assert_allclose(pairs.mu, mu[1:], atol=1e-6)
    functions = ((torch.eye(15).double() - pairs.offset) @ pairs.rotation).numpy()
    np.testing.assert_allclose((pi[:, None] * functions).T @ functions, np.eye(14), atol=1e-8)
    np.testing.assert_allclose(pi @ functions, 0, atol=1e-10)
    # the eigenfunction is the eigenvector over sqrt(d), up to sign and scale
    for i in range(14):
        expected = vectors[:, i + 1] / root
        cosine = (pi * expected * functions[:, i]).sum() / np.sqrt((pi * expected**2).sum())
        assert abs(cosine) == pytest.approx(1.0, abs=1e-5)


def test_values_in_single_precision_are_summed_in_double() -> None:
    # a ring of 3,000: mu = (1 + 2 cos t) / 3 for cos and sin of every frequency t. The second pair is a thousandth as
    # large as the first, which sums in single precision cannot tell from noise
    n = 3_000
    angle = np.arange(n) * 2 * np.pi / n
    graph = Graph.from_edges(np.stack([np.arange(n), (np.arange(n) + 1) % n]), num_nodes=n)
    pairs = [turn(i * angle) for i in (40, 1) for turn in (np.cos, np.sin)]
    values = (np.stack(pairs, axis=1) * [1, 1, 2e-3, 2e-3] + 0.5).astype(np.float32)
    pi = torch.full((n,), 1 / n)  # single precision too
    pairs = rayleigh_ritz(graph.indptr, graph.indices, graph.weights, pi, torch.from_numpy(values))
    expected = (1 + 2 * np.cos(2 * np.pi / n * np.array([1, 1, 40, 40]))) / 3
    np.testing.assert_allclose(pairs.mu, expected, atol=1e-7)
    functions = (torch.from_numpy(values).double() - pairs.offset) @ pairs.rotation
    np.testing.assert_allclose(functions.T @ functions / n, np.eye(4), atol=1e-6)


@pytest.mark.parametrize("length", [1, 2])
def test_few_functions_and_rows_at_a_time_give_the_same(
    graph: Graph, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(3).standard_normal((15, 5)).astype(np.float32)
    whole, _ = solve(graph, values, tau=0.3, walk_length=length)
    monkeypatch.setattr(ritz, "_MOVED_ENTRIES", 2 * 15)
    monkeypatch.setattr(ritz, "_BLOCK_ROWS", 4)
    parts, _ = solve(graph, values, tau=0.3, walk_length=length)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_what_single_precision_cannot_resolve_is_cut(graph: Graph) -> None:
    base = np.random.default_rng(5).standard_normal((15, 3))
    pairs, _ = solve(graph, base * [1, 1e-2, 1e-5])
    assert len(pairs.mu) == 2


def test_path_of_three_by_hand() -> None:
    # degrees 2, 3, 2: mu = 1 (constant), 1/2 for (1, 0, -1), and trace 4/3 leaves -1/6
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=3)
    pairs, _ = solve(graph, np.eye(3))
    np.testing.assert_allclose(pairs.mu, [1 / 2, -1 / 6], atol=1e-12)
    first = ((torch.eye(3).double() - pairs.offset) @ pairs.rotation)[:, 0].numpy()
    np.testing.assert_allclose(np.abs(first), [np.sqrt(7 / 4), 0, np.sqrt(7 / 4)], atol=1e-9)


@pytest.mark.parametrize("length", [2, 3])
def test_longer_walks_average_the_powers(graph: Graph, length: int) -> None:
    one, _ = solve(graph, np.eye(15))
    more, _ = solve(graph, np.eye(15), walk_length=length)
    expected = sum(one.mu**i for i in range(1, length + 1)) / length
    np.testing.assert_allclose(more.mu, -np.sort(-expected.numpy()), atol=1e-6)


def test_values_inside_a_span_are_bounded_by_the_true_ones(graph: Graph) -> None:
    full, _ = solve(graph, np.eye(15))
    some, _ = solve(graph, np.random.default_rng(0).standard_normal((15, 4)))
    assert len(some.mu) == 4
    assert (some.mu <= full.mu[:4] + 1e-6).all()
    assert (np.diff(some.mu) <= 0).all()


def test_dependent_and_constant_columns_are_dropped(graph: Graph) -> None:
    base = np.random.default_rng(1).standard_normal((15, 3))
    pairs, _ = solve(graph, np.hstack([base, base @ np.ones((3, 2)), np.full((15, 1), 7.0)]))
    alone, _ = solve(graph, base)
    assert pairs.rotation.shape == (6, 3)
    np.testing.assert_allclose(pairs.mu, alone.mu, atol=1e-7)


def test_no_variation_at_all_gives_no_pairs(graph: Graph) -> None:
    pairs, _ = solve(graph, np.full((15, 3), 2.0))
    assert len(pairs.mu) <= 3
    assert torch.isfinite(pairs.rotation).all()


def test_signs_do_not_depend_on_the_solver() -> None:
    rng = np.random.default_rng(2)
    root = torch.from_numpy(rng.standard_normal((4, 4)))
    gram = root @ root.T + torch.eye(4)
    energy = torch.diag(torch.tensor([3.0, 2, 1, 0.5]).double())
    rotation = solve_ritz(gram, energy, torch.zeros(4).double()).rotation
    top = rotation.abs().argmax(dim=0)
    assert (rotation.gather(0, top[None]) > 0).all()
    # the same functions with other signs: the same eigenfunctions in the end
    flip = torch.diag(torch.tensor([1.0, -1, 1, -1]).double())
    other = solve_ritz(flip @ gram @ flip, flip @ energy @ flip, torch.zeros(4).double())
    np.testing.assert_allclose((flip @ other.rotation).abs(), rotation.abs(), atol=1e-10)
