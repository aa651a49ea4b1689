"""Dropout with few random draws on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["dropout"]

_LEVELS = 2**16  # values that a lane of 16 bits takes
_LANES = 4  # of them in a draw of torch's generator


def dropout(x: Tensor, share: float, training: bool = True) -> Tensor:
    """Set entries to zero at random, a ``share`` of them, and scale the others so that the mean stays.

    On a GPU it is torch's own. On a CPU that draws a number for every entry, and drawing is most of what it costs; here
    every draw of 64 bits decides four entries. The share is rounded to a multiple of 1/65536 there, and the scale is
    that of the rounded share. Draws come from torch's global generator.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> dropped = dropout(torch.ones(1000, 100), 0.75)
    >>> dropped.unique().tolist(), round(dropped.mean().item(), 2)
    ([0.0, 4.0], 1.0)
    >>> dropout(torch.ones(2), 0.75, training=False)
    tensor([1., 1.])
    """
    if not training or share == 0:
        return x
    dropped = min(round(share * _LEVELS), _LEVELS - 1)
    if x.device.type != "cpu" or dropped <= 0 or not x.is_floating_point():
        return F.dropout(x, share)
    keep = _lanes(x.numel()).view(x.shape) >= dropped - _LEVELS // 2
    return x * keep.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))


def _lanes(count: int) -> Tensor:
    """Uniform draws of all 2^16 values of int16."""
    words = torch.empty(-(-count // _LANES), dtype=torch.int64)
    # without bounds random_ leaves the sign alone, and every fourth lane would be of one half only
    return words.random_(-(2**63), None).view(torch.int16)[:count]
