"""The score of held-out nodes against its definition, value by value."""

from __future__ import annotations

import pytest
import torch

from gsparc._processes import World, entered
from gsparc.datasets import make_blocks
from gsparc.graph import Graph
from gsparc.nn.spectral_map import SpectralNet
from gsparc.ops.ritz import solve_ritz
from gsparc.training import spectral
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling
from gsparc.training.spectral import SpectralTask, at_distinct, hold_out, values_at


@pytest.fixture
def task() -> SpectralTask:
    data = make_blocks(400, 2400, 8, branching=(4,), random_state=0)
    held = hold_out(data.graph, 0.1, 0)
    assert held is not None
    torch.manual_seed(0)
    net = SpectralNet(8, 6, hidden_channels=(16,))
    net.input.bias.data += 3.0  # outputs far from centred
    source = FeatureSource(data.X, Scaling.fit(data.X))
    sampler = EdgeSampler(data.graph[held.train], "cpu")
    return SpectralTask(net, source, sampler, held.train, held, objective="contrastive", batch_size=64, keep=4)


def plain_score(task: SpectralTask) -> float:
    """As :class:`_HeldOutScore` has it, from the values at every end of every edge."""
    score = task._score
    assert score is not None
    count, held_count = score.count, score.num_held
    values = values_at(task.module, task.features, score.rows, raw=True).double()
    held = values[len(values) - held_count :]
    ends = values[score.inverse]
    source, target, near = ends[:count], ends[count : 2 * count], ends[2 * count :]
    both = torch.cat([source, target])
    offset = both.mean(dim=0)
    gram = (both - offset).T @ (both - offset) / len(both)
    cross = (source - offset).T @ (target - offset) / count
    ritz = solve_ritz(gram, (cross + cross.T) / 2, offset, rank_tolerance=1e-6)
    layer = (ritz.rotation * ritz.mu.clamp_min(0).sqrt())[:, : task.keep]
    held, near, seen = ((part - offset) @ layer for part in (held, near, both))
    attached = torch.zeros_like(held).index_add_(0, score.owner, near) / score.degrees[:, None]
    weight = (score.degrees / score.degrees.sum())[:, None]
    attraction, mean_held = (weight * held * attached).sum(), (weight * held).sum(dim=0)
    apart = (seen.T @ seen / len(seen)) * ((weight * held).T @ held)
    return float(2 * attraction - 2 * (seen.mean(dim=0) * mean_held).sum() - apart.sum())


def test_the_score_by_moments_is_that_of_the_values(task: SpectralTask) -> None:
    assert task.evaluate() == pytest.approx(plain_score(task), rel=1e-9)
    assert abs(plain_score(task)) > 1e-3


def test_shares_of_the_score_cover_everything_once(task: SpectralTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments of both processes add up to those of one."""
    held = hold_out(make_blocks(400, 2400, 8, branching=(4,), random_state=0).graph, 0.1, 0)
    assert held is not None
    monkeypatch.setattr(spectral, "_HELD_NEIGHBOURS", 1000)  # each would draw others
    monkeypatch.setattr(spectral, "average", lambda value: value)  # no second process is here to be asked
    whole, parts = torch.cat(spectral._HeldOutScore(task, held, 0)._moments()), []
    for rank in range(2):
        with entered(World(rank=rank, size=2)):
            parts.append(torch.cat(spectral._HeldOutScore(task, held, 0)._moments()))
    torch.testing.assert_close(parts[0] + parts[1], whole, rtol=1e-6, atol=1e-6)


def test_each_distinct_node_is_computed_once() -> None:
    asked: list[list[int]] = []

    def double(nodes: torch.Tensor) -> torch.Tensor:
        asked.append(nodes.tolist())
        return 2 * nodes

    assert at_distinct(double, torch.tensor([7, 3, 7, 7]), 9).tolist() == [14, 6, 14, 14]
    assert asked == [[3, 7]]


@pytest.mark.parametrize("seed", range(20))
def test_nodes_of_a_star_are_held_out_without_their_hub(seed: int) -> None:
    star = Graph.from_edges([[0] * 99, list(range(1, 100))])
    held = hold_out(star, 0.2, seed)
    assert held is not None
    assert 0 in held.train
    assert len(held.nodes) == 20
    assert hold_out(Graph.from_edges([[0, 1], [1, 2]], num_nodes=100), 0.2, seed) is None
