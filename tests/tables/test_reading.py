"""Files as tables: every format, and everything that is wrong with files."""

from __future__ import annotations

import contextlib
import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsparc.exceptions import DataNotFoundError, GsparcError, InputError
from gsparc.tables import _delimited, _lines
from gsparc.tables.reading import FORMATS, Reject, place_of, read_table, row_numbers, stream_table, table_files
from gsparc.tables.writing import TableWriter

ROWS = [{"id": "a", "size": 1.5, "words": 'say "hi",\nthen go'}, {"id": "b", "size": None, "words": "été"}]
many_files = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def streamed(path: Path, rows: int = 8192) -> tuple[list[dict[str, Any]], list[int], list[Reject]]:
    bad: list[Reject] = []
    batches = list(stream_table(path, batch_rows=rows, rejects=bad.append))
    numbers = [int(number) for batch in batches for number in row_numbers(batch)]
    return [record for batch in batches for record in batch.to_pylist()], numbers, bad


@pytest.mark.parametrize("suffix", [*FORMATS, ".csv.gz", ".tsv.gz", ".jsonl.gz", ".CSV"])
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"nodes{suffix}"
    with TableWriter(path) as writer:
        writer.write(pa.Table.from_pylist(ROWS))
    assert read_table(path).to_pylist() == ROWS
    rows, numbers, bad = streamed(path, rows=1)
    assert [row["id"] for row in rows] == ["a", "b"]
    assert numbers == [1, 2]  # in every format, though the first row of the CSV runs over two lines
    assert bad == []


@pytest.mark.parametrize(
    "content",
    [
        "id,size\n007,1\n8,2\n",
        "\ufeffid,size\n007,1\n8,2\n",
        "id,size\r\n007,1\r\n8,2",
        "id;size\n007;1\n8;2\n",
        "id\tsize\n007\t1\n8\t2\n",
        "id|size\n007|1\n8|2\n",
        "id,size\r007,1\r8,2\r",
        '\n"id", size \n"007","1"\n\n8,2\n\n',
    ],
)
def test_ways_to_write_the_same_csv(tmp_path: Path, content: str) -> None:
    table = read_table(write(tmp_path, "nodes.csv", content))
    assert table.to_pydict() == {"id": ["007", "8"], "size": [1, 2]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_byte_order_marks_say_the_encoding(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "nodes.csv", "id,words\na,été 東京\n".encode(encoding))
    assert read_table(path)["words"].to_pylist() == ["été 東京"]


def test_types_of_csv_columns(tmp_path: Path) -> None:
    lines = [
        "whole,number,truth,zeros,long,mixed,gone,date,spaced",
        "1,1.5,true,01,12345678901234567890,1,,2024-01-01,a b",
        "-2,NA,False,2,1,x,,2024-01-02,",
        ",1e3,,3,2,,,,c",
    ]
    table = read_table(write(tmp_path, "nodes.csv", "\n".join(lines)))
    kinds = ["int64", "double", "bool", "string", "string", "string", "string", "string", "string"]
    assert [str(kind) for kind in table.schema.types] == kinds
    assert table["number"].to_pylist() == [1.5, None, 1000.0]
    assert table["zeros"].to_pylist() == ["01", "2", "3"]
    assert table["long"].to_pylist()[0] == "12345678901234567890"
    assert table["spaced"].to_pylist() == ["a b", None, "c"]


def test_lines_that_cannot_be_read_are_named_and_the_others_kept(tmp_path: Path) -> None:
    content = b'id,words\na,ok\nb\nc,one,two\nd,caf\xe9\ne,nul\0\nf,"x"y\n\n'
    content += b'g,5" wide\nh,"two\nlines"\ni,"never closed\nj,ok\n'
    rows, numbers, bad = streamed(write(tmp_path, "new.csv", content))
    assert [(row["id"], row["words"]) for row in rows] == [
        ("a", "ok"),
        ("g", '5" wide'),
        ("h", "two\nlines"),
        ("j", "ok"),
    ]
    assert numbers == [1, 7, 8, 10]  # the header and the empty line are no rows
    assert [(reject.row, reject.reason) for reject in bad] == [
        (2, "the row has 1 fields, the header has 2"),
        (3, "the row has 3 fields, the header has 2"),
        (4, "the row is not UTF-8"),
        (5, "the row holds a NUL byte"),
        (6, "text follows a closing quotation mark"),
        (9, "a quotation mark is opened and never closed"),
    ]
    assert bad[0].file.endswith("new.csv")
    with pytest.raises(InputError, match=r"new.csv, row 2: the row has 1 fields.*Correct it or take it out"):
        read_table(tmp_path / "new.csv")


def test_open_quotation_marks_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_delimited, "_MAX_RECORD", 1 << 16)
    path = write(
        tmp_path, "new.csv", "id,words\n" + 'a","\n' * 40_000
    )  # from every line on, all that follows is quoted
    rows, _, bad = streamed(path)
    assert len(rows) + len(bad) == 40_000


