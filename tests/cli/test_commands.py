"""The commands on a small graph: what they print and what they leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from gsparc import load_model
from gsparc.cli.files import NodeTable, align_columns, load_nodes, write_table
from gsparc.cli.info import _percent
from gsparc.estimators._shift import NodeShift
from gsparc.exceptions import FeatureError, InputError, OutputError

STEPS = ("--max-steps", "20")
NARROW = (*STEPS, "--components", "4")


def document(done) -> dict:
    """Standard output as the one JSON document that it must be."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def embedded(inside, small: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    folder = tmp_path_factory.mktemp("embedded")
    arguments = [
        "--new",
        small.with_name("new.npz"),
        "--model-out",
        folder / "map",
        "--components",
        "4",
        "--json",
    ]
    done = inside("embed", small, "-o", folder / "coords.parquet", *arguments, *STEPS)
    return document(done), folder


@pytest.fixture(scope="module")
def linked(inside, small: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    folder = tmp_path_factory.mktemp("linked")
    arguments = ["--new", small.with_name("new.npz"), "-k", "3", "--model-out", folder / "model", "--json"]
    done = inside("links", small, "-o", folder / "links.parquet", *arguments, *NARROW)
    return document(done), folder


def test_datasets(inside) -> None:
    names = {line["name"]: line for line in document(inside("datasets", "--json"))["datasets"]}
    assert names["debian"]["available"] is True
    assert "amazon2m" in names
    assert "debian" in inside("datasets").stdout


def test_info_of_data(inside, small: Path) -> None:
    facts = document(inside("info", small, "--json"))
    assert (facts["nodes"], facts["features"], facts["classes"], facts["labelled_nodes"]) == (150, 8, 3, 149)
    assert facts["edge_homophily"] == 1.0
    assert facts["feature_kind"] == "dense, real numbers, 100 % not zero"


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0 %"), (1, "100 %"), (0.99996, "99.9 %"), (0.5, "50.0 %"), (0.0042, "0.42 %"), (1e-6, "less than 0.01 %")],
)
def test_shares_in_words(share: float, words: str) -> None:
    assert _percent(share) == words


def test_embed_writes_known_and_new_nodes(embedded: tuple[dict, Path]) -> None:
    facts, folder = embedded
    table = pq.read_table(folder / "coords.parquet")
    assert table.column_names == ["id", "new", "c1", "c2", "c3", "c4"]
    assert (facts["rows"], facts["new_rows"], table.num_rows) == (155, 5, 155)
    assert table["id"].to_pylist()[:2] == ["n0", "n1"]
    assert table["id"].to_pylist()[-1] == "new4"
    assert sum(table["new"].to_pylist()) == 5
    assert len(facts["eigenvalues"]) == 4
    assert sorted(path.name for path in folder.iterdir()) == ["coords.parquet", "map"]


def test_a_saved_map_gives_the_same_coordinates(inside, embedded: tuple[dict, Path], small: Path, tmp_path) -> None:
    _, folder = embedded
    new = small.with_name("new.npz")
    done = inside("embed", "--model", folder / "map", "--new", new, "-o", tmp_path / "again.npz")
    assert done.returncode == 0, done.stderr
    assert "5 nodes (5 of them new), 4 coordinates each" in done.stdout
    table = pq.read_table(folder / "coords.parquet").slice(150)
    expected = np.column_stack([table[f"c{i}"].to_numpy() for i in range(1, 5)])
    with np.load(tmp_path / "again.npz", allow_pickle=False) as again:
        np.testing.assert_allclose(again["c"], expected, rtol=1e-5, atol=1e-6)
        assert again["id"].tolist() == [f"new{i}" for i in range(5)]


def test_info_of_a_model(inside, embedded: tuple[dict, Path]) -> None:
    facts = document(inside("info", embedded[1] / "map", "--json"))
    assert (facts["class"], facts["features"], facts["parameters"]["n_components"]) == ("SpectralMap", 8, 4)
    assert facts["eigenvalues"]["count"] == 4
    assert facts["learned_from"]["nodes"] <= 150


def test_a_damaged_model_is_refused(gsparc, embedded: tuple[dict, Path], small: Path, tmp_path: Path) -> None:
    shutil.copytree(embedded[1] / "map", tmp_path / "map")
    weights = tmp_path / "map" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    done = gsparc("embed", small, "--model", tmp_path / "map", "-o", tmp_path / "c.csv")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the model is damaged: weights.safetensors" in done.stderr
    assert not (tmp_path / "c.csv").exists()


