"""First edges on graphs that can be drawn: compatibility, evidence and discount by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gsparc.estimators._first_edges as module
from gsparc.estimators._first_edges import (
    Discount,
    Evidence,
    FirstEdges,
    KnownEdges,
    _counted_on,
    compatibility,
    few_of_each,
    with_evidence,
)
from gsparc.graph import Graph

NONE = np.zeros(0, np.int64)
PLAIN = Discount(1.0, 0.0, 0.0)


def first(table: Any, *, unlabelled: Any = NONE, soft: Any = None, **settings: Any) -> FirstEdges:
    table = np.array(table, np.float64)
    soft = np.zeros((0, len(table)), np.float32) if soft is None else np.array(soft, np.float32)
    settings.setdefault("discount", PLAIN)
    return FirstEdges(table, np.array(unlabelled, np.int64), soft, **settings)


def test_compatibility_of_a_path_by_hand() -> None:
    # classes 0 - 0 - 1 - 1: entries (both directions) 00: 2, 01: 1, 10: 1, 11: 2; margins 3 and 3.
    # Two edges, four entries, are added as chance spreads them: one to each cell. 3/10 over 5/10 * 5/10 is 1.2.
    found = compatibility(Graph.from_edges([[0, 1, 2], [1, 2, 3]]), np.array([0, 0, 1, 1]), None, 2)
    np.testing.assert_allclose(found, [[1.2, 0.8], [0.8, 1.2]])


def test_a_bipartite_graph_says_the_opposite() -> None:
    found = compatibility(Graph.from_edges([[0, 0, 1, 1], [2, 3, 2, 3]]), np.array([0, 0, 1, 1]), None, 2)
    assert found[0, 1] > 1.5
    assert found[0, 0] < 0.5


def test_without_labelled_edges_nothing_is_known() -> None:
    graph = Graph.from_edges([[0], [1]], num_nodes=3)
    assert compatibility(graph, np.array([0, -1, 1]), None, 2).tolist() == [[1, 1], [1, 1]]


def test_a_class_without_edges_is_neutral() -> None:
    found = compatibility(Graph.from_edges([[0], [1]], num_nodes=3), np.array([0, 1, 2]), None, 3)
    np.testing.assert_allclose(found[2, :2], 1, atol=0.35)
    assert np.isfinite(found).all()
    assert (found > 0).all()


def test_unlabelled_ends_count_as_what_is_believed_of_them() -> None:
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    sure = first(np.ones((2, 2)), unlabelled=[1, 3], soft=[[1, 0], [0, 1]])
    np.testing.assert_allclose(
        compatibility(graph, np.array([0, -1, 1, -1]), sure, 2),
        compatibility(graph, np.array([0, 0, 1, 1]), None, 2),
    )


def test_equal_weights_mean_the_same_whatever_their_unit() -> None:
    ends, codes = [[0, 1, 2], [1, 2, 3]], np.array([0, 0, 1, 1])
    plain = compatibility(Graph.from_edges(ends), codes, None, 2)
    heavy = compatibility(Graph.from_edges(ends, weights=[50.0, 50.0, 50.0]), codes, None, 2)
    np.testing.assert_allclose(heavy, plain)


def test_blocks_of_edges_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 40, (2, 300)), 40, weights=rng.random(300) + 0.1)
    codes = rng.integers(-1, 3, 40)
    unlabelled = np.flatnonzero(codes < 0)
    soft = rng.dirichlet(np.ones(3), len(unlabelled))
    edges = KnownEdges(np.repeat(np.arange(10), 4), rng.integers(0, 40, 40), rng.random(40))
    whole = FirstEdges.fit(graph, codes, unlabelled, soft)
    said, heard = whole.evidence(edges, codes, 10)
    monkeypatch.setattr(module, "_EDGES", 7)
    parts = FirstEdges.fit(graph, codes, unlabelled, soft)
    np.testing.assert_allclose(parts.compatibility, whole.compatibility)
    np.testing.assert_allclose(parts.evidence(edges, codes, 10).said, said)
    np.testing.assert_allclose(parts.evidence(edges, codes, 10).heard, heard)


def test_neighbours_multiply_the_odds() -> None:
    model, half = first([[1.5, 0.5], [0.5, 1.5]]), np.full((3, 2), 0.5)
    edges = KnownEdges.merged(np.array([1, 2, 2, 2, 2]), np.array([0, 0, 1, 2, 3]), None)
    found = model.update(half, edges, np.array([0, 0, 0, 0]))
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.75, 0.25], [81 / 82, 1 / 82]])  # odds 3, and 3^4
    alike = first([[1.5, 0.5], [0.5, 1.5]], discount=Discount(1.0, 0.0, 0.5))
    np.testing.assert_allclose(alike.update(half, edges, np.array([0, 0, 0, 0]))[1:], [[0.75, 0.25], [0.9, 0.1]])
    divided = model.update(half, edges, np.array([0, 1, 0, 1]))
    np.testing.assert_allclose(divided[2], [0.5, 0.5])


def test_a_weight_is_counted_in_mean_weights_and_bounded() -> None:
    model = first([[1.5, 0.5], [0.5, 1.5]], mean_weight=2.0)
    codes, half = np.array([0]), np.full((1, 2), 0.5)
    light = model.update(half, KnownEdges.merged(np.array([0]), np.array([0]), np.array([4.0])), codes)
    np.testing.assert_allclose(light, [[0.9, 0.1]])  # two mean weights: as two edges
    heavy = model.update(half, KnownEdges.merged(np.array([0]), np.array([0]), np.array([1e300])), codes)
    np.testing.assert_allclose(heavy[0, 0], 1 / (1 + 3**-10))


def test_an_unlabelled_neighbour_says_less_and_an_unknown_one_nothing() -> None:
    table, half = [[1.5, 0.5], [0.5, 1.5]], np.full((1, 2), 0.5)
    edges = KnownEdges.merged(np.array([0]), np.array([0]), None)
    known = first(table).update(half, edges, np.array([0]))
    believed = first(table, unlabelled=[0], soft=[[1.0, 0.0]]).update(half, edges, np.array([-1]))
    unknown = first(table).update(half, edges, np.array([-1]))
    assert known[0, 0] > believed[0, 0] > 0.5
    np.testing.assert_allclose(unknown, half)
    undecided = first(table, unlabelled=[0], soft=[[0.5, 0.5]]).update(half, edges, np.array([-1]))
    np.testing.assert_allclose(undecided, half)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 2.0]))
def test_with_evidence_gives_probabilities_and_tempers_only_what_is_said(seed: int, temper: float) -> None:
    rng = np.random.default_rng(seed)
    proba, evidence = rng.dirichlet(np.ones(4), 5), Evidence(rng.normal(size=(5, 4)) * 3, np.ones(5))
    plain, found = with_evidence(proba, evidence, PLAIN), with_evidence(proba, evidence, Discount(1.0, temper))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.array_equal(found.argmax(axis=1), plain.argmax(axis=1))
    assert (found.max(axis=1) <= plain.max(axis=1) + 1e-12).all()
    silent = Evidence(np.zeros((5, 4)), np.zeros(5))
    np.testing.assert_allclose(with_evidence(proba, silent, Discount(1.0, temper)), proba)


def test_rows_without_edges_are_the_same_bits() -> None:
    proba = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    edges = KnownEdges.merged(np.array([7]), np.array([0]), None)
    found = first(np.eye(3) + 0.5).update(proba, edges, np.array([2]))
    rest = np.arange(50) != 7
    assert np.array_equal(found[rest], proba[rest])
    assert found[7, 2] > proba[7, 2]
    assert first(np.eye(3) + 0.5).update(proba, KnownEdges(NONE, NONE, np.zeros(0)), np.array([2])) is proba


def test_repeated_edges_are_one() -> None:
    rows, nodes = np.array([2, 0, 2, 2]), np.array([5, 1, 5, 4])
    plain = KnownEdges.merged(rows, nodes, None)
    assert [part.tolist() for part in plain] == [[0, 2, 2], [1, 4, 5], [1, 1, 1]]
    weighted = KnownEdges.merged(rows, nodes, np.array([1.0, 0.0, 2.0, 4.0]))
    assert [part.tolist() for part in weighted] == [[2, 2], [4, 5], [4.0, 3.0]]


def test_few_of_each_bounds_the_edges_of_a_row_in_turn() -> None:
    rows = np.repeat(np.array([3, 5, 6, 9, 11]), 10)
    few = few_of_each(KnownEdges(rows, np.arange(50), np.arange(50.0)))
    found, counts = np.unique(few.rows, return_counts=True)
    assert (found.tolist(), counts.tolist()) == ([3, 5, 6, 9, 11], [1, 2, 4, 8, 1])
    assert (rows[few.nodes] == few.rows).all()
    assert (few.weights == few.nodes).all()


def voters(truth: float, count: int) -> tuple[np.ndarray, np.ndarray, KnownEdges, np.ndarray]:
    """Undecided nodes of two classes, each with one edge that is to its own class with probability ``truth``."""
    rng = np.random.default_rng(0)
    labels, same = rng.integers(0, 2, count), rng.random(count) < truth
    edges = KnownEdges(np.arange(count), np.where(same, labels, 1 - labels), np.ones(count))
    return np.full((count, 2), 0.5), labels, edges, np.array([0, 1])


def test_the_discount_learns_what_edges_are_worth() -> None:
    model = first([[1.6, 0.4], [0.4, 1.6]])  # says: four in five edges are to the own class
    assert model.learned(*voters(0.8, 2000)).discount == Discount(1.0, 0.0)  # one edge each says nothing of likeness
    assert model.learned(*voters(0.5, 2000)).discount.share == 0.0
    assert model.learned(*voters(0.65, 2000)).discount != Discount(1.0, 0.0)


def test_a_handful_of_nodes_leaves_the_discount_near_its_default() -> None:
    model = first([[1.6, 0.4], [0.4, 1.6]])
    assert model.learned(*voters(0.5, 2)).discount.share >= 0.5
    proba, _, edges, codes = voters(0.5, 2)
    assert model.learned(proba, np.array([-1, -1]), edges, codes).discount == Discount()


def test_grown_beliefs() -> None:
    model = first(np.eye(2) + 0.5, unlabelled=[1], soft=[[0.9, 0.1]]).grown(np.array([4]), np.array([[0.2, 0.8]]))
    codes = np.array([0, -1, 1, -1, -1])
    found = model.beliefs(np.array([0, 1, 2, 3, 4]), codes)
    np.testing.assert_allclose(found, [[1, 0], [0.9, 0.1], [0, 1], [0, 0], [0.2, 0.8]])


def test_saved_and_restored() -> None:
    model = first(
        np.eye(2) + 0.5, unlabelled=[1], soft=[[0.9, 0.1]], mean_weight=3.0, discount=Discount(0.5, 1.5, 0.75)
    )
    again = FirstEdges.from_state(model.config(), model.arrays(), 2)
    assert again.config() == model.config()
    assert all(np.array_equal(part, again.arrays()[name]) for name, part in model.arrays().items())


@pytest.mark.parametrize(
    ("config", "arrays", "match"),
    [
        ({"share": "much"}, {}, "discount"),
        ({"mean_weight": 0.0}, {}, "discount"),
        ({"temper": float("nan")}, {}, "discount"),
        ({}, {"compatibility": np.ones((3, 3))}, "expected 2 classes"),
        ({}, {"compatibility": -np.ones((2, 2))}, "compatibility"),
        ({}, {"soft": np.ones((3, 2), np.float32)}, "beliefs"),
        ({}, {"soft": np.full((2, 2), np.nan, np.float32)}, "beliefs"),
        ({}, {"unlabelled": np.array([2, 1])}, "ascending"),
    ],
)
def test_damage_is_refused(config: dict, arrays: dict, match: str) -> None:
    model = first(np.eye(2) + 0.5, unlabelled=[1, 2], soft=[[0.9, 0.1], [0.5, 0.5]])
    with pytest.raises(ValueError, match=match):
        FirstEdges.from_state(model.config() | config, model.arrays() | arrays, 2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_counting_on_a_device_is_counting(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    rng = np.random.default_rng(0)
    graph, codes = Graph.from_edges(rng.integers(0, 40, (2, 200)), num_nodes=40), rng.integers(-1, 3, 40)
    expected = np.zeros((3, 3))
    for i in range(40):
        for j in graph.neighbors(i):
            if codes[i] >= 0 and codes[j] >= 0:
                expected[codes[i], codes[j]] += 1
    assert _counted_on(graph, codes, 3, device).tolist() == expected.tolist()
    np.testing.assert_array_equal(compatibility(graph, codes, None, 3, device), compatibility(graph, codes, None, 3))
