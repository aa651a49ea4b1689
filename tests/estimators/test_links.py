"""SparcLinkPredictor: retrieval above the features' cosine, ids, scores that agree with each other, awkward sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc import Graph, SparcLinkPredictor, load_model
from gsparc.baselines import FeatureCosineLinks
from gsparc.datasets import make_blocks
from gsparc.exceptions import InputError
from gsparc.metrics import link_metrics, rank_links, truth_matrix
from gsparc.training.links import Retrieval
from gsparc.training.spectral import hold_out

DATA = make_blocks(400, 3000, 16, branching=(8,), noise=1.0, within=0.9, random_state=0)
SEEN, COLD = np.arange(340), np.arange(340, 400)
NAMES = np.array([f"node {i}" for i in range(340)])


def tiny(**changes) -> SparcLinkPredictor:
    settings = {"n_maps": 1, "hidden_channels": (32,), "spectral_steps": 30, "refine_steps": 50, "batch_size": 256}
    return SparcLinkPredictor(16, random_state=0, device="cpu", **(settings | changes))


@pytest.fixture(scope="module")
def fitted() -> SparcLinkPredictor:
    return tiny().fit(DATA.X[SEEN], graph=DATA.graph[SEEN])


def mean_reciprocal_rank(model) -> float:
    truth = truth_matrix(DATA.graph, COLD, SEEN)
    return link_metrics(rank_links(lambda rows: model.score_all(DATA.X[COLD[rows]]), truth))["mrr"]


def test_cold_nodes_find_their_links_better_than_by_features(fitted: SparcLinkPredictor) -> None:
    by_features = FeatureCosineLinks().fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert mean_reciprocal_rank(fitted) > 1.1 * mean_reciprocal_rank(by_features)
    report = fitted.report_
    assert report["mrr_chosen"] >= max(report["mrr_map_alone"], report["mrr_features_alone"])
    assert report["held_out_nodes"] > 20


def test_all_ways_of_scoring_agree(fitted: SparcLinkPredictor) -> None:
    X = DATA.X[COLD[:7]]
    everything = fitted.score_all(X)
    assert everything.shape == (7, 340)
    ids, scores = fitted.predict_links(X, k=9)
    assert (ids.shape, scores.shape, ids.dtype, scores.dtype) == ((7, 9), (7, 9), np.int64, np.float32)
    np.testing.assert_allclose(np.take_along_axis(everything, ids, 1), scores, atol=1e-5)
    np.testing.assert_allclose(scores, -np.sort(-everything, axis=1)[:, :9], atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X, ids), scores, atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X, ids[:, 2]), scores[:, 2], atol=1e-5)
    np.testing.assert_allclose(fitted.predict_links(X[:1], k=9)[1], scores[:1], atol=1e-4)


@pytest.mark.parametrize("names", [NAMES, 1000 + np.arange(340)[::-1]], ids=["strings", "integers"])
def test_answers_are_node_ids_where_the_graph_has_them(fitted, names: np.ndarray, tmp_path: Path) -> None:
    graph = Graph.from_scipy(DATA.graph[SEEN].to_scipy(), node_ids=names)
    model = tiny(spectral_steps=3, refine_steps=3).fit(DATA.X[SEEN], graph=graph)
    X = DATA.X[COLD[:3]]
    ids, scores = model.predict_links(X, k=5)
    assert np.isin(ids, names).all()
    np.testing.assert_allclose(model.score_pairs(X, ids), scores, atol=1e-5)
    order = np.argsort(-model.score_all(X), axis=1)[:, :5]
    assert names[order].tolist() == ids.tolist()
    model.save(tmp_path)
    assert load_model(tmp_path).predict_links(X, k=5)[0].tolist() == ids.tolist()  # type: ignore[attr-defined]
    unknown = np.full((3, 1), "stranger" if names.dtype.kind == "U" else -5)
    with pytest.raises(ValueError, match=r"stranger|-5"):
        model.score_pairs(X, unknown)


def test_popularity_counts_only_where_it_may() -> None:
    """Five hubs that all nodes link to, whatever their features."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 6))
    edges = np.array([np.tile(np.arange(5), 145), np.repeat(np.arange(5, 150), 5)])
    with_degree = tiny(spectral_steps=5, refine_steps=5).fit(X, graph=Graph.from_edges(edges, num_nodes=150))
    without = tiny(spectral_steps=5, refine_steps=5, popularity=False).fit(X, graph=edges)
    assert with_degree.weights_.popularity > 0
    assert without.weights_.popularity == 0
    assert without.index_.state()[0].get("prior") is None
    hits = [(model.predict_links(X[5:], k=1)[0] < 5).mean() for model in (with_degree, without)]
    assert hits[0] > hits[1]


def test_without_refinement_the_eigenspace_ranks() -> None:
    model = tiny(refine=False, popularity=False).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert model._embed(DATA.X[:3]).shape == (3, model.maps_[0].n_components_)
    np.testing.assert_allclose(np.linalg.norm(model.transform_queries(DATA.X[:3]), axis=1), 1, rtol=1e-5)
    assert mean_reciprocal_rank(model) > 0.05


def test_several_maps_and_sparse_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = sp.csr_array((rng.random((400, 60)) < 0.1).astype(np.float32))
    model = tiny(n_maps=2, spectral_steps=5, refine_steps=5).fit(counts[SEEN], graph=DATA.graph[SEEN])
    assert len(model.maps_) == model.report_["maps"] == 2
    assert model.transform_queries(counts[COLD]).shape == (60, 32)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.score_all(counts[COLD]).tobytes() == model.score_all(counts[COLD]).tobytes()  # type: ignore[attr-defined]


