"""The link table: both protocols' figures by hand, splits that are equal in meaning, every method in a smoke run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gsparc import ColdStartSplit, Graph
from gsparc.datasets import make_blocks
from gsparc.experiments.engine import Cell, Context
from gsparc.experiments.links import TABLE, LinkQuestion, false_pairs, link_question, measure, run, thin
from gsparc.metrics import truth_matrix

DATA = make_blocks(200, 1000, 8, branching=(4,), random_state=0)


class Fixed:
    """A model whose scores are written down; a row of X is the number of a cold node."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def score_all(self, X: np.ndarray) -> np.ndarray:
        return self.scores[X[:, 0]]


def test_both_protocols_by_hand() -> None:
    scores = np.array([[0.9, 0.8, 0.1, 0.2], [0.3, 0.7, 0.6, 0.5]])
    truth = sp.csr_array(np.array([[0, 1, 0, 1], [1, 0, 0, 0]], np.float32))
    false = np.array([0, 0, 1]), np.array([0, 2, 3])  # scores 0.9, 0.1, 0.5
    question = LinkQuestion(None, None, np.array([[0], [1]]), truth, false)  # type: ignore[arg-type]
    found = measure(Fixed(scores), question)
    # cold 0: best true neighbour (0.8) below one other: rank 2; its second (0.2), the first left out: rank 2
    # cold 1: true 0.3 below three others: rank 4
    assert found["mrr"] == pytest.approx(100 * (1 / 2 + 1 / 4) / 2)
    assert found["mrr_edges"] == pytest.approx(100 * (1 / 2 + 1 / 2 + 1 / 4) / 3)
    assert (found["hits@1"], found["hits@3"]) == (0, 50)
    assert found["recall@3"] == pytest.approx(100 * (1 + 0) / 2)
    assert found["global_hits@10"] == 100  # fewer false pairs than ten
    assert set(found) == {metric.name for metric in TABLE.metrics}


def test_global_hits_need_a_false_pair_to_beat() -> None:
    scores = np.linspace(0, 1, 40)[None, :]
    truth = sp.csr_array((scores == scores.max()).astype(np.float32) + (scores == scores[0, 20]))
    false = np.zeros(30, int), np.r_[0:20, 21:31]
    question = LinkQuestion(None, None, np.array([[0]]), truth, false)  # type: ignore[arg-type]
    found = measure(Fixed(scores), question)
    # the tenth best of the 30 false pairs is column 21, above the true pair at 20; the twentieth is column 10
    assert (found["global_hits@10"], found["global_hits@20"]) == (50, 100)


def test_false_pairs_of_cold_nodes_without_links_count() -> None:
    scores = np.array([[0.5, 0.1, 0.2], [0.9, 0.8, 0.7], [0.6, 0.3, 0.4]])
    truth = sp.csr_array(np.array([[1, 0, 0], [0, 0, 0], [0, 0, 1]], np.float32))
    # many false pairs of the node without links, out of order: nine of them, and one of another, are above 0.5
    false = np.array([1, 2, 1, 1, 1, 1, 1, 1, 1, 1]), np.array([2, 0, 0, 1, 0, 1, 2, 0, 1, 2])
    question = LinkQuestion(None, None, np.array([[0], [1], [2]]), truth, false)  # type: ignore[arg-type]
    found = measure(Fixed(scores), question)
    assert found["global_hits@10"] == 0  # the tenth best false pair has 0.6, the true ones 0.5 and 0.4
    assert found["global_hits@20"] == 100  # fewer than twenty
    assert found["mrr"] == pytest.approx(100 * (1 + 1 / 2) / 2)


