"""What a request may hold: made from the columns of the loaded model, checked strictly, and told to OpenAPI.

One description serves both: the schema that /openapi.json shows is the one that bodies are checked against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, Union

from pydantic import BeforeValidator, ConfigDict, FailFast, Field, Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes the typing module's own from Python 3.12 on

from gsparc.server.errors import ApiError, first_problems

__all__ = ["RowReader", "RowRequest", "name_rows"]

_LARGEST = 3.4e38  # of float32, in which features are held
_LARGEST_ENTRY = 1e12  # of a vector, which nothing scales or cuts: squares and sums of it must stay finite
_SCHEMA_WIDTH = 128  # wider vectors are checked just the same, but not spelt out in the schema
_INT64 = 2**63 - 1
_MOST_NAMED = 100  # bad rows of one request that are named; those after them are not looked at

Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
Entry = Annotated[float, Field(ge=-_LARGEST_ENTRY, le=_LARGEST_ENTRY, allow_inf_nan=False)]
_AsWhole = BeforeValidator(lambda value: int(value) if type(value) is float and value.is_integer() else value)
Whole = Annotated[int, Field(ge=-_INT64, le=_INT64), _AsWhole]  # JSON knows no difference between 3 and 3.0
NodeId = str | Whole
Edge = Annotated[tuple[Annotated[int, Field(ge=0), _AsWhole], NodeId], Strict(False)]  # a pair of JSON is a list here
_STRICT = ConfigDict(strict=True, extra="forbid")
_KINDS: dict[str, Any] = {
    "text": str | None,
    "number": Optional[Number],  # noqa: UP045 - an annotated type knows no | for type checkers
    "category": Optional[Union[str, bool, Whole, Number]],  # noqa: UP007, UP045
}
_EXPECTED = {
    "text": "a string or null",
    "number": "a finite number, of at most 3.4e38, or null",  # in the words of the command line
    "category": "a string, a number of at most 3.4e38, true, false or null",
    "vector": "a list of {width} numbers from -1e12 to 1e12, or null",
    "id": "a string, a whole number or null",
}
_JSON_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class RowRequest:
    """A checked request: rows in one of two forms, and what is asked about them."""

    form: Literal["records", "vectors"]
    rows: list[Any]
    ids: list[Any]
    coverage: float = 0.9
    k: int = 5
    edges: list[tuple[int, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # columns that were left out of some record

    def __len__(self) -> int:
        return len(self.rows)


class RowReader:
    """Checks bodies against the columns of one model.

    Parameters
    ----------
    form
        ``Preprocessor.form()``: name and kind of every column that the model reads.
    n_features
        Width of a feature vector.
    id_column
        The column whose value comes back as a row's id, if any.
    max_rows
        Rows in one request at most.
    """

    def __init__(self, form: list[dict[str, Any]], n_features: int, id_column: str | None, max_rows: int) -> None:
        self.kinds = {str(item["name"]): str(item["kind"]) for item in form}
        self.n_features, self.id_column, self.max_rows = n_features, id_column, max_rows
        self._example: dict[str, Any] = {str(item["name"]): item.get("example") for item in form}
        types = {str(item["name"]): NotRequired[_type_of(item)] for item in form}
        if id_column is not None:
            types[id_column] = NotRequired[NodeId | None]
        record: Any = TypedDict("Record", types)  # pyright: ignore
        record.__pydantic_config__ = ConfigDict(strict=True, extra="ignore")
        rows = {"records": record, "vectors": _vector(n_features)}
        self._row_adapters: dict[str, TypeAdapter[Any]] = {key: TypeAdapter(row) for key, row in rows.items()}
        self._adapters = {key: self._adapter(key.capitalize(), key, row) for key, row in rows.items()}

    def _adapter(self, name: str, key: str, row: Any) -> TypeAdapter[Any]:
        rows = Annotated[list[row], Field(min_length=1, max_length=self.max_rows), FailFast()]
        fields: dict[str, Any] = {
            key: Required[rows],
            "coverage": NotRequired[Annotated[float, Field(gt=0, lt=1, description="of the prediction sets")]],
            "k": NotRequired[Annotated[int, Field(ge=1, le=100, description="links and near nodes a row"), _AsWhole]],
            "edges": NotRequired[
                Annotated[
                    list[Edge],
                    Field(max_length=100 * self.max_rows, description="[row, id of a known node] of first edges"),
                    FailFast(),
                ]
            ],
        }
        body: Any = TypedDict(name, fields)  # pyright: ignore
        body.__pydantic_config__ = _STRICT
        return TypeAdapter(body)

    def read(self, body: Any) -> RowRequest:
        """A request from parsed JSON; an ``ApiError`` says what is wrong and where."""
        if not isinstance(body, dict):
            raise _bad_body(f"{_came(body)} came as the body, expected an object with 'records' or 'vectors'.")
        given = [key for key in ("records", "vectors") if key in body]
        if len(given) != 1:
            both = "both 'records' and 'vectors' came" if given else "neither 'records' nor 'vectors' came"
            raise _bad_body(f"{both}, expected one of the two.")
        form = given[0]
        rows = body[form]
        if rows == []:
            raise _bad_body(f"the list of {form} is empty, expected at least one.")
        if isinstance(rows, list) and len(rows) > self.max_rows:
            message = f"{len(rows):,} rows came, but {self.max_rows:,} are taken at once. Send several requests."
            raise ApiError(413, "too_many_rows", message)
        try:
            checked = self._adapters[form].validate_python(body)
        except ValidationError as error:
            raise self._explain(form, rows, error) from None
        return self._request(form, checked)

    def _request(self, form: Any, checked: dict[str, Any]) -> RowRequest:
        rows = checked[form]
        refused = _refuse_rows(form, rows, self._amiss)
        if refused is not None:
            raise refused
        missing = self._missing(rows) if form == "records" else []
        ids: list[Any] = [None] * len(rows)
        if form == "records" and self.id_column is not None:
            ids = [row.get(self.id_column) for row in rows]
        edges = checked.get("edges", [])
        beyond = next((place for place, (row, _) in enumerate(edges) if row >= len(rows)), None)
        if beyond is not None:
            named, last = f"{form}[{_came(edges[beyond][0])}]", f"{form}[{len(rows) - 1}]"
            raise ApiError(422, "bad_edges", f"edges[{beyond}] names {named}, but the last row that came is {last}.")
        return RowRequest(form, rows, ids, checked.get("coverage", 0.9), checked.get("k", 5), edges, missing)

    def _missing(self, records: list[dict[str, Any]]) -> list[str]:
        """Columns that some record leaves out, set to null in it."""
        names = self.kinds.keys()
        missing = {name for row in records for name in names - row.keys()}
        for row in records if missing else ():
            row.update(dict.fromkeys(missing - row.keys()))
        return sorted(missing)

    def _amiss(self, row: Any) -> str | None:
        """What is wrong with a row whose values are all of their types: a vector's width, a record without columns."""
        if isinstance(row, list):
            return None if len(row) == self.n_features else self._width(row)
        names = self.kinds.keys()
        return f"none of the model's columns is in it ({_listed(names)})" if names.isdisjoint(row) else None

    def _width(self, row: list[Any]) -> str:
        return f"{len(row)} numbers came, but the model has {self.n_features} features"

    def _explain(self, form: str, rows: Any, error: ValidationError) -> ApiError:
        """The error in our words. Checking has stopped at the first bad row, so that the others are found here."""
        items = error.errors(include_url=False, include_context=False)
        if any(item["loc"][0] == form and len(item["loc"]) > 1 for item in items):
            refused = _refuse_rows(form, rows, lambda row: self._problem(form, row))
            if refused is not None:
                return refused
        return _bad_body(f"{first_problems([_explain_field(item['loc'], item) for item in items])}.")

    def _problem(self, form: str, row: Any) -> str | None:
        """What is wrong with one row, if anything is."""
        try:
            self._row_adapters[form].validate_python(row, strict=True)
        except ValidationError as error:
            item = error.errors(include_url=False, include_context=False)[0]
            return self._explain_row(item["loc"], item)
        return self._amiss(row)

    def _explain_row(self, where: tuple[Any, ...], item: Any) -> str:
        came = _came(item["input"])
        if not where:
            if item["type"] in ("too_short", "too_long"):
                return self._width(item["input"])
            return f"{came} came, expected {'an object' if 'dict' in item['type'] else 'a list of numbers'}"
        if isinstance(where[0], int):
            return f"{came} came as feature {where[0]}, expected a number from -1e12 to 1e12"
        column, *inside = where
        kind = "id" if column == self.id_column else self.kinds.get(column, "text")
        expected = _EXPECTED[kind]
        if kind == "vector":
            expected = expected.format(width=len(self._example[column]))
            came = f"a list of {len(item['input'])}" if item["type"] in ("too_short", "too_long") else came
        entry = f"[{inside[0]}]" if inside and isinstance(inside[0], int) else ""
        return f"column {column!r}{entry}: {came} came, expected {expected}"

    def json_schema(self) -> dict[str, Any]:
        """The schema of a body, for OpenAPI."""
        records, vectors = (_inlined(adapter.json_schema()) for adapter in self._adapters.values())
        one_of_them = [{"required": [name]} for name in self.kinds]
        records["properties"]["records"]["items"] |= {"anyOf": one_of_them, "examples": [self._example]}
        return {"oneOf": [records, vectors]}


