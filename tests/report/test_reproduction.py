"""The results page from small made-up result files: the files' figures, losses said, everything escaped."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gsparc.exceptions import InputError, OutputError
from gsparc.experiments.runner import load_table
from gsparc.report import reproduction
from gsparc.report.reproduction import TABLES, fingerprint, made_from, render_results, write_page
from gsparc.report.result_files import read_results
from gsparc.report.result_words import explanation

VOID = {"meta", "br", "img", "path", "use", "image", "rect"}
EVIL = "<script>alert('1')</script>"
METHODS = [
    {"label": "MLP", "sees": "features of seen nodes", "cold": "its own features only", "ours": False},
    {"label": "GLNN", "sees": "features and a teacher", "cold": "its own features only", "ours": False},
    {"label": "GCN", "sees": "edges too", "cold": "not applicable: needs edges", "ours": False},
    {"label": "SAMBA", "sees": "the map", "cold": "a place on the map", "ours": True},
]


def entry(mean: float | None, *, paper: float | None = None, gap: tuple[Any, ...] | None = None) -> dict[str, Any]:
    """One figure of a row; ``gap`` is (to, mean, low, high)."""
    difference = None if gap is None else dict(zip(("to", "mean", "low", "high"), gap, strict=True), seeds=3)
    found = {"mean": mean, "spread": None if mean is None else 1.25, "seeds": 0 if mean is None else 3}
    return {**found, "paper": paper, "difference": difference}


def rows_of(dataset: str, setting: str, gap: tuple[Any, ...], *, generated: bool = False) -> list[dict[str, Any]]:
    """Four methods on one data set, ours ``gap[1]`` away from GLNN at 70.55."""
    cold = [entry(61.23, gap=("GLNN", -9.3, -9.9, -8.8)), entry(70.55, paper=66.02), entry(None)]
    cold.append(entry(70.55 + gap[1], paper=73.88, gap=gap))
    test = [entry(62.0), entry(71.0), entry(88.88), entry(80.0, gap=("GCN", -8.88, -9.5, -8.1))]
    return [
        {
            "dataset": dataset,
            "setting": setting,
            "method": method["label"],
            "ours": method["ours"],
            "generated": generated,
            "seconds": 2.0,
            "reason": None,
            "failed": 0,
            "metrics": {"cold": cold[place], "test": test[place]},
            "curves": {},
        }
        for place, method in enumerate(METHODS)
    ]


def classification() -> dict[str, Any]:
    """A table with a win on Cora, a loss on Citeseer, and neither on Pubmed."""
    rows = rows_of("cora", "dense", ("GLNN", 2.4, 1.8, 3.0))
    rows += rows_of("citeseer", "few", ("GLNN", -0.4, -0.7, -0.1))
    rows += rows_of("pubmed", "dense", ("GLNN", 0.3, -0.2, 0.8))
    cell = {"numbers": {"cold": 1.0}, "seconds": 600.0, "device": "cuda"}
    return {
        "experiment": "classification",
        "title": "Classes of cold nodes.",
        "question": "Which class?",
        "x_axis": None,
        "versions": {"gsparc": "0.1.0", "torch": "2.13.0"},
        "hardware": {"cores": 16, "cpu": "Some CPU", "memory_gb": 64.0, "gpu": "Some GPU", "system": "Linux"},
        "commit": "abc1234",
        "created": "2026-01-02T03:04:05+00:00",
        "methods": copy.deepcopy(METHODS),
        "metrics": [
            {"name": "cold", "title": "cold accuracy, %", "better": "higher"},
            {"name": "test", "title": "test accuracy, %", "better": "higher"},
        ],
        "cells": {"cora | dense | MLP | 0": cell, "cora | dense | MLP | 1": cell},
        "rows": rows,
    }


def sweep() -> dict[str, Any]:
    """A table against a number, ours best at 0.5."""
    table = classification() | {"experiment": "cold-share", "title": "Shares.", "x_axis": "share", "rows": []}
    for setting, gain in (("0.1", 1.0), ("0.5", 3.0), ("0.7", -2.0)):
        table["rows"] += rows_of("cora", setting, ("GLNN", gain, gain - 0.5, gain + 0.5))
    return table


def minibatch() -> dict[str, Any]:
    """Training curves, and a measure of which less is better; Reddit is generated."""
    names = explanation("minibatch")["curves"]
    table = classification() | {"experiment": "minibatch", "title": "Batches.", "rows": []}
    table["metrics"] = [{"name": "cold", "title": "epochs needed", "better": "lower"}]
    table["rows"] += rows_of("pubmed", "", ("GLNN", 5.0, 4.0, 6.0))
    table["rows"] += rows_of("reddit", "", ("GLNN", 5.0, 4.0, 6.0), generated=True)
    for row in table["rows"]:
        curves = {x for x, _ in names["x"] if x} | {names["y"]}
        row["curves"] = {name: {"mean": [1.0, 2.0, 3.0], "spread": None, "seeds": 3} for name in curves}
    return table


def audit(identical: bool = True, noticed: bool = True) -> dict[str, Any]:
    rows = [
        {"estimator": "SpectralMap", "change": "cold rows removed", "identical": True, "files": 3, "sha256": "a" * 64},
        {"estimator": "Links", "change": "cold rows noise", "identical": identical, "files": 4, "sha256": "b" * 64},
    ]
    return {"experiment": "audit", "rows": rows, "controls": [{"estimator": "SpectralMap", "noticed": noticed}]}


def folder_of(path: Path, *documents: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for document in documents:
        (path / f"{document['experiment']}.json").write_text(json.dumps(document), encoding="utf-8")
    return path


def text_of(page: str) -> str:
    """What a reader sees, in one line."""
    body = re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


class Outline(HTMLParser):
    """Ids, tags that stay open, and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.fetched += [str(value) for name, value in attrs if name in {"src", "href", "xlink:href", "action"}]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("results"), classification(), sweep(), minibatch(), audit())


