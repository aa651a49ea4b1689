"""Components by torch against those of scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc import Graph
from gsparc.ops import components
from gsparc.ops.components import connected_labels


def _labels(graph: Graph) -> list[int]:
    return connected_labels(torch.tensor(graph.indptr), torch.tensor(graph.indices)).tolist()


def test_a_component_is_named_by_its_smallest_node() -> None:
    graph = Graph.from_edges([[4, 3, 1], [3, 0, 5]], num_nodes=7)
    assert _labels(graph) == [0, 1, 2, 0, 0, 1, 6]


def test_a_long_path_in_any_order_is_one_component() -> None:
    order = np.random.default_rng(0).permutation(2000)
    assert _labels(Graph.from_edges(np.stack([order[:-1], order[1:]]))) == [0] * 2000


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_edges(np.random.default_rng(1).integers(0, 60, (2, 40)), num_nodes=60)
    expected = _labels(graph)
    monkeypatch.setattr(components, "_CHUNK", 7)
    assert _labels(graph) == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40))
@settings(deadline=None, max_examples=60)
def test_equals_scipy(edges: list[tuple[int, int]]) -> None:
    graph = Graph.from_edges(np.array(edges, np.int64).reshape(-1, 2).T, num_nodes=31)
    count, expected = graph.connected_components()
    found, labels = graph._components_on("cpu")
    assert found == count
    np.testing.assert_array_equal(labels, expected)
    assert labels.dtype == expected.dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_gives_the_same() -> None:
    graph = Graph.from_edges(np.random.default_rng(2).integers(0, 5000, (2, 2500)), num_nodes=5000)
    here, there = graph.connected_components(), graph.connected_components("cuda")
    assert here[0] == there[0]
    np.testing.assert_array_equal(here[1], there[1])
