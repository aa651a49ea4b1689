"""Types of columns: one small set that every format is brought to, and what strings of a text file are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

__all__ = [
    "MISSING",
    "TRUTH",
    "as_strings",
    "infer_types",
    "is_list",
    "is_number",
    "is_text",
    "is_time",
    "json_text",
    "plain_column",
    "plain_table",
    "python_column",
    "unify",
]

pc: Any = _compute  # its functions are made at run time, which type checkers cannot see

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "#N/A")  # no number, and no mistake
_WHOLE = r"^-?(0|[1-9][0-9]{0,18})$"  # "007" is a name, and 20 digits are one too
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|Inf|INF|infinity|Infinity)$"
TRUTH = r"^(true|false|True|False|TRUE|FALSE)$"


def is_text(kind: pa.DataType) -> bool:
    """Strings of either width."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whole or floating numbers; true and false are none."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def is_time(kind: pa.DataType) -> bool:
    """Dates, with or without a time of day."""
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def is_list(kind: pa.DataType) -> bool:
    """Lists of numbers, of one length or not."""
    some = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return some and (is_number(kind.value_type) or pa.types.is_null(kind.value_type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_of(kind, _plain_type(kind.value_type))
    rules = ((pa.types.is_string_view, pa.large_string()), (pa.types.is_binary_view, pa.large_binary()))
    rules += ((pa.types.is_decimal, pa.float64()), (pa.types.is_float16, pa.float32()))  # but see plain_column
    return next((plain for is_kind, plain in rules if is_kind(kind)), kind)


def _list_of(kind: pa.DataType, value: pa.DataType) -> pa.DataType:
    """A list type like ``kind`` with other values."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return pa.large_list(value) if pa.types.is_large_list(kind) else pa.list_(value)


def plain_column(column: Any) -> Any:
    """Dictionaries, extensions, views and decimals as what they stand for.

    Decimals without a fraction, as databases give for their keys, are whole numbers where 64 bits hold them.

    Examples
    --------
    >>> from decimal import Decimal
    >>> str(plain_column(pa.array([Decimal(2**60)], pa.decimal128(38, 0))).type)
    'int64'
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks] if isinstance(column, pa.ChunkedArray) else None
        column = column.storage if storage is None else pa.chunked_array(storage, type=kind.storage_type)
        return plain_column(column)
    if pa.types.is_run_end_encoded(kind):
        return plain_column(pc.run_end_decode(column))
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass  # too large
    plain = _plain_type(kind)
    return column if plain == kind else column.cast(plain, safe=False)


def plain_table(table: pa.Table) -> pa.Table:
    """All columns as :func:`plain_column` makes them."""
    return pa.table([plain_column(column) for column in table.columns], names=table.column_names)


def infer_types(table: pa.Table, written: Iterable[str] = ()) -> pa.Table:
    """Columns of strings as whole numbers, numbers or true/false where every value is one.

    A column with one value that begins with a needless zero stays as it is: ``007`` is a name. So do the columns
    ``written``.

    Examples
    --------
    >>> table = infer_types(pa.table({"a": ["1", None], "b": ["007", "8"], "c": ["1.5", "NA"], "d": ["true", "false"]}))
    >>> [str(kind) for kind in table.schema.types]
    ['int64', 'string', 'double', 'bool']
    """
    kept = set(written)
    columns = [c if name in kept else _inferred(c) for name, c in zip(table.column_names, table.columns, strict=True)]
    return pa.table(columns, names=table.column_names)


def _inferred(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not is_text(column.type) or column.null_count == len(column):
        return column
    missing = pc.is_in(column, value_set=pa.array(MISSING, column.type))
    present = column.filter(pc.and_kleene(pc.invert(missing), column.is_valid()))
    if not len(present):
        return column
    for pattern, kind in ((_WHOLE, pa.int64()), (_NUMBER, pa.float64()), (TRUTH, pa.bool_())):
        if not _first_fits(present, pattern) or not _all(pc.match_substring_regex(present, pattern)):
            continue
        if kind == pa.float64() and not _all(pc.match_substring_regex(present, r"[.eEnN]")):
            # whole numbers among them: leading zeros and what is too long for 64 bits are names, not numbers
            whole = present.filter(pc.invert(pc.match_substring_regex(present, r"[.eEnN]")))
            if not _all(pc.match_substring_regex(whole, _WHOLE)):
                return column
        cleaned = pc.if_else(missing, pa.scalar(None, column.type), column)
        try:
            return cleaned.cast(kind)
        except pa.ArrowInvalid:  # 19 digits may still be too many
            return column
    return column


def _first_fits(column: pa.ChunkedArray, pattern: str) -> bool:
    """A glance at the first rows spares looking at all of a column of words."""
    return _all(pc.match_substring_regex(column.slice(0, 100), pattern))


def _all(mask: Any) -> bool:
    return bool(pc.all(mask).as_py())


def as_strings(column: Any) -> Any:
    """A column of any type as strings; lists and records as JSON, times in UTC."""
    kind = column.type
    if is_text(kind):
        return column
    if pa.types.is_timestamp(kind) and kind.tz is not None:  # the names of time zones may be unknown here
        column = column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
    if not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        try:
            return column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # kinds that are seen in no table of nodes
    made = pa.array([None if value is None else json_text(value) for value in column.to_pylist()], pa.string())
    return pa.chunked_array([made]) if isinstance(column, pa.ChunkedArray) else made


def json_text(value: Any) -> str:
    """A value as JSON; what JSON has no word for as text, and numbers that are not finite as null."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, (list, tuple)) else value


def python_column(values: list[Any]) -> pa.Array:
    """Parsed JSON values as one column: of one type where they have one, as strings otherwise."""
    kinds = {type(value) for value in values}
    kinds.discard(type(None))
    try:
        if kinds <= {int, float} and len(kinds) == 2:
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
        if len(kinds) <= 1 and dict not in kinds:
            return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass  # lists of several kinds of things, or a whole number beyond 64 bits
    return pa.array([None if value is None else json_text(value) for value in values], pa.string())


def unify(tables: Iterable[Any]) -> pa.Table:
    """Tables or batches under one another; columns whose types differ become numbers or strings."""
    tables = list(tables)
    names = list(dict.fromkeys(name for table in tables for name in table.schema.names))
    columns = []
    for name in names:
        parts = [table.column(name) if name in table.schema.names else pa.nulls(table.num_rows) for table in tables]
        chunks = [c for part in parts for c in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
        kind = _common_type([chunk.type for chunk in chunks])
        columns.append(pa.chunked_array([_as_type(chunk, kind) for chunk in chunks], type=kind))
    return pa.table(columns, names=names)


def _as_type(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    if chunk.type == kind:
        return chunk
    return as_strings(chunk).cast(kind) if is_text(kind) else chunk.cast(kind, safe=False)


def _common_type(kinds: list[pa.DataType]) -> pa.DataType:
    distinct = list({kind for kind in kinds if not pa.types.is_null(kind)})
    if len(distinct) <= 1:
        return distinct[0] if distinct else pa.null()
    if all(pa.types.is_signed_integer(kind) for kind in distinct):
        return pa.int64()
    if all(is_number(kind) for kind in distinct):
        return pa.float64()
    if all(is_list(kind) for kind in distinct):
        return pa.list_(pa.float64())
    if all(is_text(kind) for kind in distinct):
        return pa.large_string()
    return pa.string()
