"""Every metric against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc import metrics
from gsparc.exceptions import InputError


def test_accuracy_and_macro_f1() -> None:
    truth, predicted = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0]
    assert metrics.accuracy(truth, predicted) == pytest.approx(4 / 6)
    # class 0: precision 2/3, recall 2/3; class 1: 2/3 and 1 -> 0.8; class 2 never right -> 0
    assert metrics.macro_f1(truth, predicted) == pytest.approx((2 / 3 + 0.8 + 0) / 3)
    with pytest.raises(InputError, match=r"\(2,\) and predictions of shape \(3,\)"):
        metrics.accuracy([0, 1], [0, 1, 2])


def test_expected_calibration_error() -> None:
    proba = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    # two bins (0, .5] and (.5, 1]: all four in the second; mean confidence .7375, accuracy 3/4
    assert metrics.expected_calibration_error(proba, [0, 0, 1, 0], n_bins=2) == pytest.approx(0.0125)
    # ten bins, each alone: |1-.9| + |1-.8| + |1-.7| + |0-.55| over 4
    assert metrics.expected_calibration_error(proba, [0, 0, 1, 0], n_bins=10) == pytest.approx(1.15 / 4)
    assert metrics.expected_calibration_error(np.eye(3), [0, 1, 2]) == 0.0
    with pytest.raises(InputError, match="n_classes"):
        metrics.expected_calibration_error(proba, [0])


def test_calibration_takes_column_numbers_only() -> None:
    proba = np.array([[0.75, 0.25], [0.25, 0.75]])
    for y in ([0, 1], [0.0, 1.0], np.array([0, 1], object), np.array([0, 1], np.uint8), [False, True]):
        assert metrics.expected_calibration_error(proba, y) == 0.25
    # a class without a column is wrong: confidence .75 against 1/2 of two
    assert metrics.expected_calibration_error(proba, [0, -1]) == 0.25
    for y in (["a", "b"], np.array(["a", "b"], object), [0, 2], [0, -2], [0, 0.5], [0, np.nan], [None, 1]):
        with pytest.raises(InputError, match=r"expected column numbers of the probabilities.*0 to 1.*searchsorted"):
            metrics.expected_calibration_error(proba, y)


@pytest.mark.parametrize("metric", [metrics.accuracy, metrics.macro_f1])
def test_numbers_are_not_compared_with_strings(metric) -> None:
    for truth in (["a", "b"], np.array(["a", "b"], object)):
        assert metric(truth, ["a", "b"]) == 1.0
        with pytest.raises(InputError, match=r"labels that are strings and predictions that are numbers.*classes_"):
            metric(truth, [0, 1])
        with pytest.raises(InputError, match="labels that are numbers and predictions that are strings"):
            metric([0, 1], truth)
    assert metrics.hungarian_accuracy(["a", "b"], [1, 0]) == 1.0  # clusters have names of their own
    with pytest.raises(InputError, match="classes that are strings and classes to match on that are numbers"):
        metrics.hungarian_accuracy(["a", "b"], [1, 0], matched_on=([0, 1], [1, 0]))
    with pytest.raises(InputError, match="clusters that are numbers and clusters to match on that are strings"):
        metrics.hungarian_accuracy(["a", "b"], [1, 0], matched_on=(["a", "b"], ["x", "y"]))


def test_clusters() -> None:
    truth, clusters = np.array([0, 0, 0, 1, 1, 2]), np.array([7, 7, 9, 9, 9, 9])
    # 7 -> 0 (2 right), 9 -> 1 (2 right), class 2 without a cluster
    assert metrics.hungarian_accuracy(truth, clusters) == pytest.approx(4 / 6)
    assert metrics.hungarian_accuracy([0, 1, 2], [2, 0, 1]) == 1.0
    # matched on others: 7 -> 0, 9 -> 1; a cluster and a class that the others lack are wrong
    others = [0, 1, 1], [7, 9, 9]
    assert metrics.hungarian_accuracy([0, 0, 1, 2, 1], [7, 9, 9, 9, 4], matched_on=others) == pytest.approx(2 / 5)
    assert metrics.hungarian_accuracy(["a"], ["x"], matched_on=(["a", "b"], ["x", "y"])) == 1.0
    with pytest.raises(InputError, match="two non-empty vectors"):
        metrics.hungarian_accuracy([0], [0], matched_on=([], []))
    assert metrics.nmi([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0.0, abs=1e-12)
    assert metrics.nmi([0, 0, 1, 1], [5, 5, 4, 4]) == pytest.approx(1.0)
    # pairs: both together 1 (of 6), in truth 2, in clusters 3; expected 2*3/6 = 1 -> (1-1)/(2.5-1) = 0
    assert metrics.ari([0, 0, 1, 1], [0, 0, 0, 1]) == pytest.approx(0.0, abs=1e-12)


def ranks_of(scores: list[list[float]], truth: list[list[int]], **options) -> metrics.LinkRanks:
    table = np.array(scores)
    return metrics.rank_links(lambda rows: table[rows], sp.csr_matrix(np.array(truth)), **options)


def test_link_ranks_by_hand() -> None:
    scores = [[0.9, 0.8, 0.7, 0.6, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]
    truth = [[0, 1, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]]
    ranks = ranks_of(scores, truth)
    assert ranks.rows.tolist() == [0, 1, 3]
    assert ranks.num_excluded == 1
    # row 0: node 1 below one false node -> 2; node 3 below nodes 0 and 2, node 1 filtered out -> 3 (raw 4)
    # row 3: both true nodes below node 4 and tied with nodes 0 and 3 (half each): 1 + 1 + 1 = 3;
    # raw: tied with three others: 1 + 1 + 1.5
    assert ranks.best_rank.tolist() == [2.0, 1.0, 3.0]
    assert ranks.edge_row.tolist() == [0, 0, 1, 2, 2]
    assert ranks.edge_rank.tolist() == [2.0, 3.0, 1.0, 3.0, 3.0]
    assert ranks.raw_rank.tolist() == [2.0, 4.0, 1.0, 3.5, 3.5]
    figures = metrics.link_metrics(ranks, ks=(1, 2, 4))
    assert figures["mrr"] == pytest.approx((1 / 2 + 1 + 1 / 3) / 3)
    assert figures["mrr_edges"] == pytest.approx((1 / 2 + 1 / 3 + 1 + 1 / 3 + 1 / 3) / 5)
    assert figures["hits@1"] == pytest.approx(1 / 3)
    assert figures["hits@2"] == pytest.approx(2 / 3)
    assert figures["recall@1"] == pytest.approx((0 + 1 + 0) / 3)
    assert figures["recall@2"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert figures["recall@4"] == 1.0
    assert (figures["num_evaluated"], figures["num_excluded"]) == (3, 1)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), batch_size=st.integers(1, 9))
def test_link_ranks_against_a_slow_count(seed: int, batch_size: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, size=(7, 20)).astype(np.float32)  # many ties
    truth = (rng.random((7, 20)) < 0.3).astype(int)
    ranks = ranks_of(scores.tolist(), truth.tolist(), batch_size=batch_size)
    expected = []
    for row, col in zip(*np.nonzero(truth), strict=True):
        false = scores[row][truth[row] == 0]
        expected.append(1 + (false > scores[row, col]).sum() + 0.5 * (false == scores[row, col]).sum())
    np.testing.assert_array_equal(ranks.edge_rank, expected)
    best = [ranks.edge_rank[ranks.edge_row == i].min() for i in range(len(ranks.rows))]
    np.testing.assert_array_equal(ranks.best_rank, best)


def test_a_constant_score_earns_nothing() -> None:
    ranks = ranks_of([[0.0] * 101], [[1] + [0] * 100])
    assert ranks.best_rank.tolist() == [51.0]


def test_links_without_any_true_pair() -> None:
    figures = metrics.link_metrics(ranks_of([[1.0, 2.0]], [[0, 0]]))
    assert np.isnan(figures["mrr"])
    assert (figures["num_evaluated"], figures["num_excluded"]) == (0, 1)


def test_bad_scores() -> None:
    with pytest.raises(InputError, match=r"returned shape \(1, 2\) for 1 rows, expected \(1, 3\)"):
        metrics.rank_links(lambda rows: np.zeros((1, 2)), sp.csr_array(np.ones((1, 3))))
    with pytest.raises(InputError, match="NaN"):
        metrics.rank_links(lambda rows: np.full((1, 3), np.nan), sp.csr_array(np.ones((1, 3))))


def test_global_hits() -> None:
    figures = metrics.global_hits([0.9, 0.6, 0.5], [0.7, 0.5, 0.2], ks=(1, 2, 3, 9))
    assert figures == {"hits@1": 1 / 3, "hits@2": 2 / 3, "hits@3": 1.0, "hits@9": 1.0}
    with pytest.raises(InputError, match="at least one true pair"):
        metrics.global_hits([], [0.1])


@pytest.fixture
def house() -> sp.csr_array:
    """Edges 0-1, 0-2, 1-2, 2-3, 3-4 and the isolated node 5."""
    pairs = np.array([[0, 0, 1, 2, 3], [1, 2, 2, 3, 4]])
    upper = sp.coo_array((np.full(5, 2.5), (pairs[0], pairs[1])), shape=(6, 6))
    return sp.csr_array(upper + upper.T)


def test_truth_matrix(house: sp.csr_array) -> None:
    truth = metrics.truth_matrix(house, rows=[2, 5], cols=[4, 3, 0, 1])
    assert truth.toarray().tolist() == [[0, 1, 1, 1], [0, 0, 0, 0]]

    class Wrapped:
        def to_scipy(self) -> sp.csr_array:
            return house

    assert (metrics.truth_matrix(Wrapped(), [2, 5], [4, 3, 0, 1]) != truth).nnz == 0
    assert house.data.max() == 2.5  # the graph itself keeps its weights


@pytest.mark.parametrize("batch_size", [1, 10])
def test_neighborhood_prediction(house: sp.csr_array, batch_size: int) -> None:
    cols = [1, 2, 3, 4]
    # node 0 (true: 1, 2) gets 2, 4: one of two strict; 2 near, 4 three hops away -> loose 1/2
    # node 5 has no neighbour and does not count
    figures = metrics.neighborhood_prediction(
        [[1, 3, 0], [0, 1, 2]], house, rows=[0, 5], cols=cols, batch_size=batch_size
    )
    assert figures == {"strict": 0.5, "loose": 0.5, "num_evaluated": 1, "num_excluded": 1}
    # 3 is two hops away: loose but not strict
    figures = metrics.neighborhood_prediction([[2, 1]], house, rows=[0], cols=cols, batch_size=batch_size)
    assert (figures["strict"], figures["loose"]) == (0.5, 1.0)
    with pytest.raises(InputError, match="at least 2 ids"):
        metrics.neighborhood_prediction([[1]], house, rows=[0], cols=cols)


def test_two_hops_may_pass_through_another_cold_node() -> None:
    # 0 - 1 - 2 and 0 - 3, cold: 0 and 1. Node 2 is two hops from 0, by way of the cold node 1.
    pairs = np.array([[0, 1, 0], [1, 2, 3]])
    upper = sp.coo_array((np.ones(3), (pairs[0], pairs[1])), shape=(4, 4))
    figures = metrics.neighborhood_prediction([[0], [0]], upper + upper.T, rows=[0, 1], cols=[2, 3])
    assert (figures["strict"], figures["loose"]) == (0.5, 1.0)


def test_grassmann_distance_by_hand() -> None:
    angle = 0.3
    plane = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    turned = np.array([[1.0, 0.0], [0.0, np.cos(angle)], [0.0, np.sin(angle)]])
    assert metrics.grassmann_distance(plane, turned) == pytest.approx(np.sin(angle) / np.sqrt(2))
    mixed = turned @ np.array([[2.0, 1.0], [0.0, -3.0]])  # another basis of the same span
    assert metrics.grassmann_distance(turned, mixed) == pytest.approx(0.0, abs=1e-7)
    assert metrics.grassmann_distance(plane[:, :1], plane) == pytest.approx(0.0, abs=1e-7)
    dependent = plane[:, [0, 0]]  # one direction of two is missing: a right angle
    assert metrics.grassmann_distance(dependent, plane) == pytest.approx(np.sqrt(0.5))
    with pytest.raises(InputError, match="same n"):
        metrics.grassmann_distance(plane, plane[:2])


def test_grassmann_distance_with_weights() -> None:
    u, v = np.array([[1.0], [1.0]]), np.array([[1.0], [-1.0]])
    assert metrics.grassmann_distance(u, v) == pytest.approx(1.0)
    # under pi = (3, 1) / 4: <u, v> = 1/2, |u| = |v| = 1 -> sin = sqrt(3)/2
    assert metrics.grassmann_distance(u, v, weights=[0.75, 0.25]) == pytest.approx(np.sqrt(0.75))
    with pytest.raises(InputError, match="negative"):
        metrics.grassmann_distance(u, v, weights=[1.0, -1.0])


def test_ritz_error() -> None:
    assert metrics.ritz_error([0.1, 0.5], [0.2, 0.2, 0.9]) == pytest.approx(0.2)
    assert metrics.ritz_error([0.1, 0.5], [0.2, 0.2], k=1) == pytest.approx(0.1)
    with pytest.raises(InputError, match="k=3"):
        metrics.ritz_error([0.1, 0.5], [0.2, 0.2], k=3)


def test_residuals() -> None:
    # the random walk on the path 0 - 1 - 2 with self-loops: pi = (2, 3, 2) / 7, f = (1, 0, -1), mu = 1/2
    walk = sp.csr_array(np.array([[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]]))
    f, pi = np.array([[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]), np.array([2, 3, 2]) / 7
    np.testing.assert_allclose(metrics.residuals(walk, f, [0.5, 1.0], pi), [0, 0], atol=1e-12)
    np.testing.assert_allclose(metrics.residuals(lambda v: walk @ v, f, [0.25, 0.4]), [0.25, 0.6])
    # f = (1, 0, 0): P f = (1/2, 1/3, 0), less f / 2 leaves (0, 1/3, 0): sqrt(3/7) / 3 over sqrt(2/7)
    one = metrics.residuals(walk, np.eye(3)[:, :1], [0.5], pi)
    np.testing.assert_allclose(one, [np.sqrt(3 / 2) / 3])
    assert np.isnan(metrics.residuals(walk, np.zeros((3, 1)), [1.0])).all()
    with pytest.raises(InputError, match=r"\(n, k\) and \(k,\)"):
        metrics.residuals(walk, f, [1.0])


def test_paired_difference() -> None:
    # differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t(.975, 2) = 4.302653
    mean, low, high = metrics.paired_difference([2, 4, 6], [1, 2, 3])
    assert mean == 2.0
    assert high - mean == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert mean - low == pytest.approx(high - mean)
    # t(.9, 1) = 3.077684; differences 0 and 2
    assert metrics.paired_difference([0, 2], [0, 0], confidence=0.8).high == pytest.approx(1 + 3.077684, rel=1e-6)
    single = metrics.paired_difference([1.0], [0.5])
    assert single.mean == 0.5
    assert np.isnan([single.low, single.high]).all()
    with pytest.raises(InputError, match="cannot be paired"):
        metrics.paired_difference([1, 2], [1])
    with pytest.raises(InputError, match="confidence=95"):
        metrics.paired_difference([1, 2], [1, 2], confidence=95)
