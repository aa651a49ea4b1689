"""New nodes join fitted models: found, shown, voting and suggested at once, and nothing else changes."""

from __future__ import annotations

import copy
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from gsparc import Graph, SparcClassifier, SparcClusterer, SparcLinkPredictor, SpectralMap, load_model
from gsparc.datasets import make_blocks
from gsparc.estimators._growing import grown_codes, grown_graph, joined_edges
from gsparc.estimators._nodes import NodeNames
from gsparc.exceptions import FeatureError, GraphError, GsparcError, InputError, LabelError

DATA = make_blocks(240, 2000, 8, branching=(3,), noise=0.8, within=0.9, random_state=0)
SEEN, NEW = np.arange(190), np.arange(190, 240)
NAMES = np.array([f"node {i}" for i in range(240)])
CLASSES = np.array(["a", "b", "c"])[DATA.y]
EDGES = np.stack(DATA.graph.to_scipy().tocoo().coords)
EDGES = EDGES[:, (EDGES.max(axis=0) >= 190) & (EDGES[0] < EDGES[1])]  # those that come with the new nodes
MAP = SpectralMap(4, hidden_channels=(16,), max_steps=40, batch_size=128)
SMALL: dict[str, Any] = {"spectral_map": MAP, "hidden_channels": 16, "num_tokens": 4, "num_heads": 4}
SMALL |= {"max_steps": 30, "batch_size": 64, "random_state": 0, "device": "cpu"}
KINDS = ["auto", "mlp", "phormer", "samba", "gcn", "gcn summary", "module"]
kinds = pytest.mark.parametrize("kind", KINDS)


def network() -> torch.nn.Module:
    pytest.importorskip("torch_geometric")
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        import torch_geometric.nn as pyg

        torch.manual_seed(0)
        return pyg.GraphSAGE(8, 16, num_layers=2, out_channels=3)


@cache
def _fitted(kind: str) -> Any:
    if kind == "links":
        model: Any = SparcLinkPredictor(16, n_maps=1, spectral_steps=20, refine_steps=40, random_state=0, device="cpu")
        model.fit(DATA.X[SEEN], graph=named_graph())
        return model
    if kind == "clusters":
        model = SparcClusterer(3, n_components=8, max_steps=30, random_state=0, device="cpu")
        return model.fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    backbone = network() if kind == "module" else kind.split(maxsplit=1)[0]
    more = {"gcn_inference": "summary"} if kind == "gcn summary" else {}
    if kind == "auto":
        more = {"heads": ("mlp", "distilled", "spectral", "gcn", "phormer", "vote")}
    return SparcClassifier(backbone, **SMALL, **more).fit(DATA.X[SEEN], CLASSES[SEEN], graph=named_graph())


def named_graph() -> Graph:
    graph = DATA.graph[SEEN]
    return Graph(graph.indptr, graph.indices, node_ids=NAMES[SEEN])


def fitted(kind: str) -> Any:
    """A fitted model that a test may let grow: `grow` replaces attributes and changes none of them."""
    return copy.copy(_fitted(kind))


def everything(model: Any) -> dict[str, Any]:
    """All that would be saved, as plain values."""
    config, arrays = model._state()
    return {"config": repr(config), **{name: array.tobytes() for name, array in arrays.items()}}


def grown(kind: str, rows: np.ndarray = NEW, **changes: Any) -> Any:
    inside = EDGES[:, EDGES.max(axis=0) <= rows.max()]
    given: dict[str, Any] = {"edges": tuple(NAMES[inside]), "node_ids": NAMES[rows]} | changes
    model = fitted(kind)
    if kind == "links":
        return model.grow(DATA.X[rows], **given)
    return model.grow(DATA.X[rows], given.pop("y", CLASSES[rows]), **given)


