"""Task for the loop: classes of labelled nodes, judged on labelled nodes held out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gsparc.nn.mlp import FeatureMLP
from gsparc.training.batches import FeatureSource, as_tensor

__all__ = ["ClassTask", "class_logits", "fit_temperature"]


@torch.no_grad()
def class_logits(
    module: FeatureMLP,
    features: FeatureSource,
    index: Tensor,
    coordinates: Tensor | None,
    *,
    chunk: int = 16_384,
) -> Tensor:
    """Logits at rows ``index`` in chunks, without dropout."""
    was_training = module.training
    module.eval()
    parts = []
    for start in range(0, len(index), chunk):
        rows = index[start : start + chunk]
        beside = None if coordinates is None else coordinates[rows]
        parts.append(module(features.rows(rows), beside).float())
    module.train(was_training)
    return torch.cat(parts)


class ClassTask:
    """Cross-entropy on mini-batches of labelled nodes.

    Parameters
    ----------
    module, features
        The network and the rows of the seen nodes.
    coordinates
        Spectral coordinates of all rows, or ``None``.
    rows, labels
        Labelled rows to train on, and their class numbers.
    held_rows, held_labels
        Labelled rows to judge by; may be empty.
    """

    def __init__(
        self,
        module: FeatureMLP,
        features: FeatureSource,
        coordinates: Tensor | None,
        rows: np.ndarray,
        labels: np.ndarray,
        held_rows: np.ndarray,
        held_labels: np.ndarray,
        *,
        batch_size: int,
    ) -> None:
        device = features.device
        self.module, self.features, self.coordinates = module, features, coordinates
        self.rows, self.labels = as_tensor(rows).to(device), as_tensor(labels).to(device)
        self.held_rows, self.held_labels = as_tensor(held_rows).to(device), as_tensor(held_labels).to(device)
        self.batch_size = min(batch_size, len(rows))

    def loss(self, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of one batch."""
        if self.batch_size == len(self.rows):
            pick = torch.arange(len(self.rows), device=self.rows.device)
        else:
            pick = torch.randint(len(self.rows), (self.batch_size,), generator=generator, device=self.rows.device)
        rows = self.rows[pick]
        beside = None if self.coordinates is None else self.coordinates[rows]
        return F.cross_entropy(self.module(self.features.rows(rows), beside).float(), self.labels[pick])

    def held_logits(self) -> Tensor:
        """Logits of the held-out rows."""
        return class_logits(self.module, self.features, self.held_rows, self.coordinates)

    def evaluate(self) -> float | None:
        """Accuracy on the held-out rows, with a little of their likelihood to order equals."""
        if len(self.held_rows) == 0:
            return None
        logits = self.held_logits()
        hits = (logits.argmax(dim=1) == self.held_labels).double().mean()
        return float(hits) - 0.05 * float(F.cross_entropy(logits, self.held_labels))


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The softmax temperature with the best likelihood on held-out rows (Guo et al., arXiv 1706.04599)."""
    grid = torch.logspace(-1, 1, 81, device=logits.device)
    losses = torch.stack([F.cross_entropy(logits / t, labels) for t in grid])
    return float(grid[losses.argmin()])
