"""A folder of parts: whole or not there, and never in the place of something else."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc.exceptions import OutputError
from gsparc.tables.parts import SUCCESS, check_parts_target, part_name, parts_folder, publish_parts
from gsparc.tables.reading import table_files


def write(folder: Path, number: int, rows: int) -> None:
    pq.write_table(pa.table({"id": list(range(rows))}), folder / part_name(number))


def publish(target: Path, *rows: int) -> None:
    with parts_folder(check_parts_target(target)) as folder:
        for number, count in enumerate(rows):
            write(folder, number, count)
        publish_parts(folder, target, rows, {"rejected": 1})


def test_a_finished_folder_is_read_as_one_table_and_may_be_replaced(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    publish(target, 2, 3)
    mark = json.loads((target / SUCCESS).read_text())
    assert {key: mark[key] for key in ("rows", "parts", "rejected")} == {"rows": 5, "parts": 2, "rejected": 1}
    assert pq.read_table(target).num_rows == 5
    assert [file.name for file in table_files(target)] == ["part-0000000.parquet", "part-0000001.parquet"]
    publish(target, 1)
    assert sorted(path.name for path in target.iterdir()) == [SUCCESS, "part-0000000.parquet"]
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_what_lost_workers_began_is_not_published(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with parts_folder(target) as folder:
        write(folder, 0, 2)
        (folder / ".part-0000001.x7f.parquet").write_bytes(b"half")
        publish_parts(folder, target, [2], {})
    assert sorted(path.name for path in target.iterdir()) == [SUCCESS, "part-0000000.parquet"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out"
    publish(target, 2)
    with pytest.raises(OutputError, match=r"part-0000001.parquet of .* is not there where a worker wrote 3 rows"):
        publish_wrong(target, [1, 3])
    with pytest.raises(OutputError, match=r"has 1 rows where a worker wrote 4 rows"):
        publish_wrong(target, [4])
    assert pq.read_table(target).num_rows == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def publish_wrong(target: Path, rows: list[int]) -> None:
    """One part of one row, where others are said to be there."""
    with parts_folder(target) as folder:
        write(folder, 0, 1)
        publish_parts(folder, target, rows, {})


@pytest.mark.parametrize("held", ["_SUCCESS", "part-0000000.parquet", "thesis.tex"])
def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path, held: str) -> None:
    (tmp_path / held).write_text("{}")
    with pytest.raises(OutputError, match="is not empty and holds no finished output"):
        check_parts_target(tmp_path)


def test_an_output_with_another_file_in_it_is_refused(tmp_path: Path) -> None:
    publish(tmp_path / "out", 1)
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(OutputError, match="is not empty and holds no finished output"):
        check_parts_target(tmp_path / "out")


def test_a_file_is_refused_and_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out.parquet").touch()
    with pytest.raises(OutputError, match=r"out\.parquet is a file"):
        check_parts_target(tmp_path / "out.parquet")
    (tmp_path / "out").mkdir()
    publish(tmp_path / "out", 1)
    assert pq.read_table(tmp_path / "out").num_rows == 1
