"""``gsparc reproduce``: its options, what it prints and leaves, and every table of the paper in a smoke run."""

from __future__ import annotations

import importlib
import io
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gsparc.cli import reproduce
from gsparc.cli.reproduce import TABLES, WORDS
from gsparc.cli.result_tables import result_table
from gsparc.experiments import audit, runner, workers
from gsparc.experiments.engine import Cell, Experiment, Method, Metric
from gsparc.experiments.rows import group_rows


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes of which each loads torch, where a test does not ask for them."""
    monkeypatch.setattr(workers, "usual_jobs", lambda device: 1)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """The table whose numbers are known stands in for all of the paper's."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "experiments"))
    table = importlib.import_module("fake_table").TABLE
    monkeypatch.setattr(runner, "load_table", lambda name: table)
    return table


def fails(done: subprocess.CompletedProcess[str], pattern: str, status: int = 1) -> None:
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(pattern, " ".join(done.stderr.split())), done.stderr


@pytest.fixture
def make(inside, fake: Experiment, tmp_path: Path):
    """Run the command on two methods and two seeds, unless told otherwise."""

    def run(*arguments: object, table: str = "links", methods: str | None = "Ours,A") -> Any:
        part = ["--methods", methods] if methods else []
        return inside(
            "reproduce", table, "--seeds", 2, "--splits", "dense", "--device", "cpu", "-q", "-o", tmp_path / "out",
            *part, *arguments,
        )  # fmt: skip

    return run


def test_the_table_is_printed_and_the_page_written(make, tmp_path: Path) -> None:
    done = make()
    assert done.returncode == 0, done.stderr
    assert re.search(r"generated +dense +Ours +61\.0 ± 1\.4 \(paper +64\.50\)", done.stdout)
    assert re.search(r"\+1\.5 \[-4\.9, \+7\.9\] to A", done.stdout)
    assert "no accuracy on the real data set is claimed" in done.stdout
    page = tmp_path / "out" / "reproduction.html"
    assert f"Page: {page}" in done.stdout.replace("\n", "")
    assert "Are the rows right?" in page.read_text(encoding="utf-8")
    assert (tmp_path / "out" / "fake.json").is_file()


def test_the_usual_folder_is_not_that_of_the_kept_results(
    inside, fake: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    part = ("--seeds", 1, "--methods", "A", "--splits", "dense", "--device", "cpu", "-q")
    for arguments, folder in ((part, "reproduced"), ((*part, "--smoke"), "reproduced/smoke")):
        done = inside("reproduce", "links", *arguments)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / folder / "fake.json").is_file()
    assert not (tmp_path / "results").exists()
    assert "default reproduced." in " ".join(inside("reproduce", "--help").stdout.replace("│", " ").split())


def test_json_is_one_document(make, tmp_path: Path) -> None:
    done = make("--json")
    document = json.loads(done.stdout)
    table = document["tables"]["links"]
    assert (table["cells"], table["failed"], document["audit"]) == (4, {}, None)
    assert table["rows"][0]["metrics"]["cold"]["mean"] == 61.0
    assert Path(document["page"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "tables", "audit"), [((), 3, 9), (("--jobs", 2), 2, 2), (("--smoke",), 1, 1)], ids=str
)
def test_there_are_as_many_processes_as_the_device_of_each_part_can_use(
    inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], tables: int, audit: int
) -> None:
    seen: dict[str, int] = {}
    monkeypatch.setattr(workers, "usual_jobs", {"auto": 3, "cpu": 9}.__getitem__)
    monkeypatch.setattr(reproduce, "_run_tables", lambda *_, **k: seen.update(tables=_[2]["jobs"]) or {})
    monkeypatch.setattr(reproduce, "_run_audit", lambda *_, **k: seen.update(audit=_[1]["jobs"]) or None)
    monkeypatch.setattr(reproduce, "_page", lambda *_, **k: (None, None))
    done = inside("reproduce", "links", "audit", "-o", tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert seen == {"tables": tables, "audit": audit}


def test_failed_cells_are_named_and_the_status_is_1(make) -> None:
    done = make("--json", methods="Ours,Broken")
    fails(done, r"error: 2 cell\(s\) failed: links: generated \| dense \| Broken \| 0; .*--resume")
    document = json.loads(done.stdout)
    assert document["tables"]["links"]["failed"]["generated | dense | Broken | 0"] == "ValueError: two lines"


def test_an_earlier_result_needs_resume_or_fresh(make) -> None:
    assert make().returncode == 0
    fails(make(), r"error: .*fake\.json holds 4 finished cell\(s\).*--resume")
    assert make("--resume", methods="Ours,A,B").returncode == 0
    document = json.loads(make("--fresh", "--json", methods="A").stdout)
    assert document["tables"]["links"]["cells"] == 2
    fails(make("--fresh", "--resume"), "--resume to keep", status=2)


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["classificatoin"], "unknown table 'classificatoin'. Did you mean 'classification'"),
        (["links", "--methods", "Our"], "unknown method 'Our'. Did you mean 'Ours'"),
        (["links", "--datasets", "coar"], "unknown data set 'coar'. Did you mean 'cora'"),
        (["links", "--splits", "dens"], "unknown setting 'dens'. Did you mean 'dense'"),
        (["all", "--methods", "Our"], "unknown method 'Our'. Did you mean 'Ours'"),
        (["links", "--device", "abacus"], "--device abacus is not a device"),
        (["links", "--datasets", "reddit", "--data-dir", "."], "'reddit' are not on this machine.*--generated"),
    ],
)
def test_bad_names_and_missing_data(
    inside, fake: Experiment, tmp_path: Path, arguments: list[str], pattern: str
) -> None:
    fails(inside("reproduce", *arguments, "-q", "-o", tmp_path), pattern)


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["links", "--seeds", "0"], "--seeds"),
        (["links", "--jobs", "0"], "--jobs"),
        (["links", "--data-dir", "nowhere"], "--data-dir.*'nowhere' does not exist"),
        (["links", "--methods", ""], "--methods: '' names nothing"),
        (["links", "--datasets", " , "], "--datasets: ' , ' names nothing"),
        (["audit", "--splits", ","], "--splits: ',' names nothing"),
        ([], "TABLE"),
    ],
)
def test_wrong_usage_is_status_2(
    inside, two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], pattern: str
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(inside("reproduce", *arguments), pattern, status=2)


