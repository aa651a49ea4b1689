"""The recurrence of the selective scan as two GPU kernels: each step in torch takes a dozen, all of them small."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["fused_recurrence"]

_log = logging.getLogger(__name__)
_CHANNELS = 64  # that one program takes through all steps
_WIDEST_STATE = 64  # numbers of a channel's state up to which the kernels are used
_KEPT = 1 << 28  # numbers of all states that may be kept for a gradient: 1 GB

_broken: list[bool] = []  # whether the kernels could not be made here


def fused_recurrence(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor | None:
    """``y_t = C_t h_t`` with ``h_t = exp(delta_t A) h_{t-1} + B_t x_t`` from an empty state; None where it cannot run.

    Float32 on a GPU with triton. ``x`` and ``delta`` are ``[rows, length, channels]``, ``A`` is ``[channels, state]``,
    ``B`` and ``C`` are ``[rows, length, state]``. Sums are taken in one order: equal inputs give equal bits.
    """
    if not x.is_cuda or x.dtype != torch.float32 or not x.numel() or A.shape[1] > _WIDEST_STATE or _broken:
        return None
    if torch.is_grad_enabled() and x.numel() * A.shape[1] > _KEPT:
        return None
    try:
        return _Fused.apply(x, delta, A, B, C, torch.is_grad_enabled())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # no triton, no compiler, no kernel for this card: torch serves everywhere
        _log.info("selective scans run step by step: %s", " ".join(str(error).split())[:200])
        _broken.append(True)
        return None


class _Fused(torch.autograd.Function):
    """The recurrence and its gradient, see :func:`gsparc.ops.scan._pull_back` for the formulas."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, keep: bool) -> Tensor:
        x, delta, B, C = (tensor.contiguous() for tensor in (x, delta, B, C))
        A_T = A.T.contiguous()
        (rows, length, channels), state = x.shape, len(A_T)
        y = torch.empty_like(x)
        states = x.new_empty(rows, length, state, channels) if keep else y  # a kernel wants some tensor
        forward, _ = _kernels()
        forward[_grid(x)](x, delta, A_T, B, C, y, states, length, channels, state, KEEP=keep, **_sizes(state))
        ctx.save_for_backward(x, delta, A_T, B, C, states)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, delta, A_T, B, C, states = ctx.saved_tensors
        dy = grads[0].contiguous()
        (rows, length, channels), state = x.shape, len(A_T)
        dx, ddelta = torch.empty_like(x), torch.empty_like(x)
        grid = _grid(x)
        dB, dC = (x.new_empty(rows, grid[1], length, state) for _ in range(2))  # of each program, added up below
        dA_T = x.new_empty(rows, state, channels)
        _, backward = _kernels()
        given = (x, delta, A_T, B, C, dy, states)
        backward[grid](*given, dx, ddelta, dA_T, dB, dC, length, channels, state, **_sizes(state))
        return dx, ddelta, dA_T.sum(dim=0).T, dB.sum(dim=1), dC.sum(dim=1), None


def _grid(x: Tensor) -> tuple[int, int]:
    return len(x), -(-x.shape[2] // _CHANNELS)


def _sizes(state: int) -> dict[str, int]:
    return {"STATE": 1 << max(1, (state - 1).bit_length()), "CHANNELS": _CHANNELS}


@functools.cache
def _kernels() -> tuple[Any, Any]:
    """The kernels; made when they are first needed, since importing triton takes a second."""
    global tl  # noqa: PLW0603 - the kernels' source is compiled with the names of this module
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]

    jit: Callable[[Any], Any] = triton.jit

    @jit
    def forward(x, delta, A, B, C, y, states, length, channels, state, KEEP: tl.constexpr, STATE: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: E501  # fmt: skip
        row, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
        n = tl.arange(0, STATE)
        is_c, is_n = c < channels, n < state
        both = is_n[:, None] & is_c[None, :]
        decay_rate = tl.load(A + n[:, None] * channels + c[None, :], mask=both, other=0.0)
        h = tl.zeros((STATE, CHANNELS), tl.float32)
        for t in range(length):
            at = row * length + t
            step = tl.load(delta + at * channels + c, mask=is_c, other=0.0)
            entering = tl.load(x + at * channels + c, mask=is_c, other=0.0)
            into = tl.load(B + at * state + n, mask=is_n, other=0.0)
            out = tl.load(C + at * state + n, mask=is_n, other=0.0)
            h = tl.exp(step[None, :] * decay_rate) * h + into[:, None] * entering[None, :]
            tl.store(y + at * channels + c, tl.sum(out[:, None] * h, axis=0), mask=is_c)
            if KEEP:
                tl.store(states + (at * state + n[:, None]) * channels + c[None, :], h, mask=both)

    @jit
    def backward(x, delta, A, B, C, dy, states, dx, ddelta, dA, dB, dC, length, channels, state, STATE: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: E501  # fmt: skip
        row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
        c, n = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, STATE)
        is_c, is_n = c < channels, n < state
        both = is_n[:, None] & is_c[None, :]
        decay_rate = tl.load(A + n[:, None] * channels + c[None, :], mask=both, other=0.0)
        g = tl.zeros((STATE, CHANNELS), tl.float32)
        by_rate = tl.zeros((STATE, CHANNELS), tl.float32)
        last = row * length + length - 1
        h = tl.load(states + (last * state + n[:, None]) * channels + c[None, :], mask=both, other=0.0)
        for back in range(length):
            t = length - 1 - back
            at = row * length + t
            part = (row * tl.num_programs(1) + block) * length + t
            step = tl.load(delta + at * channels + c, mask=is_c, other=0.0)
            entering = tl.load(x + at * channels + c, mask=is_c, other=0.0)
            above = tl.load(dy + at * channels + c, mask=is_c, other=0.0)
            into = tl.load(B + at * state + n, mask=is_n, other=0.0)
            out = tl.load(C + at * state + n, mask=is_n, other=0.0)
            tl.store(dC + part * state + n, tl.sum(h * above[None, :], axis=1), mask=is_n)
            g += out[:, None] * above[None, :]
            tl.store(dx + at * channels + c, tl.sum(into[:, None] * g, axis=0), mask=is_c)
            tl.store(dB + part * state + n, tl.sum(g * entering[None, :], axis=1), mask=is_n)
            # the state before; at the first step there is none
            earlier = both & (t > 0)
            h = tl.load(states + ((at - 1) * state + n[:, None]) * channels + c[None, :], mask=earlier, other=0.0)
            g *= tl.exp(step[None, :] * decay_rate)
            by_exponent = g * h
            by_rate += by_exponent * step[None, :]
            tl.store(ddelta + at * channels + c, tl.sum(by_exponent * decay_rate, axis=0), mask=is_c)
        tl.store(dA + (row * state + n[:, None]) * channels + c[None, :], by_rate, mask=both)

    return forward, backward
