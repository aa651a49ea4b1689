"""Baselines that cluster: equations worked out by hand, the authors' published figures, what cold nodes get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc import Graph, load_dataset
from gsparc.baselines import KMeansBaseline, RGAEBaseline, SSGCBaseline
from gsparc.baselines.rgae import _AutoEncoder, corrected_edges, soft_assignments, sure_nodes
from gsparc.baselines.ssgc import intra_distance, simple_spectral_convolution
from gsparc.datasets import communities_of_blobs
from gsparc.exceptions import GraphShapeError, InputError, UnknownNameError
from gsparc.metrics import hungarian_accuracy
from gsparc.nn.teacher import FixedRows
from gsparc.ops.propagate import Propagation

DATA = communities_of_blobs(300, num_blobs=12, dim=8, degree=12, within=0.95, random_state=0)
PATH = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=4)
MODELS: list[Any] = [
    KMeansBaseline(4, n_init=3, random_state=0),
    SSGCBaseline(4, n_init=3, random_state=0, device="cpu"),
    RGAEBaseline(4, max_steps=60, random_state=0, device="cpu"),
]
names = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def test_kmeans_by_hand() -> None:
    model = KMeansBaseline(2, random_state=0).fit(np.array([[0.0, 0], [2, 0], [10, 0], [12, 0]]))
    assert sorted(model.cluster_centers_[:, 0].tolist()) == [1, 11]
    left, right = model.predict(np.array([[5.9, 0], [6.1, 0]]))
    assert (left, right) == (model.labels_[0], model.labels_[3])


def test_kmeans_on_weighed_words_looks_at_rare_ones() -> None:
    # word 0 is in every node, words 1 and 2 tell two groups apart; counts of word 0 vary wildly
    rng = np.random.default_rng(0)
    X = np.zeros((60, 8), np.float32)
    X[:, 0] = rng.integers(1, 30, 60)
    X[:30, 1] = X[30:, 2] = 1
    truth = np.repeat([0, 1], 30)
    weighed = KMeansBaseline(2, rows="weighed", random_state=0).fit(sp.csr_array(X))
    assert hungarian_accuracy(truth, weighed.labels_) == 1
    assert hungarian_accuracy(truth, KMeansBaseline(2, random_state=0).fit(X).labels_) < 0.8
    assert weighed.predict(sp.csr_array(X[:1])).tolist() == [weighed.labels_[0]]


def test_simple_spectral_convolution_by_hand() -> None:
    # T of two linked nodes is the matrix of halves, so T x = T^2 x = 2 for x = (1, 3)
    pair = Graph.from_edges([[0], [1]])
    X = np.array([[1.0], [3.0]])
    for hops in (1, 2, 5):
        found = simple_spectral_convolution(X, pair, hops, 0.25)
        np.testing.assert_allclose(found, [[0.75 * 2 + 0.25 * 1], [0.75 * 2 + 0.25 * 3]], rtol=1e-6)
    # the path: T written out
    degree = np.array([2, 3, 3, 2.0])
    T = (PATH.to_scipy().toarray() + np.eye(4)) / np.sqrt(degree[:, None] * degree)
    x = np.eye(4)
    expected = 0.9 * (T @ x + T @ T @ x + T @ T @ T @ x) / 3 + 0.1 * x
    np.testing.assert_allclose(simple_spectral_convolution(x, PATH, 3, 0.1), expected, rtol=1e-5)


def test_intra_distance_by_hand() -> None:
    rows = np.array([[0.0], [2.0], [10.0], [10.0]])
    # pairs of the first: squared distances 0, 4, 4, 0, mean 2; of the second 0
    assert intra_distance(rows, np.array([0, 0, 1, 1]), 2) == pytest.approx(1.0)


@pytest.mark.data
def test_ssgc_on_citeseer_as_published(data_folder: Path) -> None:
    data = load_dataset("citeseer", folder=data_folder)
    model = SSGCBaseline(6, num_hops=6, alpha=0.0, n_init=3, random_state=0, device="cpu")
    found = hungarian_accuracy(data.y, model.fit(data.X, graph=data.graph).predict_seen())
    assert found == pytest.approx(0.6965, abs=0.01)  # the authors' log: 0.6965, deviation 0.0009


def test_soft_assignments_and_sure_nodes_by_hand() -> None:
    z, centers = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    q = soft_assignments(z, centers)
    # kernels 1 and 1/5; 1/2 and 1/2
    np.testing.assert_allclose(q, [[5 / 6, 1 / 6], [0.5, 0.5]], rtol=1e-5)
    assert sure_nodes(q, 0.4, 0.1).tolist() == [0]
    assert sure_nodes(q, 0.4, -1.0).tolist() == [0, 1]
    assert sure_nodes(q, 0.9, 0.1).tolist() == []


def test_the_penalty_is_part_of_the_gradient() -> None:
    rows = FixedRows(torch.ones(4, 9), 9)
    module = _AutoEncoder(rows, Propagation(PATH, "sym"), (9, 2, 3), 2)
    for l2 in (0.0, 0.5):
        module.zero_grad()
        module.l2 = l2
        (module.input.weight.sum() + module.output.weight.sum()).backward()
        # ones, and l2 times the weights; those that read rows of length 3 stand for ones thrice as large
        torch.testing.assert_close(module.input.weight.grad, 1 + 9 * l2 * module.input.weight.detach())
        torch.testing.assert_close(module.output.weight.grad, 1 + l2 * module.output.weight.detach())


def test_the_graph_is_corrected_by_hand() -> None:
    labels = np.array([0, 0, 1, 1])
    # node 2 is not sure: its link 1 - 2 to another cluster stays; 3 gets none, it is the hub itself
    kept = corrected_edges(PATH, labels, np.array([0, 1, 3]), np.array([0, 3]))
    np.testing.assert_array_equal(kept.to_scipy().toarray() > 0, PATH.to_scipy().toarray() > 0)
    # all sure, hubs 0 and 3: the link 1 - 2 goes
    fewer = corrected_edges(PATH, labels, np.arange(4), np.array([0, 3]))
    expected = np.zeros((4, 4), bool)
    expected[[0, 1, 2, 3], [1, 0, 3, 2]] = True
    np.testing.assert_array_equal(fewer.to_scipy().toarray() > 0, expected)
    # a cluster of three: 0 and 3 are tied to hub 1
    tied = corrected_edges(PATH, np.array([0, 0, 1, 0]), np.array([0, 1, 3]), np.array([1, -1]))
    assert tied.to_scipy().toarray()[1, 3] > 0


def test_the_encoder_by_hand() -> None:
    pair = Graph.from_edges([[0], [1]], num_nodes=3)  # node 2 has no edge
    x = torch.tensor([[1.0], [3.0], [5.0]])
    module = _AutoEncoder(FixedRows(x, 1), Propagation(pair, "sym"), (1, 1, 1), 2)
    with torch.no_grad():
        module.input.weight.fill_(2.0)
        module.input.bias.fill_(0.5)
        module.output.weight.fill_(-1.0)
    # linked: the mean of 2 x + 0.5 is 4.5, twice; alone: 10.5
    np.testing.assert_allclose(module().detach(), [[-4.5], [-4.5], [-10.5]], rtol=1e-6)
    np.testing.assert_allclose(module.alone(x[2:]).detach(), [[-10.5]], rtol=1e-6)


@names
def test_clusters_are_found_and_repeat(model) -> None:
    fitted = clone(model).fit(DATA.X, graph=DATA.graph)
    again = clone(model).fit(DATA.X.copy(), graph=DATA.graph)
    assert fitted.labels_.tobytes() == again.labels_.tobytes()
    assert set(fitted.labels_) <= set(range(4))
    if not isinstance(model, KMeansBaseline):
        assert hungarian_accuracy(DATA.y, fitted.predict_seen()) > 0.6  # 0.25 by chance; k-means does not know edges


@names
def test_cold_nodes(model) -> None:
    fitted = clone(model).fit(DATA.X[:250], graph=DATA.graph[range(250)])
    if isinstance(model, SSGCBaseline):
        assert not hasattr(fitted, "predict")
        return
    found = fitted.predict(DATA.X[250:])
    assert found.shape == (50,)
    assert fitted.predict(DATA.X[250:251])[0] == found[0]
    assert hungarian_accuracy(DATA.y[250:], found) > 0.4


@names
def test_sparse_features(model) -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.05, (300, 200)).astype(np.float32))
    quick = clone(model).set_params(**({"max_steps": 5} if "max_steps" in model.get_params() else {}))
    assert len(quick.fit(X, graph=DATA.graph).labels_) == 300


@names
def test_bad_input(model) -> None:
    with pytest.raises(NotFittedError):
        (clone(model).predict if isinstance(model, KMeansBaseline) else clone(model).predict_seen)(
            *([DATA.X] if isinstance(model, KMeansBaseline) else [])
        )
    for count in (0, 301):
        with pytest.raises(InputError, match=f"n_clusters={count} came"):
            clone(model).set_params(n_clusters=count).fit(DATA.X, graph=DATA.graph)
    if not isinstance(model, KMeansBaseline):
        with pytest.raises(GraphShapeError, match="graph has 300 nodes but X has 299 rows"):
            clone(model).fit(DATA.X[1:], graph=DATA.graph)
    with pytest.raises(UnknownNameError, match="unknown rows 'weighd'"):
        KMeansBaseline(2, rows="weighd").fit(DATA.X)  # type: ignore[arg-type]
