"""Vectors as an index compares them: float32, finite, scaled or of unit length; whole, or in a file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from gsparc._mapped import release
from gsparc._typing import FloatArray
from gsparc.exceptions import FeatureError, InputError
from gsparc.ops._coded import mapped_rows
from gsparc.ops._knn import blocks, unit_rows

__all__ = ["check_scale", "prepare", "prepared_file"]

_BLOCK = 1 << 14


def check_scale(metric: str, scale: FloatArray | None) -> NDArray[np.float32] | None:
    if (metric == "diffusion") != (scale is not None):
        got = "no scale" if scale is None else "a scale"
        raise InputError(
            f"metric={metric!r} came with {got}. Pass scale=mu**t (one number a component) together with "
            "metric='diffusion', and with no other."
        )
    return None if scale is None else np.asarray(scale, dtype=np.float32)


def prepare(
    vectors: FloatArray | torch.Tensor,
    metric: str,
    scale: NDArray[np.float32] | None,
    device: torch.device,
    *,
    dim: int | None,
) -> torch.Tensor:
    """Vectors as the rows that are compared: float32 on ``device``, finite, scaled or of unit length."""
    if isinstance(vectors, np.ndarray) and not vectors.flags.writeable:
        vectors = np.array(vectors)  # such as a mapped array: torch wants memory that could be written to
    rows = torch.as_tensor(vectors).detach().to(device=device, dtype=torch.float32)
    if rows.ndim != 2 or (dim is not None and rows.shape[1] != dim):
        expected = "(rows, dim)" if dim is None else f"(rows, {dim})"
        raise InputError(
            f"vectors of shape {tuple(rows.shape)} came, expected {expected}. "
            "A single vector is passed as one row: v[None, :]."
        )
    if not bool(torch.isfinite(rows).all()):
        raise FeatureError("vectors hold NaN or infinite values; an index needs finite numbers.")
    if scale is not None:
        if scale.shape != (rows.shape[1],):
            raise InputError(f"scale has shape {scale.shape}, expected ({rows.shape[1]},): one per component.")
        rows = rows * torch.from_numpy(scale).to(device)
    if metric == "cosine":
        rows = unit_rows(rows)
    return rows.contiguous()


def prepared_file(
    vectors: FloatArray | torch.Tensor, metric: str, scale: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """All vectors as they are compared, in a mapped file; read and written a block at a time."""
    dim = int(vectors.shape[1])

    def parts() -> Iterator[NDArray[np.float32]]:
        for part in blocks(len(vectors), _BLOCK):
            yield prepare(vectors[part], metric, scale, torch.device("cpu"), dim=dim).numpy()
            release(vectors)

    return mapped_rows(parts(), dim)
