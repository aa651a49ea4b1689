"""Comparisons, examples and sentences of the demo, on values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gsparc.exceptions import LabelError
from gsparc.experiments.comparison import compare_classifiers, compare_links, interval, paired_gain
from gsparc.experiments.examples import Candidates, choose_examples, describe_example
from gsparc.experiments.layout import project_2d, sample_rows
from gsparc.experiments.sentences import summary_sentences, words_for


def test_classifiers_are_compared_on_the_same_nodes() -> None:
    proba = {"a": [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], "b": [[0.2, 0.8], [0.2, 0.8], [0.2, 0.8]]}
    rows, right = compare_classifiers([2, 2, 5], proba, [2, 5], ours=["a"])
    assert [row["accuracy"] for row in rows] == [1.0, pytest.approx(1 / 3)]
    assert [row["ours"] for row in rows] == [True, False]
    assert rows[0]["ece"] == pytest.approx(0.2)  # (0.1 + 0.2 + 0.3) / 3, each in a bin of its own
    assert paired_gain(right["a"], right["b"], "b")["mean"] == pytest.approx(2 / 3)


def test_a_class_never_seen_counts_as_missed() -> None:
    rows, right = compare_classifiers([0, 7], {"a": [[1.0, 0.0], [1.0, 0.0]]}, [0, 1])
    assert rows[0]["accuracy"] == 0.5
    assert rows[0]["ece"] == 0.5
    assert right["a"].tolist() == [1.0, 0.0]


def test_nothing_to_compare() -> None:
    with pytest.raises(LabelError, match="nothing to compare"):
        compare_classifiers([], {"a": np.empty((0, 2))}, [0, 1])


def test_links_are_ranked_for_every_method() -> None:
    truth = sp.csr_array(np.array([[0, 0, 1], [1, 0, 0]]))
    X = np.array([[0.1, 0.5, 0.9], [0.1, 0.5, 0.9]])
    said: list[str] = []
    scorers = {"up": lambda part: part, "down": lambda part: -part}
    rows, ranks = compare_links(X, truth, scorers, ours=["up"], progress=said.append)
    assert said == ["up", "down"]
    assert ranks["up"].tolist() == [1.0, 3.0]
    assert ranks["down"].tolist() == [3.0, 1.0]
    assert [row["mrr"] for row in rows] == [pytest.approx(2 / 3)] * 2


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_an_interval_surrounds_the_mean(values: list[float]) -> None:
    low, high = interval(values)
    assert low is not None
    assert high is not None
    assert low <= np.mean(values) + 1e-12
    assert high >= np.mean(values) - 1e-12


def test_one_node_has_no_interval() -> None:
    assert interval([1.0]) == [None, None]


def test_examples_show_a_mistake_too() -> None:
    nodes = Candidates(
        degree=np.array([9, 3, 5, 4, 1]),
        found=np.array([1, 4, 1, 0, 8]),
        right=np.array([False, True, True, False, True]),
        labelled=np.array([True, True, True, False, True]),
        confidence=np.array([0.7, 0.9, 0.6, 1.0, 1.0]),
    )
    # node 4 has too few links, node 3 no known class
    assert choose_examples(nodes) == [("good", 1), ("typical", 2), ("mistake", 0)]


def test_examples_without_classes_or_without_mistakes() -> None:
    assert choose_examples(Candidates(np.array([3, 3, 7]), np.array([2, 1, 0]))) == [
        ("good", 0),
        ("typical", 1),
        ("mistake", 2),
    ]
    assert choose_examples(Candidates(np.array([1]), np.array([1]))) == [("good", 0)]


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_examples_are_different_nodes(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    right, known = rng.random(count) < 0.5, rng.random(count) < 0.8
    nodes = Candidates(rng.integers(0, 6, count), rng.integers(0, 4, count), right, known, rng.random(count))
    chosen = choose_examples(nodes)
    places = [place for _, place in chosen]
    assert len(set(places)) == len(places) <= 3
    assert all(known[place] and right[place] == (kind != "mistake") for kind, place in chosen)


def test_an_example_in_words() -> None:
    record = describe_example(
        "mistake",
        "new",
        words=words_for("any"),
        truth_row=sp.csr_array(np.array([[0, 1, 1]])),
        seen_names=np.array(["a", "b", "c"]),
        suggested=(np.array([1, 0]), np.array([0.9, 0.2])),
        nearest=(np.array([2]), np.array([0.5])),
        proba=np.array([0.75, 0.25]),
        class_names=np.array(["red", "blue"]),
        seen_class=np.array([0, 0, -1]),
        true_class=1,
    )
    assert record["suggested"] == [
        {"id": "b", "score": 0.9, "true": True},
        {"id": "a", "score": 0.2, "true": False},
    ]
    assert (record["found"], record["links"], record["correct"], record["true"]) == (1, 2, False, "blue")
    assert record["nearest"] == [{"id": "c", "class": None, "distance": 0.5}]
    assert record["why"].startswith("The most confident wrong class: red at 75 %, but it is blue. 1 of 2")


def _record(low: float, high: float) -> dict:
    gain = {"mean": (low + high) / 2, "low": low, "high": high}
    return {
        "words": words_for("debian"),
        "classification": [
            {"method": "MLP on features", "ours": False, "accuracy": 0.5},
            {"method": "gsparc", "ours": True, "accuracy": 0.6},
        ],
        "links": [
            {"method": "feature cosine", "ours": False, "mrr": 0.2},
            {"method": "cosine + popularity", "ours": False, "mrr": 0.4},
            {"method": "gsparc", "ours": True, "mrr": 0.3},
        ],
        "gains": {
            "accuracy": [{"over": "MLP on features", **gain}],
            "mrr": [{"over": "feature cosine", **gain}, {"over": "cosine + popularity", **gain}],
        },
    }


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.05, 0.15, "gsparc is ahead of the MLP: +10.0 points, 95 % interval +5.0 to +15.0."),
        (0.0004, 0.02, "no clear difference to the MLP: +1.0 points, 95 % interval +0.0 to +2.0."),
        (-0.02, 0.04, "no clear difference to the MLP"),
        (-0.3, -0.1, "gsparc loses to the MLP here"),
    ],
)
def test_the_summary_is_honest(low: float, high: float, verdict: str) -> None:
    sections, links = summary_sentences(_record(low, high))
    assert verdict in sections
    assert "right for 60.0 %, an MLP on the same features for 50.0 %" in sections
    assert "MRR 0.300, 1.50 times that of feature cosine (0.200)" in links
    assert "the best baseline, cosine + popularity, reaches 0.400" in links


def test_few_points_are_projected_by_principal_components() -> None:
    points, how = project_2d([[0.0, 0, 3], [0, 0, -3], [0, 1, 0], [0, -1, 0]], [1, 1, 1], seed=0)
    assert how.startswith("Principal")
    np.testing.assert_allclose(np.abs(points), [[3, 0], [3, 0], [0, 1], [0, 1]], atol=1e-12)
    assert project_2d([[1.0], [2.0]], [1.0], seed=0)[0].shape == (2, 2)


def test_many_points_keep_their_groups() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 40)
    points, how = project_2d(np.eye(3)[group] + 0.05 * rng.normal(size=(80, 3)), np.ones(3), seed=0)
    assert how.startswith("t-SNE")
    near = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(near, np.inf)
    assert (group[near.argmin(axis=1)] == group).all()


def test_rows_are_sampled_without_repeats() -> None:
    rows = sample_rows(100, 10, np.random.default_rng(0))
    assert len(set(rows.tolist())) == 10
    assert (np.diff(rows) > 0).all()