@kinds
def test_new_nodes_are_their_own_nearest_neighbours_and_stand_in_the_evidence(kind: str) -> None:
    found = grown(kind).evidence(DATA.X[NEW], k=3)
    assert found.ids[:, 0].tolist() == NAMES[NEW].tolist()
    assert found.labels[:, 0].tolist() == DATA.y[NEW].tolist()
    np.testing.assert_allclose(found.distances[:, 0], 0.0, atol=1e-5)


@kinds
def test_two_halves_are_the_whole(kind: str) -> None:
    whole, halves = grown(kind), fitted(kind)
    for rows in (NEW[:25], NEW[25:]):
        part = EDGES[:, (EDGES.max(axis=0) >= rows[0]) & (EDGES.max(axis=0) <= rows[-1])]
        halves.grow(DATA.X[rows], CLASSES[rows], edges=tuple(NAMES[part]), node_ids=NAMES[rows])
    X = DATA.X + np.float32(0.01)
    np.testing.assert_allclose(halves.predict_proba(X), whole.predict_proba(X), atol=1e-5)
    one, other = halves.evidence(X, 5), whole.evidence(X, 5)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.labels, other.labels)


@kinds
def test_a_grown_model_comes_back_from_its_folder(kind: str, tmp_path: Path) -> None:
    model = grown(kind, y=np.where(np.arange(50) % 3, CLASSES[NEW], None))
    model.save(tmp_path / "model")
    loaded: Any = load_model(tmp_path / "model", backbone=network() if kind == "module" else None)
    X = DATA.X + np.float32(0.01)
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-6)
    for got, expected in zip(loaded.evidence(X, 5), model.evidence(X, 5), strict=True):
        assert np.array_equal(got, expected) if got.dtype.kind != "f" else np.allclose(got, expected, atol=1e-6)
    more = {"edges": (["late"], ["node 3"]), "node_ids": ["late"]}
    for each in (model, loaded):  # and goes on growing
        each.grow(DATA.X[:1] + 1, ["a"], **more)
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-6)


@kinds
def test_nodes_far_from_the_new_ones_are_predicted_as_before(kind: str) -> None:
    model = fitted(kind)
    far = model._coordinates(DATA.X[SEEN])
    place = far[:1] / np.linalg.norm(far[0])
    order = np.argsort(far @ place[0])
    new, old = SEEN[order[-12:]], SEEN[order[:20]]  # grown: copies of nodes at the other end of the eigenspace
    before = model.predict_proba(DATA.X[old])
    model.grow(DATA.X[new], CLASSES[new], node_ids=[f"copy {i}" for i in new])
    after = model.predict_proba(DATA.X[old])
    if kind == "mlp":
        np.testing.assert_array_equal(after, before)
    else:  # the prior of the vote and the summaries know every node; all else looks at near ones
        np.testing.assert_allclose(after, before, atol={"auto": 2e-4, "gcn summary": 0.05}.get(kind, 1e-5))


@kinds
def test_what_is_near_does_change_a_prediction_that_reads_neighbours(kind: str) -> None:
    model = fitted(kind)
    copies = np.repeat(DATA.X[:1], 40, axis=0)
    before = model.predict_proba(DATA.X[:1])
    model.grow(copies, ["b"] * 40, node_ids=[f"copy {i}" for i in range(40)])
    assert (np.abs(model.predict_proba(DATA.X[:1]) - before).max() > 1e-4) == (kind != "mlp")
    assert (model.evidence(DATA.X[:1], 41).labels[0] == 1).sum() >= 40


