"""Answers do not depend on the unit in which edges are weighed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc import Graph, SparcClassifier, SparcLinkPredictor, SpectralMap, baselines, load_model
from gsparc._cuts import in_units, mean_weight
from gsparc.datasets import communities_of_blobs

DATA = communities_of_blobs(160, num_blobs=8, dim=4, degree=8, random_state=0)
X, Y, X_NEW = DATA.X[:120], DATA.y[:120], DATA.X[120:]
EDGES = DATA.graph[range(120)]
PAIRS = np.stack(sp.triu(EDGES.to_scipy()).nonzero())
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2.0, EDGES.num_edges).astype(np.float32)
TWIGS = {"device": "cpu", "random_state": 0}


def weighted(unit: float) -> Graph:
    return Graph.from_edges(PAIRS, num_nodes=120, weights=WEIGHTS * np.float32(unit))


def spectral() -> SpectralMap:
    return SpectralMap(4, hidden_channels=(16,), max_steps=30, tau=0.5, **TWIGS)


class Sums(torch.nn.Module):
    """Neighbours by weight, and the node itself by one: what an absolute weight would change."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
        near = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * edge_weight[:, None])
        return self.layer(x + near)


def classes(backbone: Any, **changes: Any) -> Callable[[Graph], np.ndarray]:
    def answers(graph: Graph) -> np.ndarray:
        torch.manual_seed(0)
        module = Sums() if backbone == "module" else backbone
        model = SparcClassifier(module, spectral_map=spectral(), max_steps=30, **TWIGS, **changes)
        known = np.where(np.arange(120) < 60, Y, -1)
        return model.fit(X, known, graph=graph).predict_proba(X_NEW)

    return answers


def links(graph: Graph) -> np.ndarray:
    model = SparcLinkPredictor(4, spectral_steps=20, refine_steps=20, n_maps=1, **TWIGS)
    return model.fit(X, graph=graph).score_all(X_NEW)


ANSWERS: dict[str, Callable[[Graph], np.ndarray]] = {
    "map": lambda graph: spectral().fit(X, graph=graph).transform(X_NEW),
    "mlp with teachers": classes("mlp", distill=True),
    "module": classes("module", distill=False),
    "links": links,
    "Graph-MLP": lambda graph: baselines.GraphMLPBaseline(max_steps=5, **TWIGS).fit(X, Y, graph=graph).predict_proba(X),
    "popularity": lambda graph: baselines.FeatureCosineLinks("only").fit(X, graph=graph).score_all(X_NEW),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_another_unit_gives_the_same_answers(name: str) -> None:
    # powers of two change no digit of a weight, so not one of an answer either
    usual = ANSWERS[name](weighted(1.0)).tobytes()
    assert ANSWERS[name](weighted(2.0**-12)).tobytes() == usual
    assert ANSWERS[name](weighted(2.0**14)).tobytes() == usual


@pytest.mark.parametrize("name", ["map", "module"])
def test_equal_weights_are_no_weights(name: str) -> None:
    heavy = Graph.from_edges(PAIRS, num_nodes=120, weights=np.full(EDGES.num_edges, 1e4, np.float32))
    ones = Graph.from_edges(PAIRS, num_nodes=120, weights=np.ones(EDGES.num_edges, np.float32))
    assert ANSWERS[name](heavy).tobytes() == ANSWERS[name](ones).tobytes()


def test_edges_that_come_later_are_in_the_unit_of_the_first_ones(tmp_path: Path) -> None:
    found = []
    for unit in (1.0, 1024.0):
        torch.manual_seed(0)
        model = SparcClassifier(Sums(), spectral_map=spectral(), max_steps=30, distill=False, **TWIGS)
        model.fit(X, Y, graph=weighted(unit)).save(tmp_path / str(unit))
        loaded = load_model(tmp_path / str(unit), backbone=Sums())
        edges = ([120, 121], [0, 1], [3 * unit, unit])
        found.append(loaded.grow(X_NEW, edges=edges).predict_proba(X_NEW).tobytes())
    assert found[0] == found[1]


def test_weights_in_multiples_of_their_mean() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], weights=[2.0, 6.0])
    assert mean_weight(graph) == 4.0
    assert in_units(graph).degrees().tolist() == [0.5, 2.0, 1.5]
    assert in_units(graph, 2.0).degrees().tolist() == [1.0, 4.0, 3.0]
    plain = Graph.from_edges([[0], [1]])
    assert in_units(plain) is plain
    assert in_units(plain, 4.0).degrees().tolist() == [0.25, 0.25]
    assert in_units(in_units(graph)).weights is not None
    around_one = Graph.from_edges([[0, 1], [1, 2]], weights=[0.5, 1.5])
    assert in_units(around_one) is around_one


def test_weights_in_a_file_are_changed_there(tmp_path: Path) -> None:
    graph = weighted(8.0)
    graph.weights.tofile(tmp_path / "weights")
    mapped = np.memmap(tmp_path / "weights", np.float32, "r")
    found = in_units(Graph._from_mapped(graph.indptr, graph.indices, mapped)).weights
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, in_units(graph).weights)
