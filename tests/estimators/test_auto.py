"""How heads become one prediction: weights by hand, when the plain MLP stays alone, and what the report says."""

from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gsparc import Graph, SparcClassifier, SpectralMap
from gsparc.datasets import make_blocks
from gsparc.estimators import _fitting
from gsparc.estimators._auto import Mixture, choose_mixture, head_kind, mixture_weights, softmax
from gsparc.estimators._fitting import HEADS, Fitter, prior_weights
from gsparc.estimators._vote import VoteHead
from gsparc.exceptions import InputError, UnknownNameError
from gsparc.training.teach import soft_labels


def test_softmax_by_hand() -> None:
    np.testing.assert_allclose(softmax(np.log([[1.0, 3.0], [2.0, 2.0]])), [[0.25, 0.75], [0.5, 0.5]])
    assert softmax(np.array([[1000.0, 0.0]], np.float32)).tolist() == [[1.0, 0.0]]


EVEN = np.array([0.5, 0.5])


def test_weights_without_nodes_or_news_are_the_prior() -> None:
    prior = np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(mixture_weights(np.zeros((3, 0)), prior), prior)
    np.testing.assert_allclose(mixture_weights(np.full((3, 500), 0.4), prior), prior, atol=1e-6)


def test_weights_by_hand() -> None:
    # -n log(w p + (1 - w) q) - m/2 (log w + log(1 - w)): with q = 0 the derivative is n/w + m/(2w) - m/(2(1 - w)),
    # so w = (n + m/2) / (n + m)
    for n, m in ((60, 60.0), (1000, 60.0), (5, 20.0)):
        weights = mixture_weights(np.stack([np.full(n, 0.8), np.zeros(n)]), EVEN, pseudo=m)
        np.testing.assert_allclose(weights, [(n + m / 2) / (n + m), m / 2 / (n + m)], atol=1e-5)
    # two heads that know one half of the nodes each share the weight
    halves = np.array([[1.0] * 50 + [0.0] * 50, [0.0] * 50 + [1.0] * 50])
    np.testing.assert_allclose(mixture_weights(halves, EVEN), EVEN, atol=1e-6)
    # a third of the nodes and a prior of one half that counts as 60: (100 + 30) / (300 + 60)
    thirds = np.array([[1.0] * 100 + [0.0] * 200, [0.0] * 100 + [1.0] * 200])
    np.testing.assert_allclose(mixture_weights(thirds, EVEN, pseudo=60.0), [130 / 360, 230 / 360], atol=1e-5)


def test_few_nodes_move_the_prior_little() -> None:
    def first(count: int) -> float:
        return float(mixture_weights(np.array([[0.2] * count, [0.8] * count]), np.array([0.9, 0.1]))[0])

    assert first(3) > 0.85
    assert first(3) > first(30) > first(3000)
    assert first(3000) < 0.1


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(np.float64, (3, 25), elements=st.floats(0.001, 1.0)),
    st.lists(st.floats(0.05, 1), min_size=3, max_size=3),
)
def test_weights_are_a_distribution_that_fits_no_worse_than_the_prior(
    likelihood: np.ndarray, given_prior: list[float]
) -> None:
    prior = np.array(given_prior) / sum(given_prior)
    weights = mixture_weights(likelihood, prior)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()

    def objective(w: np.ndarray) -> float:
        return float(-np.log(w @ likelihood).sum() - 60 * (prior * np.log(w)).sum())

    assert objective(weights) <= objective(prior) + 1e-6


def answers(labels: np.ndarray, right: np.ndarray, sure: float = 0.8, classes: int = 3) -> np.ndarray:
    """Probabilities of a head that is right where ``right`` says, and gives ``sure`` to what it believes."""
    out = np.full((len(labels), classes), (1 - sure) / (classes - 1))
    out[np.arange(len(labels)), np.where(right, labels, (labels + 1) % classes)] = sure
    return out


LABELS = np.arange(200) % 3
AT = np.arange(200)
PRIOR = {"mlp": 1.0, "gcn": 1.0, "vote": 1.0}


