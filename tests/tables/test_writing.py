"""Files that are there whole or not at all."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gsparc.exceptions import InputError, OutputError
from gsparc.tables.reading import FORMATS, Reject, read_table
from gsparc.tables.writing import RejectsFile, TableWriter, rejects_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(write: Callable[[Any], None], *rows: Any) -> None:
    """What happens when a user stops a command."""
    for row in rows:
        write(row)
    raise KeyboardInterrupt


def written(path: Path, *tables: pa.Table) -> None:
    with TableWriter(path) as writer:
        for table in tables:
            writer.write(table)


@pytest.mark.parametrize("suffix", [*FORMATS, ".csv.gz", ".jsonl.gz"])
def test_batches_under_one_another(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    with TableWriter(path) as writer:
        writer.write(pa.table({"id": ["a"], "x": [1.5]}))
        assert names(tmp_path) != [path.name]  # nothing under the final name yet
        writer.write(pa.table({"x": [2], "id": ["b"]}).to_batches()[0])  # another order, and whole numbers
    assert read_table(path).to_pylist() == [{"id": "a", "x": 1.5}, {"id": "b", "x": 2.0}]
    assert names(tmp_path) == [path.name]
    assert writer.rows == 2


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather", ".jsonl"])
def test_after_an_error_the_old_file_is_still_there_and_nothing_else(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), TableWriter(path) as writer:
        interrupted(writer.write, pa.table({"id": ["a"]}))
    assert names(tmp_path) == [path.name]
    assert path.read_text() == "old"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather"])
def test_a_table_without_rows_keeps_its_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    with TableWriter(path, pa.schema([("id", pa.string()), ("x", pa.float64())])):
        pass
    if suffix == ".csv":
        assert path.read_text() == '"id","x"\n'
    else:
        with pytest.raises(InputError, match="no rows"):
            read_table(path)
    with TableWriter(tmp_path / "none.jsonl"):
        pass
    assert (tmp_path / "none.jsonl").read_bytes() == b""


def test_values_that_a_text_format_has_no_word_for(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": [math.nan, math.inf, 1.0],
            "near": [["a", "b"], None, []],
            "scores": [[1.0, math.nan], None, []],
            "when": pa.array([datetime(2024, 1, 2, tzinfo=UTC)] * 3, pa.timestamp("ns", "UTC")),
            "none": pa.nulls(3),
            "raw": [b"x", b"y", None],
        }
    )
    for suffix in (".csv", ".tsv", ".jsonl"):
        with TableWriter(tmp_path / f"out{suffix}") as writer:
            writer.write(table)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[0]["x"] is None
    assert lines[0]["near"] == ["a", "b"]
    assert lines[0]["scores"] == [1.0, None]
    assert lines[0]["when"].startswith("2024-01-02")
    with open(tmp_path / "out.csv", newline="") as stream:
        row = next(csv.DictReader(stream))
    assert row["near"] == '["a", "b"]'
    assert row["when"].startswith("2024-01-02")
    assert row["none"] == ""


def test_where_no_file_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"ends in .xlsx, which is not written.*one of .csv"):
        TableWriter(tmp_path / "out.xlsx")
    with pytest.raises(OutputError, match="has no ending that says the format"):
        TableWriter(tmp_path / "out")
    with pytest.raises(OutputError, match="ends in"):
        TableWriter(tmp_path / "out.parquet.gz")
    with (
        pytest.raises(OutputError, match=r"cannot write .*Choose a folder that exists"),
        TableWriter(tmp_path / "no" / "a.csv"),
    ):
        pass
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        TableWriter(tmp_path / "folder.csv")
    with pytest.raises(OutputError, match="cannot write"), RejectsFile(tmp_path / "no" / "a.csv") as rejects:
        rejects.add(Reject("new.csv", 1, None, "x"))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match="No space left"), TableWriter(tmp_path / "a.csv") as writer:
        writer.write(pa.table({"id": [1]}))
    with pytest.raises(OutputError, match="No space left"), RejectsFile(tmp_path / "a.csv") as rejects:
        rejects.add(Reject("new.csv", 1, None, "x"))
    assert names(tmp_path) == []


def test_batches_must_have_the_same_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(InputError, match="no column 'x'"):
        written(path, pa.table({"x": [1]}), pa.table({"y": [1]}))
    with pytest.raises(InputError, match="column 'x' was int64 at first and now holds string"):
        written(path, pa.table({"x": [1]}), pa.table({"x": ["a"]}))
    with pytest.raises(InputError, match="not open"):
        TableWriter(tmp_path / "a.csv").write(pa.table({"x": [1]}))
    assert names(tmp_path) == []


def test_rejected_rows(tmp_path: Path) -> None:
    output = tmp_path / "out.csv.gz"
    assert rejects_path(output).name == "out.rejects.csv"
    with RejectsFile(output) as rejects:
        rejects.add(Reject("new.csv", 3, None, 'size is "abc",\nexpected a number'))
        rejects(Reject("new.csv", 4, "b", "x \ud800"))
        assert not rejects.path.exists()
    with open(rejects.path, newline="", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [
            ["file", "row", "id", "reason"],
            ["new.csv", "3", "", 'size is "abc",\nexpected a number'],
            ["new.csv", "4", "b", "x ?"],
        ]
    assert rejects.count == 2
    assert names(tmp_path) == ["out.rejects.csv"]


def test_no_rejects_leave_no_file_and_take_an_old_one_away(tmp_path: Path) -> None:
    (tmp_path / "out.rejects.csv").write_text("of yesterday")
    with pytest.raises(KeyboardInterrupt), RejectsFile(tmp_path / "out.csv") as rejects:
        interrupted(rejects.add, Reject("new.csv", 1, None, "x"))
    assert (tmp_path / "out.rejects.csv").read_text() == "of yesterday"
    with RejectsFile(tmp_path / "out.csv"):
        pass
    assert names(tmp_path) == []
