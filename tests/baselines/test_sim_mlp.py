"""SimMLP: its losses and its averaging by hand, and that edges reach an encoder that is never shown them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc import Graph
from gsparc.baselines import MLPBaseline, SimMLPBaseline
from gsparc.baselines.sim_mlp import SimMLPNet, invariance_loss, reconstruction_loss, thinned_operator
from gsparc.datasets import communities_of_blobs
from gsparc.exceptions import FeatureError, GraphError, GraphShapeError, InputError, LabelError
from gsparc.ops.propagate import csr_tensor

PATH = sp.csr_array(np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]))


def test_losses_of_three_nodes_by_hand() -> None:
    predicted = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]], requires_grad=True)
    aggregated = torch.tensor([[5.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    # cosines 1, 0 and -0.6
    loss = invariance_loss(predicted, aggregated)
    assert loss.item() == pytest.approx((0 + 1 + 1.6) / 3)
    assert invariance_loss(predicted, aggregated, 2.0).item() == pytest.approx((0 + 1 + 2.56) / 3)
    loss.backward()
    assert predicted.grad is not None
    assert aggregated.grad is None  # the target does not come to meet the encoder
    x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    # squared differences 1 + 0 + 0 + 1 of squares 9 + 1
    assert reconstruction_loss(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), x).item() == pytest.approx(0.2)
    assert reconstruction_loss(torch.zeros(2, 2), x).item() == pytest.approx(1)


def test_averaging_along_a_path_by_hand() -> None:
    operator = thinned_operator(PATH, 0.0, np.random.default_rng(0))
    # degrees with the loop: 2, 3, 2
    c = 6**-0.5
    np.testing.assert_allclose(operator.toarray(), [[0.5, c, 0], [c, 1 / 3, c], [0, c, 0.5]], rtol=1e-6)
    net = SimMLPNet(4, channels=1, num_hops=1, dropout=0.0, input_dropout=0.0).eval()  # the norm does nothing yet
    parts = operator.indptr, operator.indices, operator.data.astype(np.float32)
    with torch.no_grad():
        averaged = net.aggregate(torch.tensor([[2.0], [0.0], [-4.0]]), csr_tensor(*parts, columns=3))
    # P z = (1, -2 c, -2), and PReLU starts with a slope of a quarter
    np.testing.assert_allclose(averaged.ravel(), [1, -0.5 * c, -0.5], rtol=1e-4)


def test_edges_are_dropped_both_ways() -> None:
    assert np.array_equal(thinned_operator(PATH, 1.0, np.random.default_rng(0)).toarray(), np.eye(3))
    some = [thinned_operator(PATH, 0.5, np.random.default_rng(seed)).toarray() for seed in range(20)]
    assert all(np.array_equal(a, a.T) for a in some)
    assert {int((a > 0).sum()) for a in some} == {3, 5, 7}


DATA = communities_of_blobs(600, num_blobs=30, dim=16, random_state=0)
COLD = np.arange(600) >= 500
SEEN = np.flatnonzero(~COLD)
MODEL = SimMLPBaseline(
    channels=64,
    reconstruction=0.1,
    max_steps=100,
    learning_rate=3e-3,
    dropout=0.0,
    input_dropout=0.0,
    random_state=0,
    device="cpu",
)


def visible(per_class: int) -> np.ndarray:
    """Labels of the seen nodes, all but a few of each class hidden."""
    y = np.full(len(SEEN), -1)
    for label in range(4):
        y[np.flatnonzero(DATA.y[SEEN] == label)[:per_class]] = label
    return y


def fitted(y: np.ndarray, *, validation=None, **changes) -> SimMLPBaseline:
    model = clone(MODEL).set_params(**changes)
    return model.fit(DATA.X[SEEN], y, graph=DATA.graph[SEEN], validation=validation)


@pytest.mark.parametrize("batch_size", [8192, 300], ids=["all nodes", "walks"])
def test_edges_reach_the_encoder(batch_size: int) -> None:
    y = visible(5)
    model = fitted(y, batch_size=batch_size)
    plain = MLPBaseline(max_steps=100, random_state=0, device="cpu").fit(DATA.X[SEEN], y)
    accuracy = (model.predict(DATA.X[COLD]) == DATA.y[COLD]).mean()
    assert accuracy > (plain.predict(DATA.X[COLD]) == DATA.y[COLD]).mean() + 0.1
    probabilities = model.predict_proba(DATA.X[COLD])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(DATA.X[COLD][:1]), probabilities[:1], atol=1e-5)  # a batch of one


def test_the_encoder_learns_without_labels() -> None:
    y = visible(20)
    judges = DATA.X[COLD][:40], DATA.y[COLD][:40]
    other = np.where(y >= 0, (y + 1) % 4, -1)  # the same nodes have labels, all of them wrong
    # one evaluation, at the end: no label can choose between states of the encoder
    first, second = (fitted(labels, validation=judges, max_steps=20) for labels in (y, other))
    for name, value in first.encoder_.state_dict().items():
        assert torch.equal(value, second.encoder_.state_dict()[name]), name
    assert not torch.equal(first.linear_.weight, second.linear_.weight)


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (
        fitted(visible(20), batch_size=200, max_steps=5, random_state=seed).predict_proba(DATA.X) for seed in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_strings_and_sparse_features() -> None:
    names = np.array(["a", "b", "c", "d"])[DATA.y[SEEN]]
    model = clone(MODEL).set_params(max_steps=5, input_dropout=0.5)
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
    with pytest.raises(LabelError, match="which no seen node has"):
        fitted(y, validation=(DATA.X[COLD], DATA.y[COLD] + 7))
    with pytest.raises(InputError, match=r"edge_dropout=1 came, expected a number from 0 to 0\.95"):
        fitted(y, edge_dropout=1)
    with pytest.raises(InputError, match="num_hops=0 came"):
        fitted(y, num_hops=0)
    model = fitted(y, max_steps=2)
    with pytest.raises(FeatureError, match="X has 2 features"):
        model.predict(DATA.X[:, :2])
