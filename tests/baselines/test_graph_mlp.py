"""Graph-MLP: its loss by hand, its batches, and that edges reach a network that is never shown them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc import Graph
from gsparc.baselines import GraphMLPBaseline, MLPBaseline
from gsparc.baselines._graph_taught import walk_batch
from gsparc.baselines.graph_mlp import adjacency_power_block, ncontrast_loss
from gsparc.datasets import communities_of_blobs
from gsparc.exceptions import FeatureError, GraphError, GraphShapeError, InputError, LabelError


def test_the_loss_of_four_nodes_by_hand() -> None:
    # unit vectors along +x, +x, +y, -x; lengths must not matter
    z = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    strength = torch.tensor([[0.9, 0.5, 0.25, 0.0], [0.5, 0.9, 0.0, 0.0], [0.25, 0.0, 0.9, 0.0], [0.0, 0.0, 0.0, 1.0]])
    e = np.exp
    # node 0 is as 1, at a right angle to 2, opposite to 3; temperature 1/2 doubles the cosines
    first = -np.log((0.5 * e(2) + 0.25) / (e(2) + 1 + e(-2)))
    second = -np.log(0.5 * e(2) / (e(2) + 1 + e(-2)))
    third = -np.log(0.25 / 3)  # everyone is at a right angle
    # node 3 has no neighbour but itself, and does not count
    expected = (first + second + third) / 3
    assert float(ncontrast_loss(z, strength, 0.5)) == pytest.approx(expected, rel=1e-6)
    assert float(strength[0, 0]) == pytest.approx(0.9)  # not written over


def test_no_neighbours_no_loss() -> None:
    z = torch.randn(3, 2, requires_grad=True)
    loss = ncontrast_loss(z, torch.eye(3), 1.0)
    loss.backward()
    assert loss.item() == 0
    assert z.grad is not None
    assert not z.grad.any()


@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_blocks_of_powers(size: int, power: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.random((size, size)) * (rng.random((size, size)) < 0.5)
    dense = dense + dense.T
    nodes = np.sort(rng.choice(size, rng.integers(1, size + 1), replace=False))
    expected = np.linalg.matrix_power(dense, power)[np.ix_(nodes, nodes)]
    np.testing.assert_allclose(
        adjacency_power_block(sp.csr_array(dense), nodes, power), expected, rtol=1e-9, atol=1e-12
    )


def test_walks_stay_in_their_component() -> None:
    # two triangles and a node without edges
    graph = Graph.from_edges([[0, 0, 1, 3, 3, 4], [1, 2, 2, 4, 5, 5]], num_nodes=7)
    for seed in range(20):
        nodes = walk_batch(graph, 4, 3, np.random.default_rng(seed))  # one start
        assert len({0 if v < 3 else 1 if v < 6 else 2 for v in nodes}) == 1
        assert nodes.tolist() == sorted(set(nodes.tolist()))
    assert walk_batch(graph, 100, 0, np.random.default_rng(0)).tolist() == list(range(7))
    assert walk_batch(Graph.empty(3), 9, 2, np.random.default_rng(0)).tolist() == [0, 1, 2]


DATA = communities_of_blobs(600, num_blobs=30, dim=16, random_state=0)
COLD = np.arange(600) >= 500
SEEN = np.flatnonzero(~COLD)
MODEL = GraphMLPBaseline(hidden_channels=64, max_steps=100, contrast=10.0, random_state=0, device="cpu")


def visible(per_class: int) -> np.ndarray:
    """Labels of the seen nodes, all but a few of each class hidden."""
    y = np.full(len(SEEN), -1)
    for label in range(4):
        y[np.flatnonzero(DATA.y[SEEN] == label)[:per_class]] = label
    return y


def fitted(y: np.ndarray, *, validation=None, **changes) -> GraphMLPBaseline:
    model = clone(MODEL).set_params(**changes)
    return model.fit(DATA.X[SEEN], y, graph=DATA.graph[SEEN], validation=validation)


@pytest.mark.parametrize("batch_size", [2048, 200], ids=["all nodes", "walks"])
def test_edges_reach_the_network(batch_size: int) -> None:
    y = visible(5)
    model = fitted(y, batch_size=batch_size)
    plain = MLPBaseline(max_steps=100, random_state=0, device="cpu").fit(DATA.X[SEEN], y)
    accuracy = (model.predict(DATA.X[COLD]) == DATA.y[COLD]).mean()
    assert accuracy > (plain.predict(DATA.X[COLD]) == DATA.y[COLD]).mean() + 0.1
    probabilities = model.predict_proba(DATA.X[COLD])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(DATA.X[COLD][:1]), probabilities[:1], atol=1e-5)  # a batch of one


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (
        fitted(visible(20), batch_size=100, max_steps=5, random_state=seed).predict_proba(DATA.X) for seed in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_validation_nodes_judge() -> None:
    judges = DATA.X[COLD][:40], DATA.y[COLD][:40]
    with_them = fitted(visible(20), validation=judges, max_steps=50)
    swapped = fitted(visible(20), validation=(judges[0], np.roll(judges[1], 1)), max_steps=50)
    assert [e["loss"] for e in with_them.history_] == [e["loss"] for e in swapped.history_]
    assert [e["score"] for e in with_them.history_] != [e["score"] for e in swapped.history_]


def test_strings_and_sparse_features() -> None:
    names = np.array(["a", "b", "c", "d"])[DATA.y[SEEN]]
    model = clone(MODEL).set_params(max_steps=5)
    model.fit(sp.csr_array(np.maximum(DATA.X[SEEN], 0)), names, graph=DATA.graph[SEEN])
    assert set(model.predict(sp.csr_array(np.maximum(DATA.X[COLD], 0)))) <= set("abcd")


def test_bad_input() -> None:
    y = visible(5)
    with pytest.raises(NotFittedError):
        clone(MODEL).predict(DATA.X)
    with pytest.raises(GraphShapeError, match="graph has 600 nodes but X has 500 rows"):
        clone(MODEL).fit(DATA.X[SEEN], y, graph=DATA.graph)
    with pytest.raises(GraphError, match="no edges"):
        clone(MODEL).fit(DATA.X[SEEN], y, graph=Graph.empty(500))
    with pytest.raises(LabelError, match="every label is -1"):
        fitted(np.full(500, -1))
    with pytest.raises(InputError, match=r"expected a pair \(X, y\)"):
        fitted(y, validation=DATA.X)
    with pytest.raises(InputError, match=r"temperature=0 came, expected a number from 0\.05"):
        fitted(y, temperature=0)
    with pytest.raises(InputError, match="power=0 came"):
        fitted(y, power=0)
    model = fitted(y, max_steps=2)
    with pytest.raises(FeatureError, match="X has 2 features"):
        model.predict(DATA.X[:, :2])
