"""SPARCphormer: a transformer over the tokens of a node, its own features and means over nearest nodes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsparc.exceptions import InputError
from gsparc.nn.spectral_map import InputLayer, SparseRows, drop_inputs
from gsparc.ops.dropout import dropout

__all__ = ["TokenInput", "TokenTransformer"]

_SHORT = 32  # tokens


class TokenInput(nn.Module):
    """Features of tokens to hidden channels, ``[B, T, in_channels] -> [B, T, hidden_channels]``.

    The rows are normalised after the linear layer, so that counts, unit rows and standardised columns all enter
    the layers above at one scale. ``own_channels`` is the width of further features of the node itself, which
    join token 0: the words of a text, where the tokens are means of a few hundred directions of it.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, *, num_tokens: int, dropout: float = 0.0, own_channels: int = 0
    ) -> None:
        super().__init__()
        self.in_channels, self.num_tokens, self.dropout = in_channels, num_tokens, dropout
        self.linear = InputLayer(in_channels, hidden_channels)
        self.own = InputLayer(own_channels, hidden_channels) if own_channels else None
        self.norm = nn.LayerNorm(hidden_channels)

    def forward(self, tokens: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        self.check(tokens)
        batch, length, _ = tokens.shape
        rows = dropout(tokens, self.dropout, self.training).flatten(0, 1)
        z = self.linear(rows).unflatten(0, (batch, length))
        if self.own is not None and own is not None:
            added = self.own(drop_inputs(own, self.dropout, self.training)).unsqueeze(1)
            z = torch.cat([z[:, :1] + added, z[:, 1:]], dim=1)
        return self.norm(z)

    def check(self, tokens: Tensor) -> None:
        """Refuse tokens that this module was not built for."""
        fits = tokens.ndim == 3 and 1 <= tokens.shape[1] <= self.num_tokens and tokens.shape[2] == self.in_channels
        if not fits:
            raise InputError(
                f"tokens of shape {tuple(tokens.shape)} came, expected [nodes, 1 to {self.num_tokens} tokens, "
                f"{self.in_channels} features]. Build the module with num_tokens and in_channels of its tokens."
            )


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention; fused kernels of a GPU work on 64 tokens and more at a time, and a short list fills little of that."""
    if not query.is_cuda or query.shape[2] > _SHORT:
        return F.scaled_dot_product_attention(query, key, value)
    return _short_attention(query, key, value)


def _short_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same as three plain steps; the softmax in single precision."""
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5  # [B, heads, T, T]
    return scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value


class TransformerLayer(nn.Module):
    """Self-attention and a two-layer network, each on the normalised stream and added to it (pre-norm)."""

    def __init__(self, channels: int, *, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.attention_norm, self.mlp_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.mix = nn.Linear(channels, channels)
        self.expand, self.contract = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)

    def forward(self, z: Tensor) -> Tensor:
        batch, length, channels = z.shape
        split = self.qkv(self.attention_norm(z)).view(batch, length, 3, self.num_heads, channels // self.num_heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each [B, heads, T, channels / heads]
        mixed = _attention(query, key, value)
        mixed = self.mix(mixed.transpose(1, 2).reshape(batch, length, channels))
        z = z + dropout(mixed, self.dropout, self.training)
        wide = dropout(F.gelu(self.expand(self.mlp_norm(z))), self.dropout, self.training)
        return z + dropout(self.contract(wide), self.dropout, self.training)

    def infer(self, z: Tensor) -> Tensor:
        """The same without dropout for lists laid out token after token, ``[T, B, channels]``.

        Attention over a handful of tokens is too small for matrix products a node. Here nodes run along the last
        axis, and all of them take one step of each sum at a time.
        """
        length, batch, channels = z.shape
        width = channels // self.num_heads
        rows = self.attention_norm(z).view(length * batch, channels)
        # the softmax takes no notice of the keys' bias, and its weights sum to one over that of the values
        bias, _, value_bias = self.qkv.bias.split(channels)
        query, key, value = (self.qkv.weight @ rows.T).view(3, self.num_heads, width, length, batch)
        query.add_(bias.view(self.num_heads, width, 1, 1)).mul_(width**-0.5)
        scores = query[:, 0, :, None] * key[:, 0, None]  # [heads, T, T, B]
        for d in range(1, width):
            scores.addcmul_(query[:, d, :, None], key[:, d, None])
        weights = scores.softmax(dim=2)
        mixed = weights[:, None, :, 0] * value[:, :, None, 0]  # [heads, channels / heads, T, B]
        for j in range(1, length):
            mixed.addcmul_(weights[:, None, :, j], value[:, :, None, j])
        offset = self.mix(value_bias)
        z = torch.addmm(offset, mixed.view(channels, -1).T, self.mix.weight.T).view_as(z).add_(z)
        return self.contract(F.gelu(self.expand(self.mlp_norm(z)))).add_(z)


class TokenTransformer(nn.Module):
    """Class of a node from its token list, after NAGphormer (Chen et al., arXiv 2206.04910).

    Token 0 is the node itself and token ``j`` the mean over its ``2^j`` nearest nodes; NAGphormer's own
    tokens, means over ``j`` hops, fit as well. The modules do not know which they were given.

    Parameters
    ----------
    in_channels, out_channels
        Width of a token, number of classes.
    num_tokens
        Longest token list; shorter ones may be passed.
    hidden_channels, num_layers, num_heads
        Width, depth and heads of the transformer; the heads divide the width.
    dropout, input_dropout
        Shares of hidden and of input entries dropped in training.
    own_channels
        Width of further features of the node itself, see :class:`~gsparc.nn.phormer.TokenInput`; 0 for none.

    Notes
    -----
    Where it differs from NAGphormer:

    - Each place in the list has a learned embedding. Attention does not see order, and without one nothing would
      tell a mean over two near nodes from a mean over a thousand. NAGphormer has the node's Laplacian eigenvectors
      among the features instead; here they choose the tokens.
    - The read-out scores a neighbourhood by ``w . z_j``. NAGphormer's ``w . [z_0 || z_j]`` is the same function:
      the share of ``z_0`` adds one number to the scores of all ``j``, and the softmax over ``j`` takes no notice.
    - Dropout is on the residual branches and not on the attention weights.

    Examples
    --------
    >>> import torch
    >>> model = TokenTransformer(16, 3, num_tokens=5, hidden_channels=32).eval()
    >>> tokens = torch.randn(2, 5, 16)
    >>> model(tokens).shape, model.attention(tokens).shape
    (torch.Size([2, 3]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_tokens: int,
        hidden_channels: int = 128,
        num_layers: int = 1,
        num_heads: int = 8,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        own_channels: int = 0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or hidden_channels % num_heads:
            raise InputError(
                f"num_heads={num_heads} came, expected a divisor of hidden_channels={hidden_channels}. "
                "Choose a hidden width that is a multiple of the number of heads."
            )
        self.in_channels, self.out_channels, self.num_tokens = in_channels, out_channels, num_tokens
        self.hidden_channels, self.num_layers, self.num_heads = hidden_channels, num_layers, num_heads
        self.dropout, self.input_dropout, self.own_channels = dropout, input_dropout, own_channels
        self.input = TokenInput(
            in_channels, hidden_channels, num_tokens=num_tokens, dropout=input_dropout, own_channels=own_channels
        )
        self.position = nn.Parameter(torch.empty(num_tokens, hidden_channels))
        self.layers = nn.ModuleList(
            TransformerLayer(hidden_channels, num_heads=num_heads, dropout=dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden_channels)
        self.score = nn.Linear(hidden_channels, 1, bias=False)
        self.hidden = nn.Linear(hidden_channels, hidden_channels)
        self.output = nn.Linear(hidden_channels, out_channels)
        nn.init.normal_(self.position, std=0.02)

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild this module."""
        names = (
            "in_channels",
            "out_channels",
            "num_tokens",
            "hidden_channels",
            "num_layers",
            "num_heads",
            "dropout",
            "input_dropout",
            "own_channels",
        )
        return {name: getattr(self, name) for name in names}

    def encode(self, tokens: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        """Tokens after the transformer, ``[B, T, hidden_channels]``."""
        z = self.input(tokens, own) + self.position[: tokens.shape[1]]
        z = dropout(z, self.dropout, self.training)
        for layer in self.layers:
            z = layer(z)
        return self.norm(z)

    def project(self, rows: Tensor) -> Tensor:
        """Rows as they enter the sums of :meth:`infer`: ``[n, in_channels] -> [n, hidden_channels]``."""
        return rows @ self.input.linear.weight

    def infer(self, z: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        """:meth:`forward` without dropout, from means of projected rows: ``[T, B, hidden_channels]``, no gradient.

        The first layer is linear, so the mean of rows that went through it is what it makes of the rows' mean. Rows
        that are averaged again and again go through it once (:meth:`project`).

        Examples
        --------
        >>> model = TokenTransformer(16, 3, num_tokens=5, hidden_channels=32).eval()
        >>> tokens = torch.randn(2, 5, 16)
        >>> with torch.no_grad():
        ...     bool(torch.allclose(model.infer(model.project(tokens.transpose(0, 1))), model(tokens), atol=1e-5))
        True
        """
        z = z + self.input.linear.bias
        if self.input.own is not None and own is not None:
            z[0] += self.input.own(own)
        z = self.input.norm(z) + self.position[: len(z), None]
        for layer in self.layers:
            z = layer.infer(z)  # type: ignore[operator]
        z = self.norm(z)
        weights = (z[1:] @ self.score.weight[0]).softmax(dim=0)
        read = z[0] + (weights.unsqueeze(2) * z[1:]).sum(dim=0)
        return self.output(F.gelu(self.hidden(read)))

    def attention(self, tokens: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        """Weight of each neighbourhood in the read-out, ``[B, T - 1]``, rows summing to one.

        Says what a prediction rests on; call ``eval()`` first, or dropout takes part.
        """
        return self._weights(self.encode(tokens, own))

    def _weights(self, z: Tensor) -> Tensor:
        return self.score(z[:, 1:]).squeeze(-1).softmax(dim=1)

    def forward(self, tokens: Tensor, own: Tensor | SparseRows | None = None) -> Tensor:
        """Logits ``[B, out_channels]``."""
        z = self.encode(tokens, own)
        own, others = z[:, 0], z[:, 1:]
        # [B, 1, T - 1] x [B, T - 1, hidden]: zeros where the node is the only token
        own = own + torch.bmm(self._weights(z)[:, None], others).squeeze(1)
        hidden = dropout(F.gelu(self.hidden(own)), self.dropout, self.training)
        return self.output(hidden)
