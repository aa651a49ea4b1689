"""The feature-based transformer: its tokens by their definition, and that no edge is read."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc.baselines import FeatureTransformerBaseline
from gsparc.datasets import make_blocks
from gsparc.estimators.classifier import SparcClassifier
from gsparc.exceptions import FeatureError, InputError, LabelError
from gsparc.graph import Graph
from gsparc.ops.tokens import tokens_reference

BLOCKS = make_blocks(300, 1200, 6, branching=(3,), noise=0.5, random_state=0)
SMALL = FeatureTransformerBaseline(num_tokens=3, hidden_channels=16, num_heads=2, max_steps=50, random_state=0)
SMALL.set_params(device="cpu")
JUDGES = (BLOCKS.X[200:250], BLOCKS.y[200:250])


def fitted(**changes) -> FeatureTransformerBaseline:
    return clone(SMALL).set_params(**changes).fit(BLOCKS.X[:200], BLOCKS.y[:200], validation=JUDGES)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_tokens_are_means_over_the_most_similar_nodes() -> None:
    model = fitted(max_steps=1)
    seen = BLOCKS.X[:200]
    scaled = (seen - seen.mean(axis=0)) / seen.std(axis=0)
    new = (BLOCKS.X[250:260] - seen.mean(axis=0)) / seen.std(axis=0)
    view = model._seen.nodes(BLOCKS.X[250:260], own=False)
    tokens = view.tokens(torch.arange(10), 3).numpy()
    np.testing.assert_allclose(tokens[:, 0], new, atol=1e-4)
    # of unit rows the nearest are those with the largest cosine
    np.testing.assert_allclose(tokens[:, 1:], tokens_reference(unit(new), unit(scaled), scaled, 3), atol=1e-4)
    own = model._seen.nodes(seen, own=True).tokens(torch.arange(10), 3).numpy()
    expected = tokens_reference(unit(scaled[:10]), unit(scaled), scaled, 3, exclude=np.arange(10))
    np.testing.assert_allclose(own[:, 1:], expected, atol=1e-4)


def test_seen_nodes_are_not_their_own_neighbours() -> None:
    model, seen = fitted(), BLOCKS.X[:200]
    in_training = model.head_.logits(model._seen.nodes(seen, own=True)).argmax(axis=1)
    assert np.array_equal(model.predict_seen(seen), model.classes_[in_training])
    some = np.array([150, 3, 3])
    assert np.array_equal(model.predict_seen(seen[some], some), model.classes_[in_training[some]])
    own = model._seen.nodes(seen[some], own=torch.from_numpy(some)).tokens(torch.arange(3), 2)
    assert torch.equal(own, model._seen.nodes(seen, own=True).tokens(torch.from_numpy(some), 2))
    assert not torch.equal(own, model._seen.nodes(seen[some], own=False).tokens(torch.arange(3), 2))
    with pytest.raises(InputError, match="ids go from 3 to 200"):
        model.predict_seen(seen[:2], [3, 200])


def test_six_nodes_by_hand() -> None:
    X = np.pad(np.array([[1.0, 0], [3, 1], [0, 1], [0, 5], [2, 0], [1, 9]], np.float32), ((0, 0), (0, 2)))
    model = clone(SMALL).set_params(max_steps=1, num_tokens=1).fit(sp.csr_array(X), [0, 0, 1, 1, 0, 1])
    view = model._seen.nodes(sp.csr_array(np.array([[4.0, 0, 0, 0]], np.float32)), own=False)
    shown = view.tokens(torch.arange(1), 1).numpy()
    # counts: rows of length sqrt(4); nodes 0 and 4 point where the new one does
    np.testing.assert_allclose(shown[0], [[2, 0, 0, 0], [2, 0, 0, 0]], atol=1e-5)
    farther = model._seen.nodes(sp.csr_array(np.array([[3.0, 0.1, 0, 0]], np.float32)), own=False)
    scaled = 2 * unit(X)
    found = farther.tokens(torch.arange(1), 2).numpy()[0, 2]
    np.testing.assert_allclose(found, (scaled[0] + scaled[4] + scaled[1] + scaled[5]) / 4, atol=1e-5)


def test_features_tell_and_edges_are_not_read() -> None:
    model = fitted()
    proba = model.predict_proba(BLOCKS.X[250:])
    assert (model.classes_[proba.argmax(axis=1)] == BLOCKS.y[250:]).mean() > 0.85
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(BLOCKS.X[250:251]), proba[:1], atol=1e-5)
    graph = Graph.from_edges([[0], [1]], num_nodes=200)
    other = clone(SMALL).fit(BLOCKS.X[:200], BLOCKS.y[:200], graph=graph, validation=JUDGES)
    assert other.predict_proba(BLOCKS.X[250:]).tobytes() == proba.tobytes()


def test_the_network_is_that_of_sparcphormer() -> None:
    ours = inspect.signature(SparcClassifier).parameters
    for name in ("num_tokens", "num_layers", "num_heads", "hidden_channels", "max_steps"):
        assert inspect.signature(FeatureTransformerBaseline).parameters[name].default == ours[name].default
    module = fitted(max_steps=1).head_.module
    assert module.in_channels == 6  # features alone, no coordinates beside them
    assert type(module).__name__ == "TokenTransformer"


def test_wide_sparse_rows_are_reduced_and_read_in_full_beside() -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(0.02, (300, 700)).astype(np.float32))
    model = clone(SMALL).set_params(max_steps=3).fit(X, BLOCKS.y)
    assert model.head_.module.in_channels == 256
    assert model.head_.module.own_channels == 700
    assert model.predict(X[:4]).shape == (4,)


def test_unlabelled_nodes_are_neighbours_and_names_are_labels() -> None:
    names = np.array(["x", "y", "z"])[BLOCKS.y]
    assert set(clone(SMALL).set_params(max_steps=5).fit(BLOCKS.X, names).predict(BLOCKS.X)) <= set("xyz")
    hidden = np.where(np.arange(300) % 2, BLOCKS.y, -1)
    model = clone(SMALL).set_params(max_steps=5).fit(BLOCKS.X, hidden)
    assert model._seen.index.num_vectors == 300


def test_bad_input() -> None:
    with pytest.raises(NotFittedError):
        clone(SMALL).predict(BLOCKS.X)
    with pytest.raises(InputError, match="num_tokens=0 came"):
        clone(SMALL).set_params(num_tokens=0).fit(BLOCKS.X, BLOCKS.y)
    with pytest.raises(LabelError, match="one class only"):
        clone(SMALL).fit(BLOCKS.X, np.zeros(300, int))
    with pytest.raises(FeatureError, match="X has 2 features"):
        fitted(max_steps=1).predict(BLOCKS.X[:, :2])
