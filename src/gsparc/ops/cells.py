"""Small cells of near vectors, in near-linear time, and what is near a query found through them.

The vectors are halved again and again, each part at the median along its own principal direction, until a
part holds about ``cell_size`` of them: ``O(n log n)``. Two rounds of k-means follow in which a vector looks
only at the cells of the parts around its own. The cells end up as good as those of k-means over all pairs of
vectors and centroids, which for ``n / 16`` cells would be quadratic. Where there are many cells, their centroids lie in
cells in turn, so finding the nearest ones does not mean looking at all of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsparc._runtime import torch_generator
from gsparc._validation import check_count
from gsparc.exceptions import DamagedModelError, InputError
from gsparc.ops._gathered import gathered_dots
from gsparc.ops._index_state import State
from gsparc.ops._knn import (
    _CALIBRATION_K,
    _CALIBRATION_QUERIES,
    _TARGET_RECALL,
    _distances,
    _probe_grid,
    _recall,
    block_cells,
    blocks,
    exact_neighbors,
    smallest,
)

__all__ = ["LEAST_LOOKED", "Candidates", "Cells", "balanced_order", "choose_probes"]

LEAST_LOOKED = 4  # cells of average size that a query looks into at least: one that has grown is seen whole
_DIRECTION_ROWS = 1024  # of a part, to find its principal direction
_DIRECTION_STEPS = 4  # of the power iteration: any direction of large variance serves
_GROUP = 32  # cells in a part whose members are assigned together, and centroids in a cell of centroids
_NEAR_GROUPS = 12  # parts around its own in which a vector looks for a nearer cell
_ROUNDS = 2
_FLAT_CELLS = 8192  # up to so many centroids are compared one and all
_MARGIN = 16  # candidates kept beyond k before distances are computed again without cancellation
_GATHER_VALUES = 1 << 21  # candidate coordinates held at once: 8 MB stay in a CPU's cache
_GATHER_SHARE = 32  # of a GPU's memory, one part in so many: small blocks would wait for the launches of their kernels


class Candidates(NamedTuple):
    """Members of the cells nearest to each of ``B`` queries: the first ``T`` of them, nearest cells first.

    positions : (B, T) places in :attr:`Cells.order`
    scores : (B, T) half the squared distance (or ``1 - inner product``), never negative, infinite past the end
    cells : (B, P) the cells that were looked into, nearest first
    local : (B, T) which of these ``P`` a candidate lies in
    """

    positions: Tensor
    scores: Tensor
    cells: Tensor
    local: Tensor


class Cells:
    """Cells of about ``cell_size`` near vectors; made by :meth:`build` or :meth:`from_state`.

    Attributes
    ----------
    order : tensor of shape (n,)
        Row numbers, cell after cell: cell ``c`` is ``order[pointers[c]:pointers[c + 1]]``, none is empty.
    pointers : tensor of shape (num_cells + 1,)
    centroids : tensor of shape (num_cells, dim)
    vectors : tensor of shape (n, dim)
        In the order of ``order``.

    Examples
    --------
    >>> import torch
    >>> cells = Cells.build(torch.tensor([[0.0], [9.0], [1.0], [8.0]]), cell_size=2)
    >>> sorted(sorted(cells.order[a:b].tolist()) for a, b in zip(cells.pointers[:-1], cells.pointers[1:]))
    [[0, 2], [1, 3]]
    >>> distances, ids = cells.search(torch.tensor([[1.5]]), k=2, num_candidates=2)
    >>> ids.tolist(), distances.tolist()
    ([[2, 0]], [[0.5, 1.5]])
    """

    def __init__(self, vectors: Tensor, order: Tensor, pointers: Tensor, centroids: Tensor, *, inner: bool) -> None:
        self.vectors, self.order, self.pointers, self.centroids = vectors, order, pointers, centroids
        self.inner = inner
        self.sizes = pointers[1:] - pointers[:-1]
        self.centre = vectors.new_zeros(vectors.shape[1]) if inner else _useful_centre(centroids)
        self._shifted = vectors - self.centre if bool(self.centre.any()) else vectors
        # inner: rows are of length one, or zero and then as far as a right angle
        self._halves = vectors.new_full((len(vectors),), 0.5) if inner else _half_squares(self._shifted)
        self._middles = centroids - self.centre
        self._middle_halves = _half_squares(self._middles)
        self.groups: Cells | None = None
        if len(centroids) > _FLAT_CELLS:
            self.groups = Cells.build(self._middles, cell_size=_GROUP)

    @classmethod
    def build(cls, vectors: Tensor, *, cell_size: int = 16, seed: int = 0, inner: bool = False) -> Cells:
        """Put the rows of ``vectors`` (n, dim) into cells, on the device they are on.

        ``inner``: rows have length one (or zero) and are compared by ``1 - inner product``.
        """
        check_count("cell_size", cell_size, 1)
        if vectors.ndim != 2 or not len(vectors):
            raise InputError(f"vectors of shape {tuple(vectors.shape)} came, expected at least one row.")
        vectors = vectors.float()
        num_cells = 1 << max(0, round(math.log2(len(vectors) / cell_size)))
        order, pointers = balanced_order(vectors, num_cells, seed)
        label, centroids = _refine(vectors, order, pointers)
        sizes = torch.bincount(label, minlength=len(centroids))
        kept = torch.nonzero(sizes).flatten()
        order = torch.sort(label, stable=True).indices
        pointers = torch.zeros(len(kept) + 1, dtype=torch.int64, device=vectors.device)
        torch.cumsum(sizes[kept], 0, out=pointers[1:])
        return cls(vectors[order], order.to(_int(len(order))), pointers, centroids[kept], inner=inner)

    @property
    def num_vectors(self) -> int:
        return len(self.order)

    @property
    def num_cells(self) -> int:
        return len(self.centroids)

    def __repr__(self) -> str:
        return f"Cells(num_vectors={self.num_vectors}, dim={self.vectors.shape[1]}, num_cells={self.num_cells})"

    def rows(self) -> Tensor:
        """The vectors in the order they came in: a copy."""
        return torch.empty_like(self.vectors).index_copy_(0, self.order.long(), self.vectors)

    def candidates_of(self, num_probes: int) -> int:
        """Members that so many cells of average size hold, :data:`LEAST_LOOKED` of them at least."""
        return min(self.num_vectors, max(num_probes, LEAST_LOOKED) * -(-self.num_vectors // self.num_cells))

    def labels(self) -> Tensor:
        """The cell of every row: (n,)."""
        label = torch.empty(self.num_vectors, dtype=_int(self.num_cells), device=self.order.device)
        each = torch.arange(self.num_cells, dtype=label.dtype, device=label.device)
        label[self.order.long()] = torch.repeat_interleave(each, self.sizes, output_size=self.num_vectors)
        return label

    def nearest(self, queries: Tensor, count: int) -> Tensor:
        """The ``count`` cells with the nearest centroids, nearest first: (B, count). A block of queries at a time."""
        return self._nearest(queries - self.centre, min(count, self.num_cells))

    def _nearest(self, shifted: Tensor, count: int) -> Tensor:
        if self.groups is None or 4 * count >= self.num_cells:
            scores = torch.addmm(self._middle_halves, shifted, self._middles.T, alpha=-1.0)
            return torch.topk(scores, count, dim=1, largest=False).indices
        found = self.groups.candidates(shifted, max(4 * count, 256), needed=count)
        best = torch.topk(found.scores, count, dim=1, largest=False).indices
        return self.groups.order[found.positions.gather(1, best)].long()

    def candidates(self, queries: Tensor, num_candidates: int, *, needed: int = 1) -> Candidates:
        """Score ``num_candidates`` members of the nearest cells of each of a block of queries.

        At least ``needed`` of them are true candidates; where the cells that were looked into hold fewer
        than ``num_candidates``, the rest have infinite scores.
        """
        wanted = min(num_candidates, self.num_vectors)
        needed = min(needed, self.num_vectors)
        shifted = queries - self.centre
        count = min(self.num_cells, math.ceil(1.25 * wanted * self.num_cells / self.num_vectors) + 4)
        if wanted == self.num_vectors:
            count = self.num_cells
        while True:
            cells = self._nearest(shifted, count)
            sizes = self.sizes[cells]
            total = sizes.sum(dim=1)
            if count == self.num_cells or bool((total >= needed).all()):
                break
            count = min(self.num_cells, 4 * count)  # many tiny cells: look into more of them
        positions, local = _slots(self.pointers[cells], sizes, wanted)
        dots = gathered_dots(shifted, self._shifted, positions)
        own: Any = 0.5 if self.inner else _half_squares(shifted).unsqueeze(1)
        scores = (self._halves[positions] + own - dots).clamp_min_(0.0)
        past = torch.arange(wanted, device=scores.device) >= total.unsqueeze(1)
        return Candidates(positions, scores.masked_fill_(past, torch.inf), cells, local)

    def query_block(self, num_candidates: int) -> int:
        """How many queries to take at a time when each has so many candidates."""
        values = max(1, min(num_candidates, self.num_vectors) * self.vectors.shape[1])
        return max(1, _gather_values(self.vectors.device) // values)

    def search(self, queries: Tensor, k: int, num_candidates: int) -> tuple[Tensor, Tensor]:
        """The ``k`` nearest among ``num_candidates`` members of the nearest cells: ``(distances, ids)``.

        Distances are computed entry by entry and equal ones come in the order of their ids, as in an exact
        search; what is approximate is which vectors are looked at. All of them when ``num_candidates >= n``.
        """
        n = self.num_vectors
        k = min(k, n)
        looked = min(n, max(num_candidates, k))
        distances = torch.empty(len(queries), k, device=queries.device)
        ids = torch.empty(len(queries), k, dtype=torch.int64, device=queries.device)
        for part in blocks(len(queries), self.query_block(looked)):
            found = self.candidates(queries[part], looked, needed=k)
            kept = min(looked, k + _MARGIN)
            scores, best = torch.topk(found.scores, kept, dim=1, largest=False)
            positions = found.positions.gather(1, best)
            exact = _distances(queries[part], self.vectors[positions], inner=self.inner)
            exact = exact.masked_fill(torch.isinf(scores), torch.inf)
            distances[part], ids[part] = smallest(exact, k, self.order[positions].long())
        return distances, ids

    def state(self) -> State:
        """Arrays and a description that :meth:`from_state` makes the cells from; the vectors are not among them."""
        arrays = {
            "order": self.order.cpu().numpy(),
            "pointers": self.pointers.to(_int(self.num_vectors)).cpu().numpy(),
            "centroids": self.centroids.cpu().numpy(),
        }
        return arrays, {"num_cells": self.num_cells, "inner": self.inner}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], config: dict[str, Any], vectors: Tensor) -> Cells:
        """The cells that :meth:`state` described, of the same ``vectors``; DamagedModelError if they do not fit."""
        _check_state(arrays, config, tuple(vectors.shape))
        order = torch.from_numpy(np.array(arrays["order"])).to(vectors.device)
        pointers = torch.from_numpy(np.array(arrays["pointers"], dtype=np.int64)).to(vectors.device)
        centroids = torch.from_numpy(np.array(arrays["centroids"])).to(vectors.device)
        return cls(vectors.float()[order], order, pointers, centroids, inner=config["inner"])


def choose_probes(cells: Cells, rows: Tensor, seed: int, num_probes: int | None = None) -> tuple[int, float]:
    """The fewest cells to look into for recall@10 >= .98 of the rows themselves, and the recall; or that of so many."""
    k = min(_CALIBRATION_K, len(rows) - 1)
    if k < 1:
        return 1, 1.0
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(rows), min(len(rows), _CALIBRATION_QUERIES), replace=False))
    queries = rows[torch.from_numpy(chosen).to(rows.device)]
    near = exact_neighbors(queries, rows, k + 1, inner=cells.inner)
    truth = near[0].cpu().numpy(), near[1].cpu().numpy()
    recall, probes = 0.0, 1
    for probes in [num_probes] if num_probes else _probe_grid(cells.num_cells):
        near = cells.search(queries, k + 1, cells.candidates_of(probes))
        recall = _recall(chosen, truth, (near[0].cpu().numpy(), near[1].cpu().numpy()), k)
        if recall >= _TARGET_RECALL:
            break
    return probes, recall


def balanced_order(vectors: Tensor, num_cells: int, seed: int) -> tuple[Tensor, Tensor]:
    """Order in which near vectors stand together, and the pointers that cut it into ``num_cells`` equal parts.

    ``num_cells`` is a power of two; sizes differ by at most one.

    Examples
    --------
    >>> import torch
    >>> order, pointers = balanced_order(torch.tensor([[0.0], [9.0], [1.0], [8.0]]), 2, seed=0)
    >>> pointers.tolist(), sorted(order[:2].tolist()) in ([0, 2], [1, 3])
    ([0, 2, 4], True)
    """
    n = len(vectors)
    pointers = torch.arange(num_cells + 1, device=vectors.device) * n // num_cells
    order = torch.arange(n, device=vectors.device)
    generator = torch_generator(seed)
    parts = 1
    while parts < num_cells:
        start = torch.randn(vectors.shape[1], generator=generator).to(vectors.device)
        bounds = pointers[:: num_cells // parts]
        widest = -(-n // parts)
        for few in blocks(parts, block_cells(vectors.device) // max(1, widest * vectors.shape[1])):
            _sort_parts(vectors, order, bounds[few.start : few.stop + 1], widest, start)
        parts *= 2
    return order, pointers


def _sort_parts(vectors: Tensor, order: Tensor, bounds: Tensor, widest: int, start: Tensor) -> None:
    """Sort the members of each part along its principal direction, in place."""
    slots, inside = _padded(bounds, widest)
    members = order[slots]
    rows = vectors[members]  # (parts, widest, dim)
    step = max(1, widest // _DIRECTION_ROWS)
    some, weight = rows[:, ::step], inside[:, ::step, None].to(rows.dtype)
    mean = (some * weight).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True)
    centred = (some - mean) * weight
    direction = start.expand(len(rows), -1).unsqueeze(2)
    for _ in range(_DIRECTION_STEPS):
        direction = torch.bmm(centred.transpose(1, 2), torch.bmm(centred, direction))
        direction = direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-30)
    along = torch.bmm(rows, direction).squeeze(2).masked_fill(~inside, torch.inf)
    by_position = torch.sort(along, dim=1, stable=True).indices
    order[slots[inside]] = members.gather(1, by_position)[inside]


def _refine(vectors: Tensor, order: Tensor, pointers: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds of k-means from equal parts: the cell of every row (n,), and the centroids. Some cells may end empty."""
    num_cells = len(pointers) - 1
    label = torch.empty_like(order)
    each = torch.arange(num_cells, device=order.device)
    label[order] = torch.repeat_interleave(each, pointers[1:] - pointers[:-1], output_size=len(order))
    centroids = _means(vectors, label, vectors.new_zeros(num_cells, vectors.shape[1]))
    if num_cells == 1:
        return label, centroids
    per_group = min(_GROUP, num_cells)
    bounds = pointers[::per_group]
    middle = centroids.view(-1, per_group, vectors.shape[1]).mean(dim=1)
    near = _near_groups(middle, min(_NEAR_GROUPS, len(middle)))
    near_cells = (near[:, :, None] * per_group + torch.arange(per_group, device=order.device)).flatten(1)
    for _ in range(_ROUNDS):
        _assign(vectors, order, bounds, near_cells, centroids, label)
        centroids = _means(vectors, label, centroids)
    return label, centroids