_FIELDS = {
    "coverage": "a number above 0 and below 1",
    "k": "a whole number from 1 to 100",
    "edges": "a list of [row, id of a known node]",
    "records": "a list of objects",
    "vectors": "a list of lists of numbers",
}
_EDGE = "[row, id]: the place of a row, from 0, and the id of a known node as a string or a whole number"


def _explain_field(where: tuple[Any, ...], item: Any) -> str:
    """What is wrong with a part of the body that is no row, by its place."""
    name = str(where[0])[:80]
    if item["type"] == "extra_forbidden":
        return f"{name!r} is not known; beside records or vectors there may be {_listed(list(_FIELDS)[:3])}"
    if where == ("edges",) and item["type"] == "too_long":
        return f"edges: {len(item['input']):,} came, expected fewer: send several requests"
    if name == "edges" and item["type"] in ("too_long", "missing"):
        return f"edges[{where[1]}]: a list of {len(item['input'])} came, expected {_EDGE}"
    if name == "edges" and len(where) > 1:
        part = f"[{where[2]}]" if len(where) > 2 and isinstance(where[2], int) else ""
        return f"edges[{where[1]}]{part}: {_came(item['input'])} came, expected {_EDGE}"
    return f"{name}: {_came(item['input'])} came, expected {_FIELDS.get(name, 'another value')}"


