"""Columns as arrays: numbers, categories, words and vectors, and what is wrong with a value that is none."""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
from numpy.typing import NDArray

from gsparc.tables._id_values import as_text_ids
from gsparc.tables._types import MISSING, as_strings, is_list, is_number, is_text, is_time, plain_column

__all__ = [
    "FINITE",
    "Bad",
    "categories",
    "finite",
    "holds_dates",
    "name_infinite",
    "numbers",
    "texts",
    "vector_width",
    "vectors",
]

pc: Any = _compute

_ABSURD = np.float32(1e30)
FINITE = "expected a finite number, of at most 3.4e38"  # float32's largest; the service asks for the same
_LONGEST = 100  # characters of a category that count
_DATE = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
_WHOLE_FLOAT = re.compile(r"^-?[0-9]+\.0+$")
Bad = dict[int, str]


def numbers(column: Any, name: str, bad: Bad, *, dates: bool = True) -> NDArray[np.float32]:
    """One float32 a row, NaN where missing; dates as days since 1970, or without ``dates`` no numbers.

    A value that is no number, or an infinite one, is NaN too, and goes to ``bad`` with the reason.
    """
    column = _flat(column)
    kind = column.type
    if is_text(kind):
        return _numbers_of_strings(column, name, bad, dates)
    if is_time(kind) and dates:
        values = _days(column)
    elif is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        if pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        values = column.cast(pa.float64(), safe=False) if column.null_count or not is_number(kind) else column
        values = values.to_numpy(zero_copy_only=False)
    else:
        _all_bad(column, f"{name} holds {_kind_words(kind)}, expected a number", bad)
        return np.full(len(column), np.nan, np.float32)
    return readable(values, name, bad)


def readable(values: NDArray[Any], name: str, bad: Bad) -> NDArray[np.float32]:
    """:func:`finite`, and the rows of infinite values in ``bad``, each with the reason."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(np.float32, copy=False)
    name_infinite(np.flatnonzero(np.isinf(out)), values, name, bad)
    return finite(out)


def name_infinite(rows: NDArray[np.int64], values: NDArray[Any], name: str, bad: Bad) -> None:
    """Say of rows that their value is infinite, or too large to be told from it."""
    for row, value in zip(rows.tolist(), values[rows].tolist(), strict=True):
        bad.setdefault(row, f"{name} is {value:g}, {FINITE}")


def _days(column: Any) -> NDArray[np.float64]:
    """Days since 1970, NaN where missing."""
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    parts = 1e3 if pa.types.is_date64(kind) else {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
    ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return ticks / (86_400 * parts)


def finite(values: NDArray[Any]) -> NDArray[np.float32]:
    """Infinite values as missing ones, and absurd ones as very large, so that no sum of squares overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(np.float32, copy=False)
    if not out.flags.writeable:  # memory of an Arrow table
        out = out.copy()
    np.copyto(out, np.nan, where=np.isinf(out))
    return np.clip(out, -_ABSURD, _ABSURD, out=out)


def _numbers_of_strings(column: Any, name: str, bad: Bad, dates: bool) -> NDArray[np.float32]:
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING, trimmed.type))
    cleaned = pc.if_else(missing, pa.scalar(None, trimmed.type), trimmed)
    try:
        return numbers(cleaned.cast(pa.float64()), name, bad)
    except pa.ArrowInvalid:
        pass
    out = np.full(len(column), np.nan)
    for row, value in enumerate(cleaned.to_pylist()):
        if value is None:
            continue
        try:
            out[row] = _number(value, dates)
        except (ValueError, OverflowError):
            bad.setdefault(row, f"{name} is {_shown(value)}, expected a number{_advice(value)}")
    return readable(out, name, bad)


def holds_dates(column: Any) -> bool:
    """Whether a column that serves as numbers holds dates, as such or as text."""
    column = _flat(column)
    if is_text(column.type):
        return bool(pc.any(pc.match_substring_regex(column, _DATE)).as_py())
    return is_time(column.type)


def _number(value: str, dates: bool) -> float:
    """A number, a date as days, or true and false as 1 and 0."""
    lowered = value.lower()
    if lowered in ("true", "false"):
        return float(lowered == "true")
    if dates and len(value) >= 10 and value[4:5] == "-" and value[7:8] == "-":
        moment = datetime.datetime.fromisoformat(value.upper())  # without a time zone it is in UTC
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() / 86_400
    if "_" in value:  # Python takes 1_000 for a number, nobody else does
        raise ValueError
    return float(value)


