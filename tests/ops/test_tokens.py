"""Token lists against their definition: exact where they must be, and within a bound where they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse.linalg import eigsh

from gsparc.exceptions import DamagedModelError, InputError
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.tokens import TokenIndex, tokens_from_neighbors, tokens_reference

LINE = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
VALUES = np.array([[1.0, 0.0], [3.0, 1.0], [5.0, 0.0], [9.0, 1.0], [17.0, 0.0]])


def embedding(n: int, dim: int, width: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Communities inside communities: coordinates, and features with noise ``noise`` times as long as the signal."""
    rng = np.random.default_rng(seed)
    leaf = rng.integers(n // 60, size=n)
    coordinates, features = np.zeros((n, dim)), np.zeros((n, width))
    for level, size in enumerate((25, 5, 1)):
        block = leaf // size
        coordinates += 0.6**level * rng.standard_normal((block.max() + 1, dim))[block]
        features += rng.standard_normal((block.max() + 1, width))[block] / 3**0.5
    coordinates += 0.2 * rng.standard_normal((n, dim))
    features += noise * rng.standard_normal((n, width))
    return coordinates.astype(np.float32), features.astype(np.float32)


def exact_tokens(index: NeighborIndex, rows: np.ndarray, nodes: np.ndarray, num_tokens: int) -> torch.Tensor:
    """The reference for many nodes: exact neighbours without the node itself, in blocks."""
    ids = index.search(index.rows()[torch.from_numpy(nodes)], 2**num_tokens + 1)[1]
    kept = np.stack([row[row != node][: 2**num_tokens] for row, node in zip(ids, nodes, strict=True)])
    parts = torch.from_numpy(kept).split(20)
    return torch.cat([tokens_from_neighbors(part, torch.from_numpy(rows), num_tokens) for part in parts])


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


def test_by_hand() -> None:
    index = TokenIndex.build(NeighborIndex.build(LINE), VALUES)
    assert index.tokens(np.array([[0.2]]), 2).tolist() == [[[2.0, 0.5], [4.5, 0.5]]]  # 0 and 1; then 3 and 7 too
    own = index.tokens(LINE[:1], 2, exclude=np.array([0]))
    assert own.tolist() == [[[4.0, 0.5], [8.5, 0.5]]]  # 1 and 3; then 7 and 15 too
    assert repr(index) == "TokenIndex(num_vectors=5, num_columns=2, num_cells=1, exact_tokens=8)"


def test_more_than_all_nodes_is_all_nodes() -> None:
    index = TokenIndex.build(NeighborIndex.build(LINE), VALUES)
    tokens = index.tokens(LINE[:2], 40, exclude=np.array([0, 1]))
    assert tokens.shape == (2, 40, 2)
    np.testing.assert_allclose(tokens[0, 2:], np.tile(VALUES[1:].mean(axis=0), (38, 1)), rtol=1e-6)
    np.testing.assert_allclose(tokens[1, 1:], np.tile(VALUES[[0, 2, 3, 4]].mean(axis=0), (39, 1)), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_graphs(n: int) -> None:
    index = TokenIndex.build(NeighborIndex.build(LINE[:n]), VALUES[:n])
    for exclude in (None, np.arange(n)):
        expected = tokens_reference(LINE[:n], LINE[:n], VALUES[:n], 3, exclude)
        np.testing.assert_allclose(index.tokens(LINE[:n], 3, exclude), expected, rtol=1e-6)
    if n == 1:  # no other node
        assert index.tokens(LINE[:1], 3, exclude=np.array([0])).tolist() == [[[0.0, 0.0]] * 3]


@settings(deadline=None, max_examples=150)
@given(
    vectors=arrays(np.int8, st.tuples(st.integers(1, 45), st.just(2)), elements=st.integers(-3, 3)),
    num_tokens=st.integers(1, 7),
    seen=st.booleans(),
    cell_size=st.integers(1, 20),
    seed=st.integers(0, 5),
)
def test_exact_for_small_graphs_ties_included(
    vectors: np.ndarray, num_tokens: int, seen: bool, cell_size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    v = vectors.astype(np.float32)
    rows = rng.standard_normal((len(v), 3)).astype(np.float32)
    exclude = rng.integers(len(v), size=4) if seen else None
    queries = v[exclude] if exclude is not None else rng.integers(-3, 4, (4, 2)).astype(np.float32)
    index = TokenIndex.build(NeighborIndex.build(v), rows, cell_size=cell_size)
    expected = tokens_reference(queries, v, rows, num_tokens, exclude)
    np.testing.assert_allclose(index.tokens(queries, num_tokens, exclude), expected, atol=2e-6)


@pytest.mark.parametrize("exact", [0, 3, 8])
def test_cells_that_lie_wholly_inside_make_no_error(exact: int) -> None:
    """Groups far apart, each of one cell: a mean over whole groups is exact however few rows are read."""
    rng = np.random.default_rng(0)
    v = (1000.0 * np.repeat(np.arange(8), 16)[:, None] ** 2 + rng.random((128, 1))).astype(np.float32)
    rows = rng.standard_normal((128, 5)).astype(np.float32)
    index = TokenIndex.build(NeighborIndex.build(v), rows, cell_size=16, exact_tokens=exact)
    assert index.cells.sizes.tolist() == [16] * 8
    expected = tokens_reference(v[:1], v, rows, 6)
    np.testing.assert_allclose(index.tokens(v[:1], 6)[:, 3:], expected[:, 3:], atol=1e-5)


@pytest.mark.parametrize(("noise", "bound"), [(1.0, 0.035), (2.0, 0.05)])
def test_error_on_communities(noise: float, bound: float) -> None:
    vectors, rows = embedding(12_000, 32, 60, noise)
    neighbors = NeighborIndex.build(vectors)
    nodes = np.random.default_rng(1).choice(12_000, 200, replace=False)
    expected = exact_tokens(neighbors, rows, nodes, 10)
    got = TokenIndex.build(neighbors, rows).tokens(vectors[nodes], 10, exclude=nodes)
    assert relative_error(got[:, 6:], expected[:, 6:]) <= bound
    assert relative_error(got[:, :6], expected[:, :6]) <= 0.01
    all_read = TokenIndex.build(neighbors, rows, exact_tokens=10).tokens(vectors[nodes], 10, exclude=nodes)
    assert relative_error(all_read[:, 6:], expected[:, 6:]) <= 0.01


@pytest.mark.data
def test_error_on_pubmed(data_folder: Path) -> None:
    """Eigenvectors of a real graph, whose feature rows are nearly at right angles: as noisy as features get."""
    with np.load(data_folder / "pubmed.npz", allow_pickle=False) as data:
        shape = tuple(data["x_shape"])
        rows = sp.csr_matrix((data["x_data"], data["x_indices"], data["x_indptr"]), shape=shape).toarray()
        edges = data["edges"]
    n = len(rows)
    edges = edges if edges.shape[0] == 2 else edges.T
    adjacency = sp.coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(n, n)).tocsr()
    adjacency = ((adjacency + adjacency.T + sp.eye(n)) > 0).astype(np.float64)
    root = sp.diags(1 / np.sqrt(np.asarray(adjacency.sum(axis=1)).ravel()))
    start = np.random.default_rng(0).standard_normal(n)
    vectors = eigsh(root @ adjacency @ root, k=25, which="LA", v0=start)[1][:, :-1].astype(np.float32)
    neighbors = NeighborIndex.build(vectors, metric="cosine")
    nodes = np.random.default_rng(1).choice(n, 200, replace=False)
    rows = rows.astype(np.float32)
    expected = exact_tokens(neighbors, rows, nodes, 10)
    got = TokenIndex.build(neighbors, rows).tokens(vectors[nodes], 10, exclude=nodes)
    assert relative_error(got[:, 6:], expected[:, 6:]) <= 0.05


def test_a_seen_node_never_counts_itself() -> None:
    vectors, rows = embedding(1500, 8, 6, 1.0)
    nodes = np.arange(0, 1500, 100)
    neighbors = NeighborIndex.build(vectors)
    before = TokenIndex.build(neighbors, rows, exact_tokens=2).tokens(vectors[nodes], 10, exclude=nodes)
    for i, node in enumerate(nodes[:4]):
        changed = rows.copy()
        changed[node] += 100.0
        index = TokenIndex.build(neighbors, changed, exact_tokens=2)
        after = index.tokens(vectors[nodes[i : i + 1]], 10, exclude=nodes[i : i + 1])
        np.testing.assert_allclose(after[0], before[i], atol=1e-4)
        assert not np.allclose(index.tokens(vectors[nodes[i : i + 1]], 10)[0], before[i], atol=1e-2)


def test_a_batch_of_one_and_any_source_of_rows(tmp_path: Path) -> None:
    vectors, rows = embedding(2000, 8, 6, 1.0)
    np.save(tmp_path / "rows.npy", rows)
    neighbors = NeighborIndex.build(vectors)
    tensor = torch.from_numpy(rows)
    sources = [rows, tensor, np.load(tmp_path / "rows.npy", mmap_mode="r"), lambda ids: tensor[ids.long()]]
    expected = TokenIndex.build(neighbors, rows).tokens(vectors[:70], 9, exclude=np.arange(70))
    for source in sources:
        index = TokenIndex.build(neighbors, source)
        one = index.tokens(torch.from_numpy(vectors[7:8]), 9, exclude=torch.tensor([7]))
        np.testing.assert_allclose(one[0], expected[7], atol=1e-5)
    assert index.tokens(vectors[:0], 9).shape == (0, 9, 6)


@pytest.mark.parametrize("inference", [False, True])
def test_threads_change_nothing(inference: bool) -> None:
    vectors, rows = embedding(3000, 8, 6, 1.0)
    index = TokenIndex.build(NeighborIndex.build(vectors), rows)
    expected = index.tokens(vectors[:600], 9, exclude=np.arange(600))
    torch.set_num_threads(3)
    try:
        with torch.inference_mode(inference):
            got = index.tokens(vectors[:600], 9, exclude=np.arange(600))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert not got.requires_grad


@pytest.mark.parametrize("kind", ["ivf", "cells"])
def test_any_kind_of_index_and_metric_gives_the_same_lists(kind: str) -> None:
    vectors, rows = embedding(1000, 8, 6, 1.0)
    exact = TokenIndex.build(NeighborIndex.build(vectors, metric="cosine"), rows)
    other = TokenIndex.build(NeighborIndex.build(vectors, metric="cosine", kind=kind), rows)
    np.testing.assert_allclose(other.tokens(3 * vectors[:9], 8), exact.tokens(vectors[:9], 8), atol=1e-5)


def test_state_and_its_damage() -> None:
    vectors, rows = embedding(900, 8, 6, 1.0)
    neighbors = NeighborIndex.build(vectors)
    index = TokenIndex.build(neighbors, rows, exact_tokens=4, oversample=1.5)
    saved, config = index.state()
    again = TokenIndex.from_state(saved, config, neighbors, rows)
    assert (again.exact_tokens, again.oversample) == (4, 1.5)
    assert torch.equal(again.tokens(vectors[:9], 9), index.tokens(vectors[:9], 9))
    with pytest.raises(DamagedModelError, match="exact_tokens='all'"):
        TokenIndex.from_state(saved, {**config, "exact_tokens": "all"}, neighbors, rows)
    with pytest.raises(DamagedModelError, match="do not hold 899 vectors"):
        TokenIndex.from_state(saved, config, NeighborIndex.build(vectors[:899]), rows[:899])


def test_bad_input() -> None:
    neighbors = NeighborIndex.build(LINE)
    with pytest.raises(InputError, match=r"rows of shape \(4, 2\) came for 5 vectors"):
        TokenIndex.build(neighbors, VALUES[:4])
    with pytest.raises(InputError, match="exact_tokens=-1"):
        TokenIndex.build(neighbors, VALUES, exact_tokens=-1)
    with pytest.raises(InputError, match=r"oversample=0\.5"):
        TokenIndex.build(neighbors, VALUES, oversample=0.5)
    index = TokenIndex.build(neighbors, VALUES)
    with pytest.raises(InputError, match="num_tokens=0"):
        index.tokens(LINE, 0)
    with pytest.raises(InputError, match=r"expected \(rows, 1\)"):
        index.tokens(np.ones((1, 2)), 1)
    with pytest.raises(InputError, match="row number from 0 to 4"):
        index.tokens(LINE[:1], 1, exclude=np.array([5]))
    with pytest.raises(InputError, match=r"exclude of shape \(2,\) came for 1 queries"):
        index.tokens(LINE[:1], 1, exclude=np.array([0, 1]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_makes_the_lists_of_the_cpu() -> None:
    vectors, rows = embedding(6000, 16, 20, 1.0)
    nodes = np.arange(0, 6000, 50)
    neighbors = NeighborIndex.build(vectors, device="cuda")
    expected = exact_tokens(NeighborIndex.build(vectors), rows, nodes, 9)
    for source in (rows, torch.from_numpy(rows).cuda()):
        got = TokenIndex.build(neighbors, source).tokens(vectors[nodes], 9, exclude=nodes)
        assert got.is_cuda
        assert relative_error(got.cpu()[:, 6:], expected[:, 6:]) <= 0.03
