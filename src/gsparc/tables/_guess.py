"""Guesses about one column: what its values look like, and so what it is for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from gsparc.tables._id_values import whole_numbers
from gsparc.tables._types import MISSING, as_strings, is_list, is_number, is_text, is_time, plain_column
from gsparc.tables._values import vector_width

__all__ = [
    "could_be_id",
    "describe_values",
    "guess_role",
    "is_running",
    "is_unique",
    "looks_like_classes",
    "matched",
    "mostly_numbers",
]

pc: Any = _compute

_SAMPLE = 20_000  # rows that a guess about strings looks at
_FEW = 20  # distinct values that always pass for categories
_THOUSANDS = r"^\s*[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?\s*$"
_COMMA = r"^\s*[+-]?[0-9]+,[0-9]+\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_CODE = r"^\s*[+-]?0[0-9]+\s*$"  # 00501 is a code: as a number it would lose its zeros
_DATE = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?\s*$"
_DATES = "dates: new rows come after all seen ones; --numeric takes them as days"
_VECTOR = r"^\s*\[.*\]\s*$"


def guess_role(column: pa.ChunkedArray) -> tuple[str, str]:
    """Role (text, numeric, categorical, vector or ignored) and, for one that is ignored, why."""
    if column.null_count == len(column):
        return "ignored", "every value is missing"
    if pa.types.is_boolean(column.type):
        return "categorical", ""
    for fits, guess in ((is_number, _guess_numbers), (is_list, _guess_lists), (is_text, _guess_strings)):
        if fits(column.type):
            return guess(column)
    return "ignored", _DATES if is_time(column.type) else f"values of type {column.type} are not used"


def _guess_numbers(column: pa.ChunkedArray) -> tuple[str, str]:
    values = pc.min_max(column.filter(pc.is_finite(column)) if pa.types.is_floating(column.type) else column).as_py()
    if values["min"] is None:
        return "ignored", "no value is a finite number"
    if values["min"] == values["max"]:
        return "ignored", f"every value is {values['min']:g}"
    return "numeric", ""


def _guess_lists(column: pa.ChunkedArray) -> tuple[str, str]:
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    if lengths["max"] == 0:
        return "ignored", "every list is empty"
    if lengths["min"] != lengths["max"]:
        return "ignored", f"lists of {lengths['min']} to {lengths['max']} numbers; all must be of one length"
    return "vector", ""


def _guess_strings(column: pa.ChunkedArray) -> tuple[str, str]:
    sample = _present(column)
    if not len(sample):
        return "ignored", "every value is missing"
    distinct = len(sample.unique())
    if distinct == 1:
        return "ignored", f"every value is {sample[0].as_py()[:40]!r}"
    return _guess_pattern(sample) or _guess_words(sample, distinct)


def _guess_words(sample: Any, distinct: int) -> tuple[str, str]:
    """Sentences are text, what repeats itself is a category, and names of which each is another are of no use."""
    words = _mean(pc.count_substring_regex(sample, r"\S+"))
    letters = _mean(pc.utf8_length(sample))
    sentences = words >= 4 or (words >= 2 and letters >= 25) or (letters >= 12 and not _mostly_ascii(sample))
    each = len(sample) / distinct  # rows that share a value
    if each >= 2 and (distinct <= _FEW or not sentences):
        return "categorical", ""
    if sentences or words >= 1.5:
        return "text", ""
    if each >= 1.25:
        return "categorical", ""
    return "ignored", "nearly every value is another single word; --text or --categorical uses them"


def _guess_pattern(sample: Any) -> tuple[str, str] | None:
    """Strings that stand for something else."""
    if _share(sample, _NUMBER) >= 0.9:
        return _guess_codes(sample) if _share(sample, _CODE) else ("numeric", "")
    if _share(sample, _THOUSANDS) >= 0.5 or _share(sample, _COMMA) >= 0.9:
        return "ignored", "numbers with commas, such as 1,234; write 1234 or 1.234"
    if _share(sample, _DATE) >= 0.9:
        return "ignored", _DATES
    if _share(sample, _VECTOR) == 1.0:
        why = "lists that are not all of one length, or not written as [1.0, 2.5]"
        return ("vector", "") if vector_width(sample) else ("ignored", why)
    return None


def _guess_codes(sample: Any) -> tuple[str, str]:
    """Digits that begin with a needless zero in one row at least: zip codes, keys."""
    if len(sample) >= 1.25 * len(sample.unique()):
        return "categorical", ""
    code = sample.filter(pc.match_substring_regex(sample, _CODE))[0].as_py().strip()[:40]
    return "ignored", f"codes such as {code}, nearly each another; --categorical or --numeric uses them"


def _present(column: pa.ChunkedArray) -> Any:
    """A sample over the whole length, without missing values."""
    if len(column) > _SAMPLE:
        column = column.take(pa.array(np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64)))
    column = column.drop_null()
    return column.filter(pc.invert(pc.is_in(column, value_set=pa.array(MISSING, column.type))))


def _share(sample: Any, pattern: str) -> float:
    return _mean(pc.match_substring_regex(sample, pattern).cast(pa.int8()))


def _mean(values: Any) -> float:
    return float(pc.mean(values).as_py() or 0.0)


def _mostly_ascii(sample: Any) -> bool:
    return _mean(pc.string_is_ascii(sample).cast(pa.int8())) > 0.5


def is_unique(column: pa.ChunkedArray) -> bool:
    """Distinct strings of one word or whole numbers, none missing."""
    whole = whole_numbers(column)
    column = column if whole is None else whole
    if column.null_count or not len(column):
        return False
    if whole is not None:
        return len(np.unique(column.to_numpy())) == len(column)
    if not is_text(column.type) or len(column.unique()) != len(column):
        return False
    return _mean(pc.count_substring_regex(_present(column), r"\S+")) < 3


def is_running(column: pa.ChunkedArray, *, starts: tuple[int, ...] = (0, 1)) -> bool:
    """Whole numbers that count up by one, from one of ``starts``."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return False
    values = column.to_numpy()
    return bool((np.diff(values) == 1).all()) and int(values[0]) in starts