@pytest.fixture(scope="module")
def page(results: Path) -> str:
    return render_results(results)


def test_the_page_stands_alone(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert [link for link in outline.fetched if not link.startswith("#")] == []
    assert not re.search(r"https?://|@import|<script|<link", page)


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert len(outline.ids) == len(set(outline.ids))
    wanted = {link[1:] for link in outline.fetched} | set(re.findall(r"url\(#([^)]+)\)", page))
    wanted |= set(re.findall(r'aria-labelledby="([^"]+)"', page))
    assert wanted <= set(outline.ids)
    for name in ("summary", "audit", "table-classification", "table-cold-share", "table-minibatch"):
        assert f'<a href="#{name}">' in page


def test_figures_are_those_of_the_files(page: str) -> None:
    found = re.findall(r"<td[^>]*>(\d+\.\d) ± 1\.2", page)
    tables = [classification(), sweep(), minibatch()]
    wanted = [
        f"{row['metrics'][metric['name']]['mean']:.1f}"
        for table in tables
        for metric in table["metrics"]
        for row in table["rows"]
        if row["metrics"][metric["name"]]["mean"] is not None
    ]
    assert sorted(found) == sorted(wanted)
    assert 'class="paper">paper 73.88<' in page
    assert 'class="paper">paper 66.02<' in page


def test_the_winner_of_a_column_is_marked(page: str) -> None:
    assert '<td class="best">73.0 ± 1.2<span class="hidden"> (best)</span>' in page  # ours on Cora
    assert '<td class="best">88.9 ± 1.2<span class="hidden"> (best)</span>' in page  # GCN on connected nodes


def test_wins_draws_and_losses_are_said_and_counted(page: str) -> None:
    text = text_of(page)
    assert (
        "On Citeseer, few labels (20 a class), GLNN came out 0.4 points above SAMBA (95 % interval 0.1 to 0.7): "
        "we lose here." in text
    )
    assert (
        "On Cora, all labels, 20 % cold, SAMBA came out 2.4 points above GLNN (95 % interval 1.8 to 3.0): we win"
        in text
    )
    assert "SAMBA and GLNN do not differ clearly: +0.3 points, 95 % interval −0.2 to +0.8." in text
    # classification 1/1/1, cold-share 2/0/1, minibatch 0/0/1 without the generated graph
    assert "▲ 3 we win ● 1 no clear difference ▼ 3 we lose" in text


def test_less_is_better_turns_the_sides(page: str) -> None:
    text = text_of(page)
    assert (
        "On Pubmed, by epochs needed (less is better), GLNN came out 5.0 below SAMBA (95 % interval 4.0 to 6.0)" in text
    )


def test_the_method_that_the_question_names_is_compared_with_too(tmp_path: Path) -> None:
    table = minibatch()
    for row in table["rows"]:
        if row["ours"]:
            named = {"to": "MLP", "mean": -9.0, "low": -11.0, "high": -7.0, "seeds": 3}
            row["metrics"]["cold"]["against"] = named
    text = text_of(render_results(folder_of(tmp_path, table)))
    where = ", by epochs needed (less is better), SAMBA came out 9.0 below MLP (95 % interval 7.0 to 11.0)"
    assert f"On Pubmed{where}. " in text  # neither a win nor a loss: these are against the best baseline
    assert f"On Reddit (a generated graph){where}; not counted." in text
    assert "our best minus best baseline" in text
    assert "our best minus MLP" in text
    assert "▲ 0 we win ● 0 no clear difference ▼ 1 we lose" in text


def test_nothing_is_said_twice_where_the_named_method_is_the_best_baseline(tmp_path: Path) -> None:
    table = minibatch()
    ours = [row["metrics"]["cold"] for row in table["rows"] if row["ours"]]
    for entry_ in ours:
        entry_["against"] = dict(entry_["difference"])
    page = render_results(folder_of(tmp_path, table))
    assert text_of(page).count("On Reddit (a generated graph)") == 1
    assert "our best minus GLNN" not in text_of(page)
    ours[1]["against"]["mean"] = 5.1  # of Reddit: another one than the best baseline
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert text.count("On Pubmed, by epochs needed") == 2  # in the summary and in its section, as before
    assert "our best minus GLNN paired, 95 % interval as above +5.1" in text


def test_losses_by_other_measures_are_said_and_not_counted(page: str, tmp_path: Path) -> None:
    table = classification()
    for row in table["rows"]:
        if row["ours"]:
            row["metrics"]["cold"]["difference"] = {"to": "GLNN", "mean": 2.0, "low": 1.0, "high": 3.0, "seeds": 3}
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "▲ 3 we win ● 0 no clear difference ▼ 0 we lose" in text
    assert "By other measures than the first we lose 3 of 3 comparisons" in text
    assert "On Cora, all labels, 20 % cold, by test accuracy, GCN came out 8.9 points above SAMBA" in text
    assert explanation("classification")["loss"] in text


def test_a_tie_in_every_seed_is_called_level(tmp_path: Path) -> None:
    table = classification() | {"rows": rows_of("cora", "dense", ("GLNN", 0.0, 0.0, 0.0))}
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "On Cora, all labels, 20 % cold, SAMBA and GLNN are level, seed by seed." in text


def test_each_of_several_methods_of_ours_has_its_difference(tmp_path: Path) -> None:
    table = classification()
    assert "−9.3 (−9.9 to −8.8)" not in text_of(render_results(folder_of(tmp_path, table)))
    table["methods"][0]["ours"] = True  # the MLP, 9.3 below GLNN
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "61.2 ± 1.2 −9.3 (−9.9 to −8.8)" in text
    assert "+2.4 (+1.8 to +3.0)" in text


def test_no_cell_is_empty(page: str, tmp_path: Path) -> None:
    alone = sweep()
    for row in alone["rows"]:  # a table in which nothing is compared, beside others
        row["metrics"]["cold"]["difference"] = None
    bare = render_results(folder_of(tmp_path, classification(), alone))
    assert text_of(bare).count("nothing to compare") >= 3
    for text in (page, bare):
        assert not re.search(r"<td[^>]*>\s*</td>", text)


def test_nobody_is_the_best_by_construction(tmp_path: Path) -> None:
    table = classification()
    table["methods"][2]["no_rival_by"] = ["test"]  # the GCN, which has the best test accuracy
    assert read_results(folder_of(tmp_path, table))[0]["classification"].best("cora", "dense", table["metrics"][1]) == {
        "SAMBA"
    }


def test_no_loss_is_said_where_there_is_none(tmp_path: Path) -> None:
    table = classification()
    table["rows"], table["metrics"] = table["rows"][:4], table["metrics"][:1]
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "we lose here" not in text
    assert "By other measures" not in text
    assert "no group in which we lose" in text
    assert explanation("classification")["loss"] not in text


@pytest.mark.parametrize(
    ("low", "high", "verdict", "printed"),
    [
        (0.04, 1.0, "we win here", "95 % interval 0.04 to 1.0"),
        (-0.35, -0.0096, "we lose here", "95 % interval 0.01 to 0.3"),
        (-0.35, 0.0004, "do not differ clearly", "95 % interval −0.3 to +0.0004"),
        (0.0, 0.0, "are level, seed by seed", "+0.0 to +0.0"),
    ],
)
def test_a_narrow_interval_is_printed_with_its_side(
    tmp_path: Path, low: float, high: float, verdict: str, printed: str
) -> None:
    table = classification()
    table["rows"] = rows_of("cora", "dense", ("GLNN", (low + high) / 2, low, high))
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert verdict in text
    assert printed in text


def test_methods_of_ours_stand_one_by_one(tmp_path: Path) -> None:
    table = classification()
    table["methods"][0]["ours"] = True  # far behind in all three groups, which the best of ours hides
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "Our methods one by one" in text
    assert "classification: MLP 0 0 3" in text
    assert "classification: SAMBA 1 1 1" in text
    assert "Our methods one by one" not in text_of(render_results(folder_of(tmp_path / "one", classification())))


def test_what_of_the_paper_is_not_here_is_said(page: str) -> None:
    text = text_of(page)
    assert text.count("What of the paper is not here") == 3
    assert "gsparc reproduce classification --datasets amazon2m --data-dir DIR" in text


def test_a_method_without_a_rival_is_not_the_best(tmp_path: Path) -> None:
    table = classification()
    table["rows"] = [row for row in table["rows"] if row["method"] == "SAMBA"]
    for row in table["rows"]:
        row["metrics"]["cold"]["difference"] = None
    page = render_results(folder_of(tmp_path, table))
    assert "(best)" not in text_of(page)
    assert "nothing to compare" in text_of(page)


def test_one_seed_says_nothing(tmp_path: Path) -> None:
    table = classification()
    table["rows"] = rows_of("cora", "dense", ("GLNN", 2.4, None, None))
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "one seed cannot say whether that is chance" in text
    assert "we win here" not in text


def test_generated_graphs_make_no_claim(page: str) -> None:
    text = text_of(page)
    assert "no accuracy is claimed" in text
    assert "On Reddit (a generated graph), by epochs needed (less is better), GLNN came out 5.0 below SAMBA" in text
    assert "(95 % interval 4.0 to 6.0); not counted." in text


def test_accuracies_on_generated_graphs_are_not_compared(tmp_path: Path) -> None:
    table = classification()
    table["rows"] = rows_of("reddit", "dense", ("GLNN", 2.4, 1.8, 3.0), generated=True)
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "On Reddit" not in text
    assert "▲ 0 we win ● 0 no clear difference ▼ 0 we lose" in text


def test_empty_cells_say_why(page: str, tmp_path: Path) -> None:
    assert '<td class="reason" colspan="2">not applicable: needs edges</td>' in page
    table = classification()
    table["rows"][1] |= {"reason": "failed: out of memory", "failed": 3}
    table["rows"][1]["metrics"] = {"cold": entry(None, paper=66.02), "test": entry(None)}
    table["rows"][3]["metrics"]["test"] = entry(None)
    del table["rows"][2]
    page = render_results(folder_of(tmp_path, table))
    assert 'failed: out of memory<span class="paper">paper 66.02</span>' in page
    assert ">not run</td>" in page
    assert ">no run gave this figure</td>" in page
    assert "3 run(s) ended in an error" in page


def test_the_course_along_an_axis_is_told(page: str) -> None:
    assert "On Cora, SAMBA is best at share 0.5 (73.5) and worst at share 0.7 (68.5)." in text_of(page)


@pytest.mark.parametrize(
    ("setting", "x_axis", "point"),
    [
        ("0.3", "share", ("share", 0.3)),
        ("alpha=0.5", "value", ("alpha", 0.5)),
        ("alpha 0.5", "value", ("alpha", 0.5)),
        ("k = 8", None, ("k", 8.0)),
        ("dense", "share", None),
        ("0.3", None, None),
        ("", "share", None),
    ],
)
def test_settings_as_points(tmp_path: Path, setting: str, x_axis: str | None, point: tuple[str, float] | None) -> None:
    table = read_results(folder_of(tmp_path, classification() | {"x_axis": x_axis}))[0]["classification"]
    assert table.axis(setting) == point


def test_two_axes_in_one_table(tmp_path: Path) -> None:
    table = sweep() | {"experiment": "laplacians", "x_axis": "value"}
    for row, setting in zip(table["rows"], ["alpha=0"] * 4 + ["alpha=1"] * 4 + ["k=2"] * 4, strict=True):
        row["setting"] = setting
    page = render_results(folder_of(tmp_path, table))
    assert "Cora, against alpha" in page
    assert "Cora, against k" in page
    assert len(re.findall(r'<svg role="img" aria-label="Cora, cold accuracy, % against (alpha|k):', page)) == 2


def test_convergence_is_drawn_against_epochs_and_time(page: str) -> None:
    drawn = re.findall(r'aria-label="Pubmed, [^"]* against ([^":]*): ', page)
    assert drawn == [title for _, title in explanation("minibatch")["curves"]["x"]]


def test_every_figure_and_table_can_be_read_aloud(page: str) -> None:
    assert page.count("<svg") == page.count('<svg role="img" aria-label="') > 5
    assert page.count("<table") == page.count("<caption")
    assert page.count('class="scroll"') == page.count('class="scroll" tabindex="0" role="region" aria-label="')
    assert '<html lang="en">' in page


def test_the_page_follows_light_dark_and_paper(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "#010203" not in page


def test_what_was_run(page: str) -> None:
    text = text_of(page)
    for words in (
        "Seeds behind a figure: up to 3; 20 min of computing in all on cuda.",
        "Some GPU; 16 cores of Some CPU, 64 GB",
        "gsparc 0.1.0, torch 2.13.0",
        "Commit abc1234; 2026-01-02 03:04 UTC.",
    ):
        assert words in text


def test_cells_of_two_commits_are_counted_by_commit(tmp_path: Path) -> None:
    table = classification()
    cell = table["cells"]["cora | dense | MLP | 0"]
    table["cells"] |= {f"cora | dense | MLP | {seed}": cell | {"commit": "def5678"} for seed in range(2, 5)}
    text = text_of(render_results(folder_of(tmp_path, table)))
    assert "Commits def5678 (3 cells), abc1234 (2 cells); 2026-01-02 03:04 UTC." in text


def test_missing_tables_name_their_command(page: str) -> None:
    text = text_of(page)
    for name in set(TABLES) - {"classification", "cold-share", "minibatch"}:
        assert f"gsparc reproduce {name}" in text


def test_the_audit_shows_methods_and_the_leak_test(page: str) -> None:
    text = text_of(page[page.index('<section id="audit"') :])
    assert "features and a teacher" in text
    assert "In all 2 cases the fitted model is the same, byte for byte." in text
    assert "a change to one seen node did change the model" in text


def test_a_leak_is_not_hidden(tmp_path: Path) -> None:
    text = text_of(render_results(folder_of(tmp_path, audit(identical=False, noticed=False))))
    assert "Cold nodes reached a fitted model in 1 of 2 cases: Links (cold rows noise)." in text
    assert "The control failed" in text
    assert "bytes differ" in text


def test_without_an_audit_its_command_is_named(tmp_path: Path) -> None:
    assert "gsparc reproduce audit" in text_of(render_results(folder_of(tmp_path, classification())))


def test_a_smoke_run_counts_for_nothing(tmp_path: Path) -> None:
    text = text_of(render_results(folder_of(tmp_path, classification() | {"smoke": True})))
    assert "its figures mean nothing" in text
    assert "▲ 0 we win ● 0 no clear difference ▼ 0 we lose" in text
    assert text.count("mean nothing") == 2  # at the top too
    assert explanation("classification")["why"][0] not in text


def test_every_string_is_escaped(tmp_path: Path) -> None:
    table = json.loads(json.dumps(classification()).replace("GLNN", EVIL).replace("citeseer", EVIL))
    table |= {"title": EVIL, "question": EVIL, "commit": EVIL, "created": EVIL, "versions": {EVIL: EVIL}}
    table["hardware"]["gpu"] = EVIL
    table["rows"][0] |= {"reason": EVIL, "metrics": {}}
    table["metrics"][0]["title"] = EVIL
    for method in table["methods"]:
        method |= {"sees": EVIL, "cold": EVIL}
    leak = {"estimator": EVIL, "change": EVIL, "identical": False, "files": EVIL, "sha256": EVIL}
    page = render_results(folder_of(tmp_path, table, {"experiment": "audit", "rows": [leak], "dataset": EVIL}))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    outline = Outline()
    outline.feed(page)
    assert outline.open == []


def test_notes_hold_no_figures() -> None:
    for name in TABLES:
        known = explanation(name)
        words = [*known["why"], known["loss"], *known.get("notes", {}).values()]
        assert not [text for text in words if re.search(r"\d+[.,]\d|\d ?%", text)]
        assert all(text.endswith(".") for text in words)


def test_settings_are_called_by_what_they_are_in_their_table(tmp_path: Path) -> None:
    for name in TABLES:
        table = load_table(name)
        offered = {setting for dataset in (*table.datasets, "reddit") for setting in table.settings(dataset)}
        assert set(explanation(name).get("settings", {})) <= offered, name
    for name in ("neighbourhood", "clustering", "links"):  # nobody is given a label there
        page = text_of(render_results(folder_of(tmp_path / name, classification() | {"experiment": name})))
        assert "20 % cold" not in page
        assert "A fifth of the nodes cold" in page


def test_the_same_files_give_the_same_page(results: Path, page: str) -> None:
    assert render_results(results) == page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"experiment": "links", ', "cannot be read as JSON.*If it is none of gsparc's, move it"),
        ("[1, 2]", "names no experiment.*If it is none of gsparc's, move it"),
        ('{"experiment": "links"}', "not a complete result file.*title"),
        ('{"experiment": "audit"}', "'rows' is missing"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    folder = folder_of(tmp_path, classification())
    (folder / "links.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"links\.json.*{message}"):
        render_results(folder)


@pytest.mark.parametrize("change", [{"rows": [3]}, {"rows": [{"dataset": "cora"}]}, {"metrics": [{}]}, {"cells": []}])
def test_a_file_of_another_form_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = folder_of(tmp_path, classification() | change)
    with pytest.raises(InputError, match=r"classification\.json does not have the form"):
        read_results(folder)


def test_what_a_killed_run_had_begun_to_write_is_no_result(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, classification())
    page = render_results(folder)
    (folder / ".links.x1y2.json").write_text('{"experiment": "li', encoding="utf-8")
    assert render_results(folder) == page


def test_an_empty_or_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no result file.*gsparc reproduce all"):
        render_results(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        render_results(tmp_path / "nowhere")


def test_writing(results: Path, page: str, tmp_path: Path) -> None:
    target = write_page(results, tmp_path / "new" / "page.html")
    assert target.read_text(encoding="utf-8") == page
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]
    assert made_from(target) == fingerprint(results)
    with pytest.raises(OutputError, match="page of results cannot be written"):
        write_page(results, target / "page.html")


@pytest.fixture(scope="module")
def script(project: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", project / "scripts" / "results_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_writes_and_checks(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert script.main([], root=tmp_path) == 2
    assert "there is no folder" in capsys.readouterr().err
    folder_of(tmp_path / "results", audit())
    assert script.main(["--check"], root=tmp_path) == 1
    assert script.main([], root=tmp_path) == 0
    assert script.main(["--check"], root=tmp_path) == 0
    other = tmp_path / "explanations.json"
    other.write_text("{}", encoding="utf-8")
    with monkeypatch.context() as changed:
        changed.setattr(reproduction, "EXPLANATIONS", other)
        assert script.main(["--check"], root=tmp_path) == 1
    folder_of(tmp_path / "results", audit(identical=False))
    assert script.main(["--check"], root=tmp_path) == 1


def test_the_page_of_the_documentation_is_up_to_date(script: ModuleType, project: Path) -> None:
    if not (project / "results").is_dir():
        pytest.skip("no results/ in this checkout")
    assert script.main(["--check"]) == 0