def test_save_and_load_give_the_same_bytes(fitted: SparcLinkPredictor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a")
    loaded = load_model(tmp_path / "a")
    assert isinstance(loaded, SparcLinkPredictor)
    assert loaded.score_all(DATA.X[COLD]).tobytes() == fitted.score_all(DATA.X[COLD]).tobytes()
    assert loaded.report_ == fitted.report_
    loaded.save(tmp_path / "b")
    for name in ("weights.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_same_seed_gives_the_same_bytes(fitted: SparcLinkPredictor) -> None:
    again = tiny().fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert again.score_all(DATA.X[COLD]).tobytes() == fitted.score_all(DATA.X[COLD]).tobytes()


def test_tiny_graphs_and_large_k() -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))
    model = tiny(spectral_steps=3, refine_steps=3).fit(X, graph=[[0, 1, 2], [1, 2, 3]])
    ids, scores = model.predict_links(X[:2], k=50)
    assert sorted(ids[0].tolist()) == [0, 1, 2, 3, 4, 5]
    assert scores.shape == (2, 6)
    assert model.report_["held_out_nodes"] == 0


@pytest.mark.parametrize("edges", [[[0], [1]], [[0, 0, 7], [1, 2, 9]]])
def test_a_few_edges_among_many_nodes_do_not_break_training(edges: list[list[int]]) -> None:
    # nearly every sampled pair is a self-loop, which refinement leaves out
    X = np.random.default_rng(0).standard_normal((300, 3))
    model = tiny(spectral_steps=5, refine_steps=60, batch_size=16).fit(X, graph=edges)
    assert np.isfinite(model.score_all(X[:5])).all()


def test_without_a_graph_feature_neighbours_serve() -> None:
    model = tiny(spectral_steps=3, refine_steps=3).fit(DATA.X[:60])
    assert np.isfinite(model.score_all(DATA.X[60:63])).all()


def test_bad_pairs(fitted: SparcLinkPredictor) -> None:
    X = DATA.X[COLD[:3]]
    with pytest.raises(InputError, match="k=0 came, expected a whole number >= 1"):
        fitted.predict_links(X, k=0)
    with pytest.raises(InputError, match=r"ids of shape \(2, 2\) came with 3 new nodes"):
        fitted.score_pairs(X, np.zeros((2, 2), int))
    with pytest.raises(InputError, match="expected 0 to 339"):
        fitted.score_pairs(X, np.full((3, 1), 340))
    with pytest.raises(InputError, match="expected positions 0 to 339"):
        fitted.score_pairs(X, np.full((3, 1), "a"))
    for changes, words in (
        ({"dropout": 2.0}, "dropout=2.0"),
        ({"n_maps": 0}, "n_maps=0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"refine_steps": 1.5}, "refine_steps=1.5"),
    ):
        with pytest.raises(InputError, match=words):
            tiny(**changes).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])


def test_all_neighbours_of_a_held_out_node_count_as_true() -> None:
    graph = Graph.from_any(np.ones((80, 80)) - np.eye(80))
    held = hold_out(graph, 0.1, seed=0)
    assert held is not None
    retrieval = Retrieval(held, 0, torch.device("cpu"))
    assert retrieval.truth.all()  # a complete graph: every candidate is a neighbour


def test_sparse_new_rows_get_the_answers_of_the_same_dense_rows() -> None:
    rng = np.random.default_rng(0)
    X = (50 + rng.normal(80, 5, (90, 5))).astype(np.float32)
    graph = Graph.from_edges(rng.integers(0, 90, (2, 300)), num_nodes=90)
    settings = {"n_maps": 1, "hidden_channels": (16,), "spectral_steps": 5, "refine_steps": 5, "random_state": 0}
    model = SparcLinkPredictor(8, batch_size=64, device="cpu", **settings).fit(X, graph=graph)
    ids, scores = model.predict_links(X[:7], k=4)
    again, close = model.predict_links(sp.csr_array(X[:7]), k=4)
    np.testing.assert_array_equal(ids, again)
    np.testing.assert_allclose(scores, close, rtol=1e-4, atol=1e-5)


def test_one_new_node_with_every_seen_node_in_pieces(fitted: SparcLinkPredictor, monkeypatch) -> None:
    X, everyone = DATA.X[COLD[:2]], np.tile(np.arange(340), (2, 1))
    whole = fitted.score_pairs(X, everyone)
    monkeypatch.setattr("gsparc.estimators.links._PAIRS", 100)
    np.testing.assert_allclose(fitted.score_pairs(X, everyone), whole, atol=1e-6)
    np.testing.assert_allclose(fitted.score_pairs(X[:1], everyone[0]), fitted.score_all(X[:1]), atol=1e-5)
    assert fitted.score_pairs(X[:1], [7]).shape == (1, 1)
    assert fitted.score_pairs(X, np.zeros((2, 0), int)).shape == (2, 0)


def test_the_largest_seed_has_further_ones() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    ring = Graph.from_edges(np.stack([np.arange(40), (np.arange(40) + 1) % 40]), num_nodes=40)
    options = {"n_maps": 2, "spectral_steps": 2, "refine_steps": 2, "device": "cpu"}
    model = SparcLinkPredictor(4, random_state=2**32 - 1, **options).fit(X, graph=ring)
    assert model.score_all(X[:2]).shape == (2, 40)
