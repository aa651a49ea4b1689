"""Tasks for the loop: eigenfunctions of an operator, judged on held-out nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gsparc._processes import world
from gsparc._runtime import further_seed, torch_generator
from gsparc.graph import Graph
from gsparc.nn.objectives import contrastive_loss, generalisation_score, rayleigh_loss
from gsparc.nn.spectral_map import SpectralNet
from gsparc.ops.orthonormal import orthonormal_layer
from gsparc.ops.ritz import solve_ritz
from gsparc.training.batches import EdgeSampler, FeatureSource, as_tensor
from gsparc.training.distributed import average

__all__ = ["HeldOut", "SpectralTask", "at_distinct", "distinct_values", "hold_out", "values_at"]

_REFERENCE_EDGES = 16_384
_HELD_NODES = 2_000
_HELD_NEIGHBOURS = 32
_DRAWS = 10


@dataclass(frozen=True)
class HeldOut:
    """Seen nodes that play cold ones: their rows, and their edges to the training nodes."""

    train: np.ndarray  # rows of X that are trained on
    nodes: np.ndarray  # [h] rows of X that are held out
    pointers: np.ndarray  # [h + 1] into neighbours
    neighbours: np.ndarray  # positions in `train`


def hold_out(graph: Graph, share: float, seed: int) -> HeldOut | None:
    """Hold out a share of the connected nodes; ``None`` when the graph is too small for it.

    At most 2,000 nodes, so the cost of an evaluation does not depend on the size of the graph. Where hardly any of them
    is linked to the others, as when the hub of a star is among them, they are drawn again.
    """
    rng = np.random.default_rng(seed)
    candidates = np.flatnonzero(np.diff(graph.indptr) > 0)
    count = min(round(share * len(candidates)), _HELD_NODES)
    if count < 5:
        return None
    for _ in range(_DRAWS):
        chosen = np.sort(rng.choice(candidates, size=count, replace=False))
        is_held = np.zeros(graph.num_nodes, bool)
        is_held[chosen] = True
        held = held_in(graph, chosen, np.flatnonzero(~is_held))
        if held is not None:
            return held
    return None


def held_in(graph: Graph, nodes: np.ndarray, train: np.ndarray) -> HeldOut | None:
    """Those of ``nodes`` that have neighbours among ``train``, with these; ``None`` where they are fewer than five."""
    position = np.full(graph.num_nodes, -1, np.int64)
    position[train] = np.arange(len(train))
    kept_nodes, lists = [], []
    for node in nodes:  # at most _HELD_NODES rounds
        near = position[graph.neighbors(int(node))]
        near = near[near >= 0]
        if len(near):
            kept_nodes.append(node)
            lists.append(near)
    if len(kept_nodes) < 5:
        return None
    pointers = np.concatenate([[0], np.cumsum([len(near) for near in lists])])
    return HeldOut(train, np.array(kept_nodes), pointers, np.concatenate(lists))


@torch.no_grad()
def values_at(
    module: SpectralNet, features: FeatureSource, index: Tensor, *, raw: bool = False, chunk: int = 16_384
) -> Tensor:
    """Function values at rows ``index``, in chunks, without dropout."""
    was_training = module.training
    module.eval()
    call = module.raw if raw else module
    parts = [call(features.rows(index[i : i + chunk])).float() for i in range(0, len(index), chunk)]
    module.train(was_training)
    return torch.cat(parts)


def at_distinct(compute: Callable[[Tensor], Tensor], nodes: Tensor, count: int) -> Tensor:
    """``compute(nodes)`` for some of ``count`` nodes, each distinct one computed once where that pays.

    Hubs make a third of a batch repeats. A GPU would wait for their number: it computes repeats too, or all nodes
    where there are fewer.
    """
    if nodes.device.type != "cuda":
        distinct, inverse = torch.unique(nodes, return_inverse=True)
        return compute(distinct)[inverse]
    return compute(nodes) if len(nodes) < count else compute(torch.arange(count, device=nodes.device))[nodes]


def distinct_values(module: SpectralNet, features: FeatureSource, rows: Tensor, nodes: Tensor) -> Tensor:
    """Raw outputs at ``nodes``, which are positions in ``rows``."""
    return at_distinct(lambda some: module.raw(features.rows(rows[some])), nodes, len(rows))


class SpectralTask:
    """Fit :class:`SpectralNet` to the leading eigenfunctions of a sampled operator.

    Parameters
    ----------
    module, features
        The network and the rows of all seen nodes.
    sampler
        Draws edges among the training nodes.
    train
        Row of each training node in ``features``.
    held
        Held-out nodes to judge by, or ``None``.
    objective
        ``"contrastive"`` or ``"rayleigh"``.
    batch_size
        Edges a step, of all processes together where several train.
    keep
        Leading functions that will be kept, and are judged; all by default.
    """

    def __init__(
        self,
        module: SpectralNet,
        features: FeatureSource,
        sampler: EdgeSampler,
        train: np.ndarray,
        held: HeldOut | None,
        *,
        objective: str,
        batch_size: int,
        nested: bool = False,
        keep: int | None = None,
        seed: int = 0,
    ) -> None:
        self.module, self.features, self.sampler = module, features, sampler
        self.keep = module.out_channels if keep is None else keep
        self.objective, self.batch_size, self.nested = objective, max(world().share(batch_size), 2), nested
        self._average = average if world().size > 1 else None
        self._common = partial(average, alike=True) if world().size > 1 else None
        self.train_rows = as_tensor(train).to(features.device)
        self._score = None if held is None else _HeldOutScore(self, held, seed)

    @property
    def capturable(self) -> bool:
        """Whether a step may be recorded: nothing in it waits for the device."""
        return self.objective == "contrastive" and self.features.settle()

    @property
    def exact(self) -> bool:
        """Whether steps need all digits: an output layer that undoes correlations multiplies what rounding leaves."""
        return self.objective == "rayleigh"

    def ends(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Raw outputs at both ends of ``count`` fresh edges; shared nodes are computed once."""
        source, target = self.sampler.sample(count, generator)
        nodes = torch.cat([source, target])
        values = distinct_values(self.module, self.features, self.train_rows, nodes)
        source, target = values.float().split(count)  # one gradient for both; slices would be added up
        return source, target

    def loss(self, generator: torch.Generator) -> Tensor:
        """Loss of one batch of edges."""
        if self.objective == "rayleigh":
            return self._rayleigh(generator)
        source, target = self.ends(self.batch_size, generator)
        with torch.autocast(source.device.type, enabled=False):
            return contrastive_loss(source, target, nested=self.nested, average=self._common)

    def _rayleigh(self, generator: torch.Generator) -> Tensor:
        # orthogonalisation step on one batch: sets the output layer, no gradient
        with torch.no_grad():  # dropout stays on: both batches see the same kind of functions
            ends = torch.cat(self.ends(self.batch_size, generator))
            self.module.set_output_layer(*orthonormal_layer(ends, average=self._average))
        # gradient step on another batch: trains everything below the output layer
        source, target = self.ends(self.batch_size, generator)
        offset, rotation = self.module.offset, self.module.rotation
        with torch.autocast(source.device.type, enabled=False):
            source, target = (source - offset) @ rotation, (target - offset) @ rotation
            return rayleigh_loss(source, target, average=self._average)

    def evaluate(self) -> float | None:
        """Share of the held-out nodes' edges that the functions explain."""
        return None if self._score is None else self._score()


