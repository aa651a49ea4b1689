"""Scores of different new nodes: what is taken from each, by hand, chosen on planted pairs, and from a sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsparc import SparcLinkPredictor, load_model
from gsparc.baselines import WeighedCosineLinks
from gsparc.datasets import make_blocks
from gsparc.estimators import _shift
from gsparc.estimators._shift import Judged, NodeShift, choose_shift, link_shifts, totals
from gsparc.ops.combined import CombinedIndex

DATA = make_blocks(400, 3000, 16, branching=(8,), noise=1.0, within=0.9, random_state=0)
SEEN, COLD = np.arange(340), np.arange(340, 400)


@pytest.fixture(scope="module")
def fitted() -> SparcLinkPredictor:
    model = SparcLinkPredictor(
        16, n_maps=1, hidden_channels=(32,), spectral_steps=30, refine_steps=50, random_state=0, device="cpu"
    ).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    model.shift_ = NodeShift(0.1, 0.75, 0.5)  # whatever was chosen: the tests need one that does something
    model.weights_ = model.weights_._replace(popularity=0.02)
    degrees = DATA.graph[SEEN].degrees()
    model.index_.prior = 0.02 * np.log1p(degrees)
    model._graph = DATA.graph[SEEN]
    return model


def planted(level: float, *, steps: tuple[float, ...], seed: int = 0) -> Judged:
    """100 nodes with 200 candidates, 3 of them true: true ones stand out within a node, by ``steps``.

    Nodes of the first half score higher than the others by ``level`` with everything.
    """
    rng = np.random.default_rng(seed)
    scores = 0.02 * rng.standard_normal((100, 200))
    scores[:50] += level
    truth = np.zeros((100, 200), bool)
    truth[:, :3] = True
    scores[:, :3] += np.resize(steps, 100)[:, None]
    return Judged(torch.from_numpy(scores).float(), torch.from_numpy(truth), torch.ones(200), 200)


def test_levels_that_say_nothing_are_taken_away() -> None:
    shift, report = choose_shift([planted(1.0, steps=(0.2,))], degrees=False)
    assert shift.share == 1.0
    assert report["pairs_found"] < 0.6  # the nodes below stand below all pairs of those above
    assert report["pairs_found_shifted"] > 0.99


def test_levels_that_say_everything_stay() -> None:
    # a node that scores low has no neighbour that stands out: its pairs are as good as any other node's false ones
    trial = planted(0.0, steps=(0.0, 0.0))
    trial.scores[:50, :3] += 0.5
    shift, report = choose_shift([trial], degrees=False)
    assert report["pairs_found_shifted"] >= report["pairs_found"]
    best = trial.scores - shift.of(trial.scores, trial.log_degree)[:, None]
    assert best[:50, :3].min() > best[50:].max()


def test_few_held_out_nodes_choose_nothing() -> None:
    whole = planted(1.0, steps=(0.2,))
    few = whole._replace(scores=whole.scores[:30], truth=whole.truth[:30])
    assert choose_shift([few], degrees=True) == (NodeShift(), {})
    assert choose_shift([], degrees=True) == (NodeShift(), {})


def test_degrees_count_only_where_they_may() -> None:
    # nodes of the first half have six links each, to nodes with six links; the others three, to nodes with three
    rng = np.random.default_rng(0)
    scores, truth = 0.01 * rng.standard_normal((200, 400)), np.zeros((200, 400), bool)
    truth[:100, :6], truth[100:, 200:203] = True, True
    scores[:100, :200] += 0.3
    scores[100:, 200:] += 0.3
    degrees = torch.from_numpy(np.log1p(np.repeat([60.0, 1.0], 200))).float()
    trial = Judged(torch.from_numpy(scores).float(), torch.from_numpy(truth), degrees, 400)
    assert choose_shift([trial], degrees=False)[0].reach == 0.0
    assert choose_shift([trial], degrees=True)[0].reach > 0.0


def test_a_sample_of_candidates_stands_for_all() -> None:
    """With every second false candidate left out, Z is about the same: each of the others counts twice."""
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.standard_normal((60, 4000))).float()
    truth = torch.zeros(60, 4000, dtype=torch.bool)
    truth[:, :2] = True
    degree = torch.from_numpy(rng.random(4000)).float()
    whole = _shift._Pairs(Judged(scores, truth, degree, 4000), 0)
    kept = torch.cat([torch.arange(2), torch.arange(2, 4000, 2)])
    half = _shift._Pairs(Judged(scores[:, kept], truth[:, kept], degree[kept], 4000), 0)
    for one, other in zip(whole.totals(1.0), half.totals(1.0), strict=True):
        np.testing.assert_allclose(one, other, atol=0.1)
    expected = torch.logsumexp(scores, dim=1).numpy()
    np.testing.assert_allclose(whole.totals(1.0)[0], expected, atol=1e-4)


@given(st.integers(0, 1000), st.floats(0.01, 2.0), st.floats(-3, 3))
def test_a_constant_on_all_scores_of_a_node_goes_away(seed: int, temperature: float, constant: float) -> None:
    scores = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 5)))
    degree = torch.ones(5, dtype=torch.float64)
    shift = NodeShift(temperature, 1.0, 0.5)
    moved = scores + torch.tensor([[constant], [0.0]], dtype=torch.float64)
    before, after = (s - shift.of(s, degree)[:, None] for s in (scores, moved))
    np.testing.assert_allclose(before, after, atol=1e-9)


def test_candidates_without_links_are_no_trouble() -> None:
    z, links = totals(torch.zeros(1, 3), torch.zeros(3), None)
    assert torch.isfinite(links).all()
    assert z.exp().item() == pytest.approx(3)


def test_one_number_is_taken_from_a_node_s_scores_however_they_are_asked_for(fitted: SparcLinkPredictor) -> None:
    X = DATA.X[COLD[:7]]
    plain, shifted = fitted.score_all(X), fitted.score_all(X, comparable=True)
    taken = plain - shifted
    assert np.ptp(taken, axis=1).max() < 1e-5
    assert np.ptp(taken[:, 0]) > 1e-3  # not the same for all nodes
    ids, scores = fitted.predict_links(X, k=9, comparable=True)
    np.testing.assert_array_equal(ids, fitted.predict_links(X, k=9)[0])
    np.testing.assert_allclose(np.take_along_axis(shifted, ids, 1), scores, atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X, ids, comparable=True), scores, atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X, ids[:, 0], comparable=True), scores[:, 0], atol=1e-5)
    np.testing.assert_allclose(fitted.score_all(X[2:3], comparable=True), shifted[2:3], atol=1e-4)


def test_the_shift_by_its_definition(fitted: SparcLinkPredictor) -> None:
    X = DATA.X[COLD[:3]]
    scores = fitted.score_all(X).astype(np.float64)
    temperature, share, reach = fitted.shift_
    weight = np.exp(scores / temperature)
    expected_degree = (weight * DATA.graph[SEEN].degrees()).sum(axis=1) / weight.sum(axis=1)
    taken = share * temperature * (np.log(weight.sum(axis=1)) - reach * np.log(expected_degree))
    np.testing.assert_allclose(scores - taken[:, None], fitted.score_all(X, comparable=True), atol=1e-4)


def test_very_many_nodes_are_looked_at_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    group = rng.choice(12, 6000, p=np.arange(1, 13) / 78)  # crowds of very different size
    rows, features = ((rng.standard_normal((12, 8))[group] + 0.5 * rng.standard_normal((6000, 8))) for _ in range(2))
    rows, features = rows.astype(np.float32), features.astype(np.float32)
    prior = (0.02 * rng.random(6000)).astype(np.float32)

    class Model:
        weights_, shift_ = type("W", (), {"popularity": 0.02}), NodeShift(0.2, 1.0, 1.0)

        def __init__(self, kind: str) -> None:
            self.index_ = CombinedIndex.build(rows, features, 0.8, prior=prior, kind=kind)

    own, view = rows[:20] + 0.1, features[:20] + 0.1
    exact, sampled = (link_shifts(Model(kind), own, view) for kind in ("exact", "ivf"))
    assert not np.array_equal(exact, sampled)
    # errors of all nodes go the same way, as the sample is the same: what counts is that differences stay
    np.testing.assert_allclose(exact - exact.mean(), sampled - sampled.mean(), atol=0.2 * exact.std())
    np.testing.assert_array_equal(link_shifts(Model("ivf"), own[:1], view[:1]).shape, (1,))
    monkeypatch.setattr(_shift, "_ELSEWHERE", 6000)
    np.testing.assert_allclose(link_shifts(Model("ivf"), own, view), exact, atol=0.02)


def test_the_shift_is_saved_and_old_folders_have_none(fitted: SparcLinkPredictor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.shift_ == fitted.shift_
    X = DATA.X[COLD[:4]]
    np.testing.assert_array_equal(again.score_all(X, comparable=True), fitted.score_all(X, comparable=True))
    described, arrays = fitted._state()
    described.pop("shift")
    fresh = SparcLinkPredictor(**fitted.get_params())
    fresh.n_features_in_ = fitted.n_features_in_
    fresh._restore(described, arrays)
    assert fresh.shift_ == NodeShift()
    np.testing.assert_array_equal(fresh.score_all(X, comparable=True), fresh.score_all(X))


@pytest.mark.parametrize(
    "numbers", [(0.0, 1.0, 0.0), (1.0, 2.0, 0.0), (1.0, 1.0, -1.0), (float("nan"), 1, 0), ("1", 1, 0)]
)
def test_a_damaged_shift_is_noticed(numbers: tuple) -> None:
    with pytest.raises(ValueError, match="a shift of scores"):
        NodeShift(*numbers).checked()


def test_grown_nodes_count_too(fitted: SparcLinkPredictor) -> None:
    import copy

    X, more = DATA.X[COLD[:3]], DATA.X[COLD[3:8]]
    grown = copy.deepcopy(fitted).grow(more, edges=(np.arange(340, 345), np.arange(5)))
    taken = grown.score_all(X) - grown.score_all(X, comparable=True)
    assert taken.shape == (3, 345)
    before = fitted.score_all(X) - fitted.score_all(X, comparable=True)
    assert not np.allclose(taken[:, 0], before[:, 0], atol=1e-6)


def test_the_score_without_maps_has_its_own_shift() -> None:
    model = WeighedCosineLinks(random_state=0, device="cpu").fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    model.shift_ = NodeShift(0.1, 1.0, 0.0)
    X = DATA.X[COLD[:5]]
    taken = model.score_all(X) - model.score_all(X, comparable=True)
    assert np.ptp(taken, axis=1).max() < 1e-5
    expected = 0.1 * np.log(np.exp(model.score_all(X) / 0.1).sum(axis=1))
    np.testing.assert_allclose(taken[:, 0], expected, atol=1e-4)
