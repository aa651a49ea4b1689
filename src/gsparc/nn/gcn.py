"""SPARC-GCN: the convolution U g U^T X, with U from the spectral map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsparc.nn.spectral_map import InputLayer, SparseRows, drop_inputs
from gsparc.ops.dropout import dropout

__all__ = ["SpectralConv", "SpectralGCN", "spectral_convolution", "spectral_mixing", "spectral_summary"]


def spectral_summary(x: Tensor, u: Tensor) -> Tensor:
    """``U^T X / N`` over the nodes of each set: ``[S, N, d], [S, N, k] -> [S, k, d]``."""
    return torch.matmul(u.transpose(-1, -2), x) / x.shape[-2]


def spectral_convolution(u: Tensor, filter: Tensor, summary: Tensor) -> Tensor:
    """``U g (U^T X / N)``: ``[S, N, k], [k], [S, k, d] -> [S, N, d]``.

    Examples
    --------
    >>> u = torch.tensor([[[1.0], [-1.0]]])  # two nodes, one eigenfunction
    >>> x = torch.tensor([[[3.0], [1.0]]])
    >>> spectral_convolution(u, torch.tensor([2.0]), spectral_summary(x, u)).flatten().tolist()
    [2.0, -2.0]
    """
    return torch.matmul(u * filter, summary)


def spectral_mixing(to: Tensor, filter: Tensor, u: Tensor, x: Tensor) -> Tensor:
    """``to g (U^T X / N)``, the convolution read at some of a set's nodes: ``[S, M, k], [k], [S, N, k], [S, N, d]``.

    The products are taken in the order that costs less: in small sets first the weight of every node for every other.

    Examples
    --------
    >>> u, x = torch.randn(2, 3, 8), torch.randn(2, 3, 16)
    >>> whole = spectral_convolution(u, torch.ones(8), spectral_summary(x, u))
    >>> torch.allclose(spectral_mixing(u[:, :1], torch.ones(8), u, x), whole[:, :1], atol=1e-5)
    True
    """
    m, n, k, d = to.shape[-2], u.shape[-2], u.shape[-1], x.shape[-1]
    if k * d * (m + n) < m * n * (k + d):
        return spectral_convolution(to, filter, spectral_summary(x, u))
    weights = torch.matmul(to * filter, u.transpose(-1, -2)) / n  # [S, M, N]
    return torch.matmul(weights, x)


class SpectralConv(nn.Module):
    """One layer: ``act(norm(x W_0 + U g U^T x W_1))``, of all nodes of a set or of its first one alone.

    The summary ``U^T x`` comes from the set of nodes that is passed, or is given (the one of all seen nodes).
    """

    def __init__(self, in_channels: int, out_channels: int, *, coordinate_channels: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.ones(coordinate_channels + 1))
        self.own, self.near = (nn.Linear(in_channels, out_channels, bias=bias) for bias in (True, False))
        self.norm = nn.LayerNorm(out_channels)

    def forward(self, x: Tensor, u: Tensor, summary: Tensor | None = None, *, first: bool = False) -> Tensor:
        own, to = (x[:, :1], u[:, :1]) if first else (x, u)
        if summary is None:
            near = spectral_mixing(to, self.filter, u, x)
        else:
            near = spectral_convolution(to, self.filter, summary)
        return F.gelu(self.norm(self.own(own) + self.near(near)))


class SpectralGCN(nn.Module):
    """Spectral graph convolutions over sets of nodes (SPARC-GCN of arXiv 2411.01532).

    A *set* is a group of nodes among which ``U g U^T`` acts: a node and its nearest ones (the
    paper's inference for a cold node), a random sample of all nodes, or all nodes at once (Spectral-GCN, with
    true eigenvectors for ``u``).

    Parameters
    ----------
    in_channels, out_channels
        Width of the rows, number of classes.
    coordinate_channels
        Number of eigenfunctions. The constant one is added here.
    hidden_channels
        Widths of the convolutions.
    own_channels
        Width of further features of the nodes that are classified, which enter the first layer; 0 for none.
    dropout, input_dropout
        Shares of hidden and of input entries dropped in training.

    Notes
    -----
    Differs from the paper: the constant eigenfunction takes part (a set's mean is information), each layer has a path
    for the node's own row and a normalisation, and the sum over a set is a mean, so that sets of any size are alike.

    Examples
    --------
    >>> model = SpectralGCN(8, 3, coordinate_channels=4, hidden_channels=(16,)).eval()
    >>> model(torch.randn(2, 5, 8), torch.randn(2, 5, 4)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        coordinate_channels: int,
        hidden_channels: Sequence[int] = (64, 256),
        own_channels: int = 0,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.own_channels = in_channels, out_channels, own_channels
        self.coordinate_channels, self.hidden_channels = coordinate_channels, tuple(hidden_channels)
        self.dropout, self.input_dropout = dropout, input_dropout
        first = self.hidden_channels[0]
        self.input = InputLayer(in_channels, first)
        self.own = InputLayer(own_channels, first) if own_channels else None
        self.input_norm = nn.LayerNorm(first)
        self.convs = nn.ModuleList(
            SpectralConv(a, b, coordinate_channels=coordinate_channels)
            for a, b in pairwise((first, *self.hidden_channels))
        )
        self.output = nn.Linear(self.hidden_channels[-1] + first, out_channels)

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild this module."""
        names = ("in_channels", "out_channels", "coordinate_channels", "own_channels", "dropout", "input_dropout")
        return {name: getattr(self, name) for name in names} | {"hidden_channels": list(self.hidden_channels)}

    def _start(self, x: Tensor, own: Tensor | SparseRows | None) -> Tensor:
        h = self.input(dropout(x, self.input_dropout, self.training).flatten(0, 1)).unflatten(0, x.shape[:2])
        if self.own is not None and own is not None:
            added = self.own(drop_inputs(own, self.input_dropout, self.training))
            if len(added) == h.shape[0] * h.shape[1]:  # for all nodes of the sets
                h = h + added.view_as(h)
            else:  # for the first node of each
                h = torch.cat([h[:, :1] + added.unsqueeze(1), h[:, 1:]], dim=1)
        return F.gelu(self.input_norm(h))

    def forward(
        self,
        x: Tensor,
        u: Tensor,
        own: Tensor | SparseRows | None = None,
        summaries: Sequence[Tensor] | None = None,
        read: Literal["sets", "first", "flat"] = "sets",
    ) -> Tensor:
        """Logits of all nodes of the sets, ``[S, N, out_channels]``.

        ``read="first"`` gives those of each set's first node, ``[S, out_channels]``, and ``"flat"`` all of them below
        each other. ``summaries`` (one ``[k + 1, width]`` a layer, as :meth:`layer_summaries` gives) replace the
        sets' own.
        """
        start = h = self._start(x, own)
        u = with_constant(u)
        for number, conv in enumerate(self.convs):
            h = dropout(h, self.dropout, self.training)
            last = number == len(self.convs) - 1
            h = conv(h, u, None if summaries is None else summaries[number], first=last and read == "first")
        if read == "first":
            h, start = h[:, 0], start[:, 0]
        elif read == "flat":
            h, start = h.flatten(0, 1), start.flatten(0, 1)
        return self.output(dropout(torch.cat([h, start], dim=-1), self.dropout, self.training))

    @torch.no_grad()
    def layer_summaries(self, blocks: Callable[[], Iterable[tuple[Tensor, Tensor, Any]]]) -> list[Tensor]:
        """``U^T X / n`` of every layer over all nodes, streamed; ``blocks()`` gives ``(x, u, own)``, each one set."""
        summaries: list[Tensor] = []
        for number in range(len(self.convs)):
            total, count = None, 0
            for x, u, own in blocks():
                h, u1 = self._start(x, own), with_constant(u)
                for conv, summary in zip(self.convs[:number], summaries, strict=True):
                    h = conv(h, u1, summary)
                part = spectral_summary(h, u1)[0] * h.shape[1]
                total, count = part if total is None else total + part, count + h.shape[1]
            assert total is not None
            summaries.append(total / count)
        return summaries


def with_constant(u: Tensor) -> Tensor:
    """Coordinates with the constant eigenfunction before them."""
    return torch.cat([torch.ones_like(u[..., :1]), u], dim=-1)
