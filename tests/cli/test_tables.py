"""From two tables to predictions as a new user goes: files, a shell, and nothing of our own objects."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

QUICK = ("--backbone", "mlp", "--max-steps", "10")


def document(done) -> dict:
    """Standard output as the one JSON document that it must be."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(done, pattern: str, status: int = 1) -> None:
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(pattern, " ".join(done.stderr.replace("│", " ").split())), done.stderr


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nodes.csv, edges.csv, new.csv and new_edges.csv: packages with a text, a number and a category."""
    place = Path(__file__).resolve().parent.parent / "tables" / "conftest.py"
    spec = importlib.util.spec_from_file_location("table_data", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder, made = tmp_path_factory.mktemp("packages"), module.make_tables()
    for name in ("nodes", "edges", "new", "new_edges"):
        csv.write_csv(getattr(made, name), folder / f"{name}.csv")
    pq.write_table(made.nodes, folder / "nodes.parquet")
    return folder


def sources(packages: Path) -> list[object]:
    return ["--nodes", packages / "nodes.csv", "--edges", packages / "edges.csv", "--target", "section"]


@pytest.fixture(scope="session")
def fitted(packages: Path, gsparc, tmp_path_factory: pytest.TempPathFactory):
    """A model of all tasks, fitted in a process of its own, and what that printed."""
    folder = tmp_path_factory.mktemp("fitted") / "model"
    tasks = ["--task", "classes,links,clusters", "--clusters", "3"]
    done = gsparc("fit", *sources(packages), *tasks, "-o", folder, *QUICK)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_fit_says_what_it_understood_and_whether_the_graph_helps(fitted) -> None:
    folder, done = fitted
    for words in (
        r"package\s+id",
        r"section\s+target",
        r"description\s+text",
        r"installed_size\s+numeric",
        r"arch\s+categorical",
        "from source to target, no weights",
        r"note: \d+ of \d+ edges join a node to itself: left out",
        "GLNN",
        "left 0:00:00",
    ):
        assert re.search(words, done.stderr), (words, done.stderr)
    assert "Does the graph help on this data?" in done.stdout
    assert "Prediction sets that promise 90 %" in done.stdout
    assert "feature cosine" in done.stdout
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]  # nothing half done beside it
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") >= 4
    assert "http" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_predict_in_a_process_of_its_own(fitted, packages: Path, gsparc, tmp_path: Path) -> None:
    done = gsparc("predict", fitted[0], packages / "new.csv", "-o", tmp_path / "out.parquet", "--json")
    facts = document(done)
    assert (facts["rows"], facts["rejected"], facts["rejects"]) == (40, 0, None)
    assert facts["rows_per_second"] > 0
    assert done.stderr == ""  # no bar beside a JSON document
    out = pq.read_table(tmp_path / "out.parquet")
    truth = csv.read_csv(packages / "new.csv")["section"].to_pylist()
    right = sum(a == b for a, b in zip(out["class"].to_pylist(), truth, strict=True))
    assert right > 25
    assert out.column_names[:6] == ["id", "class", "confidence", "set", "abstained", "why"]
    assert all(len(row) == 5 for row in out["links"].to_pylist())
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "feather", "jsonl"])
def test_tables_of_every_kind(fitted, packages: Path, inside, tmp_path: Path, suffix: str) -> None:
    from gsparc.tables.reading import read_table
    from gsparc.tables.writing import TableWriter

    rows = read_table(packages / "new.csv")
    with TableWriter(tmp_path / f"rows.{suffix}") as writer:
        writer.write(rows)
    out = tmp_path / f"out.{suffix}"
    facts = document(inside("predict", fitted[0], tmp_path / f"rows.{suffix}", "-o", out, "--near", 2, "-q", "--json"))
    assert facts["rows"] == 40
    assert read_table(out)["id"].to_pylist() == rows["package"].to_pylist()


def test_rows_that_cannot_be_read_are_kept_apart(fitted, packages: Path, inside, tmp_path: Path) -> None:
    lines = (packages / "new.csv").read_text().splitlines()
    lines[2] = "too,few"
    (tmp_path / "new.csv").write_text("\n".join([*lines, '"q",,"w1","much","arm"']) + "\n")
    done = inside("predict", fitted[0], tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert "note: 2 rows could not be read" in done.stderr
    rejects = csv.read_csv(tmp_path / "out.rejects.csv").to_pylist()
    assert [(line["row"], line["id"]) for line in rejects] == [(2, ""), (41, "q")]
    assert rejects[1]["reason"] == "installed_size is 'much', expected a number"
    assert csv.read_csv(tmp_path / "out.csv").num_rows == 39


def test_first_edges_are_used(fitted, packages: Path, inside, tmp_path: Path) -> None:
    new, confident = packages / "new.csv", {}
    for name, more in {"cold": [], "linked": ["--edges", packages / "new_edges.csv"]}.items():
        done = inside("predict", fitted[0], new, "-o", tmp_path / f"{name}.parquet", *more, "--json")
        facts = document(done)
        confident[name] = pq.read_table(tmp_path / f"{name}.parquet")["confidence"].to_pylist()
    assert facts["edges"]["edges"] > 100
    assert "edges name no known node: left out" in done.stderr  # those among new rows
    assert confident["cold"] != confident["linked"]


def test_evaluate(fitted, packages: Path, inside) -> None:
    arguments = ["evaluate", fitted[0], packages / "new.csv", "--edges", packages / "new_edges.csv"]
    facts = document(inside(*arguments, "--json"))
    assert facts["classes"]["rows"] == 40
    assert facts["classes"]["accuracy"] > 0.6
    assert 0 < facts["links"]["mrr"] <= 1
    assert facts["already_known"] == 0
    shown = inside(*arguments).stdout
    assert "accuracy" in shown
    assert "MRR" in shown
    assert "are in the model already" in inside("evaluate", fitted[0], packages / "nodes.csv").stderr


def test_info(fitted, inside) -> None:
    facts = document(inside("info", fitted[0], "--json"))
    assert (facts["class"], facts["known_nodes"]) == ("TableModel", 240)
    assert facts["tasks"] == ["classes", "links", "clusters"]
    assert facts["columns"]["text"] == ["description"]
    assert facts["classes"] == ["admin", "libs", "net"]
    assert "Does the graph help" in " ".join(inside("info", fitted[0]).stdout.split())
    assert document(inside("info", fitted[0], "--json"))["report"].endswith("report.html")


def test_grow(fitted, packages: Path, inside, tmp_path: Path) -> None:
    shutil.copytree(fitted[0], tmp_path / "model")
    more = ["--nodes", packages / "new.csv", "--edges", packages / "new_edges.csv"]
    facts = document(inside("grow", tmp_path / "model", *more, "--json"))
    assert (facts["added"], facts["nodes"], facts["rejected"]) == (40, 280, 0)
    assert facts["drift"]["sentence"]
    assert document(inside("info", tmp_path / "model", "--json"))["known_nodes"] == 280
    again = document(inside("grow", tmp_path / "model", *more, "--json"))
    assert (again["added"], again["already_known"]) == (0, 40)
    assert (tmp_path / "model" / "report.html").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    other = document(inside("grow", fitted[0], *more, "-o", tmp_path / "grown", "--json"))
    assert other["model"] == str(tmp_path / "grown")
    assert document(inside("info", fitted[0], "--json"))["known_nodes"] == 240


def test_grow_asks_for_a_fit_where_classes_are_new(fitted, packages: Path, inside, tmp_path: Path) -> None:
    rows = csv.read_csv(packages / "new.csv").to_pylist()
    for row in rows[::3]:
        row["section"] = "games"
    csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "more.csv")
    arguments = ["grow", fitted[0], "--nodes", tmp_path / "more.csv", "-o", tmp_path / "grown"]
    shown = " ".join(inside(*arguments).stdout.split())
    assert "Retraining is advised: 14 of the labelled rows (35.0 %) are of a class that the model does not" in shown
    assert "'games'" in shown


def test_export(fitted, inside, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    facts = document(inside("export", fitted[0], "--onnx", "-o", tmp_path / "m.onnx", "--json"))
    assert facts["classes"] == ["admin", "libs", "net"]
    assert (tmp_path / "m.onnx").stat().st_size > 1000
    fails(inside("export", fitted[0]), "--onnx", status=2)


def test_roles_by_flag_and_other_files(packages: Path, inside, tmp_path: Path) -> None:
    roles = ["--id", "package", "--text", "description", "--numeric", "installed_size", "--categorical", "arch"]
    done = inside(
        "fit",
        "--nodes",
        packages / "nodes.parquet",
        "--edges",
        packages / "edges.csv",
        *roles,
        *["--ignore", "section", "--edge-source", "target", "--edge-target", "source"],
        *["--report", tmp_path / "page.html", "-o", tmp_path / "model", "--json", *QUICK],
    )
    facts = document(done)
    assert facts["tasks"] == ["links"]  # no target
    assert facts["classes"] is None
    assert facts["columns"]["ignored"] == {"section": "as asked"}
    assert facts["report"] == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").is_file()
    assert not (tmp_path / "model" / "report.html").exists()
    assert re.search(r"section\s+ignored", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "pattern", "status"),
    [
        (["fit", "--nodes", "nodes.csv", "-o", "m"], "--nodes and --edges go together", 2),
        (["fit", "--nodes", "no.csv", "--edges", "edges.csv", "-o", "m"], "no table of nodes no.csv", 1),
        (["fit", "--nodes", "nodes.csv", "--edges", "no.csv", "-o", "m"], "no table of edges no.csv", 1),
        (["fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "sektion", "-o", "m"], "'sektion'", 1),
        (["fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--task", "clases", "-o", "m"], "unknown task", 1),
        (["fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--task", "classes", "-o", "m"], "--target", 1),
        (["fit", "--nodes", "nodes.csv", "--edges", "nodes.csv", "--target", "section", "-o", "m"], "none of the", 1),
        (["fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--holdout", "0.95", "-o", "m"], "holdout", 2),
        (["predict", "m", "new.csv"], "-o", 2),
        (["predict", "m", "new.csv", "-o", "out.xyz"], r"'out\.xyz' ends in \.xyz, which is not written.*\.parquet", 1),
        (["predict", "m", "new.csv", "-o", "out"], "'out' has no ending that says the format.*parquet", 1),
        (["predict", "m", "new.csv", "-o", "o.csv", "--engine", "ray"], "named like a file. Name.*without .csv", 1),
        (["info", "m"], "unknown data set 'm'.*Nor is there a model folder m, as 'gsparc fit -o' writes it", 1),
        (["info", "nodes.csv"], "nodes.csv is not an .npz file.*Nor is it a model folder", 1),
        (["datasets", "nothing", "--export", "x"], "unknown data set 'nothing'", 1),
        (["fit", "--nodes", "no.csv", "--edges", "no.csv", "--index-memory", "much", "-o", "m"], "--index-memory", 1),
        (["fit", "--nodes", "no.csv", "--edges", "no.csv", "--backbone", "mlb", "-o", "m"], "unknown backbone", 1),
        (["fit", "--store", "no", "--backbone", "mlb", "-o", "m"], "unknown backbone", 1),
        (["predict", "m", "no.csv", "-o", "out.csv"], "no table of rows no.csv", 1),
        (["predict", "m", "new.csv", "-o", "out.csv"], "'?m'? is not a gsparc model", 1),
        (["predict", "m", "new.csv", "-o", "out.csv", "--coverage", "2"], "coverage", 2),
        (["evaluate", "m", "new.csv"], "'m' is not a gsparc model: there is no such folder.*'gsparc fit -o'", 1),
        (["grow", "m", "--nodes", "new.csv"], "is not a gsparc model", 1),
        (["serve", "m"], "is not a gsparc model", 1),
    ],
)
def test_refused(inside, packages: Path, tmp_path: Path, monkeypatch, arguments, pattern: str, status: int) -> None:
    for name in ("nodes.csv", "edges.csv", "new.csv"):
        shutil.copy(packages / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    fails(inside(*arguments), pattern, status)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "new.csv", "nodes.csv"]


@pytest.mark.parametrize("command", ["fit", "ingest"])
@pytest.mark.parametrize("name", ["package", "id"])
def test_repeated_ids_are_what_the_error_is_about(inside, packages: Path, tmp_path: Path, command, name: str) -> None:
    lines = (packages / "nodes.csv").read_text().splitlines()
    lines[0] = lines[0].replace("package", name)
    lines[5] = lines[5].replace('"p4"', '"p1"')
    (tmp_path / "nodes.csv").write_text("\n".join(lines) + "\n")
    files = ["--nodes", tmp_path / "nodes.csv", "--edges", packages / "edges.csv", "-o", tmp_path / "out"]
    fails(inside(command, *files), rf"1 id\(s\) in column '{name}' .* more than one row: 'p1' in rows 2, 5")


@pytest.mark.parametrize("value", ["inf", "-Infinity", "1e39"])
def test_infinite_numbers_are_refused_as_by_the_service(fitted, inside, packages: Path, tmp_path: Path, value) -> None:
    for name in ("nodes", "new"):
        lines = (packages / f"{name}.csv").read_text().splitlines()
        for row, text in ((3, value), (5, "")):  # an empty one is filled
            fields = lines[row].split(",")
            lines[row] = ",".join([*fields[:3], text, *fields[4:]])
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    files = ["--nodes", tmp_path / "nodes.csv", "--edges", packages / "edges.csv"]
    shown = f"{float(value):g}".replace("+", r"\+")
    reason = rf"nodes\.csv, row 3: installed_size is {shown}, expected a finite number"
    fails(inside("fit", *files, "-o", tmp_path / "model", *QUICK), reason)
    fails(inside("ingest", *files, "-o", tmp_path / "store"), reason)
    done = inside("predict", fitted[0], tmp_path / "new.csv", "-o", tmp_path / "out.csv", "--json")
    assert (document(done)["rows"], document(done)["rejected"]) == (39, 1)
    (line,) = csv.read_csv(tmp_path / "out.rejects.csv").to_pylist()
    assert (line["row"], line["id"]) == (3, "p242")
    assert re.match(f"installed_size is {shown}, expected a finite number", line["reason"])


def test_repeated_ids_and_edges_of_new_rows_are_counted(fitted, inside, packages: Path, tmp_path: Path) -> None:
    lines = (packages / "new.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([*lines, lines[1], lines[1], lines[2]]) + "\n")
    (tmp_path / "edges.csv").write_text("source,target\np240,p1\np2,p241\np240,nobody\nsomebody,p3\n")
    arguments = ["predict", fitted[0], tmp_path / "new.csv", "--edges", tmp_path / "edges.csv"]
    done = inside(*arguments, "-o", tmp_path / "out.csv")
    assert "note: 3 rows have the id of an earlier row: each is predicted on its own" in done.stderr
    assert "note: 2 of 4 edges join a row to a known node and are used" in done.stderr
    assert "note: 1 of 4 edges name no known node: left out" in done.stderr
    assert "note: 1 of 4 edges belong to none of the rows: left out" in done.stderr
    assert re.search("edges used +2 of 4", done.stdout)
    assert csv.read_csv(tmp_path / "out.csv").num_rows == 43


def test_evaluate_says_how_many_classes_are_not_known(fitted, inside, packages: Path, tmp_path: Path) -> None:
    rows = csv.read_csv(packages / "new.csv").to_pylist()
    plain = document(inside("evaluate", fitted[0], packages / "new.csv", "--json"))["classes"]
    assert plain["known_classes"]["accuracy"] == plain["accuracy"]
    others = [row | {"section": "games"} for row in rows[:10]]
    csv.write_csv(pa.Table.from_pylist(rows + others), tmp_path / "labelled.csv")
    done = inside("evaluate", fitted[0], tmp_path / "labelled.csv")
    assert "note: 10 of 50 rows are of a class that the model does not know: all figures count" in done.stderr
    assert re.search(f"accuracy +{80 * plain['accuracy']:.1f} %", done.stdout)
    assert re.search(f"accuracy on known classes +{100 * plain['accuracy']:.1f} % of 40 rows", done.stdout)


def test_options_that_a_form_of_fit_has_no_use_for_are_refused(inside, packages: Path, small: Path, tmp_path) -> None:
    done = inside("fit", *sources(packages), "--evaluate", "-o", tmp_path / "m")
    fails(done, "--evaluate.*rows are held out and compared anyway", status=2)
    for option in (["--resume"], ["--task", "links"], ["--report", "r.html"]):
        fails(inside("fit", "--dataset", small, *option, "-o", tmp_path / "m"), f"{option[0]}.*--nodes and --edges", 2)


def test_a_quiet_fit_of_clusters_that_has_nothing_to_resume(packages: Path, inside, tmp_path: Path) -> None:
    arguments = ["fit", *sources(packages), "--task", "clusters", *QUICK, "-o", tmp_path / "model"]
    done = inside(*arguments, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["model:", str(tmp_path / "model"), "report:", str(tmp_path / "model/report.html")]
    done = inside(*arguments, "--resume")
    assert "there is nothing to resume: starting from the beginning" in done.stderr
    assert "measured by classes and links, and the model was fitted for clusters alone" in done.stdout


def test_ingest_says_what_it_understood_before_it_works(inside, packages: Path, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    done = inside("ingest", *sources(packages), "--dangling", "drop", "-o", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    before, _, _ = done.stderr.partition("reading the nodes")
    for words in (r"package +id", r"section +target", r"description +text", "from source to target, no weights"):
        assert re.search(words, before), done.stderr


def test_the_bar_counts_rows_and_not_the_header(fitted, inside, packages: Path, tmp_path: Path) -> None:
    done = inside("predict", fitted[0], packages / "new.csv", "-o", tmp_path / "out.csv")
    assert "40/40" in done.stderr


def test_help_explains_the_columns_of_the_output(inside) -> None:
    told = " ".join(inside("predict", "--help").stdout.split())
    for words in ("confidence", "set:", "abstained, why", "membership", "no probability and may exceed 1", "near_dist"):
        assert words in told
    assert "macro-F1" in inside("evaluate", "--help").stdout
    assert "leak test" in inside("reproduce", "--help").stdout


def test_another_kind_of_model(inside, small: Path, packages: Path, tmp_path: Path) -> None:
    document(inside("fit", "--dataset", small, "-o", tmp_path / "m", "--json", *QUICK))
    fails(inside("predict", tmp_path / "m", packages / "new.csv", "-o", tmp_path / "o.csv"), "holds a SparcClassifier")


def start(*arguments: object) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "TERM": "dumb"}
    command = [sys.executable, "-m", "gsparc", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def wait_for(condition, process: subprocess.Popen[str], seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_an_interrupted_fit_says_how_to_go_on(packages: Path, inside, gsparc, tmp_path: Path) -> None:
    arguments = [
        "fit",
        *sources(packages),
        "--task",
        "classes",
        "-o",
        tmp_path / "model",
        *QUICK[:2],
        "--max-steps",
        150,
    ]
    state = tmp_path / ".model.fit"
    process = start(*arguments)
    wait_for((state / "glnn" / "checksums.json").exists, process)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert f"kept in {state}" in told
    assert re.search(r"Go on with: gsparc fit .*--resume", " ".join(told.split()))
    assert not (tmp_path / "model").exists()
    other = inside(*arguments, "--resume", "--seed", 1)
    fails(other, "a fit of other data or with other settings")
    done = gsparc(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("done before") >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_killed_at_any_moment_the_old_model_loads(fitted, packages: Path, inside, tmp_path: Path) -> None:
    """Kill -9 in fit, grow and predict, at moments spread over each; then the next run succeeds."""
    shutil.copytree(fitted[0], tmp_path / "model")
    new = packages / "new.csv"
    commands = {
        "fit": ["fit", *sources(packages), "--task", "classes", "-o", tmp_path / "model", *QUICK],
        "grow": ["grow", tmp_path / "model", "--nodes", new, "--edges", packages / "new_edges.csv"],
        "predict": ["predict", tmp_path / "model", new, "-o", tmp_path / "out.parquet"],
    }
    for name, arguments in commands.items():
        for share in (0.5, 0.9):
            process = start(*arguments)
            time.sleep(share * (6.0 if name == "fit" else 4.0))
            process.kill()
            process.communicate(timeout=30)
            assert document(inside("info", tmp_path / "model", "--json"))["class"] == "TableModel"
        done = inside(*arguments)
        assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 40
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert names == {"model", "out.parquet"}


def test_a_data_set_as_two_tables(inside, small: Path, tmp_path: Path) -> None:
    facts = document(inside("datasets", small, "--export", tmp_path / "out", "--json"))
    nodes, edges = csv.read_csv(facts["nodes"]), csv.read_csv(facts["edges"])
    assert nodes.column_names == ["id", "label", *(f"x{i}" for i in range(8))]
    assert (nodes.num_rows, nodes["label"].null_count + nodes["label"].to_pylist().count("")) == (150, 1)
    assert edges.num_rows == facts["edges_rows"]
    fails(inside("datasets", small), "go together", status=2)


def test_words_are_written_as_often_as_they_were_counted(tmp_path: Path) -> None:
    import numpy as np
    import scipy.sparse as sp

    from gsparc.datasets.base import Dataset
    from gsparc.datasets.writing import export_tables
    from gsparc.graph import Graph

    X = sp.csr_array(np.array([[2, 0, 1], [0, 3, 0]], np.float32))
    data = Dataset(X, np.array([0, -1]), Graph.from_edges([[0], [1]]), feature_names=np.array(["a b", "c", "d"]))
    export_tables(data, tmp_path)
    assert csv.read_csv(tmp_path / "nodes.csv")["words"].to_pylist() == ["a_b a_b d", "c c c"]


def test_report_of_a_page_without_classes() -> None:
    from gsparc.report.table_page import render_table_page

    record = {
        "data": {"nodes": 3, "edges": 2, "features": 1},
        "split": {"cold": 0, "seen": 3, "validation": 0, "cold_labelled": 0, "cold_ranked": 0},
        "seconds": {"total": 1.0},
        "summary": ["Whether the graph helps was not measured."],
        "classification": None,
        "links": None,
        "gains": {"accuracy": [], "mrr": []},
        "notes": ["<b>2 edges</b> left out"],
        "settings": {"seed": 0},
        "created": "today",
    }
    page = render_table_page(record, name="<x>", roles=[("id", "id")])
    assert "&lt;x&gt;" in page
    assert "&lt;b&gt;2 edges" in page
    assert "<svg" not in page


def test_a_first_batch_without_any_usable_row_has_the_whole_schema(
    fitted, packages: Path, inside, tmp_path: Path
) -> None:
    header, first, second = (packages / "new.csv").read_text().splitlines()[:3]
    fields = first.split(",")
    (tmp_path / "bad.csv").write_text(f"{header}\n{','.join([*fields[:3], 'abc', *fields[4:]])}\n{second}\n")
    options = ["--batch-rows", "1", "-o", tmp_path / "o.parquet", "--json"]
    facts = document(inside("predict", fitted[0], tmp_path / "bad.csv", *options))
    assert (facts["rows"], facts["rejected"]) == (1, 1)
    schema = pq.read_schema(tmp_path / "o.parquet")
    assert schema.field("id").type == pa.string()
    assert "near" in schema.names


def test_index_memory_is_kept_and_told(packages: Path, inside, tmp_path: Path) -> None:
    options = ["--task", "links", "--index-memory", "300KB", "--json", *QUICK]
    done = inside("fit", *sources(packages), *options, "-o", tmp_path / "model")
    told = document(done)["index"]["links"]
    assert re.search(r"ivf-(sq8|pq) \(\d+ cells probed\): 0\.\d MB in memory, recall@10 (0\.\d|1\.0)", told), told
    assert document(inside("info", tmp_path / "model", "--json"))["index"]["links"].split(" vectors")[1]
    done = inside("predict", tmp_path / "model", packages / "new.csv", "-o", tmp_path / "out.parquet", "--json")
    assert document(done)["rows"] == 40


def test_index_memory_that_is_none_is_said_before_the_fit(packages: Path, inside, tmp_path: Path) -> None:
    done = inside("fit", *sources(packages), "--index-memory", "much", "-o", tmp_path / "model", *QUICK)
    fails(done, "--index-memory='much'; pass a size such as '2GB'")
