"""The selective scan of Mamba: a readable reference, a fast one, and kernels for GPUs: ours, and mamba_ssm's."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from gsparc.ops._scan_kernel import fused_recurrence

__all__ = ["kernel_scan", "mamba_kernel", "selective_scan", "selective_scan_ref"]

logger = logging.getLogger(__name__)

# Numbers in one state tensor [rows, state, channels]. On a CPU it should stay in the cache between two steps; on
# a GPU it only bounds the memory.
_STATE_NUMBERS = {"cpu": 2**18, "cuda": 2**26}
_KEEP_NUMBERS = 2**24  # states and decays of all steps are kept for backward up to here, and recomputed beyond
_PIECE = 32  # steps in a piece of a long sequence


def selective_scan_ref(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The recurrence as it is written, step by step; the measure of :func:`selective_scan`.

    ``h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t`` and ``y_t = C_t h_t + D u_t``, with a state of its own for
    each channel (Gu and Dao, arXiv 2312.00752, algorithm 2).

    Parameters
    ----------
    u, delta
        Input and step size, ``[batch, length, channels]``; ``delta > 0``.
    A
        ``[channels, state]``, negative.
    B, C
        ``[batch, length, state]``: what enters the state and what is read from it.
    D
        ``[channels]``, the path around the state.

    Returns
    -------
    Tensor
        ``[batch, length, channels]``.

    Examples
    --------
    With ``exp(delta A) = 1/2`` the state halves at each step:

    >>> import math, torch
    >>> one = torch.ones(1, 3, 1)
    >>> u = torch.tensor([[[8.0], [0.0], [0.0]]])
    >>> selective_scan_ref(u, one, torch.tensor([[-math.log(2)]]), one, one, torch.zeros(1)).flatten().tolist()
    [8.0, 4.0, 2.0]
    """
    h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1])  # [batch, channels, state]
    outputs = []
    # unbind, not u[:, t]: the backward of an index writes a whole zero tensor at each step
    for u_t, delta_t, B_t, C_t in zip(u.unbind(1), delta.unbind(1), B.unbind(1), C.unbind(1), strict=True):
        h = torch.exp(delta_t[:, :, None] * A) * h + (delta_t * u_t)[:, :, None] * B_t[:, None, :]
        outputs.append((h * C_t[:, None, :]).sum(dim=-1) + D * u_t)
    return torch.stack(outputs, dim=1) if outputs else D * u


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """:func:`selective_scan_ref`, faster and with less memory; equal in value and in gradient.

    Rows go through the recurrence in groups whose state stays in the cache, with a gradient written by hand; long
    sequences of few rows are cut into pieces that run side by side. Nothing but ``exp`` of numbers
    ``<= 0`` is taken, so it cannot overflow. On CUDA the kernel of ``mamba_ssm`` is used where it is installed, and
    otherwise one of our own for float32.

    Notes
    -----
    One core, 256 rows of 256 channels and 16 states, 6 to 12 steps, forward and backward: 0.6 of the reference's
    time. The quadratic (attention-like) form was measured too and lost: it takes ``(length + 1) / 2`` times as many
    exponentials, and those alone last as long as this whole forward and backward pass.

    Computes in the type of ``A`` and returns that of ``u``; it can be differentiated once.

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, 3, 1)
    >>> selective_scan(one, one, torch.zeros(1, 1), one, one, torch.zeros(1)).flatten().tolist()
    [1.0, 2.0, 3.0]
    """
    given = u.dtype
    with torch.autocast(u.device.type, enabled=False):
        u, delta, B, C, D = (tensor.to(A.dtype) for tensor in (u, delta, B, C, D))
        kernel = mamba_kernel() if _kernel_can_run(u) else None
        if kernel is not None:
            return kernel_scan(kernel, u, delta, A, B, C, D).to(given)
        y = fused_recurrence(delta * u, delta, A, B, C)
        if y is not None:
            return (y + D * u).to(given)
        batch, length, _ = u.shape
        # pieces cost twice the arithmetic: worth it only while a step is so small that starting it is what takes time
        side_by_side = min(-(-length // _PIECE), _rows_at_once(u, A) // (8 * max(batch, 1)))
        if side_by_side >= 4:
            y = _scan_pieces(delta * u, delta, A, B, C, -(-length // side_by_side))
        else:
            y, _ = _recurrence(delta * u, delta, A, B, C)
        return (y + D * u).to(given)


@functools.cache
def mamba_kernel() -> Callable[..., Tensor] | None:
    """``selective_scan_fn`` of mamba_ssm, or None where that package is not installed or cannot be loaded."""
    try:
        module = importlib.import_module("mamba_ssm.ops.selective_scan_interface")
        return module.selective_scan_fn
    except (ImportError, OSError) as error:  # OSError: compiled for another CUDA
        logger.debug("mamba_ssm is not used: %s", error)
        return None


def kernel_scan(
    kernel: Callable[..., Tensor], u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> Tensor:
    """Call a scan that has mamba_ssm's layout, time last, with tensors in ours."""
    u, delta, B, C = (tensor.transpose(1, 2).contiguous() for tensor in (u, delta, B, C))
    return kernel(u, delta, A, B, C, D).transpose(1, 2)


def _kernel_can_run(u: Tensor) -> bool:
    return u.is_cuda and u.dtype != torch.float64  # the kernel has no double precision


def _rows_at_once(x: Tensor, A: Tensor) -> int:
    return max(1, _STATE_NUMBERS.get(x.device.type, 2**26) // A.numel())


def _scan_pieces(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, size: int) -> Tensor:
    """Scan a long sequence as pieces of ``size`` steps side by side: fewer and larger steps.

    Each piece is run from an empty state to learn its last state; these are linked from piece to piece, which
    gives each piece its true first state to be run from.
    """
    batch, length, channels = x.shape
    pieces = -(-length // size)
    # a padded step has delta = 0 and x = 0: it leaves the state as it is
    x, delta, B, C = (
        F.pad(tensor, (0, 0, 0, pieces * size - length)).reshape(batch * pieces, size, -1)
        for tensor in (x, delta, B, C)
    )
    _, last = _recurrence(x, delta, A, B, C, want_last=True)  # [batch * pieces, state, channels]
    fade = torch.exp(delta.sum(dim=1)[:, None, :] * A.T)
    last, fade = (tensor.unflatten(0, (batch, pieces)).unbind(1) for tensor in (last, fade))
    starts = [torch.zeros_like(last[0])]
    for i in range(pieces - 1):
        starts.append(fade[i] * starts[i] + last[i])
    start = torch.stack(starts, dim=1).flatten(0, 1)
    y, _ = _recurrence(x, delta, A, B, C, start)
    return y.reshape(batch, pieces * size, channels)[:, :length]


def _states(x: Tensor, delta: Tensor, A_T: Tensor, B: Tensor, h: Tensor | None) -> Iterator[tuple[Any, Tensor]]:
    """Decay ``exp(delta_t A)`` and state ``h_t``, ``[rows, state, channels]``, step by step.

    The decay is None where there is no state before. Channels come last: they are many, the states few, and inner
    loops should be long.
    """
    for t in range(x.shape[1]):
        entering = B[:, t, :, None] * x[:, t, None, :]
        decay = None
        if h is not None:
            decay = torch.mul(delta[:, t, None, :], A_T).exp_()
            entering.addcmul_(decay, h)
        h = entering
        yield decay, h


def _pull_back(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], trace: list, A_T: Tensor, start: Tensor | None, g: Tensor
) -> tuple[Tensor, Tensor]:
    """Write the gradients of a group of rows into ``outputs``; return those of ``A_T`` and of the first state.

    ``g`` is the gradient by the last state. Going back in time, ``dh_t = C_t dy_t + exp(delta_{t+1} A) dh_{t+1}``.
    """
    x, delta, B, C, dy = inputs
    dx, ddelta, dB, dC = outputs
    by_A, work = torch.zeros_like(g), torch.empty_like(g)
    for t in reversed(range(x.shape[1])):
        decay, h = trace[t]
        dC[:, t] = torch.mul(h, dy[:, t, None, :], out=work).sum(dim=-1)
        g.addcmul_(C[:, t, :, None], dy[:, t, None, :])
        dx[:, t] = torch.bmm(B[:, t, None, :], g)[:, 0]
        dB[:, t] = torch.mul(g, x[:, t, None, :], out=work).sum(dim=-1)
        before = trace[t - 1][1] if t else start
        if before is None:
            ddelta[:, t] = 0
            break
        g.mul_(decay)
        by_exponent = torch.mul(g, before, out=work)  # gradient by delta_t A
        by_A.addcmul_(by_exponent, delta[:, t, None, :])
        ddelta[:, t] = by_exponent.mul_(A_T).sum(dim=1)
    return by_A.sum(dim=0), g


def _recurrence(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, start: Tensor | None = None, *, want_last: bool = False
) -> Any:
    # asked here: inside a Function gradients always look switched off, and its inputs' flags look switched on
    keep = torch.is_grad_enabled() and x.numel() * A.shape[1] <= _KEEP_NUMBERS
    return _Recurrence.apply(x, delta, A, B, C, start, want_last, keep)


class _Recurrence(torch.autograd.Function):
    """``y_t = C_t h_t`` with ``h_t = exp(delta_t A) h_{t-1} + B_t x_t``, and the last state if asked for.

    The tape of the same loop would keep five tensors of the state's size a step and write each to memory;
    here a group of rows is finished before the next begins.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        delta: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        start: Tensor | None,
        want_last: bool,
        keep: bool,
    ) -> tuple[Tensor, Tensor | None]:
        rows, A_T = _rows_at_once(x, A), A.T.contiguous()
        ctx.traces, y = [], torch.empty_like(x)
        last = x.new_zeros(len(x), *A_T.shape) if want_last else None
        for begin in range(0, len(x), rows):
            group = slice(begin, begin + rows)
            first = None if start is None else start[group]
            trace = []
            for t, (decay, h) in enumerate(_states(x[group], delta[group], A_T, B[group], first)):
                y[group, t] = torch.bmm(C[group, t, None, :], h)[:, 0]
                if keep:
                    trace.append((decay, h))
                if last is not None and t == x.shape[1] - 1:
                    last[group] = h
            ctx.traces.append(trace)
        ctx.save_for_backward(x, delta, A, B, C, start)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        dy, dlast = grads
        x, delta, A, B, C, start = ctx.saved_tensors
        rows, A_T = _rows_at_once(x, A), A.T.contiguous()
        found = tuple(torch.empty_like(tensor) for tensor in (x, delta, B, C))
        dA_T, dstart = torch.zeros_like(A_T), None if start is None else torch.empty_like(start)
        with torch.autocast(x.device.type, enabled=False):
            for i, begin in enumerate(range(0, len(x), rows)):
                group = slice(begin, begin + rows)
                first = None if start is None else start[group]
                inputs = tuple(tensor[group] for tensor in (x, delta, B, C, dy))
                trace = ctx.traces[i] or list(_states(x[group], delta[group], A_T, B[group], first))
                g = x.new_zeros(len(inputs[0]), *A_T.shape) if dlast is None else dlast[group].clone()
                by_A, by_start = _pull_back(inputs, tuple(out[group] for out in found), trace, A_T, first, g)
                dA_T += by_A
                if dstart is not None:
                    dstart[group] = by_start
        dx, ddelta, dB, dC = found
        return dx, ddelta, dA_T.T, dB, dC, dstart, None, None