def test_long_texts_are_read(tmp_path: Path) -> None:
    text = 'word, "x"\n' * 50_000
    path = tmp_path / "nodes.csv"
    with TableWriter(path) as writer:
        writer.write(pa.table({"id": ["a", "b"], "words": [text, "short"]}))
    assert read_table(path)["words"].to_pylist() == [text, "short"]


cells = st.one_of(
    st.sampled_from(
        ["", "a", "1", "1.5", "é", "東京", '5" pipe', '"', '"a"', '"a""b"', '"a,b"', '"a\nb"', '"a', "NA", " "]
    ),
    st.text(alphabet='ab1".,;\n é', max_size=5),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.lists(cells, min_size=1, max_size=3), max_size=8), block=st.integers(1, 40))
def test_where_a_file_is_cut_into_blocks_does_not_matter(
    lines: list[list[str]], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "id,x\n" + "\n".join(",".join(line) for line in lines) + "\nlast,1\n"
    path = write(tmp_path, "new.csv", content)
    whole = streamed(path)
    with monkeypatch.context() as patch:
        patch.setattr(_lines, "BLOCK", block)
        assert streamed(path, rows=2) == whole


def test_fast_and_slow_readers_agree(tmp_path: Path) -> None:
    rows = [f"n{i},{i / 7},{'' if i % 3 else 'x'}" for i in range(500)]
    plain = streamed(write(tmp_path, "plain.csv", "id,x,y\n" + "\n".join(rows)))
    marked = streamed(write(tmp_path, "marked.csv", 'id,x,y\n"n0"' + "\n".join(rows)[2:]))
    assert plain[:2] == marked[:2]


def test_json_lines_with_broken_lines(tmp_path: Path) -> None:
    lines = [
        b'{"id": 1, "size": 2}',
        b"{broken",
        b"[1, 2]",
        b"",
        b'{"id": 2, "size": 2.5, "extra": [1, 2]}',
        b'{"id": 3, "words": "caf\xe9"}',
        b'{"id": 4, "words": "\\ud800"}',
        b"[" * 100_000,
        b'{"id": ' + b"9" * 5000 + b"}",
    ]
    rows, numbers, bad = streamed(write(tmp_path, "new.jsonl", b"\n".join(lines)))
    assert rows == [{"id": 1, "size": 2.0, "extra": None}, {"id": 2, "size": 2.5, "extra": [1, 2]}]
    assert numbers == [1, 4]
    assert [reject.row for reject in bad] == [2, 3, 5, 6, 7, 8]
    assert "expected an object" in bad[1].reason
    assert "not UTF-8" in bad[2].reason
    with pytest.raises(InputError, match=r"row 2: the line is not JSON"):
        read_table(tmp_path / "new.jsonl")


def test_json_values_of_several_kinds(tmp_path: Path) -> None:
    records = [
        {"a": 1, "b": True, "c": "x", "d": [1, 2], "e": {"k": 1}, "f": 2**70, "g": None},
        {"a": "one", "b": None, "c": "y", "d": [1.5], "e": None, "f": 1, "g": None},
    ]
    path = write(tmp_path, "nodes.jsonl", "\n".join(map(json.dumps, records)))
    table = read_table(path)
    assert table.to_pylist() == [
        {"a": "1", "b": True, "c": "x", "d": [1.0, 2.0], "e": '{"k": 1}', "f": str(2**70), "g": None},
        {"a": "one", "b": None, "c": "y", "d": [1.5], "e": None, "f": "1", "g": None},
    ]


def test_json_lines_too_long_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gsparc.tables import _jsonl

    monkeypatch.setattr(_jsonl, "MAX_LINE", 100)
    monkeypatch.setattr(_lines, "BLOCK", 64)
    path = write(tmp_path, "new.jsonl", '{"id": 1}\n{"id": "' + "x" * 1000 + '"}\n{"id": 3}\n')
    rows, numbers, bad = streamed(path)
    assert [row["id"] for row in rows] == [1, 3]
    assert numbers == [1, 3]
    assert [reject.row for reject in bad] == [2]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "is empty"),
        ("a.parquet", "", "is empty"),
        ("a.csv", "\n\n", "is empty"),
        ("a.csv", "id,x\n", "has no rows"),
        ("a.jsonl", "\n", "has no rows"),
        ("a.tsv", "id,x\n1,2\n", "no tab, as a .tsv has between columns, but ','"),
        ("a.csv", "id,id\n1,2\n", "more than one column 'id'"),
        ("a.csv", b"caf\xe9,x\n1,2\n", "not UTF-8: byte 0xe9 in the header"),
        ("a.csv", "id,x\na,1\n".encode("utf-16-le"), "full of NUL bytes"),
        ("a.csv", b"\xff\xfei", "byte order mark"),
        ("a.csv", 'id,"x\n1,2\n', "header"),
        ("a.csv", b"id\0,x\n" + b"a,1\n" * 20, "NUL byte"),
        ("a.parquet", b"PAR1 and nothing more", "cannot be read as Parquet"),
        ("a.feather", b"ARROW1 and nothing more", "cannot be read as Feather"),
        ("a.arrow", b"something else", "cannot be read as Feather"),
        ("a.feather", b"FEA1 and nothing more", "cannot be read as Feather"),
        ("a.csv.gz", b"not gzip", "not a whole gzip file"),
        ("a.csv.gz", gzip.compress(b"id,x\n1,2\n" * 100, mtime=0)[:-10], "not a whole gzip file"),
        ("a.xlsx", "x", "of a kind that is not read"),
        ("a.parquet.gz", "x", "of a kind that is not read"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match=words):
        read_table(path)
    with pytest.raises(InputError, match=words):
        streamed(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"there is no table of edges .*gone.csv"):
        read_table(tmp_path / "gone.csv", what="edges")
    with pytest.raises(DataNotFoundError, match="has no table of nodes"):
        read_table(tmp_path)
    with pytest.raises(DataNotFoundError, match="pattern"):
        read_table(tmp_path / "*.csv")


