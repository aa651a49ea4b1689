"""k-means with a bound on the size of a part: rounds of near-linear cost."""

from __future__ import annotations

import torch
from torch import Tensor

from gsparc.ops._knn import block_cells, blocks
from gsparc.ops.cells import _half_squares, _means, _near_groups, _padded

__all__ = ["bounded_kmeans", "place_within"]

_NEAR = 64  # parts around its own in which a row looks for a nearer one
_CHOICES = 16  # of these, the nearest that it may be given to


def bounded_kmeans(rows: Tensor, label: Tensor, parts: int, bound: int, rounds: int) -> Tensor:
    """Move rows to nearer parts, none of which may hold more than ``bound``: the part of every row (n,).

    ``label`` is where they start; ``parts * bound >= n``. No part is left empty.
    """
    centroids = _means(rows, label, rows.new_zeros(parts, rows.shape[1]))
    for _ in range(rounds):
        near = _near_groups(centroids, min(_NEAR, parts))
        scores, options = _preferences(rows, label, near, centroids)
        label = place_within(scores, options, parts, bound)
        centroids = _means(rows, label, centroids)
    return _fill_empty(label, parts)


def _preferences(rows: Tensor, label: Tensor, near: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest parts of each row among those around its own, nearest first: scores and parts, both (n, c)."""
    count = min(_CHOICES, near.shape[1])
    scores = rows.new_empty(len(rows), count)
    options = torch.empty(len(rows), count, dtype=torch.int64, device=rows.device)
    order = torch.sort(label, stable=True).indices
    bounds = torch.zeros(len(near) + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(torch.bincount(label, minlength=len(near)), 0, out=bounds[1:])
    widest = int((bounds[1:] - bounds[:-1]).max())
    each = widest * (near.shape[1] + rows.shape[1]) + near.shape[1] * rows.shape[1]
    for few in blocks(len(near), max(1, block_cells(rows.device) // (4 * each))):
        slots, inside = _padded(bounds[few.start : few.stop + 1], widest)
        members = order[slots.clamp_max(len(order) - 1)]  # an empty last part starts past the end
        around = centroids[near[few]]  # (parts, near, d)
        found = torch.baddbmm(_half_squares(around).unsqueeze(1), rows[members], around.transpose(1, 2), alpha=-1.0)
        best, where = torch.topk(found, count, dim=2, largest=False)
        chosen = near[few].unsqueeze(1).expand(-1, widest, -1).gather(2, where)
        scores[members[inside]], options[members[inside]] = best[inside], chosen[inside]
    return scores, options


def place_within(scores: Tensor, options: Tensor, parts: int, bound: int) -> Tensor:
    """Give each row one of its ``options``, nearest first, at most ``bound`` rows a part: (n,).

    Every row asks for its first choice; a part that is asked by too many keeps the nearest and turns the others
    away, who ask for their next choice (Gale and Shapley, 1962). Rows that all their choices turned away fill what
    room is left.

    Examples
    --------
    >>> scores, options = torch.tensor([[0.0, 1.0], [0.1, 0.2], [0.3, 0.4]]), torch.tensor([[0, 1]] * 3)
    >>> place_within(scores, options, parts=2, bound=2).tolist()
    [0, 0, 1]
    """
    n, count = options.shape
    turn = torch.zeros(n, dtype=torch.int64, device=options.device)
    label = options[:, 0].clone()
    while True:
        placed = torch.nonzero(turn < count).flatten()
        sizes = torch.bincount(label[placed], minlength=parts)
        crowd = placed[sizes[label[placed]] > bound]  # only parts that are asked by too many must choose
        if not len(crowd):
            break
        value = scores[crowd, turn[crowd]]
        crowd = crowd[torch.sort(value, stable=True).indices]
        crowd = crowd[torch.sort(label[crowd], stable=True).indices]  # by part, nearest first
        lengths = torch.unique_consecutive(label[crowd], return_counts=True)[1]
        first = torch.repeat_interleave(torch.cumsum(lengths, 0) - lengths, lengths, output_size=len(crowd))
        refused = crowd[torch.arange(len(crowd), device=crowd.device) - first >= bound]
        turn[refused] += 1
        again = refused[turn[refused] < count]
        label[again] = options[again, turn[again]]
    left = torch.nonzero(turn >= count).flatten()
    if len(left):
        room = (bound - sizes).clamp_min(0)
        free = torch.repeat_interleave(torch.arange(parts, device=room.device), room)
        label[left] = free[: len(left)]
    return label


def _fill_empty(label: Tensor, parts: int) -> Tensor:
    """Give each empty part one row of the largest ones."""
    sizes = torch.bincount(label, minlength=parts)
    for empty in torch.nonzero(sizes == 0).flatten().tolist():
        donor = int(sizes.argmax())
        label[int(torch.nonzero(label == donor)[-1])] = empty
        sizes[donor] -= 1
        sizes[empty] += 1
    return label
