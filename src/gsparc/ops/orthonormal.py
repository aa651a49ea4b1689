"""Orthonormal functions under a measure, from Gram matrices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["orthonormal_layer", "weighted_moments"]


def weighted_moments(values: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean ``[k]`` and covariance ``[k, k]`` of ``values [m, k]`` under ``weights [m]``, in float64."""
    y = values.double()
    if weights is None:
        mean = y.mean(dim=0)
        centred = y - mean
        return mean, centred.T @ centred / len(y)
    w = weights.double()[:, None] / weights.double().sum()
    mean = (w * y).sum(dim=0)
    centred = y - mean
    return mean, (w * centred).T @ centred


def orthonormal_layer(
    values: Tensor, *, jitter: float = 1e-6, average: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Offset and weight of the output layer that make ``values`` centred and orthonormal.

    The paper's orthogonalisation step: with ``C C^T`` the Cholesky factorisation of the
    centred second moments of ``values [m, k]``, ``(values - offset) @ weight`` with
    ``weight = (C^-1)^T`` has mean zero and ``Y^T Y = m I``. The factor multiplies on the
    right, and no sign is changed afterwards, so that orthonormality is kept exactly.
    Where ``values`` are a process' share of a batch, ``average`` makes their moments those of the whole batch.

    Examples
    --------
    >>> y = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> offset, weight = orthonormal_layer(y, jitter=0.0)
    >>> z = (y.double() - offset) @ weight
    >>> bool(torch.allclose(z.T @ z, 50 * torch.eye(3).double()))
    True
    """
    offset, covariance = weighted_moments(values)
    if average is not None:
        mean = offset
        offset = average(mean)
        covariance = average(covariance + torch.outer(mean - offset, mean - offset))
    k = covariance.shape[0]
    scale = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    eye = torch.eye(k, dtype=covariance.dtype, device=covariance.device)
    factor, info = torch.linalg.cholesky_ex(covariance + jitter * scale * eye)
    if int(info) != 0:  # rank deficient batch: lift the spectrum just enough
        lift = 1e-3 * scale * eye
        factor, _ = torch.linalg.cholesky_ex(covariance + lift)
    weight = torch.linalg.solve_triangular(factor, eye, upper=False).T
    return offset, weight
