"""The originals on connected nodes: hidden labels are found through edges, eigenvectors are true."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc.baselines import GCNBaseline, GraphMambaBaseline, NAGphormerBaseline, SpectralGCNBaseline, _connected
from gsparc.baselines._connected import SeenGraph, true_eigenvectors
from gsparc.datasets import communities_of_blobs, make_blocks
from gsparc.exceptions import GraphShapeError, InputError, LabelError
from gsparc.graph import Graph
from gsparc.nn.gcn import spectral_convolution, spectral_summary, with_constant
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.classify import ClassTask
from gsparc.training.loop import LoopResult, LoopSettings, run_loop

DATA = communities_of_blobs(400, num_blobs=200, dim=8, within=0.95, random_state=0)  # two nodes a blob
HIDDEN = np.arange(400) % 4 == 0
LABELS = np.where(HIDDEN, -1, DATA.y)
MODELS = [
    NAGphormerBaseline(num_hops=3, n_eigenvectors=8, hidden_channels=32, max_steps=150, random_state=0, device="cpu"),
    GraphMambaBaseline(num_hops=2, hidden_channels=16, max_steps=100, random_state=0, device="cpu"),
    SpectralGCNBaseline(n_eigenvectors=8, hidden_channels=(32, 32), max_steps=150, random_state=0, device="cpu"),
]
names = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def test_eigenvectors_of_two_triangles_by_hand() -> None:
    graph = Graph.from_edges([[0, 0, 1, 3, 3, 4], [1, 2, 2, 4, 5, 5]], num_nodes=6)
    vectors = true_eigenvectors(graph, 3, seed=0)
    # the jump ties the triangles together, so the first column to be left out is constant and the next one parts them
    np.testing.assert_allclose(np.abs(vectors[:, 0]), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[:3, 0], -vectors[3:, 0], rtol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, 6 * np.eye(3), atol=1e-4)
    assert np.array_equal(true_eigenvectors(graph, 8, seed=0)[:, 5:], np.zeros((6, 3)))  # six nodes have five


def test_large_and_small_graphs_agree() -> None:
    data = make_blocks(500, 3000, 4, branching=(3, 2), random_state=0)
    vectors = true_eigenvectors(data.graph, 5, seed=0)
    adjacency = data.graph.to_scipy().toarray() + np.eye(500) + 1 / 500
    scale = adjacency.sum(axis=1) ** -0.5
    values, dense = np.linalg.eigh(scale[:, None] * adjacency * scale)
    span = dense[:, ::-1][:, 1:6] * 500**0.5
    assert values[-6] - values[-7] > 1e-3
    np.testing.assert_allclose(np.linalg.svd(span.T @ vectors / 500)[1], 1, atol=1e-4)
    assert np.array_equal(vectors, true_eigenvectors(data.graph, 5, seed=0))


def seen_path() -> SeenGraph:
    """A path of three nodes, one with a feature. ``P`` has 1/2, 1/3, 1/2 on its diagonal and 1/sqrt(6) beside."""
    X = np.array([[1.0], [0.0], [0.0]], np.float32)
    source = FeatureSource(X, Scaling(False, np.zeros(1, np.float32), np.ones(1, np.float32)))
    return SeenGraph(X, source, Graph.from_edges([[0, 1], [1, 2]]), 2, torch.device("cpu"), 0)


@pytest.mark.parametrize(
    "model",
    [NAGphormerBaseline(num_hops=2, n_eigenvectors=0), GraphMambaBaseline(num_hops=2)],
    ids=["phormer", "mamba"],
)
def test_hop_tokens_of_a_path_by_hand(model) -> None:
    module, inputs = model._network(seen_path())
    (tokens,) = inputs(torch.tensor([0, 1, 2]))
    root = 6**0.5
    once = [1 / 2, 1 / root, 0]  # P x
    twice = [1 / 4 + 1 / 6, 1 / (2 * root) + 1 / (3 * root), 1 / 6]  # P (P x)
    np.testing.assert_allclose(tokens[:, :, 0].T, [[1, 0, 0], once, twice], rtol=1e-6)
    assert module(tokens).shape == (3, 2)


def test_eigenvectors_stand_beside_the_features_of_a_token() -> None:
    _, inputs = NAGphormerBaseline(num_hops=1, n_eigenvectors=1)._network(seen_path())
    (tokens,) = inputs(torch.tensor([0, 1, 2]))
    vector = tokens[:, 0, 1].numpy()  # of the path: its ends have opposite signs, its middle has none
    np.testing.assert_allclose(vector[[1, 2]], [0, -vector[0]], atol=1e-5)
    np.testing.assert_allclose(vector @ vector, 3, rtol=1e-5)
    np.testing.assert_allclose(tokens[:, 1, 1], vector / 2, atol=1e-5)  # one step


def test_the_read_out_of_nagphormer_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    model = NAGphormerBaseline(num_hops=2, n_eigenvectors=0, hidden_channels=2, num_heads=1)
    module: Any = model._network(seen_path())[0].eval()
    z = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])  # what the layers make of the three tokens
    monkeypatch.setattr(module, "encode", lambda tokens, own=None: z)
    with torch.no_grad():
        module.score.weight.copy_(torch.tensor([[math.log(3), 0.0]]))
        for layer in (module.hidden, module.output):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
        tokens = torch.zeros(1, 3, 1)
        # scores 0 and log 3 of the two neighbourhoods: alpha = 1/4, 3/4
        np.testing.assert_allclose(module.attention(tokens), [[0.25, 0.75]], rtol=1e-6)
        # [1, 0] + [0, 1] / 4 + 3 [1, 1] / 4
        expected = torch.nn.functional.gelu(torch.tensor([[1.75, 1.0]]))
        np.testing.assert_allclose(module(tokens), expected, rtol=1e-6)


def test_graph_mamba_reads_the_largest_neighbourhood_first() -> None:
    module: Any = GraphMambaBaseline(num_hops=2, num_layers=0)._network(seen_path())[0].eval()
    tokens = torch.tensor([[[1.0], [2.0], [4.0]]])  # the node, one step, two steps
    rows = module.norm(module.input(tokens))
    torch.testing.assert_close(module.encode(tokens), rows[:, [2, 1, 0]])


def test_the_spectral_convolution_by_hand() -> None:
    """``U diag(g) U^T X`` (Bruna et al., equation of section 3.1) with the eigenvalues as ``g`` is the adjacency."""
    graph = Graph.from_edges([[0, 0, 1, 3, 3, 4], [1, 2, 2, 4, 5, 5]], num_nodes=6)
    u = torch.from_numpy(true_eigenvectors(graph, 5, seed=0)).unsqueeze(0)
    x = torch.tensor([[[6.0], [0.0], [0.0], [0.0], [0.0], [0.0]]])
    u = with_constant(u)
    every = spectral_convolution(u, torch.ones(6), spectral_summary(x, u))
    np.testing.assert_allclose(every, x, atol=1e-5)  # all eigenvectors: nothing is lost
    # rows of A + I + 1/6 sum to 4. Eigenvalues: 1 (constant), 3/4 (one triangle against the other), and 0
    found = spectral_convolution(u, torch.tensor([1.0, 0.75, 0, 0, 0, 0]), spectral_summary(x, u))
    np.testing.assert_allclose(found[0, :, 0], [7 / 4] * 3 + [1 / 4] * 3, atol=1e-5)  # (6 + 6/6) / 4 and (6/6) / 4


@names
def test_hidden_labels_are_found_through_the_edges(model) -> None:
    fitted = clone(model).fit(DATA.X, LABELS, graph=DATA.graph)
    found = fitted.predict_seen()
    assert (found == DATA.y)[HIDDEN].mean() > 0.8  # 0.25 by chance
    probabilities = fitted.predict_seen_proba()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], found)
    assert any("score" in entry for entry in fitted.history_)


@pytest.mark.parametrize(
    "model", [*MODELS, GCNBaseline(max_steps=150, random_state=0, device="cpu")], ids=lambda one: type(one).__name__
)
def test_all_labels_are_trained_on_for_the_chosen_number_of_steps(model, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[np.ndarray, dict[str, Any], LoopSettings]] = []

    def watched(task: ClassTask, settings: LoopSettings, device: torch.device) -> LoopResult:
        start = {name: value.clone() for name, value in task.module.state_dict().items()}
        trained.append((task.rows.numpy(), start, settings))
        return run_loop(task, settings, device)

    monkeypatch.setattr(_connected, "run_loop", watched)
    fitted = clone(model).set_params(max_steps=60).fit(DATA.X, LABELS, graph=DATA.graph)
    (some, start, first), (rows, again, second) = trained
    assert len(some) == 270
    assert np.array_equal(rows, np.flatnonzero(~HIDDEN))  # all 300 of them
    assert all(torch.equal(value, again[name]) for name, value in start.items())
    scores = {entry["step"]: entry["score"] for entry in fitted.history_}
    assert fitted.n_steps_ == max(scores, key=lambda step: (scores[step], step))
    assert second == replace(first, stop_at=fitted.n_steps_)  # the same learning rates, cut off


def test_too_few_labels_to_hold_out_are_trained_on_once() -> None:
    few = np.full(400, -1)
    few[:40] = DATA.y[:40]  # four would judge
    fitted = clone(MODELS[0]).set_params(max_steps=30).fit(DATA.X, few, graph=DATA.graph)
    assert (fitted.n_steps_, len(fitted.history_)) == (30, 2)
    assert "score" not in fitted.history_[0]


@names
def test_the_same_seed_gives_the_same_bytes(model) -> None:
    short = clone(model).set_params(max_steps=5)
    first = short.fit(DATA.X, LABELS, graph=DATA.graph).predict_seen_proba()
    again = clone(short).fit(DATA.X, LABELS.copy(), graph=DATA.graph).predict_seen_proba()
    assert np.array_equal(first, again)


@names
def test_wide_sparse_features_and_string_labels(model) -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.02, (400, 700)).astype(np.float32))  # wider than is averaged as it is
    labels = np.array(["a", "b", "c", "d"])[DATA.y]
    fitted = clone(model).set_params(max_steps=5).fit(X, labels, graph=DATA.graph)
    assert set(fitted.predict_seen()) <= set("abcd")


@names
def test_bad_input(model) -> None:
    with pytest.raises(NotFittedError):
        clone(model).predict_seen()
    with pytest.raises(GraphShapeError, match="graph has 400 nodes but X has 399 rows"):
        clone(model).fit(DATA.X[1:], LABELS[1:], graph=DATA.graph)
    with pytest.raises(LabelError, match="every label is -1"):
        clone(model).fit(DATA.X, np.full(400, -1), graph=DATA.graph)


def test_counts_are_checked() -> None:
    with pytest.raises(InputError, match="num_hops=-1 came"):
        NAGphormerBaseline(num_hops=-1).fit(DATA.X, LABELS, graph=DATA.graph)
    with pytest.raises(InputError, match=r"num_hops=1\.5 came"):
        GraphMambaBaseline(num_hops=1.5).fit(DATA.X, LABELS, graph=DATA.graph)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="n_eigenvectors=0 came"):
        SpectralGCNBaseline(n_eigenvectors=0).fit(DATA.X, LABELS, graph=DATA.graph)