BAD: dict[str, tuple[type[GsparcError], str, dict[str, Any]]] = {
    "taken id": (GraphError, "nodes of the model already .'node 3'", {"node_ids": ["x", "node 3"]}),
    "repeated id": (GraphError, "more than once", {"node_ids": ["x", "x"]}),
    "one id": (GraphError, "1 node_ids for 2 nodes", {"node_ids": ["x"]}),
    "no id": (GraphError, "no node_ids came for 2 new nodes", {"node_ids": None}),
    "integer ids": (GraphError, "of another type", {"node_ids": [1, 2]}),
    "unknown end": (GraphError, "1 not among the 192 known nodes .first: 'z'", {"edges": (["x"], ["z"])}),
    "integer end": (GraphError, "Convert one to the other", {"edges": ([0], [1])}),
    "one end": (GraphError, "tuple came, expected .sources, targets", {"edges": (["x"],)}),
    "unequal ends": (GraphError, "arrays of equal length", {"edges": (["x", "y"], ["y"])}),
    "negative weight": (GraphError, "negative", {"edges": (["x"], ["y"], [-1.0])}),
    "one weight too many": (GraphError, "one weight an edge", {"edges": (["x"], ["y"], [1.0, 2.0])}),
    "width": (FeatureError, "Pass the same columns", {"X": DATA.X[:2, :5]}),
    "no rows": (FeatureError, "0 sample", {"X": DATA.X[:0]}),
    "NaN": (FeatureError, "NaN", {"X": DATA.X[:2] * np.nan}),
}
BAD_LABELS: dict[str, tuple[type[GsparcError], str, dict[str, Any]]] = {
    "unknown class": (LabelError, "'d', which is none of the 3 classes", {"y": ["a", "d"]}),
    "class number": (LabelError, "label 1, which is none", {"y": [1, 0]}),
    "one label": (LabelError, "y has 1 labels but X has 2 rows", {"y": ["a"]}),
}


@pytest.mark.parametrize("bad", [*BAD, *BAD_LABELS])
@pytest.mark.parametrize("kind", ["auto", "module", "links"])
def test_a_refused_call_leaves_the_model_as_it_was(kind: str, bad: str) -> None:
    if kind == "links" and bad in BAD_LABELS:
        pytest.skip("no labels there")
    error, words, changes = {**BAD, **BAD_LABELS}[bad]
    model = fitted(kind)
    before = everything(model)
    given: dict[str, Any] = {"X": DATA.X[:2], "y": ["a", "b"], "node_ids": ["x", "y"]} | changes
    if kind == "links":
        del given["y"]
    with pytest.raises(error, match=words):
        model.grow(**given)
    assert everything(model) == before


def test_a_failure_in_the_middle_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("auto")
    before = everything(model)

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("gsparc.estimators._growing._grown_beliefs", fail)
    with pytest.raises(MemoryError):
        model.grow(DATA.X[:2], ["a", "b"], node_ids=["x", "y"])
    assert everything(model) == before


def test_an_unfitted_model_does_not_grow() -> None:
    for model in (SparcClassifier(), SparcLinkPredictor(), SparcClusterer()):
        with pytest.raises(NotFittedError):
            model.grow(DATA.X[:2])


def test_unlabelled_nodes_vote_for_what_the_networks_say_and_known_neighbours_are_read_so() -> None:
    model = fitted("auto")
    names = [name for name, head in model._heads.items() if head.kind == "mlp"]
    weights = np.array([model.weights_[name] for name in names])
    said = model._head_probabilities(model._view(DATA.X[190:192], torch.device("cpu")), names)
    expected = sum(w * said[name] for w, name in zip(weights / weights.sum(), names, strict=True))
    model.grow(DATA.X[190:192], node_ids=["x", "y"])
    np.testing.assert_allclose(model._vote.labels[190:], expected, atol=1e-6)
    np.testing.assert_allclose(model._first.soft[-2:], expected, atol=1e-6)
    assert model._first.unlabelled[-2:].tolist() == [190, 191]
    assert model.evidence(DATA.X[190:191], 1).labels.tolist() == [[-1]]


def test_a_new_node_can_be_a_known_neighbour() -> None:
    model = fitted("mlp")
    with pytest.raises(InputError, match="'x'"):
        model.predict(DATA.X[:1], edges=([0], ["x"]))
    model.grow(DATA.X[190:191], ["b"], node_ids=["x"])
    cold, warm = model.predict_proba(DATA.X[:1]), model.predict_proba(DATA.X[:1], edges=([0], ["x"]))
    assert warm[0, 1] > cold[0, 1]


