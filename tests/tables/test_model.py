"""TableModel: two tables in, answers out; saved, loaded, grown, and honest about what it has not seen."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gsparc import SparcClassifier
from gsparc.exceptions import FeatureError, GraphError, InputError, LabelError, ModelFolderError, UnknownNameError
from gsparc.model_store import write_folder
from gsparc.tables.answering import space
from gsparc.tables.columns import guess_columns, guess_edge_columns
from gsparc.tables.fitting import FitSettings, prepare
from gsparc.tables.model import TableModel
from gsparc.tables.reading import read_table
from gsparc.tables.streaming import FirstEdges, predict_file
from gsparc.training import loop

QUICK = {"backbone": "mlp", "max_steps": 15, "device": "cpu"}


def fit(nodes: pa.Table, edges: pa.Table, *, target: str | None = "section", **settings) -> TableModel:
    columns = guess_columns(nodes, id="package", target=target)
    return TableModel.fit(nodes, edges, columns, guess_edge_columns(edges), **(QUICK | settings))


@pytest.fixture(scope="module")
def fitted(tables) -> TableModel:
    return fit(tables.nodes, tables.edges, tasks=("classes", "links", "clusters"), n_clusters=3)


@pytest.fixture
def model(fitted: TableModel) -> TableModel:
    return copy.deepcopy(fitted)


def test_every_row_is_known_after_the_fit(fitted: TableModel, tables) -> None:
    assert sorted(fitted.node_ids.tolist()) == sorted(tables.nodes["package"].to_pylist())
    assert fitted.tasks == ("classes", "links", "clusters")
    nodes = fitted.nodes()
    section = dict(zip(tables.nodes["package"].to_pylist(), tables.nodes["section"].to_pylist(), strict=True))
    assert nodes["class"].tolist() == [section[name] for name in nodes["id"].tolist()]
    assert nodes["position"].shape == (240, 2)
    assert set(np.unique(nodes["cluster"])) <= {0, 1, 2}
    split = fitted.report["split"]
    assert split["seen"] + split["validation"] + split["cold"] == 240
    assert 22 <= split["cold"] <= 26


def test_the_summary_answers_whether_the_graph_helps(fitted: TableModel) -> None:
    first, *rest = fitted.report["summary"]
    assert first.startswith("Does the graph help on this data? ")
    assert "accuracy over an MLP on the features" in first
    assert any("GLNN" in line for line in rest)
    assert any("feature cosine" in line for line in rest)
    assert any("Prediction sets that promise 90 %" in line for line in rest)
    methods = [row["method"] for row in fitted.report["classification"]]
    assert methods == ["MLP on features", "GLNN", "gsparc"]
    assert [line["edges"] for line in fitted.report["first_edges"]] == [0, 1, 2, 4, 8]
    json.dumps(fitted.report, allow_nan=False)


def test_new_rows_are_predicted(fitted: TableModel, tables) -> None:
    said = fitted.predict(tables.new, links=4, near=3)
    assert (said.classes == np.array(tables.new["section"].to_pylist())).mean() > 0.7
    assert said.proba is not None
    np.testing.assert_allclose(said.proba.sum(axis=1), 1, atol=1e-5)
    assert said.links is not None
    assert said.links[0].shape == (40, 4)
    assert said.near is not None
    assert said.near[0].shape == (40, 3)
    assert set(said.near[0].ravel().tolist()) <= set(fitted.node_ids.tolist())
    assert said.ids.tolist() == tables.new["package"].to_pylist()
    assert said.position is not None
    assert np.isfinite(said.position).all()
    table = said.to_arrow()
    assert table.num_rows == 40
    assert table["set"].type == pa.list_(pa.string())


@pytest.mark.parametrize("tasks", [("classes", "links"), ("links",), ("clusters",)])
def test_a_known_row_is_not_suggested_to_itself(fitted: TableModel, tables, tasks: tuple[str, ...]) -> None:
    model = copy.copy(fitted)
    for task, part in {"classes": "classifier", "links": "links", "clusters": "clusterer"}.items():
        if task not in tasks:
            setattr(model, part, None)
    if tasks == ("clusters",):
        model.space_rows = space(model.parts, model.features(tables.nodes)[0][fitted_order(model, tables)])
    unknown = tables.nodes.set_column(0, "package", pa.array([f"new {i}" for i in range(240)]))
    known, new = model.predict(tables.nodes, position=False), model.predict(unknown, position=False)
    for asked in ("links", "near"):
        if getattr(new, asked) is None:
            continue
        found, before = getattr(known, asked)[0].tolist(), getattr(new, asked)[0].tolist()
        assert any(name in row for name, row in zip(known.ids.tolist(), before, strict=True))
        for name, row, old in zip(known.ids.tolist(), found, before, strict=True):
            assert name not in row
            assert len(set(row)) == 5
            assert row[:4] == [other for other in old if other != name][:4]
    numbered = model.predict(tables.nodes.drop_columns(["package"]), position=False)  # no ids: nobody is left out
    assert numbered.near is not None
    assert new.near is not None
    assert numbered.near[0].tolist() == new.near[0].tolist()


def fitted_order(model: TableModel, tables) -> np.ndarray:
    """Rows of the node table in the order of the model's nodes."""
    place = {name: row for row, name in enumerate(tables.nodes["package"].to_pylist())}
    return np.array([place[name] for name in model.node_ids.tolist()])


