"""The graph matters: features say which blob a node is in, and only edges say which blobs form a class."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from gsparc import ColdStartSplit, Graph, SparcClassifier, SpectralMap
from gsparc.baselines import MLPBaseline
from gsparc.datasets import communities_of_blobs

MAP = SpectralMap(3, hidden_channels=(256,), oversample=8, batch_size=1024, max_steps=200, learning_rate=1e-2)
SETTINGS: dict[str, dict[str, Any]] = {
    "gcn": {"max_steps": 60, "hidden_channels": (32, 32), "batch_size": 128},
    "gcn summary": {"max_steps": 60, "gcn_inference": "summary"},
    "phormer": {"max_steps": 30, "hidden_channels": 32, "num_heads": 4, "num_tokens": 6, "batch_size": 128},
    "samba": {"max_steps": 30, "hidden_channels": 32, "num_tokens": 6, "batch_size": 64, "learning_rate": 3e-3},
    "torch_geometric": {"max_steps": 40, "batch_size": 64},
}


class Problem(NamedTuple):
    """Seen nodes with five labels a class, and cold ones."""

    X: np.ndarray
    labels: np.ndarray
    graph: Graph
    X_cold: np.ndarray
    y_cold: np.ndarray


@cache
def problem(seed: int) -> Problem:
    data = communities_of_blobs(random_state=seed)
    seen, _, cold = next(iter(ColdStartSplit("dense", random_state=seed).split(data.X, data.y)))
    rng = np.random.default_rng(seed)
    labels = np.full(len(seen), -1)
    for label in range(4):
        labels[rng.choice(np.flatnonzero(data.y[seen] == label), 5, replace=False)] = label
    return Problem(np.asarray(data.X)[seen], labels, data.graph[seen], np.asarray(data.X)[cold], data.y[cold])


def classifier(name: str, seed: int, **changes: Any) -> SparcClassifier:
    backbone: Any = name.partition(" ")[0]
    if name == "torch_geometric":
        pytest.importorskip("torch_geometric")
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            from torch_geometric.nn import GCN

            torch.manual_seed(seed)
            backbone = GCN(32, 32, num_layers=2, out_channels=4)
    settings = {"spectral_map": MAP, "random_state": seed, "device": "cpu"} | SETTINGS[name]
    return SparcClassifier(backbone, **settings | changes)


@pytest.mark.parametrize("seed", range(5))
def test_features_alone_do_not_say(seed: int) -> None:
    X, labels, _, X_cold, y_cold = problem(seed)
    model = MLPBaseline(max_steps=100, random_state=seed, device="cpu").fit(X, labels)
    assert model.score(X_cold, y_cold) < 0.6  # 20 of 200 blobs are known: 33 % on average


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in SETTINGS for seed in range(2 if name == "gcn summary" else 5)]
)
def test_with_the_graph_cold_nodes_are_found(name: str, seed: int) -> None:
    X, labels, graph, X_cold, y_cold = problem(seed)
    model = classifier(name, seed).fit(X, labels, graph=graph)
    assert model.score(X_cold, y_cold) >= 0.9


@pytest.mark.parametrize("name", ["gcn", "phormer", "samba", "torch_geometric"])
def test_by_the_eigenspace_alone_without_teachers(name: str) -> None:
    X, labels, graph, X_cold, y_cold = problem(0)
    model = classifier(name, 0, distill=False).fit(X, labels, graph=graph)
    assert model.score(X_cold, y_cold) >= 0.9


@pytest.mark.parametrize("name", ["gcn", "phormer", "samba", "torch_geometric"])
def test_it_is_the_edges_that_say_it(name: str) -> None:
    # the same graph between nodes that have changed places: degrees stay, what the edges mean is gone
    X, labels, graph, X_cold, y_cold = problem(0)
    places = np.random.default_rng(0).permutation(len(X))
    model = classifier(name, 0).fit(X, labels, graph=Graph.from_scipy(graph.to_scipy()[places][:, places]))
    assert model.score(X_cold, y_cold) < 0.6


def test_at_its_defaults_and_without_teachers_a_convolution_reads_the_eigenspace() -> None:
    X, labels, graph, X_cold, y_cold = problem(0)
    model = SparcClassifier("gcn", distill=False, max_steps=60, device="cpu", random_state=0)
    model.fit(X, labels, graph=graph)
    assert model.score(X_cold, y_cold) >= 0.9
