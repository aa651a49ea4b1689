"""Task for the loop: pull linked nodes together, judged by how well held-out nodes find their neighbours."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gsparc._processes import world
from gsparc.graph import Graph
from gsparc.nn.objectives import info_nce_loss
from gsparc.nn.spectral_map import SpectralNet
from gsparc.training.batches import EdgeSampler, FeatureSource, as_tensor
from gsparc.training.distributed import computed_together, gather, gathered
from gsparc.training.spectral import HeldOut, distinct_values, values_at

__all__ = [
    "LinkTask",
    "Retrieval",
    "default_fits",
    "held_out_share",
    "joint_info_nce",
    "mean_log_ranks",
    "mean_reciprocal_rank",
]


def default_fits(num_nodes: int) -> int:
    """How many fits a link scorer averages unless told: our maps and the baselines' random starts alike.

    Examples
    --------
    >>> default_fits(2_000), default_fits(20_000), default_fits(200_000)
    (3, 2, 1)
    """
    return 3 if num_nodes <= 10_000 else 2 if num_nodes <= 100_000 else 1


def held_out_share(graph: Graph) -> float:
    """Share of the connected nodes that every link scorer holds out: some 500, and 5 to 20 percent.

    Examples
    --------
    >>> held_out_share(Graph.from_edges([[0, 1], [1, 2]]))
    0.2
    """
    linked = max(1, int((np.diff(graph.indptr) > 0).sum()))
    return float(np.clip(500 / linked, 0.05, 0.2))


def joint_info_nce(
    source: Tensor, target: Tensor, temperature: float, pairs: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """InfoNCE over the batches of all processes, each the others' negatives; the mean over processes is the loss.

    Parameters
    ----------
    source, target
        ``[B, k]`` values at the two ends of this process' edges.
    pairs
        Numbers ``[B]`` of their nodes: a pair that shares a node with another is not its negative, and one with twice
        the same node counts for nothing.
    """
    if world().size == 1 and pairs is None:
        return info_nce_loss(source, target, temperature)
    source, target = F.normalize(torch.cat([source, target]), dim=1).split(len(source))
    forth = source @ gathered(target).T / temperature  # [B, size * B]
    back = target @ gathered(source).T / temperature
    own = torch.arange(len(source), device=source.device)
    place = own + world().rank * len(own)  # of this process' pairs among all
    if pairs is None:
        return 0.5 * (F.cross_entropy(forth, place) + F.cross_entropy(back, place))
    first, second = (torch.cat(gather(ids)) for ids in pairs)
    proper = first != second
    shared = (first[place, None] == first) | (second[place, None] == second) | ~proper
    others = place[:, None] != torch.arange(len(first), device=place.device)
    losses = torch.zeros_like(forth[:, 0])
    for logits, crossed in ((forth, first[place, None] == second), (back, second[place, None] == first)):
        false = (shared | crossed) & others
        losses = losses + F.cross_entropy(logits.masked_fill(false, float("-inf")), place, reduction="none")
    return 0.5 * (losses * proper[place]).sum() * world().size / proper.sum().clamp_min(1)


def mean_reciprocal_rank(scores: Tensor, truth: Tensor) -> float:
    """Mean of 1 / rank of the best true candidate; other true ones are left out, ties count half.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.5, 0.1], [0.1, 0.2, 0.3]])
    >>> truth = torch.tensor([[False, True, False], [False, False, True]])
    >>> mean_reciprocal_rank(scores, truth)
    0.75
    """
    best = scores.masked_fill(~truth, -torch.inf).amax(dim=1, keepdim=True)
    others = scores.masked_fill(truth, -torch.inf)
    rank = 1 + (others > best).sum(dim=1) + 0.5 * (others == best).sum(dim=1)
    return float((1.0 / rank.double()).mean())


def mean_log_ranks(scores: Tensor, truth: Tensor) -> Tensor:
    """Mean logarithm of the ranks of each row's true candidates; other true ones are left out, ties count half.

    Unlike the rank of the best one it says where all of them lie.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.5, 0.1, 0.3], [0.1, 0.4, 0.3, 0.4]])
    >>> truth = torch.tensor([[False, True, False, True], [False, False, False, True]])
    >>> mean_log_ranks(scores, truth).exp().tolist()
    [2.0, 1.5]
    """
    others = scores.masked_fill(truth, -torch.inf).sort(dim=1).values
    true, _ = scores.masked_fill(~truth, -torch.inf).topk(int(truth.sum(dim=1).max()), dim=1)
    below, within = (torch.searchsorted(others, true, right=right) for right in (False, True))
    ranks = 1 + (others.shape[1] - within) + 0.5 * (within - below)
    logs = ranks.double().log().masked_fill(true == -torch.inf, 0.0)  # of rows with fewer true ones
    return logs.sum(dim=1) / truth.sum(dim=1)


class Retrieval:
    """Held-out nodes and the candidates that they are ranked against.

    At most ``max_queries`` nodes and ``max_candidates`` random training nodes (and all true neighbours), so
    that judging costs the same on a graph of any size.
    """

    def __init__(
        self,
        held: HeldOut,
        seed: int,
        device: torch.device,
        *,
        max_queries: int = 400,
        max_candidates: int = 10_000,
    ) -> None:
        rng = np.random.default_rng(seed)
        chosen = np.arange(len(held.nodes))
        if len(chosen) > max_queries:
            chosen = np.sort(rng.choice(chosen, max_queries, replace=False))
        lists = [held.neighbours[held.pointers[i] : held.pointers[i + 1]] for i in chosen]
        near = np.concatenate(lists)
        candidates = np.arange(len(held.train))
        if len(candidates) > max_candidates:
            sample = rng.choice(candidates, max_candidates, replace=False)
            candidates = np.unique(np.concatenate([sample, near]))
        self.queries = held.nodes[chosen]  # rows of X
        self.positions = candidates  # positions among the training nodes
        self.candidates = held.train[candidates]  # rows of X
        truth = np.zeros((len(chosen), len(candidates)), bool)
        owner = np.repeat(np.arange(len(chosen)), [len(part) for part in lists])
        truth[owner, np.searchsorted(candidates, near)] = True
        self.truth = torch.from_numpy(truth).to(device)


class LinkTask:
    """InfoNCE on sampled edges for :class:`SpectralNet`.

    Parameters
    ----------
    module, features, sampler, train
        As in :class:`~gsparc.training.spectral.SpectralTask`.
    retrieval
        What held-out nodes are ranked against, or ``None``.
    batch_size, temperature
        Edges a step (of all processes), each the others' negatives; softmax temperature of the cosines.
    """

    def __init__(
        self,
        module: SpectralNet,
        features: FeatureSource,
        sampler: EdgeSampler,
        train: np.ndarray,
        retrieval: Retrieval | None,
        *,
        batch_size: int,
        temperature: float,
    ) -> None:
        self.module, self.features, self.sampler = module, features, sampler
        self.batch_size, self.temperature = world().share(batch_size), temperature
        device = features.device
        self.train_rows = as_tensor(train).to(device)
        self.retrieval = retrieval
        if retrieval is not None:
            self._queries = as_tensor(retrieval.queries).to(device)
            self._candidates = as_tensor(retrieval.candidates).to(device)

    @property
    def capturable(self) -> bool:
        """Whether a step may be recorded: nothing in it waits for the device."""
        return self.features.settle()

    def loss(self, generator: torch.Generator) -> Tensor:
        """InfoNCE over one batch; a pair that shares a node with another is not its negative."""
        source, target = self.sampler.sample(self.batch_size, generator)
        if world().size > 1 or source.is_cuda:  # pairs of a node with itself are left out without counting them
            nodes = torch.cat([source, target])
            values = distinct_values(self.module, self.features, self.train_rows, nodes).float()
            first, second = values.split(self.batch_size)
            return joint_info_nce(first, second, self.temperature, (source, target))
        keep = source != target  # self-loops of the operator say nothing about links
        source, target = source[keep], target[keep]
        if len(source) == 0:  # few edges, many nodes: a batch of nothing but self-loops moves nothing
            return 0.0 * self.module.raw(self.features.rows(self.train_rows[:1])).float().sum()
        nodes = torch.cat([source, target])
        first, second = distinct_values(self.module, self.features, self.train_rows, nodes).float().split(len(source))
        same = source[:, None] == source[None, :]
        same |= target[:, None] == target[None, :]
        same |= source[:, None] == target[None, :]
        same.fill_diagonal_(False)
        return info_nce_loss(first, second, self.temperature, same)

    def evaluate(self) -> float | None:
        """Mean reciprocal rank of held-out nodes' neighbours."""
        if self.retrieval is None:
            return None

        def embed(rows: Tensor) -> Tensor:
            return F.normalize(values_at(self.module, self.features, rows, raw=True), dim=1)

        queries, candidates = (computed_together(embed, rows) for rows in (self._queries, self._candidates))
        return mean_reciprocal_rank(queries @ candidates.T, self.retrieval.truth)
