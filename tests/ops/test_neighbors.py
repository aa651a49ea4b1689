"""The neighbour index against its brute-force reference."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gsparc.exceptions import DamagedModelError, FeatureError, InputError, OutputError, UnknownNameError
from gsparc.ops import _knn
from gsparc.ops.neighbors import NeighborIndex, neighbors_reference, resolve_kind


@pytest.fixture
def clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    middle = rng.standard_normal((20, 8))
    return (middle[rng.integers(20, size=2000)] + 0.3 * rng.standard_normal((2000, 8))).astype(np.float32)


def test_four_points_on_a_line() -> None:
    index = NeighborIndex.build(np.array([[0.0], [1.0], [3.0], [6.0]]))
    distances, ids = index.search(np.array([[2.5]]), k=3)
    assert ids.tolist() == [[2, 1, 0]]
    assert distances.tolist() == [[0.5, 1.5, 2.5]]
    assert distances.dtype == np.float32
    assert ids.dtype == np.int64
    assert repr(index) == "NeighborIndex(num_vectors=4, dim=1, metric='euclidean', kind='exact')"


def test_cosine_by_hand_and_zero_vectors() -> None:
    index = NeighborIndex.build(np.array([[2.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [3.0, 4.0]]), metric="cosine")
    distances, ids = index.search(np.array([[5.0, 0.0], [0.0, 0.0]]), k=4)
    assert ids[0].tolist() == [0, 3, 1, 2]
    np.testing.assert_allclose(distances[0], [0.0, 0.4, 1.0, 2.0], atol=1e-6)
    assert ids[1].tolist() == [0, 1, 2, 3]  # a zero query is at 1 from everything: order of ids
    assert distances[1].tolist() == [1.0] * 4


def test_diffusion_scales_components() -> None:
    vectors, scale = np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([1.0, 0.1])
    near = NeighborIndex.build(vectors, metric="diffusion", scale=scale).search(np.zeros((1, 2)), k=2)
    assert near[1].tolist() == [[0, 1]]  # 0.1 against 0.5; plain Euclidean says 1.0 against 0.5
    np.testing.assert_allclose(near[0], [[0.1, 0.5]], rtol=1e-6)
    assert NeighborIndex.build(vectors).search(np.zeros((1, 2)), k=2)[1].tolist() == [[1, 0]]


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "diffusion"])
@pytest.mark.parametrize("num_queries", [1, 40])
def test_exact_equals_reference_in_small_blocks(
    clusters: np.ndarray, metric: str, num_queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_knn, "_CPU_CELLS", 7 * 2000)
    monkeypatch.setattr(_knn, "_ROW_BLOCK", {"cpu": 300, "cuda": 300})
    scale = np.linspace(1, 0.2, 8) if metric == "diffusion" else None
    queries = np.random.default_rng(1).standard_normal((num_queries, 8)).astype(np.float32)
    index = NeighborIndex.build(clusters, metric=metric, scale=scale)
    distances, ids = index.search(queries, k=25)
    expected_d, expected = neighbors_reference(queries, clusters, 25, metric, scale)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(distances, expected_d, atol=2e-6)


@settings(deadline=None, max_examples=400)
@given(
    vectors=arrays(np.int8, st.tuples(st.integers(1, 40), st.just(2)), elements=st.integers(-2, 2)),
    queries=arrays(np.int8, st.tuples(st.integers(1, 12), st.just(2)), elements=st.integers(-2, 2)),
    k=st.integers(1, 45),
)
def test_ties_go_to_the_lower_id(vectors: np.ndarray, queries: np.ndarray, k: int) -> None:
    v, q = vectors.astype(np.float32), queries.astype(np.float32)
    distances, ids = NeighborIndex.build(v).search(q, k)
    expected_d, expected = neighbors_reference(q, v, min(k, len(v)))
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(distances, expected_d)


def test_many_equal_rows_and_far_from_the_origin() -> None:
    vectors = np.tile(np.array([[1000.0, 1000.5]], dtype=np.float32), (500, 1))
    vectors[400] += 0.001
    distances, ids = NeighborIndex.build(vectors).search(vectors[:20], k=5)
    assert (ids == np.arange(5)).all()
    assert (distances == 0).all()
    assert NeighborIndex.build(vectors).search(vectors[400:401].repeat(20, 0), k=1)[1].tolist() == [[400]] * 20


def test_k_is_cut_to_the_number_of_vectors(clusters: np.ndarray) -> None:
    assert NeighborIndex.build(clusters[:3]).search(clusters[:2], k=10)[1].shape == (2, 3)
    ivf = NeighborIndex.build(clusters[:100], kind="ivf", num_probes=1)
    ids = ivf.search(clusters[:5], k=1000)[1]  # one cell holds fewer: the search widens by itself
    assert (np.sort(ids, axis=1) == np.arange(100)).all()


def test_tensors_and_other_dtypes_are_taken() -> None:
    vectors = torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64, requires_grad=True)
    assert NeighborIndex.build(vectors).search(np.array([[3]]), k=1)[1].tolist() == [[2]]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_ivf_reaches_its_recall_and_repeats(clusters: np.ndarray, metric: str) -> None:
    index = NeighborIndex.build(clusters, metric=metric, kind="ivf", seed=3)
    assert index.kind == "ivf"
    assert index.recall_ >= 0.98
    assert index.num_probes_ is not None
    rng = np.random.default_rng(2)
    queries = clusters[rng.integers(2000, size=200)] + 0.05 * rng.standard_normal((200, 8)).astype(np.float32)
    distances, ids = index.search(queries, 10)
    expected_d, expected = neighbors_reference(queries, clusters, 10, metric)
    hits = np.mean([np.isin(a, b).mean() for a, b in zip(ids, expected, strict=True)])
    assert hits >= 0.97
    assert (np.diff(distances, axis=1) >= 0).all()
    np.testing.assert_allclose(distances[:, 0], expected_d[:, 0], atol=1e-3)
    again = NeighborIndex.build(clusters, metric=metric, kind="ivf", seed=3)
    np.testing.assert_array_equal(again.state()[0]["ivf"], index.state()[0]["ivf"])
    np.testing.assert_array_equal(index.rows(), NeighborIndex.build(clusters, metric=metric).rows())


def test_one_probe_misses_what_all_find(clusters: np.ndarray) -> None:
    few = NeighborIndex.build(clusters, kind="ivf", num_cells=200, num_probes=1)
    every = NeighborIndex.build(clusters, kind="ivf", num_cells=200, num_probes=200)
    assert few.recall_ < 0.9
    assert every.recall_ == 1.0


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_add_gives_ids_and_finds_them(clusters: np.ndarray, kind: str) -> None:
    index = NeighborIndex.build(clusters[:500], kind=kind, metric="cosine")
    assert index.add(clusters[500:503]).tolist() == [500, 501, 502]
    assert index.num_vectors == 503
    assert index.search(clusters[500:503], k=1)[1].ravel().tolist() == [500, 501, 502]


def test_auto_picks_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert resolve_kind("auto", 50_000, cpu) == "exact"
    assert resolve_kind("auto", 50_001, cpu) == "ivf"
    assert resolve_kind("exact", 10**7, cpu) == "exact"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert resolve_kind("auto", 50_001, cpu) == "cells"


@pytest.mark.parametrize("kind", ["exact", "ivf"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "diffusion"])
def test_save_and_load(clusters: np.ndarray, kind: str, metric: str, tmp_path) -> None:
    scale = np.linspace(1, 0.5, 8) if metric == "diffusion" else None
    index = NeighborIndex.build(clusters, metric=metric, scale=scale, kind=kind)
    index.add(clusters[:5] + 1)
    index.save(tmp_path / "index")
    loaded = NeighborIndex.load(tmp_path / "index")
    for got, expected in zip(loaded.search(clusters[:9], 4), index.search(clusters[:9], 4), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert (loaded.recall_, loaded.num_probes_) == (index.recall_, index.num_probes_)
    assert loaded.add(clusters[:1]).tolist() == [2005]


def test_damaged_state_is_refused(clusters: np.ndarray, tmp_path) -> None:
    state, config = NeighborIndex.build(clusters, kind="ivf").state()
    with pytest.raises(DamagedModelError, match="unknown metric 'euclid'"):
        NeighborIndex.from_state(state, {**config, "metric": "euclid"})
    with pytest.raises(DamagedModelError, match="do not hold 1999 vectors"):
        NeighborIndex.from_state(state, {**config, "num_vectors": 1999})
    with pytest.raises(DamagedModelError, match="num_probes='all'"):
        NeighborIndex.from_state(state, {**config, "num_probes": "all"})
    with pytest.raises(DamagedModelError, match="lists cannot be read"):
        NeighborIndex.from_state({"ivf": state["ivf"][:1000]}, config)
    with pytest.raises(DamagedModelError, match="lists of the index are missing"):
        NeighborIndex.from_state({}, config)
    exact, config = NeighborIndex.build(clusters).state()
    with pytest.raises(DamagedModelError, match=r"expected float32 of shape \(2000, 8\)"):
        NeighborIndex.from_state({"rows": exact["rows"][:7]}, config)
    with pytest.raises(DamagedModelError, match="no readable index"):
        NeighborIndex.load(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps(config))
    (tmp_path / "index.safetensors").write_bytes(b"not tensors")
    with pytest.raises(DamagedModelError, match="no readable index"):
        NeighborIndex.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        NeighborIndex.build(clusters).save(tmp_path / "file" / "below")


def test_bad_input() -> None:
    vectors = np.eye(3)
    with pytest.raises(UnknownNameError, match="Did you mean 'cosine'"):
        NeighborIndex.build(vectors, metric="cosinus")
    with pytest.raises(UnknownNameError, match="unknown index kind 'hnsw'"):
        NeighborIndex.build(vectors, kind="hnsw")
    with pytest.raises(InputError, match="came with no scale"):
        NeighborIndex.build(vectors, metric="diffusion")
    with pytest.raises(InputError, match="came with a scale"):
        NeighborIndex.build(vectors, scale=np.ones(3))
    with pytest.raises(InputError, match=r"scale has shape \(2,\)"):
        NeighborIndex.build(vectors, metric="diffusion", scale=np.ones(2))
    with pytest.raises(InputError, match="got 0 rows"):
        NeighborIndex.build(np.empty((0, 3)))
    with pytest.raises(FeatureError, match="NaN or infinite"):
        NeighborIndex.build(vectors * np.nan)
    with pytest.raises(InputError, match="num_probes=0"):
        NeighborIndex.build(vectors, num_probes=0)
    with pytest.raises(InputError, match="num_cells=9 for 3 vectors"):
        NeighborIndex.build(vectors, kind="ivf", num_cells=9)
    index = NeighborIndex.build(vectors)
    with pytest.raises(InputError, match=r"expected \(rows, 3\)"):
        index.search(np.ones((1, 2)), k=1)
    with pytest.raises(InputError, match=r"v\[None, :\]"):
        index.search(np.ones(3), k=1)
    with pytest.raises(InputError, match="pass k >= 1"):
        index.search(vectors, k=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_cuda_equals_cpu(clusters: np.ndarray, metric: str, tmp_path) -> None:
    index = NeighborIndex.build(clusters, metric=metric, kind="exact", device="cuda")
    index.save(tmp_path)
    expected_d, expected = neighbors_reference(clusters[:50] + 0.1, clusters, 10, metric)
    for each in (index, NeighborIndex.load(tmp_path, device="cuda")):
        distances, ids = each.search(clusters[:50] + 0.1, 10)
        np.testing.assert_allclose(distances, expected_d, atol=1e-5)
        assert (ids == expected).mean() > 0.99  # rounding may swap neighbours at almost equal distances
