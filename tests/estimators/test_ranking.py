"""Cosines for every share of smoothing at once, against their definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsparc.estimators._ranking import (
    SMOOTH,
    LinkWeights,
    _placed,
    _times,
    averaging,
    choose_weights,
    mixed,
    shared_cosines,
    smoothed,
    unit,
)
from gsparc.graph import Graph
from gsparc.training.links import Retrieval
from gsparc.training.spectral import hold_out

CPU = torch.device("cpu")
PATH = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4, weights=[1.0, 3.0])


def _reference(left: np.ndarray, own: np.ndarray, means: np.ndarray, share: float) -> np.ndarray:
    return left @ unit(mixed(own, means, share)).T


@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_shared_cosines_are_those_of_the_mixed_rows(seed: int, sparse: bool, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    own, means, left = (rng.standard_normal((n, 5)).astype(np.float32) for n in (7, 7, 3))
    own[rng.random(own.shape) < 0.5] = 0
    own[0] = means[0] = 0  # nothing to compare
    own[1] = 0
    if not signed:
        own, means, left = np.abs(own), np.abs(means), np.abs(left)
    left = unit(left)
    given_rows = [sp.csr_array(rows) if sparse else torch.from_numpy(rows) for rows in (left, own, means)]
    for share, found in zip(SMOOTH, shared_cosines(*given_rows, SMOOTH, CPU), strict=True):
        np.testing.assert_allclose(found.numpy(), _reference(left, own, means, share), atol=2e-5)
        assert found.dtype == torch.float32


def test_a_row_that_its_mean_cancels_is_like_none() -> None:
    own = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    means = torch.tensor([[-1.0, 0.0], [0.0, 1.0]])
    (found,) = shared_cosines(torch.tensor([[1.0, 0.0]]), own, means, [0.5], CPU)
    np.testing.assert_allclose(found, [[0.0, 0.5**0.5]], atol=1e-6)


def test_averaging_by_hand() -> None:
    # the walk stays with the mean weight, 2: node 1 has 1 + 2 + 3 = 6 in all, node 3 stands alone
    expected = [[2 / 3, 1 / 3, 0, 0], [1 / 6, 2 / 6, 3 / 6, 0], [0, 0.6, 0.4, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(averaging(PATH).toarray(), expected, atol=1e-6)
    np.testing.assert_allclose(averaging(PATH, at=np.array([2, 0])).toarray(), [expected[2], expected[0]], atol=1e-6)
    half = 0.5 * np.eye(4) + 0.5 * np.array(expected)
    np.testing.assert_allclose(averaging(PATH, 0.5).toarray(), half, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_smoothing_is_the_same_for_sparse_and_dense_rows(share: float) -> None:
    rows = np.array([[1, 0, 2], [0, 0, 4], [0, 3, 0], [5, 0, 0]], np.float32)
    dense, sparse = smoothed(PATH, rows, share), smoothed(PATH, sp.csr_array(rows), share)
    np.testing.assert_allclose(sparse.toarray(), dense, atol=1e-6)
    np.testing.assert_allclose(dense, averaging(PATH, share) @ rows, atol=1e-6)


def test_unit_rows_keep_their_kind() -> None:
    rows = np.array([[3, 4], [0, 0]])
    for kind, wanted in ((np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float64)):
        found = unit(sp.csr_array(rows.astype(kind)))
        assert found.dtype == wanted
        np.testing.assert_allclose(found.toarray(), [[0.6, 0.8], [0, 0]])
    twice = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_allclose(unit(twice).toarray(), [[0.6, 0.8]])
    assert twice.nnz == 3  # the caller's matrix is as it was


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-21, 1e-17, 1e19, 1e37])
def test_unit_rows_in_tiny_and_huge_units(scale: float) -> None:
    rows = np.array([[3, 4], [0, 0], [-5, 12]], np.float32) * np.float32(scale)
    wanted = unit(sp.csr_array(rows)).toarray()  # by squares in double precision
    before = rows.copy()
    np.testing.assert_allclose(unit(rows), wanted, rtol=1e-6)
    np.testing.assert_array_equal(rows, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("sparse", [False, True])
def test_cuda_gives_the_same_cosines(sparse: bool) -> None:
    rng, at = np.random.default_rng(0), np.array([3, 1])
    rows = unit(np.where(rng.random((4, 6)) < 0.5, rng.random((4, 6)), 0).astype(np.float32))
    found = []
    for device in (CPU, torch.device("cuda")):
        placed = _placed(sp.csr_array(rows) if sparse else rows, device)
        assert isinstance(placed, torch.Tensor) == (not sparse or device.type == "cuda")
        means = _times(averaging(PATH, at=at), placed)
        found.append([part.cpu() for part in shared_cosines(placed[[0, 2]], placed[at], means, SMOOTH, device)])
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-5)


def _chosen(graph: Graph, view: np.ndarray, embedding: np.ndarray | None) -> tuple[LinkWeights, float]:
    held = hold_out(graph, 0.3, 0)
    assert held is not None
    trial = (graph[held.train], held.train, Retrieval(held, 0, CPU), embedding)
    weights, _, report = choose_weights([trial], view, popularity=True, exact=True, device=CPU)
    return weights, report["mrr_chosen"]


def test_a_poor_map_never_keeps_features_of_the_neighbours_out() -> None:
    """Buyers and goods have no feature in common: a good is like a buyer only through those who bought it."""
    rng = np.random.default_rng(0)
    taste, good = np.arange(200) % 5, np.arange(200) >= 120
    view = np.zeros((200, 10), np.float32)
    view[np.arange(200), taste + 5 * good] = 1
    view += 0.1 * rng.standard_normal(view.shape).astype(np.float32)
    buyers = np.repeat(np.arange(120), 4)
    goods = 120 + 5 * rng.integers(16, size=480) + taste[buyers]
    graph = Graph.from_edges([buyers, goods], num_nodes=200)
    poor = rng.standard_normal((200, 8)) + 0.3 * np.eye(8)[taste]
    features_alone, with_map = (_chosen(graph, view, rows) for rows in (None, unit(poor.astype(np.float32))))
    assert features_alone[0].smooth_features > 0
    assert with_map[1] >= features_alone[1]


def test_popularity_can_be_all_that_counts() -> None:
    rng = np.random.default_rng(0)
    ends = np.repeat(np.arange(200), 3), (200 * rng.random(600) ** 6).astype(int)
    graph = Graph.from_edges(np.stack(ends)[:, ends[0] != ends[1]], num_nodes=200)
    weights, found = _chosen(graph, rng.standard_normal((200, 4)).astype(np.float32), None)
    _, alone = _chosen(graph, np.zeros((200, 4), np.float32), None)  # nothing but popularity
    assert weights.popularity > 0.3
    assert found > 0.97 * alone
