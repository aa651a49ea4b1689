"""Split conformal prediction on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gsparc.estimators._conformal import (
    Calibration,
    class_scores,
    label_scores,
    p_values,
    prediction_sets,
    threshold,
)

PROBA = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.5, 0.5, 0.0]])


def test_scores_are_one_minus_p_and_zero_for_the_top_class() -> None:
    np.testing.assert_allclose(class_scores(PROBA), [[0, 0.8, 0.9], [0.7, 0.7, 0], [0, 0.5, 1]])


def test_scores_leave_the_probabilities_alone() -> None:
    before = PROBA.copy()
    class_scores(PROBA)
    assert np.array_equal(PROBA, before)


def test_score_of_the_true_class() -> None:
    np.testing.assert_allclose(label_scores(PROBA, np.array([1, 2, -1])), [0.8, 0.0, np.inf])


@pytest.mark.parametrize(
    ("count", "coverage", "rank"),
    [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.9, 90), (100, 0.9, 91), (4, 0.5, 3), (99, 0.95, 95)],
)
def test_threshold_is_the_right_order_statistic(count: int, coverage: float, rank: int) -> None:
    scores = np.arange(1.0, count + 1)
    assert threshold(scores, coverage) == rank


def test_too_few_nodes_promise_nothing_smaller_than_everything() -> None:
    assert threshold(np.arange(8.0), 0.9) == math.inf
    assert threshold(np.zeros(0), 0.5) == math.inf
    assert prediction_sets(PROBA, math.inf).all()


def test_no_coverage_is_the_top_class_alone() -> None:
    sets = prediction_sets(PROBA, threshold(np.zeros(50), 0.0))
    assert sets.tolist() == [[True, False, False], [False, False, True], [True, False, False]]


def test_sets_at_a_limit_by_hand_and_row_by_row() -> None:
    assert prediction_sets(PROBA, 0.8).tolist() == [[True, True, False], [True, True, True], [True, True, False]]
    limits = np.array([0.0, 0.7, 0.4])
    assert prediction_sets(PROBA, limits).tolist() == [[True, False, False], [True, True, True], [True, False, False]]


def test_p_values_count_those_at_least_as_far() -> None:
    found = p_values(np.array([1.0, 1.0, 2.0, 4.0]), np.array([0.5, 1.0, 1.5, 4.0, 5.0]))
    assert found.tolist() == [1.0, 1.0, 0.6, 0.4, 0.2]
    assert p_values(np.zeros(0), np.array([3.0])).tolist() == [1.0]


@given(st.integers(20, 400), st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_coverage_on_exchangeable_nodes(count: int, coverage: float, seed: int) -> None:
    # leave-one-out identity behind the guarantee: of n + 1 distinct scores, at least ceil((n + 1) coverage) lie at or
    # below the threshold that the others give
    scores = np.random.default_rng(seed).permutation(count + 1).astype(float)
    inside = sum(scores[i] <= threshold(np.sort(np.delete(scores, i)), coverage) for i in range(0, count + 1))
    assert inside == math.ceil((count + 1) * coverage - 1e-9)


@given(arrays(np.float64, (6, 4), elements=st.floats(0.01, 1)), st.floats(0, 1), st.floats(0, 1))
def test_sets_hold_the_top_class_and_grow_with_the_limit(raw: np.ndarray, a: float, b: float) -> None:
    proba = raw / raw.sum(axis=1, keepdims=True)
    small, large = prediction_sets(proba, min(a, b)), prediction_sets(proba, max(a, b))
    assert small[np.arange(6), proba.argmax(axis=1)].all()
    assert (large >= small).all()


def test_promised_coverage_is_kept_on_drawn_labels() -> None:
    rng = np.random.default_rng(0)
    raw = rng.dirichlet(np.full(5, 0.4), 4000)
    labels = (raw.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    wrong = raw**3 / (raw**3).sum(axis=1, keepdims=True)  # overconfident: the sets must not mind
    calibration = Calibration.of(label_scores(wrong[:2000], labels[:2000]), np.zeros(0), np.zeros(0))
    sets = calibration.sets(wrong[2000:], 0.9, np.zeros(2000, bool))
    assert 0.88 < sets[np.arange(2000), labels[2000:]].mean() < 0.92
    assert 1 < sets.sum(axis=1).mean() < 4


def test_rows_with_edges_have_scores_of_their_own_once_there_are_enough() -> None:
    proba = np.array([[0.6, 0.4], [0.6, 0.4]])
    linked = np.array([False, True])
    of_few = Calibration.of(np.full(99, 0.7), np.zeros(20), np.zeros(0))
    assert of_few.sets(proba, 0.9, linked).tolist() == [[True, True], [True, True]]
    of_many = Calibration.of(np.full(99, 0.7), np.zeros(60), np.zeros(0))
    assert of_many.sets(proba, 0.9, linked).tolist() == [[True, True], [True, False]]


def test_saved_and_restored() -> None:
    calibration = Calibration.of(np.array([0.5, 0.1, np.inf]), np.array([0.2]), np.array([3.0, 1.0]))
    assert calibration.scores.tolist() == [0.1, 0.5, np.inf]
    again = Calibration.from_arrays(calibration.arrays(), calibration.counts())
    assert all(np.array_equal(part, vars(again)[name]) for name, part in vars(calibration).items())


@pytest.mark.parametrize("bad", [np.array([2.0, 1.0]), np.array([np.nan]), np.zeros((2, 2)), np.array([1], np.int64)])
def test_damaged_figures_are_refused(bad: np.ndarray) -> None:
    good = Calibration.of(np.zeros(2), np.zeros(0), np.zeros(2)).arrays()
    with pytest.raises(ValueError, match="not sorted numbers"):
        Calibration.from_arrays(good | {"distances": bad}, [2, 0, len(bad)])
    with pytest.raises(ValueError, match="other than"):
        Calibration.from_arrays(good, [2, 0, 3])
