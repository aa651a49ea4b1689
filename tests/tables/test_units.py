"""Units of work: whoever reads them, in whatever order, gets the batches of one pass over the files."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsparc.exceptions import InputError
from gsparc.tables import reading
from gsparc.tables._parquet import ParquetReader, stretches
from gsparc.tables.reading import Reject, row_numbers, stream_table
from gsparc.tables.units import Unit, UnitReader, cut_units


def one_pass(files: list[Path], batch_rows: int) -> tuple[list[tuple], list[Reject]]:
    rejects: list[Reject] = []
    batches = [b for file in files for b in stream_table(file, batch_rows=batch_rows, rejects=rejects.append)]
    return [(b.to_pydict(), row_numbers(b).tolist()) for b in batches], rejects


def by_units(units: list[Unit], batch_rows: int, order: random.Random) -> list[tuple]:
    """Batches in the order of the units, which are read in another order, as another process gets them."""
    reader, found = UnitReader(batch_rows), {}
    for unit in order.sample(units, len(units)):
        sent = Unit.from_json(unit.to_json(), unit.payload)
        found[unit.number] = [(b.to_pydict(), row_numbers(b).tolist()) for b in reader.batches(sent)]
    reader.close()
    return [batch for number in sorted(found) for batch in found[number]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 60),
    group=st.integers(1, 30),
    batch_rows=st.integers(1, 9),
    seed=st.integers(0, 99),
    most_bytes=st.sampled_from([20, 50, 1 << 27]),
)
def test_parquet_units_hold_the_batches_of_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, group: int, batch_rows: int, seed: int, most_bytes: int
) -> None:
    monkeypatch.setattr(reading, "_BATCH_BYTES", most_bytes)  # batches of long rows end early
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    text = [None if i % 7 == 3 else "x" * (i % 5) for i in range(rows)]
    for file in files:
        pq.write_table(pa.table({"id": list(range(rows)), "text": text}), file, row_group_size=group)
    *units, last = cut_units(files, batch_rows)
    expected, _ = one_pass(files, batch_rows)
    assert by_units(units, batch_rows, random.Random(seed)) == expected
    assert [one for batch, _ in expected for one in batch["id"]] == [*range(rows), *range(rows)]
    assert [unit.offset for unit in units] == [sum(u.rows for u in units[:i]) for i in range(len(units))]
    assert (last.is_last, last.number, last.offset) == (True, len(units), 2 * rows)


def test_a_file_is_cut_every_four_batches() -> None:
    assert list(stretches(10, 1)) == [(0, 4), (4, 4), (8, 2)]
    assert list(stretches(8, 2)) == [(0, 8)]
    assert list(stretches(0, 2)) == []


def test_going_on_in_a_file_reads_no_row_group_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": list(range(100))}), file, row_group_size=50)
    read: list[int] = []
    plain = pq.ParquetFile.iter_batches

    def watched(self, *args, row_groups, **kwargs):
        read.extend(row_groups)
        return plain(self, *args, row_groups=row_groups, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    with ParquetReader(file, 5) as reader:
        for first in (0, 20, 40, 80):  # 40 to 60 lies in both groups, 60 to 80 is another worker's
            assert sum(batch.num_rows for batch in reader.stretch(first, 20)) == 20
        assert read == [0, 1]
        assert next(reader.stretch(20, 20)).column(0)[0].as_py() == 20
        assert read == [0, 1, 0]


def test_text_files_carry_their_rows_and_their_rejects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("id,size\na,1\nb\nc,3\nd,4\ne,5,6\n")
    Path("b.jsonl").write_text('{"id": "f", "size": 1}\nnonsense\n{"id": "g", "more": [1, 2]}\n')
    files = [Path("a.csv"), Path("b.jsonl")]
    *units, last = cut_units(files, 2)
    expected, rejects = one_pass(files, 2)
    assert by_units(units, 2, random.Random(0)) == expected
    assert [reject for unit in [*units, last] for reject in unit.rejects] == rejects
    assert [reject[:2] for reject in rejects] == [("a.csv", 2), ("a.csv", 5), ("b.jsonl", 2)]
    assert [(unit.number, unit.offset, unit.rows, unit.columns) for unit in units] == [
        (0, 0, 2, ("id", "size")),
        (1, 2, 1, ("id", "size")),
        (2, 3, 2, ("id", "size")),
    ]


def test_a_file_without_rows_is_named(tmp_path: Path) -> None:
    file = tmp_path / "none.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), file)
    with pytest.raises(InputError, match=r"none\.parquet has no rows"):
        list(cut_units([file], 4))
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(InputError, match=r"empty\.parquet is empty"):
        list(cut_units([tmp_path / "empty.parquet"], 4))
    (tmp_path / "odd.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"odd\.parquet cannot be read as Parquet"):
        list(cut_units([tmp_path / "odd.parquet"], 4))