def test_folders_and_patterns_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, "b.csv", "id,x\n3,1.5\n")
    write(tmp_path, "a.csv", "id,x\n1,1\n2,2\n")
    write(tmp_path, "_SUCCESS", "")
    write(tmp_path, ".hidden.csv", "no")
    assert read_table(tmp_path).to_pydict() == {"id": [1, 2, 3], "x": [1.0, 2.0, 1.5]}
    assert [file.name for file in table_files(tmp_path / "?.csv")] == ["a.csv", "b.csv"]
    assert [row["id"] for row in streamed(tmp_path)[0]] == ["1", "2", "3"]
    write(tmp_path, "c.csv", "id,y\n3,1.5\n")
    with pytest.raises(InputError, match=r"do not have the same columns .*: x, y"):
        read_table(tmp_path)


def test_ids_stay_names_if_one_file_of_several_says_so(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id\n1\n")
    write(tmp_path, "b.csv", "id\n02\n")
    assert read_table(tmp_path)["id"].to_pylist() == ["1", "02"]


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,x,y\n1,2,3\n")
    assert read_table(path, columns=["y", "id"]).column_names == ["y", "id"]
    with pytest.raises(InputError, match=r"no column 'z'. Its columns: id, x, y"):
        read_table(path, columns=["z"])


def test_unnamed_columns_get_a_name(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "a.csv", ",x\n0,1\n")).column_names == ["column_1", "x"]


