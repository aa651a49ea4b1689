"""The demo's computation on small graphs: with classes, without, and where there is nothing to show."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gsparc.datasets import Dataset
from gsparc.exceptions import GraphError
from gsparc.experiments import run_demo
from gsparc.graph import Graph
from gsparc.report import render_page


def ring(n: int = 80, *, labelled: bool) -> Dataset:
    """Points on a circle, each joined to the next two; the class is the half it lies in."""
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    X = np.column_stack([np.cos(angle), np.sin(angle)]).astype(np.float32)
    here = np.arange(n)
    edges = np.stack([np.r_[here, here], np.r_[(here + 1) % n, (here + 2) % n]])
    return Dataset(X, (angle >= np.pi).astype(np.int64) if labelled else None, Graph.from_edges(edges, n), name="ring")


def test_without_labels_only_links_are_shown() -> None:
    result = run_demo(ring(labelled=False), quick=True, max_steps=5)
    record = result.record
    assert result.classifier is None
    assert record["classification"] is None
    assert len(record["summary"]) == 1
    assert all(example["predicted"] == [] for example in record["examples"])
    assert record["split"]["cold_labelled"] == 0
    json.dumps(record, allow_nan=False)
    assert "Which class?" not in render_page(record)


def test_nodes_without_ids_are_called_by_their_position_in_the_data_set() -> None:
    data = ring(labelled=True)
    said: list[str] = []
    result = run_demo(data, seed=1, quick=True, max_steps=5, say=said.append)
    example = result.record["examples"][0]
    known = {str(node) for node in data.graph.neighbors(int(example["id"]))}
    assert {link["id"] for link in example["suggested"] if link["true"]} <= known
    assert not {link["id"] for link in example["suggested"] if not link["true"]} & known
    assert "fitting SparcClassifier" in said
    gains = result.record["gains"]
    assert [gain["over"] for gain in gains["accuracy"]] == ["MLP on features", "GLNN"]
    assert len(gains["mrr"]) == 3


def test_the_same_seed_gives_the_same_figures() -> None:
    first, second = (run_demo(ring(labelled=True), seed=3, quick=True, max_steps=5).record for _ in range(2))
    for key in ("classification", "links", "gains", "examples", "map", "spectrum"):
        assert first[key] == second[key], key


def test_a_graph_without_links_cannot_be_shown() -> None:
    data = Dataset(np.eye(10, dtype=np.float32), None, Graph.empty(10))
    with pytest.raises(GraphError, match="too few edges for a demo"):
        run_demo(data)