def test_one_row_is_answered_as_among_others(fitted: TableModel, tables) -> None:
    together = fitted.predict(tables.new).records()
    alone = fitted.predict(tables.new.slice(7, 1)).records()[0]
    batch = fitted.predict(tables.new.slice(7, 1).combine_chunks().to_batches()[0]).records()[0]
    assert alone == batch
    assert alone["class"] == together[7]["class"]
    assert [n["id"] for n in alone["near"]] == [n["id"] for n in together[7]["near"]]
    assert alone["confidence"] == pytest.approx(together[7]["confidence"], abs=1e-5)


def test_columns_in_any_order_and_vectors(fitted: TableModel, tables) -> None:
    expected = fitted.predict(tables.new).proba
    names = tables.new.column_names[::-1]
    shuffled = tables.new.select(names).append_column("extra", pa.nulls(40))
    np.testing.assert_array_equal(fitted.predict(shuffled).proba, expected)
    X, bad = fitted.features(tables.new)
    assert bad == {}
    np.testing.assert_array_equal(fitted.predict(X).proba, expected)
    assert fitted.predict(X.toarray()).ids.tolist() == list(range(40))
    with pytest.raises(FeatureError, match=r"rows of shape \(1, 3\) came, expected \d+ features"):
        fitted.predict(np.zeros((1, 3)))
    with pytest.raises(FeatureError, match="no column 'arch'"):
        fitted.predict(tables.new.drop_columns(["arch"]))
    assert fitted.predict(tables.new.slice(0, 0)).to_arrow().num_rows == 0


def test_known_edges_count(fitted: TableModel, tables) -> None:
    cold = fitted.predict(tables.new).proba
    none = fitted.predict(tables.new, edges=(np.zeros(0, int), np.zeros(0, int))).proba
    np.testing.assert_array_equal(cold, none)
    net = np.flatnonzero(fitted.nodes()["class"] == "net")[:6]
    moved = fitted.predict(tables.new, edges=(np.zeros(6, int), net)).proba
    assert moved is not None
    assert cold is not None
    assert moved[0, 2] > cold[0, 2]
    np.testing.assert_array_equal(moved[1:], cold[1:])


def test_a_row_that_cannot_be_read_harms_no_other(fitted: TableModel, tables) -> None:
    sizes = ["1.5"] * 40
    sizes[3] = "many"
    table = tables.new.set_column(3, "installed_size", pa.array(sizes))
    said = fitted.predict(table)
    assert said.bad == {3: "installed_size is 'many', expected a number"}
    assert said.to_arrow().num_rows == 39
    assert said.records()[3] == {"id": "p243", "error": "installed_size is 'many', expected a number"}
    good = fitted.predict(table.filter(pa.array([i != 3 for i in range(40)])))
    np.testing.assert_allclose(said.proba[said.good], good.proba, atol=1e-5)


