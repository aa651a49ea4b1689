"""Dropout: its share, its scale, its gradient, its draws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.ops.dropout import dropout


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_drops_its_share_and_keeps_the_mean(share):
    torch.manual_seed(0)
    n = 1_000_003
    out = dropout(torch.ones(n), share)
    dropped = (out == 0).double().mean().item()
    assert abs(dropped - share) < 5 * (share * (1 - share) / n) ** 0.5 + 2**-17
    assert abs(out.double().mean().item() - 1) < 5 * (share / (1 - share) / n) ** 0.5 + 1e-5
    (kept,) = out[out != 0].unique().tolist()
    assert kept == pytest.approx(1 / (1 - share), rel=1e-4)


def test_each_of_the_four_lanes_of_a_draw_is_uniform_and_alone():
    torch.manual_seed(1)
    n = 400_000
    zero = (dropout(torch.ones(n), 0.5) == 0).view(-1, 4).double()
    assert (zero.mean(0) - 0.5).abs().max() < 0.01
    between = torch.corrcoef(zero.T) - torch.eye(4)
    assert between.abs().max() < 0.02
    following = torch.corrcoef(torch.stack([zero.flatten()[:-1], zero.flatten()[1:]]))[0, 1]
    assert following.abs() < 0.01


def test_extreme_shares_are_kept_to_the_level():
    torch.manual_seed(0)
    x = torch.ones(4_000_000)
    assert 0 < (dropout(x, 2**-16) == 0).sum() < 200  # expected 61
    out = dropout(x, 0.9999999)  # rounded to the level below one: nothing is infinite
    assert torch.isfinite(out).all()
    assert 0 < (out != 0).sum() < 200


@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_a_share_of_nothing_drops_nothing(share):
    x = torch.randn(50, 3)
    assert torch.equal(dropout(x, share), x)


def test_gradient_passes_where_entries_were_kept():
    torch.manual_seed(0)
    x = torch.randn(64, 33, requires_grad=True)
    out = dropout(x, 0.25)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, out != 0)
    assert torch.allclose(x.grad[out != 0], torch.tensor(4 / 3))


@given(shape=st.lists(st.integers(0, 7), min_size=0, max_size=4), half=st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_shape_and_float(shape, half):
    x = torch.ones(shape, dtype=torch.bfloat16 if half else torch.float64)
    out = dropout(x, 0.5)
    assert out.shape == x.shape
    assert out.dtype == x.dtype
    assert set(out.flatten().tolist()) <= {0.0, 2.0}


def test_rows_that_are_not_contiguous():
    x = torch.arange(1.0, 13).view(3, 4).T
    out = dropout(x, 0.5)
    assert torch.equal(out[out != 0], 2 * x[out != 0])


def test_one_seed_one_pattern():
    x = torch.ones(1001)
    torch.manual_seed(7)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(7)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(first, second)


def test_nothing_happens_outside_of_training():
    x = torch.randn(5)
    state = torch.get_rng_state()
    assert dropout(x, 0.5, training=False) is x
    assert torch.equal(torch.get_rng_state(), state)
