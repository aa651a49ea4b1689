"""The neighbourhood table: shares by hand, blocks and samples that do not change them, every space in a smoke run."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc import ColdStartSplit, Graph
from gsparc.datasets import make_blocks
from gsparc.estimators._ranking import FeatureView
from gsparc.experiments import neighbourhood as module
from gsparc.experiments.engine import Cell, Context
from gsparc.experiments.neighbourhood import TABLE, by_cosine, by_distance, neighbourhood, run

PATH = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]])  # 0 - 1 - 2 - 3 - 4
DATA = make_blocks(150, 700, 8, branching=(3,), random_state=0)
SMOKE = Context("generated", "cpu", smoke=True)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_scores_by_hand(form) -> None:
    X, rows = form(np.array([[3.0, 4.0], [0.0, 2.0]])), form(np.array([[6.0, 8.0]]))
    np.testing.assert_allclose(by_cosine(X)(rows), [[1.0, 0.8]], rtol=1e-6)
    # squared distances 25 and 72, less the 100 that both share
    np.testing.assert_allclose(by_distance(X)(rows), [[75.0, 28.0]], rtol=1e-6)


def test_positions_on_a_line_find_the_neighbours_of_a_path() -> None:
    position = np.arange(5.0)[:, None]
    everyone = np.arange(5)
    score = by_distance(position)
    found = neighbourhood(lambda at: score(position[at]), PATH, everyone, everyone)
    assert found == {"strict": 100, "loose": 100}


def test_a_wrong_order_by_hand() -> None:
    # every node prefers 4, then 3, then 2, ..., whoever asks; itself is left out
    everyone = np.arange(5)
    found = neighbourhood(lambda at: np.tile(np.arange(5.0), (len(at), 1)), PATH, everyone, everyone)
    # answers: 0 -> 4; 1 -> 4, 3; 2 -> 4, 3; 3 -> 4, 2; 4 -> 3
    assert found["strict"] == pytest.approx(100 * (0 + 0 + 1 / 2 + 1 + 1) / 5)
    # within two hops: none; 3 of 1's; both of 2's; both of 3's; all of 4's
    assert found["loose"] == pytest.approx(100 * (0 + 1 / 2 + 1 + 1 + 1) / 5)


def test_cold_nodes_among_seen_ones_by_hand() -> None:
    # cold 2 has seen neighbours 1 and 3; it answers columns 0 and 2 of (0, 1, 3, 4), the nodes 0 and 3
    found = neighbourhood(lambda at: np.array([[3.0, 1.0, 2.0, 0.0]]), PATH, np.array([2]), np.array([0, 1, 3, 4]))
    assert found == {"strict": 50, "loose": 100}


def test_nobody_with_a_neighbour_has_no_share() -> None:
    found = neighbourhood(lambda at: np.zeros((len(at), 1)), PATH, np.array([0]), np.array([4]))
    assert set(found) == {"strict", "loose"}
    assert all(np.isnan(value) for value in found.values())


def test_blocks_change_nothing_and_isolated_nodes_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_scipy(sp.block_diag([DATA.graph.to_scipy(), sp.csr_array((5, 5))], format="csr"))
    X = np.random.default_rng(0).standard_normal((155, 4))
    everyone, score = np.arange(155), by_cosine(X)
    whole = neighbourhood(lambda at: score(X[at]), graph, everyone, everyone)
    monkeypatch.setattr(module, "_CELLS", 155 * 7)
    cut = neighbourhood(lambda at: score(X[at]), graph, everyone, everyone)
    assert cut == pytest.approx(whole)
    alone = neighbourhood(lambda at: by_cosine(X[:150])(X[at]), DATA.graph, np.arange(150), np.arange(150))
    assert alone["loose"] != 0
    assert set(alone) == {"strict", "loose"}


def test_a_sample_of_nodes_is_asked() -> None:
    asked: list[int] = []

    def score(at: np.ndarray) -> np.ndarray:
        asked.extend(at.tolist())
        return np.zeros((len(at), 150))

    everyone = np.arange(150)
    neighbourhood(score, DATA.graph, everyone, everyone, max_nodes=20, seed=1)
    first, asked = asked, []
    neighbourhood(score, DATA.graph, everyone, everyone, max_nodes=20, seed=1)
    assert len(set(first)) == 20
    assert first == asked


@pytest.mark.parametrize("label", [method.label for method in TABLE.methods])
def test_every_space_in_a_smoke_run(label: str) -> None:
    found = run(Cell("generated", "dense", label, 0), SMOKE)
    wanted = {metric.name for metric in TABLE.metrics} | {"seconds"}
    if label == "spectral embedding":  # it has no place for a cold node
        wanted = {name for name in wanted if not name.startswith("cold")}
    assert set(found) == wanted
    assert all(0 <= value <= 100 for name, value in found.items() if name != "seconds")


def test_true_eigenvectors_know_more_than_features() -> None:
    known, plain = (run(Cell("generated", "dense", label, 0), SMOKE) for label in ("spectral embedding", TABLE_COSINE))
    assert known["connected_strict"] > plain["connected_strict"]


TABLE_COSINE = "features, cosine"


def test_weighed_features_are_weighed_by_seen_nodes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list = []

    class Spy(FeatureView):
        @classmethod
        def fit(cls, X):
            fitted.append(X)
            return super().fit(X)

    monkeypatch.setattr("gsparc.estimators._ranking.FeatureView", Spy)
    run(Cell("generated", "dense", "features, weighed", 0), SMOKE)
    (fold,) = ColdStartSplit("dense", random_state=0).folds(SMOKE.data.X, SMOKE.data.y, SMOKE.data.groups)
    (X,) = fitted
    assert (abs(X - SMOKE.data.X[fold.seen])).max() == 0


def test_what_is_skipped_says_why() -> None:
    assert TABLE.skip("cora", "dense", "spectral embedding") is None
    assert "hours" in str(TABLE.skip("amazon2m", "dense", "spectral embedding"))
    for dataset, setting, label in TABLE.paper:
        assert setting in TABLE.settings(dataset)
        assert label in {method.label for method in TABLE.methods}
