"""Features beside the coordinates in telling which seen nodes are near: how much, and for whom it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

import gsparc.estimators._directions as module
from gsparc import Graph, SparcClassifier, SpectralMap, load_model
from gsparc._runtime import resolve_seed
from gsparc.datasets import communities_of_blobs
from gsparc.estimators._directions import DirectionView, best_share
from gsparc.estimators._ranking import FeatureView
from gsparc.estimators._views import SeenNodes
from gsparc.exceptions import InputError
from gsparc.training.batches import Scaling
from gsparc.training.links import Retrieval, mean_log_ranks
from gsparc.training.spectral import HeldOut

CPU = torch.device("cpu")
QUICK: dict[str, Any] = {"n_components": 8, "num_tokens": 3, "max_steps": 5, "random_state": 0}
PLANE = FeatureView(True, None, np.ones(2, np.float32))  # features are compared as they are


def circle(*degrees: float) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def on_a_circle(coordinates: np.ndarray, X: np.ndarray, share: float) -> SeenNodes:
    """Seen nodes in the plane, by coordinates and by two features that are compared as they are."""
    words = DirectionView(PLANE, np.eye(2, dtype=np.float32))
    scaling = Scaling(False, np.zeros(2, np.float32), np.ones(2, np.float32))
    return SeenNodes.fit(X, scaling, coordinates * np.float32(2**0.5), CPU, 0, None, words, share)[0]


def test_likeness_is_the_weighed_mean_of_both_cosines() -> None:
    coordinates, X = circle(0, 60, 90), circle(0, 90, 0) * [[3.0], [1.0], [0.5]]
    seen = on_a_circle(coordinates, X, 0.75)
    new = seen.view(X[:1], coordinates[:1] * np.float32(2**0.5))
    ids, distances = new.neighbors(torch.tensor([0]), 3)
    # node 0 is itself; node 2 has its features and another place, node 1 half of its place and other features
    assert ids.tolist() == [[0, 2, 1]]
    np.testing.assert_allclose(1 - distances[0], [1.0, 0.75, 0.25 * 0.5], atol=1e-6)
    alone, _ = SeenNodes.fit(X, seen.scaling, coordinates * np.float32(2**0.5), CPU, 0)
    assert alone.view(X[:1], coordinates[:1]).neighbors(torch.tensor([0]), 3)[0].tolist() == [[0, 1, 2]]


def test_networks_still_read_the_coordinates_alone() -> None:
    coordinates, X = circle(0, 60, 90, 200), circle(10, 20, 30, 40)
    X[1] = 0  # no features at all: its place in the index is that of its coordinates
    seen = on_a_circle(coordinates, X, 0.5)
    np.testing.assert_allclose(seen.coordinates, coordinates * 2**0.5, atol=1e-6)
    assert seen.index.dim == 4
    assert seen.table.shape == (4, 4)  # two features and two coordinates
    view = seen.view(X, coordinates * np.float32(2**0.5))
    np.testing.assert_allclose(view.coordinates(torch.arange(4)), coordinates * 2**0.5, atol=1e-6)


def test_a_seen_node_is_not_its_own_neighbour() -> None:
    rng = np.random.default_rng(0)
    coordinates, X = circle(*rng.uniform(0, 360, 40)), circle(*rng.uniform(0, 360, 40))
    seen = on_a_circle(coordinates, X, 0.5)
    own = seen.view(X, coordinates * np.float32(2**0.5), np.arange(40))
    ids, _ = own.neighbors(torch.arange(40), 39)
    assert not (ids == torch.arange(40)[:, None]).any()
    cosines = 0.5 * coordinates @ coordinates.T + 0.5 * X @ X.T - 2 * np.eye(40)
    np.testing.assert_array_equal(ids[:, 0], cosines.argmax(axis=1))
    means = own.tokens(torch.arange(40), 1)[:, 1, :2]
    nearest = np.argsort(-cosines, axis=1)[:, :2]
    np.testing.assert_allclose(means, X[nearest].mean(axis=1), atol=1e-5)


def test_grown_nodes_are_found_by_both() -> None:
    coordinates, X = circle(0, 60, 90), circle(0, 90, 0)
    seen = on_a_circle(coordinates, X, 0.75)
    more = seen.grown(circle(5), circle(85) * np.float32(2**0.5))
    assert (more.share, more.words) == (0.75, seen.words)
    asked = seen.view(circle(5), circle(85)).queries(torch.tensor([0]))
    assert more.view(circle(5), circle(85)).neighbors(torch.tensor([0]), 1)[0].tolist() == [[3]]
    distances, ids = more.index.search(asked, 1)
    assert (int(ids[0, 0]), round(float(distances[0, 0]), 5)) == (3, 0.0)


def retrieval_of(queries: int) -> Retrieval:
    """Node i of the first half is held out, its neighbour is node ``queries + i``."""
    train = np.arange(queries, 2 * queries)
    held = HeldOut(train, np.arange(queries), np.arange(queries + 1), np.arange(queries))
    return Retrieval(held, 0, CPU)


@pytest.mark.parametrize(("told_by", "expected"), [("coordinates", 0.0), ("words", 0.75), ("both", 0.5), ("all", 0.0)])
def test_the_share_that_finds_neighbours_is_chosen(told_by: str, expected: float) -> None:
    rng = np.random.default_rng(0)
    shares = (0.0, 0.25, 0.5, 0.75)

    def unit(rows: np.ndarray) -> np.ndarray:
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    same = np.tile(unit(rng.standard_normal((100, 16))), (2, 1))
    noise = unit(rng.standard_normal((200, 16)))
    part = unit(same + 0.9 * noise), unit(same + 0.9 * unit(rng.standard_normal((200, 16))))
    pairs = {"coordinates": (same, noise), "words": (noise, same), "both": part, "all": (same, same)}
    assert best_share(*pairs[told_by], retrieval_of(100), shares) == expected


def test_hidden_nodes_have_no_part_in_the_directions() -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.3, (60, 30)).astype(np.float32))
    edges = rng.integers(60, size=(2, 200))
    hidden = np.array([3, 17, 40])
    changed = X.toarray()
    changed[hidden] = 1000 * rng.random((3, 30))
    moved = edges[:, ~np.isin(edges, hidden).any(axis=0)]
    moved = np.concatenate([moved, [[3, 17, 40, 3], [5, 6, 7, 8]]], axis=1)
    first = DirectionView.fit(X, Graph.from_edges(edges, num_nodes=60), 5, hidden=hidden)
    again = DirectionView.fit(sp.csr_array(changed), Graph.from_edges(moved, num_nodes=60), 5, hidden=hidden)
    assert first.directions.tobytes() == again.directions.tobytes()
    noticed = DirectionView.fit(sp.csr_array(changed), Graph.from_edges(moved, num_nodes=60), 5)
    assert first.directions.tobytes() != noticed.directions.tobytes()


def blobs() -> Any:
    return communities_of_blobs(300, num_blobs=12, dim=8, degree=10, random_state=0)


@pytest.mark.parametrize("backbone", ["gcn", "phormer", "samba", "auto"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_saved_and_loaded(backbone: str, share: float, tmp_path: Path) -> None:
    data = blobs()
    model = SparcClassifier(backbone, feature_share=share, **QUICK)
    model.fit(data.X[:250], data.y[:250], graph=data.graph[range(250)])
    assert model.feature_share_ == share
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.feature_share_ == share
    assert loaded.predict_proba(data.X[250:]).tobytes() == model.predict_proba(data.X[250:]).tobytes()
    grown = loaded.grow(data.X[250:], data.y[250:])
    assert grown.nearest(data.X[260:261], k=1)[0].tolist() == [[260]]


def test_folders_from_before_features_counted_can_be_read() -> None:
    data = blobs()
    model = SparcClassifier("gcn", feature_share=0.0, **QUICK).fit(data.X, data.y, graph=data.graph)
    fitted, arrays = model._state()
    older = {name: value for name, value in fitted["seen"].items() if name not in ("words", "share")}
    fresh = SparcClassifier("gcn", **QUICK)
    fresh.n_features_in_ = data.X.shape[1]
    fresh._restore(fitted | {"seen": older}, arrays)
    assert fresh.feature_share_ == 0.0
    assert fresh.predict_proba(data.X).tobytes() == model.predict_proba(data.X).tobytes()


def test_damage_is_noticed() -> None:
    data = blobs()
    model = SparcClassifier("gcn", feature_share=0.5, **QUICK).fit(data.X, data.y, graph=data.graph)
    fitted, arrays = model._state()
    for change in (np.zeros((8, 16), np.float32), np.zeros((3, 8), np.float32), np.full((8, 8), np.inf, np.float32)):
        with pytest.raises(ValueError, match=r"all of them features|directions of shape"):
            model._restore(fitted, arrays | {"seen.words.directions": change})
    with pytest.raises(ValueError, match="do not fit the map"):
        model._restore(fitted, arrays | {"seen.words.directions": np.zeros((8, 5), np.float32)})
    with pytest.raises(InputError, match="share=7"):
        model._restore(fitted | {"seen": fitted["seen"] | {"share": 7}}, arrays)


def test_distances_of_the_evidence_are_those_that_are_said() -> None:
    data = blobs()
    model = SparcClassifier("phormer", feature_share=0.25, **QUICK)
    model.fit(data.X[:250], data.y[:250], graph=data.graph[range(250)])
    found = model.evidence(data.X[250:], k=4)
    assert model._seen is not None
    assert model._seen.words is not None

    def cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(rows, axis=1)[:, None] * np.linalg.norm(others, axis=1)
        return rows @ others.T / lengths

    by_map = cosines(model._coordinates(data.X[250:]), model._coordinates(data.X[:250]))
    by_words = cosines(model._seen.words.rows(data.X[250:]), model._seen.words.rows(data.X[:250]))
    expected = 1 - (0.75 * by_map + 0.25 * by_words)
    np.testing.assert_allclose(found.distances, np.sort(expected, axis=1)[:, :4], atol=1e-5)
    np.testing.assert_array_equal(model.screen(data.X[250:], far_level=0.3).far, model.novelty(data.X[250:]) <= 0.3)


def test_held_out_nodes_choose_the_share_and_have_no_part_in_the_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = blobs(), []

    def remembered(coordinates: np.ndarray, words: np.ndarray, retrieval: Retrieval, shares: Any) -> float:
        asked.append((retrieval.queries, tuple(shares)))
        return 0.25

    monkeypatch.setattr(module, "best_share", remembered)
    model = SparcClassifier("gcn", **QUICK).fit(data.X, data.y, graph=data.graph)
    held = model.map_._held
    assert held is not None
    ((queries, shares),) = asked
    assert np.isin(queries, held.nodes).all()
    assert shares == (0.0, 0.75)
    assert model.feature_share_ == 0.25
    assert model._seen is not None
    assert model._seen.words is not None
    expected = DirectionView.fit(data.X, data.graph, 8, seed=resolve_seed(0), hidden=held.nodes)
    assert model._seen.words.directions.tobytes() == expected.directions.tobytes()


def test_without_a_graph_and_with_many_nodes_coordinates_alone_count(monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs()
    assert SparcClassifier("gcn", **QUICK).fit(data.X, data.y).feature_share_ == 0.0
    assert SparcClassifier("gcn", feature_share=0.5, **QUICK).fit(data.X, data.y).feature_share_ == 0.5
    assert SparcClassifier("mlp", **QUICK).fit(data.X, data.y, graph=data.graph).feature_share_ == 0.0
    monkeypatch.setattr(module, "_SHARES", (0.5,))
    assert SparcClassifier("gcn", **QUICK).fit(data.X, data.y, graph=data.graph).feature_share_ == 0.5
    monkeypatch.setattr(module, "_FEATURES_UP_TO", 299)
    assert SparcClassifier("gcn", **QUICK).fit(data.X, data.y, graph=data.graph).feature_share_ == 0.0


NARROW = SpectralMap(8, hidden_channels=(2,), linear_path=False, max_steps=5)  # no place for eight topics


def words_and_links(n: int = 480) -> tuple[sp.csr_array, np.ndarray, Graph]:
    """Eight topics of five words each; a node has four words of its topic and one of any, and two links within it."""
    rng = np.random.default_rng(0)
    topic = np.repeat(np.arange(8), n // 8)
    words = 5 * topic[:, None] + rng.integers(5, size=(n, 5))
    words[:, 0] = rng.integers(40, size=n)
    X = sp.csr_array((np.ones(5 * n, np.float32), (np.repeat(np.arange(n), 5), words.ravel())), shape=(n, 40))
    alike = (n // 8) * topic[:, None] + rng.integers(n // 8, size=(n, 2))
    edges = np.array([np.repeat(np.arange(n), 2), alike.ravel()])
    return X, topic % 3, Graph.from_edges(edges[:, edges[0] != edges[1]], num_nodes=n)


def test_features_count_where_they_tell_neighbours() -> None:
    X, y, graph = words_and_links()
    model = SparcClassifier("gcn", spectral_map=NARROW, **QUICK).fit(X, y, graph=graph)
    assert model.feature_share_ == 0.75
    summed = SparcClassifier("gcn", spectral_map=NARROW, gcn_inference="summary", **QUICK).fit(X, y, graph=graph)
    assert summed.feature_share_ == 0.0  # it looks for no neighbours


def test_nobody_held_out_means_the_coordinates_alone() -> None:
    X, y, graph = words_and_links()
    blind = clone(NARROW).set_params(validation_share=0.0)
    assert SparcClassifier("gcn", spectral_map=blind, **QUICK).fit(X, y, graph=graph).feature_share_ == 0.0


def test_neighbours_by_features_are_no_true_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator of feature-edge holds feature neighbours; only edges of the graph say what is to be found."""
    data, asked = blobs(), []
    monkeypatch.setattr(module, "best_share", lambda c, w, retrieval, shares: asked.append(retrieval) or 0.0)
    mixed = SpectralMap(8, laplacian="feature-edge", max_steps=5)
    SparcClassifier("gcn", spectral_map=mixed, **QUICK).fit(data.X, data.y, graph=data.graph)
    (retrieval,) = asked
    linked = data.graph.to_scipy()[retrieval.queries][:, retrieval.candidates].toarray() > 0
    np.testing.assert_array_equal(retrieval.truth.numpy(), linked)


def test_equal_scores_do_not_count_by_their_place() -> None:
    scores, truth = (
        torch.zeros(2, 5),
        torch.tensor([[True, False, False, False, False], [False, False, False, False, True]]),
    )
    np.testing.assert_allclose(mean_log_ranks(scores, truth).exp(), [3.0, 3.0])


@pytest.mark.parametrize("share", [-0.1, 1.0, "some", None, True, float("nan")])
def test_bad_shares_are_refused(share: Any) -> None:
    data = blobs()
    with pytest.raises(InputError, match=r"feature_share=.* came, expected a number from 0 to 0\.9"):
        SparcClassifier("gcn", feature_share=share).fit(data.X, data.y, graph=data.graph)