def test_a_better_head_gets_the_weight_and_the_report_says_so() -> None:
    heads = {"mlp": answers(LABELS, AT < 100), "gcn": answers(LABELS, AT < 180), "vote": answers(LABELS, AT < 60)}
    mixture = choose_mixture(heads, PRIOR, LABELS)
    assert max(mixture.weights, key=mixture.weights.__getitem__) == "gcn"
    assert sum(mixture.weights.values()) == pytest.approx(1)
    assert mixture.accuracy["mlp"] == 0.5
    assert mixture.accuracy["gcn"] == 0.9
    assert mixture.judged == 200
    assert "On 200 pretend-cold nodes" in mixture.report
    assert f"right for {100 * mixture.accuracy['mixture']:.1f} %" in mixture.report
    assert "one plain MLP for 50.0 %" in mixture.report
    assert f"{100 * mixture.accuracy['mixture'] - 50:+.1f} points" in mixture.report
    assert "a clear gain" in mixture.report
    assert f"gcn {100 * mixture.weights['gcn']:.0f} % (alone 90.0 %)" in mixture.report
    low, high = (float(x) for x in re.findall(r"interval ([+-][\d.]+) to ([+-][\d.]+)", mixture.report)[0])
    assert 0 < low < 100 * mixture.accuracy["mixture"] - 50 < high


def test_the_mlp_stays_alone_where_nothing_beats_it() -> None:
    good = answers(LABELS, AT < 190, sure=0.95)
    noise = {"gcn": answers(LABELS, AT < 60, sure=0.99), "vote": answers(LABELS, AT < 50, sure=0.99)}
    mixture = choose_mixture({"mlp": good, **noise}, PRIOR, LABELS)
    assert mixture.weights == {"mlp": 1.0, "gcn": 0.0, "vote": 0.0}
    assert "did not beat the plain MLP (the MLP 95.0 %, the mixture " in mixture.report
    assert "the best other head alone, gcn, 30.0 %)" in mixture.report
    assert "the plain MLP alone" in mixture.report
    # the heads that do not count need not even be asked
    assert (mixture.combine({"mlp": good}).argmax(axis=1) == good.argmax(axis=1)).all()


def test_equal_accuracy_and_better_likelihood_is_worth_a_mixture() -> None:
    right = AT < 140
    heads = {"mlp": answers(LABELS, right, sure=0.999), "gcn": answers(LABELS, right, sure=0.7)}
    mixture = choose_mixture(heads, PRIOR, LABELS)
    assert mixture.weights["gcn"] > 0.5
    assert "no clear difference" in mixture.report
    assert mixture.accuracy["mixture"] == mixture.accuracy["mlp"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(20, 120), st.integers(1, 4), st.floats(0.3, 6))
