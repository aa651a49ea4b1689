"""``gsparc fit``: what it prints, what it leaves, and what it refuses before any work is done."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc import load_model
from gsparc.datasets import load_npz

QUICK = ("--backbone", "mlp", "--max-steps", "20")


def document(done) -> dict:
    """Standard output as the one JSON document that it must be."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(done, pattern: str, status: int = 1) -> None:
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(pattern, " ".join(done.stderr.replace("│", " ").split())), done.stderr
    assert "fitting" not in done.stderr


@pytest.fixture(scope="module")
def tables(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small graph as two tables, its classes in the column ``section``; the last node has none."""
    folder = tmp_path_factory.mktemp("tables")
    data = load_npz(small)
    names = [None if code < 0 else str(data.class_names[code]) for code in data.y]
    columns = {f"u{i}": data.X[:, i] for i in range(8)}
    pq.write_table(pa.table({"id": data.node_ids, "section": names, **columns}), folder / "packages.parquet")
    rows = np.repeat(np.arange(150), np.diff(data.graph.indptr))
    ends = {"source": data.node_ids[rows], "target": data.node_ids[data.graph.indices]}
    pq.write_table(pa.table(ends), folder / "depends.parquet")
    return folder


def test_a_data_set(inside, small: Path, tmp_path: Path) -> None:
    facts = document(inside("fit", "--dataset", small, "-o", tmp_path / "model", "--json", *QUICK))
    assert (facts["nodes"], facts["labelled_nodes"], facts["features"]) == (150, 149, 8)
    assert facts["classes"] == ["blue", "green", "red"]
    assert (facts["backbone"], facts["recipe"], facts["evaluation"]) == ("mlp", None, None)
    assert facts["model"] == str(tmp_path / "model")
    data, model = load_npz(small), load_model(tmp_path / "model")
    predicted = model.predict(data.X[:149])
    # the features alone say most of it; names that were mixed up would be right for a third
    assert (predicted == data.class_names[data.y[:149]]).mean() > 0.8
    assert model.max_steps == 20
    assert model.map_.max_steps == 20
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_two_tables_and_a_recipe(inside, tables: Path, tmp_path: Path) -> None:
    """Without a recipe two tables become a table model: test_tables.py."""
    sources = ["--nodes", tables / "packages.parquet", "--edges", tables / "depends.parquet", "--target", "section"]
    recipe = ["--recipe", "gcn/cora", "--max-steps", "3"]
    facts = document(inside("fit", *sources, *recipe, "-o", tmp_path / "model", "--json"))
    assert (facts["data"], facts["nodes"], facts["labelled_nodes"]) == ("packages", 150, 149)
    assert facts["features"] == 8  # neither the ids nor the classes
    assert facts["classes"] == ["blue", "green", "red"]
    named = document(inside("info", tmp_path / "model", "--json"))
    assert (named["class"], named["classes"]) == ("SparcClassifier", ["blue", "green", "red"])
    model = load_model(tmp_path / "model")
    assert model.feature_names_in_.tolist() == [f"u{i}" for i in range(8)]


def test_evaluated_on_nodes_kept_out(inside, small: Path, tmp_path: Path) -> None:
    facts = document(inside("fit", "--dataset", small, "--evaluate", "-o", tmp_path / "m", "--json", *QUICK))
    measured = facts["evaluation"]
    assert [row["method"] for row in measured["methods"]] == ["MLP on features", "gsparc"]
    assert all(0.5 < row["accuracy"] <= 1 for row in measured["methods"])
    assert measured["split"] == "dense"
    assert 25 <= measured["cold"] <= 30
    assert measured["seen"] + measured["cold"] < 150
    model = load_model(tmp_path / "m")
    assert model.index_.num_vectors == measured["seen"]  # those kept out are not in the model


def test_what_people_read(inside, small: Path, tmp_path: Path) -> None:
    done = inside("fit", "--dataset", small, "--evaluate", "-o", tmp_path / "model", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "SparcClassifier (backbone mlp) on small: 150 nodes, 149 of them labelled" in done.stdout
    assert "MLP on features" in done.stdout
    assert f"model: {tmp_path / 'model'}" in done.stdout.replace("\n/", " /")
    assert "fitting on" in done.stderr
    assert "are kept out" in done.stderr


def test_quiet_and_the_same_seed(inside, small: Path, tmp_path: Path) -> None:
    results = []
    for name in ("a", "b"):
        done = inside("fit", "--dataset", small, "-o", tmp_path / name, "--quiet", "--seed", "4", *QUICK)
        assert done.returncode == 0
        assert done.stderr == ""
        results.append((tmp_path / name / "weights.safetensors").read_bytes())
    assert results[0] == results[1]
    assert "loading" in inside("fit", "--dataset", small, "-o", tmp_path / "a", *QUICK).stderr  # quiet was for once


def test_a_recipe_on_another_data_set(inside, small: Path, tmp_path: Path) -> None:
    arguments = ["--recipe", "phormer/cora", "--max-steps", "3", "-o", tmp_path / "model", "--json"]
    facts = document(inside("fit", "--dataset", small, *arguments))
    assert (facts["recipe"], facts["backbone"], facts["data"]) == ("phormer/cora", "phormer", "small")
    model = load_model(tmp_path / "model")
    assert (model.num_tokens, model.num_heads, model.hidden_channels, model.max_steps) == (5, 8, 512, 3)
    assert (model.map_.objective, model.map_.n_components, model.map_.max_steps) == ("rayleigh", 32, 3)
    assert model.predict(np.zeros((1, 8), np.float32)).tolist()[0] in facts["classes"]


def test_a_recipe_alone_takes_its_own_data_set(inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPARC_DATA", str(tmp_path))  # where nothing is
    done = inside("fit", "--recipe", "gcn/citeseer", "-o", tmp_path / "model")
    assert "loading citeseer, the recipe's own data set" in done.stderr
    fails(done, "citeseer")


@pytest.mark.parametrize(
    ("arguments", "pattern", "status"),
    [
        (["-o", "m"], "pass a node table and an edge table", 2),
        (["--store", "s", "--target", "label", "-o", "m"], "pass this to gsparc ingest", 2),
        (["--store", "s", "--report", "r.html", "-o", "m"], "not with --store", 2),
        (["--store", "s", "--holdout", "0", "-o", "m"], "pass this to gsparc ingest", 2),
        (["--dataset", "cora", "--holdout", "0.3", "-o", "m"], "--holdout.*goes with --nodes and --edges alone", 2),
        (["--recipe", "gcn/cora", "--holdout", "0", "-o", "m"], "--holdout.*goes with --nodes and --edges alone", 2),
        (["--dataset", "cora"], "output|-o", 2),
        (["--nodes", "n.parquet", "-o", "m"], "--nodes and --edges go together", 2),
        (["--edges", "e.parquet", "-o", "m"], "--nodes and --edges go together", 2),
        (["--dataset", "x", "--nodes", "n", "--edges", "e", "-o", "m"], "either --dataset or --nodes", 2),
        (["--recipe", "gcn/cora", "--backbone", "mlp", "-o", "m"], "a recipe says which backbone", 2),
        (["--dataset", "cora", "--max-steps", "0", "-o", "m"], "max-steps", 2),
        (["--recipe", "gcn/core", "-o", "m"], "unknown recipe 'gcn/core'. Did you mean 'gcn/cora'", 1),
        (["--dataset", "cora", "--backbone", "gnn", "-o", "m"], "unknown backbone 'gnn'.*gcn", 1),
        (["--dataset", "debain", "-o", "m"], "Did you mean 'debian'", 1),
        (["--nodes", "n.parquet", "--edges", "e.parquet", "-o", "m"], "there is no table of nodes n.parquet", 1),
    ],
)
def test_refused_at_once(inside, tmp_path: Path, monkeypatch, arguments, pattern: str, status: int) -> None:
    monkeypatch.chdir(tmp_path)
    fails(inside("fit", *arguments), pattern, status)


def test_a_column_that_is_not_there(inside, tables: Path, tmp_path: Path) -> None:
    sources = ["--nodes", tables / "packages.parquet", "--edges", tables / "depends.parquet"]
    fails(inside("fit", *sources, "--target", "kind", "-o", tmp_path / "m"), "no column 'kind'")
    recipe = ["--recipe", "gcn/cora", "-o", tmp_path / "m"]
    fails(inside("fit", *sources, *recipe), "packages has no classes to learn.*--target COLUMN")


def test_a_folder_that_holds_something_else(inside, small: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    done = inside("fit", "--dataset", small, "-o", tmp_path)
    fails(done, "is not a gsparc model")
    assert "loading" not in done.stderr
    fails(inside("fit", "--dataset", small, "-o", small / "model"), "cannot write")


def test_a_device_that_is_none(inside, small: Path, tmp_path: Path) -> None:
    fails(inside("fit", "--dataset", small, "--device", "gpu", "-o", tmp_path / "m"), "--device gpu is not a device")
    assert list(tmp_path.iterdir()) == []


def test_help_shows_an_example_and_loads_no_torch(inside) -> None:
    shown = " ".join(inside("fit", "--help").stdout.split())
    assert "gsparc fit --recipe phormer/pubmed" in shown
    assert "Example: gsparc fit --nodes packages.csv --edges depends.csv" in shown
    code = (
        "import sys, gsparc.cli.fit, gsparc.recipes as r; r.load_recipe('gcn/cora'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("command", ["fit", "embed"])
def test_a_model_may_have_the_name_of_a_data_set(
    inside, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    fitted = inside("embed", small, "-o", tmp_path / "c.csv", "--model-out", tmp_path / "cora", "--max-steps", 3)
    assert fitted.returncode == 0, fitted.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GSPARC_DATA", str(tmp_path / "nowhere"))
    asked = {"fit": ("--dataset", "cora", "-o", "cora"), "embed": ("cora", "--model-out", "cora", "-o", "c.csv")}
    done = inside(command, *asked[command])
    assert done.returncode == 1
    assert "would be" not in done.stderr  # written over: the data set is another thing, which is not on this machine
    assert "'cora'" in done.stderr
