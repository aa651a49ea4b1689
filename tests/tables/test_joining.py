"""Two tables brought together: ids of two kinds, edges that name what is not there, classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gsparc.exceptions import GraphError, InputError, LabelError
from gsparc.tables.columns import EdgeColumns
from gsparc.tables.joining import Ids, join_edges, minus_one_note, node_ids, read_labels
from gsparc.tables.reading import read_table

ENDS = EdgeColumns("a", "b", None)


def edges(pairs: list[tuple[object, object]], **more: list[object]) -> pa.Table:
    return pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs], **more})


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        (["x", "y"], ["y", "z", None, ""], [1, -1, -1, -1]),
        ([7, 8], [8, 9, None], [1, -1, -1]),
        ([7, 8], ["8", "x"], [1, -1]),  # a column with one odd value is read as text
        (["7", "8"], [8, 9], [1, -1]),
        ([7, 8], [8.0, 7.5, float("nan")], [1, -1, -1]),
    ],
)
def test_ids_are_found_however_they_are_written(known: list, asked: list, expected: list) -> None:
    assert Ids(np.array(known)).find(pa.array(asked)).tolist() == expected


def test_edges_are_counted_and_said() -> None:
    pairs = [("p", "q"), ("q", "p"), ("p", "q"), ("q", "r"), ("r", "r"), ("p", "ghost"), (None, "q"), ("", "q")]
    found = join_edges(edges(pairs), ENDS, Ids(np.array(["p", "q", "r"])))
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == [(0, 1), (1, 0), (0, 1), (1, 2)]
    assert found.counts == {
        "rows": 8,
        "missing": 2,
        "unknown": 1,
        "bad_weight": 0,
        "self_loops": 1,
        "used": 2,
        "duplicates": 2,
    }
    said = " | ".join(found.sentences())
    assert "1 of 8 edges name a node that is not known, such as 'ghost': left out" in said
    assert "1 of 8 edges join a node to itself" in said
    assert "2 edges are listed more than once or both ways: counted once" in said
    graph = found.graph(np.array(["p", "q", "r"]))
    assert (graph.num_nodes, graph.num_edges) == (3, 2)


def test_weights_that_are_none() -> None:
    pairs = [("p", "q"), ("q", "r"), ("p", "r"), ("p", "s"), ("q", "s")]
    table = edges(pairs, w=["2.5", "x", "-1", "0", None])
    found = join_edges(table, EdgeColumns("a", "b", "w"), Ids(np.array(["p", "q", "r", "s"])))
    assert found.weights is not None
    assert found.weights.tolist() == [2.5]
    assert found.counts["bad_weight"] == 4
    assert "4 of 5 edges have a weight that is no number above zero" in found.sentences()[0]


def test_no_edge_left_is_an_error_that_shows_what_came() -> None:
    ids = Ids(np.array(["p", "q"]))
    with pytest.raises(
        GraphError, match=r"none of the 2 edges \(columns 'a' and 'b'\).*They name 'x', 'y'.*--edge-source"
    ):
        join_edges(edges([("x", "p"), ("q", "y")]), ENDS, ids)
    with pytest.raises(GraphError, match=r"2 have a weight in column 'w' that is no number above zero.*--edge-weight"):
        join_edges(edges([("p", "q"), ("q", "p")], w=[-1.0, 0.0]), EdgeColumns("a", "b", "w"), ids)
    with pytest.raises(GraphError, match="has no rows"):
        join_edges(edges([]).cast(pa.schema([("a", pa.string()), ("b", pa.string())])), ENDS, ids)
    assert len(join_edges(edges([("x", "p")]), ENDS, ids, need=False)) == 0


def test_rows_without_an_id_or_with_one_twice_are_named() -> None:
    with pytest.raises(InputError, match=r"2 row\(s\).*no id in column 'k': rows 2, 4\."):
        node_ids(pa.table({"k": ["a", "", "b", None]}), "k")
    with pytest.raises(InputError, match=r"1 id\(s\) in column 'k'.* more than one row: 'a' in rows 1, [23]\."):
        node_ids(pa.table({"k": ["a", "b", "a"]}), "k")
    with pytest.raises(InputError, match=r"column 'k' cannot name the nodes.*strings or integers"):
        node_ids(pa.table({"k": [[1], [2]]}), "k")
    assert node_ids(pa.table({"k": ["a", "b"]}), None).tolist() == [0, 1]


def test_classes_keep_their_kind() -> None:
    words = read_labels(pa.table({"y": ["b", None, "a", ""]}), "y")
    assert (words.codes.tolist(), words.names.tolist()) == ([1, -1, 0, -1], ["a", "b"])
    numbers = read_labels(pa.table({"y": [5, 4, 3, None]}), "y")
    assert (numbers.codes.tolist(), numbers.names.tolist()) == ([2, 1, 0, -1], [3, 4, 5])
    assert numbers.names.dtype == np.int64
    with pytest.raises(LabelError, match="not whole"):
        read_labels(pa.table({"y": [0.5, 1.0]}), "y")
    with pytest.raises(LabelError, match="column 'y' holds list"):
        read_labels(pa.table({"y": [[1], [2]]}), "y")


@pytest.mark.parametrize(("values", "said"), [([1, -1, 0, -1, None], True), ([1, -2, -1, 0, None], False)])
def test_minus_one_is_a_class_and_said_to_be(values: list, said: bool) -> None:
    found = read_labels(pa.table({"y": values}), "y")
    assert found.names.tolist() == sorted({value for value in values if value is not None})
    assert [None if code < 0 else int(found.names[code]) for code in found.codes] == values
    note = minus_one_note(found, "y")
    assert (note is not None) == said
    assert note is None or note.startswith("-1 is a class in column 'y', of 2 rows")


@pytest.mark.parametrize("values", [[True, False, None], ["True", "False", None], ["TRUE", "false", ""]])
def test_true_and_false_have_one_name(values: list) -> None:
    found = read_labels(pa.table({"y": values}), "y")
    assert (found.codes.tolist(), found.names.tolist()) == ([1, 0, -1], ["false", "true"])


@pytest.mark.parametrize(("names", "said"), [("p,q", True), ("p,target", False), ("source,target", False)])
def test_an_edge_list_without_a_header_is_noticed(tmp_path: Path, names: str, said: bool) -> None:
    (tmp_path / "edges.csv").write_text(f"{names}\nq,r\n")
    table = read_table(tmp_path / "edges.csv")
    found = join_edges(table, EdgeColumns(*names.split(",")), Ids(np.array(["p", "q", "r"])))
    assert any("if the file has no header, its first edge was taken for one" in s for s in found.sentences()) == said
    kept = pa.table(table.columns, names=table.column_names)  # names of columns in memory are no row of a file
    assert join_edges(kept, EdgeColumns(*names.split(",")), Ids(np.array(["p", "q", "r"]))).header is None