def test_a_missing_gpu_is_said_in_terms_of_the_option(
    inside, fake: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = inside("reproduce", "links", "--device", "cuda", "-o", tmp_path)
    fails(done, r"error: --device cuda was asked for, but .* Pass --device auto or 'cpu'\.")


def test_list_shows_the_names_and_runs_nothing(inside, tmp_path: Path) -> None:
    document = json.loads(inside("reproduce", "all", "--list", "--json", "-o", tmp_path / "out").stdout)
    assert list(document["tables"]) == list(TABLES)
    table = runner.load_table("classification")
    names = document["tables"]["classification"]
    assert names["datasets"] == list(table.datasets)
    assert names["splits"] == ["paper", "dense", "few", "tenth"]
    assert names["methods"] == [method.label for method in table.methods]
    text = " ".join(inside("reproduce", "classification", "--list").stdout.split())
    assert all(f"{label};" in text for label in names["methods"][:-1])
    assert "--datasets takes any of debian; cora;" in text
    assert not (tmp_path / "out").exists()


def test_rows_of_methods_that_were_not_asked_for_stay_in_the_file(make, tmp_path: Path) -> None:
    assert make(methods="B").returncode == 0
    lines = make("--resume", methods="Ours,A").stdout.splitlines()
    shown = [line.split()[2] for line in lines if line.startswith("generated ")]
    assert shown == ["Ours", "A"]
    rows = json.loads((tmp_path / "out" / "fake.json").read_text(encoding="utf-8"))["rows"]
    assert [row["method"] for row in rows] == ["Ours", "A", "B", "Broken", "NA"]


def test_a_sentence_of_several_rows_is_a_footnote(inside, fake: Experiment, tmp_path: Path) -> None:
    long, other = "needs more memory than there is", "was never published by its authors"
    table = replace(fake, skip=lambda dataset, setting, method: long if method in ("A", "B") else other)
    result = runner.run_experiment(table, output=tmp_path, methods=["A", "B", "NA"], settings=["dense"], device="cpu")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(result_table({**result, "asked": ["A", "B", "NA"]}))
    text = console.export_text()
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("generated  dense  ")][:2] == ["[1]"] * 2
    assert text.count(long) == text.count(f"[1] {long}") == 1
    assert "[2]" not in text


