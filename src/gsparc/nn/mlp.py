"""A classifier on features, with or without spectral coordinates beside them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from gsparc.nn.spectral_map import InputLayer, SparseRows, drop_inputs
from gsparc.ops.dropout import dropout

__all__ = ["FeatureMLP"]


class FeatureMLP(nn.Module):
    """Two-layer MLP; ``coordinates`` enter the hidden layer beside the features.

    Parameters
    ----------
    in_channels, out_channels
        Width of the features, number of classes.
    coordinate_channels
        Width of the spectral coordinates; 0 for a plain MLP on the features.
    hidden_channels, dropout, input_dropout
        Width of the hidden layer; shares of hidden and input entries dropped in training.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        coordinate_channels: int = 0,
        hidden_channels: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.coordinate_channels, self.hidden_channels = coordinate_channels, hidden_channels
        self.dropout, self.input_dropout = dropout, input_dropout
        self.input = InputLayer(in_channels, hidden_channels)
        self.coordinates = nn.Linear(coordinate_channels, hidden_channels, bias=False) if coordinate_channels else None
        self.norm = nn.LayerNorm(hidden_channels)
        self.output = nn.Linear(hidden_channels, out_channels)

    def config(self) -> dict[str, object]:
        """Arguments that rebuild this module."""
        names = (
            "in_channels",
            "out_channels",
            "coordinate_channels",
            "hidden_channels",
            "dropout",
            "input_dropout",
        )
        return {name: getattr(self, name) for name in names}

    def hidden(self, x: Tensor | SparseRows, coordinates: Tensor | None = None) -> Tensor:
        """The hidden layer, ``[B, hidden_channels]``."""
        h = self.input(drop_inputs(x, self.input_dropout, self.training))
        if self.coordinates is not None and coordinates is not None:
            h = h + self.coordinates(dropout(coordinates, self.input_dropout, self.training))
        return F.gelu(self.norm(h))

    def forward(self, x: Tensor | SparseRows, coordinates: Tensor | None = None) -> Tensor:
        """Logits ``[B, out_channels]``."""
        return self.output(dropout(self.hidden(x, coordinates), self.dropout, self.training))