def test_it_abstains_where_it_knows_nothing(fitted: TableModel, tables) -> None:
    strange = pa.table(
        {
            "description": ["", None, "w1 w2 w3 w4"],
            "installed_size": [None, None, 0.1],
            "arch": [None, "", "x86"],
        }
    )
    said = fitted.predict(strange)
    assert said.why is not None
    assert said.why[:2] == ["nothing of it is known"] * 2
    assert said.abstained is not None
    assert said.abstained.tolist()[:2] == [True, True]
    usual = fitted.predict(tables.new).abstained
    assert usual is not None
    assert usual.mean() < 0.3


def test_only_what_is_asked_for(fitted: TableModel, tables) -> None:
    bare = fitted.predict(tables.new, coverage=None, links=0, near=0, position=False, abstain=False)
    assert bare.to_arrow().column_names == ["id", "class", "confidence", "cluster", "membership"]
    np.testing.assert_allclose(bare.proba, fitted.predict(tables.new).proba, atol=1e-6)
    sure = fitted.predict(tables.new, coverage=0.99).members.sum()
    assert sure >= fitted.predict(tables.new, coverage=0.5).members.sum()
    quick = fitted.predict(tables.new, near=0, links=0, abstain=False).members
    np.testing.assert_array_equal(quick, fitted.predict(tables.new).members)
    with pytest.raises(InputError, match=r"coverage=1\.5"):
        fitted.predict(tables.new, coverage=1.5)