def test_figures_that_a_row_lacks_say_why_in_the_terminal(fake: Experiment, tmp_path: Path) -> None:
    def run(cell: Any, context: Any) -> dict[str, Any]:
        connected = {"loss": 2.0, "reasons": {"gain": "the gain was not asked for"}}
        return connected | ({} if cell.method == "NA" else {"cold": 60.0, "gain": 1.0})

    metrics = (*fake.metrics, Metric("gain", "gain"))
    table = replace(fake, run=run, metrics=metrics, paper={})
    result = {"asked": ["Ours", "A", "B", "NA"], **vars(table), "methods": [asdict(m) for m in table.methods]}
    result["metrics"] = [asdict(metric) for metric in metrics]
    labels = ["Ours", "A", "B", "NA"]
    cells = {f"generated | dense | {name} | 0": {"numbers": run(Cell("", "", name, 0), None)} for name in labels}
    result["rows"] = group_rows(table, "generated", "dense", cells)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(result_table(result))
    text = console.export_text()
    assert re.search(r"Ours +60\.0 +2\.0 +1\.0 +\+0\.0 to A", text)
    assert re.search(r" A +60\.0 +2\.0 +1\.0 +the best baseline", text)
    assert re.search(r"NA +\[1\] +2\.0 +\[2\] +\[1\]", text)
    assert "[1] not applicable: needs edges" in text
    assert "[2] the gain was not asked for" in text
    del cells["generated | dense | A | 0"], cells["generated | dense | B | 0"]
    console.print(result_table({**result, "rows": group_rows(table, "generated", "dense", cells)}))
    assert re.search(r"Ours +60\.0 +2\.0 +1\.0 +no baseline was run", console.export_text())


def test_results_are_shown_even_where_no_page_can_be_made_of_the_folder(make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "package.json").write_text('{"name": "mine"}', encoding="utf-8")
    done = make("--json")
    fails(done, r"error: no page was written: .*package\.json .*none of gsparc's, move it")
    document = json.loads(done.stdout)
    assert (document["tables"]["links"]["cells"], document["page"]) == (4, None)


def test_an_interrupt_says_how_to_continue(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_experiments", interrupted)
    fails(make(), r"interrupted before the first cell was finished; nothing was written\.$", status=130)
    (tmp_path / "out" / "fake.json").touch()
    fails(make(), r"interrupted; finished cells are kept in .*fake\.json.*reproduce links --resume", status=130)


def test_an_interrupted_leak_test_says_how_to_continue(inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(audit, "leak_audit", interrupted)
    done = inside("reproduce", "audit", "--smoke", "-q", "-o", tmp_path)
    fails(done, r"interrupted\. Continue with the same command.*gsparc reproduce audit --resume", status=130)
    (tmp_path / "audit.unfinished").touch()
    done = inside("reproduce", "audit", "--smoke", "-q", "-o", tmp_path, "--resume")
    fails(done, r"finished fits of the leak test are kept in .*gsparc reproduce audit --resume", status=130)


def test_the_leak_test_is_not_overwritten_after_hours_of_tables(make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "audit.json").touch()
    fails(make("audit"), r"audit\.json holds the leak test of an earlier run.*--resume.*--fresh")
    assert not (tmp_path / "out" / "fake.json").exists()


@pytest.mark.parametrize(
    ("option", "value", "pattern"),
    [
        ("--methods", "MLP", "--methods: the leak test has no such choice"),
        ("--seeds", 3, "--seeds: the leak test has no such choice.* one seed"),
        ("--device", "cuda", "--device: the leak test runs on the CPU"),
    ],
)
def test_the_leak_test_alone_refuses_what_it_would_not_do(
    inside, two: None, tmp_path: Path, option: str, value: object, pattern: str
) -> None:
    done = inside("reproduce", "audit", option, value, "-o", tmp_path / "out")
    fails(done, pattern.replace(" ", r"[ │]+"), status=2)
    assert not (tmp_path / "out").exists()


def test_a_smoke_run_has_one_seed_unless_told_otherwise(inside, fake: Experiment, tmp_path: Path) -> None:
    part = ("reproduce", "links", "--smoke", "--methods", "A", "--device", "cpu", "-q", "--json", "-o", tmp_path)
    cells = [
        json.loads(inside(*part, *more).stdout)["tables"]["links"]["cells"] for more in ((), ("--resume", "--seeds", 2))
    ]
    assert cells == [1, 2]


# Labels with commas.

LABELS = ("MLP", "GLNN", "MLP, 6 starts", "GLNN, 6 starts", "majority")


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["GLNN, 6 starts,majority"], ["GLNN, 6 starts", "majority"]),
        (["majority,glnn,6 STARTS"], ["majority", "GLNN, 6 starts"]),
        (["GLNN,GLNN, 6 starts,MLP"], ["GLNN", "GLNN, 6 starts", "MLP"]),
        (["MLP , 6 starts", "GLNN"], ["MLP, 6 starts", "GLNN"]),
        (["GLNN, 7 starts"], ["GLNN", "7 starts"]),
        ([" majority,, mlp ,"], ["majority", "MLP"]),
        ([","], None),
        (None, None),
    ],
)
def test_labels_with_commas_are_found_wherever_they_stand(texts: list[str] | None, names: list[str] | None) -> None:
    assert reproduce._names(texts, LABELS) == names


