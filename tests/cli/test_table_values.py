"""Values that look like something else: ids, categories and classes of tables that a user has, through the commands."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from gsparc._files import refuse_overwriting
from gsparc.exceptions import OutputError
from gsparc.tables.model import TableModel

FIT = ("--backbone", "mlp", "--max-steps", "3", "--task", "classes", "-q")
N = 40


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def rows(ids: list[Any], **more: list[Any]) -> list[dict[str, object]]:
    """Rows of two classes that a number tells apart."""
    plain = {"id": ids, "cls": [f"c{i % 2}" for i in range(len(ids))], "x": [i % 2 + 0.01 * i for i in range(len(ids))]}
    table = plain | more
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def ring(ids: list[Any]) -> list[dict[str, object]]:
    """Each row with the next but one, which is of its class."""
    return [{"source": a, "target": b} for a, b in zip(ids, ids[2:] + ids[:2], strict=True)]


@pytest.fixture
def fit(inside, tmp_path: Path):
    """Fit a model in ``tmp_path/model``; gives it and what was said."""

    def run(nodes: list[dict[str, object]], edges: list[dict[str, object]], *more: object) -> tuple[TableModel, str]:
        files = ("--nodes", write(tmp_path / "nodes.csv", nodes), "--edges", write(tmp_path / "edges.csv", edges))
        quiet = [word for word in FIT if word != "-q" or "-v" not in more]
        more = tuple(word for word in more if word != "-v")
        done = inside("fit", *files, "--target", "cls", *quiet, *more, "-o", tmp_path / "model")
        assert done.returncode == 0, done.stderr
        return TableModel.load(tmp_path / "model"), done.stderr

    return run


def linked(model: TableModel) -> set[frozenset[object]]:
    assert model.graph is not None
    names = model.node_ids.tolist()
    return {frozenset((names[i], names[int(j)])) for i in range(len(names)) for j in model.graph.neighbors(i)}


def pairs(edges: list[dict[str, object]]) -> set[frozenset[object]]:
    return {frozenset(edge.values()) for edge in edges}


def test_ids_that_a_missing_value_made_floats(fit) -> None:
    ids = list(range(1, N + 1))
    edges = [{"source": f"{e['source']}.0", "target": e["target"]} for e in ring(ids)]
    model, _ = fit(rows([f"{i}.0" for i in ids]), [*edges, {"source": "", "target": 3}])
    assert model.columns.id == "id"
    assert sorted(model.node_ids.tolist()) == ids
    assert linked(model) == pairs(ring(ids))


def test_shuffled_numbers_that_edges_name_are_ids(fit) -> None:
    order = [(7 * i) % N for i in range(N)]
    nodes = [{("customer" if key == "id" else key): value for key, value in row.items()} for row in rows(order)]
    model, said = fit(nodes, ring(order), "-v")
    assert "note: every name in the edges is in column 'customer'" in said
    assert linked(model) == pairs(ring(order))
    model, said = fit(nodes, ring(order), "-v", "--numeric", "customer")
    assert "no column of the nodes is an id, so edges name rows by their number, from 0" in said
    assert model.columns.id is None


def test_categories_keep_their_text(fit, inside, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    nodes = rows(ids, version=[("1.10", "1.20")[i % 2] for i in range(N)])
    model, _ = fit(nodes, ring(ids), "--categorical", "version")
    assert {"version=1.10", "version=1.20"} <= set(model.preprocess.feature_names.tolist())
    X, _, known = model.preprocess.transform_known(records(nodes))
    assert known.tolist() == [1.0] * N
    done = inside("evaluate", tmp_path / "model", tmp_path / "nodes.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert X.shape[0] == N


def records(nodes: list[dict[str, object]]):
    """The rows as a stream gives them: every value is text."""
    import pyarrow as pa

    return pa.table({name: [str(row[name]) for row in nodes] for name in nodes[0]})


def test_names_that_look_like_numbers(fit, inside, tmp_path: Path) -> None:
    ids = [f"{i}{'EA'[i % 2]}{i % 7}" for i in range(N)]
    model, _ = fit(rows(ids), ring(ids))
    assert sorted(model.node_ids.tolist()) == sorted(ids)
    more = write(tmp_path / "more.csv", rows(["90E3", "91E3", "2E2"]))
    edges = write(
        tmp_path / "more_edges.csv", [{"source": "90E3", "target": "2E2"}, {"source": "91E3", "target": "4E4"}]
    )
    done = inside("predict", tmp_path / "model", more, "--edges", edges, "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert "note: 2 of 2 edges join a row to a known node" in done.stderr
    assert [row["id"] for row in read(tmp_path / "out.csv")] == ["90E3", "91E3", "2E2"]
    assert "1 of the rows are in the model" in inside("evaluate", tmp_path / "model", more).stderr
    done = inside("grow", tmp_path / "model", "--nodes", more, "--edges", edges)
    assert done.returncode == 0, done.stderr
    grown = TableModel.load(tmp_path / "model")
    assert grown.node_ids[-2:].tolist() == ["90E3", "91E3"]
    assert len(grown.node_ids) == N + 2
    assert {frozenset(("90E3", "2E2")), frozenset(("91E3", "4E4"))} <= linked(grown)


def test_ids_of_a_model_of_whole_numbers(fit, inside, tmp_path: Path) -> None:
    fit(rows(list(range(N))), ring(list(range(N))))
    new = write(tmp_path / "new.csv", rows(["50", "12.0", "1_0", "", "x", "12.5", "99999999999999999999"]))
    done = inside("predict", tmp_path / "model", new, "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert [row["id"] for row in read(tmp_path / "out.csv")] == ["50", "12"]
    rejected = [(row["id"], row["reason"]) for row in read(tmp_path / "out.rejects.csv")]
    assert [name for name, _ in rejected] == ["1_0", "", "x", "12.5", "99999999999999999999"]
    assert rejected[0][1] == "id is '1_0', expected a whole number"
    assert rejected[1][1] == "id is missing"


@pytest.mark.parametrize(
    ("values", "names"), [((-1, 1), ["-1", "1"]), (("False", "True"), ["false", "true"]), ((0, 1), ["0", "1"])]
)
def test_classes_of_other_kinds(fit, inside, tmp_path: Path, values: tuple, names: list[str]) -> None:
    ids = [f"n{i}" for i in range(N)]
    nodes = rows(ids, cls=[values[i % 2] for i in range(N)])
    model, said = fit(nodes, ring(ids), "-v")
    assert model.class_names is not None
    assert [str(name) for name in model.class_names] == names
    assert ("note: -1 is a class in column 'cls', of 20 rows" in said) == (-1 in values)
    done = inside("predict", tmp_path / "model", tmp_path / "nodes.csv", "-o", tmp_path / "out.csv")
    assert done.returncode == 0, done.stderr
    assert {row["class"] for row in read(tmp_path / "out.csv")} <= set(names)
    done = inside("evaluate", tmp_path / "model", tmp_path / "nodes.csv")
    assert "of a class that the model does not know" not in done.stderr


def test_where_every_row_is_rejected_the_old_output_stays(fit, inside, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    fit(rows(ids), ring(ids))
    (tmp_path / "out.csv").write_text("the old output")
    bad = write(tmp_path / "bad.csv", rows(["a", "b"], x=["much", "more"]))
    done = inside("predict", tmp_path / "model", bad, "-o", tmp_path / "out.csv", "-q")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: none of the 2 rows can be used" in done.stderr
    assert "row 1: x is 'much', expected a number" in done.stderr
    assert (tmp_path / "out.csv").read_text() == "the old output"
    assert len(read(tmp_path / "out.rejects.csv")) == 2
    done = inside("grow", tmp_path / "model", "--nodes", bad, "-o", tmp_path / "grown")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: none of the 2 rows can be used" in done.stderr
    assert not (tmp_path / "grown").exists()
    assert len(read(tmp_path / "grown.rejects.csv")) == 2


def test_no_input_is_written_over(fit, inside, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    fit(rows(ids), ring(ids))
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    kept = {path: path.read_bytes() for path in (nodes, edges)}
    (tmp_path / "new.rejects.csv").write_bytes(kept[nodes])
    for asked in (
        (nodes, "-o", tmp_path / "model" / ".." / "nodes.csv"),
        (tmp_path / "*.csv", "-o", nodes),
        (nodes, "--edges", edges, "-o", edges),
        (tmp_path / "new.rejects.csv", "-o", tmp_path / "new.csv"),  # where rejected rows would go
    ):
        done = inside("predict", tmp_path / "model", *asked)
        assert done.returncode == 1
        assert "would be written over, but it is read" in done.stderr
    assert {path: path.read_bytes() for path in kept} == kept
    assert (tmp_path / "new.rejects.csv").read_bytes() == kept[nodes]


def test_a_folder_that_holds_an_input_is_not_replaced(fit, inside, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    fit(rows(ids), ring(ids))
    model, store = tmp_path / "model", tmp_path / "store"
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    assert inside("ingest", "--nodes", nodes, "--edges", edges, "-q", "-o", store).returncode == 0
    for folder in (model, store):
        shutil.copy(nodes, folder)
    shutil.copytree(store, model / "store")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for asked in (
        ("fit", "--nodes", model / "nodes.csv", "--edges", edges, "-o", model),
        ("fit", "--nodes", model / "*.csv", "--edges", edges, "-o", model),
        ("fit", "--store", model / "store", "-o", model),
        ("grow", model, "--nodes", model / "nodes.csv"),
        ("ingest", "--nodes", store / "nodes.csv", "--edges", edges, "-o", store),
        ("ingest", "--nodes", store / "nodes.csv", "--edges", edges, "-o", store, "--fresh"),
    ):
        done = inside(*asked)
        assert done.returncode == 1, asked
        assert "would be replaced as a whole, but" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_report_or_an_export_is_written_over_nothing_that_is_read(fit, inside, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    fit(rows(ids), ring(ids))
    model, nodes, edges = tmp_path / "model", tmp_path / "nodes.csv", tmp_path / "edges.csv"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for report, words in (
        (nodes, "would be written over, but it is read"),
        (edges, "would be written over, but it is read"),
        (model / "config.json", "among the files of the model"),
        (model, "is a folder"),
        (nodes / "report.html", "cannot write"),
    ):
        done = inside("fit", "--nodes", nodes, "--edges", edges, "-o", model, "--report", report)
        assert done.returncode == 1
        assert words in done.stderr
        assert "reading the columns" not in done.stderr  # before the fit
    for output, words in ((model / "config.json", "would be written over, but it is read"), (model, "is a folder")):
        done = inside("export", model, "--onnx", "-o", output)
        assert done.returncode == 1
        assert words in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_report_deep_within_a_new_model(fit, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    fit(rows(ids), ring(ids), "--report", tmp_path / "model" / "pages" / "r.html")
    assert (tmp_path / "model" / "pages" / "r.html").is_file()


def test_a_link_in_a_folder_that_is_replaced(tmp_path: Path) -> None:
    (model := tmp_path / "model").mkdir()
    (tmp_path / "nodes.csv").touch()
    (model / "nodes.csv").symlink_to(tmp_path / "nodes.csv")
    refuse_overwriting(model, [tmp_path / "nodes.csv", tmp_path / "none.csv", None])
    with pytest.raises(OutputError, match="replaced as a whole"):
        refuse_overwriting(model, [model / "nodes.csv"])


def test_classes_that_hardly_two_rows_share(fit, inside, tmp_path: Path) -> None:
    ids = [f"n{i}" for i in range(N)]
    nodes = [{**row, "cls": f"c{i // 2 if i < 20 else i}"} for i, row in enumerate(rows(ids))]
    _, told = fit(nodes, ring(ids), "-v")
    assert " ".join(told.split()).count("column 'cls' has 30 classes in 40 labelled rows") == 1
    assert "nearly every label" not in told  # the estimators' own words for it
    assert "UserWarning" not in told
    write(tmp_path / "nodes.csv", [{**row, "cls": i} for i, row in enumerate(rows(ids))])
    files = ("--nodes", tmp_path / "nodes.csv", "--edges", tmp_path / "edges.csv", "--target", "cls")
    done = inside("fit", *files, "--id", "id", *FIT, "-o", tmp_path / "other")
    assert done.returncode == 1
    assert "column 'cls' has another class in each of its 40 labelled rows" in done.stderr
