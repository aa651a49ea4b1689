"""The four blocks of a row's features, as they are applied: words, categories, finite, numbers, vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gsparc.tables._encoders import (
    FAR,
    HATS,
    OTHER,
    Categories,
    hats,
    one_hot,
    quantile_places,
    split_signs,
    unit_length,
)
from gsparc.tables._sklearn import read_places, read_scales
from gsparc.tables._values import Bad, categories, finite, name_infinite, numbers, texts, vectors
from gsparc.tables._words import Words

__all__ = ["CategoryBlock", "NumberBlock", "TextBlock", "VectorBlock", "number_columns", "vector_columns"]

_PART = 0.5  # length of all numbers, and of all categories, beside a text of length 1
_FLOATS = (pa.float32(), pa.float64())
Known = tuple[list[Any], NDArray[np.int64], NDArray[np.int64]]


class TextBlock:
    """Words of each column of texts."""

    def __init__(self, columns: tuple[str, ...], vocabularies: list[dict[str, int]], examples: dict[str, str]) -> None:
        self.columns, self._examples = columns, examples
        self._words = [Words(vocabulary) for vocabulary in vocabularies]

    def rows(self, table: Any, bad: Bad) -> Known:
        """Features, how many words are known, how many there are."""
        parts, known, total = [], np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.int64)
        for name, words in zip(self.columns, self._words, strict=True):
            part, some, all_ = words.rows(texts(table.column(name), name, bad))
            parts.append(part)
            known, total = known + some, total + all_
        return parts, known, total

    def names(self) -> list[str]:
        single = len(self.columns) == 1
        return [
            word if single else f"{name}: {word}"
            for name, words in zip(self.columns, self._words, strict=True)
            for word in sorted(words.vocabulary, key=words.vocabulary.__getitem__)
        ]

    def form(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "kind": "text", "choices": [], "example": self._examples.get(name, "")}
            for name in self.columns
        ]


class CategoryBlock:
    """One-hot features of each column of categories."""

    def __init__(self, columns: tuple[str, ...], kept: list[list[str]], *, dense: bool) -> None:
        self.columns = columns
        self._kinds = [Categories(values) for values in kept]
        self._weight = 1.0 if dense else _PART / max(len(columns), 1) ** 0.5

    def rows(self, table: Any, bad: Bad) -> Known:
        """Features, how many values are known, how many there are; a missing one is none."""
        parts, known, total = [], np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.int64)
        for name, kinds in zip(self.columns, self._kinds, strict=True):
            values = categories(table.column(name), name, bad)
            codes, found = kinds.codes(values)
            parts.append(one_hot(codes, kinds.width, self._weight))
            present = values != ""
            known, total = known + (found & present), total + present
        return parts, known, total

    def names(self) -> list[str]:
        return [
            f"{name}={value}" for name, kinds in zip(self.columns, self._kinds, strict=True) for value in kinds.values
        ]

    def form(self) -> list[dict[str, Any]]:
        fields = []
        for name, kinds in zip(self.columns, self._kinds, strict=True):
            choices = [value for value in kinds.values if value not in ("", OTHER)]
            fields.append(
                {"name": name, "kind": "category", "choices": choices, "example": choices[0] if choices else ""}
            )
        return fields


def number_columns(
    table: Any, columns: tuple[str, ...], bad: Bad, dates: frozenset[str] | None = None
) -> NDArray[np.float32]:
    """``[rows, columns]`` float32, NaN where missing; ``dates``: columns that may hold dates, None for any."""
    out = np.empty((len(columns), table.num_rows), np.float32)  # a column at a time: each is one run of memory
    with np.errstate(over="ignore", invalid="ignore"):
        for place, name in enumerate(columns):
            column = table.column(name)
            if column.type in _FLOATS and not column.null_count:
                out[place] = values = column.to_numpy()
                if not np.isfinite(out[place].sum()):  # NaN or infinite, or large enough to look closer
                    name_infinite(np.flatnonzero(np.isinf(out[place])), values, name, bad)
            else:
                out[place] = numbers(column, name, bad, dates=dates is None or name in dates)
    return finite(np.ascontiguousarray(out.T))


class NumberBlock:
    """Numbers: ``scaled`` beside other dense features, ``places`` beside words, ``counts`` as they are."""

    def __init__(
        self,
        columns: tuple[str, ...],
        kind: str,
        fitted: Any,
        units: Any,
        *,
        beside: bool,
        dates: list[str] | None = None,
    ) -> None:
        self.columns, self.kind, self._beside = columns, kind, beside
        self._dates = None if dates is None else frozenset(dates)  # those of the fit; an older one did not say
        width = len(columns)
        if kind not in ("none", "scaled", "places", "counts") or (kind == "none") != (width == 0):
            raise ValueError(f"numbers of kind {kind!r} for {width} columns")
        self._median = np.zeros(width, np.float32)
        self._units = np.asarray(units, dtype=np.float32)
        if self._units.shape != (width,) or not (np.isfinite(self._units) & (self._units >= 0)).all():
            raise ValueError("units of numbers that do not fit")
        self._logs = np.flatnonzero(self._units > 0)
        if kind == "scaled":
            self._median, self._mean, self._factor = read_scales(fitted, width)
        elif kind == "places":
            self._median, self._quantiles = read_places(fitted, width)

    def rows(self, table: Any, bad: Bad) -> list[Any]:
        """One block of features, or none."""
        if self.kind == "none":
            return []
        values = self.logarithms(number_columns(table, self.columns, bad, self._dates))
        np.copyto(values, self._median, where=np.isnan(values))
        if self.kind == "scaled":
            values -= self._mean
            values *= self._factor
            return [np.clip(values, -FAR, FAR, out=values)]
        if self.kind == "counts":
            return [unit_length(values) if self._beside else values]
        places = np.empty(values.shape, np.float64)
        for column in range(values.shape[1]):
            places[:, column] = quantile_places(values[:, column].astype(np.float64), self._quantiles[:, column])
        return [hats(places, _PART / len(self.columns) ** 0.5)]

    def logarithms(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Columns that span many sizes as logarithms, in place; what lies below zero goes on as it is."""
        for place in self._logs:
            scaled = values[:, place] / self._units[place]
            values[:, place] = np.where(scaled > 0, np.log1p(np.clip(scaled, 0, None)), scaled)
        return values

    def names(self) -> list[str]:
        if self.kind == "places":
            return [f"{name} {step + 1}/{HATS}" for name in self.columns for step in range(HATS)]
        return list(self.columns)

    def form(self) -> list[dict[str, Any]]:
        fields = []
        for place, name in enumerate(self.columns):
            middle = float(self._median[place])
            if place in self._logs and middle > 0:
                middle = float(np.expm1(middle) * self._units[place])
            fields.append({"name": name, "kind": "number", "choices": [], "example": float(f"{middle:.6g}")})
        return fields


