"""Logistic regression and nearest neighbours on features: their equations, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc.baselines import FeatureKNNBaseline, LogisticRegressionBaseline, feature_knn
from gsparc.baselines.feature_knn import vote_logits
from gsparc.baselines.logistic_regression import judge_score, temperature_of
from gsparc.datasets import make_blocks
from gsparc.exceptions import FeatureError, InputError, LabelError

BLOCKS = make_blocks(300, 1200, 6, branching=(3,), noise=0.5, random_state=0)
MODELS = [LogisticRegressionBaseline(random_state=0, device="cpu"), FeatureKNNBaseline(random_state=0, device="cpu")]
both = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def test_the_minimum_of_the_regression_satisfies_its_equation() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((40, 3)) * (rng.random((40, 3)) < 0.4)  # counts: rows are scaled to length one
    X[:, 0] += 0.1 * (X.sum(axis=1) == 0)
    y = rng.integers(3, size=40)
    model = LogisticRegressionBaseline(C=2.0, max_steps=2000, device="cpu")
    model.fit(X, y, validation=(X[:5], y[:5]))
    assert model.scaling_.rows
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert model.temperature_ == 1.0  # five nodes are too few to calibrate by
    gap = np.eye(3)[y] - model.predict_proba(X)
    # W = C sum_i (e_{y_i} - p_i) x_i^T, and the free intercept balances the gaps of every class
    np.testing.assert_allclose(model.model_.coef_, 2.0 * gap.T @ unit, atol=2e-2)  # L-BFGS stops at 1e-4
    np.testing.assert_allclose(gap.sum(axis=0), 0, atol=2e-2)


def test_two_classes_by_hand() -> None:
    X = np.array([[1.0], [-1.0]] * 10, np.float32)
    y = np.array([1, 0] * 10)
    model = LogisticRegressionBaseline(C=0.05, device="cpu").fit(X, y, validation=(X[:2], y[:2]))
    # one column of variance one: w = C n sigma(-w) = sigma(-w) with n = 20, so w = 0.401058
    np.testing.assert_allclose(model.model_.coef_, [[0.401058]], atol=1e-3)
    np.testing.assert_allclose(model.predict_proba([[1.0]]), [[0.401058, 0.598942]], atol=1e-3)


def test_validation_nodes_choose_the_penalty() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 40)).astype(np.float32)  # most columns are noise: a strong penalty wins
    y = (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(int)
    X_val = rng.standard_normal((400, 40)).astype(np.float32)
    y_val = (X_val[:, 0] > 0).astype(int)
    model = LogisticRegressionBaseline(device="cpu").fit(X, y, validation=(X_val, y_val))
    assert model.C_ <= 1
    scores = {}
    for C in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0):
        fitted = LogisticRegressionBaseline(C, device="cpu").fit(X, y, validation=(X_val, y_val))
        scores[C] = judge_score(fitted._logits(fitted.model_, fitted._scaled(X_val)), y_val)
    assert scores[model.C_] == pytest.approx(max(scores.values()), abs=0.01)
    assert LogisticRegressionBaseline(3.0, device="cpu").fit(X, y).C_ == 3.0


def test_the_judges_rule_by_hand() -> None:
    logits = np.log(np.array([[0.8, 0.2], [0.4, 0.6]]))
    assert judge_score(logits, np.array([0, 0])) == pytest.approx(0.5 + 0.05 * np.log(0.8 * 0.4) / 2)
    assert temperature_of(logits, np.array([0, 0])) == 1.0
    sure = np.tile(np.array([[9.0, 0.0]]), (40, 1))  # right three times of four: softmax(9 / T) = 3 / 4
    found = temperature_of(sure, np.arange(40) % 4 // 3)
    assert found == pytest.approx(9 / np.log(3), rel=0.05)


def test_votes_by_hand() -> None:
    # cosines 0.5 and 0.25 for class 1, 0.75 for class 0, and the shares of the classes as one vote more
    logits = vote_logits(np.array([[0.75, 0.5, 0.25]]), np.array([[0, 1, 1]]), np.array([0.25, 0.75]))
    np.testing.assert_allclose(np.exp(logits), [[1.0 / 2.5, 1.5 / 2.5]])
    # opposite and unlike nodes say nothing
    alone = vote_logits(np.array([[-1.0, 0.0]]), np.array([[0, 0]]), np.array([0.25, 0.75]))
    np.testing.assert_allclose(np.exp(alone), [[0.25, 0.75]])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_votes_are_shares(k: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(width))
    cosines, codes = rng.uniform(-1, 1, (4, k)), rng.integers(width, size=(4, k))
    logits = vote_logits(cosines, codes, prior)
    np.testing.assert_allclose(np.exp(logits).sum(axis=1), 1)
    order = rng.permutation(k)  # neighbours in another order give the same vote
    np.testing.assert_allclose(vote_logits(cosines[:, order], codes[:, order], prior), logits)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_nearest_by_hand(form) -> None:
    X = np.array([[4.0, 0, 0], [1, 1, 0], [0, 3, 0], [0, 0, 1]], np.float32)
    model = FeatureKNNBaseline(2, device="cpu").fit(form(X), [0, 0, 1, 2])
    cosines, ids = model._search(form(np.array([[1.0, 0.5, 0]], np.float32)), 2)
    assert ids.tolist() == [[1, 0]]
    np.testing.assert_allclose(cosines, [[1.5 / (1.25 * 2) ** 0.5, 1 / 1.25**0.5]], rtol=1e-5)
    assert model.predict(form(np.array([[0, 0, 2.0]], np.float32))).tolist() == [2]


def test_k_is_chosen_on_validation_nodes() -> None:
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, np.pi / 2, 400)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    truth = (angle > np.pi / 4).astype(int)
    noisy = np.where(rng.random(400) < 0.35, 1 - truth, truth)  # one neighbour is often wrong, many seldom
    model = FeatureKNNBaseline(device="cpu").fit(X[:300], noisy[:300], validation=(X[300:], truth[300:]))
    assert model.n_neighbors_ >= 15
    own = FeatureKNNBaseline(device="cpu", random_state=0).fit(X, noisy)  # a tenth judges, never by its own label
    assert own.n_neighbors_ > 1


def test_the_large_path_agrees_with_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.1, (200, 60)).astype(np.float32))
    y = rng.integers(3, size=200)
    small = FeatureKNNBaseline(5, device="cpu").fit(X, y)
    monkeypatch.setattr(feature_knn, "EXACT_UP_TO", 100)
    large = FeatureKNNBaseline(5, device="cpu").fit(X, y)
    assert small._exact
    assert not large._exact
    np.testing.assert_allclose(large._search(X[:20], 3)[0], small._search(X[:20], 3)[0], atol=1e-5)


@both
def test_features_tell(model) -> None:
    fitted = clone(model).fit(BLOCKS.X[:200], BLOCKS.y[:200], validation=(BLOCKS.X[200:250], BLOCKS.y[200:250]))
    assert (fitted.predict(BLOCKS.X[250:]) == BLOCKS.y[250:]).mean() > 0.9
    proba = fitted.predict_proba(BLOCKS.X[250:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(fitted.predict_proba(BLOCKS.X[250:251]), proba[:1], atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(sp.csr_array(BLOCKS.X[250:])), proba, atol=1e-4)


@both
def test_unlabelled_nodes_and_edges_do_not_count(model) -> None:
    X = np.concatenate([BLOCKS.X[:100], BLOCKS.X[:100]])  # the same means and deviations twice
    y = np.concatenate([BLOCKS.y[:100], np.full(100, -1)])
    judges = (BLOCKS.X[200:], BLOCKS.y[200:])
    alone = clone(model).fit(BLOCKS.X[:100], BLOCKS.y[:100], validation=judges).predict_proba(BLOCKS.X)
    hidden = clone(model).fit(X, y, graph=None, validation=judges).predict_proba(BLOCKS.X)
    np.testing.assert_allclose(hidden, alone, atol=1e-4)


@both
def test_names_as_labels_and_the_same_bytes(model) -> None:
    names = np.array(["x", "y", "z"])[BLOCKS.y]
    first, again = (clone(model).fit(BLOCKS.X, names).predict_proba(BLOCKS.X) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    assert set(clone(model).fit(BLOCKS.X, names).predict(BLOCKS.X)) == set("xyz")


@both
def test_bad_input(model) -> None:
    with pytest.raises(NotFittedError):
        clone(model).predict(BLOCKS.X)
    with pytest.raises(LabelError, match="every label is -1"):
        clone(model).fit(BLOCKS.X, np.full(300, -1))
    with pytest.raises(LabelError, match="which no seen node has"):
        clone(model).fit(BLOCKS.X, BLOCKS.y, validation=(BLOCKS.X, BLOCKS.y + 1))
    with pytest.raises(FeatureError, match="X has 2 features"):
        clone(model).fit(BLOCKS.X, BLOCKS.y).predict(BLOCKS.X[:, :2])
    with pytest.raises(InputError, match="n_neighbors=0 came"):
        FeatureKNNBaseline(0).fit(BLOCKS.X, BLOCKS.y)