def test_many_rows_at_once_are_judged_as_few(fitted: TableModel, tables, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tables.new["description"].to_pylist()
    words[:20] = ["w1 w9 w17 w1 w9 w17 w23"] * 20
    odd = tables.new.set_column(2, "description", pa.array(words)).set_column(3, "installed_size", pa.array([9.0] * 40))
    asked = {"links": 0, "near": 0, "position": False}
    for limit in (0.0, 0.2, 0.5):  # rows on both sides of it
        monkeypatch.setattr("gsparc.tables.answering._FAR_BELOW", limit)
        few = fitted.predict(odd, **asked)
        monkeypatch.setattr("gsparc.tables.answering.BULK_ROWS", 1)
        many = fitted.predict(odd, **asked)
        monkeypatch.undo()
        assert many.why == few.why
        np.testing.assert_allclose(many.proba, few.proba, atol=1e-6)
        np.testing.assert_array_equal(many.members, few.members)
    assert 0 < np.array([why.startswith("far") for why in few.why]).sum() < 40


def test_a_saved_model_says_the_same(fitted: TableModel, tables, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model", documents={"report.html": b"<html>"})
    loaded = TableModel.load(tmp_path / "model")
    assert loaded.predict(tables.new).records() == fitted.predict(tables.new).records()
    assert loaded.report == json.loads(json.dumps(fitted.report))
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "checksums.json",
        "config.json",
        "preprocess.skops",
        "report.html",
        "weights.safetensors",
    ]
    loaded.save(tmp_path / "model")  # as after grow: the report of the fit stays
    assert (tmp_path / "model" / "report.html").read_bytes() == b"<html>"
    write_folder(tmp_path / "other", {"class": "SparcClassifier"}, {})
    with pytest.raises(ModelFolderError, match="holds a SparcClassifier"):
        TableModel.load(tmp_path / "other")


def test_new_rows_join_at_once(model: TableModel, tables) -> None:
    before = model.predict(tables.new.slice(0, 1), near=1).near[0][0, 0]
    assert before != "p240"
    grown = model.grow(tables.new, tables.new_edges)
    assert (grown["added"], grown["nodes"], grown["labelled"]) == (40, 280, 40)
    assert grown["drift"]["sentence"]
    assert model.find(["p240", "p279", "nobody"]).tolist() == [240, 279, -1]
    twin = tables.new.slice(0, 1).drop_columns(["package"])
    assert model.predict(twin, near=1).near[0][0, 0] == "p240"
    assert model.nodes()["position"].shape == (280, 2)
    assert model.labels()[240:].tolist() == tables.new["section"].to_pylist()
    again = model.grow(tables.new, tables.new_edges)  # a command that was repeated
    assert (again["added"], again["already_known"], again["nodes"]) == (0, 40, 280)


def linked(model: TableModel, name: str) -> set[str]:
    ends = model.neighbours(int(model.find([name])[0]))
    assert ends is not None
    assert len(set(ends.tolist())) == len(ends)
    return set(model.node_ids[ends].tolist())


def listed(name: str, *tables: pa.Table) -> set[str]:
    """Who an edge table links to a node."""
    pairs = [pair for t in tables for pair in zip(t["source"].to_pylist(), t["target"].to_pylist(), strict=True)]
    return ({b for a, b in pairs if a == name} | {a for a, b in pairs if b == name}) - {name}


@pytest.mark.parametrize("tasks", [("classes", "links"), ("classes",), ("clusters",)])
def test_neighbours_are_those_of_the_edge_table(tasks: tuple[str, ...], tables, tmp_path: Path) -> None:
    made = fit(tables.nodes, tables.edges, tasks=tasks, n_clusters=3, target="section" if "classes" in tasks else None)
    made.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model")
    for name in ("p0", "p1", "p239"):
        assert linked(made, name) == linked(loaded, name) == listed(name, tables.edges) != set()
    before = loaded.num_edges
    assert before == made.report["data"]["edges"]
    loaded.grow(tables.new, tables.new_edges)
    loaded.save(tmp_path / "model")
    grown = TableModel.load(tmp_path / "model")
    for name in ("p0", "p1", "p240", "p279"):
        assert linked(grown, name) == listed(name, tables.edges, tables.new_edges)
    assert before < grown.num_edges <= before + tables.new_edges.num_rows


def test_more_clusters_than_rows_are_said(tables) -> None:
    model = fit(tables.nodes.slice(0, 60), tables.edges, tasks=("clusters",), n_clusters=500, target=None)
    assert "53 clusters: 500 were asked for, but the fit sees 54 rows" in model.report["notes"]
    assert model.clusterer.n_clusters == 53


def test_edges_are_kept_once(tables) -> None:
    model = fit(tables.nodes, tables.edges, tasks=("links",), target=None)
    assert (model.own_graph is None) == (model.links._graph is not None)
    weights = pa.array([2.0] * tables.edges.num_rows)
    weighted = fit(tables.nodes, tables.edges.append_column("weight", weights), tasks=("classes",))
    assert weighted.own_graph is not None
    assert weighted.own_graph.weights is None  # who is linked to whom, no more


def test_a_folder_without_edges_still_loads(tables, tmp_path: Path) -> None:
    model = fit(tables.nodes, tables.edges, tasks=("classes",))
    model.own_graph = None  # as a model was before edges were kept
    model.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model")
    assert loaded.neighbours(0) is None
    assert loaded.num_edges == model.report["data"]["edges"]
    loaded.grow(tables.new, tables.new_edges)
    assert loaded.neighbours(240) is None


def test_longer_ids_stay_as_they_are_written(model: TableModel, tables, tmp_path: Path) -> None:
    names = ["a much longer name 1", "a much longer name 2"]
    more = tables.new.slice(0, 2).set_column(0, "package", pa.array(names))
    edges = pa.table({"source": [names[0], "p1"], "target": ["p0", names[1]]})
    grown = model.grow(more, edges)
    assert (grown["added"], grown["edges"]["used"], grown["edges"]["unknown"]) == (2, 2, 0)
    assert model.node_ids[-2:].tolist() == names
    model.save(tmp_path / "model")
    again = TableModel.load(tmp_path / "model")
    assert again.node_ids[-2:].tolist() == names
    assert (again.grow(more)["added"], again.grow(more)["already_known"]) == (0, 2)


def test_a_known_row_is_known_however_its_id_is_stored(tables) -> None:
    numbers = [int(name[1:]) for name in tables.nodes["package"].to_pylist()]
    ends = {end: [int(name[1:]) for name in tables.edges[end].to_pylist()] for end in ("source", "target")}
    nodes = tables.nodes.set_column(0, "package", pa.array(numbers))
    model = fit(nodes, pa.table(ends), tasks=("links",), target=None)
    rows = nodes.slice(0, 2)
    alone = model.predict(rows, links=3).links[0].tolist()
    assert not ({0, 1} & {alone[0][0], alone[1][1]})
    for ids in (pa.array([0.0, 1.0]), pa.array(["0", "1"]), pa.array(["0", "x"])):  # a service mixes requests
        found = model.predict(rows.set_column(0, "package", ids), links=3).links[0].tolist()
        assert found[0] == alone[0]


def test_edges_of_new_rows_may_have_columns_of_other_names(model: TableModel, tables) -> None:
    named = {"dst": tables.new_edges["target"], "src": tables.new_edges["source"]}
    weighed = pa.table(named | {"weight": pa.array(range(tables.new_edges.num_rows))})  # 0 would be left out
    grown = model.grow(tables.new, weighed)
    assert grown["edges"]["unknown"] == grown["edges"]["bad_weight"] == 0
    assert linked(model, "p240") == listed("p240", tables.edges, tables.new_edges)


def test_rows_of_other_kinds_grow_too(model: TableModel, tables) -> None:
    odd = pa.table(
        {
            "package": ["a", "b", "p0"],
            "section": ["games", None, "net"],
            "description": ["w1 w2", "w3", "w4"],
            "installed_size": ["1", "x", "2"],
            "arch": ["arm", "arm", "arm"],
        }
    )
    grown = model.grow(odd)
    assert (grown["added"], grown["already_known"], grown["unknown_classes"]) == (1, 1, 1)
    assert grown["bad"] == {1: "installed_size is 'x', expected a number"}
    assert model.labels()[-1] is None
    with pytest.raises(InputError, match="no column 'package', which holds the ids"):
        model.grow(odd.drop_columns(["package"]))


def test_measured_on_labelled_rows(fitted: TableModel, tables) -> None:
    found = fitted.evaluate(tables.new)
    classes = found["classes"]
    right = fitted.predict(tables.new).classes == np.array(tables.new["section"].to_pylist())
    assert classes["accuracy"] == pytest.approx(right.mean())
    assert classes["rows"] == 40
    assert sum(line["rows"] for line in classes["by_class"]) == 40
    assert found["links"] is None
    rows, places = FirstEdges(fitted, tables.new_edges, fitted.edge_columns).of(np.array(tables.new["package"]))
    ranked = fitted.evaluate(tables.new, links=(rows, places))["links"]
    assert 0 < ranked["mrr"] <= 1
    with pytest.raises(LabelError, match="no column 'section'"):
        fitted.evaluate(tables.new.drop_columns(["section"]))
    unlabelled = tables.new.set_column(1, "section", pa.nulls(40, pa.string()))
    with pytest.raises(LabelError, match="no row of the table has a class"):
        fitted.evaluate(unlabelled)
    strange = tables.new.set_column(1, "section", pa.array(["games"] * 40))
    assert fitted.evaluate(strange)["classes"]["accuracy"] == 0  # a class it cannot know counts as missed


def test_whole_numbers_as_ids_and_classes(tables) -> None:
    number = {"admin": 0, "libs": 5, "net": 7}
    section = [None if s is None else number[s] for s in tables.nodes["section"].to_pylist()]
    nodes = tables.nodes.set_column(0, "package", pa.array(range(1000, 1240))).set_column(
        1, "section", pa.array(section)
    )
    ends = {name: [str(1000 + int(v[1:])) for v in tables.edges[name].to_pylist()] for name in ("source", "target")}
    model = fit(nodes, pa.table(ends), tasks=("classes",))
    assert model.node_ids.dtype == np.int64
    said = model.predict(nodes.slice(0, 5), near=2)
    assert set(said.classes.tolist()) <= {0, 5, 7}
    assert said.to_arrow().schema.field("class").type == pa.int64()
    assert said.near[0].dtype == np.int64


@pytest.mark.parametrize("task", ["links", "clusters"])
def test_without_classes(task: str, tables, tmp_path: Path) -> None:
    nodes = tables.nodes.drop_columns(["section"])
    model = fit(nodes, tables.edges, target=None, tasks=(task,), n_clusters=4)
    model.save(tmp_path / "m")
    loaded = TableModel.load(tmp_path / "m")
    records = loaded.predict(tables.new).records()
    assert records == model.predict(tables.new).records()
    assert records[0]["class"] is None
    assert len(records[0]["near"]) == 5
    assert (len(records[0]["links"]), records[0]["cluster"] is None) == ((5, True) if task == "links" else (0, False))
    assert loaded.grow(tables.new, tables.new_edges)["added"] == 40
    twin = tables.new.slice(3, 1).drop_columns(["package"])
    assert loaded.predict(twin, near=1).near[0].tolist() == [["p243"]]


def test_nothing_is_fitted_to_rows_that_pretend_to_be_new(tables) -> None:
    columns, ends = guess_columns(tables.nodes, target="section"), guess_edge_columns(tables.edges)
    settings = FitSettings(("classes",), seed=0)
    cold = prepare(tables.nodes, tables.edges, columns, ends, settings, lambda note: None).split.cold
    words = np.array(tables.nodes["description"].to_pylist(), dtype=object)
    words[cold] = "other words entirely"
    names = set(np.array(tables.nodes["package"])[cold].tolist())
    pairs = zip(tables.edges["source"].to_pylist(), tables.edges["target"].to_pylist(), strict=True)
    kept = pa.array([a not in names and b not in names for a, b in pairs])
    changed = tables.nodes.set_column(2, "description", pa.array(words.tolist()))
    one = fit(tables.nodes, tables.edges, tasks=("classes",))
    other = fit(changed, tables.edges.filter(kept), tasks=("classes",))
    assert one.preprocess.feature_names.tolist() == other.preprocess.feature_names.tolist()
    for (name, left), right in zip(
        one.classifier._state()[1].items(), other.classifier._state()[1].values(), strict=False
    ):
        if name.startswith(("map.", "head")):
            np.testing.assert_array_equal(left, right, err_msg=name)


def test_a_fit_that_was_stopped_goes_on(tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit(tables.nodes, tables.edges, tasks=("classes",))
    real, said = SparcClassifier.fit, []

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SparcClassifier, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        fit(tables.nodes, tables.edges, tasks=("classes",), checkpoint=tmp_path / "state")
    monkeypatch.setattr(SparcClassifier, "fit", real)
    resumed = fit(
        tables.nodes,
        tables.edges,
        tasks=("classes",),
        checkpoint=tmp_path / "state",
        progress=lambda line, done: said.append(line),
    )
    assert sum(line.endswith("done before") for line in said) == 2  # the two baselines
    assert resumed.predict(tables.new).records() == whole.predict(tables.new).records()


def contents(model: TableModel, folder: Path) -> dict[str, bytes]:
    """What a model is saved as, without the times that its report holds."""
    model.report = {name: value for name, value in model.report.items() if name not in ("seconds", "created")}
    model.save(folder)
    return {name: (folder / name).read_bytes() for name in ("config.json", "weights.safetensors")}


def test_networks_that_were_ready_are_not_trained_again(
    tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, trained, stops = loop._run, [], set()

    def counted(*given):
        if len(trained) in stops:
            stops.remove(len(trained))
            raise KeyboardInterrupt
        if given[1].description != "spectral map":  # that of the classifier goes on from a checkpoint of its own
            trained.append(given[1].description)
        return real(*given)

    monkeypatch.setattr(loop, "_run", counted)
    monkeypatch.setattr("gsparc.tables.estimating._QUICK_FROM", 0)  # the heads of a large graph, which are fewer
    settings = {"tasks": ("classes", "links"), "backbone": "auto", "max_steps": 3}
    whole = fit(tables.nodes, tables.edges, **settings)
    once = trained.copy()
    assert len(once) >= 10
    trained.clear()
    stops |= {4, 7, len(once) - 1}  # among the teachers, among the heads, in the link predictor
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            fit(tables.nodes, tables.edges, **settings, checkpoint=tmp_path / "state")
    resumed = fit(tables.nodes, tables.edges, **settings, checkpoint=tmp_path / "state")
    assert trained == once
    assert contents(resumed, tmp_path / "resumed") == contents(whole, tmp_path / "whole")
    assert list((tmp_path / "state" / "loops").iterdir()) == []  # what is in the result is not kept twice


@pytest.mark.parametrize(
    ("change", "settings", "error", "pattern"),
    [
        ({"section": ["a"] * 240}, {}, LabelError, "one class only"),
        ({"section": pa.nulls(240, pa.string())}, {}, LabelError, "no class at all"),
        ({"package": ["x"] * 240}, {}, InputError, "column 'package'.*more than one row: 'x'"),
        ({"package": [None] + [f"p{i}" for i in range(239)]}, {}, InputError, "in column 'package': row 1"),
        ({"package": [f"q{i}" for i in range(240)]}, {}, GraphError, "none of the .* edges"),
        ({}, {"tasks": ("class",)}, UnknownNameError, "unknown task 'class'"),
        ({}, {"backbone": "gnn"}, UnknownNameError, "unknown backbone"),
        ({}, {"holdout": 0.9}, InputError, "holdout"),
        ({}, {"tasks": ()}, InputError, "no task came"),
    ],
)
def test_what_cannot_be_fitted_is_said(tables, change: dict, settings: dict, error: type, pattern: str) -> None:
    nodes = tables.nodes
    for name, values in change.items():
        nodes = nodes.set_column(nodes.column_names.index(name), name, pa.array(values))
    columns = guess_columns(tables.nodes, target="section")
    with pytest.raises(error, match=pattern):
        TableModel.fit(nodes, tables.edges, columns, guess_edge_columns(tables.edges), **(QUICK | settings))


def test_a_file_is_streamed(fitted: TableModel, tables, tmp_path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(tables.new, tmp_path / "new.csv")
    text = (tmp_path / "new.csv").read_text().splitlines()
    text[3] = "one field"
    text[5] = text[5].replace(text[5].split(",")[3], "abc")
    text.append(',"net","w1",1,"arm"')
    (tmp_path / "new.csv").write_text("\n".join(text) + "\n")
    done: list[int] = []
    edges = FirstEdges(fitted, tables.new_edges, fitted.edge_columns)
    facts = predict_file(
        fitted, tmp_path / "new.csv", tmp_path / "out.parquet", edges=edges, batch_rows=16, progress=done.append
    )
    assert (facts["rows"], facts["rejected"]) == (38, 3)
    out = read_table(tmp_path / "out.parquet")
    assert out.num_rows == 38
    rejects = read_table(tmp_path / "out.rejects.csv").to_pylist()
    assert {(line["row"], line["reason"]) for line in rejects} == {
        (3, "the row has 1 fields, the header has 5"),
        (5, "installed_size is 'abc', expected a number"),
        (41, "package is missing"),
    }
    assert done == [16, 32, 40]
    rows, places = FirstEdges(fitted, tables.new_edges, fitted.edge_columns).of(np.array(tables.new["package"]))
    whole = fitted.predict(tables.new, edges=(rows, places)).classes.tolist()
    kept = [name for i, name in enumerate(whole) if i not in (2, 4)]
    assert out["class"].to_pylist() == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "out.parquet", "out.rejects.csv"]
