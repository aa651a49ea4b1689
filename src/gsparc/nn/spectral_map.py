"""F_theta: a network from node features to eigenfunctions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsparc.ops.dropout import dropout

__all__ = ["InputLayer", "SparseRows", "SpectralNet", "drop_inputs"]


@dataclass(frozen=True)
class SparseRows:
    """A batch of sparse feature rows in CSR form."""

    pointers: Tensor  # [B + 1] int64
    columns: Tensor  # [nnz] int64
    values: Tensor  # [nnz] float32

    def __len__(self) -> int:
        return len(self.pointers) - 1


def drop_inputs(x: Tensor | SparseRows, share: float, training: bool) -> Tensor | SparseRows:
    """Dropout on feature entries, stored ones only where the rows are sparse."""
    if not training or share == 0:
        return x
    if isinstance(x, SparseRows):
        return replace(x, values=dropout(x.values, share))
    return dropout(x, share)


class InputLayer(nn.Module):
    """A linear layer that takes dense rows or :class:`SparseRows`; its cost follows the non-zeros."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights, scaled so that rows of norm sqrt(in_channels) give unit variance."""
        nn.init.normal_(self.weight, std=self.weight.shape[0] ** -0.5)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        if not isinstance(x, SparseRows):
            return torch.addmm(self.bias, x, self.weight)
        out = F.embedding_bag(
            x.columns,
            self.weight,
            x.pointers,
            mode="sum",
            per_sample_weights=x.values.to(self.weight.dtype),
            include_last_offset=True,
        )
        return out + self.bias


class SpectralNet(nn.Module):
    """MLP with a linear path beside it, and an output layer set by linear algebra.

    Parameters
    ----------
    in_channels, out_channels
        Width of the features and number of functions.
    hidden_channels
        Widths of the hidden layers; empty for a linear map.
    dropout, input_dropout
        Shares of hidden and of input entries dropped in training.
    linear_path
        Add a linear map of the input to the output of the MLP.

    Notes
    -----
    ``forward`` gives ``(z - offset) @ rotation`` where ``z`` is the raw output. ``offset`` and ``rotation`` are
    buffers: the orthogonalisation step of the Rayleigh objective and the
    Rayleigh-Ritz finish set them, never the optimiser, and they are saved with the weights.
    """

    offset: Tensor
    rotation: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        linear_path: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.hidden_channels = tuple(hidden_channels)
        self.dropout, self.input_dropout = dropout, input_dropout
        self.linear_path = linear_path or not self.hidden_channels
        widths = [*self.hidden_channels]
        # one input layer serves the MLP and the linear path: the rows are read once
        self.first_width = widths[0] if widths else 0
        self.input = InputLayer(in_channels, self.first_width + (out_channels if self.linear_path else 0))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], out_channels, bias=False) if widths else None
        self.register_buffer("offset", torch.zeros(out_channels))
        self.register_buffer("rotation", torch.eye(out_channels))

    def config(self) -> dict[str, object]:
        """Arguments that rebuild this module."""
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "hidden_channels": list(self.hidden_channels),
            "dropout": self.dropout,
            "input_dropout": self.input_dropout,
            "linear_path": self.linear_path,
        }

    def basis(self, x: Tensor | SparseRows) -> Tensor:
        """Last hidden layer and linear path side by side, ``[B, basis_channels]``."""
        h = self.input(drop_inputs(x, self.input_dropout, self.training))
        if self.output is None:
            return h
        hidden, linear = h.split([self.first_width, h.shape[1] - self.first_width], dim=1)
        hidden = F.gelu(self.norms[0](hidden))
        for norm, layer in zip(list(self.norms)[1:], self.hidden, strict=True):
            hidden = dropout(hidden, self.dropout, self.training)
            hidden = F.gelu(norm(layer(hidden)))
        hidden = dropout(hidden, self.dropout, self.training)
        return torch.cat([hidden, linear], dim=1) if self.linear_path else hidden

    def raw(self, x: Tensor | SparseRows) -> Tensor:
        """Output before the output layer, ``[B, out_channels]``."""
        basis = self.basis(x)
        if self.output is None:
            return basis
        width = self.hidden_channels[-1]
        hidden, linear = basis.split([width, basis.shape[1] - width], dim=1)
        out = self.output(hidden)
        return out + linear if self.linear_path else out

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        return (self.raw(x) - self.offset) @ self.rotation

    @torch.no_grad()
    def set_output_layer(self, offset: Tensor, rotation: Tensor) -> None:
        """Set the output layer; ``rotation`` may have fewer columns than rows."""
        self.offset = offset.to(self.offset)
        self.rotation = rotation.to(self.rotation).contiguous()