def _some_neighbours(held: HeldOut, nodes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most 32 random neighbours of each of some held-out nodes, and how many of each: bounds the cost of a score."""
    rng = np.random.default_rng(seed)
    lists = [held.neighbours[held.pointers[node] : held.pointers[node + 1]] for node in nodes]
    lists = [
        part if len(part) <= _HELD_NEIGHBOURS else np.sort(rng.choice(part, _HELD_NEIGHBOURS, replace=False))
        for part in lists
    ]
    return np.concatenate(lists), np.array([len(part) for part in lists])


class _HeldOutScore:
    """:func:`generalisation_score` after Rayleigh-Ritz on a fixed sample of training edges.

    Everything is a polynomial in moments of the raw outputs. Where several processes train, each takes the moments of
    its share of the edges and of the held-out nodes, and they meet once.
    """

    def __init__(self, task: SpectralTask, held: HeldOut, seed: int) -> None:
        self.task = task
        device, here = task.features.device, world()
        source, target = task.sampler.sample(_REFERENCE_EDGES, torch_generator(further_seed(seed, 1), device))
        source, target = (ends.tensor_split(here.size)[here.rank] for ends in (source, target))
        self.count = len(source)
        own = np.array_split(np.arange(len(held.nodes)), here.size)[here.rank]
        near_to, degrees = _some_neighbours(held, own, further_seed(seed, here.rank))
        near = as_tensor(near_to).to(device)
        unique, self.inverse = torch.unique(torch.cat([source, target, near]), return_inverse=True)
        self.rows = torch.cat([task.train_rows[unique], as_tensor(held.nodes[own]).to(device)])
        self.num_held = len(own)
        self.owner = torch.repeat_interleave(torch.arange(len(degrees), device=device), as_tensor(degrees).to(device))
        self.degrees = as_tensor(degrees).to(device, torch.float64)

    def _moments(self) -> tuple[Tensor, ...]:
        """Sums over the ends of edges and over held-out nodes, one message for all of them."""
        task = self.task
        values = values_at(task.module, task.features, self.rows, raw=True)
        held, values = values[len(values) - self.num_held :].double(), values[self.inverse]
        source, target = values[: self.count].double(), values[self.count : 2 * self.count].double()
        # the mean over a held-out node's neighbours, weighed by how many it has: their sum
        attached = torch.zeros_like(held).index_add_(0, self.owner, values[2 * self.count :].double())
        weighed = held * self.degrees[:, None]
        counts = torch.stack([held.new_tensor(2.0 * self.count), self.degrees.sum()])
        parts = (
            (source.sum(dim=0) + target.sum(dim=0))[None],
            weighed.sum(dim=0)[None],
            attached.sum(dim=0)[None],
            source.T @ source + target.T @ target,
            source.T @ target,
            held.T @ attached,
            held.T @ weighed,
            counts[:, None].expand(2, held.shape[1]),
        )
        return average(torch.cat(parts)).split([len(part) for part in parts])

    def __call__(self) -> float:
        ends, held, attached, gram, cross, beside, gram_held, counts = self._moments()
        edges, weight = counts[0, 0], counts[1, 0]
        offset = ends[0] / edges
        outer = torch.outer(offset, offset)
        gram, cross = gram / edges - outer, (cross + cross.T) / edges - outer  # there are half as many pairs as ends
        ritz = solve_ritz(gram, cross, offset, rank_tolerance=1e-6)
        # scaling by sqrt(mu) turns orthonormal functions into factors of the operator
        layer = (ritz.rotation * ritz.mu.clamp_min(0).sqrt())[:, : self.task.keep]
        mean_held, mean_near = held[0] / weight, attached[0] / weight
        beside = beside / weight - torch.outer(mean_held, offset) - torch.outer(offset, mean_near) + outer
        gram_held = gram_held / weight - torch.outer(mean_held, offset) - torch.outer(offset, mean_held) + outer
        score = generalisation_score(
            ((layer.T @ beside) * layer.T).sum(),
            torch.zeros_like(layer[0]),  # the functions are centred on the seen nodes
            layer.T @ gram @ layer,
            (mean_held - offset) @ layer,
            layer.T @ gram_held @ layer,
        )
        return float(score)