def test_a_model_of_another_class_is_refused(inside, embedded: tuple[dict, Path], small: Path, tmp_path) -> None:
    new = small.with_name("new.npz")
    done = inside("links", "--model", embedded[1] / "map", "--new", new, "-o", tmp_path / "l.csv")
    assert done.returncode == 1
    assert "holds a SpectralMap, expected a SparcLinkPredictor" in done.stderr


def test_links_of_new_nodes(linked: tuple[dict, Path]) -> None:
    facts, folder = linked
    table = pq.read_table(folder / "links.parquet")
    assert table.column_names == ["id", "rank", "target", "score"]
    assert (facts["new_nodes"], facts["k"], table.num_rows) == (5, 3, 15)
    assert table["rank"].to_pylist() == [1, 2, 3] * 5
    assert set(table["target"].to_pylist()) <= {f"n{i}" for i in range(150)}
    scores = table["score"].to_numpy().reshape(5, 3)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_a_saved_link_model_gives_the_same_links(inside, linked: tuple[dict, Path], small: Path, tmp_path) -> None:
    new = small.with_name("new.npz")
    done = inside("links", "--model", linked[1] / "model", "--new", new, "-k", "3", "-o", tmp_path / "l.csv")
    assert done.returncode == 0, done.stderr
    first, again = pq.read_table(linked[1] / "links.parquet"), pa.csv.read_csv(tmp_path / "l.csv")
    assert again["target"].to_pylist() == first["target"].to_pylist()


def test_comparable_scores_keep_the_order_of_suggestions(inside, linked, small: Path, tmp_path) -> None:
    model = load_model(linked[1] / "model")
    model.shift_ = NodeShift(0.1, 1.0, 0.0)  # so few nodes choose none
    model.save(tmp_path / "model")
    tables = []
    for name, flags in (("plain", []), ("comparable", ["--comparable"])):
        file = tmp_path / f"{name}.parquet"
        new = small.with_name("new.npz")
        done = inside("links", "--model", tmp_path / "model", "--new", new, "-k", "3", "-o", file, *flags)
        assert done.returncode == 0, done.stderr
        tables.append(pq.read_table(file))
    plain, comparable = tables
    assert plain.drop(["score"]) == comparable.drop(["score"])
    taken = (plain["score"].to_numpy() - comparable["score"].to_numpy()).reshape(5, 3)
    assert np.ptp(taken, axis=1).max() < 1e-5  # one number from all scores of a node
    assert np.ptp(taken[:, 0]) > 1e-4  # and not the same for all


@pytest.mark.parametrize("command", ["embed", "links", "cluster"])
def test_no_input_is_written_over(inside, small: Path, command: str) -> None:
    new = small.with_name("new.npz")
    for output in (small, new):
        before = output.read_bytes()
        done = inside(command, small, "--new", new, "-o", output)
        assert done.returncode == 1
        assert "would be written over, but it is read" in done.stderr
        assert output.read_bytes() == before


def test_links_measured_on_held_out_nodes(inside, small: Path) -> None:
    facts = document(inside("links", small, "--json", *NARROW))
    methods = {row["method"]: row for row in facts["methods"]}
    assert set(methods) == {"gsparc", "cosine + popularity", "feature cosine"}
    assert all(0 < row["mrr"] <= 1 for row in methods.values())
    assert facts["seen"] + facts["cold"] <= 150


def test_demo_leaves_a_report_and_models(gsparc, small: Path, tmp_path: Path) -> None:
    done = gsparc("demo", "--dataset", small, "--quick", "-o", tmp_path / "out", "--json", *STEPS)
    facts = document(done)
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "classifier",
        "links",
        "report.html",
        "result.json",
    ]
    record = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert {"map", "spectrum", "history", "versions", "seed", "seconds"} <= set(record)
    assert {key: record[key] for key in facts if key in record} == {key: facts[key] for key in facts if key in record}
    assert [row["method"] for row in facts["classification"]] == ["MLP on features", "GLNN", "gsparc"]
    assert [row["method"] for row in facts["links"]][-1] == "gsparc"
    assert len(facts["summary"]) == 2
    assert facts["split"]["seen"] + facts["split"]["validation"] + facts["split"]["cold"] == 150
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("<svg") == 5
    assert "traceback" not in done.stderr.lower()


