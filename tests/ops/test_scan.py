"""The selective scan: values by hand, and the fast one against the reference."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gsparc.ops import _scan_kernel, scan
from gsparc.ops._scan_kernel import fused_recurrence
from gsparc.ops.scan import kernel_scan, mamba_kernel, selective_scan, selective_scan_ref


def example(batch: int, length: int, channels: int, state: int, *, seed: int = 0, dtype=torch.float64) -> list[Tensor]:
    """u, delta, A, B, C, D that need gradients; step sizes from very small to large."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    delta = torch.nn.functional.softplus(2 * normal(batch, length, channels) - 1)
    tensors = [
        normal(batch, length, channels),
        delta,
        -torch.exp(normal(channels, state)),
        normal(batch, length, state),
        normal(batch, length, state),
        normal(channels),
    ]
    return [tensor.requires_grad_() for tensor in tensors]


def value_and_gradients(function, tensors: list[Tensor]) -> list[Tensor]:
    y = function(*tensors)
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    # with one step the state never fades, and the reference's A has a gradient of zero
    return [y, *torch.autograd.grad((weights * y).sum(), tensors)]


def assert_equal_to_reference(tensors: list[Tensor], tolerance: float) -> None:
    names = ["y", "u", "delta", "A", "B", "C", "D"]
    fast, slow = (value_and_gradients(function, tensors) for function in (selective_scan, selective_scan_ref))
    for name, got, expected in zip(names, fast, slow, strict=True):
        torch.testing.assert_close(
            got,
            expected,
            rtol=tolerance,
            atol=tolerance * max(1.0, expected.abs().max().item()),
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("function", [selective_scan_ref, selective_scan])
def test_values_by_hand(function) -> None:
    # two channels; channel 0 halves at each step of size 1, channel 1 never forgets
    A = torch.tensor([[-math.log(2)], [0.0]], dtype=torch.float64)
    u = torch.tensor([[[8.0, 1.0], [4.0, 2.0], [0.0, 3.0]]], dtype=torch.float64)
    delta = torch.tensor([[[1.0, 1.0], [1.0, 1.0], [2.0, 1.0]]], dtype=torch.float64)
    B = torch.tensor([[[1.0], [2.0], [1.0]]], dtype=torch.float64)
    C = torch.tensor([[[1.0], [1.0], [10.0]]], dtype=torch.float64)
    D = torch.tensor([0.0, 100.0], dtype=torch.float64)
    # channel 0: h = 8, then 4 + 2 * 4 = 12, then 12 / 4 = 3; channel 1: h = 1, 1 + 2 * 2 = 5, 5 + 3 = 8
    expected = [[[8, 101], [12, 205], [30, 380]]]
    torch.testing.assert_close(function(u, delta, A, B, C, D), torch.tensor(expected, dtype=torch.float64))


@given(
    batch=st.integers(1, 4),
    length=st.integers(1, 16),
    channels=st.integers(1, 5),
    state=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=40, deadline=None)
def test_fast_is_the_reference(batch: int, length: int, channels: int, state: int, seed: int) -> None:
    assert_equal_to_reference(example(batch, length, channels, state, seed=seed), 1e-10)
    assert_equal_to_reference(example(batch, length, channels, state, seed=seed, dtype=torch.float32), 1e-5)


@pytest.mark.parametrize("length", [32, 33, 97, 128, 130, 257])
def test_long_sequences_in_pieces_and_in_one(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    pieces = scan._scan_pieces
    monkeypatch.setattr(scan, "_scan_pieces", lambda *args: calls.append(args[-1]) or pieces(*args))
    assert_equal_to_reference(example(2, length, 3, 2), 1e-10)
    assert len(calls) == (length > 96)  # four pieces or more
    monkeypatch.setitem(scan._STATE_NUMBERS, "cpu", 1)
    assert_equal_to_reference(example(2, length, 3, 2), 1e-10)
    assert len(calls) == (length > 96)  # a step that is large already is not made larger


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("keep", [0, 2**24])
def test_groups_of_rows_and_what_is_kept_make_no_difference(
    rows: int, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(scan._STATE_NUMBERS, "cpu", rows * 4 * 2)
    monkeypatch.setattr(scan, "_KEEP_NUMBERS", keep)
    assert_equal_to_reference(example(5, 6, 4, 2), 1e-10)


def test_gradients_are_those_of_finite_differences() -> None:
    for length in (1, 3):
        assert torch.autograd.gradcheck(selective_scan, example(2, length, 3, 2))


def test_a_graph_that_is_kept_can_be_walked_twice() -> None:
    tensors = example(2, 4, 3, 2)
    y = selective_scan(*tensors).square().sum()
    first = torch.autograd.grad(y, tensors, retain_graph=True)
    for got, expected in zip(torch.autograd.grad(y, tensors), first, strict=True):
        assert torch.equal(got, expected)


def test_huge_steps_do_not_overflow() -> None:
    u, delta, A, B, C, D = example(2, 12, 3, 2, dtype=torch.float32)
    tensors = [u, (delta * 1e4).detach().requires_grad_(), (A * 1e3).detach().requires_grad_(), B, C, D]
    for tensor in value_and_gradients(selective_scan, tensors):
        assert torch.isfinite(tensor).all()


def test_tensors_that_are_not_contiguous() -> None:
    u, delta, A, B, C, D = example(3, 5, 4, 2)
    both = torch.cat([B, C], dim=-1)
    y = selective_scan(u.mT.contiguous().mT, delta, A.T.contiguous().T, both[..., :2], both[..., 2:], D)
    torch.testing.assert_close(y, selective_scan_ref(u, delta, A, B, C, D))


@pytest.mark.parametrize("shape", [(0, 4, 3, 2), (2, 0, 3, 2)])
def test_nothing_to_scan(shape: tuple[int, int, int, int]) -> None:
    for function in (selective_scan, selective_scan_ref):
        tensors = example(*shape)
        y = function(*tensors)
        assert y.shape == shape[:3]
        y.sum().backward()


def test_half_precision_is_computed_in_the_type_of_A() -> None:
    u, delta, A, B, C, D = (tensor.detach().float() for tensor in example(2, 6, 3, 2))
    half = [tensor.bfloat16() for tensor in (u, delta, B, C)]
    u16, delta16, B16, C16 = (tensor.requires_grad_() for tensor in half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = selective_scan(u16, delta16, A, B16, C16, D)
        y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    expected = selective_scan_ref(u16.float(), delta16.float(), A, B16.float(), C16.float(), D)
    assert torch.equal(y, expected.bfloat16())
    assert u16.grad is not None
    assert u16.grad.dtype == torch.bfloat16


# The kernel of mamba_ssm.


@pytest.fixture
def fresh_kernel() -> Iterator[None]:
    """Forget what was found before and after."""
    mamba_kernel.cache_clear()
    yield
    mamba_kernel.cache_clear()


@pytest.fixture
def fake_kernel(monkeypatch: pytest.MonkeyPatch, fresh_kernel: None) -> list[tuple[int, ...]]:
    """Put a mamba_ssm in place that computes by the reference in its own layout, and notes the shapes it got."""
    seen = []

    def selective_scan_fn(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        seen.append((u.shape, delta.shape, A.shape, B.shape, C.shape, D.shape))
        return selective_scan_ref(u.mT, delta.mT, A, B.mT, C.mT, D).mT

    module = ModuleType("mamba_ssm.ops.selective_scan_interface")
    module.selective_scan_fn = selective_scan_fn  # type: ignore[attr-defined]
    for name in ("mamba_ssm", "mamba_ssm.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return seen


def test_the_kernel_gets_its_own_layout(fake_kernel: list) -> None:
    tensors = example(2, 5, 3, 4)
    kernel = mamba_kernel()
    assert kernel is not None
    y = kernel_scan(kernel, *tensors)
    assert [tuple(shape) for shape in fake_kernel[0]] == [(2, 3, 5), (2, 3, 5), (3, 4), (2, 4, 5), (2, 4, 5), (3,)]
    torch.testing.assert_close(y, selective_scan_ref(*tensors))


def test_the_kernel_is_used_on_cuda_only(fake_kernel: list, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = example(2, 5, 3, 4, dtype=torch.float32)
    expected = selective_scan(*tensors)
    assert fake_kernel == []
    monkeypatch.setattr(scan, "_kernel_can_run", lambda u: True)
    torch.testing.assert_close(selective_scan(*tensors), expected)
    assert len(fake_kernel) == 1


def test_without_mamba_ssm_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch, fresh_kernel: None) -> None:
    monkeypatch.setitem(sys.modules, "mamba_ssm", None)  # an import of it raises ImportError
    assert mamba_kernel() is None
    monkeypatch.setattr(scan, "_kernel_can_run", lambda u: True)
    assert_equal_to_reference(example(2, 5, 3, 4), 1e-10)


@pytest.mark.skipif(
    not torch.cuda.is_available() or mamba_kernel() is None, reason="needs a CUDA device and the package mamba_ssm"
)
def test_the_real_kernel_is_the_reference() -> None:
    tensors = [x.detach().cuda().requires_grad_() for x in example(4, 12, 64, 16, dtype=torch.float32)]
    y, expected = selective_scan(*tensors), selective_scan_ref(*tensors)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    got = torch.autograd.grad(y.square().sum(), tensors)
    for one, other in zip(got, torch.autograd.grad(expected.square().sum(), tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * other.abs().max().item())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("length", [1, 12, 200])
def test_cuda_is_the_reference(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_kernel_can_run", lambda u: False)
    tensors = [x.detach().cuda().requires_grad_() for x in example(4, length, 8, 4)]
    y, expected = selective_scan(*tensors), selective_scan_ref(*tensors)
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    got = torch.autograd.grad(y.square().sum(), tensors)
    for one, other in zip(got, torch.autograd.grad(expected.square().sum(), tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * other.abs().max().item())


def float32_example(*sizes: int) -> list[torch.Tensor]:
    return [x.detach().cuda().requires_grad_() for x in example(*sizes, dtype=torch.float32)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (4, 12, 70, 16), (300, 9, 256, 16), (2, 400, 8, 5)])
def test_our_kernel_is_the_reference(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_kernel_can_run", lambda u: False)  # mamba_ssm's
    tensors = float32_example(*sizes)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    y, expected = selective_scan(*tensors), selective_scan_ref(*exact)
    assert not _scan_kernel._broken
    assert type(y.grad_fn.next_functions[0][0]).__name__ == "_FusedBackward"
    torch.testing.assert_close(y, expected.float(), rtol=1e-4, atol=1e-4)
    got = torch.autograd.grad(y.square().sum(), tensors)
    for one, other in zip(got, torch.autograd.grad(expected.square().sum(), exact), strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-3, atol=1e-3 * other.abs().max().item())
    again = torch.autograd.grad(selective_scan(*tensors).square().sum(), tensors)
    assert all(torch.equal(one, other) for one, other in zip(got, again, strict=True))
    with torch.no_grad():  # no state is kept
        assert torch.equal(selective_scan(*tensors), y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_without_a_compiler_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(scan, "_kernel_can_run", lambda u: False)
    monkeypatch.setattr(_scan_kernel, "_kernels", fails)
    monkeypatch.setattr(_scan_kernel, "_broken", [])
    tensors = float32_example(2, 5, 6, 4)
    torch.testing.assert_close(selective_scan(*tensors), selective_scan_ref(*tensors), rtol=1e-5, atol=1e-5)
    assert _scan_kernel._broken == [True]


def test_our_kernel_is_for_gpus_only() -> None:
    u, delta, A, B, C, _ = example(2, 5, 3, 4, dtype=torch.float32)
    assert fused_recurrence(u, delta, A, B, C) is None
