"""Running a table: nothing finished is run twice or lost, nothing failed is hidden."""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gsparc.exceptions import DataNotFoundError, GsparcError, InputError
from gsparc.experiments import results
from gsparc.experiments.engine import Cell, Context, Experiment
from gsparc.experiments.runner import Task, _run_cell, failed_cells, run_experiment
from gsparc.experiments.workers import alone, as_finished

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(fake: Experiment, tmp_path: Path, log: Path) -> Run:
    """The fake table's 'dense' setting with two methods and two seeds, unless told otherwise."""

    def runs(**options: Any) -> dict[str, Any]:
        usual = {"methods": ["Ours", "A"], "settings": ["dense"], "seeds": 2, "device": "cpu", "show_progress": False}
        return run_experiment(fake, output=tmp_path / "results", **{**usual, **options})

    return runs


def calls(log: Path) -> list[str]:
    return sorted(line.partition(" by ")[0] for line in log.read_text(encoding="utf-8").splitlines())


def stored(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "results" / "fake.json").read_text(encoding="utf-8"))


def test_the_file_holds_what_a_page_needs(run: Run, tmp_path: Path) -> None:
    document = run()
    assert stored(tmp_path) == {**document, "created": stored(tmp_path)["created"]}
    assert (document["experiment"], document["x_axis"], document["smoke"]) == ("fake", None, False)
    assert document["versions"].keys() >= {"gsparc", "torch", "python"}
    assert document["hardware"]["cores"] >= 1
    assert document["methods"][0] == {
        "label": "Ours",
        "sees": "seen nodes",
        "cold": "its own features only",
        "ours": True,
        "no_rival_by": [],
    }
    assert document["metrics"][1] == {"name": "loss", "title": "loss", "better": "lower"}
    cell = document["cells"]["generated | dense | Ours | 1"]
    assert cell["numbers"] == {"cold": 62.0, "loss": 1.0, "curve": [1.0, 2.0], "nan": None}
    assert (cell["seconds"], cell["device"], cell["generated"]) == (2.0, "cpu", True)
    assert [row["method"] for row in document["rows"]] == ["Ours", "A", "B", "Broken", "NA"]
    assert document["rows"][0]["generated"]
    assert not list((tmp_path / "results").glob(".*"))


def test_finished_cells_are_not_run_again(run: Run, log: Path) -> None:
    run()
    assert len(calls(log)) == 4
    before = log.read_text(encoding="utf-8")
    run(resume=True)
    assert log.read_text(encoding="utf-8") == before
    document = run(resume=True, seeds=3, methods=["Ours", "A", "B"])
    assert calls(log) == sorted(document["cells"])
    assert len(document["cells"]) == 9