def _near_groups(middle: Tensor, count: int) -> Tensor:
    found = torch.empty(len(middle), count, dtype=torch.int64, device=middle.device)
    for part in blocks(len(middle), max(1, block_cells(middle.device) // len(middle))):
        found[part] = torch.topk(torch.cdist(middle[part], middle), count, dim=1, largest=False).indices
    return found


def _assign(
    vectors: Tensor, order: Tensor, bounds: Tensor, near_cells: Tensor, centroids: Tensor, label: Tensor
) -> None:
    """Give every row the nearest of the cells around its part."""
    widest = int((bounds[1:] - bounds[:-1]).max())
    per_group = widest * (near_cells.shape[1] + vectors.shape[1]) + near_cells.shape[1] * vectors.shape[1]
    for few in blocks(len(near_cells), max(1, block_cells(vectors.device) // (4 * per_group))):
        slots, inside = _padded(bounds[few.start : few.stop + 1], widest)
        members = order[slots]
        rows, options = vectors[members], centroids[near_cells[few]]
        middle = options.mean(dim=1, keepdim=True)
        options = options - middle
        scores = torch.baddbmm(_half_squares(options).unsqueeze(1), rows - middle, options.transpose(1, 2), alpha=-1.0)
        chosen = near_cells[few].gather(1, scores.argmin(dim=2))
        label[members[inside]] = chosen[inside]


def _means(vectors: Tensor, label: Tensor, before: Tensor) -> Tensor:
    """Mean of the members of every cell; an empty one keeps its centroid."""
    # sorted by cell and summed in runs: adding to rows in any order would not repeat to the bit on a GPU
    order = torch.sort(label, stable=True).indices
    sizes = torch.bincount(label, minlength=len(before))
    means = torch.segment_reduce(vectors[order], "mean", lengths=sizes, axis=0, unsafe=True)
    return torch.where(sizes.unsqueeze(1) > 0, means, before)


def _padded(bounds: Tensor, widest: int) -> tuple[Tensor, Tensor]:
    """Slots of runs ``bounds[i]:bounds[i + 1]`` as rows of one matrix, and which of its entries are slots."""
    column = torch.arange(widest, device=bounds.device)
    inside = column < (bounds[1:] - bounds[:-1]).unsqueeze(1)
    return torch.where(inside, bounds[:-1, None] + column, bounds[:-1, None]), inside


def _slots(starts: Tensor, sizes: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """The first ``wanted`` places of runs laid end to end, and the run of each: both (B, wanted)."""
    before = torch.cumsum(sizes, dim=1) - sizes
    taken = torch.minimum(sizes, (wanted - before).clamp_min_(0))
    taken[:, -1] += wanted - taken.sum(dim=1)  # past the end: masked by the caller
    batch, runs = sizes.shape
    run = torch.arange(runs, device=sizes.device).expand(batch, runs).reshape(-1)
    local = torch.repeat_interleave(run, taken.flatten(), output_size=batch * wanted).view(batch, wanted)
    places = (starts - before).gather(1, local) + torch.arange(wanted, device=sizes.device)
    last = starts[:, -1:] + sizes[:, -1:] - 1
    return torch.where(local == runs - 1, torch.minimum(places, last), places), local


def _gather_values(device: torch.device) -> int:
    """Candidate coordinates that may be held at once."""
    if device.type == "cpu":
        return _GATHER_VALUES
    memory = torch.cuda.get_device_properties(device).total_memory
    return min(1 << 30, memory // 4 // _GATHER_SHARE)


def _useful_centre(centroids: Tensor) -> Tensor:
    """Zero, or the mean where it is so far out that squared norms would swallow the differences."""
    mean = centroids.mean(dim=0)
    spread = (centroids - mean).square().sum(dim=1).mean()
    return mean if bool(mean.square().sum() > 4 * spread) else torch.zeros_like(mean)


def _half_squares(rows: Tensor) -> Tensor:
    return rows.square().sum(dim=-1) / 2


def _int(largest: int) -> torch.dtype:
    return torch.int32 if largest < 2**31 else torch.int64


def _check_state(arrays: dict[str, NDArray[Any]], config: dict[str, Any], shape: tuple[int, ...]) -> None:
    missing = {"order", "pointers", "centroids"} - arrays.keys()
    if missing or not isinstance(config.get("inner"), bool):
        raise DamagedModelError(f"the cells lack {sorted(missing) or 'their description'}. Save the model again.")
    order, pointers, centroids = (arrays[name] for name in ("order", "pointers", "centroids"))
    n, dim = shape
    whole = order.dtype.kind == pointers.dtype.kind == "i" and order.shape == (n,) and pointers.ndim == 1
    if not whole or order.min() < 0 or order.max() >= n or (np.bincount(order, minlength=n) != 1).any():
        raise DamagedModelError(f"the cells do not hold {n} vectors once each. Save the model again.")
    steps = np.diff(pointers)
    if len(pointers) < 2 or pointers[0] != 0 or pointers[-1] != n or (steps < 1).any():
        raise DamagedModelError(f"the pointers of the cells do not rise from 0 to {n}. Save the model again.")
    if centroids.dtype != np.float32 or centroids.shape != (len(steps), dim) or not np.isfinite(centroids).all():
        raise DamagedModelError(
            f"centroids of shape {centroids.shape} and type {centroids.dtype}, expected finite float32 of shape "
            f"{(len(steps), dim)}. Save the model again."
        )
