"""Sets, novelty and first edges of a fitted classifier."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc import Graph, SparcClassifier, SpectralMap, load_model
from gsparc.datasets import make_blocks
from gsparc.estimators._confidence import row_lengths
from gsparc.exceptions import DamagedModelError, InputError, LabelError
from gsparc.model_store import read_folder, write_folder
from gsparc.training.batches import Scaling

SEEN, CALIBRATION = 500, 700
KINDS = ("auto", "mlp", "gcn", "phormer")


@cache
def data() -> Any:
    return make_blocks(1000, 8000, 12, branching=(4,), random_state=0)


def classifier(kind: str = "mlp", **changes: Any) -> SparcClassifier:
    spectral = SpectralMap(4, hidden_channels=(16,), max_steps=20, batch_size=128)
    settings: dict[str, Any] = {"hidden_channels": 16, "num_heads": 2, "num_tokens": 3, "max_steps": 20}
    if kind == "gcn":
        settings["hidden_channels"] = (16,)
    if kind == "auto":
        settings["heads"] = ("mlp", "spectral", "vote")
    return SparcClassifier(kind, spectral_map=spectral, random_state=0, device="cpu", **settings | changes)


def fitted(kind: str = "mlp", *, hidden: float = 0.0, names: bool = False, **changes: Any) -> SparcClassifier:
    found, labels = data(), data().y[:SEEN].copy()
    labels[np.random.default_rng(1).random(SEEN) < hidden] = -1
    graph = found.graph[np.arange(SEEN)]
    if names:
        graph = Graph(graph.indptr, graph.indices, node_ids=[f"n{i}" for i in range(SEEN)])
    return classifier(kind, **changes).fit(found.X[:SEEN], labels, graph=graph)


@cache
def shared(kind: str = "mlp", hidden: float = 0.0) -> SparcClassifier:
    return fitted(kind, hidden=hidden)


def cold() -> tuple[np.ndarray, np.ndarray]:
    return data().X[CALIBRATION:], data().y[CALIBRATION:]


def real_edges(rows: np.ndarray, most: int = 99) -> tuple[np.ndarray, np.ndarray]:
    """Edges of nodes of the whole graph to seen ones, the first of ``rows`` called row 0."""
    pairs = [(i, int(j)) for i, v in enumerate(rows) for j in data().graph.neighbors(v)[:most] if j < SEEN]
    return np.array([i for i, _ in pairs]), np.array([j for _, j in pairs])


def calibrated(**more: Any) -> SparcClassifier:
    part = slice(SEEN, CALIBRATION)
    return fitted().calibrate(data().X[part], data().y[part], **more)


@pytest.mark.parametrize("kind", KINDS)
def test_without_edges_it_is_the_cold_prediction_bit_for_bit(kind: str) -> None:
    model, (X, _) = shared(kind), cold()
    plain = model.predict_proba(X)
    for none in (None, ([], []), (np.zeros(0, np.int64), np.zeros(0, np.int64)), ([], [], [])):
        assert np.array_equal(model.predict_proba(X, edges=none), plain)
    some = model.predict_proba(X, edges=([3, 3], [0, 1]))
    others = np.arange(len(X)) != 3
    assert np.array_equal(some[others], plain[others])
    assert not np.array_equal(some[3], plain[3])
    np.testing.assert_allclose(some.sum(axis=1), 1)


@pytest.mark.parametrize("hidden", [0.0, 0.8])
def test_first_edges_help(hidden: float) -> None:
    model, (X, y) = shared("mlp", hidden), cold()
    rows = np.arange(CALIBRATION, 1000)
    right = [np.mean(model.predict(X) == y)]
    right += [np.mean(model.predict(X, edges=real_edges(rows, most)) == y) for most in (1, 4, 99)]
    assert right[3] > right[0] + (0.04 if hidden else 0.1)
    assert right[2] >= right[0] - 0.02


def test_predict_takes_the_same_edges() -> None:
    model, (X, _) = shared(), cold()
    edges = real_edges(np.arange(CALIBRATION, 1000), 4)
    most = model.predict_proba(X, edges=edges).argmax(axis=1)
    assert np.array_equal(model.predict(X, edges=edges), model.classes_[most])


def test_edges_by_node_id_and_repeats_and_weights() -> None:
    model, (X, _) = fitted(names=True), cold()
    by_name = model.predict_proba(X, edges=([0, 1, 1], ["n4", "n7", "n4"]))
    assert np.array_equal(by_name, shared().predict_proba(X, edges=([0, 1, 1], [4, 7, 4])))
    assert np.array_equal(by_name, model.predict_proba(X, edges=([0, 1, 1, 1], ["n4", "n7", "n4", "n7"])))
    weighted = model.predict_proba(X, edges=([0, 1, 1], ["n4", "n7", "n4"], [1.0, 1.0, 1.0]))
    assert np.array_equal(weighted, by_name)
    without = model.predict_proba(X, edges=([0, 1, 1], ["n4", "n7", "n4"], [1.0, 1.0, 0.0]))
    assert np.array_equal(without, model.predict_proba(X, edges=([0, 1], ["n4", "n7"])))


@pytest.mark.parametrize(
    ("edges", "match"),
    [
        (([0], [SEEN]), "expected 0 to 499"),
        (([0], [-1]), "expected 0 to 499"),
        (([0], ["n4"]), "expected positions"),
        (([0], [1.5]), "expected positions"),
        (([5], [0]), "rows of X from 5 to 5, expected whole numbers from 0 to 1"),
        (([-1], [0]), "rows of X from -1"),
        (([0.5], [0]), "rows of X from 0.5"),
        ((["a"], [0]), "expected whole numbers"),
        (([0, 1], [0]), "equally long"),
        (([0], [0], [1.0, 2.0]), "equally long"),
        (([[0]], [[0]]), "equally long"),
        (([0], [0], [-1.0]), "finite weights"),
        (([0], [0], [np.nan]), "finite weights"),
        (([0], [0], ["x"]), "finite weights"),
        (([0],), "expected a pair"),
        (([0], [0], [1], [1]), "expected a pair"),
        ("edges", "expected a pair"),
        (3, "expected a pair"),
    ],
)
def test_edges_that_cannot_be_used(edges: Any, match: str) -> None:
    X = cold()[0][:2]
    for call in (shared().predict_proba, shared().predict, shared().predict_set, shared().assess):
        with pytest.raises(InputError, match=match):
            call(X, edges=edges)


def test_an_unknown_node_id_is_named() -> None:
    with pytest.raises(InputError, match="nobody"):
        fitted(names=True).predict(cold()[0], edges=([0], ["nobody"]))


def test_edges_mean_nothing_to_a_model_without_a_graph() -> None:
    model = classifier().fit(data().X[:SEEN], data().y[:SEEN])
    X = cold()[0]
    with pytest.raises(InputError, match="without a graph"):
        model.predict_proba(X, edges=([0], [1]))
    assert np.array_equal(model.predict_proba(X, edges=([], [])), model.predict_proba(X))


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_sets_hold_the_truth_as_often_as_promised(coverage: float) -> None:
    X, y = cold()
    sets = calibrated().predict_set(X, coverage)
    held = sets[np.arange(len(y)), y].mean()
    accuracy = (shared().predict(X) == y).mean()
    assert max(coverage, accuracy) - 0.06 < held < max(coverage, accuracy) + 0.06
    assert sets.dtype == bool


def test_sets_hold_the_top_class_and_are_nested() -> None:
    model, (X, _) = calibrated(), cold()
    top = model.predict_proba(X).argmax(axis=1)
    before = np.zeros((len(X), len(model.classes_)), bool)
    for coverage in (0.0, 0.3, 0.6, 0.9, 1.0):
        sets = model.predict_set(X, coverage)
        assert sets[np.arange(len(X)), top].all()
        assert (sets >= before).all()
        before = sets
    assert before.all()  # certainty is every class
    assert model.predict_set(X, 0.0).sum() == len(X)


def test_the_same_set_for_a_node_alone_and_every_time() -> None:
    model, (X, _) = calibrated(), cold()
    whole = model.predict_set(X)
    assert np.array_equal(whole, model.predict_set(X))
    assert np.array_equal(whole[5:6], model.predict_set(X[5:6]))


@pytest.mark.parametrize("kind", KINDS)
def test_without_calibrate_the_pretend_cold_nodes_serve(kind: str) -> None:
    model, (X, y) = shared(kind), cold()
    sets = model.predict_set(X)
    assert 0.75 < sets[np.arange(len(y)), y].mean() <= 1
    assert len(model._calibration.scores) == len(model._calibration.distances) > 20


def test_sets_of_rows_with_edges_keep_the_promise_too() -> None:
    rows = np.arange(SEEN, CALIBRATION)
    model, (X, y) = calibrated(edges=real_edges(rows)), cold()
    edges = real_edges(np.arange(CALIBRATION, 1000), 4)
    sets = model.predict_set(X, edges=edges)
    assert 0.84 < sets[np.arange(len(y)), y].mean() < 0.97
    assert sets.sum() < model.predict_set(X).sum()
    plain = calibrated()
    assert np.array_equal(model.predict_set(X), plain.predict_set(X))  # cold rows are as they were


def test_labels_that_calibrate_cannot_place() -> None:
    X, y = data().X[SEEN:CALIBRATION], data().y[SEEN:CALIBRATION]
    strange = y.copy()
    strange[:100] = 77  # half of the nodes are of a class that nobody knew: no set holds them
    model = fitted().calibrate(X, strange)
    assert np.isinf(model._calibration.scores).sum() == 100
    assert model.predict_set(X, 0.9).all()
    hidden = np.where(np.arange(200) < 100, -1, y)
    model.calibrate(X, hidden)
    assert (len(model._calibration.scores), len(model._calibration.distances)) == (100, 200)
    with pytest.raises(LabelError, match="none of the 200 labels"):
        model.calibrate(X, np.full(200, 77))
    with pytest.raises(LabelError, match="199 labels but X has 200 rows"):
        model.calibrate(X, y[1:])
    assert len(model._calibration.scores) == 100  # what failed changed nothing


@pytest.mark.parametrize("coverage", [-0.1, 1.1, "most", None, True])
def test_coverage_is_a_share(coverage: Any) -> None:
    with pytest.raises(InputError, match="coverage"):
        shared().predict_set(cold()[0], coverage)


@pytest.mark.parametrize("kind", KINDS)
def test_novelty_of_cold_nodes_is_even_and_of_strange_ones_small(kind: str) -> None:
    part = slice(SEEN, CALIBRATION)
    model = fitted(kind).calibrate(data().X[part], data().y[part])
    ordinary = model.novelty(cold()[0])
    assert ((ordinary > 0) & (ordinary <= 1)).all()
    assert abs(np.mean(ordinary < 0.2) - 0.2) < 0.08
    far = 100 * cold()[0][:5]  # the same directions, far out
    assert (model.novelty(far) <= 1 / 201).all()


def test_novelty_of_sparse_counts() -> None:
    rng = np.random.default_rng(0)
    dense = ((rng.random((400, 300)) < 0.03) * (np.arange(300) < 200)).astype(np.float32)
    dense[0, 201:] = 1.0
    words = sp.csr_array(dense)
    graph = Graph.from_edges(rng.integers(0, 300, (2, 900)), 300)
    labels = rng.integers(0, 2, 300)
    model = classifier().fit(words[:300], labels, graph=graph).calibrate(words[300:350], labels[:50])
    strange = sp.csr_array((rng.random((5, 300)) < 0.1) * (np.arange(300) > 250), dtype=np.float32)
    assert model.novelty(words[350:]).mean() > 0.3
    assert model.novelty(strange).max() < 0.1


def test_assess_says_what_the_single_methods_say() -> None:
    model, (X, _) = calibrated(), cold()
    edges = real_edges(np.arange(CALIBRATION, 1000), 2)
    found = model.assess(X, 0.8, 2, edges=edges)
    evidence = model.evidence(X, 2)
    assert np.array_equal(found.proba, model.predict_proba(X, edges=edges))
    assert np.array_equal(found.sets, model.predict_set(X, 0.8, edges=edges))
    np.testing.assert_allclose(found.novelty, model.novelty(X))
    assert np.array_equal(found.near_ids, evidence.ids)
    np.testing.assert_allclose(found.near_distances, evidence.distances)
    assert np.array_equal(found.near_labels, evidence.labels)


@pytest.mark.parametrize("kind", ["mlp", "phormer", "gcn"])
def test_screen_says_what_the_single_methods_say(kind: str) -> None:
    model, (X, _) = shared(kind), cold()
    X = np.concatenate([X, 5 * X[:20]])
    usual = model.novelty(X)
    assert model.least_novelty_ <= usual.min()
    for level in (0.0, float(np.median(usual)), 1.0):
        proba, sets, far = model.screen(X, 0.8, level)
        np.testing.assert_allclose(proba, model.predict_proba(X), atol=1e-6)
        np.testing.assert_array_equal(sets, model.predict_set(X, 0.8))
        np.testing.assert_array_equal(far, usual <= level)
    assert model.screen(X, None, None)[1:] == (None, None)
    edges = (np.array([0, 0, 1]), np.array([1, 2, 3]))
    np.testing.assert_allclose(model.screen(X, edges=edges).proba, model.predict_proba(X, edges=edges), atol=1e-6)
    with pytest.raises(InputError, match=r"far_level=2"):
        model.screen(X, far_level=2)


@pytest.mark.parametrize("kind", ["phormer", "samba"])
def test_a_node_alone_is_predicted_as_among_many(kind: str) -> None:
    model, (X, _) = shared(kind), cold()
    alone = np.concatenate([model.predict_proba(row[None]) for row in X[:25]])
    np.testing.assert_allclose(model.predict_proba(X)[:25], alone, atol=1e-5)


def test_screening_follows_what_calibrate_learns() -> None:
    model, (X, y) = fitted(max_steps=5), cold()
    model.screen(X)
    model.calibrate(X, y)
    np.testing.assert_array_equal(model.screen(X, far_level=0.3).far, model.novelty(X) <= 0.3)


@pytest.mark.parametrize("hidden", [0.0, 0.8])
def test_saved_with_the_model(tmp_path: Path, hidden: float) -> None:
    part = slice(SEEN, CALIBRATION)
    model = fitted(hidden=hidden)
    model.calibrate(data().X[part], data().y[part], edges=real_edges(np.arange(SEEN, CALIBRATION)))
    model.save(tmp_path / "model")
    again, (X, _) = load_model(tmp_path / "model"), cold()
    assert isinstance(again, SparcClassifier)
    edges = real_edges(np.arange(CALIBRATION, 1000), 2)
    for name in ("predict_proba", "predict_set"):
        assert np.array_equal(getattr(again, name)(X, edges=edges), getattr(model, name)(X, edges=edges))
    assert np.array_equal(again.novelty(X), model.novelty(X))


def changed(folder: Path, target: Path, change: Any) -> Path:
    config, tensors = read_folder(folder)
    change(config["fitted"], tensors)
    write_folder(target, {k: v for k, v in config.items() if k not in ("format_version", "library_version")}, tensors)
    return target


def negative_reach(fitted: dict, tensors: dict) -> None:
    fitted["confidence"]["reach"] = -1.0


def unsorted(fitted: dict, tensors: dict) -> None:
    tensors["calibration.scores"] = np.array([2.0, 1.0])


def no_distances(fitted: dict, tensors: dict) -> None:
    del tensors["calibration.distances"]


def other_classes(fitted: dict, tensors: dict) -> None:
    tensors["first_edges.compatibility"] = np.ones((9, 9))


def a_word(fitted: dict, tensors: dict) -> None:
    fitted["confidence"]["first_edges"]["share"] = "all"


def a_list(fitted: dict, tensors: dict) -> None:
    fitted["confidence"] = []


@pytest.mark.parametrize("change", [negative_reach, unsorted, no_distances, other_classes, a_word, a_list])
def test_damage_is_refused(tmp_path: Path, change: Any) -> None:
    shared().save(tmp_path / "model")
    with pytest.raises(DamagedModelError):
        load_model(changed(tmp_path / "model", tmp_path / "damaged", change))


@pytest.mark.parametrize("scale", [1e-30, 1, 1e30])
def test_lengths_of_sparse_rows_are_those_of_dense_ones(scale: float) -> None:
    rng = np.random.default_rng(0)
    X = (scale * rng.random((20, 6)) * (rng.random((20, 6)) < 0.4)).astype(np.float32)
    scaling = Scaling(False, (scale * rng.random(6)).astype(np.float32), (rng.random(6) / scale).astype(np.float32))
    np.testing.assert_allclose(row_lengths(sp.csr_array(X), scaling), row_lengths(X, scaling))


def test_tiny_graphs_fit_and_promise_everything() -> None:
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    X = np.array([[0.0, 1.0], [0.1, 1.2], [1.0, 0.0], [1.2, 0.1]])
    model = classifier().fit(X, [0, 0, 1, 1], graph=graph)
    assert model.predict_set(X, 0.9).all()
    assert (model.novelty(X) == 1).all()
    assert model.predict_proba(X[:1], edges=([0], [3])).shape == (1, 2)
