"""Indexes, cells and token lists that take in more rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.exceptions import FeatureError, InputError
from gsparc.ops._grown_cells import grown_cells
from gsparc.ops._grown_tokens import grown_tokens
from gsparc.ops.cells import LEAST_LOOKED, Cells
from gsparc.ops.combined import CombinedIndex
from gsparc.ops.neighbors import NeighborIndex, neighbors_reference
from gsparc.ops.tokens import TokenIndex, tokens_reference


def clustered(n: int, dim: int = 6, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(40, dim)) * 3
    return (centers[rng.integers(40, size=n)] + rng.normal(size=(n, dim))).astype(np.float32)


VECTORS = clustered(2000)


def members(cells: Cells) -> list[list[int]]:
    cuts = cells.pointers.tolist()
    return sorted(sorted(cells.order[a:b].tolist()) for a, b in pairwise(cuts))


def test_cells_on_a_line_by_hand() -> None:
    cells = Cells.build(torch.tensor([[0.0], [1.0], [10.0], [11.0]]), cell_size=2)
    more = grown_cells(cells, torch.tensor([[12.0], [2.0], [9.0]]))
    assert members(more) == [[0, 1, 5], [2, 3, 4, 6]]
    assert members(cells) == [[0, 1], [2, 3]]
    assert more.rows().flatten().tolist() == [0.0, 1.0, 10.0, 11.0, 12.0, 2.0, 9.0]
    assert torch.equal(more.centroids, cells.centroids)
    assert grown_cells(cells, torch.zeros(0, 1)) is cells


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 60), st.integers(0, 10**6))
def test_every_row_is_in_one_cell_and_order_of_arrival_does_not_matter(cut: int, seed: int) -> None:
    rows = torch.from_numpy(VECTORS)
    cells = Cells.build(rows[:400], cell_size=16)
    fresh = rows[400 + torch.randperm(600, generator=torch.Generator().manual_seed(seed))[:60]]
    whole = grown_cells(cells, fresh)
    halves = grown_cells(grown_cells(cells, fresh[:cut]), fresh[cut:])
    assert sorted(whole.order.tolist()) == list(range(460))
    torch.testing.assert_close(whole.rows(), torch.cat([rows[:400], fresh]), rtol=0, atol=0)
    if whole.num_cells == cells.num_cells == halves.num_cells:  # none was cut
        assert torch.equal(whole.order, halves.order)
        assert torch.equal(whole.pointers, halves.pointers)
        assert torch.equal(whole.vectors, halves.vectors)


def test_a_crowded_cell_is_cut() -> None:
    rows = torch.from_numpy(VECTORS[:512])
    cells = Cells.build(rows, cell_size=16)
    many = rows[:1] + 0.05 * torch.randn(1000, rows.shape[1], generator=torch.Generator().manual_seed(0))
    more = grown_cells(cells, many)
    assert sorted(more.order.tolist()) == list(range(1512))
    assert more.num_cells > cells.num_cells
    assert int(more.sizes.max()) <= max(int(cells.sizes.max()), LEAST_LOOKED * 16)
    untouched = set(map(tuple, members(cells))) & set(map(tuple, members(more)))
    assert len(untouched) == cells.num_cells - 1
    _, ids = more.search(many, 1, more.candidates_of(1))
    assert (ids.flatten() == torch.arange(512, 1512)).float().mean() > 0.9  # a thousand nodes in one place


@pytest.mark.parametrize("kind", ["exact", "ivf", "cells"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_added_rows_are_found_by_every_kind(kind: str, metric: str, tmp_path: Path) -> None:
    index = NeighborIndex.build(VECTORS[:1000], kind=kind, metric=metric)
    grown = index.copy()
    assert grown.add(VECTORS[1000:1500]).tolist() == list(range(1000, 1500))
    assert grown.add(VECTORS[1500:]).tolist() == list(range(1500, 2000))
    assert (index.num_vectors, grown.num_vectors) == (1000, 2000)
    distances, ids = grown.search(VECTORS, 1)
    assert ids[1000:].ravel().tolist() == list(range(1000, 2000))
    assert (ids[:1000].ravel() == np.arange(1000)).mean() > 0.99
    np.testing.assert_allclose(distances[1000:], 0.0, atol=2e-3)
    np.testing.assert_allclose(grown.rows(), NeighborIndex.build(VECTORS, metric=metric, kind="exact").rows())
    _, truth = neighbors_reference(VECTORS[:200], VECTORS, 10, metric)
    _, found = grown.search(VECTORS[:200], 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, truth, strict=True)]) > 0.95
    grown.save(tmp_path)
    for got, expected in zip(
        NeighborIndex.load(tmp_path).search(VECTORS[:50], 5), grown.search(VECTORS[:50], 5), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_rows_that_an_earlier_version_kept_beside_the_cells_join_them() -> None:
    index = NeighborIndex.build(VECTORS[:1000], kind="cells")
    arrays, config = index.state()
    rows = np.concatenate([arrays["rows"], VECTORS[1000:1010]])
    loaded = NeighborIndex.from_state({**arrays, "rows": rows}, {**config, "num_vectors": 1010})
    assert loaded.search(VECTORS[1000:1010], 1)[1].ravel().tolist() == list(range(1000, 1010))


@pytest.mark.parametrize("kind", ["exact", "ivf", "cells"])
def test_a_refused_row_changes_nothing(kind: str) -> None:
    index = NeighborIndex.build(VECTORS[:300], kind=kind)
    with pytest.raises(InputError, match=r"expected \(rows, 6\)"):
        index.add(VECTORS[:2, :3])
    with pytest.raises(FeatureError, match="NaN"):
        index.add(VECTORS[:2] * np.nan)
    assert index.num_vectors == 300


@pytest.mark.parametrize("num_tokens", [3, 7])
@pytest.mark.parametrize("exact_tokens", [8, 4])
def test_grown_token_lists_are_those_of_all_nodes(num_tokens: int, exact_tokens: int) -> None:
    vectors, rows = VECTORS[:1500], clustered(1500, 5, seed=1)
    index = NeighborIndex.build(vectors[:1000], kind="exact")
    tokens = TokenIndex.build(index, torch.from_numpy(rows[:1000]), exact_tokens=exact_tokens)
    expected_before = tokens.tokens(vectors[:10], num_tokens)
    more = index.copy()
    more.add(vectors[1000:])
    grown = grown_tokens(tokens, more, torch.from_numpy(rows), torch.from_numpy(vectors[1000:]))
    found = grown.tokens(vectors[1000:1050] + 0.01, num_tokens).numpy()
    expected = tokens_reference(vectors[1000:1050] + 0.01, vectors, rows, num_tokens)
    exact = min(num_tokens, exact_tokens, 6)  # 2^7 nodes lie in more cells than are looked into
    np.testing.assert_allclose(found[:, :exact], expected[:, :exact], atol=1e-4)
    fresh = TokenIndex.build(NeighborIndex.build(vectors), torch.from_numpy(rows), exact_tokens=exact_tokens)
    error = np.abs(fresh.tokens(vectors[1000:1050] + 0.01, num_tokens).numpy() - expected).max()
    assert np.abs(found - expected).max() < 1.5 * error + 1e-4  # no worse than cells that were made for all nodes
    torch.testing.assert_close(tokens.tokens(vectors[:10], num_tokens), expected_before, rtol=0, atol=0)
    again = TokenIndex.from_state(*grown.state(), more, torch.from_numpy(rows))
    torch.testing.assert_close(again._sums, grown._sums, rtol=0, atol=0)


def test_sums_of_cells_that_were_cut_are_made_anew() -> None:
    vectors = np.concatenate([VECTORS[:300], np.repeat(VECTORS[:1], 300, axis=0)])
    rows = torch.arange(600.0).unsqueeze(1)
    index = NeighborIndex.build(vectors[:300], kind="exact")
    tokens = TokenIndex.build(index, rows[:300])
    index.add(vectors[300:])
    grown = grown_tokens(tokens, index, rows, torch.from_numpy(vectors[300:]))
    assert grown.cells.num_cells > tokens.cells.num_cells
    assert float(grown._sums.sum()) == 600 * 599 / 2


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kind", ["exact", "ivf", "cells"])
def test_combined_indexes_grow_beside_their_copies(make, kind: str) -> None:
    features = np.abs(clustered(600, 9, seed=2))
    index = CombinedIndex.build(VECTORS[:500], make(features[:500]), 0.5, kind=kind, prior=np.arange(500) / 1e6)
    before = index.search(VECTORS[:20], make(features[:20]), 5)
    grown = index.copy()
    assert grown.add(VECTORS[500:600], make(features[500:600])).tolist() == list(range(500, 600))
    assert grown.prior is not None
    np.testing.assert_allclose(grown.prior, np.concatenate([np.arange(500) / 1e6, np.zeros(100)]), rtol=1e-6)
    assert grown.search(VECTORS[500:600], make(features[500:600]), 1)[1].ravel().tolist() == list(range(500, 600))
    for got, expected in zip(index.search(VECTORS[:20], make(features[:20]), 5), before, strict=True):
        np.testing.assert_array_equal(got, expected)
    spectral, own = grown.rows_at(np.array([599, 3]))
    np.testing.assert_allclose(
        spectral, VECTORS[[599, 3]] / np.linalg.norm(VECTORS[[599, 3]], axis=1)[:, None], atol=1e-6
    )
    own = own.toarray() if sp.issparse(own) else own.numpy()
    np.testing.assert_allclose(own, features[[599, 3]] / np.linalg.norm(features[[599, 3]], axis=1)[:, None], atol=1e-6)
    grown.prior = None
    assert grown.prior is None
    with pytest.raises(InputError, match="expected 600 finite numbers"):
        grown.prior = np.zeros(3)
