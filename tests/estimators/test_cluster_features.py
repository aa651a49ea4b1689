"""Features beside the eigenspace of a clusterer: their directions, how much they count, and what of it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gsparc import Graph, SparcClusterer, load_model
from gsparc.datasets import communities_of_blobs
from gsparc.estimators import clusterer as module
from gsparc.estimators._directions import shared_directions
from gsparc.estimators._modularity import foretells_edges, modularity
from gsparc.estimators._ranking import averaging, unit
from gsparc.metrics import hungarian_accuracy
from gsparc.training.spectral import HeldOut

QUICK: dict[str, Any] = {"max_steps": 100, "n_components": 8, "n_init": 3, "random_state": 0, "device": "cpu"}
# features say which of 16 blobs a node is in, only edges say which blobs form one of 4 communities
BLOBS = communities_of_blobs(520, num_blobs=16, dim=8, degree=12, within=0.95, random_state=0)
SEEN, COLD = np.arange(400), np.arange(400, 520)


def texts(n: int, seed: int) -> tuple[sp.csr_array, np.ndarray, Graph]:
    """Five topics with twenty words each, eight words a node, a quarter of them from anywhere; a link or two a node."""
    rng = np.random.default_rng(seed)
    y = rng.integers(5, size=n)
    words = np.where(
        rng.random((n, 8)) < 0.25, rng.integers(100, size=(n, 8)), 20 * y[:, None] + rng.integers(20, size=(n, 8))
    )
    X = sp.csr_array((np.ones(8 * n, np.float32), (np.repeat(np.arange(n), 8), words.ravel())), shape=(n, 100))
    X.data[:] = 1
    alike = [rng.choice(np.flatnonzero(y == y[i])) for i in range(n)]
    return X, y, Graph.from_edges(np.array([np.arange(n), alike]), num_nodes=n)


@given(st.integers(0, 1000), st.booleans(), st.booleans())
def test_directions_are_those_of_the_averaged_rows(seed: int, sparse: bool, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = unit(np.where(rng.random((30, 9)) < 0.6, rng.random((30, 9)), 0).astype(np.float32))
    edges = rng.integers(30, size=(2, 40))
    graph = Graph.from_edges(edges, num_nodes=30, weights=rng.random(40) + 0.1 if weighted else None)
    P = averaging(graph).toarray().astype(np.float64)
    averaged = (0.05 * np.eye(30) + 0.95 / 2 * (P + P @ P)) @ rows
    found = shared_directions(sp.csr_array(rows) if sparse else rows, graph, 3, seed=seed)
    assert (found.shape, found.dtype) == ((9, 3), np.float32)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-4)
    # as much of the averaged rows lies along them as along the three leading singular vectors
    best = np.square(np.linalg.svd(averaged, compute_uv=False)[:3]).sum()
    assert np.square(averaged @ found).sum() == pytest.approx(best, rel=1e-4)


def test_no_more_directions_than_there_are() -> None:
    rows = np.eye(4, 2, dtype=np.float32)
    assert shared_directions(rows, Graph.from_edges([[0], [1]], num_nodes=4), 8).shape == (2, 2)


def test_modularity_by_hand() -> None:
    # weights 1, 3 within the clusters and 2 between: 4/6 within; degrees 1+0, 1+2 | 2+3, 3: shares 4/12 and 8/12
    path = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=5, weights=[1.0, 2.0, 3.0])
    labels = np.array([0, 0, 1, 1, 0])
    assert modularity(path, labels) == pytest.approx(4 / 6 - (1 / 9 + 4 / 9))
    assert modularity(path, np.zeros(5, int)) == pytest.approx(0)
    assert modularity(Graph.from_edges(np.zeros((2, 0), int), num_nodes=3), np.array([0, 1, 1])) == 0


def test_modularity_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = BLOBS.y.astype(int)
    whole = modularity(BLOBS.graph, labels)
    monkeypatch.setattr("gsparc.estimators._modularity._ROWS", 7)
    assert modularity(BLOBS.graph, labels) == pytest.approx(whole)


def test_features_count_less_where_they_would_tear_the_graph_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    X, graph = BLOBS.X[SEEN], BLOBS.graph[SEEN]
    model = SparcClusterer(4, alpha=0.0, **QUICK).fit(X, graph=graph)
    assert model.feature_share_ < 0.7
    assert hungarian_accuracy(BLOBS.y[COLD], model.predict(BLOBS.X[COLD])) > 0.85
    forced = SparcClusterer(4, alpha=0.0, feature_share=0.9, **QUICK).fit(X, graph=graph)
    assert hungarian_accuracy(BLOBS.y[SEEN], forced.labels_) < 0.7
    monkeypatch.setattr(module, "_KEPT", 2.0)  # no share is good enough
    alone, plain = (
        SparcClusterer(4, alpha=0.0, feature_share=share, **QUICK).fit(X, graph=graph) for share in ("auto", 0.0)
    )
    assert alone.feature_share_ == 0.0
    assert alone.predict_proba(X).tobytes() == plain.predict_proba(X).tobytes()
    assert alone.cluster_centers_.shape == (4, 8)


def test_edges_that_are_noise_do_not_spoil_clusters_of_features() -> None:
    scores: dict[Any, list[float]] = {"auto": [], 0.0: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        y = rng.integers(5, size=500)
        X = (0.8 * rng.standard_normal((5, 16))[y] + rng.standard_normal((500, 16))).astype(np.float32)
        edges = rng.integers(400, size=(2, 1600))
        noise = Graph.from_edges(edges[:, edges[0] != edges[1]], num_nodes=400)
        for share, found in scores.items():
            model = SparcClusterer(5, feature_share=share, **QUICK).fit(X[:400], graph=noise)
            found.append(hungarian_accuracy(y[400:], model.predict(X[400:])))
    assert np.mean(scores["auto"]) > np.mean(scores[0.0]) + 0.05


def test_a_handful_of_held_out_nodes_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "foretells_edges", lambda graph, labels, held: bool(asked.append(len(held.nodes))))
    for nodes in (200, 400):  # a tenth of them is held out
        part = np.arange(nodes)
        SparcClusterer(4, **QUICK | {"max_steps": 10}).fit(BLOBS.X[part], graph=BLOBS.graph[part])
    assert len(asked) == 1
    assert asked[0] >= 30


@given(st.integers(0, 1000), st.booleans())
def test_edges_of_held_out_nodes_are_foretold_or_not(seed: int, random: bool) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=300)
    train, new, nearest = np.arange(200), np.arange(200, 300), rng.permuted(np.tile(np.arange(200), (100, 1)), axis=1)
    if not random:  # one of two neighbours is of the own cluster, of a quarter by chance
        nearest[:, 0] = [rng.choice(np.flatnonzero(labels[:200] == labels[i])) for i in new]
    held = HeldOut(train, new, np.arange(0, 201, 2), nearest[:, :2].ravel())
    graph = Graph.from_edges(rng.integers(200, size=(2, 900)), num_nodes=300)
    degrees = np.diff(graph.indptr)[:200]
    beyond = [
        sum((labels[v] == labels[u]) - degrees[labels[:200] == labels[v]].sum() / degrees.sum() for u in nearest[i, :2])
        for i, v in enumerate(new)
    ]
    expected = np.sum(beyond) > 2 * np.sqrt(np.square(beyond).sum())
    assert foretells_edges(graph, labels, held) == expected
    assert expected or random


def test_words_help_where_there_are_few_edges() -> None:
    X, y, graph = texts(700, 0)
    seen, cold = np.arange(600), np.arange(600, 700)
    scores = {}
    for share in ("auto", 0.0):
        model = SparcClusterer(5, alpha=0.0, feature_share=share, **QUICK).fit(X[seen], graph=graph[seen])
        scores[share] = hungarian_accuracy(y[cold], model.predict(X[cold]))
    assert scores["auto"] > 0.9
    assert scores["auto"] > scores[0.0]


def test_parts_have_the_length_of_their_share() -> None:
    X, _, graph = texts(120, 1)
    model = SparcClusterer(5, feature_share=0.36, **QUICK | {"max_steps": 10}).fit(X, graph=graph)
    rows = model.embed(X)
    np.testing.assert_allclose(np.linalg.norm(rows[:, 8:], axis=1), 0.6, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows[:, :8], axis=1), 0.8, atol=1e-5)
    assert not model.embed(sp.csr_array((1, 100), dtype=np.float32))[:, 8:].any()  # no word at all
    np.testing.assert_allclose(model.embed(X[3:4]), rows[3:4], atol=1e-5)
    np.testing.assert_allclose(model.embed(X.toarray()), rows, atol=1e-5)


def test_directions_are_saved_and_older_folders_have_none(tmp_path: Path) -> None:
    X, _, graph = texts(120, 1)
    model = SparcClusterer(5, feature_share=0.5, **QUICK | {"max_steps": 10}).fit(X, graph=graph)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.feature_share_ == 0.5
    assert loaded.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    plain = SparcClusterer(5, feature_share=0.0, **QUICK | {"max_steps": 10}).fit(X, graph=graph)
    fitted, arrays = plain._state()
    older = {name: value for name, value in fitted.items() if name not in ("view", "feature_share")}
    fresh = SparcClusterer(5, **QUICK)
    fresh.n_features_in_ = X.shape[1]
    fresh._restore(older, arrays)
    assert fresh.predict(X).tolist() == plain.predict(X).tolist()


@pytest.mark.parametrize("bad", [np.zeros((3, 2), np.float32), np.full((100, 8), np.nan, np.float32)])
def test_damaged_directions_are_noticed(bad: np.ndarray) -> None:
    X, _, graph = texts(120, 1)
    model = SparcClusterer(5, feature_share=0.5, **QUICK | {"max_steps": 10}).fit(X, graph=graph)
    fitted, arrays = model._state()
    with pytest.raises(ValueError, match="directions of shape"):
        model._restore(fitted, arrays | {"directions": bad})
