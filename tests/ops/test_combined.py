"""The combined ranking against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc.exceptions import DamagedModelError, FeatureError, InputError
from gsparc.ops import _feature_rows, _knn, _screening, combined
from gsparc.ops.combined import CombinedIndex, combined_scores_reference
from gsparc.ops.neighbors import neighbors_reference


@pytest.fixture
def nodes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.random((300, 40)) * (rng.random((300, 40)) < 0.2)
    features[3] = 0.0  # a node without any word
    return rng.standard_normal((300, 6)), features


def form(features: np.ndarray, kind: str):
    return {"dense": features, "csr_matrix": sp.csr_matrix(features), "coo_array": sp.coo_array(features)}[kind]


@pytest.mark.parametrize("kind", ["dense", "csr_matrix", "coo_array"])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_all_ways_of_scoring_agree(nodes, kind: str, weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_knn, "_CPU_CELLS", 300 * 7)  # chunks of seven queries
    monkeypatch.setattr(_feature_rows, "_PAIR_ROWS", 50)
    spectral, features = nodes
    index = CombinedIndex.build(spectral[:280], form(features[:280], kind), weight)
    q = spectral[280:], form(features[280:], "dense" if kind == "dense" else "csr_matrix")
    expected = combined_scores_reference(spectral[280:], features[280:], spectral[:280], features[:280], weight=weight)
    np.testing.assert_allclose(index.score_all(*q), expected, atol=1e-6)
    scores, ids = index.search(*q, k=12)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :12], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, 1), scores, atol=1e-6)
    np.testing.assert_allclose(index.score_pairs(*q, ids), scores, atol=1e-6)
    assert (scores.dtype, ids.dtype) == (np.float32, np.int64)


def test_the_ends_are_the_single_rankings(nodes) -> None:
    spectral, features = nodes
    index = CombinedIndex.build(spectral, sp.csr_array(features), 1)
    q = spectral[:50] + 0.1, sp.csr_array(features[:50])
    np.testing.assert_array_equal(
        index.search(*q, k=10)[1], neighbors_reference(q[0], spectral, 10, metric="cosine")[1]
    )
    index.weight = 0
    expected = neighbors_reference(features[:50], features, 10, metric="cosine")
    scores, ids = index.search(*q, k=10)
    np.testing.assert_allclose(scores, 1 - expected[0], atol=1e-6)
    assert ids[3].tolist() == list(range(10))  # no words: all tie, order of ids
    assert ids[:3, 0].tolist() == [0, 1, 2]


def test_single_query_row_and_add(nodes) -> None:
    spectral, features = nodes
    for x in (features, sp.csr_matrix(features)):
        index = CombinedIndex.build(spectral[:200], x[:200], 0.5)
        index.score_all(spectral[:1], x[:1])  # fills what add must throw away
        assert index.add(spectral[200:202], x[200:202]).tolist() == [200, 201]
        scores, ids = index.search(spectral[201:202], x[201:202], k=1)
        assert ids.tolist() == [[201]]
        np.testing.assert_allclose(scores, [[1.0]], rtol=1e-6)
        assert repr(index) == "CombinedIndex(num_vectors=202, weight=0.5, kind='exact')"


def test_candidates_are_ranked_by_the_combined_score(nodes) -> None:
    rng = np.random.default_rng(1)
    spectral, features = rng.standard_normal((3000, 4)), sp.random(3000, 50, 0.1, "csr", rng=rng)
    index = CombinedIndex.build(spectral, features, 0.7, kind="ivf")
    q = spectral[:40] + 0.05, features[:40]
    scores, ids = index.search(*q, k=10)
    np.testing.assert_allclose(index.score_pairs(*q, ids), scores, atol=1e-5)
    best = np.argsort(-index.score_all(*q), axis=1)[:, :10]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(ids, best, strict=True)]) > 0.9
    index.weight = 1.0
    assert (np.diff(index.search(*q, k=10)[0], axis=1) <= 0).all()


@pytest.mark.parametrize("kind", ["exact", "ivf"])
@pytest.mark.parametrize("sparse", [False, True])
def test_save_and_load(nodes, tmp_path, kind: str, sparse: bool) -> None:
    spectral, features = nodes
    x = sp.csr_matrix(features) if sparse else features
    index = CombinedIndex.build(spectral, x, 0.4, kind=kind)
    index.save(tmp_path)
    loaded = CombinedIndex.load(tmp_path)
    assert (loaded.weight, loaded.kind) == (0.4, kind)
    for a, b in zip(loaded.search(spectral[:5], x[:5], 7), index.search(spectral[:5], x[:5], 7), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_callers_matrices_are_not_changed() -> None:
    x = sp.csr_matrix((np.ones(3, np.float32), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    before = x.data.copy(), x.indices.copy()
    index = CombinedIndex.build(np.ones((1, 2)), x, 0.0)
    np.testing.assert_array_equal(x.data, before[0])
    np.testing.assert_array_equal(x.indices, before[1])
    # (1, 2) after the duplicates are summed, against (1, 0): 1 / sqrt(5)
    np.testing.assert_allclose(index.score_all(np.ones((1, 2)), np.array([[1.0, 0.0]])), [[5**-0.5]], rtol=1e-6)


def test_bad_input(nodes) -> None:
    spectral, features = nodes
    with pytest.raises(InputError, match=r"weight=1\.5"):
        CombinedIndex.build(spectral, features, 1.5)
    with pytest.raises(InputError, match="of 300 nodes came with features of 299"):
        CombinedIndex.build(spectral, features[1:], 0.5)
    with pytest.raises(FeatureError, match="NaN"):
        CombinedIndex.build(spectral, sp.csr_array(np.full((300, 1), np.nan)), 0.5)
    index = CombinedIndex.build(spectral, features, 0.5)
    with pytest.raises(InputError, match=r"expected \(rows, 40\)"):
        index.search(spectral[:1], features[:1, :5], k=1)
    with pytest.raises(InputError, match="expected 0 to 299"):
        index.score_pairs(spectral[:1], features[:1], np.array([[300]]))
    with pytest.raises(InputError, match="one row for each of the 1 queries"):
        index.score_pairs(spectral[:1], features[:1], np.array([3]))
    with pytest.raises(InputError, match="k=0"):
        index.search(spectral[:1], features[:1], k=0)
    with pytest.raises(FeatureError, match="NaN"):
        index.add(spectral[:1], features[:1] * np.nan)
    assert index.num_vectors == 300
    arrays, config = index.state()
    with pytest.raises(DamagedModelError, match="description of the combined index"):
        CombinedIndex.from_state(arrays, {**config, "weight": 7})
    with pytest.raises(DamagedModelError, match="expected 300 float32 rows"):
        CombinedIndex.from_state({**arrays, "features": arrays["features"][:9]}, config)
    sparse_arrays, config = CombinedIndex.build(spectral, sp.csr_array(features), 0.5).state()
    sparse_arrays["features_indices"] = sparse_arrays["features_indices"] + 1000
    with pytest.raises(DamagedModelError, match="missing or damaged"):
        CombinedIndex.from_state(sparse_arrays, config)


def test_well_filled_sparse_features_score_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    features, spectral = sp.random(90, 30, 0.4, "csr", rng=rng), rng.standard_normal((90, 3))
    index = CombinedIndex.build(spectral, features, 0.2)
    monkeypatch.setattr(_feature_rows, "_DENSE_ENTRIES", 30 * 7)  # blocks of seven rows
    monkeypatch.setattr(_feature_rows, "_SCATTER", 1e9)  # dense products are taken for faster
    dense = index.score_all(spectral[:20], features[:20])
    monkeypatch.setattr(_feature_rows, "_SCATTER", 0.0)
    np.testing.assert_allclose(index.score_all(spectral[:20], features[:20]), dense, atol=1e-6)
    monkeypatch.undo()
    x = features.toarray()
    expected = combined_scores_reference(spectral[:20], x[:20], spectral, x, weight=0.2)
    np.testing.assert_allclose(dense, expected, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("sparse", [False, True])
def test_cuda_equals_the_definition(nodes, sparse: bool) -> None:
    spectral, features = nodes
    x = sp.csr_array(features) if sparse else features
    index = CombinedIndex.build(spectral[:200], x[:200], 0.3, device="cuda")
    index.add(spectral[200:], x[200:])
    expected = combined_scores_reference(spectral[:9], features[:9], spectral, features, weight=0.3)
    np.testing.assert_allclose(index.score_all(spectral[:9], x[:9]), expected, atol=1e-5)
    scores, ids = index.search(spectral[:9], x[:9], k=5)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :5], atol=1e-5)
    np.testing.assert_allclose(index.score_pairs(spectral[:9], x[:9], ids), scores, atol=1e-5)


def test_a_prior_is_added_to_every_score(nodes) -> None:
    spectral, features = nodes
    prior = np.random.default_rng(5).random(280)
    expected = prior + combined_scores_reference(
        spectral[280:], features[280:], spectral[:280], features[:280], weight=0.6
    )
    q = spectral[280:], features[280:]
    for kind in ("exact", "ivf"):  # 280 nodes: the inverted lists look at all of them
        index = CombinedIndex.build(spectral[:280], features[:280], 0.6, prior=prior, kind=kind)
        np.testing.assert_allclose(index.score_all(*q), expected, atol=1e-6)
        scores, ids = index.search(*q, k=15)
        np.testing.assert_array_equal(ids, np.argsort(-expected, axis=1)[:, :15])
        np.testing.assert_allclose(index.score_pairs(*q, ids), scores, atol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_prior_counts_at_the_ends_too(nodes, weight: float) -> None:
    spectral, features = nodes
    prior = np.zeros(300)
    prior[123] = 10.0
    index = CombinedIndex.build(spectral, features, weight, prior=prior)
    scores, ids = index.search(spectral[:4], features[:4], k=2)
    assert (ids[:, 0] == 123).all()
    assert (scores[:, 0] >= 9).all()


def test_a_favoured_node_far_away_is_found_among_candidates() -> None:
    rng = np.random.default_rng(6)
    spectral, features = rng.standard_normal((3000, 4)), rng.standard_normal((3000, 5))
    query = spectral[:8]
    prior = np.zeros(3000)
    far = np.argsort(query[0] @ spectral.T)[:3]  # the nodes least like the first query
    prior[far] = 5.0
    index = CombinedIndex.build(spectral, features, 0.8, prior=prior, kind="ivf")
    ids = index.search(query, features[:8], k=5)[1]
    assert set(ids[0, :3].tolist()) == set(far.tolist())
    assert all(len(set(row)) == 5 for row in ids.tolist())  # a node that came both ways is there once


def test_a_prior_is_saved_grows_and_is_checked(nodes, tmp_path) -> None:
    spectral, features = nodes
    index = CombinedIndex.build(spectral[:200], features[:200], 0.5, prior=np.arange(200) / 100)
    index.save(tmp_path)
    loaded = CombinedIndex.load(tmp_path)
    q = spectral[200:205], features[200:205]
    np.testing.assert_array_equal(loaded.score_all(*q), index.score_all(*q))
    plain = CombinedIndex.build(spectral[:201], features[:201], 0.5)
    index.add(spectral[200:201], features[200:201])
    np.testing.assert_allclose(index.score_all(*q)[:, 200], plain.score_all(*q)[:, 200], atol=1e-6)
    plain.add(spectral[201:203], features[201:203], prior=np.array([0.25, 4.0]))
    assert (plain.search(*q, k=1)[1] == 202).all()
    for bad in (np.ones(199), np.full(200, np.nan), np.ones((200, 1))):
        with pytest.raises(InputError, match="expected 200 finite numbers"):
            CombinedIndex.build(spectral[:200], features[:200], 0.5, prior=bad)
    arrays, config = loaded.state()
    with pytest.raises(DamagedModelError, match="prior of the index is damaged"):
        CombinedIndex.from_state({**arrays, "prior": arrays["prior"][:50]}, config)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("weight", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["dense", "csr_matrix"])
def test_rough_scores_first_give_the_full_ranking(
    nodes, kind: str, weight: float, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spectral, features = nodes
    spectral, features = spectral.copy(), features.copy()
    spectral[100:110], features[100:110] = spectral[0], features[0]  # nodes that nothing tells apart
    queries = np.r_[0:20, 280:300]
    q = spectral[queries].copy(), features[queries].copy()
    q[0][7], q[1][7] = 0.0, 0.0  # one of which nothing is known
    prior = np.random.default_rng(8).random(300) / 5
    index = CombinedIndex.build(spectral, form(features, kind), weight, prior=prior)
    given = q[0], form(q[1], kind)
    expected = index.search(*given, k=5)
    monkeypatch.setattr(combined, "_SCREENED_ROWS", 1)
    monkeypatch.setattr(_screening, "_MOST", 60)
    monkeypatch.setattr(_screening, "_half_is_faster", lambda rows: half)
    scores, ids = index.search(*given, k=5)
    assert index._rough is not None
    assert index._rough.half is half
    np.testing.assert_array_equal(ids, expected[1])
    np.testing.assert_allclose(scores, expected[0], atol=1e-6)
    reference = prior + combined_scores_reference(*q, spectral, features, weight=weight)
    np.testing.assert_allclose(scores, _screening.best_reference(reference, 5)[0], atol=1e-6)


def test_nodes_that_joined_are_found_by_rough_scores_too(nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined, "_SCREENED_ROWS", 1)
    spectral, features = nodes
    index = CombinedIndex.build(spectral[:200], features[:200], 0.9)
    index.search(spectral[:2], features[:2], k=1)
    other = index.copy()
    other.add(spectral[200:201], features[200:201])
    assert other.search(spectral[200:201], features[200:201], k=1)[1].tolist() == [[200]]
    assert index.search(spectral[200:201], features[200:201], k=1)[1].item() < 200
