"""Graph networks trained on the whole seen graph at once, to teach networks that will have no edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gsparc.nn.spectral_map import InputLayer, SparseRows
from gsparc.ops.dropout import dropout
from gsparc.ops.propagate import Propagation, csr_tensor

__all__ = ["AppnpTeacher", "FixedRows", "SageTeacher"]

# Nodes up to which a GPU takes all steps of a propagation as one dense product: a dozen sparse ones, forth and back,
# are over a hundred kernels that it starts more slowly than it runs them.
_FEW_NODES = 4096


class _SparseProject(torch.autograd.Function):
    """``rows @ weight`` with a gradient through the transposed rows: several times faster than scattering."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SparseRows, transpose: SparseRows) -> Tensor:
        ctx.transpose, ctx.num_rows = transpose, len(rows)
        if weight.device.type != "cpu":
            return csr_tensor(rows.pointers, rows.columns, rows.values, len(weight)) @ weight
        # on one core it takes two thirds of the time of the CSR product
        return F.embedding_bag(
            rows.columns,
            weight,
            rows.pointers,
            mode="sum",
            per_sample_weights=rows.values,
            include_last_offset=True,
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        back = csr_tensor(ctx.transpose.pointers, ctx.transpose.columns, ctx.transpose.values, ctx.num_rows)
        return back @ grads[0].contiguous(), None, None


def _thin(rows: SparseRows, keep: Tensor, factor: float) -> SparseRows:
    """The kept entries of ``rows``, times ``factor``."""
    before = F.pad(keep.cumsum(0), (1, 0))
    return SparseRows(before[rows.pointers], rows.columns[keep], rows.values[keep] * factor)


def _blank(rows: SparseRows, keep: Tensor, factor: float) -> SparseRows:
    """``rows`` with zeros for those that are not kept, times ``factor``: as many entries as before."""
    return replace(rows, values=rows.values * (keep * factor))


def _drop(h: Tensor, share: float, training: bool) -> Tensor:
    """Dropout; on the CPU torch's own spends most of its time drawing the mask (86 ms of 400 a step, this 25)."""
    if not training or share == 0 or h.device.type != "cpu":
        return dropout(h, share, training)
    return h * (torch.rand_like(h) >= share).mul(1 / (1 - share))


class FixedRows:
    """Feature rows of all nodes that are multiplied by a changing weight matrix many times over.

    Sparse rows are kept with their transpose. On a CPU dropped entries are left out of the products, so a step with
    half of the input dropped costs half; a GPU would wait for their number, and multiplies by zero.
    """

    def __init__(self, x: Tensor | SparseRows, num_columns: int) -> None:
        self.x, self.num_columns = x, num_columns
        if isinstance(x, SparseRows):
            order = torch.argsort(x.columns, stable=True)
            counts = torch.bincount(x.columns, minlength=num_columns)
            lengths = x.pointers.diff()
            owner = torch.repeat_interleave(torch.arange(len(x), device=lengths.device), lengths)
            self._order = order
            # of the type that products take, so that it is not changed in every step
            kind = torch.int32 if x.columns.is_cuda and len(x.values) < 2**31 else torch.int64
            pointers = F.pad(counts.cumsum(0), (1, 0)).to(kind)
            self._transpose = SparseRows(pointers, owner[order].to(kind), x.values[order])
            self.x = SparseRows(x.pointers.to(kind), x.columns.to(kind), x.values)

    def __len__(self) -> int:
        return len(self.x)

    def project(self, layer: InputLayer, *, dropout: float, training: bool) -> Tensor:
        """``layer`` applied to all rows, ``[n, out_channels]``, input entries dropped in training."""
        dropout = dropout if training else 0.0
        if not isinstance(self.x, SparseRows):
            return layer(_drop(self.x, dropout, training))
        rows, transpose = self.x, self._transpose
        if dropout:
            keep = torch.rand(len(rows.values), device=rows.values.device) >= dropout
            factor, leave_out = 1 / (1 - dropout), _blank if keep.is_cuda else _thin
            rows, transpose = leave_out(rows, keep, factor), leave_out(transpose, keep[self._order], factor)
        out = _SparseProject.apply(layer.weight, rows, transpose)
        assert isinstance(out, Tensor)
        return out + layer.bias


class SageTeacher(nn.Module):
    """Two layers of GraphSAGE with the mean aggregator (Hamilton et al., arXiv 1706.02216), all nodes at once.

    ``h_v = W_self x_v + mean over neighbours u of W_n x_u``, normalised, rectified and dropped out in between.

    Parameters
    ----------
    x
        Scaled features of all seen nodes. They and the operator are held by reference: neither is part of the state.
    propagation
        The mean over neighbours, ``Propagation(graph, "mean")``.
    in_channels, out_channels
        Width of the features, number of classes.
    hidden_channels, dropout, input_dropout
        Width of the hidden layer; shares of hidden and of input entries dropped in training.

    Notes
    -----
    Where it differs from GraphSAGE: no neighbours are sampled, and the hidden layer is normalised by LayerNorm
    instead of by rows. The mean is taken after the projection, which is the same by linearity, and leaves
    wide sparse features sparse.

    Examples
    --------
    >>> import torch
    >>> from gsparc.graph import Graph
    >>> path = Graph.from_edges([[0, 1], [1, 2]])
    >>> teacher = SageTeacher(torch.eye(3), Propagation(path, "mean"), 3, 2, hidden_channels=4)
    >>> teacher(torch.tensor([0, 2])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        x: Tensor | SparseRows | FixedRows,
        propagation: Propagation,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.x = x if isinstance(x, FixedRows) else FixedRows(x, in_channels)
        self.propagation, self.hidden_channels = propagation, hidden_channels
        self.dropout, self.input_dropout = dropout, input_dropout
        # one product gives W_self x and W_n x: the rows are read once
        self.input = InputLayer(in_channels, 2 * hidden_channels)
        self.norm = nn.LayerNorm(hidden_channels)
        self.output = nn.Linear(hidden_channels, 2 * out_channels)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits ``[len(rows), out_channels]``; whatever the rows, all nodes are computed."""
        both = self.x.project(self.input, dropout=self.input_dropout, training=self.training)
        own, others = both.chunk(2, dim=1)
        h = self.norm(own + self.propagation(others.contiguous()))
        h = _drop(F.relu(h), self.dropout, self.training)
        own, others = self.output(h).chunk(2, dim=1)
        return own[rows] + self.propagation(others.contiguous())[rows]


class AppnpTeacher(nn.Module):
    """A network on the features, then personalised PageRank (Gasteiger et al., arXiv 1810.05997).

    ``Z <- (1 - alpha) P Z + alpha H`` where ``H`` are the logits by features alone and
    ``P = D^-1/2 (A + I) D^-1/2``.

    Parameters
    ----------
    x, in_channels, out_channels, hidden_channels, dropout, input_dropout
        See :class:`SageTeacher`.
    propagation
        ``Propagation(graph, "sym")``.
    num_steps, alpha
        Steps of propagation, and the chance to return to the node itself in each.

    Notes
    -----
    Where it differs from the paper: the hidden layer is normalised by LayerNorm, and no edges are dropped.

    Examples
    --------
    >>> import torch
    >>> from gsparc.graph import Graph
    >>> path = Graph.from_edges([[0, 1], [1, 2]])
    >>> AppnpTeacher(torch.eye(3), Propagation(path, "sym"), 3, 2)(torch.tensor([1])).shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        x: Tensor | SparseRows | FixedRows,
        propagation: Propagation,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 128,
        num_steps: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.x = x if isinstance(x, FixedRows) else FixedRows(x, in_channels)
        self.propagation, self.hidden_channels = propagation, hidden_channels
        self.num_steps, self.alpha = num_steps, alpha
        self._matrix: Tensor | None = None
        self.dropout, self.input_dropout = dropout, input_dropout
        self.input = InputLayer(in_channels, hidden_channels)
        self.norm = nn.LayerNorm(hidden_channels)
        self.output = nn.Linear(hidden_channels, out_channels)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits ``[len(rows), out_channels]``; whatever the rows, all nodes are computed."""
        h = self.norm(self.x.project(self.input, dropout=self.input_dropout, training=self.training))
        own = self.output(_drop(F.relu(h), self.dropout, self.training))
        if own.is_cuda and len(own) <= _FEW_NODES:
            return self._all_steps()[rows] @ own
        return self._steps(own)[rows]

    def _steps(self, own: Tensor) -> Tensor:
        z = own
        for _ in range(self.num_steps):
            z = torch.lerp(self.propagation(z), own, self.alpha)
        return z

    @torch.no_grad()
    def _all_steps(self) -> Tensor:
        """All steps of propagation as one matrix ``[n, n]``, made once."""
        if self._matrix is None:
            self._matrix = self._steps(torch.eye(self.propagation.num_nodes, device=self.propagation.device))
        return self._matrix
