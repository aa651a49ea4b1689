"""Cells, plans and rows of a table, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsparc.exceptions import InputError, UnknownNameError
from gsparc.experiments.engine import GENERATED_SIZES, Cell, Context, Experiment, plan
from gsparc.experiments.results import plain
from gsparc.experiments.rows import NOT_RUN, group_order, group_rows

WORDS = st.text("abcdefgh 0123456789.-,()", max_size=12)


@given(WORDS, WORDS, WORDS, st.integers(0, 99))
def test_a_key_names_its_cell(dataset: str, setting: str, method: str, seed: int) -> None:
    cell = Cell(dataset, setting, method, seed)
    assert Cell.from_key(cell.key) == cell


def test_an_empty_setting_survives_the_key() -> None:
    assert Cell("cora", "", "GLNN", 3).key == "cora |  | GLNN | 3"
    assert Cell.from_key("cora |  | GLNN | 3").setting == ""


def test_plan_is_ordered_with_seeds_innermost(fake: Experiment) -> None:
    keys = [cell.key for cell in plan(fake, seeds=(0, 4), methods=["b", "OURS"])]
    assert keys == [
        "generated | dense | Ours | 0",
        "generated | dense | Ours | 4",
        "generated | dense | B | 0",
        "generated | dense | B | 4",
        "generated | few | Ours | 0",
        "generated | few | Ours | 4",
        "generated | few | B | 0",
        "generated | few | B | 4",
    ]


def test_plan_of_a_smoke_run(fake: Experiment) -> None:
    real = replace(fake, datasets=("cora", "pubmed"))
    assert {cell.dataset for cell in plan(real, seeds=[0])} == {"cora", "pubmed"}
    assert {(cell.dataset, cell.setting) for cell in plan(real, seeds=[0], smoke=True)} == {("generated", "dense")}
    axis = replace(fake, x_axis="share", settings=lambda name: ("0.1", "0.3", "0.7"))
    assert {cell.setting for cell in plan(axis, seeds=[0], smoke=True)} == {"0.1", "0.7"}
    assert {cell.dataset for cell in plan(real, seeds=[0], smoke=True, datasets=["cora"])} == {"cora"}


@pytest.mark.parametrize(
    ("part", "match"),
    [
        ({"methods": ["our"]}, "unknown method 'our'. Did you mean 'Ours'"),
        ({"datasets": ["coar"]}, "unknown data set 'coar'. Did you mean 'cora'"),
        ({"settings": ["dens"]}, "unknown setting 'dens'. Did you mean 'dense'"),
    ],
)
def test_unknown_names_offer_the_nearest(fake: Experiment, part: dict[str, list[str]], match: str) -> None:
    with pytest.raises(UnknownNameError, match=match):
        plan(fake, seeds=[0], **part)


def test_a_wrong_setting_beside_a_right_one_is_refused(fake: Experiment) -> None:
    with pytest.raises(UnknownNameError, match="unknown setting 'fwe'"):
        plan(fake, seeds=[0], settings=["dense", "fwe"])


def test_an_empty_plan_is_refused(fake: Experiment) -> None:
    with pytest.raises(InputError, match="no cell is left"):
        plan(fake, seeds=[])


def cells_of(fake: Experiment, *, seeds: tuple[int, ...] = (0, 1, 2), methods: str = "Ours A B") -> dict[str, dict]:
    cells = {}
    for method in methods.split():
        for seed in seeds:
            cell = Cell("generated", "dense", method, seed)
            numbers = dict(fake.run(cell, Context("generated", "cpu")))
            cells[cell.key] = {"numbers": plain(numbers), "seconds": float(seed)}
    return cells


def test_rows_worked_out_by_hand(fake: Experiment) -> None:
    rows = {row["method"]: row for row in group_rows(fake, "generated", "dense", cells_of(fake))}
    assert list(rows) == ["Ours", "A", "B", "Broken", "NA"]
    ours, a = rows["Ours"]["metrics"]["cold"], rows["A"]["metrics"]["cold"]
    assert (ours["mean"], ours["seeds"], ours["paper"]) == (63.0, 3, 64.5)
    assert ours["spread"] == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    assert (a["mean"], a["paper"], a["difference"]) == (60.0, None, None)  # the best baseline itself
    difference = ours["difference"]
    # 2, 1 and 6: mean 3, variance (1 + 4 + 9) / 2 = 7; Student's t for two degrees of freedom is 4.302653
    half = 4.302653 * math.sqrt(7 / 3)
    assert (difference["to"], difference["mean"], difference["seeds"]) == ("A", 3.0, 3)
    assert difference["low"] == pytest.approx(3 - half, abs=1e-4)
    assert difference["high"] == pytest.approx(3 + half, abs=1e-4)
    assert rows["B"]["metrics"]["cold"]["difference"]["mean"] == -10.0
    assert rows["Ours"]["seconds"] == 1.0
    assert rows["Ours"]["reason"] is None


def test_the_best_baseline_of_a_loss_is_the_lowest(fake: Experiment) -> None:
    rows = {row["method"]: row for row in group_rows(fake, "generated", "dense", cells_of(fake))}
    assert rows["Ours"]["metrics"]["loss"]["difference"]["to"] == "B"
    assert rows["Ours"]["metrics"]["loss"]["difference"]["mean"] == -1.0
    assert rows["B"]["metrics"]["loss"]["difference"] is None


def test_the_difference_to_the_method_that_the_question_names(fake: Experiment) -> None:
    assert "against" not in group_rows(fake, "generated", "dense", cells_of(fake))[0]["metrics"]["cold"]
    asked = replace(fake, against="B")
    rows = {row["method"]: row["metrics"]["cold"] for row in group_rows(asked, "generated", "dense", cells_of(fake))}
    assert (rows["Ours"]["difference"]["to"], rows["Ours"]["difference"]["mean"]) == ("A", 3.0)
    assert (rows["Ours"]["against"]["to"], rows["Ours"]["against"]["mean"]) == ("B", 13.0)
    assert rows["A"]["against"]["mean"] == 10.0
    assert rows["B"]["against"] is None


def test_what_does_well_by_construction_is_no_rival(fake: Experiment) -> None:
    methods = tuple(replace(m, no_rival_by=("cold",)) if m.label == "A" else m for m in fake.methods)
    row = group_rows(replace(fake, methods=methods), "generated", "dense", cells_of(fake))[0]["metrics"]
    assert (row["cold"]["difference"]["to"], row["cold"]["difference"]["mean"]) == ("B", 13.0)
    assert row["loss"]["difference"]["to"] == "B"
    asked = replace(fake, methods=methods, against="A")
    row = group_rows(asked, "generated", "dense", cells_of(fake))[0]["metrics"]
    assert row["cold"]["against"] is None
    assert row["loss"]["against"]["to"] == "A"


def test_curves_are_averaged_up_to_the_shortest(fake: Experiment) -> None:
    row = group_rows(fake, "generated", "dense", cells_of(fake))[0]
    assert row["curves"] == {"curve": {"mean": [1.0, 2.0], "spread": [1.0, 2.0], "seeds": 3}}


def test_one_seed_has_no_spread_and_no_interval(fake: Experiment) -> None:
    row = group_rows(fake, "generated", "dense", cells_of(fake, seeds=(1,)))[0]["metrics"]["cold"]
    assert (row["mean"], row["spread"], row["seeds"]) == (62.0, None, 1)
    assert row["difference"] == {"to": "A", "mean": 1.0, "low": None, "high": None, "seeds": 1}


def test_only_common_seeds_are_paired(fake: Experiment) -> None:
    cells = cells_of(fake)
    del cells["generated | dense | A | 2"]
    difference = group_rows(fake, "generated", "dense", cells)[0]["metrics"]["cold"]["difference"]
    assert (difference["mean"], difference["seeds"]) == (1.5, 2)  # 2 and 1


def test_every_row_without_figures_says_why(fake: Experiment) -> None:
    cells = {
        "generated | few | Broken | 0": {"error": "ValueError: no"},
        "generated | few | NA | 0": {"not_applicable": "needs edges"},
    }
    rows = {row["method"]: row for row in group_rows(fake, "generated", "few", cells)}
    assert {name: row["reason"] for name, row in rows.items()} == {
        "Ours": NOT_RUN,
        "A": NOT_RUN,
        "B": "too many nodes for it",
        "Broken": "failed: ValueError: no",
        "NA": "needs edges",
    }
    assert rows["Broken"]["failed"] == 1
    assert rows["Ours"]["metrics"]["cold"]["mean"] is None


def test_one_missing_figure_has_its_own_reason(fake: Experiment) -> None:
    cells = cells_of(fake)
    for record in cells.values():
        record["numbers"] = {"cold": 1.0, "reasons": {fake.metrics[1].name: "nothing to test"}}
    row = group_rows(fake, "generated", "dense", cells)[0]
    assert row["reason"] is None
    assert row["metrics"]["cold"]["reason"] is None
    assert row["metrics"][fake.metrics[1].name]["reason"] == "nothing to test"


def test_a_failed_seed_does_not_hide_the_others(fake: Experiment) -> None:
    cells = cells_of(fake) | {"generated | dense | Ours | 2": {"error": "ValueError: no"}}
    row = group_rows(fake, "generated", "dense", cells)[0]
    assert (row["metrics"]["cold"]["mean"], row["failed"], row["reason"]) == (61.0, 1, None)


def test_groups_come_in_the_order_of_the_table(fake: Experiment) -> None:
    groups = [("cora", "few"), ("cora", "old"), ("generated", "few"), ("cora", "dense"), ("generated", "dense")]
    assert group_order(fake, groups) == [
        ("generated", "dense"),
        ("generated", "few"),
        ("cora", "dense"),
        ("cora", "few"),
        ("cora", "old"),
    ]


def test_what_cannot_be_written_is_refused() -> None:
    assert plain({"a": (1, float("nan"), True)}) == {"a": [1, None, True]}
    with pytest.raises(TypeError, match="a cell gave a object"):
        plain({"a": object()})


def test_generated_data_is_read_once_and_marked() -> None:
    context = Context("generated", "cpu", smoke=True)
    assert context.is_generated
    assert context.data is context.data
    assert context.data.name == "generated"
    assert context.data.num_classes == 4
    assert not Context("reddit").is_generated
    assert not Context("cora", generated=True).is_generated


@pytest.mark.parametrize("name", list(GENERATED_SIZES))
def test_a_stand_in_has_the_width_and_classes_of_the_real_one(name: str) -> None:
    context = Context(name, "cpu", smoke=True, generated=True)
    assert context.is_generated
    size = GENERATED_SIZES[name]
    data = context.data
    assert (data.X.shape[1], data.num_classes) == (size["num_features"], size["num_classes"])
    assert (data.graph.num_nodes, data.graph.num_edges) == (size["num_nodes"] // 100, size["num_edges"] // 100)


def test_stand_ins_are_as_large_as_the_registry_says() -> None:
    from gsparc.datasets import list_datasets

    known = {entry.name: entry for entry in list_datasets()}
    for name, real in (("reddit", "reddit2"), ("amazon2m", "amazon2m")):  # reddit's edges as the paper counts them
        entry, size = known[real], GENERATED_SIZES[name]
        assert tuple(size.values()) == (entry.nodes, entry.edges, entry.features, entry.classes)


def test_steps_are_only_cut_in_a_smoke_run() -> None:
    assert Context("cora").steps(max_steps=3) == {}
    assert Context("cora", smoke=True).steps(max_steps=3) == {"max_steps": 3}
