"""Categories, numbers and vectors as blocks of features: fitted by scikit-learn, applied with numpy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = [
    "FAR",
    "HATS",
    "OTHER",
    "Categories",
    "hats",
    "is_counts",
    "kept_categories",
    "log_units",
    "one_hot",
    "quantile_places",
    "side_by_side",
    "split_signs",
    "unit_length",
]

OTHER = "(other)"  # what rare categories are merged into
HATS = 8  # places of a number's scale that have a feature of their own
FAR = 8.0  # standard deviations at which a number is cut
_SAMPLE = 20_000


def kept_categories(values: NDArray[np.object_], limit: int) -> list[str]:
    """The most frequent values, and ``OTHER`` where there are more than ``limit`` or some occur once only.

    Examples
    --------
    >>> kept_categories(np.array(["a"] * 30 + ["b"] * 3 + ["c"], dtype=object), limit=50)
    ['a', 'b', '(other)']
    """
    counts = Counter(values.tolist())
    once = 1 if len(values) >= 30 else 0  # a value of one row tells nothing of others; a small table has few rows
    ranked = sorted((value for value, count in counts.items() if count > once), key=lambda v: (-counts[v], v))
    kept = [value for value in ranked[: max(limit - 1, 1)] if value != OTHER]
    return [*kept, OTHER] if len(kept) < len(counts) else kept


class Categories:
    """One feature a known value; others go to ``OTHER`` where that is one, and have none where not."""

    def __init__(self, values: list[str]) -> None:
        self.values = values
        self.width = len(values)
        self._codes = {value: code for code, value in enumerate(values)}

    def merged(self, values: NDArray[np.object_]) -> NDArray[np.object_]:
        """Values that are not kept replaced by ``OTHER``."""
        unique, places = np.unique(values.astype(str), return_inverse=True)
        known = [value if value in self._codes else OTHER for value in unique.tolist()]
        return np.array(known, dtype=object)[places]

    def codes(self, values: NDArray[np.object_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Feature of each row, -1 for none; and whether the very value is known (a missing one always is)."""
        get, other = self._codes.get, self._codes.get(OTHER, -1)
        codes = np.fromiter((get(value, -1) for value in values), np.int64, len(values))
        known = (codes >= 0) | (values == "")
        return np.where(codes < 0, other, codes), known


def one_hot(codes: NDArray[np.int64], width: int, weight: float = 1.0) -> Any:
    """CSR with ``weight`` at each row's code; nothing where it is -1."""
    present = codes >= 0
    pointers = np.concatenate([[0], np.cumsum(present)])
    filled = np.full(int(pointers[-1]), weight, np.float32)
    return sp.csr_array((filled, codes[present].astype(np.int32), pointers), shape=(len(codes), width))


def is_counts(values: NDArray[np.float32]) -> bool:
    """Many columns of numbers, none negative and most of them zero: words or events that were counted before."""
    if values.shape[1] < 16:
        return False
    sample = values[:: max(1, -(-len(values) // _SAMPLE))]
    sample = np.nan_to_num(sample)
    return bool((sample >= 0).all()) and int(np.count_nonzero(sample)) < sample.size // 2


def log_units(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Median of a column that spans many sizes (file sizes, prices, counts), 0 for one that does not.

    Such columns are taken as ``log(1 + x / unit)``; otherwise a few giants would leave all others in one place.
    """
    units = np.zeros(values.shape[1], np.float32)
    sample = values[:: max(1, -(-len(values) // _SAMPLE))]
    for place in range(values.shape[1]):
        column = sample[:, place]
        column = column[np.isfinite(column)]
        if not len(column) or column.min() < 0 or column.max() <= 0:
            continue
        middle = float(np.median(column[column > 0]))
        if np.percentile(column, 99) > 20 * middle:
            units[place] = middle
    return units


def quantile_places(x: NDArray[np.floating], quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where values stand among the seen ones, 0 to 1: as scikit-learn's ``QuantileTransformer`` says it."""
    shares = np.linspace(0, 1, len(quantiles))
    # of a value that many rows share, the middle of its range
    places = 0.5 * (np.interp(x, quantiles, shares) - np.interp(-x, -quantiles[::-1], -shares[::-1]))
    return np.where(x == quantiles[0], 0.0, np.where(x == quantiles[-1], 1.0, places))


def hats(places: NDArray[np.float64], weight: float = 1.0) -> Any:
    """Places on ``[0, 1]`` as two neighbouring features of ``HATS``: a value between them has a part of each.

    Equal numbers have equal features, near ones share some, far ones none: as of words, and none is negative.

    Examples
    --------
    >>> hats(np.array([[0.0], [0.5], [1.0]])).toarray().tolist()[1]
    [0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0]
    """
    rows, columns = places.shape
    at = places * (HATS - 1)
    low = np.clip(np.floor(at), 0, HATS - 2)
    above = at - low
    first = (low + HATS * np.arange(columns)).astype(np.int32)  # (rows, columns)
    indices = np.stack([first, first + 1], axis=2).reshape(-1)
    data = (np.stack([1 - above, above], axis=2).reshape(-1) * weight).astype(np.float32)
    pointers = np.arange(rows + 1, dtype=np.int64) * 2 * columns
    out = sp.csr_array((data, indices, pointers), shape=(rows, HATS * columns))
    out.eliminate_zeros()
    return out


def unit_length(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length one; zero rows stay."""
    length = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1, keepdims=True))
    return np.divide(values, length, out=np.zeros_like(values), where=length > 0, casting="unsafe")


def split_signs(values: NDArray[np.float32]) -> Any:
    """Positive parts, then negative parts with their sign turned, as CSR."""
    return sp.csr_array(np.concatenate([np.clip(values, 0, None), np.clip(-values, 0, None)], axis=1))


def side_by_side(blocks: list[Any]) -> Any:
    """CSR blocks as one; scipy's ``hstack`` spends most of a small batch's time on checks."""
    if len(blocks) == 1:
        return blocks[0]
    lengths = [np.diff(block.indptr) for block in blocks]
    pointers = np.concatenate([[0], np.cumsum(np.sum(lengths, axis=0))])
    data, indices = np.empty(pointers[-1], np.float32), np.empty(pointers[-1], np.int32)
    start, column = pointers[:-1].copy(), 0  # where the next block's entries of each row go
    for block, length in zip(blocks, lengths, strict=True):
        place = np.repeat(start - block.indptr[:-1], length) + np.arange(len(block.data))
        data[place] = block.data
        indices[place] = block.indices + column
        start += length
        column += block.shape[1]
    return sp.csr_array((data, indices, pointers), shape=(len(start), column))
