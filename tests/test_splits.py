"""Cold-start splits: shares, strata, groups, and scikit-learn's cv protocol."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate

from gsparc._validation import unlabelled_mask
from gsparc.exceptions import InputError, LabelError, UnknownNameError
from gsparc.splits import ColdStartSplit, Fold


def one(split: ColdStartSplit, y: np.ndarray | None = None, n: int | None = None, groups=None) -> Fold:
    rows = n if n is not None else len(y) if y is not None else 0
    (fold,) = split.folds(np.zeros((rows, 1)), y, groups)
    return fold


def test_dense_shares_and_strata_by_hand() -> None:
    y = np.array([0] * 60 + [1] * 40)
    fold = one(ColdStartSplit("dense", random_state=0), y)
    seen, val, cold = fold
    assert np.bincount(y[cold]).tolist() == [12, 8]
    assert np.bincount(y[val]).tolist() == [3, 2]
    assert np.bincount(y[seen]).tolist() == [45, 30]
    np.testing.assert_array_equal(np.sort(np.concatenate(fold)), np.arange(100))
    np.testing.assert_array_equal(fold.labelled, seen)
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in fold)
    assert len(fold) == 3
    assert repr(fold) == "Fold(seen=75, val=5, cold=20, labelled=75)"


@pytest.mark.parametrize(
    ("name", "sizes", "labelled"),
    [("paper", (940, 30, 30), 940), ("few", (740, 60, 200), 40), ("tenth", (750, 50, 200), 75)],
)
def test_presets(name: str, sizes: tuple[int, ...], labelled: int) -> None:
    y = np.repeat([0, 1], 500)
    fold = one(ColdStartSplit(name, random_state=1), y)
    assert tuple(map(len, fold)) == sizes
    assert len(fold.labelled) == labelled
    assert np.isin(fold.labelled, fold.seen).all()
    low, high = np.bincount(y[fold.labelled])
    assert abs(low - high) <= 1


def test_cold_share_overrides_and_cold_nodes_do_not_depend_on_the_rest() -> None:
    y = np.repeat([0, 1, 2], 50)
    assert len(one(ColdStartSplit("paper", cold=0.6, random_state=0), y).cold) == 90
    cold = [one(ColdStartSplit(name, random_state=7), y).cold for name in ("dense", "few", "tenth")]
    np.testing.assert_array_equal(cold[0], cold[1])
    np.testing.assert_array_equal(cold[0], cold[2])


def test_same_seed_same_folds_and_folds_differ() -> None:
    y = np.repeat([0, 1], 100)
    split = ColdStartSplit("dense", n_splits=3, random_state=5)
    first, again = list(split.folds(y, y)), list(split.folds(y, y))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(np.concatenate(a), np.concatenate(b))
    assert len({tuple(fold.cold) for fold in first}) == 3
    assert tuple(one(ColdStartSplit(random_state=6), y).cold) != tuple(first[0].cold)
    assert split.get_n_splits() == 3


def test_without_labels_the_draw_is_plain() -> None:
    fold = one(ColdStartSplit("tenth", random_state=0), n=200)
    assert tuple(map(len, fold)) == (150, 10, 40)
    assert len(fold.labelled) == 15


def test_small_classes_keep_a_labelled_seen_node() -> None:
    y = np.array([0] * 50 + [1] * 2 + [2] + [-1] * 20)
    for seed in range(20):
        for name in ("dense", "few", "tenth", "paper"):
            fold = one(ColdStartSplit(name, cold=0.5, random_state=seed), y)
            assert set(y[fold.labelled]) == {0, 1, 2}, (seed, name)
    fold = one(ColdStartSplit("dense", random_state=0), y)
    assert np.count_nonzero(y[fold.cold] == -1) == 4  # the unlabelled are a stratum of their own


def test_few_in_a_small_class_shares_what_is_left() -> None:
    y = np.array([0] * 500 + [1] * 25)
    fold = one(ColdStartSplit("few", random_state=0), y)
    assert np.bincount(y[fold.cold]).tolist() == [100, 5]
    assert np.bincount(y[fold.val]).tolist() == [30, 10]  # 20 left of class 1: half for each
    assert np.bincount(y[fold.labelled]).tolist() == [20, 10]


def test_visible_labels() -> None:
    fold = Fold(np.array([0, 2, 3]), np.array([1]), np.array([4]), labelled=np.array([0, 3]))
    y = np.array([5, 6, 7, 8, 9])
    visible = fold.visible_labels(y)
    assert visible.tolist() == [5, -1, 8]
    assert y.tolist() == [5, 6, 7, 8, 9]
    assert fold.visible_labels(y.astype(np.uint8)).tolist() == [5, -1, 8]
    with pytest.raises(LabelError, match="LabelEncoder"):
        fold.visible_labels(np.array(list("abcde")))


def test_fold_survives_copies() -> None:
    fold = Fold(np.array([0]), np.array([1]), np.array([2]), labelled=np.array([0]))
    for twin in (copy.deepcopy(fold), copy.copy(fold), pickle.loads(pickle.dumps(fold))):
        assert twin.labelled.tolist() == [0]
        assert twin.cold.tolist() == [2]


@settings(deadline=None, max_examples=80)
@given(
    y=st.lists(st.integers(-1, 4), min_size=2, max_size=60),
    cold=st.floats(0.01, 0.7),
    name=st.sampled_from(["paper", "dense", "few", "tenth"]),
    seed=st.integers(0, 10**6),
)
def test_any_labels_give_a_partition(y: list[int], cold: float, name: str, seed: int) -> None:
    labels = np.array(y)
    fold = one(ColdStartSplit(name, cold=cold, random_state=seed), labels)
    np.testing.assert_array_equal(np.sort(np.concatenate(fold)), np.arange(len(y)))
    assert len(fold.cold) >= 1
    assert len(fold.seen) >= 1
    known = ~unlabelled_mask(labels)  # -1 and 1 alone are two classes
    assert known[fold.labelled].all()
    assert np.isin(fold.labelled, fold.seen).all()
    if len(fold.cold) > 1:  # a single cold node may have to be the only one of its class
        assert set(labels[fold.labelled]) == set(labels[known])


def test_groups_stay_together() -> None:
    rng = np.random.default_rng(0)
    groups = np.array([f"g{i}" for i in rng.integers(120, size=1000)], dtype=object)
    y = rng.integers(3, size=1000)
    fold = one(ColdStartSplit("dense", random_state=0), y, groups=groups)
    parts = [set(groups[part]) for part in fold]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert 150 <= len(fold.cold) <= 250
    assert 20 <= len(fold.val) <= 80
    two = one(ColdStartSplit(random_state=0), y=None, n=10, groups=[0] * 9 + [1])
    assert two.cold.tolist() == [9]


@pytest.mark.parametrize("kind", ["str", "object", "float", "quantity", "two columns"])
def test_other_labels(kind: str) -> None:
    y = {
        "str": np.array(["a", "b"] * 50),
        "object": np.array(["a", "b"] * 50, dtype=object),
        "float": np.array([0.0, 1.0] * 50),
        "quantity": np.linspace(0, 1, 100),
        "two columns": np.zeros((100, 2)),
    }[kind]
    fold = one(ColdStartSplit(random_state=0), y)
    assert tuple(map(len, fold)) == (75, 5, 20)
    if kind == "str":
        assert np.count_nonzero(y[fold.cold] == "a") == 10


def test_split_dispatch() -> None:
    X, y = np.zeros((40, 1)), np.repeat([0, 1], 20)
    split = ColdStartSplit(random_state=0)
    ((seen, val, cold),) = split.split(X, y)
    ((train, test),) = split.split(X, y, groups=None)
    np.testing.assert_array_equal(train, np.union1d(seen, val))
    np.testing.assert_array_equal(test, cold)
    ((train, test),) = split.split(X, y, np.arange(40) // 2)
    assert not set(train // 2) & set(test // 2)


def test_scikit_learn_takes_it_as_cv() -> None:
    X, y = np.zeros((100, 1)), np.array([0] * 75 + [1] * 25)
    split = ColdStartSplit("dense", n_splits=3, random_state=0)
    scores = cross_validate(DummyClassifier(), X, y, cv=split)["test_score"]
    assert scores.tolist() == [0.75] * 3  # stratified: 15 of 20 cold nodes are of the larger class
    search = GridSearchCV(DummyClassifier(), {"strategy": ["prior", "stratified"]}, cv=split).fit(X, y)
    assert search.best_params_ == {"strategy": "prior"}
    assert len(cross_val_score(DummyClassifier(), X, y, cv=split, groups=np.arange(100))) == 3
    assert len(cross_val_score(DummyClassifier(), X, y, cv=list(split.pairs(X, y)))) == 3


def test_bad_input() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'dense'"):
        ColdStartSplit("denes")
    for cold in (0, 1, 1.0, -0.1, float("nan"), "half", True):
        with pytest.raises(InputError, match="cold="):
            ColdStartSplit(cold=cold)
    with pytest.raises(InputError, match=r"cold=0\.5 and validation=0\.5 leave no seen nodes"):
        ColdStartSplit(cold=0.5, validation=0.5)
    with pytest.raises(InputError, match=r"labels=1\.5"):
        ColdStartSplit(labels=1.5)
    with pytest.raises(InputError, match="labels=0"):
        ColdStartSplit(labels=0)
    with pytest.raises(InputError, match="n_splits=0"):
        ColdStartSplit(n_splits=0)
    with pytest.raises(LabelError, match="counts nodes of each class, but y is missing"):
        one(ColdStartSplit("few"), n=10)
    with pytest.raises(LabelError, match="y has 3 labels but X has 4 rows"):
        one(ColdStartSplit(), y=np.zeros(3), n=4)
    with pytest.raises(InputError, match=r"groups has shape \(2,\)"):
        one(ColdStartSplit(), n=4, groups=[0, 1])
    with pytest.raises(InputError, match="at least two groups"):
        one(ColdStartSplit(), n=4, groups=[0, 0, 0, 0])
    with pytest.raises(InputError, match="at least two nodes"):
        one(ColdStartSplit(), n=1)


def test_identifiers_are_not_strata() -> None:
    assert tuple(map(len, one(ColdStartSplit(random_state=0), np.arange(100)))) == (75, 5, 20)
    assert tuple(map(len, one(ColdStartSplit(cold=0.99, validation=0, random_state=0), np.full(10, -1)))) == (
        1,
        0,
        9,
    )


def test_no_validation_and_numpy_numbers() -> None:
    assert len(one(ColdStartSplit(validation=0), n=20).val) == 0
    assert len(one(ColdStartSplit(validation=0.0), n=20).val) == 0
    y = np.repeat([0, 1], 50)
    assert len(one(ColdStartSplit(validation=np.int64(3), labels=np.int32(2)), y).labelled) == 4
    assert repr(ColdStartSplit("few", random_state=3)) == (
        "ColdStartSplit('few', cold=0.2, validation=30, labels=20, n_splits=1, random_state=3)"
    )


def test_a_million_nodes_are_split_fast() -> None:
    y = np.random.default_rng(0).integers(50, size=1_000_000)
    fold = one(ColdStartSplit("tenth", random_state=0), y)
    assert len(fold.cold) == 200_000


def test_minus_one_that_is_a_class_cannot_mark_hidden_labels() -> None:
    y = np.array([-1, 1] * 20)
    fold = one(ColdStartSplit("tenth", random_state=0), y)
    assert set(y[fold.labelled]) == {-1, 1}
    with pytest.raises(InputError, match="two classes"):
        fold.visible_labels(y)