def vector_columns(table: Any, columns: tuple[str, ...], widths: list[int], bad: Bad) -> list[NDArray[np.float32]]:
    """``[rows, width]`` for each column, NaN where missing."""
    return [vectors(table.column(name), name, width, bad) for name, width in zip(columns, widths, strict=True)]


class VectorBlock:
    """Lists of numbers: as they are if alone, brought to one scale beside numbers, to length one beside words."""

    def __init__(
        self, columns: tuple[str, ...], widths: Any, fill: Any, scales: Any, *, kind: str, signed: bool
    ) -> None:
        self.columns, self.kind, self._signed = columns, kind, signed
        self._widths = [int(width) for width in widths]
        if kind not in ("raw", "scaled", "unit") or len(self._widths) != len(columns) or min([1, *self._widths]) < 1:
            raise ValueError(f"vectors of kind {kind!r} and widths {self._widths} for {len(columns)} columns")
        fill = np.asarray(fill, dtype=np.float32)
        self._scales = np.asarray(scales, dtype=np.float32)
        if fill.shape != (sum(self._widths),) or self._scales.shape != (len(columns),):
            raise ValueError("vectors whose parts do not fit")
        if not (np.isfinite(fill).all() and np.isfinite(self._scales).all()):
            raise ValueError("vectors that are not finite")
        self._fill = np.split(fill, np.cumsum(self._widths)[:-1]) if columns else []

    def rows(self, table: Any, bad: Bad) -> list[Any]:
        """A block of features for each column."""
        parts: list[Any] = []
        found = vector_columns(table, self.columns, self._widths, bad)
        for values, fill, scale in zip(found, self._fill, self._scales, strict=True):
            np.copyto(values, fill, where=np.isnan(values))
            if self.kind == "unit":
                unit = unit_length(values)
                parts.append(split_signs(unit) if self._signed else unit)
            else:
                parts.append(values * scale if self.kind == "scaled" else values)
        return parts

    def names(self) -> list[str]:
        signs = ("+", "-") if self.kind == "unit" and self._signed else ("",)
        return [
            f"{name}[{place}]{sign}"
            for name, width in zip(self.columns, self._widths, strict=True)
            for sign in signs
            for place in range(width)
        ]

    def form(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "kind": "vector", "choices": [], "example": [round(float(x), 4) for x in fill]}
            for name, fill in zip(self.columns, self._fill, strict=True)
        ]