def test_two_runs_do_not_write_to_one_file(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    with (
        alone(folder / "fake.json"),
        pytest.raises(InputError, match=r"another run is writing to .*fake\.json.*--resume, or .*--output"),
    ):
        run()
    with alone(folder / "other.json"):  # of another table
        assert len(run()["cells"]) == 4
    (folder / ".fake.json.lock").touch()  # of a run that was killed
    assert len(run(resume=True)["cells"]) == 4
    assert [path.name for path in folder.iterdir()] == ["fake.json"]


def test_a_part_leaves_the_rest_of_the_file(run: Run) -> None:
    run()
    document = run(resume=True, settings=["few"], methods=["A"])
    assert len(document["cells"]) == 6
    assert [(row["setting"], row["method"]) for row in document["rows"]][::5] == [("dense", "Ours"), ("few", "Ours")]


def test_an_existing_file_needs_a_word(run: Run, log: Path) -> None:
    run()
    with pytest.raises(InputError, match=r"holds 4 finished cell\(s\).*--resume.*--fresh"):
        run()
    assert len(calls(log)) == 4
    document = run(fresh=True, methods=["B"])
    assert len(document["cells"]) == 2


def test_skipped_cells_are_not_run_but_explained(run: Run, log: Path) -> None:
    document = run(settings=["few"], methods=["B"])
    assert calls(log) == []
    assert document["cells"] == {}
    assert {row["method"]: row["reason"] for row in document["rows"]}["B"] == "too many nodes for it"


def test_an_error_is_kept_in_its_cell_and_tried_again(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = run(methods=["Broken", "NA", "Ours"])
    assert failed_cells(document) == ["generated | dense | Broken | 0", "generated | dense | Broken | 1"]
    assert document["cells"]["generated | dense | Broken | 0"]["error"] == "ValueError: two lines"
    assert document["cells"]["generated | dense | NA | 0"]["not_applicable"] == "needs edges"
    assert "numbers" in document["cells"]["generated | dense | Ours | 1"]
    monkeypatch.setenv("FAKE_MENDED", "1")
    log.write_text("", encoding="utf-8")
    assert failed_cells(run(methods=["Broken", "NA", "Ours"], resume=True)) == []
    assert calls(log) == ["generated | dense | Broken | 0", "generated | dense | Broken | 1"]


def test_a_cell_without_room_beside_others_is_tried_again_at_the_end(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CROWDED", "Ours")
    document = run(seeds=3, jobs=2)
    assert failed_cells(document) == []
    crowded = "generated | dense | Ours | 0"
    assert calls(log).count(crowded) == 2
    assert len(calls(log)) == 7
    assert log.read_text(encoding="utf-8").splitlines()[-1].startswith(crowded)
    assert document["cells"][crowded]["numbers"]["cold"] == 60.0
    # one that was alone has all the room there is
    log.write_text("", encoding="utf-8")
    assert failed_cells(run(seeds=3, fresh=True)) == [crowded]
    assert len(calls(log)) == 6


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_that_lost_the_gpu_are_replaced(
    jobs: int, run: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOST", "Ours")
    document = run(seeds=3, jobs=jobs)
    assert failed_cells(document) == []
    lost = "generated | dense | Ours | 0"
    assert set(document["cells"][lost]) == {"seconds", "numbers", "device", "commit", "generated"}
    attempts = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith(lost)]
    assert len(set(attempts)) == 2  # by two processes


def test_a_cell_that_loses_the_gpu_twice_has_failed(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOST", "all")
    document = run(seeds=1, jobs=1)
    assert len(failed_cells(document)) == 2
    assert document["cells"]["generated | dense | A | 0"]["error"].startswith("AcceleratorError: CUDA error")
    assert "trouble" not in document["cells"]["generated | dense | A | 0"]
    assert all(calls(log).count(cell) >= 2 for cell in document["cells"])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_gpu_that_nobody_can_use_ends_the_run_and_no_cell_is_blamed(
    jobs: int, run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seeds=1)
    monkeypatch.setenv("FAKE_LOST", "all")
    monkeypatch.setattr("gsparc.experiments.runner.sys.executable", "false")  # the probe fails
    with pytest.raises(GsparcError, match=r"the GPU was lost in generated .*\(AcceleratorError: .*--resume"):
        run(seeds=3, resume=True, jobs=jobs)
    assert failed_cells(stored(tmp_path)) == []
    assert len(stored(tmp_path)["cells"]) == 2  # those of before
    monkeypatch.delenv("FAKE_LOST")
    log.write_text("", encoding="utf-8")
    assert len(run(seeds=3, resume=True)["cells"]) == 6
    assert len(calls(log)) == 4


def test_several_processes_give_the_same_rows(run: Run, log: Path) -> None:
    alone = run(seeds=3, methods=["Ours", "A", "Broken"])
    pids = {line.split()[-1] for line in log.read_text(encoding="utf-8").splitlines()}
    assert pids == {str(os.getpid())}
    log.write_text("", encoding="utf-8")
    together = run(seeds=3, methods=["Ours", "A", "Broken"], jobs=2, fresh=True)
    pids = {line.split()[-1] for line in log.read_text(encoding="utf-8").splitlines()}
    assert str(os.getpid()) not in pids
    for row in (*alone["rows"], *together["rows"]):
        row.pop("seconds")
    assert together["rows"] == alone["rows"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"versions": {"torch": "1.0"}}, r"torch 1\.0 \(now"),
        ({"hardware": {"gpu": "Abacus 9"}}, r"Abacus 9 \(now"),
        ({"smoke": True}, "a smoke run"),
        ({"experiment": "other"}, "table 'other'"),
    ],
)
def test_results_of_another_kind_are_not_mixed(run: Run, tmp_path: Path, change: dict, match: str) -> None:
    document = run()
    for key, value in change.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    results.write_json(tmp_path / "results" / "fake.json", document)
    with pytest.raises(InputError, match=match):
        run(resume=True)


def test_another_processor_is_noted(run: Run, tmp_path: Path) -> None:
    document = run()
    document["hardware"]["cpu"] = "Slide rule"
    results.write_json(tmp_path / "results" / "fake.json", document)
    assert [machine["cpu"] for machine in run(resume=True)["other_hardware"]] == ["Slide rule"]


def test_generated_and_real_cells_are_not_mixed(run: Run, tmp_path: Path) -> None:
    document = run()
    for cell in document["cells"].values():
        del cell["generated"]
    results.write_json(tmp_path / "results" / "fake.json", document)
    with pytest.raises(InputError, match="from the data set itself, this run uses a generated graph"):
        run(resume=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": 3}'])
def test_a_file_that_is_no_result_is_named(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "fake.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"fake\.json"):
        run(resume=True)


DAMAGED = [
    ({"numbers": {"cold": "abc"}}, r"'cold' is 'abc', expected a finite number"),
    ({"numbers": {"cold": True}}, r"'cold' is True, expected a finite number"),
    ({"numbers": {"cold": {"a": 1}}}, r"'cold' is \{'a': 1\}, expected a finite number"),
    ({"numbers": {"curve": [1.0, "2"]}}, r"'curve' holds '2', expected a finite number"),
    ({"numbers": {"cold": math.nan}}, r"'cold' is nan, expected a finite number"),
    ({"numbers": {"cold": 10**400}}, r"'cold' is 10+\.\.\., expected a finite number"),
    ({"numbers": {"reasons": "none"}}, r"'reasons' is 'none', expected names with a sentence"),
    ({"numbers": [1.0]}, r"'numbers' is \[1\.0\], expected names with a number"),
    ({"numbers": {}, "seconds": "long"}, r"'seconds' is 'long'"),
    ({"error": None}, r"'error' is None, expected a sentence"),
    ({"seconds": 1.0}, r"it is \{'seconds': 1\.0\}, expected one of 'numbers'"),
    (7, r"it is 7, expected one of 'numbers'"),
]


@pytest.mark.parametrize(("record", "match"), DAMAGED)
def test_a_damaged_cell_is_named(run: Run, tmp_path: Path, log: Path, record: Any, match: str) -> None:
    document, before = run(), calls(log)
    document["cells"]["generated | dense | A | 1"] = record
    (tmp_path / "results" / "fake.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match=rf"fake\.json holds a damaged cell 'generated \| dense \| A \| 1': {match}"):
        run(resume=True)
    assert calls(log) == before


def test_a_cell_of_another_name_is_named(run: Run, tmp_path: Path) -> None:
    document = run()
    document["cells"]["generated | A"] = {"numbers": {}}
    results.write_json(tmp_path / "results" / "fake.json", document)
    with pytest.raises(InputError, match=r"damaged cell 'generated \| A': its name is not 'data set \| setting"):
        run(resume=True)


@pytest.mark.parametrize(("part", "value"), [("versions", 3), ("hardware", "fast"), ("rows", {})])
def test_a_damaged_header_is_named(run: Run, tmp_path: Path, part: str, value: Any) -> None:
    results.write_json(tmp_path / "results" / "fake.json", {**run(), part: value})
    with pytest.raises(InputError, match=rf"fake\.json is damaged: '{part}' is"):
        run(resume=True)


def test_numbers_that_could_not_be_read_again_are_a_failure(
    run: Run, fake: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("fake_table")

    monkeypatch.setattr(module, "TABLE", replace(fake, run=lambda cell, context: {"cold": "abc"}))
    cells = run()["cells"]
    assert {record["error"] for record in cells.values()} == {
        "TypeError: the numbers of the cell cannot be kept: 'cold' is 'abc', expected a finite number."
    }


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "results").glob("*.json")), ids=lambda p: p.stem)
def test_the_kept_results_can_be_read(path: Path) -> None:
    if path.stem != "audit":
        assert results.read_result(path)["cells"]


def test_missing_data_is_said_before_anything_runs(run: Run, log: Path, tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"'reddit' are not on this machine.*--data-dir.*--generated"):
        run(datasets=["debian", "reddit"], data_dir=tmp_path)
    assert calls(log) == []


@pytest.mark.parametrize(
    ("options", "match"),
    [({"jobs": 0}, "jobs=0"), ({"seeds": 0}, "seeds=0"), ({"device": "abacus"}, "device='abacus'")],
)
def test_bad_options(run: Run, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        run(**options)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
import fake_table
from gsparc.experiments.runner import run_experiment
if __name__ == "__main__":
    run_experiment(fake_table.TABLE, output=Path({output!r}), seeds=3, methods=["Ours", "A"], settings=["dense"],
                   device="cpu", jobs=2, resume=True, show_progress=False)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """The table in a process of its own, with two workers that take half a second a cell."""
    script = folder / "script.py"
    values = {"here": str(Path(__file__).parent), "output": str(folder / "results")}
    script.write_text(SCRIPT.format(**values), encoding="utf-8")
    environment = {**os.environ, "FAKE_SLEEP": "0.5", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_a_killed_run_continues_and_leaves_no_process(how: int, run: Run, tmp_path: Path, log: Path) -> None:
    file = tmp_path / "results" / "fake.json"
    process = start(tmp_path)
    wait_for(file.exists, "a first cell")
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode != 0
    kept = set(stored(tmp_path)["cells"])
    assert 1 <= len(kept) < 6
    workers = {int(line.split()[-1]) for line in log.read_text(encoding="utf-8").splitlines()}
    wait_for(lambda: not any(map(alive, workers)), "the workers' end", 10)
    log.write_text("", encoding="utf-8")
    everything = set(run(resume=True, seeds=3)["cells"])
    assert len(everything) == 6
    assert calls(log) == sorted(everything - kept)


def test_a_worker_that_dies_is_reported(fake: Experiment) -> None:
    cells = [Cell("generated", "dense", name, seed) for name in ("Ours", "Dies") for seed in (0, 1)]
    work = [Task(fake.name, fake.module, cell, Context("generated", "cpu")) for cell in cells]
    with pytest.raises(GsparcError, match=r"a worker process was killed.*--resume"):
        list(as_finished(_run_cell, work, 2))


def test_a_folder_that_cannot_be_written(run: Run, fake: Experiment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GsparcError, match="cannot be written"):
        run_experiment(fake, output=tmp_path / "file" / "results", seeds=1, device="cpu", show_progress=False)
