"""Blobs that edges join into classes: the counts, the geometry, and that the graph is needed and is enough."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import eigsh
from scipy.spatial import KDTree

from gsparc import ColdStartSplit, SparcClassifier, SpectralMap
from gsparc.baselines import MLPBaseline
from gsparc.datasets import communities_of_blobs
from gsparc.datasets.generators import communities
from gsparc.exceptions import InputError

MAP = {"hidden_channels": (256,), "oversample": 8, "batch_size": 1024, "max_steps": 200, "learning_rate": 1e-2}


def edge_list(data):
    rows = np.repeat(np.arange(data.graph.num_nodes), np.diff(data.graph.indptr))
    return np.stack([rows, data.graph.indices])[:, rows < data.graph.indices]


def few_labels(y, seen, seed):
    """Labels of the seen nodes: five of each class, -1 for the others."""
    rng = np.random.default_rng(seed)
    labels = np.full(len(seen), -1)
    for c in range(y.max() + 1):
        labels[rng.choice(np.flatnonzero(y[seen] == c), 5, replace=False)] = c
    return labels


def nearest_mean(known, labels, new):
    """The class whose mean is nearest: the plainest rule there is."""
    means = np.stack([known[labels == c].mean(axis=0) for c in range(labels.max() + 1)])
    return np.square(new[:, None] - means).sum(axis=2).argmin(axis=1)


def test_counts():
    data = communities_of_blobs(1000, num_blobs=50, num_classes=3, dim=6, degree=12, random_state=0)
    assert data.X.shape == (1000, 6)
    assert data.X.dtype == np.float32
    assert data.graph.num_edges == 6000
    assert np.bincount(data.extra["blob"]).tolist() == [20] * 50
    assert np.bincount(data.extra["blob_class"]).tolist() == [17, 17, 16]
    assert data.class_names.tolist() == ["community_0", "community_1", "community_2"]
    np.testing.assert_array_equal(data.y, data.extra["blob_class"][data.extra["blob"]])


@given(
    num_blobs=st.integers(1, 12),
    size=st.integers(2, 9),
    num_classes=st.integers(1, 4),
    within=st.floats(0, 1),
    fill=st.floats(0, 1),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_any_setting_that_is_allowed_has_exactly_its_edges(num_blobs, size, num_classes, within, fill, seed):
    num_classes = min(num_classes, num_blobs)
    degree = fill * 0.5 * (size * (num_blobs // num_classes) - 1)
    data = communities_of_blobs(
        num_blobs * size,
        num_blobs=num_blobs,
        num_classes=num_classes,
        dim=2,
        degree=degree,
        within=within,
        random_state=seed,
    )
    assert data.graph.num_edges == round(num_blobs * size * degree / 2)
    assert set(data.y) == set(range(num_classes))


def test_edges_join_classes_and_mostly_other_blobs():
    data = communities_of_blobs(4000, num_classes=5, within=0.8, random_state=0)
    first, second = edge_list(data)
    same_class = (data.y[first] == data.y[second]).mean()
    assert same_class == pytest.approx(0.8 + 0.2 / 5, abs=0.01)  # a fifth of the random ones are too
    blob = data.extra["blob"]
    assert (blob[first] == blob[second]).mean() < 0.03  # 40 blobs a class: 0.8 / 40 and a little


def test_all_and_no_edges_within():
    inside = communities_of_blobs(600, num_blobs=30, within=1.0, degree=10, random_state=0)
    first, second = edge_list(inside)
    assert (inside.y[first] == inside.y[second]).all()
    nowhere = communities_of_blobs(4000, within=0.0, random_state=0)
    first, second = edge_list(nowhere)
    assert (nowhere.y[first] == nowhere.y[second]).mean() == pytest.approx(0.25, abs=0.02)


def test_blobs_are_apart_and_their_neighbours_are_of_any_class():
    alike = []
    for seed in range(10):
        data = communities_of_blobs(400, degree=2, random_state=seed)
        blob, centres = data.extra["blob"], data.extra["centres"]
        _, own = KDTree(centres).query(data.X)
        assert (own == blob).mean() > 0.999
        _, near = KDTree(centres).query(centres, k=6)
        alike.append((data.extra["blob_class"][near[:, 1:]] == data.extra["blob_class"][:, None]).mean())
    # 10,000 pairs; drawn at random 49 of the other 199 blobs are of one's class
    assert np.mean(alike) == pytest.approx(49 / 199, abs=0.02)


def test_noise_is_the_spread_around_centres():
    data = communities_of_blobs(3000, noise=0.5, random_state=0)
    assert (data.X - data.extra["centres"][data.extra["blob"]]).std() == pytest.approx(0.5, rel=0.01)
    exact = communities_of_blobs(400, noise=0.0, degree=2, random_state=0)
    np.testing.assert_array_equal(exact.X, exact.extra["centres"][exact.extra["blob"]])


def test_seed():
    one, two, other = (communities_of_blobs(600, num_blobs=30, degree=8, random_state=s) for s in (5, 5, 6))
    assert one.graph == two.graph
    assert one.X.tobytes() == two.X.tobytes()
    assert one.graph != other.graph
    assert one.y.tolist() != other.y.tolist()


def test_runs_of_rows_do_not_change_features(monkeypatch):
    whole = communities_of_blobs(400, degree=2, random_state=3)
    monkeypatch.setattr(communities, "_ROWS", 7)
    np.testing.assert_array_equal(communities_of_blobs(400, degree=2, random_state=3).X, whole.X)


def test_time_grows_with_the_edges():
    start = time.perf_counter()
    data = communities_of_blobs(200_000, dim=2, degree=10, random_state=0)
    assert data.graph.num_edges == 1_000_000
    assert time.perf_counter() - start < 10  # 1 s on an idle core; anything quadratic would take hours


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_nodes": 1}, "num_nodes=1"),
        ({"dim": 0}, "dim=0"),
        ({"num_nodes": 300}, "two nodes a blob"),
        ({"num_classes": 300}, "one blob a class"),
        ({"within": 1.1}, "within=1.1"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"num_nodes": 400, "degree": 60}, r"degree=60 .* class of 100; pass at most 49.5"),
        ({"degree": -1}, "degree=-1"),
        ({"degree": float("nan")}, "degree=nan"),
    ],
)
def test_bad_settings(options, words):
    with pytest.raises(InputError, match=words):
        communities_of_blobs(**options)


def test_true_eigenvectors_are_the_classes():
    data = communities_of_blobs(random_state=0)
    A = data.graph.to_scipy().astype(np.float64)
    scale = sp.diags_array(np.asarray(A.sum(axis=1)).ravel() ** -0.5)
    values, vectors = eigsh(scale @ A @ scale, k=5, which="LA", v0=np.ones(len(data.y)))
    order = np.argsort(-values)
    np.testing.assert_allclose(values[order[1:4]], 0.9, atol=0.03)  # the share within, three times
    assert values[order[4]] < 0.5  # and then only chance
    coordinates = scale @ vectors[:, order[1:4]]
    everyone = np.arange(len(data.y))
    labels = few_labels(data.y, everyone, 0)
    assert (nearest_mean(coordinates, labels, coordinates) == data.y).mean() > 0.99


@pytest.mark.parametrize("seed", range(5))
def test_the_graph_is_needed_and_is_enough(seed):
    data = communities_of_blobs(random_state=seed)
    fold = next(iter(ColdStartSplit("dense", random_state=seed).folds(data.X, data.y)))
    X, X_cold, truth = data.X[fold.seen], data.X[fold.cold], data.y[fold.cold]
    labels = few_labels(data.y, fold.seen, seed)
    features_only = MLPBaseline(max_steps=300, random_state=seed).fit(X, labels).predict(X_cold)
    assert (features_only == truth).mean() < 0.45  # 20 of 200 blobs and a guess: 33 %

    spectral = SpectralMap(3, **MAP)
    model = SparcClassifier("mlp", spectral_map=spectral, max_steps=300, random_state=seed)
    model.fit(X, labels, graph=data.graph[fold.seen])
    assert (model.predict(X_cold) == truth).mean() >= 0.90
    coordinates = model.map_.transform(X), model.map_.transform(X_cold)
    assert (nearest_mean(coordinates[0], labels, coordinates[1]) == truth).mean() >= 0.95
