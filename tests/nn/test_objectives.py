"""The losses, with values worked out by hand and expectations by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from gsparc.nn.objectives import (
    contrastive_loss,
    contrastive_loss_reference,
    generalisation_score,
    info_nce_loss,
    nesting_masks,
    rayleigh_loss,
)

# the path 0 - 1 - 2 with self-loops: seven ordered pairs, all equally likely
PAIRS = [(0, 0), (1, 1), (2, 2), (0, 1), (1, 0), (1, 2), (2, 1)]
PI = torch.tensor([2.0, 3.0, 2.0]).double() / 7


def expected_loss(f: torch.Tensor, *, nested: bool = False) -> torch.Tensor:
    """Mean of the loss over all 49 batches of two pairs."""
    losses = []
    for (a, b), (c, d) in itertools.product(PAIRS, PAIRS):
        losses.append(contrastive_loss(f[[a, c]], f[[b, d]], nested=nested))
    return torch.stack(losses).mean()


def closed_form(f: torch.Tensor) -> torch.Tensor:
    attraction = torch.stack([f[a] @ f[b] for a, b in PAIRS]).mean()
    mean, gram = PI @ f, (PI[:, None] * f).T @ f
    return -2 * attraction + 2 * mean @ mean + (gram * gram).sum()


def eigenfunctions() -> torch.Tensor:
    """Those of mu = 1/2 and mu = -1/6, orthonormal under pi; the second is (3, -4, 3) up to scale."""
    first = torch.tensor([1.0, 0.0, -1.0]).double() * math.sqrt(7 / 4)
    second = torch.tensor([3.0, -4.0, 3.0]).double()
    return torch.stack([first, second / (PI @ second**2).sqrt()], dim=1)


def test_contrastive_loss_by_hand() -> None:
    # halves (1, 3) and (2, 4): Gram 5 and 10, means 2 and 3; attraction (3 + 8) / 2
    source, target = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])
    assert contrastive_loss(source, target).item() == pytest.approx(2 * 6 - 2 * 5.5 + 5 * 10)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("edges", [2, 10, 11])
def test_the_contrastive_loss_and_its_gradient_are_those_of_the_reference(edges: int, nested: bool) -> None:
    torch.manual_seed(edges)
    values = torch.randn(2 * edges, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for loss in (contrastive_loss, contrastive_loss_reference):
        value = loss(*values.split(edges), nested=nested)
        found.append((value.detach(), *torch.autograd.grad(3 * value, values)))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_contrastive_loss_is_unbiased() -> None:
    f = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 4)))
    assert expected_loss(f).item() == pytest.approx(closed_form(f).item(), abs=1e-12)


def test_its_expectation_is_the_low_rank_error() -> None:
    # |W - f f^T|^2 weighted, less what does not depend on f: the sum of mu^2 of the non-trivial part
    phi = eigenfunctions()
    mu = torch.tensor([1 / 2, -1 / 6], dtype=torch.float64)
    f = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 2)))
    centred = (phi * mu) @ phi.T  # kernel of P under pi, without the constant function
    error = (PI[:, None] * PI[None, :] * (centred - f @ f.T) ** 2).sum()
    assert expected_loss(f).item() == pytest.approx((error - (mu**2).sum()).item(), abs=1e-10)


@pytest.mark.parametrize("nested", [False, True])
def test_the_scaled_eigenfunction_is_its_minimiser(nested: bool) -> None:
    f = (math.sqrt(1 / 2) * eigenfunctions()[:, :1]).requires_grad_()
    loss = expected_loss(f, nested=nested)
    loss.backward()
    assert loss.item() == pytest.approx(-1 / 4)
    assert f.grad is not None
    assert f.grad.abs().max() < 1e-12
    rng = np.random.default_rng(2)
    for _ in range(20):
        other = f.detach() + 0.2 * torch.from_numpy(rng.standard_normal((3, 1)))
        assert expected_loss(other) > loss


def test_a_function_that_is_no_eigenfunction_has_a_gradient() -> None:
    f = torch.tensor([[0.3], [0.1], [-0.7]], dtype=torch.float64, requires_grad=True)
    expected_loss(f).backward()
    assert f.grad is not None
    assert f.grad.abs().max() > 0.05


def test_nesting_masks_by_hand() -> None:
    single, pair = nesting_masks(3, like=torch.zeros(1))
    torch.testing.assert_close(single, torch.tensor([1, 2 / 3, 1 / 3]))
    torch.testing.assert_close(pair, torch.tensor([[1, 2 / 3, 1 / 3], [2 / 3, 2 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]]))


def test_the_nested_loss_is_the_mean_over_prefixes() -> None:
    rng = np.random.default_rng(3)
    source, target = (torch.from_numpy(rng.standard_normal((6, 4))) for _ in range(2))
    prefixes = [contrastive_loss(source[:, :p], target[:, :p]) for p in range(1, 5)]
    torch.testing.assert_close(contrastive_loss(source, target, nested=True), torch.stack(prefixes).mean())


def orthonormal_batch() -> tuple[torch.Tensor, torch.Tensor]:
    values = np.random.default_rng(4).standard_normal((40, 3))
    values -= values.mean(axis=0)
    values = np.linalg.qr(values)[0] * math.sqrt(40)
    return torch.from_numpy(values[:20]), torch.from_numpy(values[20:])


def test_the_rayleigh_value_is_the_trace() -> None:
    # differences (1, 0) and (0, 2): (1 + 4) / (2 * 2)
    source, target = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 2)
    assert rayleigh_loss(source, target).item() == pytest.approx(1.25)


def test_the_rayleigh_gradient_does_not_shrink_orthonormal_functions() -> None:
    source, target = orthonormal_batch()
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(rayleigh_loss(scale * source, scale * target, floor=0.0), scale)
    assert abs(gradient.item()) < 1e-10
    # the plain quotient would shrink: its derivative is twice its value
    plain = ((scale * (source - target)) ** 2).sum() / 40
    assert torch.autograd.grad(plain, scale)[0].item() == pytest.approx(2 * plain.item())


def test_the_rayleigh_gradient_vanishes_at_eigenfunctions() -> None:
    f = eigenfunctions().requires_grad_()
    source = f[[a for a, _ in PAIRS]]
    target = f[[b for _, b in PAIRS]]
    (gradient,) = torch.autograd.grad(rayleigh_loss(source, target, floor=0.0), f)
    assert gradient.abs().max() < 1e-12
    mixed = (eigenfunctions()[:, :1] + 0.5 * eigenfunctions()[:, 1:]).div(math.sqrt(1.25)).requires_grad_()
    ends = mixed[[a for a, _ in PAIRS]], mixed[[b for _, b in PAIRS]]
    assert torch.autograd.grad(rayleigh_loss(*ends, floor=0.0), mixed)[0].abs().max() > 0.05


def test_info_nce_by_hand() -> None:
    source = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    target = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    # cosines (1, 1) and (0, 0): rows lose log 2 each, columns log(1 + 1/e) and log(1 + e)
    rows, columns = math.log(2), (math.log(1 + math.exp(-1)) + math.log(1 + math.e)) / 2
    assert info_nce_loss(source, target, 1.0).item() == pytest.approx((rows + columns) / 2)
    # at temperature 1/2 the logits are 2 and 0
    columns = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2
    assert info_nce_loss(source, target, 0.5).item() == pytest.approx((rows + columns) / 2)


def test_info_nce_ignores_masked_pairs() -> None:
    source, target = torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    off = ~torch.eye(2, dtype=torch.bool)
    assert info_nce_loss(source, target, 1.0, off).item() == 0.0
    one = torch.tensor([[False, True], [False, False]])
    # left: row 1 against column 0 (log 2), column 0 against row 1 (log(1 + 1/e))
    expected = (math.log(2) / 2 + math.log(1 + math.exp(-1)) / 2) / 2
    assert info_nce_loss(source, target, 1.0, one).item() == pytest.approx(expected)


def test_generalisation_score_by_hand() -> None:
    # held-out values 1 and 3 beside 2 and 1, seen ones 0 and 2: attraction 5/2, means 1 and 2, second moments 2 and 5
    moments = (torch.tensor(value) for value in (2.5, [1.0], [[2.0]], [2.0], [[5.0]]))
    score = generalisation_score(*moments)
    assert score.item() == pytest.approx(2 * 2.5 - 2 * 2 - 2 * 5)


def test_generalisation_score_on_the_training_nodes_is_the_negated_loss() -> None:
    f = torch.from_numpy(np.random.default_rng(5).standard_normal((3, 2)))
    attached = torch.stack([(f[0] + f[1]) / 2, f.mean(dim=0), (f[1] + f[2]) / 2])
    mean, gram = (PI[:, None] * f).sum(dim=0), (PI[:, None] * f).T @ f
    attraction = (PI[:, None] * f * attached).sum()
    assert generalisation_score(attraction, mean, gram, mean, gram).item() == pytest.approx(-closed_form(f).item())
