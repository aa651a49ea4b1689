"""Several tables in one run: the same processes for all, each finished cell in the file of its own table."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gsparc.exceptions import DataNotFoundError, InputError
from gsparc.experiments import runner, workers
from gsparc.experiments.engine import Experiment
from gsparc.experiments.runner import Part, Task, failed_cells, run_experiment, run_experiments

Run = Callable[..., list[dict[str, Any]]]
USUAL: dict[str, Any] = {"seeds": 2, "device": "cpu", "show_progress": False}


@pytest.fixture
def run(fake: Experiment, other: Experiment, tmp_path: Path, log: Path) -> Run:
    """Both tables' 'dense' setting with two methods and two seeds, unless told otherwise."""

    def runs(methods: tuple[str, ...] = ("Ours", "A"), datasets: Any = None, **options: Any) -> list[dict[str, Any]]:
        parts = [Part(table, datasets, ["dense"], methods) for table in (fake, other)]
        return run_experiments(parts, **{"output": tmp_path / "results", **USUAL, **options})

    return runs


def lines(log: Path) -> list[tuple[str, str]]:
    """(cell, process) of the cells that were run, in this order; those of the second table begin with 'other: '."""
    text = log.read_text(encoding="utf-8")
    return [(cell, pid) for cell, _, pid in (line.partition(" by ") for line in text.splitlines())]


def calls(log: Path) -> list[str]:
    return [cell for cell, _ in lines(log)]


