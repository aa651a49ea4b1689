"""SAMBA: the tokens of a node through selective state spaces, in both directions."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gsparc.nn.phormer import TokenInput
from gsparc.nn.spectral_map import SparseRows
from gsparc.ops.dropout import dropout
from gsparc.ops.scan import selective_scan

__all__ = ["MambaBlock", "SambaNet"]


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Depthwise convolution of ``x [B, T, channels]`` with ``weight [width, channels]``; the last tap is the present.

    A sum of shifted products: for a dozen steps it is faster than ``conv1d``, which wants time last. The gradient of
    each shift would be a tensor of zeros with a copy in it, so that of the whole is written by hand.
    """
    out = _CausalConv.apply(x, weight, bias)
    assert isinstance(out, Tensor)
    return out


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, len(weight) - 1, 0))
        ctx.save_for_backward(padded, weight)
        return _shifted_sum(padded, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        padded, weight = ctx.saved_tensors
        (grad,), width = grads, len(weight)
        # an entry is read by the steps after it: the same sum, from the other side
        later = F.pad(grad, (0, 0, 0, width - 1))
        of_x = _shifted_sum(later, weight.flip(0), torch.zeros_like(weight[0]))
        read = (padded[:, tap : tap + grad.shape[1]] for tap in range(width))
        of_weight = torch.stack([(grad * entries).sum(dim=(0, 1)) for entries in read])
        return of_x, of_weight, grad.sum(dim=(0, 1))


def _shifted_sum(padded: Tensor, weight: Tensor, start: Tensor) -> Tensor:
    """``start + sum over taps of padded[:, tap:] * weight[tap]``, ``len(weight) - 1`` steps shorter than ``padded``."""
    length = padded.shape[1] - len(weight) + 1
    out = torch.addcmul(start, padded[:, :length], weight[0])
    for tap in range(1, len(weight)):
        out = torch.addcmul(out, padded[:, tap : tap + length], weight[tap])
    return out


class MambaBlock(nn.Module):
    """Selective state-space block of Mamba (Gu and Dao, arXiv 2312.00752), ``[B, T, channels]`` to the same shape.

    ``x, z = W_in input``; ``x = silu(conv(x))``; step size, ``B`` and ``C`` are functions of ``x``;
    ``output = W_out (scan(x) * silu(z))``. Position ``t`` of the output depends on positions up to ``t`` only.

    Parameters
    ----------
    channels
        Width of input and output.
    state_channels
        Numbers in the state of each inner channel.
    expand
        Inner channels for each outer one.
    conv_width
        Positions that the causal convolution sees.

    Examples
    --------
    >>> import torch
    >>> MambaBlock(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, channels: int, *, state_channels: int = 16, expand: int = 2, conv_width: int = 4) -> None:
        super().__init__()
        self.channels, self.state_channels, self.expand, self.conv_width = channels, state_channels, expand, conv_width
        inner = expand * channels
        self.inner_channels, self.delta_rank = inner, math.ceil(channels / 16)
        self.in_proj = nn.Linear(channels, 2 * inner, bias=False)
        self.conv_weight = nn.Parameter(torch.empty(conv_width, inner))
        self.conv_bias = nn.Parameter(torch.empty(inner))
        self.select = nn.Linear(inner, self.delta_rank + 2 * state_channels, bias=False)
        self.delta_proj = nn.Linear(self.delta_rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, state_channels))
        self.D = nn.Parameter(torch.empty(inner))
        self.out_proj = nn.Linear(inner, channels, bias=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh weights as Mamba does: ``A = -1, ..., -N`` in each channel, step sizes from 0.001 to 0.1."""
        for linear in (self.in_proj, self.select, self.out_proj):
            linear.reset_parameters()
        nn.init.uniform_(self.conv_weight, -(self.conv_width**-0.5), self.conv_width**-0.5)
        nn.init.uniform_(self.conv_bias, -(self.conv_width**-0.5), self.conv_width**-0.5)
        nn.init.uniform_(self.delta_proj.weight, -(self.delta_rank**-0.5), self.delta_rank**-0.5)
        step = torch.empty_like(self.delta_proj.bias).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.delta_proj.bias.copy_(step + torch.log(-torch.expm1(-step)))  # the inverse of softplus
        self.A_log.copy_(torch.arange(1.0, self.state_channels + 1).log())
        nn.init.ones_(self.D)

    def selection(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step size ``[B, T, inner]``, ``B`` and ``C`` ``[B, T, state]``, all read from the input ``[B, T, inner]``."""
        low_rank, B, C = self.select(x).split([self.delta_rank, self.state_channels, self.state_channels], dim=-1)
        return F.softplus(self.delta_proj(low_rank)), B, C

    def forward(self, tokens: Tensor) -> Tensor:
        x, z = self.in_proj(tokens).chunk(2, dim=-1)
        x = F.silu(causal_conv(x, self.conv_weight, self.conv_bias))
        delta, B, C = self.selection(x)
        y = selective_scan(x, delta, -torch.exp(self.A_log), B, C, self.D)
        return self.out_proj(y * F.silu(z))


class TwoWayLayer(nn.Module):
    """A Mamba block along the sequence and one against it, on the normalised stream and added to it."""

    def __init__(self, channels: int, *, state_channels: int, expand: int, conv_width: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.norm = dropout, nn.LayerNorm(channels)
        self.along, self.against = (
            MambaBlock(channels, state_channels=state_channels, expand=expand, conv_width=conv_width) for _ in range(2)
        )

    def forward(self, z: Tensor) -> Tensor:
        x = self.norm(z)
        mixed = self.along(x) + self.against(x.flip(1)).flip(1)
        return z + dropout(mixed, self.dropout, self.training)


class SambaNet(nn.Module):
    """Class of a node from its token list by Mamba blocks, after Graph Mamba (Behrouz and Hashemi, arXiv 2402.08678).

    Tokens as in :class:`gsparc.nn.phormer.TokenTransformer`: the node itself, then means over ``2^j`` nearest
    nodes. They are turned, so that the largest neighbourhood comes first and the node itself last.

    Parameters
    ----------
    in_channels, out_channels
        Width of a token, number of classes.
    num_tokens
        Longest token list; shorter ones may be passed.
    hidden_channels, num_layers
        Width and depth.
    state_channels, expand, conv_width
        See :class:`MambaBlock`.
    dropout, input_dropout
        Shares of hidden and of input entries dropped in training.
    own_channels
        Width of further features of the node itself, see :class:`~gsparc.nn.phormer.TokenInput`; 0 for none.

    Notes
    -----
    Each direction is read at its own last position, where it has seen every token: along the sequence that is the
    node itself, against it the largest neighbourhood. At the node itself the second direction has seen
    the node only, and in a last layer its state would be trained for nothing. Tokens need no embedding of
    their place: the recurrence and the convolution see the order.

    Examples
    --------
    >>> import torch
    >>> model = SambaNet(16, 3, num_tokens=5, hidden_channels=32).eval()
    >>> model(torch.randn(2, 5, 16)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_tokens: int,
        hidden_channels: int = 128,
        num_layers: int = 1,
        state_channels: int = 16,
        expand: int = 2,
        conv_width: int = 4,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        own_channels: int = 0,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.num_tokens = in_channels, out_channels, num_tokens
        self.hidden_channels, self.num_layers, self.state_channels = hidden_channels, num_layers, state_channels
        self.expand, self.conv_width = expand, conv_width
        self.dropout, self.input_dropout, self.own_channels = dropout, input_dropout, own_channels
        self.input = TokenInput(
            in_channels, hidden_channels, num_tokens=num_tokens, dropout=input_dropout, own_channels=own_channels
        )
        self.layers = nn.ModuleList(
            TwoWayLayer(
                hidden_channels, state_channels=state_channels, expand=expand, conv_width=conv_width, dropout=dropout
            )
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden_channels)
        self.hidden = nn.Linear(2 * hidden_channels, hidden_channels)
        self.output = nn.Linear(hidden_channels, out_channels)

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild this module."""
        names = (
            "in_channels",
            "out_channels",
            "num_tokens",
            "hidden_channels",
            "num_layers",
            "state_channels",
            "expand",
            "conv_width",
            "dropout",
            "input_dropout",
            "own_channels",
        )
        return {name: getattr(self, name) for name in names}

    def encode(self, tokens: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        """Tokens after the layers, ``[B, T, hidden_channels]``, largest neighbourhood first, the node itself last."""
        z = dropout(self.input(tokens, own).flip(1), self.dropout, self.training)
        for layer in self.layers:
            z = layer(z)
        return self.norm(z)

    def forward(self, tokens: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        """Logits ``[B, out_channels]``."""
        z = self.encode(tokens, own)
        ends = torch.cat([z[:, -1], z[:, 0]], dim=1)  # [B, 2 * hidden]
        hidden = dropout(F.gelu(self.hidden(ends)), self.dropout, self.training)
        return self.output(hidden)
