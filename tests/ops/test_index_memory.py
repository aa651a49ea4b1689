"""Indexes that must fit into so much memory: which is chosen, what it answers, what it leaves on disk."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc._mapped import is_mapped, map_tensors
from gsparc._validation import check_memory
from gsparc.exceptions import DamagedModelError, FeatureError, InputError, OutputError
from gsparc.ops._coded import CodedLists, mapped_rows
from gsparc.ops._index_memory import plan_index, plans
from gsparc.ops._knn import exact_neighbors, near_exactly
from gsparc.ops.combined import CombinedIndex
from gsparc.ops.neighbors import NeighborIndex, neighbors_reference

CODED = ("ivf-sq8", "ivf-pq")
METRICS: list[dict[str, Any]] = [
    {"metric": "euclidean"},
    {"metric": "cosine"},
    {"metric": "diffusion", "scale": np.linspace(1.0, 0.2, 8)},
]


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    middle = rng.standard_normal((20, 8))
    return (middle[rng.integers(20, size=2000)] + 0.3 * rng.standard_normal((2000, 8))).astype(np.float32)


def test_the_best_that_fits_is_taken() -> None:
    # 100,000 vectors of 64: whole rows 25.6 MB and ids; a byte each 6.4 MB and ids; half a byte for each or for two
    picks = {size: plan_index(100_000, 64, size * 10**6, exact_up_to=50_000).codes for size in (60, 20, 7, 4)}
    assert picks == {60: "Flat", 20: "SQ8", 7: "PQ64x4fs", 4: "PQ32x4fs"}
    assert plan_index(40_000, 64, 11_000_000, exact_up_to=50_000).kind == "exact"
    assert plan_index(100_000, 64, None, exact_up_to=50_000, kind="ivf-pq").codes == "PQ64x4fs"


@given(st.integers(64, 10**9), st.integers(1, 300), st.integers(1, 10**12))
def test_a_plan_stays_within_the_memory_and_no_better_one_does(n: int, dim: int, memory: int) -> None:
    every = plans(n, dim, exact_up_to=50_000)
    try:
        plan = plan_index(n, dim, memory, exact_up_to=50_000)
    except InputError:
        assert all(other.num_bytes > memory for other in every)
    else:
        assert plan.num_bytes <= memory
        assert all(other.num_bytes > memory for other in every[: every.index(plan)])


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("options", METRICS, ids=lambda options: options["metric"])
def test_answers_are_nearly_those_of_the_reference(clusters: np.ndarray, kind: str, options: dict[str, Any]) -> None:
    index = NeighborIndex.build(clusters, kind=kind, **options)
    rng = np.random.default_rng(1)
    queries = clusters[:100] + 0.05 * rng.standard_normal((100, 8)).astype(np.float32)
    distances, ids = index.search(queries, 10)
    true_distances, truth = neighbors_reference(queries, clusters, 10, **options)
    hits = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(ids, truth, strict=True)])
    assert hits >= 0.95
    assert index.recall_ >= 0.98
    same = ids[:, 0] == truth[:, 0]
    np.testing.assert_allclose(distances[same, 0], true_distances[same, 0], atol=2e-6)  # true ones, not those of codes
    assert (np.diff(distances, axis=1) >= 0).all()
    assert index.num_bytes < clusters.nbytes


def test_recall_is_reported_where_it_is_low() -> None:
    noise = np.random.default_rng(0).standard_normal((3000, 16), dtype=np.float32)  # no structure at all
    index = NeighborIndex.build(noise, kind="ivf-sq8", num_probes=1)
    truth = exact_neighbors(*(index.prepare(noise) for _ in range(2)), 11, inner=False)[1].numpy()
    found = index.search(noise, 11)[1]
    others = [(a[a != i], b[b != i]) for i, (a, b) in enumerate(zip(found, truth, strict=True))]
    hits = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in others])
    assert 0.05 < index.recall_ < 0.6
    assert abs(index.recall_ - hits) < 0.05


@pytest.mark.parametrize("kind", CODED)
def test_saved_and_mapped_again(clusters: np.ndarray, kind: str, tmp_path: Path) -> None:
    index = NeighborIndex.build(clusters, metric="cosine", kind=kind)
    index.save(tmp_path)
    loaded = NeighborIndex.load(tmp_path)
    arrays = map_tensors(tmp_path / "index.safetensors")
    mapped = NeighborIndex.from_state(arrays, index.state()[1])
    assert is_mapped(arrays["rows"])
    for other in (loaded, mapped):
        for mine, theirs in zip(index.search(clusters[:50], 7), other.search(clusters[:50], 7), strict=True):
            assert (mine == theirs).all()
        assert other.summary() == index.summary()
    assert is_mapped(mapped.state()[0]["rows"])  # so that a model which was mapped is saved as one


@pytest.mark.parametrize("kind", [*CODED, "ivf"])
def test_rows_are_added_to_a_loaded_index_and_not_to_its_origin(clusters: np.ndarray, kind: str) -> None:
    index = NeighborIndex.build(clusters, kind=kind)
    loaded = NeighborIndex.from_state(*index.state())  # faiss would end the process if rows were added to its view
    copied = loaded.copy()
    far = np.full((2, 8), 50.0, np.float32) + np.arange(2, dtype=np.float32)[:, None]
    for one in (loaded, copied):
        assert one.add(far).tolist() == [2000, 2001]
        assert one.search(far, 1)[1].tolist() == [[2000], [2001]]
    assert (index.num_vectors, loaded.num_vectors) == (2000, 2002)
    np.testing.assert_array_equal(loaded.rows().numpy()[2000:], far)


def test_an_array_that_is_mapped_read_only_is_taken(clusters: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", clusters)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for kind in ("exact", "ivf-sq8"):
        assert NeighborIndex.build(rows, kind=kind).search(rows[:3], 1)[1].tolist() == [[0], [1], [2]]


def test_vectors_are_read_a_block_at_a_time(clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsparc.ops._vectors._BLOCK", 300)
    sizes: list[int] = []

    class Watched(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            sizes.append(len(found))
            return found

    index = NeighborIndex.build(clusters.view(Watched), metric="cosine", kind="ivf-sq8")
    assert max(sizes) == 300
    assert is_mapped(index.state()[0]["rows"])
    np.testing.assert_allclose(np.linalg.norm(index.rows().numpy(), axis=1), 1.0, rtol=1e-5)


def test_same_seed_same_index(clusters: np.ndarray) -> None:
    one, two = (NeighborIndex.build(clusters, kind="ivf-pq", seed=3).state()[0] for _ in range(2))
    assert all((one[name] == two[name]).all() for name in one)


def test_combined_ranking_over_mapped_rows_is_nearly_that_in_memory(clusters: np.ndarray) -> None:
    features = np.random.default_rng(2).random((2000, 5)).astype(np.float32)
    whole = CombinedIndex.build(clusters, features, 0.7, kind="exact")
    coded = CombinedIndex.build(clusters, features, 0.7, memory=60_000)
    assert coded.kind == "ivf-sq8"
    assert "features" in coded.state()[0]
    ids, truth = (index.search(clusters[:60], features[:60], 10)[1] for index in (coded, whole))
    assert np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(ids, truth, strict=True)]) > 0.95
    pairs = np.tile(np.arange(0, 2000, 100), (3, 1))
    np.testing.assert_allclose(
        coded.score_pairs(clusters[:3], features[:3], pairs),
        whole.score_pairs(clusters[:3], features[:3], pairs),
        atol=1e-5,
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.booleans())
def test_exact_over_blocks_is_exact(n: int, k: int, inner: bool) -> None:
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((n, 3)).astype(np.float32)
    if inner:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = near_exactly(rows[:5], rows, min(k, n), inner=inner)
    truth = neighbors_reference(rows[:5], rows, min(k, n), "cosine" if inner else "euclidean")
    np.testing.assert_allclose(found[0], truth[0], atol=2e-6)


def test_memory_in_words() -> None:
    words = {"2GB": 2 * 10**9, "512 MiB": 512 * 2**20, "1.5kb": 1500, "4096": 4096, " 1 TB ": 10**12}
    assert {word: check_memory("memory", word) for word in words} == words
    assert check_memory("memory", np.int64(7)) == 7


@pytest.mark.parametrize("bad", ["", "GB", "2 potatoes", "-1GB", "0", 0, -5, True, 2.5, None])
def test_memory_that_is_none(bad: Any) -> None:
    with pytest.raises(InputError, match="pass a size such as '2GB'"):
        check_memory("memory", bad)


def test_the_memory_that_is_said_to_be_needed_is_enough() -> None:
    with pytest.raises(InputError, match=r"10 bytes of memory; the smallest \(Flat\) takes 496 bytes"):  # 31 x 4 floats
        plan_index(31, 4, 10, exact_up_to=100)
    assert plan_index(31, 4, 496, exact_up_to=100).codes == "Flat"


def test_bad_input(clusters: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"2,000 vectors of 8 components does not fit into 900 bytes.*PQ2x4fs"):
        NeighborIndex.build(clusters, memory=900)
    with pytest.raises(InputError, match=r"kind 'ivf' .* does not fit"):
        NeighborIndex.build(clusters, memory="20KB", kind="ivf")
    with pytest.raises(InputError, match="'ivf-pq' came with 50 vectors; it needs 64"):
        NeighborIndex.build(clusters[:50], kind="ivf-pq")
    with pytest.raises(InputError, match="kind='cells' keeps every row"):
        NeighborIndex.build(clusters, memory="1MB", kind="cells")
    with pytest.raises(InputError, match="expected \\(rows, dim\\)"):
        NeighborIndex.build(clusters[0], memory="1MB")
    with pytest.raises(InputError, match="at least one vector"):
        NeighborIndex.build(clusters[:0], memory="1MB")
    with pytest.raises(InputError, match="num_cells=3000 for 2000 vectors"):
        NeighborIndex.build(clusters, kind="ivf-sq8", num_cells=3000)
    broken = clusters.copy()
    broken[1500, 3] = np.nan
    with pytest.raises(FeatureError, match="NaN"):
        NeighborIndex.build(broken, kind="ivf-sq8")


def test_damaged_state(clusters: np.ndarray) -> None:
    arrays, config = NeighborIndex.build(clusters, kind="ivf-sq8").state()
    for change, words in (
        ({"ivf": arrays["ivf"][:1000]}, "cannot be read"),
        ({"ivf": arrays["ivf"].astype(np.int16)}, "lists of the index are missing"),
        ({"rows": arrays["rows"][:10]}, "rows of the index are missing"),
    ):
        with pytest.raises(DamagedModelError, match=words):
            NeighborIndex.from_state(arrays | change, config)
    for change, words in (
        ({"num_candidates": "many"}, "num_candidates='many'"),
        ({"num_probes": 0}, "num_probes=0"),
        ({"num_vectors": 1999}, "of another shape"),
    ):
        with pytest.raises(DamagedModelError, match=words):
            NeighborIndex.from_state(arrays, config | change)


def test_a_folder_that_cannot_be_written_is_said(clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    with pytest.raises(OutputError, match="Set TMPDIR"):
        NeighborIndex.build(clusters, kind="ivf-sq8")


def test_files_go_with_the_index(clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    index = NeighborIndex.build(clusters, kind="ivf-sq8")
    assert index.search(clusters[:1], 1)[1].tolist() == [[0]]
    assert list(tmp_path.iterdir()) == []  # they are nameless from the start: a kill leaves nothing


def test_the_summary_is_logged(clusters: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gsparc.ops.neighbors"):
        index = NeighborIndex.build(clusters, memory=60_000)
    assert index.summary() in caplog.text
    assert "ivf-sq8" in index.summary()


def test_a_query_with_few_rows_in_its_cells_looks_into_more(clusters: np.ndarray) -> None:
    rows = mapped_rows([clusters], 8)
    lists, _ = CodedLists.build(rows, "SQ8", inner=False, num_cells=200, num_probes=1)
    distances, ids = lists.search(clusters[:5], 1500)
    assert (ids >= 0).all()
    assert np.isfinite(distances).all()
    assert all(len(np.unique(row)) == 1500 for row in ids)
