"""LLP, its plain student and GraphSAGE for links: losses by hand, contexts, scores that agree, awkward input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from torch.nn import functional as F

from gsparc import Graph, SparcLinkPredictor
from gsparc.baselines import FeatureCosineLinks
from gsparc.baselines import _pair_links as pair_links
from gsparc.baselines._pair_links import EdgeTask, LinkData, LinkMLP, PairDecoder, mean_log_odds, pair_logits
from gsparc.baselines.llp import WEIGHTS, LLPBaseline, RelationalTask, Walker, distribution_matching, rank_matching
from gsparc.baselines.llp_mlp import LLPMLPBaseline
from gsparc.baselines.sage_links import SAGELinksBaseline, placed
from gsparc.datasets import make_blocks
from gsparc.exceptions import FeatureError, GraphError, InputError
from gsparc.metrics import link_metrics, rank_links, truth_matrix
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.links import Retrieval, default_fits
from gsparc.training.spectral import hold_out

CPU = torch.device("cpu")
DATA = make_blocks(300, 2400, 16, branching=(6,), noise=0.5, within=0.9, random_state=0)
SEEN, COLD = np.arange(250), np.arange(250, 300)
SMALL = {"hidden_channels": 16, "random_state": 0, "device": "cpu", "batch_size": 256, "n_starts": 2}
KINDS = {
    "mlp": lambda **changes: LLPMLPBaseline(**{**SMALL, "max_steps": 60, **changes}),
    "llp": lambda **changes: LLPBaseline(**{**SMALL, "max_steps": 60, "teacher_steps": 40, "anchors": 64, **changes}),
    "sage": lambda **changes: SAGELinksBaseline(**{**SMALL, "max_steps": 40, **changes}),
}


@pytest.fixture(scope="module", params=list(KINDS))
def fitted(request: pytest.FixtureRequest):
    return KINDS[request.param]().fit(DATA.X[SEEN], graph=DATA.graph[SEEN])


def test_rank_matching_by_hand() -> None:
    teacher = torch.tensor([[0.9, 0.5, 0.45], [0.1, 0.9, 0.1]])
    student = torch.tensor([[0.6, 0.65, 0.2], [0.5, 0.4, 0.4]])
    # first anchor: 0 above 1, 0 above 2, 1 and 2 within the margin; the student has 0 below 1 by 0.05
    first = [0.1 + 0.05, 0.0, 0.1]
    # second anchor: 0 below 1, where the student has it 0.1 above; 0 and 2 equal; 1 above 2, a tie for the student
    second = [0.1 + 0.1, 0.1, 0.1]
    assert rank_matching(student, teacher, 0.1).item() == pytest.approx(sum(first + second) / 6, abs=1e-6)


def test_rank_matching_is_the_margin_loss_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.rand(2, 5, 6, generator=generator)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    left, right = (list(side) for side in zip(*pairs, strict=True))
    gap = teacher[:, left] - teacher[:, right]
    order = torch.where(gap.abs() > 0.2, gap.sign(), torch.zeros_like(gap))
    expected = F.margin_ranking_loss(student[:, left], student[:, right], order, margin=0.2)
    torch.testing.assert_close(rank_matching(student, teacher, 0.2), expected)


def test_distribution_matching_by_hand() -> None:
    teacher = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])  # softmax 3/4 and 1/4; 1/2 and 1/2
    student = torch.zeros(2, 2)
    first = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert distribution_matching(student, teacher).item() == pytest.approx(first / 2, abs=1e-6)
    # twice the scores at twice the temperature: the same distributions, times the square of the temperature
    assert distribution_matching(student, 2 * teacher, 2.0).item() == pytest.approx(4 * first / 2, abs=1e-6)


def test_the_decoder_by_hand() -> None:
    decoder = PairDecoder(2, 2)
    with torch.no_grad():
        decoder.hidden.weight.copy_(torch.eye(2))
        decoder.hidden.bias.zero_()
        decoder.output.weight.copy_(torch.tensor([[2.0, 5.0]]))
        decoder.output.bias.fill_(1.0)
    # the product (3, -2) is rectified to (3, 0): 2 * 3 + 1
    assert decoder(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])).item() == pytest.approx(7.0)
    left, right = torch.randn(3, 2), torch.randn(5, 2)
    by_pair = torch.stack([torch.stack([decoder(a, b) for b in right]) for a in left])
    torch.testing.assert_close(pair_logits(decoder, left, right), by_pair)


def task_on(graph: Graph, **changes) -> RelationalTask:
    X = np.eye(graph.num_nodes, dtype=np.float32)
    features = FeatureSource(X, Scaling(True, None, None))
    data = LinkData(features, graph, torch.arange(graph.num_nodes), None, CPU, 0)
    net = LinkMLP(graph.num_nodes, 4, 0.0, 0.0)
    settings = {"batch_size": 8, "anchors": 50, "walks": 3, "hops": 2, "margin": 0.1, "weights": (1.0, 1.0, 1.0)}

    def embed(nodes: torch.Tensor) -> torch.Tensor:
        return net.encoder(features.rows(nodes))

    known, teacher = torch.randn(graph.num_nodes, 4), PairDecoder(4, 4)
    return RelationalTask(net, embed, data, known, teacher, embed_held=embed, **(settings | changes))


def test_half_of_a_context_is_near_and_half_anywhere() -> None:
    two = Graph.from_edges([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])  # two triangles
    anchors, context = task_on(two).contexts(torch.Generator().manual_seed(0))
    assert context.shape == (50, 12)
    near, far = context[:, :6], context[:, 6:]
    assert (near // 3 == anchors[:, None] // 3).all()
    assert (far // 3 != anchors[:, None] // 3).any()
    assert set(far.unique().tolist()) == set(range(6))
    assert (near[:, 0] != anchors).all()  # the first step leaves the anchor


def test_the_three_losses_are_weighed() -> None:
    ring = Graph.from_edges(np.array([np.arange(8), (np.arange(8) + 1) % 8]))
    task = task_on(ring)
    parts = []
    for weights in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.5, 2.0, 3.0)):
        task.weights = weights
        parts.append(task.loss(torch.Generator().manual_seed(3)))  # the same draw
    assert min(part.item() for part in parts[:3]) > 0
    torch.testing.assert_close(parts[3], 0.5 * parts[0] + 2 * parts[1] + 3 * parts[2])


def test_edges_are_told_from_random_pairs_by_cross_entropy() -> None:
    ring = Graph.from_edges(np.array([np.arange(8), (np.arange(8) + 1) % 8]))
    task = task_on(ring)
    source, target, truth = EdgeTask.pairs(task, torch.Generator().manual_seed(0))
    assert truth.tolist() == [1.0] * 8 + [0.0] * 8
    assert ((source - target).abs() % 6 == 1)[:8].all()  # neighbours on the ring: 1 or 7 apart
    with torch.no_grad():
        task.decoder.output.weight.zero_()
        task.decoder.output.bias.zero_()
    assert EdgeTask.loss(task, torch.Generator().manual_seed(0)).item() == pytest.approx(math.log(2), abs=1e-6)
    assert task.evaluate() is None  # nothing is held out


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_walks_follow_edges(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph.from_edges(rng.integers(0, n, (2, n)), num_nodes=n)
    starts = torch.arange(n)
    path = Walker(graph, CPU).walk(starts, 4, torch.Generator().manual_seed(seed))
    adjacency = graph.to_scipy().toarray() != 0
    before = torch.cat([starts[:, None], path[:, :-1]], dim=1)
    for a, b in zip(before.ravel().tolist(), path.ravel().tolist(), strict=True):
        assert adjacency[a, b] or (a == b and not adjacency[a].any())


def test_a_node_without_edges_is_its_own_row_by_hand() -> None:
    model = KINDS["sage"](max_steps=3).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    encoder = model.modules_[0].encoder
    features = FeatureSource(DATA.X[COLD[:4]], model.scaling_)
    with torch.no_grad():
        found = placed(encoder, features, torch.arange(4), None)
        x = features.rows(torch.arange(4))
        own = x @ encoder.input.weight[:, :16] + encoder.input.bias[:16]  # no neighbours: their half is left out
        h = torch.relu(F.layer_norm(own, (16,), encoder.norm.weight, encoder.norm.bias))
        expected = h @ encoder.output.weight[:16].T + encoder.output.bias[:16]
    torch.testing.assert_close(found, expected)
    assert 4 < len(encoder.x) < len(SEEN)  # the trained encoder keeps its own rows


def test_links_of_cold_nodes_are_learnt(fitted) -> None:
    truth = truth_matrix(DATA.graph, COLD, SEEN)
    found = link_metrics(rank_links(lambda rows: fitted.score_all(DATA.X[COLD[rows]]), truth))["mrr"]
    shuffled = np.random.default_rng(0).permutation(len(COLD))
    chance = link_metrics(rank_links(lambda rows: fitted.score_all(DATA.X[COLD[shuffled[rows]]]), truth))["mrr"]
    assert found > 1.5 * chance
    assert all(math.isfinite(entry["loss"]) for entry in fitted.history_)
    assert "score" in fitted.history_[-1]  # held-out nodes judge


def test_all_ways_of_scoring_agree(fitted) -> None:
    X = DATA.X[COLD[:5]]
    everything = fitted.score_all(X)
    assert everything.shape == (5, 250)
    ids, scores = fitted.predict_links(X, k=7)
    np.testing.assert_allclose(np.take_along_axis(everything, ids, 1), scores, atol=1e-5)
    np.testing.assert_allclose(scores, -np.sort(-everything, axis=1)[:, :7], atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X, ids), scores, atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X, ids[:, 2]), scores[:, 2], atol=1e-5)
    np.testing.assert_allclose(fitted.score_pairs(X[:1], ids[0]), scores[:1], atol=1e-5)
    np.testing.assert_allclose(fitted.predict_links(X[:1], k=7)[1], scores[:1], atol=1e-5)
    np.testing.assert_allclose(fitted.score_all(sp.csr_array(X)), everything, atol=1e-4)
    assert fitted.predict_links(X, k=900)[0].shape == (5, 250)


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_same_seed_gives_the_same_bytes_and_names_are_answered(kind: str) -> None:
    names = np.array([f"node {i}" for i in SEEN])
    graph = Graph.from_scipy(DATA.graph[SEEN].to_scipy(), node_ids=names)
    few = {"max_steps": 5} | ({"teacher_steps": 5} if kind == "llp" else {})
    models = [KINDS[kind](**few, random_state=seed).fit(DATA.X[SEEN], graph=graph) for seed in (0, 0, 1)]
    ids, scores = models[0].predict_links(DATA.X[COLD[:3]], k=4)
    assert np.isin(ids, names).all()
    np.testing.assert_allclose(models[0].score_pairs(DATA.X[COLD[:3]], ids), scores, atol=1e-5)
    values = [model.score_all(DATA.X[COLD]).tobytes() for model in models]
    assert values[0] == values[1] != values[2]


def test_the_teacher_sees_no_edge_of_a_held_out_node() -> None:
    seen = []

    class Spy(LLPBaseline):
        def _teach(self, data: LinkData):
            seen.append(data)
            return super()._teach(data)

    settings = {"max_steps": 2, "teacher_steps": 2, "anchors": 8, "weights": (1.0, 1.0, 1.0)}
    Spy(**SMALL, **settings).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert len(seen) == 2  # one teacher a start
    for data in seen:
        assert data.retrieval is not None
        assert not np.isin(data.retrieval.queries, data.train.numpy()).any()
        assert data.graph.num_nodes == len(data.train) < len(SEEN)
        assert data.graph == DATA.graph[SEEN][data.train.numpy()]
    assert set(seen[0].retrieval.queries) != set(seen[1].retrieval.queries)  # each with its own held-out nodes


def test_log_odds_are_averaged_by_hand() -> None:
    # odds 9 and 1 have the geometric mean 3; odds 4 and 1/4 the mean 1
    found = mean_log_odds([torch.tensor([math.log(9), math.log(4)]), torch.tensor([0.0, -math.log(4)])])
    torch.testing.assert_close(found, torch.tensor([math.log(3), 0.0]))
    assert mean_log_odds([found]) is found


@pytest.mark.parametrize("kind", ["mlp", "sage"])
def test_two_starts_are_the_mean_of_two_fits_with_the_next_seed(kind: str) -> None:
    both = KINDS[kind](max_steps=5, random_state=3).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    alone = [KINDS[kind](max_steps=5, random_state=seed, n_starts=1) for seed in (3, 4)]
    first, second = (model.fit(DATA.X[SEEN], graph=DATA.graph[SEEN]).score_all(DATA.X[COLD]) for model in alone)
    np.testing.assert_allclose(both.score_all(DATA.X[COLD]), (first + second) / 2, atol=1e-5)
    assert not np.allclose(first, second, atol=1e-2)
    assert [len(both.modules_), len(both.histories_)] == [2, 2]
    assert both.history_ == alone[0].history_


def test_there_are_as_many_starts_as_our_own_method_has_maps() -> None:
    assert [default_fits(n) for n in (3, 10_000, 10_001, 100_000, 100_001)] == [3, 3, 2, 2, 1]
    X, graph = DATA.X[SEEN], DATA.graph[SEEN]
    ours = SparcLinkPredictor(8, spectral_steps=2, refine_steps=2, random_state=0, device="cpu").fit(X, graph=graph)
    theirs = KINDS["mlp"](max_steps=2, n_starts="auto").fit(X, graph=graph)
    assert ours.report_["maps"] == len(theirs.modules_) == 3


def test_starts_are_judged_by_the_nodes_that_judge_our_own_maps() -> None:
    data = make_blocks(2800, 9000, 4, branching=(4,), random_state=0)
    features = FeatureSource(data.X, Scaling.fit(data.X))
    found = pair_links._link_data(features, data.graph, 5)
    held = hold_out(data.graph, 500 / np.count_nonzero(np.diff(data.graph.indptr)), 5)
    expected = Retrieval(held, 5, CPU)
    assert found.retrieval is not None
    assert found.retrieval.truth.shape == (400, len(found.train))  # all seen nodes up to 10,000
    assert np.array_equal(found.retrieval.queries, expected.queries)
    assert np.array_equal(found.retrieval.candidates, expected.candidates)


FEW = {"max_steps": 4, "teacher_steps": 4, "anchors": 8}


def test_llp_without_a_teacher_is_its_plain_student_to_the_last_bit() -> None:
    student = KINDS["mlp"](max_steps=4).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    model = KINDS["llp"](**FEW, weights=(1, 0, 0)).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert model.score_all(DATA.X[COLD]).tobytes() == student.score_all(DATA.X[COLD]).tobytes()
    assert model.teacher_histories_ == []


def test_llp_can_pick_the_plain_student(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RelationalTask, "evaluate", lambda task: 0.0)  # no taught student ranks anything
    model = KINDS["llp"](**FEW).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert model.weights_ == (1.0, 0.0, 0.0)
    assert list(model.scores_) == list(WEIGHTS[:2])  # the first that does harm ends the search
    assert model.scores_[1.0, 1.0, 1.0] == 0.0 < model.scores_[1.0, 0.0, 0.0]
    assert len(model.teacher_histories_) == 1  # the second start has nothing to choose, and no teacher
    student = KINDS["mlp"](max_steps=4).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert model.score_all(DATA.X[COLD]).tobytes() == student.score_all(DATA.X[COLD]).tobytes()


def test_llp_follows_a_teacher_that_helps_its_held_out_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, start = [], RelationalTask.__init__

    def spy(task: RelationalTask, *given, **settings) -> None:
        start(task, *given, **settings)
        tried.append(task.weights)

    monkeypatch.setattr(RelationalTask, "__init__", spy)
    monkeypatch.setattr(RelationalTask, "evaluate", lambda task: task.weights[1])
    model = KINDS["llp"](**FEW).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert model.weights_ == (1.0, 10.0, 10.0)
    assert tried == [(1.0, 1.0, 1.0), (1.0, 10.0, 10.0), (1.0, 10.0, 10.0)]  # the second start only the chosen one
    assert [set(history[-1]) for history in model.teacher_histories_] == [{"step", "loss", "score"}] * 2


def test_what_llp_tries_is_judged_by_seen_nodes_alone() -> None:
    model = KINDS["llp"](**FEW).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    assert model.weights_ == max(model.scores_, key=lambda weights: model.scores_[weights])
    assert all(0 < score <= 1 for score in model.scores_.values())
    small = KINDS["llp"](**FEW).fit(np.eye(6), graph=[[0, 1, 2], [1, 2, 3]])  # nobody to ask
    assert (small.weights_, small.scores_) == ((1.0, 1.0, 1.0), {})


@pytest.mark.parametrize("kind", list(KINDS))
def test_awkward_input(kind: str) -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))
    few = {"max_steps": 3} | ({"teacher_steps": 3} if kind == "llp" else {})
    model = KINDS[kind](**few).fit(X, graph=[[0, 1, 2], [1, 2, 3]])  # too few to hold any out
    assert "score" not in model.history_[-1]
    assert sorted(model.predict_links(X[:1], k=50)[0][0].tolist()) == list(range(6))
    with pytest.raises(InputError, match="k=0 came"):
        model.predict_links(X, k=0)
    with pytest.raises(InputError, match=r"ids of shape \(2, 2\) came with 3 new nodes"):
        model.score_pairs(X[:3], np.zeros((2, 2), int))
    with pytest.raises(InputError, match="expected 0 to 5"):
        model.score_pairs(X[:1], [6])
    with pytest.raises(FeatureError, match="2 features"):
        model.score_all(X[:, :2])
    with pytest.raises(GraphError, match="no edges"):
        KINDS[kind](**few).fit(X, graph=Graph.empty(6))
    with pytest.raises(InputError, match="max_steps=0"):
        KINDS[kind](max_steps=0).fit(X, graph=[[0, 1], [1, 2]])
    with pytest.raises(InputError, match="n_starts=0"):
        KINDS[kind](n_starts=0).fit(X, graph=[[0, 1], [1, 2]])
    assert clone(KINDS[kind](n_starts=5)).get_params()["n_starts"] == 5
    with pytest.raises(InputError, match="hidden_channels=0"):
        KINDS[kind](hidden_channels=0).fit(X, graph=[[0, 1], [1, 2]])


def test_bad_settings_of_llp() -> None:
    for changes, words in (({"anchors": 0}, "anchors=0"), ({"hops": 0}, "hops=0"), ({"teacher_steps": 0}, "teacher")):
        with pytest.raises(InputError, match=words):
            KINDS["llp"](**changes).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])


@pytest.mark.parametrize("weights", ["all", (1.0, 2.0), (0, 0, 0), (1.0, -1.0, 0.0), (1.0, math.nan, 0.0)])
def test_bad_weights_of_llp(weights) -> None:
    with pytest.raises(InputError, match="expected 'auto' or three numbers of at least 0"):
        KINDS["llp"](**FEW, weights=weights).fit(DATA.X[SEEN], graph=DATA.graph[SEEN])


def test_pair_scores_of_the_cosine_baseline() -> None:
    model = FeatureCosineLinks().fit(DATA.X[SEEN], graph=DATA.graph[SEEN])
    X = DATA.X[COLD[:4]]
    ids, scores = model.predict_links(X, k=3)
    np.testing.assert_allclose(model.score_pairs(X, ids), scores, atol=1e-5)
    np.testing.assert_allclose(model.score_pairs(X, ids[:, 0]), scores[:, 0], atol=1e-5)