def test_special_types_become_plain_ones(tmp_path: Path) -> None:
    from decimal import Decimal

    table = pa.table(
        {
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
            "price": pa.array([Decimal("1.50"), None, Decimal("2.25")]),
            "half": pa.array(np.array([1, 2, 3], np.float16)),
            "view": pa.array(["a", "b", "c"], pa.string_view()),
            "day": pa.array([date(2024, 1, 1)] * 3),
        }
    )
    path = tmp_path / "a.arrow"
    with TableWriter(path) as writer:
        writer.write(table)
    found = read_table(path)
    assert [str(kind) for kind in found.schema.types] == ["string", "double", "float", "large_string", "date32[day]"]
    assert found["price"].to_pylist() == [1.5, None, 2.25]


def test_arrow_streams_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"id": [1, 2, 3]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert read_table(path).equals(table)


def test_repeated_columns_of_parquet_are_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="more than one column 'a'"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_long_rows_come_in_smaller_batches(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsparc.tables.reading._BATCH_BYTES", 1000)
    monkeypatch.setattr(_lines, "BLOCK", 500)
    path = tmp_path / f"a{suffix}"
    with TableWriter(path) as writer:
        writer.write(pa.table({"id": [f"n{i}" for i in range(40)], "words": ["x" * 100] * 40}))
    sizes = [batch.num_rows for batch in stream_table(path, rejects=lambda _: None)]
    assert sum(sizes) == 40
    assert max(sizes) < 20


def test_batches_have_the_size_asked_for(tmp_path: Path) -> None:
    content = "id,x\n" + "".join(f"{i},1\n" for i in range(25))
    path = write(tmp_path, "a.csv", content)
    sizes = [batch.num_rows for batch in stream_table(path, batch_rows=10, rejects=lambda _: None)]
    assert sizes == [10, 10, 5]


raw = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=100).map(str.encode),
    st.text(alphabet='ab,;"\n\r\t\0{}[]:1.', max_size=100).map(str.encode),
    st.binary(max_size=60).map(lambda data: b"PAR1" + data + b"PAR1"),
    st.binary(max_size=60).map(lambda data: b"ARROW1\0\0" + data + b"ARROW1"),
)


@many_files
@given(content=raw, suffix=st.sampled_from([*FORMATS, ".csv.gz"]))
def test_any_bytes_give_a_table_or_an_error_of_ours(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"any{suffix}", content)
    with contextlib.suppress(GsparcError):
        assert read_table(path).num_rows > 0
    with contextlib.suppress(GsparcError):
        rows, numbers, bad = streamed(path, rows=3)
        assert len(rows) == len(numbers)
        assert rows or bad


@many_files
@given(data=st.data())
def test_damaged_parquet_and_arrow_files(data: st.DataObject, tmp_path: Path) -> None:
    suffix = data.draw(st.sampled_from([".parquet", ".feather"]))
    path = tmp_path / f"any{suffix}"
    with TableWriter(path) as writer:
        writer.write(pa.table({"id": ["a", "b", None], "x": [1.5, 2.0, None], "v": [[1.0], [2.0, 3.0], None]}))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    with contextlib.suppress(GsparcError):
        read_table(path).to_pylist()