# The files that commands read and write, without a process.


def test_a_table_of_nodes_needs_no_edges(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "u": [1.0, 2.0], "v": [3, 4]})
    pq.write_table(table, tmp_path / "nodes.parquet")
    for source in (tmp_path, tmp_path / "nodes.parquet"):
        nodes = load_nodes(str(source))
        assert nodes.ids.tolist() == ["a", "b"]
        np.testing.assert_array_equal(nodes.X, [[1, 3], [2, 4]])


def test_columns_are_matched_by_name() -> None:
    new = NodeTable(np.array([[1.0, 2.0, 3.0]]), np.array([0]), np.array(["c", "a", "b"]), "new")
    np.testing.assert_array_equal(align_columns(new, ["a", "b", "c"], "the map"), [[2.0, 3.0, 1.0]])
    np.testing.assert_array_equal(align_columns(new, None, "the map"), new.X)
    with pytest.raises(FeatureError, match="new has 3 features, the map was fitted on 2; missing: d"):
        align_columns(new, ["a", "d"], "the map")


def test_label_names_a_column_that_is_no_feature(inside, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = {"u": rng.normal(size=30), "y": rng.normal(size=30), "kind": np.arange(30) % 3}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    edges = {"source": np.arange(29), "target": np.arange(1, 30), "weight": np.linspace(1, 2, 29)}
    pq.write_table(pa.table(edges), tmp_path / "edges.parquet")
    # new nodes: a y that alone would look like classes, and labels that are missing or no classes at all
    new = pa.table({"kind": pa.array([None, 7.5]), "y": [1.0, 2.0], "label": [-9.5, None], "u": [0.5, 1.5]})
    pq.write_table(new, tmp_path / "new.parquet")
    model = tmp_path / "map"
    arguments = ["--new", tmp_path / "new.parquet", "-o", tmp_path / "c.csv", "--model-out", model, "--json"]
    arguments += ["--components", "2", *STEPS]
    facts = document(inside("embed", tmp_path, "--label", "kind", *arguments))
    assert (facts["rows"], facts["new_rows"]) == (32, 2)
    assert document(inside("info", model, "--json"))["features"] == 2
    assert document(inside("info", tmp_path, "--json"))["weighted"] is True


def test_new_tables_without_known_names(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": [1.0, 2.0], "label": [-9.5, None]}), tmp_path / "new.parquet")
    assert load_nodes(str(tmp_path / "new.parquet")).feature_names.tolist() == ["u"]
    pq.write_table(pa.table({"v": [[1.0, 2.0]], "w": [3.0], "other": [None]}), tmp_path / "new.parquet")
    nodes = load_nodes(str(tmp_path / "new.parquet"), ["w", "v[0]", "v[1]"])
    np.testing.assert_array_equal(align_columns(nodes, ["w", "v[0]", "v[1]"], "the map"), [[3, 1, 2]])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.ones((3, 2)), "node_ids": np.arange(2)}, r"node_ids have shape \(2,\), but there are 3 rows"),
        ({"x": np.ones((3, 2)), "feature_names": np.array(["a"])}, r"feature_names .* there are 2 features"),
        ({"x": np.ones((0, 2))}, "has no rows"),
    ],
)
def test_new_nodes_that_do_not_fit_together(tmp_path: Path, arrays: dict, words: str) -> None:
    np.savez(tmp_path / "new.npz", **arrays)
    with pytest.raises(InputError, match=rf"new\.npz.*{words}"):
        load_nodes(str(tmp_path / "new.npz"))


def test_where_a_sparse_feature_is_not_finite() -> None:
    X = sp.csr_array(np.array([[0, 0, 0], [0, 0, 0], [0, 1, np.nan]]))
    new = NodeTable(X, np.array(["a", "b", "c"]), np.array(["p", "q", "r"]), "new.npz")
    with pytest.raises(FeatureError, match=r"new\.npz: .* row 3 \(id c\), column 'r' is nan"):
        align_columns(new, None, "the map")
    assert align_columns(new, ["q", "p"], "the map").shape == (3, 2)  # a column that is not used may hold anything


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_tables_are_complete_or_absent(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"table{suffix}"
    write_table(path, {"id": np.array(["x", "y"]), "c": np.array([[1.0, 2.0], [3.0, 4.0]])})
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OutputError, match="No space left"):
        write_table(path, {"id": np.array([1])})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