def could_be_id(column: pa.ChunkedArray) -> bool:
    """Strings or whole numbers, whether they repeat or not; a column of floats may hold nothing but whole ones."""
    return is_text(column.type) or whole_numbers(column) is not None


def matched(column: pa.ChunkedArray, names: Any) -> float:
    """Share of some names that are among the values of a column, whether written as numbers or as strings."""
    whole = whole_numbers(column)
    column = column if whole is None else whole
    if column.type != names.type:
        column, names = as_strings(column).cast(pa.large_string()), as_strings(names).cast(pa.large_string())
    return _mean(pc.is_in(names, value_set=column.combine_chunks()).cast(pa.int8()))


def mostly_numbers(column: pa.ChunkedArray) -> bool:
    """Numbers, or text that is numbers but for a few mistakes."""
    column = plain_column(column)
    if not is_text(column.type):
        return is_number(column.type)
    return _share(_present(column), _NUMBER) >= 0.9


def looks_like_classes(column: pa.ChunkedArray) -> bool:
    """Strings, true/false or whole numbers of which few differ."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return True
    if not (is_text(kind) or is_number(kind)):
        return False
    values = column.drop_null().unique()
    if pa.types.is_floating(kind):
        values = values.to_numpy()
        values = values[~np.isnan(values)]
        if not np.array_equal(values, np.trunc(values)):
            return False
    return 0 < len(values) <= max(_FEW, math.isqrt(len(column)), len(column) // 10)


def describe_values(column: pa.ChunkedArray, role: str) -> str:
    """What is in a column, in a few words."""
    present = column.drop_null()
    missing = f", {len(column) - len(present)} missing" if len(present) < len(column) else ""
    if not len(present):
        return "every value is missing"
    example = str(as_strings(present.slice(0, 1))[0].as_py())
    example = repr(example if len(example) <= 50 else example[:47] + "...")
    kind = column.type
    if role == "numeric" and is_number(kind):
        ends = pc.min_max(present).as_py()
        return f"{ends['min']:g} to {ends['max']:g}{missing}"
    if role == "vector":
        return f"lists of {len(present[0])} numbers{missing}" if is_list(kind) else f"such as {example}{missing}"
    if role in ("text", "numeric") or pa.types.is_nested(kind):
        return f"such as {example}{missing}"
    return f"{len(present.unique())} different, such as {example}{missing}"
