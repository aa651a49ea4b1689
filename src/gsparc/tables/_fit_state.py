"""What a preprocessor learns from seen rows, as plain values, arrays and scikit-learn transformers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from gsparc.exceptions import FeatureError
from gsparc.tables._blocks import NumberBlock, number_columns, vector_columns
from gsparc.tables._encoders import Categories, is_counts, kept_categories, log_units
from gsparc.tables._sklearn import fit_places, fit_scales, fit_words
from gsparc.tables._values import categories, holds_dates, texts, vector_width
from gsparc.tables.columns import Columns

__all__ = ["VERSION", "fit_state"]

VERSION = 1
_NARROW = 16  # features of categories that numbers are scaled beside; more of them make the rows sparse
_EXAMPLE = 300  # characters of a text that a form shows as an example


def fit_state(table: pa.Table, columns: Columns, max_words: int, max_categories: int) -> dict[str, Any]:
    """Everything that :class:`~gsparc.tables.preprocess.Preprocessor` is made of."""
    words = {name: texts(table[name], name, {}) for name in columns.text}
    values = {name: categories(table[name], name, {}) for name in columns.categorical}
    kept = [kept_categories(value, max_categories) for value in values.values()]
    merged = {name: Categories(known).merged(values[name]) for name, known in zip(values, kept, strict=True)}
    beside = len(columns.numeric) + len(columns.vector)
    dense = not words and sum(map(len, kept)) <= max(_NARROW, beside)
    state = {"version": VERSION, "words": fit_words(words, merged, kept, max_words)}
    state |= _fit_numbers(table, columns.numeric, dense=dense)
    dense = dense and state["number_kind"] != "counts"
    alone = columns.features == columns.vector
    state |= _fit_vectors(table, columns.vector, kind="raw" if alone else "scaled" if dense else "unit")
    examples = {name: next((text for text in found if text), "")[:_EXAMPLE] for name, found in words.items()}
    dates = [name for name in columns.numeric if holds_dates(table[name])]
    return state | {"dense": dense, "examples": examples, "dates": dates}


def _fit_numbers(table: pa.Table, names: tuple[str, ...], *, dense: bool) -> dict[str, Any]:
    units = np.zeros(len(names), np.float32)
    if not names:
        return {"number_kind": "none", "numbers": None, "units": units}
    found = number_columns(table, names, {})
    if is_counts(found):
        return {"number_kind": "counts", "numbers": None, "units": units}
    if not dense:
        return {"number_kind": "places", "numbers": fit_places(found), "units": units}
    units = log_units(found)
    logs = NumberBlock(names, "counts", None, units, beside=False).logarithms(found)
    return {"number_kind": "scaled", "numbers": fit_scales(logs), "units": units}


def _fit_vectors(table: pa.Table, names: tuple[str, ...], *, kind: str) -> dict[str, Any]:
    widths = [vector_width(table[name]) for name in names]
    if 0 in widths:
        name = names[widths.index(0)]
        raise FeatureError(
            f"column {name!r} does not hold lists of one length; all rows need the same number of values."
        )
    found = vector_columns(table, names, widths, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a place that is missing in every row
        means = [np.nan_to_num(np.nanmean(values, axis=0, dtype=np.float64)) for values in found]
        sizes = [float(np.nan_to_num(np.sqrt(np.nanmean(np.square(values, dtype=np.float64))))) for values in found]
    return {
        "vector_kind": kind,
        "vector_widths": [int(width) for width in widths],
        "vector_fill": np.concatenate([np.zeros(0), *means]).astype(np.float32),
        "vector_scales": np.array([1 / size if size > 0 else 1.0 for size in sizes], np.float32),
        "vector_signed": any(bool((values < 0).any()) for values in found),
    }