def _advice(value: str) -> str:
    return " (write 1234.5, not 1,234.5 or 1234,5)" if re.match(r"^[+-]?[0-9][0-9.,' ]*$", value) else ""


def categories(column: Any, name: str, bad: Bad) -> NDArray[np.object_]:
    """One string a row, empty where missing; whole numbers and true/false are written one way in all formats."""
    column = _flat(column)
    kind = column.type
    if pa.types.is_nested(kind):
        _all_bad(column, f"{name} holds {_kind_words(kind)}, expected one value", bad)
        return np.full(len(column), "", object)
    if pa.types.is_null(kind):
        return np.full(len(column), "", object)
    if pa.types.is_floating(kind):
        column = as_text_ids(pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)).combine_chunks()
    coded = as_strings(column).dictionary_encode()
    known = np.array([*(_canonical(value) for value in coded.dictionary.to_pylist()), ""], dtype=object)
    codes = coded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return known[codes]


def _canonical(value: str) -> str:
    value = value.strip()[:_LONGEST]
    if value.lower() in ("true", "false"):
        return value.lower()
    return value.split(".")[0] if _WHOLE_FLOAT.match(value) else value


def texts(column: Any, name: str, bad: Bad) -> list[str]:
    """One normalised string a row, empty where missing."""
    column = _flat(column)
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        _all_bad(column, f"{name} holds {_kind_words(kind)}, expected text", bad)
        return [""] * len(column)
    return [_normal(value) if value else "" for value in as_strings(column).to_pylist()]


def _normal(value: str) -> str:
    return value if value.isascii() else unicodedata.normalize("NFKC", value)


def vectors(column: Any, name: str, width: int, bad: Bad) -> NDArray[np.float32]:
    """``[rows, width]`` float32, NaN where missing; strings are read as JSON lists."""
    column = _flat(column)
    kind = column.type
    out = np.full((len(column), width), np.nan)
    if pa.types.is_null(kind) or column.null_count == len(column):
        return finite(out)
    if is_list(kind) and vector_width(column) == width:
        present = column.is_valid().to_numpy(zero_copy_only=False)
        wrong: Bad = {}
        out[present] = numbers(pc.list_flatten(column), name, wrong).reshape(-1, width)
        rows = np.flatnonzero(present)
        for place, reason in wrong.items():
            bad.setdefault(int(rows[place // width]), reason.replace(name, f"{name}[{place % width}]", 1))
        return finite(out)
    if not (is_list(kind) or is_text(kind) or pa.types.is_list(kind)):
        _all_bad(column, f"{name} holds {_kind_words(kind)}, expected a list of {width} numbers", bad)
        return finite(out)
    for row, value in enumerate(column.to_pylist()):
        found = _parsed(value) if isinstance(value, str) else value
        if value is None or value == "":
            continue
        if not _is_vector(found) or len(found) != width:
            came = f"a list of {len(found)}" if isinstance(found, list) else _shown(value)
            bad.setdefault(row, f"{name} is {came}, expected a list of {width} numbers")
            continue
        out[row] = [np.nan if number is None else _as_float(number) for number in found]
    with np.errstate(over="ignore"):
        rows, places = np.nonzero(np.isinf(out.astype(np.float32)))
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        bad.setdefault(row, f"{name}[{place}] is {out[row, place]:g}, {FINITE}")
    return finite(out)


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number of JSON may have any length
        return np.inf


def vector_width(column: Any) -> int:
    """Length that all lists of a column have; 0 where they differ or are none."""
    if is_list(column.type):
        found = pc.min_max(pc.list_value_length(column)).as_py()
        return int(found["min"]) if found["min"] is not None and found["min"] == found["max"] else 0
    lengths = set()
    for value in _flat(column).to_pylist():
        found = _parsed(value) if isinstance(value, str) else value
        if value is None or value == "":
            continue
        if not _is_vector(found):
            return 0
        lengths.add(len(found))
        if len(lengths) > 1:
            return 0
    return lengths.pop() if lengths else 0


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and all(
        number is None or (isinstance(number, (int, float)) and not isinstance(number, bool)) for number in value
    )


def _flat(column: Any) -> Any:
    """One array of plain type."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return plain_column(column)


def _all_bad(column: Any, reason: str, bad: Bad) -> None:
    for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)):
        bad.setdefault(int(row), reason)


def _kind_words(kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return "a record" if pa.types.is_struct(kind) else "a list"
    return f"values of type {kind}"


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")
