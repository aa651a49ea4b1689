"""The originals on connected nodes: hidden labels are found through edges, eigenvectors are true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc.baselines import GCNBaseline, GraphMambaBaseline, NAGphormerBaseline, SpectralGCNBaseline, _connected
from gsparc.baselines._connected import true_eigenvectors
from gsparc.datasets import communities_of_blobs, make_blocks
from gsparc.exceptions import GraphShapeError, InputError, LabelError
from gsparc.graph import Graph
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
