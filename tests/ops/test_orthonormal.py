"""The orthogonalisation step."""

from __future__ import annotations

import pytest
import torch

from gsparc.ops.orthonormal import orthonormal_layer, weighted_moments


def batch(m: int = 40, k: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(k, k, generator=generator)
    return torch.randn(m, k, generator=generator) @ mixing + 3.0


def test_moments_by_hand() -> None:
    values = torch.tensor([[0.0, 2.0], [4.0, 2.0]])
    mean, covariance = weighted_moments(values)
    assert mean.tolist() == [2, 2]
    assert covariance.tolist() == [[4, 0], [0, 0]]
    # weights 3 to 1: mean 1, variance (3 * 1 + 1 * 9) / 4 = 3
    mean, covariance = weighted_moments(values, torch.tensor([3.0, 1.0]))
    assert mean.tolist() == [1, 2]
    assert covariance.tolist() == [[3, 0], [0, 0]]


def test_the_layer_makes_the_batch_centred_and_orthonormal() -> None:
    values = batch()
    offset, weight = orthonormal_layer(values, jitter=0.0)
    y = (values.double() - offset) @ weight
    torch.testing.assert_close(y.T @ y, 40 * torch.eye(5).double(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(5).double(), rtol=0, atol=1e-12)


def test_the_factor_multiplies_on_the_right_side() -> None:
    # the same product with the factor not transposed is not orthonormal: a test that the test can fail
    values = batch()
    offset, weight = orthonormal_layer(values, jitter=0.0)
    wrong = (values.double() - offset) @ weight.T
    assert not torch.allclose(wrong.T @ wrong, 40 * torch.eye(5).double(), atol=1.0)


def test_the_default_jitter_is_below_a_part_in_a_thousand() -> None:
    values = batch(400)
    offset, weight = orthonormal_layer(values)
    y = (values.double() - offset) @ weight
    torch.testing.assert_close(y.T @ y / 400, torch.eye(5).double(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("jitter", [0.0, 1e-6])
@pytest.mark.parametrize("kind", ["twice the same column", "constant", "fewer rows than columns"])
def test_a_rank_deficient_batch_survives(kind: str, jitter: float) -> None:
    values = batch()
    if kind == "twice the same column":
        values[:, 1] = values[:, 0]
    elif kind == "constant":
        values = torch.ones(40, 5)
    else:
        values = values[:3]
    offset, weight = orthonormal_layer(values, jitter=jitter)
    y = (values.double() - offset) @ weight
    assert torch.isfinite(y).all()
    assert (y.square().mean(dim=0) < 1.1).all()  # nothing is blown up beyond unit variance
