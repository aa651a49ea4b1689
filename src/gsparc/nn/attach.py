"""An ordinary message-passing module on nodes without edges: attached to their inferred neighbours.

Each target node gets a small graph of its own: itself, its inferred neighbours among the seen nodes, and the real
edges around those, ``num_hops`` deep and ``fanout`` wide. The graphs of a batch lie side by side and share nothing.
That is PyG's ``NeighborLoader(disjoint=True, subgraph_type="bidirectional")`` with inferred edges for the first
hop. It costs copies of seen nodes that several targets share, and gives what sharing cannot:

- a prediction does not depend on which other nodes are in the batch, whatever the module normalises by (degrees in
  or out, softmax over neighbours, statistics of a graph);
- in training the seen original of a target can be left out of *its* graph and stay in those of others.

A target has at most ``k (1 + fanout + ... + fanout^num_hops)`` seen nodes, however many edges they have.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gsparc._validation import check_count
from gsparc.exceptions import FeatureError, InputError

__all__ = ["AttachedGraph", "AttachedModule", "SeenEdges", "attach_targets", "check_module"]


class SeenEdges(NamedTuple):
    """The seen graph as CSR tensors on one device; symmetric, used as it is and never copied."""

    indptr: Tensor  # [n + 1] int64
    indices: Tensor  # [entries] int32 or int64
    weights: Tensor | None = None  # [entries]; None: all one


class AttachedGraph(NamedTuple):
    """The graphs of a batch of targets, side by side; seen nodes come first, targets last."""

    node_ids: Tensor  # [S] positions among the seen nodes; one that several targets need comes several times
    edge_index: Tensor  # [2, E] from source to target, PyG's way
    edge_weight: Tensor  # [E] float32
    target_index: Tensor  # [B] rows of the targets: S, ..., S + B - 1
    batch: Tensor  # [S + B] which target's graph a node belongs to

    def features(self, x_targets: Tensor, x_seen: Tensor | Callable[[Tensor], Tensor]) -> Tensor:
        """Rows for all nodes, ``[S + B, d]``, from all seen rows or from a function of distinct positions."""
        if isinstance(x_seen, Tensor):
            return torch.cat([x_seen[self.node_ids.to(x_seen.device)].to(x_targets), x_targets])
        distinct, inverse = torch.unique(self.node_ids, return_inverse=True)
        rows = x_seen(distinct).to(x_targets)
        return torch.cat([rows[inverse.to(rows.device)], x_targets])


def attach_targets(
    ids: Tensor,
    weights: Tensor,
    edges: SeenEdges,
    *,
    num_hops: int = 1,
    fanout: int = 8,
    exclude: Tensor | None = None,
    seed: int = 0,
    generator: torch.Generator | None = None,
) -> AttachedGraph:
    """The small graph around each of B targets.

    Inferred edges lead from the seen neighbour to the target only, so a target changes neither seen nodes nor other
    targets. Real edges lead both ways. Those between two nodes of the last hop are not there: finding them would
    take one hop more.

    Parameters
    ----------
    ids : integer tensor of shape (B, k)
        Inferred neighbours as positions among the seen nodes; -1 for none.
    weights : tensor of shape (B, k)
        Their weights, on the scale of the graph's own (one where it has none). An edge of weight zero is no edge; a
        neighbour that is named twice counts once, with the sum. Gradients pass.
    edges : SeenEdges
    num_hops : int
        Hops of real edges around the inferred neighbours: with 1 a module of two layers sees neighbours' neighbours.
    fanout : int
        Real neighbours a node and hop at most. A node with more gives an evenly spaced sample of its row, each
        neighbour with the same probability. Costs O(fanout) however long the row is.
    exclude : integer tensor of shape (B,), optional
        A seen node that must not appear in the target's graph, -1 for none: in training the target's original.
    seed : int
        Fixes each node's sample, so that it is the same in every batch.
    generator : torch.Generator, optional
        Draws fresh samples instead; for training.

    Examples
    --------
    The path 0 - 1 - 2, and a new node that looks like node 0:

    >>> path = SeenEdges(torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]))
    >>> attached = attach_targets(torch.tensor([[0]]), torch.tensor([[0.5]]), path)
    >>> attached.node_ids.tolist(), attached.target_index.tolist()
    ([0, 1], [2])
    >>> attached.edge_index.tolist(), attached.edge_weight.tolist()
    ([[0, 1, 0], [1, 0, 2]], [1.0, 1.0, 0.5])
    """
    n = len(edges.indptr) - 1
    ids, weights, exclude = _check_targets(ids, weights, exclude, n, edges.indptr.device)
    block, column = torch.nonzero((ids >= 0) & (weights > 0) & (ids != exclude[:, None]), as_tuple=True)
    # a node of a target's graph is known by one number: target * n + position
    near, inverse = torch.unique(block * n + ids[block, column], return_inverse=True)
    strength = weights.new_zeros(len(near)).index_add(0, inverse, weights[block, column])
    found = frontier = near
    real = [(near[:0], near[:0], weights.new_zeros(0))]
    for _ in range(num_hops):
        inner, outer, weight = _expand(frontier, n, edges, fanout, seed, generator)
        keep = outer % n != exclude[outer // n]
        real.append((inner[keep], outer[keep], weight[keep]))
        frontier = torch.unique(outer[keep])
        frontier = frontier[~torch.isin(frontier, found)]
        found = torch.cat([found, frontier])
    found = found.sort().values
    edge_index, edge_weight = _both_ways(real, found)
    inferred = torch.stack([torch.searchsorted(found, near), len(found) + near // n])
    targets = torch.arange(len(ids), device=ids.device)
    return AttachedGraph(
        node_ids=found % n,
        edge_index=torch.cat([edge_index, inferred], dim=1),
        edge_weight=torch.cat([edge_weight, strength]),
        target_index=len(found) + targets,
        batch=torch.cat([found // n, targets]),
    )


def _check_targets(
    ids: Tensor, weights: Tensor, exclude: Tensor | None, n: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    if ids.ndim != 2 or ids.shape != weights.shape:
        raise InputError(
            f"inferred neighbours of shape {tuple(ids.shape)} came with weights of shape {tuple(weights.shape)}, "
            "expected [targets, k] for both."
        )
    if exclude is None:
        exclude = ids.new_full((len(ids),), -1)
    if exclude.shape != ids.shape[:1]:
        raise InputError(f"exclude of shape {tuple(exclude.shape)} came, expected one node for each of {len(ids)}.")
    ids, exclude = ids.to(device, torch.int64), exclude.to(device, torch.int64)
    weights = weights.to(device, torch.float32)
    if ids.numel() and not -1 <= int(ids.min()) <= int(ids.max()) < n:
        raise InputError(
            f"inferred neighbours go from {int(ids.min())} to {int(ids.max())}, expected positions 0 to {n - 1}, "
            "or -1 for none."
        )
    if not bool((weights >= 0).logical_and(weights.isfinite()).all()):
        raise InputError("weights of inferred neighbours must be finite and not negative. Clip or rescale them.")
    return ids, weights, exclude


def _expand(
    frontier: Tensor, n: int, edges: SeenEdges, fanout: int, seed: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Real neighbours of the nodes ``frontier [F]``: their keys, the neighbours' keys and the weights, each [P]."""
    node = frontier % n
    start = edges.indptr[node]
    degree = edges.indptr[node + 1] - start
    take = degree.clamp(max=fanout)
    total = int(take.sum())
    row = torch.repeat_interleave(torch.arange(len(node), device=node.device), take, output_size=total)
    j = torch.arange(total, device=node.device) - (take.cumsum(0) - take)[row]
    # j * degree + phase runs through 0 .. fanout * degree - 1 once for all j and phases, so that after division
    # each place of the row is equally likely; and steps of degree >= fanout never meet in one place
    phase = _phases(node, degree, seed, generator)
    place = torch.where(degree[row] > fanout, (j * degree[row] + phase[row]) // fanout, j)
    entry = start[row] + place
    outer = (frontier - node)[row] + edges.indices[entry]
    weight = torch.ones(total, device=node.device) if edges.weights is None else edges.weights[entry].float()
    return frontier[row], outer, weight


def _phases(node: Tensor, degree: Tensor, seed: int, generator: torch.Generator | None) -> Tensor:
    """A whole number below each node's degree: drawn, or a hash of the node."""
    bound = degree.clamp(min=1)
    if generator is not None:
        u = torch.rand(node.shape, generator=generator, device=node.device, dtype=torch.float64)
        return torch.minimum((u * bound).long(), bound - 1)
    mask = (1 << 63) - 1
    h = node * 0x1E3779B97F4A7C15 + (seed * 0x3F58476D1CE4E5B9 & mask)  # wraps around, as hashes do
    h = (h ^ (h >> 30)) * 0x14D049BB133111EB
    h = (h ^ (h >> 27)) * 0x2545F4914F6CDD1D
    return ((h ^ (h >> 31)) & mask) % bound


def _both_ways(real: list[tuple[Tensor, Tensor, Tensor]], found: Tensor) -> tuple[Tensor, Tensor]:
    """Edges in both directions between rows of ``found``, each once though both of its ends may have named it."""
    inner, outer, weight = (torch.cat(parts) for parts in zip(*real, strict=True))
    inner, outer = torch.searchsorted(found, inner), torch.searchsorted(found, outer)
    size = max(len(found), 1)
    key, inverse = torch.unique(torch.cat([outer * size + inner, inner * size + outer]), return_inverse=True)
    merged = weight.new_zeros(len(key))
    merged[inverse] = torch.cat([weight, weight])  # equal where an edge was named twice: the graph is symmetric
    return torch.stack([key // size, key % size]), merged


def _call(module: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor) -> Any:
    """The module on a graph, with what its forward takes by name."""
    names = inspect.signature(module.forward).parameters
    more = {name: value for name, value in (("edge_weight", edge_weight), ("batch", batch)) if name in names}
    return module(x, edge_index, **more)


def check_module(module: Any, in_channels: int, out_channels: int) -> None:
    """Try the module on a graph of three nodes, and say in words what does not fit.

    Examples
    --------
    >>> from torch_geometric.nn import GCN
    >>> check_module(GCN(4, 8, num_layers=2, out_channels=5), in_channels=4, out_channels=3)
    Traceback (most recent call last):
    gsparc.exceptions.InputError: the module gives 5 columns but y has 3 classes. Build it with out_channels=3.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"a module of type {type(module).__name__} came, expected a torch.nn.Module instance.")
    for name, part in module.named_modules():
        if getattr(part, "cached", False):
            raise InputError(
                f"{name or 'the module'} ({type(part).__name__}) has cached=True: it would keep the edges of the first "
                "batch for all others. Build it with cached=False."
            )
    like = next((p for p in module.parameters() if not isinstance(p, nn.UninitializedParameter)), torch.zeros(0))
    x = torch.ones(3, in_channels, device=like.device)
    edge_index = torch.tensor([[0, 1, 0], [1, 0, 2]], device=like.device)
    batch = torch.zeros(3, dtype=torch.int64, device=like.device)
    modes = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            out = _call(module.eval(), x, edge_index, torch.ones(3, device=like.device), batch)
    except Exception as error:
        raise _failure(module, in_channels, error) from error
    finally:
        for part, mode in modes:
            part.training = mode
    _check_output(out, 3, out_channels)


def _failure(module: nn.Module, in_channels: int, error: Exception) -> InputError:
    shapes = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", str(error))
    width = getattr(module, "in_channels", None)
    if not isinstance(width, int) and shapes and int(shapes[2]) == in_channels:
        width = int(shapes[3])
    if isinstance(width, int) and width not in (-1, in_channels):
        return FeatureError(
            f"the features have {in_channels} columns but the module takes {width}. "
            f"Build it with in_channels={in_channels}."
        )
    return InputError(
        f"the module failed on a graph of 3 nodes with {in_channels} features: {type(error).__name__}: {error}. "
        "It is called as module(x, edge_index), with edge_weight and batch where its forward has arguments of "
        "these names."
    )


def _check_output(out: Any, num_nodes: int, out_channels: int) -> None:
    if not isinstance(out, Tensor):
        raise InputError(f"the module returned {type(out).__name__}, expected a tensor with one row a node.")
    if out.ndim != 2 or len(out) != num_nodes:
        raise InputError(
            f"the module returned a tensor of shape {tuple(out.shape)} for {num_nodes} nodes, expected one row a node "
            f"and one column a class: ({num_nodes}, {out_channels})."
        )
    if out.shape[1] != out_channels:
        raise InputError(
            f"the module gives {out.shape[1]} columns but y has {out_channels} classes. "
            f"Build it with out_channels={out_channels}."
        )


class AttachedModule(nn.Module):
    """A PyG module, unchanged, that answers for targets attached to the seen graph.

    The module is called as ``module(x, edge_index)``, with ``edge_weight`` and ``batch`` where its forward has
    arguments of these names. It is tried once here, so a width that does not fit is an error before training.

    Parameters
    ----------
    module : torch.nn.Module
        Gives one row of ``out_channels`` scores a node. Not copied.
    in_channels, out_channels : int
        Number of features and of classes.
    num_hops, fanout, seed
        As in :func:`attach_targets`. A module of L layers makes full use of ``num_hops = L - 1``.

    Notes
    -----
    Independent of the batch are modules whose answer for a node depends on its own connected part of the graph (all
    of PyG's convolutions) and, in evaluation mode, on stored statistics (BatchNorm). Norms over a graph
    (GraphNorm, PairNorm) are independent too where the module takes ``batch`` and hands it on.

    Examples
    --------
    >>> from torch_geometric.nn import GraphSAGE
    >>> model = AttachedModule(GraphSAGE(4, 8, num_layers=2, out_channels=3), in_channels=4, out_channels=3)
    >>> path = SeenEdges(torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]))
    >>> attached = model.attach(torch.tensor([[0, 1], [2, -1]]), torch.ones(2, 2), path)
    >>> model(torch.randn(2, 4), torch.randn(3, 4), attached).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        in_channels: int,
        out_channels: int,
        num_hops: int = 1,
        fanout: int = 8,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.num_hops, self.fanout = check_count("num_hops", num_hops, 0), check_count("fanout", fanout, 1)
        check_module(module, in_channels, out_channels)
        self.module, self.seed = module, seed
        self.in_channels, self.out_channels = in_channels, out_channels

    def attach(
        self,
        ids: Tensor,
        weights: Tensor,
        edges: SeenEdges,
        *,
        exclude: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> AttachedGraph:
        """:func:`attach_targets` with this module's settings."""
        return attach_targets(
            ids,
            weights,
            edges,
            num_hops=self.num_hops,
            fanout=self.fanout,
            exclude=exclude,
            seed=self.seed,
            generator=generator,
        )

    def forward(
        self, x_targets: Tensor, x_seen: Tensor | Callable[[Tensor], Tensor], attached: AttachedGraph
    ) -> Tensor:
        """Scores of the targets, ``[B, out_channels]``.

        ``x_targets [B, d]`` says on which device the module runs; ``x_seen`` is all seen rows ``[n, d]`` or a
        function from distinct positions to rows.
        """
        x = attached.features(x_targets, x_seen)
        if x.shape[1] != self.in_channels:
            raise FeatureError(
                f"the features have {x.shape[1]} columns but the module takes {self.in_channels}. "
                "Pass the same columns as in training."
            )
        edge_index, edge_weight = attached.edge_index.to(x.device), attached.edge_weight.to(x.device)
        out = _call(self.module, x, edge_index, edge_weight, attached.batch.to(x.device))
        _check_output(out, len(x), self.out_channels)
        return out[attached.target_index.to(out.device)]