def stored(folder: Path, name: str) -> dict[str, Any]:
    """A result file without what differs between two runs of the same."""
    document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    del document["created"]
    for entry in (*document["cells"].values(), *document["rows"]):
        if "numbers" not in entry:
            entry["seconds"] = None
    return document


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_common_run_gives_the_files_of_single_ones(
    run: Run, fake: Experiment, other: Experiment, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    methods = ("Ours", "A", "Broken", "NA")
    alone = tmp_path / "alone"
    for table in (fake, other):
        run_experiment(table, output=alone, settings=["dense"], methods=methods, **USUAL)
    log.write_text("", encoding="utf-8")
    pools = []
    make = workers.ProcessPoolExecutor
    monkeypatch.setattr(workers, "ProcessPoolExecutor", lambda *a, **k: pools.append(make(*a, **k)) or pools[-1])
    documents = run(methods, jobs=jobs)
    assert len(pools) == (0 if jobs == 1 else 1)
    assert len({pid for _, pid in lines(log)}) <= jobs  # a pool for each table would have had processes of its own
    assert len(calls(log)) == 2 * 4 * 2
    assert [document["experiment"] for document in documents] == ["fake", "other"]
    for name in ("fake", "other"):
        assert stored(tmp_path / "results", name) == stored(alone, name)
    key = "generated | dense | Ours | 1"
    assert [document["cells"][key]["numbers"]["cold"] for document in documents] == [62.0, 6.2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_keeps_what_both_tables_have(
    run: Run, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    add, added = runner.ResultFile.add, []

    def interrupted(file: Any, cell: Any, record: Any) -> None:
        if len(added) == 5:  # of 8 cells, 4 in each table
            raise KeyboardInterrupt
        added.append((file.experiment.name, cell.key))
        add(file, cell, record)

    with monkeypatch.context() as patch:
        patch.setattr(runner.ResultFile, "add", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            run(jobs=jobs)
    assert stopped.traceback  # it holds all that the run had open: nothing ends by being collected
    assert not multiprocessing.active_children()
    kept = [(name, key) for name in ("fake", "other") for key in stored(tmp_path / "results", name)["cells"]]
    assert sorted(kept) == sorted(added)
    assert {name for name, _ in kept} == {"fake", "other"}
    log.write_text("", encoding="utf-8")
    assert [len(document["cells"]) for document in run(resume=True)] == [4, 4]
    assert len(calls(log)) == 3


def test_a_failing_cell_stays_in_its_table(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run(("Ours", "Broken"))
    key = "generated | dense | Broken | 0"
    assert failed_cells(first) == [key, key.replace("0", "1")]
    assert failed_cells(second) == []
    assert second["cells"][key]["numbers"]["cold"] == 1.0
    monkeypatch.setenv("FAKE_MENDED", "1")
    log.write_text("", encoding="utf-8")
    assert [failed_cells(document) for document in run(("Ours", "Broken"), resume=True)] == [[], []]
    assert sorted(calls(log)) == [key, key.replace("0", "1")]


def test_resume_runs_what_each_table_lacks(
    run: Run, fake: Experiment, other: Experiment, tmp_path: Path, log: Path
) -> None:
    for table, methods in ((fake, ["Ours"]), (other, ["A"])):
        run_experiment(table, output=tmp_path / "results", settings=["dense"], methods=methods, **USUAL)
    log.write_text("", encoding="utf-8")
    documents = run(resume=True)
    assert sorted(calls(log)) == [
        "generated | dense | A | 0",
        "generated | dense | A | 1",
        "other: generated | dense | Ours | 0",
        "other: generated | dense | Ours | 1",
    ]
    assert [len(document["cells"]) for document in documents] == [4, 4]


def test_a_table_that_lacks_nothing_is_there_all_the_same(
    run: Run, fake: Experiment, other: Experiment, tmp_path: Path, log: Path
) -> None:
    parts = [Part(fake, settings=["few"], methods=["B"]), Part(other, settings=["dense"], methods=["B"])]
    first, second = run_experiments(parts, output=tmp_path / "results", **USUAL)
    assert (len(first["cells"]), len(second["cells"])) == (0, 2)  # the first table skips this method
    assert stored(tmp_path / "results", "fake")["rows"][2]["reason"] == "too many nodes for it"
    assert calls(log) == ["other: generated | dense | B | 0", "other: generated | dense | B | 1"]


def test_everything_is_checked_before_the_first_cell(
    run: Run, fake: Experiment, other: Experiment, tmp_path: Path, log: Path
) -> None:
    options = {"output": tmp_path / "results", **USUAL}
    with pytest.raises(InputError, match="unknown method 'Our'"):
        run_experiments([Part(fake), Part(other, methods=["Our"])], **options)
    with pytest.raises(DataNotFoundError, match="'reddit' are not on this machine"):
        run_experiments([Part(fake), Part(other, datasets=["reddit"])], data_dir=tmp_path, **options)
    with pytest.raises(InputError, match="two tables are named 'fake'"):
        run_experiments([Part(fake, methods=["A"]), Part(fake, methods=["Ours"])], **options)
    assert calls(log) == []
    assert not (tmp_path / "results").exists()
    run_experiment(other, methods=["A"], **options)
    log.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"other\.json holds 4 finished cell\(s\)"):
        run()
    assert calls(log) == []
    assert not (tmp_path / "results" / "fake.json").exists()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Fills with what would be run; nothing is."""
    seen: list[Task] = []

    def noted(_: Any, work: list[Task], jobs: int, *, apart: bool) -> Iterator[Any]:
        assert all(task.context.shared is not None and task.context.shared.is_dir() for task in work)
        seen.extend(work)
        yield from ()

    monkeypatch.setattr(runner, "as_finished", noted)
    return seen


def test_large_graphs_come_first_mixed_and_our_methods_first_on_the_last(
    run: Run, tasks: list[Task], tmp_path: Path
) -> None:
    (tmp_path / "cora.npz").touch()  # only its presence is looked at
    for _ in range(2):
        run(datasets=["generated", "cora", "debian"], data_dir=tmp_path, seeds=8)
    first, second = tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :]
    assert [(task.table, task.cell) for task in first] == [(task.table, task.cell) for task in second]
    graphs = [first[start : start + 32] for start in (0, 32, 64)]  # 8 seeds of 2 methods in 2 tables
    # 173,558, 5,278 and 2,400 edges
    assert [{task.cell.dataset for task in graph} for graph in graphs] == [{"debian"}, {"cora"}, {"generated"}]
    for graph in graphs[:2]:  # were they not mixed, the first half would be of one table, or of one method
        assert {(task.table, task.cell.method) for task in graph[:16]} == {
            (table, method) for table in ("fake", "other") for method in ("Ours", "A")
        }
    assert [task.cell.method for task in graphs[2]] == ["Ours"] * 16 + ["A"] * 16


def test_one_setting_of_a_graph_comes_after_the_other(fake: Experiment, tasks: list[Task], tmp_path: Path) -> None:
    settings = list(fake.settings("debian"))
    parts = [Part(fake, ["debian", "generated"], settings, ("Ours", "A"))]
    run_experiments(parts, output=tmp_path / "results", **{**USUAL, "seeds": 4})
    large = [task.cell.setting for task in tasks if task.cell.dataset == "debian"]
    assert len(set(large)) > 1
    assert large == sorted(large, key=settings.index)


def test_cells_share_a_folder_with_those_of_their_table_alone(run: Run, tasks: list[Task]) -> None:
    run()
    folders = {(task.table, task.context.shared) for task in tasks}
    assert len(folders) == len({folder for _, folder in folders}) == 2
    assert not any(folder.exists() for _, folder in folders if folder)  # gone after the run


def test_one_bar_counts_all_cells(run: Run, fake: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[tuple[str, float]] = []
    notes: list[tuple[float, str]] = []

    class Bar:
        def update(self, completed: float, last: str) -> None:
            notes.append((completed, last))

    @contextmanager
    def bar(description: str, total: float, *, show: bool) -> Iterator[Bar]:
        assert show
        bars.append((description, total))
        yield Bar()

    monkeypatch.setattr(runner, "progress_bar", bar)
    run(("A", "Broken"), seeds=1, show_progress=True)
    options = {**USUAL, "show_progress": True, "seeds": 1}
    run_experiment(fake, output=tmp_path / "alone", settings=["dense"], methods=["A"], **options)
    assert bars == [("2 tables", 4), ("fake", 1)]
    assert notes == [
        (1, "fake: generated | dense | A | 0"),
        (2, "fake: generated | dense | Broken | 0 failed"),
        (3, "other: generated | dense | A | 0"),
        (4, "other: generated | dense | Broken | 0"),
        (1, "generated | dense | A | 0"),
    ]
