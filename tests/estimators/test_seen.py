"""Predictions of seen nodes: each as training sees it, never its own neighbour, and only with its own features."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gsparc import Graph, SparcClassifier, SpectralMap, load_model
from gsparc.datasets import make_blocks
from gsparc.estimators._views import NodeView, SeenNodes
from gsparc.exceptions import GraphError, InputError
from gsparc.training.batches import Scaling

pytest.importorskip("torch_geometric")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

DATA = make_blocks(190, 1500, 8, branching=(3,), noise=0.8, within=0.9, random_state=0)
X, NAMES = DATA.X, np.array([f"n{i}" for i in range(190)])
GRAPH = Graph.from_scipy(DATA.graph.to_scipy(), node_ids=NAMES.tolist())
SMALL: dict[str, Any] = {
    "spectral_map": SpectralMap(4, hidden_channels=(16,), max_steps=40, batch_size=128),
    "hidden_channels": 16,
    "num_tokens": 3,
    "num_heads": 4,
    "max_steps": 30,
    "batch_size": 64,
    "random_state": 0,
    "device": "cpu",
}
backbones = pytest.mark.parametrize("name", ["gcn", "gcn summary", "phormer", "samba", "mlp", "auto", "module"])


def network() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return pyg.GCN(8, 16, num_layers=2, out_channels=3)


@cache
def fitted(name: str) -> tuple[SparcClassifier, NodeView]:
    """A model, and the view that its training had of the seen nodes."""
    kept: list[NodeView] = []

    class Watched(SparcClassifier):
        def _fit_views(self, *arguments: Any) -> NodeView:
            kept.append(super()._fit_views(*arguments))
            return kept[-1]

    changes: dict[str, Any] = {"gcn_inference": "summary"} if name == "gcn summary" else {}
    backbone: Any = network() if name == "module" else name.partition(" ")[0]
    labels = np.where(np.arange(190) % 4 == 0, -1, DATA.y)
    return Watched(backbone, **SMALL | changes).fit(X, labels, graph=GRAPH), kept[0]


def test_some_seen_nodes_by_hand() -> None:
    # four directions of the plane; the nearest of node 0 are 1, 2 and 3, those of node 2 are 1, 0 and 3
    angles = np.deg2rad([0, 10, 25, 90])
    u = (2**0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)).astype(np.float32)
    rows = np.array([[1, 0], [0, 1], [5, 5], [3, 3]], np.float32)
    plain = Scaling(False, np.zeros(2, np.float32), np.ones(2, np.float32))
    seen, _ = SeenNodes.fit(rows, plain, u, torch.device("cpu"), seed=0)
    places = np.array([2, 0, 2])
    view, every = seen.view(rows[places], u[places], places), torch.arange(3)
    assert view.neighbors(every, 2)[0].tolist() == [[1, 0], [1, 2], [1, 0]]
    assert seen.view(rows[places], u[places]).neighbors(every, 2)[0].tolist() == [[2, 1], [0, 1], [2, 1]]
    means = [[0.5, 0.5], [2.5, 3.0], [0.5, 0.5]]  # of the two nearest others
    np.testing.assert_allclose(view.tokens(every, 1)[:, 1, :2], means, atol=1e-6)
    np.testing.assert_allclose(view.table(every)[:, :2], rows[places])
    np.testing.assert_allclose(view.tokens(every[1:2], 1)[0, 1, :2], means[1], atol=1e-6)


@backbones
def test_the_view_is_that_of_training(name: str) -> None:
    model, view = fitted(name)
    some = np.array([7, 3, 189, 3])  # in any order, and twice
    in_training = model._mixed(view)
    np.testing.assert_allclose(model.predict_seen_proba(X), in_training, atol=1e-5)
    np.testing.assert_allclose(model.predict_seen_proba(X[some], NAMES[some]), in_training[some], atol=1e-5)
    assert np.array_equal(model.predict_seen(X), model.classes_[model.predict_seen_proba(X).argmax(axis=1)])
    apart = np.abs(model.predict_proba(X) - in_training).max()
    assert (apart < 1e-5) == (name in ("mlp", "gcn summary"))  # these look for no neighbours


@backbones
def test_a_loaded_and_a_grown_model(name: str, tmp_path: Path) -> None:
    model = fitted(name)[0]
    SparcClassifier.save(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model", backbone=network() if name == "module" else None)
    np.testing.assert_allclose(loaded.predict_seen_proba(X), model.predict_seen_proba(X), atol=1e-5)
    new = X[:3] + np.float32(0.1)
    grown = loaded.grow(new, node_ids=["a", "b", "c"])
    assert grown.predict_seen_proba(np.concatenate([X, new])).shape == (193, 3)
    again = grown.predict_seen_proba(new[1:], ["b", "c"])
    if name in ("gcn", "phormer"):  # the nearest node is itself no longer
        assert not np.allclose(again, grown.predict_proba(new[1:]), atol=1e-4)


def test_self_inclusion_changes_the_answer() -> None:
    """The vote of one neighbour: a node that finds itself repeats its own label, whatever is around it."""
    model = SparcClassifier("auto", heads=["mlp", "vote"], **SMALL).fit(X, DATA.y, graph=DATA.graph)
    nearest = model.nearest(X, k=2)[0]
    assert np.array_equal(nearest[:, 0], np.arange(190))  # a row that is taken for a new node
    labels = DATA.y.copy()
    labels[0] = (labels[nearest[0, 1]] + 1) % 3  # not the label of the node next to it
    assert model._vote is not None
    model._vote.n_neighbors, model._vote.labels = 1, np.eye(3, dtype=np.float32)[labels]
    model._mixture = replace(model._mixture, weights={"vote": 1.0}, temperature=1.0)
    assert np.array_equal(model.predict(X), labels)
    assert np.array_equal(model.predict_seen(X), labels[nearest[:, 1]])
    assert model.predict_seen(X[:1], [0])[0] == (labels[0] - 1) % 3


def test_positions_where_the_graph_has_no_ids() -> None:
    model = SparcClassifier("gcn", **SMALL).fit(X, DATA.y, graph=DATA.graph)
    np.testing.assert_allclose(
        model.predict_seen_proba(X[[5, 9]], [5, 9]), model.predict_seen_proba(X)[[5, 9]], atol=1e-5
    )
    with pytest.raises(InputError, match="ids go from 5 to 190, expected 0 to 189"):
        model.predict_seen(X[[5, 9]], [5, 190])
    with pytest.raises(InputError, match="ids go from -1 to 5"):
        model.predict_seen(X[[5, 9]], [5, -1])
    for ids in ([5.0, 9.0], [True, False]):
        with pytest.raises(InputError, match="expected positions 0 to 189"):
            model.predict_seen(X[[5, 9]], ids)
    with pytest.raises(InputError, match=r"ids of shape \(1,\) came for 2 rows of X"):
        model.predict_seen(X[[5, 9]], [5])
    with pytest.raises(InputError, match="X has 2 rows and no ids came, expected the 190 seen nodes"):
        model.predict_seen(X[[5, 9]])
    with pytest.raises(InputError, match=r"row 0 of X is not that of node 9, which ids names \(2 such rows\)"):
        model.predict_seen(X[[5, 9]], [9, 5])


def test_unknown_ids() -> None:
    with pytest.raises(GraphError, match="nobody"):
        fitted("gcn")[0].predict_seen(X[:1], ["nobody"])


@pytest.mark.parametrize(("hidden", "taught"), [(19, False), (28, False), (29, True)])
def test_a_tenth_of_hidden_labels_calls_for_no_teachers(hidden: int, taught: bool) -> None:
    labels = DATA.y.copy()
    labels[:hidden] = -1  # of 190: a tenth to the node; 14.7 %; 15.3 %
    short: dict[str, Any] = SMALL | {"max_steps": 1}
    report = SparcClassifier("mlp", **short).fit(X, labels, graph=DATA.graph).report_
    assert ("teachers' soft labels" in report) == taught