values = st.one_of(st.none(), st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=8))


@many_files
@given(
    data=st.data(),
    suffix=st.sampled_from([".parquet", ".feather", ".jsonl", ".csv", ".tsv", ".jsonl.gz", ".csv.gz"]),
    rows=st.integers(1, 5),
)
def test_tables_come_back_as_they_went(data: st.DataObject, suffix: str, rows: int, tmp_path: Path) -> None:
    def column(kind: Any) -> list[Any]:
        return data.draw(st.lists(kind, min_size=rows, max_size=rows))

    numbers = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
    wholes = st.one_of(st.none(), st.integers(-(2**53), 2**53))
    table = pa.table(
        {
            "id": [f"n{i}" for i in range(rows)],
            "text": pa.array(column(values), pa.string()),
            "number": pa.array(column(numbers), pa.float64()),
            "whole": pa.array(column(wholes), pa.int64()),
        }
    )
    path = tmp_path / f"any{suffix}"
    with TableWriter(path) as writer:
        writer.write(table)
    back = read_table(path)
    expected = table.to_pydict()
    if "csv" in suffix or "tsv" in suffix:  # a CSV has no types and no difference between empty and missing
        rows_back, _, bad = streamed(path)
        assert not bad
        assert [row["text"] for row in rows_back] == [text or None for text in expected["text"]]
        assert back["id"].to_pylist() == expected["id"]
        assert _floats(back["number"]) == _floats(table["number"])
        assert _floats(back["whole"]) == _floats(table["whole"])
    else:
        assert back.to_pydict() == expected


def _floats(column: pa.ChunkedArray) -> list[float | None]:
    return [None if value is None else float(value) for value in column.to_pylist()]


pieces = st.sampled_from(['"', '""', ",", "\n", "a", "\r\n", " ", '"a"', '"a,b"', "\r", ";", '"\n', "é"])


@settings(deadline=None, max_examples=300)
@given(st.lists(pieces, min_size=1, max_size=14).map("".join))
def test_what_arrow_reads_at_once_is_what_is_read_line_by_line(content: str) -> None:
    def reader() -> Any:
        return _delimited._Reader(["x", "y"], ",", lambda row, reason: bad.append((row, reason)))

    bad: list[tuple[int, str]] = []
    fast = reader()._fast(content.encode())
    if fast is not None:
        slow, _ = reader()._slow(content.encode(), final=True)
        assert not bad
        assert fast.cells.to_pylist() == slow.cells.to_pylist()
        assert fast.numbers.tolist() == slow.numbers.tolist()


def test_a_row_of_a_stack_of_files_is_found_in_its_own(tmp_path: Path) -> None:
    for name, rows in (("a", 2), ("b", 3)):
        write(tmp_path, f"{name}.csv", "id\n" + "".join(f"{name}{i}\n" for i in range(rows)))
    table = read_table(tmp_path)
    assert [place_of(table, row) for row in (0, 2, 4)] == [
        (str(tmp_path / "a.csv"), 1),
        (str(tmp_path / "b.csv"), 1),
        (str(tmp_path / "b.csv"), 3),
    ]


@pytest.mark.parametrize("start", ["# Directed graph: each pair once", "#a\n#b"])
def test_comments_before_the_header_are_refused(tmp_path: Path, start: str) -> None:
    (tmp_path / "edges.tsv").write_text(f"{start}\n0\t1\n")
    with pytest.raises(InputError, match=r"begins with a comment.*Take the lines with # out"):
        read_table(tmp_path / "edges.tsv")
    (tmp_path / "edges.tsv").write_text("#id\tsize\n0\t1\n")  # a name that begins so
    assert read_table(tmp_path / "edges.tsv").column_names == ["#id", "size"]