@given(st.integers(1, 8), st.integers(2, 12), st.integers(0, 60), st.integers(0, 1000))
def test_false_pairs_are_false_and_different(m: int, n: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = sp.csr_array((rng.random((m, n)) < 0.3).astype(np.float32))
    rows, columns = false_pairs(truth, count, rng)
    assert len(rows) == min(count, (m * n - truth.nnz) // 2)
    assert len({*zip(rows.tolist(), columns.tolist(), strict=True)}) == len(rows)
    assert not any(truth[i, j] for i, j in zip(rows, columns, strict=True))


@given(st.floats(0, 1), st.integers(0, 100))
def test_thinning_drops_a_share_of_the_edges(share: float, seed: int) -> None:
    graph = DATA.graph
    left = thin(graph, share, np.random.default_rng(seed))
    assert left.num_edges == graph.num_edges - round(share * graph.num_edges)
    assert (left.num_nodes, left.weights) == (graph.num_nodes, None)
    assert (left.to_scipy().toarray() <= graph.to_scipy().toarray()).all()  # no edge is new


def test_thinning_keeps_weights_and_names() -> None:
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 3]], weights=[2.0, 3.0, 4.0], node_ids=["a", "b", "c", "d"])
    left = thin(graph, 0.34, np.random.default_rng(0))
    assert left.num_edges == 2
    kept = left.to_scipy().toarray()
    assert np.array_equal(kept[kept > 0], graph.to_scipy().toarray()[kept > 0])
    assert left.node_ids is not None
    assert left.node_ids.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("setting", ["dense", "paper"])
def test_the_split_is_the_split_of_that_name(setting: str) -> None:
    question = link_question(DATA, setting, 3, "generated")
    (fold,) = ColdStartSplit(setting, random_state=3).folds(DATA.X, DATA.y, DATA.groups)
    assert np.array_equal(question.X, DATA.X[fold.seen])
    assert np.array_equal(question.X_cold, DATA.X[fold.cold])
    assert question.graph == DATA.graph[fold.seen]
    assert (question.truth != truth_matrix(DATA.graph, fold.cold, fold.seen)).nnz == 0
    again = link_question(DATA, setting, 3, "generated")
    assert all(np.array_equal(a, b) for a, b in zip(question.false, again.false, strict=True))


@pytest.mark.parametrize(("dataset", "share"), [("cora", 0.3), ("pubmed", 0.1)])
def test_the_setting_of_llp(dataset: str, share: float) -> None:
    question = link_question(DATA, "llp", 0, dataset)
    assert len(question.X_cold) == round(share * 200)
    assert len(question.X) == 200 - len(question.X_cold)  # nobody is left out for validation
    assert len(question.false[0]) == round(share * DATA.graph.num_edges)
    (fold,) = ColdStartSplit("dense", cold=share, validation=0.0, random_state=0).folds(DATA.X, DATA.y)
    among = DATA.graph[fold.seen].num_edges
    assert question.graph.num_edges == among - round((share + 0.1) * among)
    assert question.truth.nnz == truth_matrix(DATA.graph, fold.cold, fold.seen).nnz  # all of them are asked for


@pytest.mark.parametrize("label", [method.label for method in TABLE.methods])
def test_every_method_in_a_smoke_run(label: str) -> None:
    found = run(Cell("generated", "dense", label, 0), Context("generated", "cpu", smoke=True))
    assert set(found) == {metric.name for metric in TABLE.metrics} | {"seconds"}
    assert all(0 <= found[metric.name] <= 100 for metric in TABLE.metrics)


def test_a_smoke_run_in_the_setting_of_llp() -> None:
    cell, context = Cell("generated", "llp", "feature cosine", 0), Context("generated", "cpu", smoke=True)
    first, again = run(cell, context), run(cell, context)
    other = run(dataclasses.replace(cell, seed=1), context)
    assert first["mrr"] == again["mrr"] != other["mrr"]


def test_the_paper_s_figures_stand_beside_methods_of_the_table() -> None:
    labels = {method.label for method in TABLE.methods}
    for dataset, setting, label in TABLE.paper:
        assert dataset in TABLE.datasets
        assert setting in TABLE.settings(dataset)
        assert label in labels
    assert TABLE.paper["cora", "paper", "SPARC"] == {"mrr": 31.25}


def test_llp_s_own_figures_stand_beside_hits_and_never_beside_an_mrr() -> None:
    assert TABLE.paper["cora", "llp", "LLP"] == {"global_hits@20": 27.87}
    assert TABLE.paper["pubmed", "llp", "LLP-MLP"] == {"global_hits@20": 38.01}
    for (_, setting, label), figures in TABLE.paper.items():
        assert set(figures) == ({"global_hits@20"} if label.startswith("LLP") else {"mrr"})
        assert (setting == "llp") == label.startswith("LLP")
