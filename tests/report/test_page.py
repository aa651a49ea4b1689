"""The page from a made-up record: complete, self-contained, escaped, honest about losses."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gsparc.exceptions import OutputError
from gsparc.report import render_page, write_page
from gsparc.report.plots import plot_bars, plot_map

VOID = {"meta", "br", "img", "path", "use", "image", "rect"}


def record() -> dict[str, Any]:
    """The smallest record of a demo run, with a name that must be escaped."""
    example = {
        "kind": "mistake",
        "tag": "a mistake",
        "id": "<script>alert(1)</script>",
        "why": "The most confident wrong class.",
        "links": 3,
        "predicted": [{"class": "red", "probability": 0.9}, {"class": "blue", "probability": 0.1}],
        "true": "blue",
        "correct": False,
        "suggested": [{"id": "a", "score": 1.0, "true": True}, {"id": "b", "score": 0.5, "true": False}],
        "found": 1,
        "nearest": [{"id": "c", "class": None, "distance": 0.1}],
    }
    method = {"accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "macro_f1": 0.4, "ece": 0.1}
    links = {"mrr": 0.25, "mrr_interval": [None, None], "mrr_edges": 0.2, "hits@10": None}
    return {
        "seed": 0,
        "quick": True,
        "created": "2026-01-01T00:00:00+00:00",
        "words": {"node": "node", "nodes": "nodes", "class": "class", "links": "links"},
        "dataset": {"name": "a & b", "description": "", "source": "", "edges": 9, "features": 2},
        "split": {
            "name": "dense",
            "seen": 4,
            "validation": 1,
            "cold": 2,
            "cold_labelled": 2,
            "cold_ranked": 2,
            "grouped": False,
        },
        "summary": ["gsparc loses to the MLP here: -1.0 points."],
        "classification": [
            {"method": "MLP", "ours": False, **method},
            {"method": "gsparc", "ours": True, **method},
        ],
        "links": [{"method": "gsparc", "ours": True, **links}],
        "examples": [example],
        "examples_rule": {"min_links": 3},
        "spectrum": {"eigenvalues": [0.1, 0.5], "operator": {}},
        "history": [{"step": 10, "loss": 1.0, "score": 0.2}, {"step": 20, "loss": 0.5, "score": None}],
        "map": {
            "how": "Principal components.",
            "known": [[0, 0], [1, 0], [0, 1], [1, 1]],
            "new": [[0.5, 0.5]],
            "known_class": [0, 1, -1, 0],
            "new_class": [1],
            "class_names": ["red", "blue"],
        },
        "seconds": {"total": 1.5},
        "versions": {"gsparc": "0"},
        "machine": {"cpus": 2, "device": "CPU"},
    }


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
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in {"src", "href", "xlink:href", "action"}:
                self.fetched.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(record())


def test_nothing_is_fetched_from_outside(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert [link for link in outline.fetched if not link.startswith(("#", "data:image/png;base64,"))] == []
    assert not re.search(r"https?://|@import|<script|<link", page)


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert len(outline.ids) == len(set(outline.ids))
    wanted = {link[1:] for link in outline.fetched if link.startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", page))
    assert wanted <= set(outline.ids)


def test_names_are_escaped(page: str) -> None:
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a &amp; b" in page


def test_every_figure_has_words_and_every_table_headers(page: str) -> None:
    assert page.count("<svg") == page.count('<svg role="img" aria-label="') == 5
    assert page.count("<table") == page.count("<caption") == 2
    assert page.count('scope="col"') == 8
    assert page.count('scope="row"') == 3


def test_a_loss_and_a_mistake_are_shown(page: str) -> None:
    assert "gsparc loses to the MLP here" in page
    assert "✗ it is blue" in page
    assert "1 of 2 true (✓), 3 exist" in page


def test_figures_follow_the_colours_of_the_page(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert "#010203" not in page


def test_without_classes_the_page_has_no_section_about_them() -> None:
    bare = copy.deepcopy(record())
    bare |= {"classification": None, "history": []}
    bare["examples"][0] |= {"predicted": [], "correct": None, "true": None, "nearest": []}
    page = render_page(bare)
    assert "Which class?" not in page
    assert page.count("<svg") == 3


def test_the_page_is_the_same_for_the_same_record(page: str) -> None:
    assert render_page(record()) == page


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    import sys

    import matplotlib as mpl

    before = dict(mpl.rcParams)
    render_page(record())
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_only_ten_classes_get_a_colour() -> None:
    points = [[i, i % 3] for i in range(12)]
    svg = plot_map(points, [[0, 0]], list(range(12)), [11], [f"class{i}" for i in range(12)])
    names = {name for name in (f"class{i}" for i in range(12)) if f">{name}<" in svg}
    assert len(names) == 10
    assert "class11" in names  # two points: the most frequent
    assert ">other<" in svg


def test_bars_tell_their_values_in_words() -> None:
    svg = plot_bars(
        [{"method": "mlp", "accuracy": 0.125, "accuracy_interval": [0.1, 0.2]}], "accuracy", "A", percent=True
    )
    assert 'aria-label="A: mlp 12.5."' in svg
    assert "12.5 %" in svg


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="report cannot be written"):
        write_page(record(), tmp_path / "file" / "report.html")
    write_page(record(), tmp_path / "new" / "report.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