def _vector(width: int) -> Any:
    least, most = (width, width) if width <= _SCHEMA_WIDTH else (1, None)
    return Annotated[list[Entry], Field(min_length=least, max_length=most, fail_fast=True)]


def _type_of(item: dict[str, Any]) -> Any:
    """The type of a column's values; the example of a vector is as long as every vector."""
    known = _KINDS.get(item["kind"])
    return _vector(len(item["example"])) | None if known is None else known


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its few definitions put where they are used; none of them refers to itself."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):  # and not a column of that name
                return walk(definitions[value["$ref"].rsplit("/", 1)[-1]])
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else value

    return walk(schema)


def _came(value: Any) -> str:
    """A value in words, never at length.

    Examples
    --------
    >>> _came("abc"), _came({"a": 1})
    ("the string 'abc'", 'an object')
    """
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return "a very large number" if abs(value) > _INT64 else str(value)
    if isinstance(value, float):
        return repr(value)
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _listed(names: Iterable[str]) -> str:
    texts = list(names)
    return ", ".join(texts[:10]) + (", ..." if len(texts) > 10 else "")


def name_rows(form: str, rows: dict[int, str]) -> str:
    """What is wrong with rows, each by its place in the body.

    Examples
    --------
    >>> name_rows("records", {2: "it is empty"})
    'records[2]: it is empty'
    """
    return first_problems([f"{form}[{row}]: {text}" for row, text in sorted(rows.items())])


def _refuse_rows(form: str, rows: list[Any], problem: Callable[[Any], str | None]) -> ApiError | None:
    """An error that names the rows with a problem, ``_MOST_NAMED`` of them at most; None where there is none."""
    bad: dict[int, str] = {}
    unseen = 0
    for place, row in enumerate(rows):
        text = problem(row)
        if text is not None:
            bad[place] = text
        if len(bad) == _MOST_NAMED:
            unseen = len(rows) - place - 1
            break
    if not bad:
        return None
    rest = f"; the {unseen} rows after {form}[{max(bad)}] were not looked at" if unseen else ""
    return ApiError(422, "bad_rows", f"{name_rows(form, bad)}{rest}.", rows=bad)


def _bad_body(message: str) -> ApiError:
    return ApiError(422, "bad_request", message)
