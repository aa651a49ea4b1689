"""Ids as tables hold them: whole numbers, however they are stored or written, or text as it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from gsparc.tables._types import as_strings, is_text, plain_column

__all__ = ["as_text_ids", "as_whole_ids", "ids_like", "text_values", "typed_ids", "whole_numbers"]

pc: Any = _compute

_WHOLE = r"^-?(0|[1-9][0-9]{0,18})(\.0*)?$"  # 12, and 12.0 where a missing value made floats of a column; not 007
_EXACT = 2.0**53  # from here on floats leave out whole numbers


def text_values(column: Any) -> pa.ChunkedArray:
    """A column of plain type, empty strings counting as missing."""
    column = plain_column(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column]))
    if is_text(column.type):
        empty = pc.equal(column, pa.scalar("", column.type))
        column = pc.if_else(empty, pa.scalar(None, column.type), column)
    return column


def whole_numbers(column: Any) -> Any:
    """A column of numbers as int64 where every value is whole; None where one is not, or they are no numbers.

    Examples
    --------
    >>> whole_numbers(pa.chunked_array([[1.0, None, 3.0]])).to_pylist()
    [1, None, 3]
    >>> whole_numbers(pa.chunked_array([[1.5]])) is None
    True
    """
    if pa.types.is_integer(column.type):
        return column
    if not pa.types.is_floating(column.type) or not _whole(column.slice(0, 100)).all():
        return None  # a glance at the first rows spares looking at all of a column of measurements
    return _rounded(column) if _whole(column).all() else None


def _whole(column: Any) -> np.ndarray:
    """Which floats are whole; missing ones pass for it."""
    values = column.to_numpy().astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.isnan(values) | ((values == np.round(values)) & (np.abs(values) < _EXACT))


def _rounded(column: Any) -> pa.ChunkedArray:
    """Floats as int64; those that are missing or not whole become missing."""
    values = column.to_numpy().astype(np.float64)
    good = _whole(column) & ~np.isnan(values)
    return pa.chunked_array([pa.array(np.where(good, values, 0).astype(np.int64), mask=~good)])


def typed_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids of a text file: whole numbers where all are written as such (``12``, ``12.0``), else as they are written.

    Examples
    --------
    >>> typed_ids(pa.chunked_array([["47.0", None]])).to_pylist(), typed_ids(pa.chunked_array([["90E3"]])).to_pylist()
    ([47, None], ['90E3'])
    """
    if not is_text(column.type):
        return column
    column = text_values(column)
    made = as_whole_ids(column)
    return made if made.null_count == column.null_count and len(made) > made.null_count else column


def as_whole_ids(column: Any) -> pa.ChunkedArray:
    """Ids as int64, for a model whose ids are; what is no whole number becomes missing.

    Examples
    --------
    >>> as_whole_ids(pa.array(["12", "12.0", "1_0", "007", "x"])).to_pylist()
    [12, 12, None, None, None]
    """
    column = text_values(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return _rounded(column)
    if is_text(kind):
        return _parsed(column)
    if pa.types.is_uint64(kind):
        column = pc.if_else(pc.less(column, pa.scalar(1 << 63, kind)), column, pa.scalar(None, kind))
    return (
        column.cast(pa.int64()) if pa.types.is_integer(kind) else pa.chunked_array([pa.nulls(len(column), pa.int64())])
    )


def _parsed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = pc.utf8_trim_whitespace(column)
    fits = pc.match_substring_regex(column, _WHOLE)
    column = pc.if_else(fits, column, pa.scalar(None, column.type))
    if pc.any(pc.match_substring(column, ".")).as_py():
        column = pc.replace_substring_regex(column, r"\.0*$", "")
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # 19 digits may still be too many
        numbers = [None if text is None else int(text) for text in column.to_pylist()]
        kept = [number if number is not None and -(1 << 63) <= number < 1 << 63 else None for number in numbers]
        return pa.chunked_array([pa.array(kept, pa.int64())])


def as_text_ids(column: Any) -> pa.ChunkedArray:
    """Ids as text, for a model whose ids are: text as it is written, whole numbers without a point.

    Examples
    --------
    >>> as_text_ids(pa.array(["90E3", "1.0"])).to_pylist(), as_text_ids(pa.array([90.0, 1.5])).to_pylist()
    (['90E3', '1.0'], ['90', '1.5'])
    """
    column = text_values(column)
    if pa.types.is_floating(column.type):
        whole = _rounded(column)
        column = pc.if_else(whole.is_valid(), as_strings(whole), as_strings(column))
    return as_strings(column).cast(pa.large_string())


def ids_like(known: Any, column: Any) -> pa.ChunkedArray:
    """Ids of the kind that an array of known ones has; missing where they cannot be.

    Examples
    --------
    >>> ids_like(np.array([7, 8]), pa.array(["8.0", "x"])).to_pylist()
    [8, None]
    """
    return as_text_ids(column) if known.dtype.kind == "U" else as_whole_ids(column)
