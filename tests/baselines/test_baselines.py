"""Baselines: what they rank and classify by, worked out by hand."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc import Graph, baselines
from gsparc.baselines import FeatureCosineLinks, MLPBaseline, WeighedCosineLinks, feature_cosine
from gsparc.datasets import make_blocks
from gsparc.estimators._ranking import LinkWeights, choose_weights
from gsparc.estimators._shift import NodeShift
from gsparc.exceptions import FeatureError, LabelError, UnknownNameError
from gsparc.training.spectral import hold_out

FEATURES = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 0.0]])
STAR = Graph.from_edges([[3, 3, 3], [0, 1, 2]], num_nodes=4, node_ids=["a", "b", "c", "hub"])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_cosine_by_hand(form) -> None:
    model = FeatureCosineLinks().fit(form(FEATURES), graph=STAR)
    query = form(np.array([[3.0, 0.0]]))
    np.testing.assert_allclose(model.score_all(query), [[1, 0.5**0.5, 0, -1]], atol=1e-6)
    ids, scores = model.predict_links(query, k=3)
    assert ids.tolist() == [["a", "b", "c"]]
    np.testing.assert_allclose(scores, [[1, 0.5**0.5, 0]], atol=1e-6)


def test_degree_alone_by_hand() -> None:
    model = FeatureCosineLinks("only").fit(FEATURES, graph=STAR)
    np.testing.assert_allclose(model.score_all(FEATURES[:2]), np.log([[2, 2, 2, 4]] * 2), rtol=1e-6)
    assert model.predict_links(FEATURES[:1], k=1)[0].tolist() == [["hub"]]


def test_degree_is_weighed_on_held_out_nodes() -> None:
    # a star of 80 around one node, features are noise: popularity alone tells where links go
    X = np.random.default_rng(0).standard_normal((81, 5))
    star = Graph.from_edges(np.array([np.zeros(80, int), np.arange(1, 81)]), num_nodes=81)
    seeds = range(3)
    models = [FeatureCosineLinks("degree", random_state=seed).fit(X, graph=star) for seed in seeds]
    assert all(model.weight_ > 0 for model in models)
    assert FeatureCosineLinks("degree").fit(FEATURES, graph=STAR).weight_ == 0.0  # too few nodes to hold any out


# 8 nodes and 4 words: word 0 in four nodes, words 1 and 2 in two each, word 3 in one
WORDS = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]] + [[0] * 4] * 2)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rare_words_count_more_by_hand(form) -> None:
    graph = Graph.from_edges([[0], [1]], num_nodes=8)  # too few edges to hold any node out
    model = WeighedCosineLinks(random_state=0, device="cpu").fit(form(WORDS.astype(np.float32)), graph=graph)
    common, middle, rare = np.log([8 / 5, 8 / 3, 8 / 2])  # log(n / (1 + nodes with the word))
    found = model.score_all(form(np.array([[1.0, 0, 0, 1]])))
    lengths = np.hypot(common, rare), np.hypot(common, middle)
    with_1 = common * common / (lengths[0] * lengths[1])
    np.testing.assert_allclose(found, [[1, with_1, with_1, common / lengths[0], 0, 0, 0, 0]], atol=1e-6)
    assert (model.weights_.map_share, model.weights_.popularity, model.weights_.smooth_features) == (0, 0, 0)


def test_neighbours_and_popularity_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = LinkWeights(map_share=0.0, smooth_features=0.6, popularity=0.3)
    monkeypatch.setattr(feature_cosine, "hold_out", lambda graph, share, seed: Held)
    monkeypatch.setattr(feature_cosine, "Retrieval", lambda *given: None)
    monkeypatch.setattr(feature_cosine, "choose_weights", lambda trials, *given, **more: (weights, NodeShift(), {}))
    X = np.eye(4, dtype=np.float32)  # counts; all words are as rare
    model = WeighedCosineLinks(random_state=0, device="cpu").fit(X, graph=STAR)
    # a: 0.4 a + 0.6 (a + hub) / 2 = 0.7 a + 0.3 hub; hub: 0.4 hub + 0.6 (a + b + c + hub) / 4
    leaf, hub = np.array([0.7, 0.3]), np.array([0.15, 0.15, 0.15, 0.55])
    cosines = [0.7 / np.linalg.norm(leaf), 0, 0, 0.15 / np.linalg.norm(hub)]
    expected = np.array(cosines) + 0.3 * np.log([2, 2, 2, 4])
    np.testing.assert_allclose(model.score_all(X[:1]), [expected], atol=1e-6)
    ids, scores = model.predict_links(X[:1], k=2)
    assert ids.tolist() == [["a", "hub"]]
    np.testing.assert_allclose(model.score_pairs(X[:1], ids), scores, atol=1e-6)


class Held:
    """A hold-out that nobody looks at."""

    train = np.arange(4)


def test_weights_are_chosen_on_seen_nodes_as_our_own_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list = []

    def spy(trials, view, **more):
        seen.append((trials, more))
        return choose_weights(trials, view, **more)

    monkeypatch.setattr(feature_cosine, "choose_weights", spy)
    model = WeighedCosineLinks(random_state=7, device="cpu").fit(BLOCKS.X, graph=BLOCKS.graph)
    ((trials, more),) = seen
    assert more == {"popularity": True, "exact": True, "device": torch.device("cpu")}
    assert len(trials) == 3  # hold-outs with seeds 7, 8 and 9, as for three maps
    for i, (graph, train, retrieval, vectors) in enumerate(trials):
        held = hold_out(BLOCKS.graph, 0.2, 7 + i)
        assert np.array_equal(train, held.train)
        assert graph == BLOCKS.graph[train]  # no edge of a held-out node
        assert not np.isin(retrieval.queries, train).any()
        assert vectors is None
    assert model.report_["mrr_chosen"] >= model.report_["mrr_features_alone"]
    assert "mrr_map_alone" not in model.report_
    assert model.weights_.smooth_features > 0  # neighbours of noisy blocks say more than one node does
    assert model.weights_.map_share == 0


def test_unknown_prior() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown prior 'degre'. Did you mean 'degree'"):
        FeatureCosineLinks("degre").fit(FEATURES, graph=STAR)  # type: ignore[arg-type]


BLOCKS = make_blocks(200, 800, 6, branching=(3,), noise=0.3, random_state=0)


@pytest.mark.parametrize(
    "labels",
    [BLOCKS.y, np.array(["x", "y", "z"])[BLOCKS.y], BLOCKS.y == 1, np.where(BLOCKS.y == 1, 1, -1)],
    ids=["integers", "strings", "booleans", "minus and plus one"],
)
def test_the_mlp_learns_what_features_tell(labels: np.ndarray) -> None:
    model = MLPBaseline(max_steps=100, random_state=0, device="cpu").fit(BLOCKS.X[:150], labels[:150])
    assert model.classes_.tolist() == np.unique(labels).tolist()
    assert (model.predict(BLOCKS.X[150:]) == labels[150:]).mean() > 0.9
    proba = model.predict_proba(BLOCKS.X[150:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert proba.shape == (50, len(model.classes_))


def mlp(**changes) -> MLPBaseline:
    return MLPBaseline(**{"max_steps": 20, "random_state": 0, "device": "cpu"} | changes)


def test_unlabelled_nodes_do_not_count() -> None:
    # twice the same rows, the second time without labels: their means and deviations are those of the first
    X = np.concatenate([BLOCKS.X[:100], BLOCKS.X[:100]])
    hidden = np.concatenate([BLOCKS.y[:100], np.full(100, -1)])
    model = mlp().fit(X, hidden)
    assert model.classes_.tolist() == [0, 1, 2]
    alone = mlp().fit(BLOCKS.X[:100], BLOCKS.y[:100])
    np.testing.assert_allclose(model.predict_proba(BLOCKS.X), alone.predict_proba(BLOCKS.X), atol=1e-4)
    for labels, words in ((np.full(200, -1), "every label is -1"), (np.zeros(200, int), "one class only")):
        with pytest.raises(LabelError, match=words):
            MLPBaseline().fit(X, labels)


def test_given_nodes_judge_the_mlp() -> None:
    cold = BLOCKS.X[150:], BLOCKS.y[150:]
    model = mlp(max_steps=200).fit(BLOCKS.X[:150], BLOCKS.y[:150], validation=cold)
    assert all("score" in entry for entry in model.head_.history)
    assert model.head_.history != mlp(max_steps=200).fit(BLOCKS.X[:150], BLOCKS.y[:150]).head_.history
    with pytest.raises(LabelError, match="which no seen node has"):
        mlp().fit(BLOCKS.X[:150], BLOCKS.y[:150], validation=(cold[0], cold[1] + 1))
    with pytest.raises(FeatureError, match="X has 2 features"):
        mlp().fit(BLOCKS.X[:150], BLOCKS.y[:150], validation=(cold[0][:, :2], cold[1]))


def test_the_mlp_one_row_at_a_time() -> None:
    model = mlp().fit(BLOCKS.X[:150], BLOCKS.y[:150])
    proba = model.predict_proba(BLOCKS.X[150:])
    np.testing.assert_allclose(model.predict_proba(BLOCKS.X[150:151]), proba[:1], atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(sp.csr_array(BLOCKS.X[150:])), proba, atol=1e-5)
    with pytest.raises(FeatureError, match=r"0 sample\(s\)"):
        model.predict(BLOCKS.X[:0])


def test_the_mlp_by_hand() -> None:
    model = mlp(max_steps=1).fit(BLOCKS.X[:, :2], BLOCKS.y)
    module: Any = model.head_.module
    h = module.hidden_channels
    with torch.no_grad():
        module.norm.reset_parameters()
        module.input.bias.zero_()
        module.input.weight.zero_()
        module.input.weight[0, : h // 2] = 1.0  # half of the hidden layer sees the first feature, nobody the second
        module.output.weight.zero_()
        module.output.weight[1, 0] = module.output.weight[2, h - 1] = 1.0
        module.output.bias.copy_(torch.tensor([0.0, 0.0, 5.0]))
        found = module.eval()(torch.tensor([[3.0, 7.0]]))
    # hidden rows 3 ... 3 0 ... 0: mean and deviation 1.5, so 1 and -1; gelu(x) = x Phi(x)
    phi = 0.5 * (1 + math.erf(2**-0.5))
    np.testing.assert_allclose(found, [[0.0, phi, 5.0 - (1 - phi)]], rtol=1e-4, atol=1e-6)


def test_the_mlp_reads_no_edges_and_no_coordinates() -> None:
    model = mlp().fit(BLOCKS.X, BLOCKS.y)
    assert model.head_.settings.coordinates is False
    assert model.head_.module.coordinate_channels == 0


@pytest.mark.parametrize("name", [name for name in baselines.__all__ if inspect.isclass(getattr(baselines, name))])
def test_every_baseline_is_fitted_with_a_graph(name: str) -> None:
    """One loop over all of them does: those on features alone take the graph and do not read it."""
    parameters = inspect.signature(getattr(baselines, name).fit).parameters
    assert list(parameters)[:3] == ["self", "X", "y"]
    assert parameters["graph"].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_mlp_does_not_read_the_graph() -> None:
    data = make_blocks(120, 600, 6, random_state=0)
    plain, beside = (
        MLPBaseline(max_steps=10, random_state=0, device="cpu").fit(data.X, data.y, graph=graph)
        for graph in (None, data.graph)
    )
    assert plain.predict_proba(data.X).tobytes() == beside.predict_proba(data.X).tobytes()


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again, other = (
        MLPBaseline(max_steps=10, random_state=seed, device="cpu").fit(BLOCKS.X, BLOCKS.y).predict_proba(BLOCKS.X)
        for seed in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


@pytest.mark.parametrize("name", baselines.__all__)
def test_every_baseline_says_where_it_is_from_and_what_it_was_checked_against(name: str) -> None:
    words = " ".join((inspect.getdoc(getattr(baselines, name)) or "").split())
    assert re.search(r"arXiv \d|\(?[12][089]\d\d\)|scikit-learn's|no paper|without a paper|has no paper", words)
    assert re.search(r"[Cc]hecked (against|by)|[Tt]he tests (check|work|compare)|worked by hand", words)
