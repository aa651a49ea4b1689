"""Scoring on a real Ray session: the rows of the local engine though a worker is killed, and errors in a sentence."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc.exceptions import InputError, MissingExtraError, OutputError
from gsparc.integrations import ray as engine
from gsparc.integrations.ray import predict_on_ray
from gsparc.tables.columns import guess_columns, guess_edge_columns
from gsparc.tables.model import TableModel
from gsparc.tables.parts import SUCCESS, part_name
from gsparc.tables.scoring import Tally
from gsparc.tables.streaming import predict_file

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, in the process that starts it

BATCH = 40


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """One Ray session for all tests, with as many CPUs as workers: nothing may need one more."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'gsparc[ray]'")
    with engine._session(None, 2) as (ray, workers):
        assert workers == 2
        yield
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two groups on a line, and new rows: a Parquet file, and a CSV with two bad lines."""
    place, rng = tmp_path_factory.mktemp("ray"), np.random.default_rng(0)
    kind = np.arange(120) // 60
    nodes = pa.table(
        {"id": np.arange(120), "size": kind + 0.3 * rng.normal(size=120), "label": ["a"] * 60 + ["b"] * 60}
    )
    ends = [(i, j) for i in range(120) for j in rng.choice(np.flatnonzero(kind == kind[i]), 3) if i != j]
    edges = pa.table({"source": [i for i, _ in ends], "target": [j for _, j in ends]})
    columns = guess_columns(nodes, id="id", target="label")
    settings = {"tasks": ("classes",), "backbone": "mlp", "max_steps": 20, "device": "cpu"}
    TableModel.fit(nodes, edges, columns, guess_edge_columns(edges), **settings).save(place / "model")
    (place / "in").mkdir()
    pq.write_table(pa.table({"id": np.arange(900), "size": rng.normal(size=900)}), place / "in" / "a.parquet")
    lines = ["id,size", *(f"{900 + i},{x:.4f}" for i, x in enumerate(rng.normal(size=100)))]
    lines[50:50] = ["no comma here", "7777,large"]
    (place / "in" / "b.csv").write_text("\n".join(lines) + "\n")
    return place


def test_a_killed_worker_loses_and_doubles_no_row(
    session: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Watched(Tally):
        def add(self, outcome) -> None:
            super().add(outcome)
            if not seen:  # it has its next units already
                os.kill(int(outcome.worker.split(":")[-1]), signal.SIGKILL)
            seen.append(outcome.worker)

    monkeypatch.setattr(engine, "Tally", Watched)
    options = {"links": 0, "near": 2, "batch_rows": BATCH}
    shown: list[int] = []
    facts = predict_on_ray(
        folder / "model", folder / "in", tmp_path / "out", workers=2, progress=shown.append, **options
    )
    model = TableModel.load(folder / "model", mapped=True)
    local = predict_file(model, folder / "in", tmp_path / "local.parquet", workers=1, **options)
    assert len(set(seen)) == 3  # one of the two was replaced
    one, many = pq.read_table(tmp_path / "local.parquet"), pq.read_table(tmp_path / "out")
    assert many.combine_chunks().equals(one.combine_chunks())
    assert many["id"].to_pylist() == list(range(1000))
    counts = ("rows", "rejected", "abstained", "edges")
    assert [facts[name] for name in counts] == [local[name] for name in counts]
    assert (facts["parts"], facts["workers"], shown[-1]) == (9, 2, 1001)  # six of Parquet, three of CSV
    rejects = [sorted((tmp_path / name).read_text().splitlines()) for name in ("out.rejects.csv", "local.rejects.csv")]
    assert rejects[0] == rejects[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "local.parquet",
        "local.rejects.csv",
        "out",
        "out.rejects.csv",
    ]


def test_what_is_wrong_with_the_last_file_is_said_and_nothing_is_written(
    session: None, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").symlink_to(folder / "in" / "a.parquet")
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"b\.parquet cannot be read as Parquet"):
        predict_on_ray(folder / "model", tmp_path / "in", tmp_path / "out", workers=1, batch_rows=BATCH)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_more_workers_than_cpus_are_refused(session: None, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 workers were asked for, and the Ray cluster has 2 CPUs"):
        predict_on_ray(folder / "model", folder / "in", tmp_path / "out", workers=3)
    with pytest.raises(InputError, match="workers"):
        predict_on_ray(folder / "model", folder / "in", tmp_path / "out", workers=0)
    assert list(tmp_path.iterdir()) == []


def test_without_ray_the_install_command_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gsparc\[ray\]'"):
        predict_on_ray(folder / "model", folder / "in", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_output_that_is_read_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # refused before Ray is looked for
    (out := tmp_path / "out").mkdir()
    pq.write_table(pa.table({"id": [1]}), out / part_name(0))
    (out / SUCCESS).write_text('{"gsparc_version": "0.1.0"}')
    with pytest.raises(OutputError, match="would be replaced as a whole"):
        predict_on_ray("model", out / part_name(0), out)
    rejects = tmp_path / "new.rejects.csv"
    rejects.write_text("id\n1\n")
    with pytest.raises(OutputError, match="would be written over"):
        predict_on_ray("model", rejects, tmp_path / "new")