def test_the_edges_of_a_module_are_extended() -> None:
    model = grown("module")
    (head,) = model._heads.values()
    assert head.edges is not None
    assert head.source is not None
    assert Graph(head.edges.indptr.numpy(), head.edges.indices.numpy()) == DATA.graph
    np.testing.assert_array_equal(head.source.matrix(), DATA.X)


def test_summaries_take_in_new_nodes_by_hand() -> None:
    model = fitted("gcn summary")
    (head,) = model._heads.values()
    before = [summary.clone() for summary in head.summaries]
    view = model._view(DATA.X[NEW], torch.device("cpu"))
    rows = torch.arange(50)
    h = head.module._start(view.table(rows).unsqueeze(0), None).detach()[0]
    u = torch.cat([torch.ones(50, 1), view.coordinates(rows)], dim=1)
    model.grow(DATA.X[NEW], CLASSES[NEW], node_ids=NAMES[NEW])
    (fresh,) = model._heads.values()
    torch.testing.assert_close(fresh.summaries[0], (190 * before[0] + u.T @ h) / 240)
    for one, other in zip(fresh.fitted_summaries, before, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_links_offer_new_nodes_and_count_their_edges() -> None:
    model = grown("links")
    ids, _ = model.predict_links(DATA.X, k=20)
    assert np.isin(ids, NAMES[NEW]).mean() > 0.1  # a fifth of all candidates
    assert model.score_pairs(DATA.X[:1], ["node 239"]).shape == (1, 1)
    plain = popular(popularity=0.0).grow(DATA.X[NEW], edges=tuple(EDGES))
    assert plain.predict_links(DATA.X[NEW], k=1)[0].ravel().tolist() == NEW.tolist()


def popular(share: float = 0.5, **changes: float) -> Any:
    """A link predictor whose weights are set by hand."""
    model = SparcLinkPredictor(8, n_maps=1, spectral_steps=5, refine_steps=5, random_state=0, device="cpu")
    model.fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    view, graph = model._view.rows(DATA.X[SEEN]), DATA.graph[SEEN]
    model.weights_ = model.weights_._replace(
        **{"map_share": share, "smooth_map": 0.0, "smooth_features": 0.0} | changes
    )
    model.index_ = model._index(model._embed(DATA.X[SEEN]), view, graph, model.weights_, torch.device("cpu"), 0)
    model._graph = graph if model.weights_.popularity else None
    return model


def test_popularity_counts_each_edge_once_whoever_sends_it() -> None:
    model = popular(popularity=0.1)
    old = tuple(np.stack(DATA.graph[SEEN].to_scipy().tocoo().coords))  # the whole file once more
    fresh = [[190, 190, 191, 5], [0, 0, 190, 191]]  # one of them twice
    model.grow(DATA.X[190:192], edges=tuple(np.concatenate([a, b]) for a, b in zip(old, fresh, strict=True)))
    degrees = np.concatenate([DATA.graph[SEEN].degrees(), [2, 2]])
    degrees[[0, 5]] += 1
    np.testing.assert_allclose(model.index_.prior, 0.1 * np.log1p(degrees), rtol=1e-6)


def test_a_new_node_is_averaged_over_its_fitted_neighbours_by_hand() -> None:
    model = popular(smooth_map=0.6, smooth_features=0.3, popularity=0.0)
    spectral, features = model.index_.rows_at(np.array([3, 7]))
    own = model._embed(DATA.X[190:192])
    view = model._view.rows(DATA.X[190:192])
    view /= np.linalg.norm(view, axis=1, keepdims=True)
    model.grow(DATA.X[190:192], edges=([190, 7, 190], [3, 190, 191], [1.0, 2.0, 5.0]))
    got, got_features = model.index_.rows_at(np.array([190, 191]))
    near = (own[0] + spectral[0].numpy() + 2 * spectral[1].numpy()) / 4  # node 191 was not there in fit
    expected = 0.4 * own[0] + 0.6 * near
    np.testing.assert_allclose(got[0], expected / np.linalg.norm(expected), atol=1e-6)
    np.testing.assert_allclose(got[1], own[1], atol=1e-6)
    near = (view[0] + features[0].numpy() + 2 * features[1].numpy()) / 4
    expected = 0.7 * view[0] + 0.3 * near
    np.testing.assert_allclose(got_features[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_links_grow_in_halves_and_come_back_from_a_folder(tmp_path: Path) -> None:
    whole, halves = grown("links"), fitted("links")
    for rows in (NEW[:25], NEW[25:]):
        part = EDGES[:, (EDGES.max(axis=0) >= rows[0]) & (EDGES.max(axis=0) <= rows[-1])]
        halves.grow(DATA.X[rows], edges=tuple(NAMES[part]), node_ids=NAMES[rows])
    whole.save(tmp_path / "links")
    loaded: Any = load_model(tmp_path / "links")
    expected = whole.score_all(DATA.X)
    np.testing.assert_allclose(halves.score_all(DATA.X), expected, atol=1e-5)
    np.testing.assert_allclose(loaded.score_all(DATA.X), expected, atol=1e-6)
    for each in (whole, loaded):
        each.grow(DATA.X[:1], edges=(["late"], ["node 5"]), node_ids=["late"])
    np.testing.assert_allclose(loaded.score_all(DATA.X), whole.score_all(DATA.X), atol=1e-6)


def test_links_that_do_not_belong_to_the_nodes_are_damage() -> None:
    model = popular(popularity=0.1)
    fitted, arrays = model._state()
    loaded: Any = SparcLinkPredictor(8, device="cpu")
    loaded.n_features_in_ = 8
    loaded._restore(fitted, arrays)
    assert loaded._graph == DATA.graph[SEEN]
    for changes in ({"graph.indptr": arrays["graph.indptr"][:-1]}, {"graph.indices": arrays["graph.indices"] + 1}):
        with pytest.raises(GraphError):
            loaded._restore(fitted, arrays | changes)
    with pytest.raises(ValueError, match="do not belong to the 190 nodes"):
        loaded._restore(fitted | {"fitted_nodes": 191}, arrays)
    with pytest.raises(KeyError):
        loaded._restore(fitted, {name: array for name, array in arrays.items() if not name.startswith("graph.")})


def test_sparse_and_dense_rows_join_each_other() -> None:
    X = np.abs(DATA.X) * (DATA.X > 0.3)
    for fit_on, grow_with in ((sp.csr_array, np.asarray), (np.asarray, sp.csr_array)):
        model = SparcClassifier("mlp", **SMALL).fit(fit_on(X[SEEN]), DATA.y[SEEN], graph=DATA.graph[SEEN])
        model.grow(grow_with(X[NEW]), DATA.y[NEW])
        assert (model.nearest(X[NEW], 1)[0].ravel() == NEW).mean() > 0.9  # some rows are alike
        links: Any = SparcLinkPredictor(8, n_maps=1, spectral_steps=5, refine_steps=5, random_state=0, device="cpu")
        links.fit(fit_on(X[SEEN]), graph=DATA.graph[SEEN])
        links.weights_ = links.weights_._replace(smooth_map=0.3, smooth_features=0.3)
        assert links.grow(grow_with(X[NEW]), edges=tuple(EDGES)).score_all(X[:2]).shape == (2, 240)


def test_a_model_without_ids_counts_on() -> None:
    model: Any = SparcClassifier("mlp", **SMALL).fit(DATA.X[SEEN], DATA.y[SEEN], graph=DATA.graph[SEEN])
    model.grow(DATA.X[NEW[:2]], [-1, 2], edges=([190], [3]), node_ids=[190, 191])
    assert model.nearest(DATA.X[NEW[:2]], 1)[0].tolist() == [[190], [191]]
    with pytest.raises(GraphError, match="are 192 to 193"):
        model.grow(DATA.X[NEW[:2]], node_ids=[7, 8])
    with pytest.raises(InputError, match="expected 0 to 193"):
        model.grow(DATA.X[NEW[:2]], edges=([194], [0]))
    with pytest.raises(InputError, match="expected positions"):
        model.grow(DATA.X[NEW[:2]], edges=(["194"], ["0"]))


def test_clusters_of_new_nodes_go_on_where_the_old_ones_end(tmp_path: Path) -> None:
    model = fitted("clusters")
    before = model.predict(DATA.X)
    squares = np.square(model.embed(DATA.X[NEW])[:, None] - model.cluster_centers_).sum(axis=2).min(axis=1)
    inertia = model.inertia_
    model.grow(DATA.X[NEW], edges=tuple(EDGES), node_ids=NAMES[NEW])
    assert model.labels_.dtype == np.int32
    np.testing.assert_array_equal(model.labels_[190:], before[NEW])
    np.testing.assert_array_equal(model.predict(DATA.X), before)
    assert model.inertia_ == pytest.approx(inertia + squares.sum(), rel=1e-4)
    model.save(tmp_path / "clusters")
    loaded: Any = load_model(tmp_path / "clusters")
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    with pytest.raises(FeatureError, match="0 sample"):
        model.grow(DATA.X[:0])


def test_labels_become_codes() -> None:
    assert grown_codes(None, 2, np.array([0, 1])).tolist() == [-1, -1]
    assert grown_codes([1, -1, 0], 3, np.array([0, 1])).tolist() == [1, -1, 0]
    assert grown_codes(["b", -1, "a"], 3, np.array(["a", "b"])).tolist() == [1, -1, 0]
    assert grown_codes([-1, 1], 2, np.array([-1, 1])).tolist() == [0, 1]  # -1 is a class of its own here
    assert grown_codes([1.0, 0.0], 2, np.array([0, 1])).tolist() == [1, 0]
    with pytest.raises(LabelError, match="2 such rows"):
        grown_codes(["1", "0"], 2, np.array([0, 1]))


def test_edges_of_two_graphs_by_hand() -> None:
    path = Graph.from_edges([[0, 1], [1, 2]], num_nodes=3)
    more = joined_edges(([3, 1, 3], [0, 2, 3]), NodeNames(4, None))
    assert more is not None
    both = grown_graph(path, more, 4)
    assert both == Graph.from_edges([[0, 1, 0], [1, 2, 3]], num_nodes=4)
    assert grown_graph(path, None, 4) == Graph.from_edges([[0, 1], [1, 2]], num_nodes=4)
    heavy = joined_edges(([0, 1], [1, 3], [0.5, 4.0]), NodeNames(4, None))
    both = grown_graph(path, heavy, 4)
    assert both == Graph.from_edges([[0, 1, 1], [1, 2, 3]], num_nodes=4, weights=[1.0, 1.0, 4.0])
    assert joined_edges(([], []), NodeNames(4, None)) is None
    assert joined_edges(([2], [2]), NodeNames(4, None)) is None
    assert joined_edges(np.array([[0, 1], [1, 2]]), NodeNames(4, None)) == Graph.from_edges([[0, 1], [1, 2]], 4)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=31, unique=True), st.data())
def test_any_order_of_arrival_gives_the_same_names_and_edges(order: list[int], data: st.DataObject) -> None:
    old, cut = NodeNames(2, np.array(["p", "q"])), data.draw(st.integers(0, len(order)))
    names = [f"n{i}" for i in order]
    whole, halves = old.grown(len(names), names), old
    for part in (names[:cut], names[cut:]):
        if part:
            halves = halves.grown(len(part), part)
    assert whole.names(np.arange(len(whole))).tolist() == halves.names(np.arange(len(halves))).tolist()
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(["p", "q", *names]), st.sampled_from(names)), max_size=20))
    graph = joined_edges(([a for a, _ in pairs], [b for _, b in pairs]), whole)
    once = {frozenset(pair) for pair in pairs if pair[0] != pair[1]}
    assert (0 if graph is None else graph.num_edges) == len(once)
