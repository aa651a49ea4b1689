"""Roles of columns: as given, as guessed, and why one is left out."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gsparc.exceptions import DamagedModelError, InputError
from gsparc.tables.columns import (
    Columns,
    EdgeColumns,
    describe_columns,
    guess_columns,
    guess_edge_columns,
    role_lines,
    sample_ends,
)
from gsparc.tables.joining import node_ids

N = 60


def table(**columns: Any) -> pa.Table:
    """``id`` and a number, so that there always is a feature, and the columns to guess about."""
    return pa.table({"id": [f"n{i}" for i in range(N)], "size": np.linspace(0, 1, N)} | columns)


def role_of(values: Any) -> tuple[str, str]:
    """Role and reason that the values get."""
    found = table(column=values)
    return next((role, why) for name, role, why in describe_columns(guess_columns(found), found) if name == "column")


SENTENCES = [f"a small library of kind {i} for reading things" for i in range(N)]


@pytest.mark.parametrize(
    ("values", "role"),
    [
        (SENTENCES, "text"),
        ([None, *SENTENCES[1:]], "text"),
        (["東京都港区の小さな図書館について" + str(i) for i in range(N)], "text"),
        (["amd64", "i386", "arm"] * 20, "categorical"),
        (["Hewlett Packard of California", "International Business Machines"] * 30, "categorical"),
        ([True, False, None] * 20, "categorical"),
        (np.arange(N) * 3, "numeric"),
        (np.arange(N) % 5, "numeric"),
        ([f"{i}.5" for i in range(N - 1)] + ["abc"], "numeric"),
        (["00501", "10001", "2139"] * 20, "categorical"),  # zip codes
        ([f"{i}.0" for i in range(N - 1)] + ["0.5"], "numeric"),
        ([[1.0, 2.0]] * N, "vector"),
        ([[1.0, 2.0], None] * 30, "vector"),
        (["[1.0, 2.5]"] * (N - 1) + ["[3, 4]"], "vector"),
        (pa.array(["x", "y"] * 30).dictionary_encode(), "categorical"),
    ],
)
def test_guessed_roles(values: Any, role: str) -> None:
    assert role_of(values)[0] == role


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.nulls(N, pa.string()), "every value is missing"),
        (pa.nulls(N), "every value is missing"),
        (["", "NA"] * 30, "every value is missing"),
        ([float("nan")] * N, "no value is a finite number"),
        ([7] * N, "every value is 7"),
        (["x"] * N, "every value is 'x'"),
        ([f"{i},{i:03}" for i in range(1, N + 1)], "numbers with commas"),
        ([f"{i},5" for i in range(N)], "numbers with commas"),
        ([date(2024, 1, 1 + i % 28) for i in range(N)], "dates: new rows come after"),
        ([datetime(2024, 1, 1 + i % 28) for i in range(N)], "dates: new rows come after"),
        ([f"2024-01-{1 + i % 28:02}" for i in range(N)], "dates: new rows come after"),
        ([[1.0] * (1 + i % 3) for i in range(N)], "lists of 1 to 3 numbers"),
        (["[1]", "[1, 2]"] * 30, "lists that are not all of one length"),
        ([f"[{i} 2.5]" for i in range(N)], "not written as [1.0, 2.5]"),  # as numpy prints them
        ([f"{i:04}" for i in range(N)], "codes such as 0000"),
        ([[]] * N, "every list is empty"),
        ([{"a": 1}] * N, "values of type struct"),
        ([b"x"] * N, "values of type binary"),
        ([f"word{i}" for i in range(N)], "nearly every value is another single word"),
    ],
)
def test_reasons_for_leaving_a_column_out(values: Any, reason: str) -> None:
    role, why = role_of(values)
    assert role == "ignored"
    assert reason in why


def test_targets_are_guessed_by_name_only() -> None:
    labels = ["x", "y", "z"] * 20
    for name in ("label", "Class", "TARGET", "y"):
        assert guess_columns(table(**{name: labels})).target == name
    found = guess_columns(table(section=labels))
    assert found.target is None
    assert found.categorical == ("section",)
    assert guess_columns(table(y=labels, label=labels)).target == "label"
    assert guess_columns(table(y=np.linspace(0, 1, N))).target is None  # a coordinate
    assert guess_columns(table(y=np.arange(N))).target is None
    assert guess_columns(table(y=pa.array([0.0, 1.0, None] * 20))).target == "y"


def test_ids_are_guessed() -> None:
    sizes = np.linspace(0, 1, N)
    names = [f"n{i}" for i in range(N)]
    assert guess_columns(pa.table({"size": sizes, "node_id": names})).id == "node_id"
    assert guess_columns(pa.table({"package": names, "size": sizes})).id == "package"
    assert guess_columns(pa.table({"size": sizes, "package": names})).id == "package"
    assert guess_columns(pa.table({"column_1": np.arange(N), "size": sizes})).id == "column_1"
    assert guess_columns(pa.table({"price": np.arange(N) * 7, "size": sizes})).id is None  # a number like any other
    assert guess_columns(pa.table({"id": ["a"] * N, "size": sizes})).id is None  # not unique
    assert guess_columns(pa.table({"parent_id": names, "ID": names, "size": sizes})).id == "ID"
    assert guess_columns(pa.table({"words": SENTENCES, "size": sizes})).id is None


def test_groups_are_guessed_where_they_are_many() -> None:
    assert guess_columns(table(group=np.arange(N) // 2)).group == "group"
    few = guess_columns(table(group=["x", "y"] * 30))
    assert few.group is None
    assert few.categorical == ("group",)


def test_what_is_said_wins() -> None:
    found = guess_columns(
        table(label=["x", "y"] * 30, words=["a", "b"] * 30, code=np.arange(N) % 4, day=[date(2024, 1, 1)] * N),
        target="words",
        categorical=["code"],
        numeric=["day"],
        ignore=["size"],
    )
    assert (found.target, found.categorical, found.numeric) == ("words", ("label", "code"), ("day",))
    assert found.ignored == {"size": "as asked"}


def test_said_roles_that_cannot_be() -> None:
    with pytest.raises(InputError, match=r"no column 'sise' for numeric. Its columns: id, size"):
        guess_columns(table(), numeric=["sise"])
    with pytest.raises(InputError, match=r"column 'size' is named for text and for numeric"):
        guess_columns(table(), text=["size"], numeric=["size"])
    with pytest.raises(InputError, match=r"no column .* feature. Left out: size: as asked.*--text"):
        guess_columns(table(), ignore=["size"])


def test_columns_go_through_json() -> None:
    columns = Columns("id", "label", ("a",), ("b", "c"), (), ("v",), {"d": "dates"}, "group")
    assert Columns.from_json(columns.to_json()) == columns
    assert columns.features == ("a", "b", "c", "v")


@pytest.mark.parametrize(
    "change", [{"text": "abc"}, {"id": 3}, {"numeric": [1]}, {"ignored": {"a": 1}}, {"ignored": []}, {"more": 1}]
)
def test_damaged_json_of_columns(change: dict[str, Any]) -> None:
    with pytest.raises(DamagedModelError, match="column roles"):
        Columns.from_json(Columns().to_json() | change)
    with pytest.raises(DamagedModelError):
        Columns.from_json(None)


def test_descriptions_say_what_is_in_a_column() -> None:
    found = table(words=SENTENCES, v=[[1.0, 2.0]] * N, arch=["a", None] * 30)
    lines = {name: (role, what) for name, role, what in describe_columns(guess_columns(found), found)}
    assert lines["id"] == ("id", "60 different, such as 'n0'")
    assert lines["size"] == ("numeric", "0 to 1")
    assert lines["words"][0] == "text"
    assert lines["words"][1].startswith("such as 'a small library")
    assert lines["v"] == ("vector", "lists of 2 numbers")
    assert lines["arch"] == ("ignored", "every value is 'a'")
    days = pa.table({"day": pa.array([1_700_000_000_000_000_001] * 2, pa.timestamp("ns", "Mars/Olympus")), "x": [1, 2]})
    said = Columns(numeric=("day", "x"))
    assert describe_columns(said, days)[0][1] == "numeric"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["source", "target"], ("source", "target")),
        (["dst", "src"], ("src", "dst")),
        (["From", "To", "kind"], ("From", "To")),
        (["package", "needs"], ("package", "needs")),
        (["kind", "u", "v"], ("u", "v")),
        (["target", "other"], ("other", "target")),
    ],
)
def test_ends_of_edges_are_guessed(names: list[str], expected: tuple[str, str]) -> None:
    found = guess_edge_columns(pa.table({name: [1] for name in names}))
    assert (found.source, found.target) == expected


def test_weights_of_edges() -> None:
    edges = pa.table({"a": [1], "b": [2], "Weight": [0.5], "note": ["x"]})
    assert guess_edge_columns(edges) == EdgeColumns("a", "b", "Weight")
    assert guess_edge_columns(edges, source="b", target="a") == EdgeColumns("b", "a", "Weight")
    assert guess_edge_columns(pa.table({"a": [1], "b": [2], "weight": ["x"]})).weight is None
    slip = pa.table({"a": [1] * 20, "b": [2] * 20, "weight": ["1.5"] * 19 + ["heavy"]})  # its edge is left out later
    assert guess_edge_columns(slip).weight == guess_edge_columns(slip, weight="weight").weight == "weight"
    money = pa.table({"a": [1], "b": [2], "weight": pa.array([3]).cast(pa.decimal128(21, 2))})
    assert guess_edge_columns(money).weight == "weight"
    with pytest.raises(InputError, match="holds string; weights are numbers"):
        guess_edge_columns(edges, weight="note")
    with pytest.raises(InputError, match=r"no column 'c' for source. Its columns: a, b"):
        guess_edge_columns(edges, source="c")
    with pytest.raises(InputError, match="two were expected"):
        guess_edge_columns(pa.table({"a": [1]}))
    with pytest.raises(InputError, match="both ends"):
        guess_edge_columns(edges, source="a", target="a")


def test_the_column_that_edges_name_is_the_id() -> None:
    table = pa.table(
        {
            "number": list(range(6)),  # unique and running, but no edge names it
            "name": ["a", "b", "c", "d", "e", "a"],
            "parent": ["a", "a", "a", "b", "b", "b"],
            "size": [1.0, 2.0, 3.0, 4.0, 5.0, 6.5],
        }
    )
    edges = pa.table({"from": ["a", "b", "c"], "to": ["d", "e", "x"]})
    ends = sample_ends(edges, guess_edge_columns(edges))
    assert guess_columns(table, ends=ends).id == "name"  # though it repeats: that is then said
    assert guess_columns(table).id == "number"
    assert guess_columns(table, ends=pa.array(["x", "y"])).id == "number"
    assert guess_columns(table.drop_columns(["number"]).rename_columns(["id", "parent", "size"])).id == "id"


def test_numbers_that_edges_name_by_chance_are_no_ids() -> None:
    table = pa.table({"year": [5, 3, 1, 7, 2, 4], "size": [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]})
    ends = pa.array([0, 1, 2, 3, 4, 5])
    assert guess_columns(table, ends=ends).id is None  # rows are named by their place: no year is 0
    assert guess_columns(table.rename_columns(["paper_id", "size"]), ends=ends).id == "paper_id"
    far = table.set_column(0, "year", pa.array([15, 13, 11, 10, 12, 14]))
    assert guess_columns(far, ends=pa.array([10, 15])).id == "year"  # no row has such a place
    assert guess_columns(far, ends=pa.array(["10", "15"])).id == "year"


def test_numbers_in_another_order_that_hold_every_end_are_the_id() -> None:
    table = pa.table({"customer": [3, 1, 0, 2], "size": [1.0, 2.0, 3.5, 4.0]})
    edges = pa.table({"from": [0, 1, 2], "to": [1, 2, 3]})
    ends, names = guess_edge_columns(edges), sample_ends(edges, guess_edge_columns(edges))
    columns = guess_columns(table, ends=names)
    assert columns.id == "customer"
    said = role_lines(columns, table, ends, names)[-1]
    assert "note: every name in the edges is in column 'customer'" in said
    assert "--id COLUMN" in said
    assert "--numeric customer" in said
    by_row = guess_columns(table, numeric=["customer"], ends=names)
    assert by_row.id is None
    assert role_lines(by_row, table, ends, names)[-1].endswith("edges name rows by their number, from 0")
    called = table.append_column("node_id", pa.array([2, 3, 1, 0]))  # the name decides between two that fit
    assert guess_columns(called, ends=names).id == "node_id"
    running = pa.table({"size": [1.0, 2.0, 3.5, 4.0], "number": [0, 1, 2, 3]})
    assert guess_columns(running, ends=names).id is None  # row numbers in any case


def test_edges_that_count_rows_from_one_are_said() -> None:
    table, edges = pa.table({"size": [1.0, 2.5, 4.0]}), pa.table({"from": [1, 2], "to": [2, 3]})
    ends, names = guess_edge_columns(edges), sample_ends(edges, guess_edge_columns(edges))
    lines = role_lines(guess_columns(table, ends=names), table, ends, names)
    assert "edges name rows by their number, from 0" in lines[-2]
    assert "every edge may be off by one" in lines[-1]


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(38, 0), pa.decimal128(38, 2)])
@pytest.mark.parametrize("name", ["id", "number"])
def test_whole_numbers_of_other_types_are_ids(kind: pa.DataType, name: str) -> None:
    made = pa.array([11, 13, 12]).cast(pa.decimal128(19, 0)).cast(kind)
    table = pa.table({name: made, "size": [1.0, 2.0, 3.0]})
    edges = pa.table({"from": pa.array([11.0, None]), "to": pa.array([13, 12])})
    names = sample_ends(edges, guess_edge_columns(edges))
    assert sorted(set(names.to_pylist())) == [11, 12, 13]
    columns = guess_columns(table, ends=names)
    assert (columns.id, columns.numeric) == (name, ("size",))
    assert (guess_columns(table).id == name) == (name == "id")
    assert node_ids(table, name).tolist() == [11, 13, 12]


def test_numbers_with_a_fraction_are_no_ids() -> None:
    table = pa.table({"id": [0.5, 1.0, 2.0], "size": [1.0, 2.0, 3.5]})
    assert guess_columns(table, ends=pa.array([1, 2])).id is None
