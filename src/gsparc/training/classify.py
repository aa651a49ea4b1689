"""Task for the loop: classes of nodes, hard or soft, judged on nodes held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gsparc._processes import World, world
from gsparc.training.batches import as_tensor
from gsparc.training.distributed import computed_together

__all__ = ["ClassTask", "Inputs", "Judge", "class_logits", "fit_temperature"]

Inputs = Callable[[Tensor], tuple[Any, ...]]
"""Row numbers to the arguments of a network: the rows' features, tokens, neighbourhoods ..."""

ExtraLoss = Callable[[torch.Generator], Tensor]


@dataclass(frozen=True)
class Judge:
    """Nodes that a network is judged by: how to read them, which rows, and their class numbers."""

    inputs: Inputs
    rows: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


@torch.no_grad()
def class_logits(module: nn.Module, inputs: Inputs, rows: Tensor, *, chunk: int = 4096) -> Tensor:
    """Logits at ``rows`` in chunks, without dropout."""
    was_training = module.training
    module.eval()
    parts = [module(*inputs(rows[start : start + chunk])).float() for start in range(0, len(rows), chunk)]
    module.train(was_training)
    return torch.cat(parts)


class ClassTask:
    """Cross-entropy on mini-batches of nodes.

    Parameters
    ----------
    module, inputs
        The network, and how the rows of the seen nodes are read for it.
    rows, targets
        Rows to train on, and what they are: class numbers ``[r]``, or distributions over the
        classes ``[r, C]`` (a teacher's soft labels).
    judge
        Labelled nodes that are not trained on; may be ``None``.
    batch_size, chunk
        Rows a step, rows at once when judging. Where several processes train together each has its own rows, and
        `batch_size` counts those of all.
    extra
        A further term of the loss, such as one on edges.
    capturable
        Whether ``inputs``, the network and ``extra`` never wait for the device: steps may then be recorded.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs,
        rows: np.ndarray,
        targets: np.ndarray,
        judge: Judge | None,
        device: torch.device,
        *,
        batch_size: int,
        chunk: int = 4096,
        extra: ExtraLoss | None = None,
        capturable: bool = False,
    ) -> None:
        self.module, self.inputs, self.judge, self.extra, self.chunk = module, inputs, judge, extra, chunk
        here = world() if len(rows) >= world().size else World()  # too few to share out: all take all of them
        sizes = [min(here.share(batch_size), len(rows[rank :: here.size])) for rank in range(here.size)]
        # shares may differ by a row: weighted like this their mean is the mean over the rows
        self.weight = sizes[here.rank] * here.size / sum(sizes)
        rows, targets = rows[here.rank :: here.size], targets[here.rank :: here.size]
        self.rows, self.targets = as_tensor(rows).to(device), as_tensor(targets).to(device)
        self.batch_size = sizes[here.rank]
        self._order, self._used = torch.arange(len(rows), device=device), len(rows)
        self.capturable = capturable
        self._drawn: Tensor | None = None
        if judge is not None:
            self._judged, self._labels = as_tensor(judge.rows).to(device), as_tensor(judge.labels).to(device)

    def loss(self, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of one batch."""
        pick = self._next(generator) if self._drawn is None else self._drawn
        logits = self.module(*self.inputs(self.rows[pick])).float()
        loss = F.cross_entropy(logits, self.targets[pick])
        loss = loss if self.weight == 1 else self.weight * loss
        return loss if self.extra is None else loss + self.extra(generator)

    def draw(self, generator: torch.Generator) -> None:
        """Put the rows of the next batch where a recorded step reads them."""
        if self._drawn is not None and self.batch_size == len(self.rows):
            return  # always all of them
        pick = self._next(generator)
        if self._drawn is None:
            self._drawn = pick.clone()
        else:
            self._drawn.copy_(pick)

    def _next(self, generator: torch.Generator) -> Tensor:
        """The next batch of a random order of the rows; a new order when too few are left."""
        if self.batch_size == len(self.rows):
            return self._order
        if self._used + self.batch_size > len(self._order):
            self._order = torch.randperm(len(self.rows), generator=generator, device=self.rows.device)
            self._used = 0
        start, self._used = self._used, self._used + self.batch_size
        return self._order[start : self._used]

    def judged_logits(self) -> Tensor:
        """Logits of the nodes that judge."""
        assert self.judge is not None
        inputs = self.judge.inputs
        return computed_together(lambda rows: class_logits(self.module, inputs, rows, chunk=self.chunk), self._judged)

    def evaluate(self) -> float | None:
        """Accuracy on the judging nodes, with a little of their likelihood to order equals."""
        if not self.judge:
            return None
        logits = self.judged_logits()
        hits = (logits.argmax(dim=1) == self._labels).double().mean()
        return float(hits) - 0.05 * float(F.cross_entropy(logits, self._labels))

    def temperature(self, *, least: int = 20) -> float:
        """Softmax temperature by the judging nodes; 1 where they are too few to tell."""
        if self.judge is None or len(self.judge) < least:
            return 1.0
        return fit_temperature(self.judged_logits(), self._labels)


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The softmax temperature with the best likelihood on held-out rows (Guo et al., arXiv 1706.04599)."""
    grid = torch.logspace(-1, 1, 81, device=logits.device)
    losses = torch.stack([F.cross_entropy(logits / t, labels) for t in grid])
    return float(grid[losses.argmin()])
