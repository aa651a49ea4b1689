"""SparcClusterer: communities are found, new nodes join them, memberships by hand, saving, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from gsparc import Graph, SparcClusterer, SpectralMap, load_model
from gsparc.datasets import communities_of_blobs
from gsparc.estimators._affinity import likeness_graph, mixed_graph
from gsparc.estimators._kmeans import kmeans, nearest_centers
from gsparc.estimators.clusterer import within_spread
from gsparc.exceptions import FeatureError, GraphError, GraphShapeError, InputError
from gsparc.metrics import hungarian_accuracy, nmi

# features say which of 16 blobs a node is in, only edges say which blobs form one of 4 communities
DATA = communities_of_blobs(520, num_blobs=16, dim=8, degree=12, within=0.95, random_state=0)
SEEN, COLD = np.arange(400), np.arange(400, 520)
X, GRAPH = DATA.X[SEEN], DATA.graph[SEEN]
QUICK: dict[str, Any] = {"max_steps": 100, "n_components": 8, "n_init": 3, "random_state": 0, "device": "cpu"}


def quick(n_clusters: int = 4, **changes: Any) -> SparcClusterer:
    return SparcClusterer(n_clusters, **QUICK | changes)


@pytest.fixture(scope="module")
def fitted() -> SparcClusterer:
    return quick(alpha=0.0).fit(X, graph=GRAPH)


def test_communities_are_found_and_new_nodes_join_them(fitted: SparcClusterer) -> None:
    assert hungarian_accuracy(DATA.y[SEEN], fitted.labels_) > 0.9
    found = fitted.predict(DATA.X[COLD])
    assert hungarian_accuracy(DATA.y[COLD], found) > 0.85
    floor = kmeans(np.asarray(X, np.float32), 4, seed=0)
    assert nmi(DATA.y[SEEN], floor.labels) < 0.6  # features alone do not know the communities
    assert fitted.labels_.dtype == np.int32
    assert (fitted.labels_ == fitted.predict(X)).all()
    assert fitted.cluster_centers_.shape == (4, 8 + 8)  # of the map and of the features


def test_distances_memberships_and_predictions_agree(fitted: SparcClusterer) -> None:
    new = DATA.X[COLD]
    rows, distances, proba = fitted.embed(new), fitted.transform(new), fitted.predict_proba(new)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    by_hand = np.linalg.norm(rows[:, None, :] - fitted.cluster_centers_[None], axis=2)
    np.testing.assert_allclose(distances, by_hand, atol=2e-3)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    kernel = np.exp(-np.square(by_hand) / (2 * fitted.sigma_**2))
    np.testing.assert_allclose(proba, kernel / kernel.sum(axis=1, keepdims=True), atol=1e-3)
    assert (proba.argmax(axis=1) == fitted.predict(new)).all()
    assert (distances.argmin(axis=1) == fitted.predict(new)).all()
    assert fitted.get_feature_names_out().tolist() == [f"sparcclusterer{i}" for i in range(4)]


def test_a_node_between_two_clusters_belongs_to_both() -> None:
    model = quick(2)
    model.cluster_centers_ = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    model.sigma_ = 0.5
    model.n_features_in_ = 2
    model._embed = lambda rows: np.asarray(rows, np.float32)  # type: ignore[method-assign]
    proba = model.predict_proba(np.array([[0.6, 0.6], [1.0, 0.0]], np.float32))
    # squared distances 0 and 2: odds exp(2 / (2 * 0.25)) = e^4
    np.testing.assert_allclose(proba, [[0.5, 0.5], [1 / (1 + np.exp(-4)), 1 / (1 + np.exp(4))]], rtol=1e-5)


def test_likeness_helps_where_edges_say_little() -> None:
    sparse = communities_of_blobs(400, num_blobs=4, dim=6, degree=1, within=0.3, random_state=1)
    scores = {
        a: nmi(sparse.y, quick(alpha=a, feature_share=0.0, max_steps=50).fit(sparse.X, graph=sparse.graph).labels_)
        for a in (0.0, 0.8)
    }
    assert scores[0.8] > scores[0.0] + 0.1


def test_mixed_graph_by_hand() -> None:
    # words: nodes 0 and 1 share a word, node 2 has its own; edges: 1 - 2
    rows = sp.csr_array(np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]], np.float32))
    likeness = likeness_graph(rows, 1, seed=0)
    dense = likeness.to_scipy().toarray()
    assert (dense > 0).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    edges = Graph.from_edges([[1], [2]], num_nodes=4)
    both = mixed_graph(likeness, edges, 0.5).to_scipy().toarray()
    assert both.sum() == pytest.approx(2.0)  # the weight of the edges
    assert both[1, 2] == pytest.approx(0.5)
    assert both[0, 1] == pytest.approx(0.25)
    assert mixed_graph(likeness, edges, 0.0) is edges


def test_words_that_were_weighed_are_not_weighed_again() -> None:
    rng = np.random.default_rng(0)
    counts = sp.csr_array(rng.poisson(0.3, (60, 12)).astype(np.float32))
    scaled = sp.csr_array(counts * np.float32(0.37))
    one, other = (likeness_graph(rows, 3, seed=0).to_scipy().toarray() > 0 for rows in (counts, scaled))
    assert (one != other).any()


@pytest.mark.parametrize("backend", ["sklearn", "faiss", "torch"])
def test_every_kmeans_finds_three_heaps(backend: str) -> None:
    if backend == "faiss":
        pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], np.float32) + 100
    rows = (centers[np.arange(900) % 3] + rng.normal(size=(900, 2)) * 0.3).astype(np.float32)
    found = kmeans(rows, 3, n_init=4, seed=0, backend=backend)
    again = kmeans(rows, 3, n_init=4, seed=0, backend=backend)
    assert found.centers.tobytes() == again.centers.tobytes()
    order = np.lexsort(found.centers.round().T)
    np.testing.assert_allclose(found.centers[order], centers[[0, 1, 2]], atol=0.2)
    exact = np.square(rows - found.centers[found.labels]).sum()
    assert found.inertia == pytest.approx(exact, rel=1e-3)
    assert len(set(found.labels[::3].tolist())) == 1


def test_kmeans_in_torch_fits_a_sample_and_fills_empty_clusters() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(6, dtype=np.float32) * 10, 4000)[:, None] + rng.normal(size=(24_000, 1)) * 0.1
    found = kmeans(rows.astype(np.float32), 6, n_init=3, seed=1, backend="torch")
    np.testing.assert_allclose(np.sort(found.centers.ravel()), np.arange(6) * 10, atol=0.1)
    assert np.bincount(found.labels).tolist() == [4000] * 6


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(6, 40), st.integers(0, 10_000))
def test_nearest_centers_are_the_nearest(k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, centers = (rng.normal(size=(m, 3)).astype(np.float32) for m in (n, k))
    labels, near = nearest_centers(rows, centers)
    squares = np.square(rows[:, None] - centers[None]).sum(axis=2)
    np.testing.assert_allclose(near, squares.min(axis=1), atol=1e-4)
    np.testing.assert_allclose(squares[np.arange(n), labels], squares.min(axis=1), atol=1e-4)


def test_spread_counts_directions() -> None:
    # two directions with variances 4 and 1: (4 + 1) / ((4 + 1)^2 / (16 + 1)) = 17 / 5
    rows = np.array([[2, 1], [2, -1], [-2, 1], [-2, -1]], np.float32)
    found = within_spread(rows, np.zeros((1, 2), np.float32), np.zeros(4, int))
    assert found == pytest.approx((17 / 5) ** 0.5)
    assert within_spread(rows[:1], rows[:1], np.zeros(1, int)) > 0


def test_saving_and_loading(fitted: SparcClusterer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, SparcClusterer)
    new = DATA.X[COLD]
    assert loaded.predict_proba(new).tobytes() == fitted.predict_proba(new).tobytes()
    assert (loaded.labels_ == fitted.labels_).all()
    assert (loaded.inertia_, loaded.sigma_) == (fitted.inertia_, fitted.sigma_)
    one = loaded.predict_proba(new[:1])  # a batch of one
    np.testing.assert_allclose(one, fitted.predict_proba(new)[:1], atol=1e-5)


def test_a_map_of_ones_own_is_used_and_saved(tmp_path: Path) -> None:
    own = SpectralMap(5, hidden_channels=(8,), max_steps=20, diffusion_time=2.0)
    model = quick(spectral_map=own).fit(X, graph=GRAPH)
    assert model.map_.n_components_ == 5
    assert not hasattr(own, "module_")  # a copy was fitted
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, SparcClusterer)
    assert loaded.spectral_map is not None
    assert loaded.predict(X[:9]).tolist() == model.predict(X[:9]).tolist()


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (
        quick(max_steps=10, random_state=seed).fit(X, graph=GRAPH).predict_proba(X).tobytes() for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_isolated_nodes_and_one_cluster() -> None:
    alone = Graph.from_edges(np.array([np.arange(100), np.arange(1, 101)]), num_nodes=400)
    model = quick(alpha=0.0, max_steps=10).fit(X, graph=alone)
    assert model.labels_.shape == (400,)
    one = quick(1, max_steps=5).fit(X, graph=GRAPH)
    assert set(one.labels_) == {0}
    np.testing.assert_allclose(one.predict_proba(X[:3]), 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_clusters": 0}, "n_clusters=0 came"),
        ({"n_clusters": 2.5}, r"n_clusters=2\.5 came"),
        ({"n_clusters": 401}, "401 for"),
        ({"alpha": 1.5}, r"alpha=1\.5 came"),
        ({"alpha": "some"}, "alpha='some' came"),
        ({"k_power": 0}, "k_power=0 came"),
        ({"diffusion_time": -1}, "diffusion_time=-1 came"),
        ({"spectral_map": "sym"}, "expected a SpectralMap"),
        ({"n_init": 0}, "n_init=0 came"),
        ({"feature_share": 1.5}, r"feature_share=1\.5 came"),
        ({"feature_share": "none"}, "feature_share='none' came"),
    ],
)
def test_bad_parameters(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        quick().set_params(**changes).fit(X, graph=GRAPH)


def test_bad_input() -> None:
    with pytest.raises(NotFittedError):
        quick().predict(X)
    with pytest.raises(InputError, match="n_samples = 1"):
        quick(1).fit(X[:1])
    with pytest.raises(FeatureError, match="NaN"):
        quick().fit(np.where(np.eye(400, 8) > 0, np.nan, X))
    with pytest.raises(GraphShapeError, match="graph has 400 nodes but X has 399"):
        quick().fit(X[1:], graph=GRAPH)
    with pytest.raises(GraphError, match="no edges"):
        quick().fit(X, graph=Graph.from_edges(np.zeros((2, 0), int), num_nodes=400))
    with pytest.raises(InputError, match="have 2 different positions"):
        quick(3, max_steps=5).fit(np.repeat([[0.0, 1.0], [1.0, 0.0]], 20, axis=0))
