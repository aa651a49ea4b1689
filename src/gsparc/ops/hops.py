"""Hop tokens: a node's features and their averages over one, two, ... K steps along the edges."""

from __future__ import annotations

from torch import Tensor

from gsparc.exceptions import InputError
from gsparc.ops.propagate import Propagation

__all__ = ["HopTokens", "hop_tokens"]


def hop_tokens(rows: Tensor, propagation: Propagation, num_hops: int, index: Tensor | None = None) -> Tensor:
    """``[x, P x, ..., P^K x]`` at the nodes ``index``: ``[n, d] -> [B, K + 1, d]``.

    Streams over the hops: beside the result, two matrices ``[n, d]`` are held.

    Parameters
    ----------
    rows
        Features of all nodes.
    propagation
        One step ``P`` along the edges.
    num_hops
        ``K``; zero gives the features alone.
    index
        Nodes whose tokens are wanted; all by default.

    Examples
    --------
    >>> import torch
    >>> from gsparc.graph import Graph
    >>> mean = Propagation(Graph.from_edges([[0, 1], [1, 2]]), "mean")
    >>> hop_tokens(torch.tensor([[1.0], [2.0], [5.0]]), mean, 2, torch.tensor([0])).tolist()
    [[[1.0], [2.0], [3.0]]]
    """
    if num_hops < 0:
        raise InputError(f"num_hops={num_hops} came, expected a whole number >= 0.")
    everyone = index is None
    count = len(rows) if everyone else len(index)
    out = rows.new_empty(count, num_hops + 1, rows.shape[1])
    hop = rows
    for number in range(num_hops + 1):
        hop = propagation(hop) if number else hop
        out[:, number] = hop if everyone else hop[index]
    return out


class HopTokens:
    """Hop tokens of all nodes, computed once; ``(K + 1) n d`` floats.

    Examples
    --------
    >>> import torch
    >>> from gsparc.graph import Graph
    >>> mean = Propagation(Graph.from_edges([[0, 1], [1, 2]]), "mean")
    >>> HopTokens(torch.eye(3), mean, 4)(torch.tensor([2, 0])).shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, rows: Tensor, propagation: Propagation, num_hops: int) -> None:
        self._tokens = hop_tokens(rows, propagation, num_hops)

    def __call__(self, index: Tensor) -> Tensor:
        """Tokens of the nodes ``index``, ``[B, K + 1, d]``."""
        return self._tokens[index]