def test_never_worse_than_the_mlp_without_a_reason(seed: int, count: int, others: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    names = ["mlp", *(f"head {i}" for i in range(others))]
    heads = {
        name: softmax(scale * (rng.standard_normal((count, 3)) + rng.uniform(0, 2) * np.eye(3)[labels]))
        for name in names
    }
    mixture = choose_mixture(heads, dict.fromkeys(names, 1.0), labels)

    def figures(p: np.ndarray) -> tuple[float, float]:
        return float((p.argmax(axis=1) == labels).mean()), float(
            -np.log(np.clip(p[np.arange(count), labels], 1e-6, 1)).mean()
        )

    mixed = sum(mixture.weights[name] * heads[name] for name in names)
    (right, loss), (plain, plain_loss) = figures(np.asarray(mixed)), figures(heads["mlp"])
    alone = mixture.weights["mlp"] == 1.0
    assert alone or right > plain or loss < plain_loss
    assert (mixture.combine(heads).argmax(axis=1) == np.asarray(mixed).argmax(axis=1)).mean() > 0.999
    assert ("the mixture of heads did not beat" in mixture.report) == alone
    assert "nothing beat" not in mixture.report  # one head alone may have done so


def test_too_few_nodes_to_compare() -> None:
    labels = LABELS[:19]
    heads = {"mlp": answers(labels, np.ones(19, bool)), "gcn": answers(labels, np.zeros(19, bool))}
    mixture = choose_mixture(heads, {"mlp": 1.0, "gcn": 3.0}, labels)
    assert mixture.weights == {"mlp": 0.25, "gcn": 0.75}
    assert mixture.temperature == 1.0
    assert mixture.accuracy == {}
    assert "Only 19 labelled nodes" in mixture.report
    assert "compare 2 heads" in mixture.report
    assert "validation=(X, y)" in mixture.report
    nobody = choose_mixture({name: p[:0] for name, p in heads.items()}, {"mlp": 1.0, "gcn": 3.0}, labels[:0])
    assert nobody.weights == mixture.weights
    assert nobody.judged == 0


def test_the_mlp_alone_is_a_mixture_of_one() -> None:
    mixture = choose_mixture({"mlp": answers(LABELS, AT < 150)}, {"mlp": 1.0}, LABELS)
    assert mixture.weights == {"mlp": 1.0}
    assert "75.0 %" in mixture.report


def test_the_temperature_calibrates() -> None:
    right = AT % 10 < 7  # right 70 times of 100
    for sure in (0.99, 0.45):
        mixture = choose_mixture(
            {"mlp": answers(LABELS, right, sure), "gcn": answers(LABELS, right, sure)}, PRIOR, LABELS
        )
        calibrated = mixture.combine({name: answers(LABELS, right, sure) for name in ("mlp", "gcn")})
        np.testing.assert_allclose(calibrated.sum(axis=1), 1)
        assert calibrated.max(axis=1).mean() == pytest.approx(0.7, abs=0.03)
        assert (mixture.temperature > 1) == (sure == 0.99)


def test_combining_by_hand() -> None:
    mixture = Mixture({"mlp": 0.25, "gcn": 0.75, "vote": 0.0}, 0.5, 100, {}, "")
    p = {"mlp": np.array([[1.0, 0.0]]), "gcn": np.array([[1 / 3, 2 / 3]])}
    # the mean is (1/2, 1/2); then a case that a temperature of 1/2 squares: (1/4 + 9/20, 3/10) = (0.7, 0.3)
    np.testing.assert_allclose(mixture.combine(p), [[0.5, 0.5]])
    p["gcn"] = np.array([[0.6, 0.4]])
    np.testing.assert_allclose(mixture.combine(p), [[0.49 / 0.58, 0.09 / 0.58]])
    assert Mixture(**json.loads(json.dumps(mixture.config()))) == mixture


def test_prior_weights_follow_the_labels() -> None:
    few, many = prior_weights(list(HEADS), 0.05), prior_weights(list(HEADS), 0.9)
    assert few["mlp"] < many["mlp"]
    assert {name for name in HEADS if few[name] == many[name]} == set(HEADS) - {"mlp"}
    assert all(value > 0 for value in few.values())
    assert prior_weights(["distilled, edges"], 0.5) == {"distilled, edges": 1.0}
    # two starts count sqrt(2) together
    assert prior_weights(["distilled", "distilled 2", "spectral"], 0.5)["distilled 2"] == pytest.approx(2**-0.5)


def test_a_head_of_its_own_start_has_its_own_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[tuple[tuple[str, ...], int]] = []

    def taught(*args, kinds, seed, **more):
        seeds.append((tuple(kinds), seed))
        return soft_labels(*args, kinds=kinds, seed=seed, **more)

    monkeypatch.setattr(_fitting, "soft_labels", taught)
    model = fit(auto(max_steps=3))
    assert sorted(seeds) == [((kind,), start) for kind in ("appnp", "sage") for start in range(3)]
    weights = [model._heads[name].module.state_dict() for name in ("distilled", "distilled 2")]
    assert any(not torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    seeds.clear()
    fit(auto(max_steps=3, heads=["distilled"]))
    assert sorted(seeds) == [(("appnp",), 0), (("sage",), 0)]


def test_a_vote_by_hand() -> None:
    labels = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.5, 0.5]])
    vote = VoteHead(labels, 2)
    # the two are equally near: nodes 0 and 1 cancel out, up to a floor of the mean label
    np.testing.assert_allclose(vote.probabilities(np.array([[0.3, 0.3]]), np.array([[0, 1]])), [[0.5, 0.5]], atol=1e-6)
    # 0.1 less alike counts 1/e
    share = 1 / (1 + np.exp(-1))
    found = vote.probabilities(np.array([[0.9, 0.8]]), np.array([[0, 1]]))
    np.testing.assert_allclose(found, [[share, 1 - share]], atol=1e-3)
    # who has no label does not vote, and where nobody has one the shares of the classes remain
    np.testing.assert_allclose(vote.probabilities(np.array([[0.5, 0.5]]), np.array([[2, 0]]))[0, 0], 1, atol=1e-2)
    np.testing.assert_allclose(vote.probabilities(np.array([[0.5, 0.5]]), np.array([[2, 2]])), [[0.5, 0.5]])


