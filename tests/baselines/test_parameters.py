"""Numbers that no baseline can use are refused by all of them in the same words, before anything is computed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from gsparc import Graph, baselines
from gsparc.baselines._parameters import check_parameters
from gsparc.exceptions import GraphError, InputError

EVERY = [getattr(baselines, name) for name in baselines.__all__]
BAD = {
    "max_steps": 0,
    "teacher_steps": -1,
    "hidden_channels": 0,
    "channels": 1.5,
    "num_layers": 0,
    "num_heads": 0,
    "n_neighbors": 0,
    "n_clusters": 0,
    "n_starts": 0,
    "batch_size": 0,
    "dropout": 2.0,
    "input_dropout": -0.1,
    "edge_dropout": float("nan"),
    "learning_rate": -1.0,
    "weight_decay": -1.0,
    "margin": float("nan"),
    "penalty": -1,
    "gamma": "much",
    "C": 0,
}
CASES = [(kind, name) for kind in EVERY for name in inspect.signature(kind).parameters if name in BAD]


def small() -> tuple[np.ndarray, np.ndarray, Graph]:
    ring = Graph.from_edges(np.array([np.arange(24), np.roll(np.arange(24), 1)]))
    return np.eye(24), np.repeat([0, 1], 12), ring


def fit(model: Any, X: np.ndarray, y: np.ndarray, graph: Graph) -> Any:
    """With the graph where the baseline looks at it."""
    return model.fit(X, y, graph=graph) if "graph" in inspect.signature(model.fit).parameters else model.fit(X, y)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_number_that_cannot_be_used(kind: type, name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name}=.*came, expected"):
        fit(kind(**{name: BAD[name]}), *small())


def test_defaults_are_good_and_every_name_is_met() -> None:
    assert {name for _, name in CASES} == set(BAD)  # none of them is gone from all baselines
    for kind in EVERY:
        check_parameters(kind())  # defaults are good


@pytest.mark.parametrize("kind", [baselines.NAGphormerBaseline, baselines.FeatureTransformerBaseline])
def test_heads_divide_the_width(kind: type) -> None:
    with pytest.raises(InputError, match="num_heads=3 came, expected a divisor of hidden_channels=64"):
        fit(kind(hidden_channels=64, num_heads=3), *small())


@pytest.mark.parametrize("given", [64, (64,), (64, 0), ("a", 2)])
def test_widths_of_two_layers(given: Any) -> None:
    with pytest.raises(InputError, match=r"hidden_channels=.*came, expected"):
        fit(baselines.SpectralGCNBaseline(hidden_channels=given), *small())


@pytest.mark.parametrize("kind", EVERY)
def test_no_edges_are_told_without_advice_that_is_refused(kind: type) -> None:
    X, y, _ = small()
    parameters = inspect.signature(kind.fit).parameters
    if "graph" not in parameters or parameters["graph"].default is None:
        pytest.skip("does not look at the graph")
    with pytest.raises(GraphError, match=r"has no edges.*Pass edges\.$"):
        kind().fit(X, y, graph=Graph.from_edges(np.empty((2, 0), np.int64), num_nodes=24))
