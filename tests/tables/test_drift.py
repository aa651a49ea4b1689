"""Drift figures worked out by hand, the promise of their bounds, and the sentences."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.exceptions import InputError
from gsparc.metrics import share_interval
from gsparc.tables.drift import drift, total_variation, total_variation_noise


def test_nothing_has_changed() -> None:
    found = drift(np.linspace(0.005, 1, 200), [60, 40], [600, 400], given=True)
    assert found["far_share"] == 0.05  # 0.005, 0.010, ..., 0.050: ten of 200
    assert (found["rows"], found["label_rows"], found["label_distance"], found["label_shift"]) == (200, 100, 0.0, 0.0)
    assert found["retrain"] is False
    assert found["sentence"] == (
        "Retraining is not needed: 5.0 % of 200 new rows lie far from every known node (5 % are expected, up to "
        "chance), and their given labels are spread as in training, up to chance."
    )


def test_rows_far_out() -> None:
    found = drift([0.05] * 20 + [0.06] * 80, None, None)
    assert found["far_share"] == 0.2  # at most 5 % counts, as conformal p-values promise
    assert found["far_low"] == pytest.approx(0.1267, abs=1e-4)  # Clopper-Pearson, 20 of 100
    assert found["far_high"] == pytest.approx(0.2918, abs=1e-4)
    assert found["retrain"] is True
    assert found["sentence"].startswith("Retraining is advised: 20.0 % of 100 new rows lie far")
    assert found["label_distance"] is None


def test_a_few_more_than_chance_is_said_but_not_alarming() -> None:
    found = drift([0.01] * 80 + [0.9] * 920, None, None)  # 8 % of 1,000: the interval is 6.4 to 9.9 %
    assert 0.05 < found["far_low"] < found["far_high"] < 0.1
    assert found["retrain"] is False
    assert "more than chance, but few" in found["sentence"]


def test_shifted_labels_by_hand() -> None:
    found = drift([0.5] * 400, [300, 100, 0], [500, 500, 0], given=False, classes=["a", "b", "c"])
    # |3/4 - 1/2| + |1/4 - 1/2| = 1/2, half of it
    assert found["label_distance"] == pytest.approx(0.25)
    spread = 2 * math.sqrt(0.1875 / 400 + 0.25 / 1000) / 2
    noise = spread + math.sqrt((1 / 400 + 1 / 1000) * math.log(20) / 2)
    assert found["label_noise"] == pytest.approx(noise)
    assert found["label_shift"] == pytest.approx(0.25 - noise)
    assert found["retrain"] is True
    assert found["sentence"] == (
        "Retraining is advised: the predicted labels have shifted by at least 15 % of the rows, most of all 'a'."
    )


def test_the_same_shift_of_few_rows_may_be_chance() -> None:
    found = drift([0.5] * 8, [6, 2, 0], [500, 500, 0])
    assert found["label_distance"] == pytest.approx(0.25)
    assert found["label_shift"] == 0.0
    assert found["retrain"] is False


def test_shares_count_as_those_of_all_rows() -> None:
    by_shares = drift([0.5] * 400, [0.75, 0.25], [0.5, 0.5])
    assert by_shares["label_rows"] == 400
    noise = 2 * math.sqrt(0.1875 / 400) / 2 + math.sqrt(math.log(20) / 800)
    assert by_shares["label_noise"] == pytest.approx(noise)  # training shares are taken as exact
    assert by_shares == drift([0.5] * 400, [300, 100], [0.5, 0.5])


def test_no_new_row_is_labelled() -> None:
    found = drift([0.5] * 5, [0, 0], [3, 4])
    assert (found["label_rows"], found["label_distance"]) == (0, None)
    assert found["sentence"].endswith("(5 % are expected, up to chance).")


def test_both_reasons_and_plain_values() -> None:
    found = drift([0.001] * 100, np.array([0, 100]), np.array([1000, 0]), classes=np.array([7, 9]))
    assert ", and the labels have shifted by at least" in found["sentence"]
    assert json.loads(json.dumps(found)) == found
    assert drift([0.01], None, None)["sentence"].startswith("Retraining is not needed: 100.0 % of 1 new row lie")


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"novelty of shape \(0,\)"):
        drift([], [1, 2], [1, 2])
    with pytest.raises(InputError, match="from 0 to 1"):
        drift([1.5], None, None)
    with pytest.raises(InputError, match="labels of 2 classes came with training rows of 3"):
        drift([0.5], [1, 2], [1, 2, 3])
    with pytest.raises(InputError, match="number >= 0 for each class"):
        drift([0.5], [-1, 2], [1, 2])
    with pytest.raises(InputError, match="training holds no labelled row"):
        drift([0.5], [1, 2], [0, 0])


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"), [(0, 20, 0, 0.1684), (20, 20, 0.8316, 1), (1, 2, 0.0126, 0.9874)]
)
def test_share_intervals_from_the_literature(hits: int, count: int, low: float, high: float) -> None:
    assert share_interval(hits, count) == pytest.approx((low, high), abs=1e-4)


def test_intervals_and_noise_hold_what_they_promise() -> None:
    rng = np.random.default_rng(0)
    truth, m, n = np.array([0.5, 0.3, 0.15, 0.05]), 60, 300
    beyond, outside = 0, 0
    for _ in range(400):
        now, before = rng.multinomial(m, truth), rng.multinomial(n, truth)
        beyond += total_variation(now / m, before / n) > total_variation_noise(now / m, m, before / n, n)
        low, high = share_interval(int(rng.binomial(m, 0.05)), m)
        outside += not low <= 0.05 <= high
    assert beyond <= 20  # 5 %, and far fewer as the bound is not tight
    assert outside <= 30


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.lists(st.integers(1, 50), min_size=3, max_size=3))
def test_shift_is_never_more_than_the_distance_nor_negative(now: list[int], before: list[int]) -> None:
    found = drift([0.5] * 10, now, before)
    if not sum(now):
        assert found["label_shift"] is None
        return
    assert 0 <= found["label_shift"] <= found["label_distance"] <= 1
    again = drift([0.5] * 10, now[::-1], before[::-1])  # the order of the classes does not matter
    assert again["label_shift"] == pytest.approx(found["label_shift"], abs=1e-12)


def test_classes_that_the_model_does_not_know_ask_for_a_fit() -> None:
    found = drift([0.5] * 100, [35, 35], [500, 500], given=True, strangers={"new": 10, "newer": 20}, labelled=100)
    assert (found["unknown_rows"], found["unknown_share"], found["unknown_classes"]) == (30, 0.3, ["newer", "new"])
    assert found["unknown_low"] == pytest.approx(0.2124, abs=1e-4)  # Clopper-Pearson, 30 of 100
    assert found["label_shift"] == 0.0  # the known classes are spread as before
    assert found["retrain"] is True
    assert found["sentence"] == (
        "Retraining is advised: 30 of the labelled rows (30.0 %) are of a class that the model does not know and "
        "cannot predict: 'newer', 'new' (up to 5 % are borne)."
    )


def test_a_few_rows_of_an_unknown_class_are_said_but_not_alarming() -> None:
    found = drift([0.5] * 100, [99, 0], [500, 1], given=True, strangers={"new": 1}, labelled=100)
    assert found["retrain"] is False
    assert found["sentence"].endswith(
        " 1 of the labelled rows (1.0 %) is of a class that the model does not know and cannot predict: 'new'."
    )
    assert drift([0.5] * 100, None, None)["unknown_rows"] is None
    with pytest.raises(InputError, match="labelled=None came with 1 rows"):
        drift([0.5], None, None, strangers={"new": 1})