DATA = make_blocks(420, 4000, 8, branching=(3,), noise=0.8, within=0.9, random_state=0)
SEEN, COLD = np.arange(340), np.arange(340, 420)
MAP = SpectralMap(4, hidden_channels=(16,), max_steps=25, batch_size=128)


def auto(**changes) -> SparcClassifier:
    small = {"hidden_channels": 16, "num_heads": 2, "num_tokens": 3, "max_steps": 25, "random_state": 0}
    return SparcClassifier(spectral_map=MAP, device="cpu", **small | changes)


def fit(model: SparcClassifier, *, graph: Graph | None = DATA.graph[SEEN], **more) -> SparcClassifier:
    return model.fit(DATA.X[SEEN], DATA.y[SEEN], graph=graph, **more)


def test_the_default_is_auto_with_every_head() -> None:
    model = fit(auto())
    assert model.backbone == "auto"
    assert {head_kind(name) for name in model.weights_} == {*HEADS, "distilled, edges", "spectral, edges"}
    counts = Counter(head_kind(name) for name in model.weights_)
    assert counts["mlp"] == counts["distilled"] == 3  # few nodes and all labelled: three starts
    assert counts["spectral"] == counts["distilled, edges"] == 2
    assert counts["gcn"] == counts["vote"] == 1
    assert "distilled from 3 starts" in model.report_
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert "pretend-cold nodes" in model.report_
    assert model.score(DATA.X[COLD], DATA.y[COLD]) > 0.8


def test_heads_are_chosen_and_the_mlp_is_always_there() -> None:
    assert set(fit(auto(heads=["gcn"])).weights_) == {"mlp", "gcn"}
    assert set(fit(auto(heads=("vote", "spectral")), graph=None).weights_) == {"mlp", "spectral", "vote"}
    with pytest.raises(InputError, match=r"'distilled', which needs teachers\. No graph was passed"):
        fit(auto(heads=["distilled"]), graph=None)
    assert "No graph was passed" in fit(auto(heads=["gcn"]), graph=None).report_


def test_a_graph_too_large_for_teachers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fitting, "_TEACHER_ENTRIES", {"cpu": 10, "cuda": 10})
    assert "too many to train teachers" in fit(auto(heads=["gcn"])).report_
    with pytest.raises(InputError, match=r"distill=True came, but: The graph has .* edges, too many"):
        fit(auto(backbone="mlp", distill=True))


@pytest.mark.parametrize("heads", [["mlp"], ("mlp",)])
def test_the_mlp_alone(heads) -> None:
    cold = DATA.X[COLD], DATA.y[COLD]
    model = fit(auto(heads=heads), validation=cold)
    assert model.weights_ == {"mlp": 1.0}
    assert f"{100 * model.score(*cold):.1f} %" in model.report_


def test_validation_nodes_weigh_the_heads_and_match_the_report() -> None:
    cold = DATA.X[COLD], DATA.y[COLD]
    model = fit(auto(heads=["gcn", "vote"]), validation=cold)
    assert model.report_.startswith("On 80 pretend-cold nodes")
    assert f"{100 * model.score(*cold):.1f} %" in model.report_


def test_names_of_heads() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown head 'gnc'. Did you mean 'gcn'"):
        fit(auto(heads=["gnc"]))
    for bad in ([], "gcn"):
        with pytest.raises(InputError, match=r"heads=.* came, expected a list of some of mlp"):
            fit(auto(heads=bad))


def test_the_plan_of_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    import gsparc.estimators._fitting as fitting

    monkeypatch.setattr(fitting, "_ALL_HEADS", 300)
    assert not {"samba", "vote"} & set(fit(auto(max_steps=1)).weights_)
    monkeypatch.setattr(Fitter, "can_teach", False)
    assert not {"distilled", "distilled, edges", "spectral, edges"} & set(fit(auto(max_steps=1)).weights_)
    assert "samba" in fit(auto(max_steps=1, heads=["samba"])).weights_  # who asks by name gets it