@given(st.lists(st.sampled_from([*LABELS[:1], *LABELS[2:]]), min_size=1))
def test_any_list_of_labels_is_read_as_it_was_written(labels: list[str]) -> None:
    assert reproduce._names([",".join(labels)], [*LABELS[:1], *LABELS[2:]]) == labels
    assert reproduce._names(labels, LABELS) == labels


def test_a_near_miss_gets_the_label_that_was_meant(inside, tmp_path: Path) -> None:
    done = inside("reproduce", "classification", "--methods", "gln,MLP", "-q", "-o", tmp_path)
    fails(done, r"unknown method 'gln'\. Did you mean 'GLNN'\? .*; GLNN; GLNN, 6 starts; ")


def test_a_label_of_one_table_is_not_cut_for_another(
    make, two: None, fake: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = replace(fake, methods=(*fake.methods, Method("A, twice", "seen nodes", "its own features only")))
    tables = {"links": longer, "minibatch": importlib.import_module("other_table").TABLE}
    monkeypatch.setattr(runner, "load_table", tables.__getitem__)
    parts = reproduce._parts(list(tables), {"methods": ["a, twice"], "datasets": None, "settings": None})
    assert {name: part.methods for name, part in parts.items()} == {"links": ["A, twice"]}
    fails(make(methods="A, thrice"), r"unknown method 'thrice'\. .*Known: A; A, twice; B; Broken; NA; Ours\.")


# 'all': several tables and the leak test in one run.


@pytest.fixture
def two(fake: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables stand in for the paper's seven, and a leak test without rows for the real one."""
    second = importlib.import_module("other_table").TABLE
    few = replace(second, methods=second.methods[:1])
    tables = {"links": fake, "minibatch": few}
    monkeypatch.setattr(reproduce, "TABLES", tuple(tables))
    monkeypatch.setattr(runner, "load_table", tables.__getitem__)
    found = {"dataset": "cora", "rows": [], "controls": [], "seen_nodes": 1, "cold_nodes": 1}
    monkeypatch.setattr(audit, "run_audit", lambda **_: found)


def test_all_makes_every_table_and_the_leak_test(make, two: None, tmp_path: Path) -> None:
    done = make("--json", table="all", methods=None)
    fails(done, r"error: 2 cell\(s\) failed: links: generated \| dense \| Broken \| 0; links: .*1\. Their reasons")
    document = json.loads(done.stdout)
    assert {name: (table["cells"], len(table["failed"])) for name, table in document["tables"].items()} == {
        "links": (10, 2),
        "minibatch": (2, 0),
    }
    assert [Path(table["file"]).name for table in document["tables"].values()] == ["fake.json", "other.json"]
    assert document["audit"]["dataset"] == "cora"


def test_several_tables_and_the_leak_test_in_one_run(make, two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    run = audit.run_audit
    monkeypatch.setattr(audit, "run_audit", lambda **options: asked.append(options["dataset"]) or run(**options))
    document = json.loads(make("minibatch", "--json", methods="Ours").stdout)
    assert list(document["tables"]) == ["links", "minibatch"]
    assert document["audit"] is None
    done = make("links", "audit", "--json", "--fresh", "--datasets", "generated", methods="Ours")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["tables"]) == ["links"]  # named twice, made once
    assert asked == ["generated"]
    for names, smallest in ((["pubmed,cora"], "cora"), (["debian", "Pubmed"], "pubmed"), (None, None)):
        reproduce._run_audit(names, {"output": Path()}, again="")
        assert asked.pop() == smallest
    fails(make("lincs"), r"unknown table 'lincs'.*Did you mean 'links'")


def test_all_takes_from_each_table_what_it_has(make, two: None, tmp_path: Path) -> None:
    done = make("--json", table="all", methods="A")
    assert done.returncode == 0, done.stderr
    assert "nothing of what was asked for is in them: minibatch\n" in done.stderr
    document = json.loads(done.stdout)
    assert {name: table["cells"] for name, table in document["tables"].items()} == {"links": 2}
    fails(make(table="all", methods="Ours"), r"fake\.json holds 2 finished cell\(s\)")
    assert not (tmp_path / "out" / "other.json").exists()
    document = json.loads(make("--json", "--resume", table="all", methods="Ours").stdout)
    assert {name: table["cells"] for name, table in document["tables"].items()} == {"links": 4, "minibatch": 2}


def test_all_makes_a_data_set_in_the_tables_that_have_it(
    make, two: None, fake: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = importlib.import_module("other_table").TABLE
    tables = {"links": fake, "minibatch": replace(small, datasets=("cora",))}
    monkeypatch.setattr(runner, "load_table", tables.__getitem__)
    done = make("--json", "--datasets", "generated", table="all", methods="Ours")
    assert done.returncode == 0, done.stderr
    assert "nothing of what was asked for is in them: minibatch\n" in done.stderr
    assert list(json.loads(done.stdout)["tables"]) == ["links"]
    wanted = {"datasets": ["cora,actor"], "methods": None, "settings": None}
    parts = reproduce._parts(list(tables), wanted)
    found = {name: part.datasets for name, part in parts.items()}
    assert found == {"links": ["actor"], "minibatch": ["cora", "actor"]}  # actor is nobody's own


def test_an_interrupt_of_all_names_the_folder(make, two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, added = runner.ResultFile.add, []

    def interrupted(file: Any, *cell: Any) -> None:
        if len(added) == 3:
            raise KeyboardInterrupt
        added.append(cell)
        add(file, *cell)

    monkeypatch.setattr(runner.ResultFile, "add", interrupted)
    done = make(table="all", methods="Ours")
    fails(done, r"interrupted; finished cells are kept in the result files of .*out\. .*reproduce all --resume", 130)
    cells = [json.loads((tmp_path / "out" / name).read_text())["cells"] for name in ("fake.json", "other.json")]
    assert [len(found) for found in cells] == [2, 1]


def leaky(**_: object) -> dict[str, Any]:
    from gsparc.estimators import SpectralMap

    small = {"hidden_channels": (4,), "max_steps": 3, "batch_size": 64, "device": "cpu"}
    seeds = iter(range(100))  # another seed for every fit: no two models are alike
    return {"SpectralMap": lambda part: SpectralMap(2, random_state=next(seeds), **small).fit(part.X, graph=part.graph)}


def test_a_leak_is_a_failure(inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "pipelines", leaky)
    done = inside("reproduce", "audit", "--smoke", "-q", "-o", tmp_path)
    fails(done, "error: the leak test failed: SpectralMap")
    assert "weights.safetensors" in done.stdout
    assert "bytes differ" in (tmp_path / "reproduction.html").read_text(encoding="utf-8")


def test_help_shows_examples_and_all_words(inside) -> None:
    done = inside("reproduce", "--help")
    assert "Example: gsparc reproduce classification" in " ".join(done.stdout.split())
    assert all(word in done.stdout for word in WORDS)


# The real tables, and the leak test on the real estimators.


@pytest.mark.parametrize("name", TABLES)
def test_smoke_of_every_table(inside, tmp_path: Path, name: str) -> None:
    done = inside("reproduce", name, "--smoke", "--device", "cpu", "-q", "--json", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)["tables"][name]
    headline = table["metrics"][0]["name"]
    for row in table["rows"]:
        figures = [entry["mean"] for entry in row["metrics"].values()]
        assert row["reason"] or any(mean is not None for mean in figures) or row["curves"], row["method"]
        assert row["generated"] or row["reason"]
    assert any(row["metrics"][headline]["mean"] is not None for row in table["rows"] if row["ours"])


def test_smoke_of_the_audit(inside, tmp_path: Path) -> None:
    done = inside("reproduce", "audit", "--smoke", "-q", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "differ" not in done.stdout
    rows = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) == 4 * len(audit.pipelines(smoke=True))


@pytest.mark.data
@pytest.mark.parametrize("name", TABLES)
def test_smoke_of_every_table_on_cora(inside, tmp_path: Path, data_folder: Path, name: str) -> None:
    table = runner.load_table(name)
    ours = next(method.label for method in table.methods if method.ours)
    done = inside(
        "reproduce", name, "--smoke", "--datasets", "cora", "--methods", ours, "--data-dir", data_folder,
        "--splits", table.settings("cora")[0], "--device", "cpu", "-q", "--json", "-o", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["tables"][name]["rows"]
    assert [row["method"] for row in rows if not row["reason"]] == [ours]
    assert not any(row["generated"] for row in rows)


def test_a_killed_command_continues(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gsparc", "reproduce", "links", "--smoke", "-q", "-o", str(tmp_path), "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    file, end = tmp_path / "links.json", time.monotonic() + 120
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    before = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert before
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=200, check=True)
    after = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert len(after) == json.loads(done.stdout)["tables"]["links"]["cells"] > len(before)
    assert {key: after[key] for key in before} == before
