"""Cells of near vectors: a partition, near-exact search through them, and what they leave on disk."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gsparc.exceptions import DamagedModelError, InputError
from gsparc.ops import cells as cells_module
from gsparc.ops.cells import Cells, balanced_order
from gsparc.ops.neighbors import NeighborIndex, neighbors_reference


def clustered(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    """Points around points around points."""
    rng = np.random.default_rng(seed)
    coarse, fine = rng.standard_normal((20, dim)), 0.5 * rng.standard_normal((400, dim))
    leaf = rng.integers(400, size=n)
    rows = coarse[leaf // 20] + fine[leaf] + 0.25 * rng.standard_normal((n, dim))
    return torch.from_numpy(rows.astype(np.float32))


def recall(found: torch.Tensor, truth: np.ndarray) -> float:
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(truth, found.numpy(), strict=True)]))


@settings(deadline=None, max_examples=150)
@given(
    rows=arrays(np.int8, st.tuples(st.integers(1, 90), st.integers(1, 3)), elements=st.integers(-3, 3)),
    cell_size=st.integers(1, 20),
    seed=st.integers(0, 3),
)
def test_cells_are_a_partition_with_true_centroids(rows: np.ndarray, cell_size: int, seed: int) -> None:
    vectors = torch.from_numpy(rows.astype(np.float32))
    cells = Cells.build(vectors, cell_size=cell_size, seed=seed)
    assert sorted(cells.order.tolist()) == list(range(len(rows)))
    assert int(cells.sizes.min()) >= 1
    assert int(cells.pointers[0]) == 0
    assert int(cells.pointers[-1]) == len(rows)
    assert torch.equal(cells.vectors, vectors[cells.order.long()])
    assert torch.equal(cells.rows(), vectors)
    label = cells.labels()
    for cell in range(cells.num_cells):
        members = cells.order[cells.pointers[cell] : cells.pointers[cell + 1]].long()
        assert (label[members] == cell).all()
        torch.testing.assert_close(cells.centroids[cell], vectors[members].mean(dim=0))


@settings(deadline=None, max_examples=150)
@given(
    rows=arrays(np.int8, st.tuples(st.integers(1, 60), st.just(2)), elements=st.integers(-3, 3)),
    queries=arrays(np.int8, st.tuples(st.integers(1, 6), st.just(2)), elements=st.integers(-4, 4)),
    k=st.integers(1, 70),
)
def test_all_candidates_are_an_exact_search(rows: np.ndarray, queries: np.ndarray, k: int) -> None:
    v, q = rows.astype(np.float32), queries.astype(np.float32)
    cells = Cells.build(torch.from_numpy(v), cell_size=4)
    distances, ids = cells.search(torch.from_numpy(q), k, num_candidates=len(v))
    expected_d, expected = neighbors_reference(q, v, min(k, len(v)))
    np.testing.assert_array_equal(distances.numpy(), expected_d)
    for i in range(len(q)):  # equal distances at the cut may name other rows, further in they come by id
        inner = expected_d[i] < expected_d[i, -1]
        np.testing.assert_array_equal(ids[i].numpy()[inner], expected[i][inner])


def test_equal_parts_of_a_line() -> None:
    order, pointers = balanced_order(torch.arange(10.0).flip(0).unsqueeze(1), 4, seed=0)
    assert pointers.tolist() == [0, 2, 5, 7, 10]
    parts = [sorted(order[a:b].tolist()) for a, b in itertools.pairwise(pointers)]
    assert sorted(parts) in ([[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]], [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9]])


@pytest.mark.parametrize("flat", [8192, 16])
def test_few_candidates_find_nearly_all(flat: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "_FLAT_CELLS", flat)
    vectors = clustered(6000, 12)
    cells = Cells.build(vectors, cell_size=16)
    assert (cells.groups is None) == (flat == 8192)
    truth = neighbors_reference(vectors[:100].numpy(), vectors.numpy(), 20)[1]
    assert recall(cells.search(vectors[:100], 20, num_candidates=600)[1], truth) >= 0.97
    assert recall(cells.search(vectors[:100], 20, num_candidates=20)[1], truth) < 0.8


def test_outliers_do_not_hide_their_neighbours() -> None:
    vectors = clustered(4000, 8)
    vectors[::40] *= 50.0
    cells = Cells.build(vectors, cell_size=16)
    queries = vectors[1:101:2]
    truth = neighbors_reference(queries.numpy(), vectors.numpy(), 20)[1]
    assert recall(cells.search(queries, 20, num_candidates=500)[1], truth) >= 0.97


def test_far_from_the_origin() -> None:
    vectors = clustered(2000, 6) + 1000.0
    cells = Cells.build(vectors)
    assert float(cells.centre.norm()) > 1000
    distances, ids = cells.search(vectors[:50], 1, num_candidates=200)
    assert ids.flatten().tolist() == list(range(50))
    assert distances.flatten().tolist() == [0.0] * 50


def test_a_query_among_tiny_cells_looks_into_more_of_them() -> None:
    line = torch.cat([torch.zeros(200, 1), 10.0 + 5.0 * torch.arange(40.0).unsqueeze(1)])
    cells = Cells.build(line, cell_size=4)
    found = cells.candidates(torch.tensor([[150.0]]), 30, needed=30)
    assert torch.isfinite(found.scores).all()
    assert len(set(found.positions.flatten().tolist())) == 30


def test_the_same_seed_gives_the_same_cells() -> None:
    vectors = clustered(1500, 5)
    one, two, other = (Cells.build(vectors, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.order, two.order)
    assert torch.equal(one.centroids, two.centroids)
    assert not torch.equal(one.order, other.order)
    assert repr(one) == f"Cells(num_vectors=1500, dim=5, num_cells={one.num_cells})"
    assert one.order.dtype == torch.int32


def test_state_and_its_damage() -> None:
    vectors = clustered(300, 3)
    cells = Cells.build(vectors)
    saved, config = cells.state()
    again = Cells.from_state(saved, config, vectors)
    for got, expected in zip(again.search(vectors[:9], 5, 40), cells.search(vectors[:9], 5, 40), strict=True):
        assert torch.equal(got, expected)
    order, pointers, centroids = saved["order"], saved["pointers"], saved["centroids"]
    damages = [
        ({"order": order[:-1]}, "do not hold 300 vectors"),
        ({"order": np.zeros_like(order)}, "do not hold 300 vectors"),
        ({"order": order + 1}, "do not hold 300 vectors"),
        ({"order": order.astype(np.float32)}, "do not hold 300 vectors"),
        ({"pointers": pointers[::-1]}, "do not rise from 0 to 300"),
        ({"pointers": pointers[:-1]}, "do not rise from 0 to 300"),
        ({"centroids": centroids[:-1]}, "expected finite float32"),
        ({"centroids": centroids * np.nan}, "expected finite float32"),
    ]
    for change, message in damages:
        with pytest.raises(DamagedModelError, match=message):
            Cells.from_state({**saved, **change}, config, vectors)
    with pytest.raises(DamagedModelError, match="lack \\['order'\\]"):
        Cells.from_state({"pointers": pointers, "centroids": centroids}, config, vectors)
    with pytest.raises(DamagedModelError, match="lack their description"):
        Cells.from_state(saved, {}, vectors)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="cell_size=0"):
        Cells.build(torch.ones(3, 2), cell_size=0)
    with pytest.raises(InputError, match="at least one row"):
        Cells.build(torch.ones(0, 2))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_neighbor_index_of_cells(metric: str) -> None:
    vectors = clustered(3000, 8).numpy()
    index = NeighborIndex.build(vectors, metric=metric, kind="cells", seed=3)
    assert index.recall_ >= 0.98
    assert index.num_probes_ is not None
    queries = clustered(100, 8, seed=0).numpy() + 0.02
    distances, ids = index.search(queries, 10)
    expected_d, expected = neighbors_reference(queries, vectors, 10, metric)
    assert recall(torch.from_numpy(ids), expected) >= 0.97
    np.testing.assert_allclose(distances[:, 0], expected_d[:, 0], atol=1e-3)
    np.testing.assert_array_equal(index.rows(), NeighborIndex.build(vectors, metric=metric, kind="exact").rows())
    np.testing.assert_array_equal(index.search(queries, 3000)[1].sum(axis=1), np.full(100, 3000 * 2999 // 2))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "diffusion"])
def test_neighbor_index_of_cells_grows_and_comes_back(metric: str, tmp_path) -> None:
    scale = np.linspace(1, 0.5, 8) if metric == "diffusion" else None
    vectors = clustered(1000, 8).numpy()
    index = NeighborIndex.build(vectors, metric=metric, kind="cells", scale=scale)
    new = vectors[:3] + np.float32(7.0)
    assert index.add(new).tolist() == [1000, 1001, 1002]
    assert index.num_vectors == 1003
    assert index.search(new, 1)[1].ravel().tolist() == [1000, 1001, 1002]
    index.save(tmp_path)
    loaded = NeighborIndex.load(tmp_path)
    for got, expected in zip(loaded.search(vectors[:9], 4), index.search(vectors[:9], 4), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert (loaded.kind, loaded.num_probes_, loaded.recall_) == ("cells", index.num_probes_, index.recall_)
    assert loaded.add(new[:1]).tolist() == [1003]


def test_zero_rows_are_at_a_right_angle_to_everything() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    distances, ids = NeighborIndex.build(vectors, metric="cosine", kind="cells").search(np.array([[2.0, 0.0]]), 4)
    assert ids.tolist() == [[0, 3, 1, 2]]
    np.testing.assert_allclose(distances, [[0.0, 1 - 0.5**0.5, 1.0, 2.0]], atol=1e-6)


def test_neighbor_index_of_cells_refuses() -> None:
    vectors = clustered(200, 4).numpy()
    state, config = NeighborIndex.build(vectors, kind="cells").state()
    with pytest.raises(DamagedModelError, match="the cells lack"):
        NeighborIndex.from_state({"rows": state["rows"]}, config)
    with pytest.raises(DamagedModelError, match="num_probes=0"):
        NeighborIndex.from_state(state, {**config, "num_probes": 0})
    with pytest.raises(InputError, match="num_cells=201 for 200 vectors"):
        NeighborIndex.build(vectors, kind="cells", num_cells=201)
    one_probe = NeighborIndex.build(vectors, kind="cells", num_cells=64, num_probes=1)
    assert one_probe.num_probes_ == 1
    assert one_probe.recall_ < 0.98


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_finds_what_the_cpu_finds() -> None:
    vectors = clustered(6000, 12)
    cells = Cells.build(vectors.cuda())
    truth = neighbors_reference(vectors[:100].numpy(), vectors.numpy(), 20)[1]
    found = cells.search(vectors[:100].cuda(), 20, num_candidates=600)[1].cpu()
    assert recall(found, truth) >= 0.97
    assert torch.equal(Cells.build(vectors.cuda()).order, cells.order)
