"""Scoring by units gives the output of one pass over the files, in whatever order and however often they are done."""

from __future__ import annotations

import csv
import inspect
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc.exceptions import DamagedModelError, GraphError, GsparcError, InputError
from gsparc.tables.columns import guess_columns, guess_edge_columns
from gsparc.tables.model import TableModel
from gsparc.tables.reading import Reject, read_table
from gsparc.tables.scoring import Job, Outcome, Scorer, Tally
from gsparc.tables.streaming import FirstEdges, predict_file
from gsparc.tables.units import cut_units

BATCH = 3


@pytest.fixture(scope="module")
def folder(tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and new rows as Parquet, as CSV with two bad lines, and without ids."""
    place = tmp_path_factory.mktemp("scoring")
    columns = guess_columns(tables.nodes, id="package", target="section")
    settings = {"backbone": "mlp", "max_steps": 15, "device": "cpu"}
    model = TableModel.fit(tables.nodes, tables.edges, columns, guess_edge_columns(tables.edges), **settings)
    model.save(place / "model")
    pq.write_table(tables.new.slice(0, 17), place / "a.parquet", row_group_size=5)
    lines = ["package,description,installed_size,arch"]
    for row in tables.new.slice(17).to_pylist():
        lines.append(f"{row['package']},{row['description']},{row['installed_size']},{row['arch']}")
    lines[3:3] = ["broken,line"]
    lines[9:9] = ["p999,w1 w2,heavy,x86"]
    (place / "b.csv").write_text("\n".join(lines) + "\n")
    pq.write_table(tables.new.drop_columns(["package"]), place / "nameless.parquet")
    pq.write_table(tables.new_edges, place / "edges.parquet")
    return place


def by_units(folder: Path, source: list[Path], out: Path, seed: int = 0, **options) -> tuple[Tally, list[Reject]]:
    """All units by two workers in a random order, some of them twice."""
    out.mkdir()
    job = Job(str(folder / "model"), str(out), batch_rows=BATCH, **options)
    units, rejects, order = list(cut_units(source, BATCH)), [], random.Random(seed)
    tally, workers = Tally(rejects.append), [Scorer(job), Scorer(job)]
    for unit in order.sample(units + units[:3], len(units) + min(3, len(units))):
        tally.add(order.choice(workers).score(unit))
    assert tally.is_complete
    return tally, rejects


def compare(folder: Path, source: list[Path], out: Path, *, edges: bool = False, **options) -> Tally:
    """The same as one pass over a folder of the same files, to the bit."""
    (out / "in").mkdir(parents=True)
    for place, file in enumerate(source):
        (out / "in" / f"{place}{file.suffix}").symlink_to(file)
    files = sorted((out / "in").iterdir())
    model = TableModel.load(folder / "model", mapped=True)
    listed = read_table(folder / "edges.parquet") if edges else None
    first = None if listed is None else FirstEdges(model, listed, guess_edge_columns(listed))
    facts = predict_file(model, out / "in", out / "one.parquet", edges=first, batch_rows=BATCH, workers=1, **options)
    given = {"edges": str(folder / "edges.parquet")} if edges else {}
    tally, rejects = by_units(folder, files, out / "parts", **given, **options)
    one, many = pq.read_table(out / "one.parquet"), pq.read_table(out / "parts")
    assert one.schema == many.schema
    assert one.combine_chunks().equals(many.combine_chunks())
    assert (facts["rows"], facts["abstained"], facts["edges"]) == (sum(tally.parts), tally.abstained, tally.edges())
    lines = [] if facts["rejects"] is None else Path(facts["rejects"]).read_text().splitlines()[1:]
    assert sorted(csv.reader(lines)) == sorted([str(r.file), str(r.row), r.id or "", r.reason] for r in rejects)
    return tally


def test_parquet_and_csv_with_rejects(folder: Path, tmp_path: Path) -> None:
    tally = compare(folder, [folder / "a.parquet", folder / "b.csv"], tmp_path / "x")
    assert (sum(tally.parts), tally.rows) == (40, 41)  # one line is no row at all, one row has no number


def test_fewer_columns_and_first_edges(folder: Path, tmp_path: Path) -> None:
    tally = compare(folder, [folder / "a.parquet"], tmp_path / "x", edges=True, links=0, near=0, coverage=None)
    edges = tally.edges()
    assert edges is not None
    assert 0 < edges["unused"] < edges["edges"]  # those of rows that are in the other file


def test_rows_without_ids_are_numbered_across_units(folder: Path, tmp_path: Path) -> None:
    compare(folder, [folder / "nameless.parquet", folder / "nameless.parquet"], tmp_path / "x", links=1)
    ids = pq.read_table(tmp_path / "x" / "parts")["id"].to_pylist()
    assert ids == list(range(80))


def test_a_file_of_rejects_alone_makes_an_empty_part(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("package,arch\nonly\n")
    tally, rejects = by_units(folder, [tmp_path / "bad.csv"], tmp_path / "out")
    assert (tally.parts, len(rejects)) == ([0], 1)
    assert pq.read_table(tmp_path / "out").num_rows == 0


def test_errors_of_workers_come_back_as_they_were(folder: Path, tmp_path: Path) -> None:
    unit = next(cut_units([folder / "a.parquet"], BATCH))
    (tmp_path / "model").mkdir()
    for path in (folder / "model").iterdir():
        (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model" / "weights.safetensors").write_bytes(b"other")
    with pytest.raises(DamagedModelError, match=r"weights\.safetensors: its contents are not those that were saved"):
        Tally(print).add(Scorer(Job(str(tmp_path / "model"), str(tmp_path))).score(unit))
    pq.write_table(pa.table({"a": ["q1"], "b": ["q2"]}), tmp_path / "edges.parquet")
    job = Job(str(folder / "model"), str(tmp_path), edges=str(tmp_path / "edges.parquet"))
    with pytest.raises(GraphError, match="names a known node"):
        Scorer(job).score(unit).raise_error()
    with pytest.raises(GsparcError, match=r"a worker failed \(ZeroDivisionError: by zero\)"):
        Outcome(0, error=("ZeroDivisionError", "by zero")).raise_error()


def test_files_of_other_columns_are_refused_as_in_one_pass(folder: Path, tmp_path: Path, tables) -> None:
    pq.write_table(tables.new.drop_columns(["package"]), tmp_path / "b.parquet")
    units = list(cut_units([folder / "a.parquet", tmp_path / "b.parquet"], 100))
    with pytest.raises(InputError, match="a part of the rows has no column 'package'"):
        Scorer(Job(str(folder / "model"), str(tmp_path))).score(units[1]).raise_error()


def test_a_tally_is_complete_when_every_unit_has_come() -> None:
    said: list[Reject] = []
    tally = Tally(said.append)
    tally.add(Outcome(2, last=True, rejects=[Reject("f", 9, None, "c")]))
    tally.add(Outcome(1, rows=4, written=3, abstained=1, rejects=[Reject("f", 5, None, "b")]))
    assert (tally.rows, tally.is_complete, said) == (0, False, [])
    tally.add(Outcome(0, rows=4, written=4, abstained=2))
    assert (tally.rows, tally.abstained, tally.parts, tally.is_complete) == (8, 3, [4, 3], True)
    assert [reject.row for reject in said] == [5, 9]
    assert tally.edges() is None


def test_the_engines_work_on_equal_batches_unless_told() -> None:
    """Products over another number of rows may round differently, and answers must not depend on the engine."""
    from gsparc.cli.predict import run
    from gsparc.integrations.ray import predict_on_ray

    calls = (predict_file, predict_on_ray, run)
    defaults = [inspect.signature(call).parameters["batch_rows"].default for call in calls]
    assert defaults == [Job.batch_rows] * 3
