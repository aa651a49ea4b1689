"""The results page: every table and figure of the paper made again, from result files alone, on one HTML page."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from gsparc._files import write_text
from gsparc.report.html import document, section
from gsparc.report.result_files import Comparison, ResultTable, read_results, result_paths
from gsparc.report.result_sections import MARKS, sentence_list, table_section
from gsparc.report.result_style import RESULT_STYLE
from gsparc.report.result_tables import VERDICTS, audit_table, leak_table, words_table
from gsparc.report.result_words import EXPLANATIONS, compare_words, explanation, leak_words, outcome_words
from gsparc.report.style import STYLE

__all__ = ["TABLES", "fingerprint", "made_from", "render_results", "write_page"]

# in the order in which the paper asks the questions
TABLES = ("neighbourhood", "classification", "clustering", "links", "minibatch", "cold-share", "laplacians")
_FINGERPRINT = re.compile(r"Fingerprint of the result files and words: <code>([0-9a-f]{64})</code>")
_SIDES = ("win", "even", "loss")
_READ = (
    "± is the standard deviation over seeds. Every seed has its own split, and all methods of a group (a data set in "
    "a setting) ran on the same ones with the same labels and the same pretend-cold validation nodes, as far as they "
    "use any; the audit says what each one uses.",
    "★ marks the best mean of a column. Grey figures are the paper's own, from its splits and its code: beside ours "
    "for orientation, never mixed in; hollow diamonds in the plots are the same figures.",
    "Where several methods are ours, the small line under each of their figures is its own paired difference to the "
    "best baseline, with its 95 % interval.",
    "We win or lose where the 95 % interval of the paired difference lies on one side of zero. Our best "
    "method and the best baseline of a group were picked by the same figures that are then compared, so a narrow "
    "win or loss deserves less trust than its interval says; and among many intervals one in twenty misses.",
)


def write_page(results: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Make the page of all results and write it; it appears under its name only when it is complete.

    Parameters
    ----------
    results : path
        Folder of the result files that ``gsparc reproduce`` writes.
    target : path
        The HTML file to write.

    Returns
    -------
    Path
        ``target``.

    Raises
    ------
    InputError
        The folder holds no results, or a file in it cannot be understood.
    OutputError
        The page cannot be written.
    """
    return write_text(Path(target), render_results(results), "the page of results")


def render_results(results: str | os.PathLike[str]) -> str:
    """The whole page as text, from the result files of a folder."""
    found, audit = read_results(Path(results))
    tables = [found[name] for name in (*TABLES, *sorted(found.keys() - set(TABLES))) if name in found]
    missing = [name for name in TABLES if name not in found]
    parts = [
        _head(tables, missing),
        _summary(tables),
        _reading(),
        *(table_section(table) for table in tables),
        _missing(missing),
        _audit(tables, audit),
    ]
    parts.append(
        "<footer><p class='soft'>Fingerprint of the result files and words: "
        f"<code>{fingerprint(results)}</code></p></footer>"
    )
    body = "\n".join(part for part in parts if part)
    return document(
        "gsparc: the paper's results, made again",
        STYLE + RESULT_STYLE,
        f'<a class="skip" href="#summary">Skip to the summary</a>\n<main>\n{body}\n</main>',
    )


def fingerprint(results: str | os.PathLike[str]) -> str:
    """SHA-256 over the names and bytes of what a page is made from: result files of a folder, and words about them."""
    digest = hashlib.sha256()
    for path in (*result_paths(Path(results)), EXPLANATIONS):
        digest.update(f"{path.name}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def made_from(page: str | os.PathLike[str]) -> str | None:
    """The fingerprint that a page carries, None where it has none."""
    found = _FINGERPRINT.search(Path(page).read_text(encoding="utf-8"))
    return found.group(1) if found else None


def _head(tables: list[ResultTable], missing: list[str]) -> str:
    links = [("summary", "Where we win and where we lose"), ("reading", "How to read this page")]
    links += [(f"table-{table.name}", table.title) for table in tables]
    links += [("missing", "Tables that are not here yet")] * bool(missing)
    links += [("audit", "Audit: what each method was allowed to see")]
    items = "".join(f'<li><a href="#{escape(place)}">{escape(title.rstrip("."))}</a></li>' for place, title in links)
    warning = ""
    if tables and all(table.smoke for table in tables):
        warning = '<p class="warning">A smoke run: it shows that the commands work, and its figures mean nothing.</p>'
    return (
        "<header><h1>The paper's results, made again</h1>"
        '<p class="soft">The tables and figures of the SPARC paper beside baselines, from result files that '
        "<code>gsparc reproduce</code> wrote; each section says what of the paper is not in it. No figure on this page "
        f"was typed.</p>{warning}</header>\n"
        f'<nav aria-label="Contents"><h2>Contents</h2><ol>{items}</ol></nav>'
    )


def _counts(comparisons: Iterable[Comparison]) -> Counter[str]:
    return Counter(found.verdict for found in comparisons)


def _summary(tables: list[ResultTable]) -> str:
    """Wins, draws and losses by each table's headline measure, counted."""
    real = [table for table in tables if not table.smoke]
    all_found = [(table, found) for table in real for found in table.comparisons()]
    counts = _counts(found for _, found in all_found)
    facts = "".join(
        f'<li class="{kind}"><b>{MARKS[kind]} {counts[kind]}</b>{escape(VERDICTS[kind])}</li>'
        for kind in VERDICTS
        if counts[kind] or kind != "unknown"
    )
    losses = ""
    for table in real:
        mine = [found for found in table.comparisons() if found.verdict == "loss"]
        losses += sentence_list([("loss", compare_words(table, found)) for found in mine], head=table.name)
    if losses:
        said = f"<h3>Where we lose</h3>{losses}"
    elif all_found:
        said = "<p>There is no group in which we lose clearly by a headline measure.</p>"
    else:
        said = "<p>No finished table compares one of our methods with a baseline yet.</p>"
    body = (
        f"<p>Our best method against the best baseline, by the headline measure of each table, in {len(all_found)} "
        "groups of a data set and a setting.</p>"
        f'<div class="verdict"><ul class="facts">{facts}</ul></div>{_summary_table(real)}{said}{_each_of_ours(real)}'
    )
    return section("summary", "Where we win and where we lose", body)


def _summary_table(tables: list[ResultTable]) -> str:
    rows, kinds = (
        [],
        [kind for kind in VERDICTS if kind != "unknown" or any(_counts(t.comparisons())[kind] for t in tables)],
    )
    for table in tables:
        comparisons = table.comparisons()
        by_kind = {
            kind: [(found.dataset, found.setting) for found in comparisons if found.verdict == kind] for kind in kinds
        }
        cells = [
            f'<b>{len(groups)}</b> <span class="more">{escape(outcome_words(groups))}</span>'
            for groups in by_kind.values()
        ]
        if not comparisons:
            cells = ['<span class="more">nothing to compare</span>'] * len(kinds)
        title = f'<a href="#table-{escape(table.name)}">{escape(table.name)}</a>'
        rows.append((f'{title} <span class="more">{escape(table.metrics[0]["title"])}</span>', *cells))
    if not rows:
        return ""
    heads = ("table", *(VERDICTS[kind] for kind in kinds))
    return words_table(heads, rows, "Groups by outcome, counted from the result files. Generated graphs do not count.")


def _each_of_ours(tables: list[ResultTable]) -> str:
    """Every method of ours by itself against the best baseline: the best of several hides how the others do."""
    rows = []
    for table in tables:
        mine = [method["label"] for method in table.methods if method["ours"]]
        for label in mine if len(mine) > 1 else []:
            counts = _counts(table.comparisons_of(label))
            if counts:
                rows.append((f"{escape(table.name)}: {escape(label)}", *(f"<b>{counts[kind]}</b>" for kind in _SIDES)))
    if not rows:
        return ""
    heads = ("method", *(VERDICTS[kind] for kind in _SIDES))
    caption = "Each of our methods by itself against the best baseline of every group, by the headline measure."
    return f"<h3>Our methods one by one</h3>{words_table(heads, rows, caption)}"


def _reading() -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in _READ)
    return section("reading", "How to read this page", lines)


def _missing(names: list[str]) -> str:
    if not names:
        return ""
    items = "".join(
        f"<li><b>{escape(name)}</b>, {escape(explanation(name).get('paper', ''))}: "
        f"<code>gsparc reproduce {escape(name)}</code></li>"
        for name in names
    )
    body = f"<p>No result file was found for these. The command makes it:</p><ul>{items}</ul>"
    return section("missing", "Tables that are not here yet", body)


def _audit(tables: list[ResultTable], audit: dict[str, Any] | None) -> str:
    intro = (
        "<p>Cold nodes do not exist for anything that is fitted. The first table says what each method's fit was "
        "given, in the words of its experiment; the second tests the claim on our own estimators.</p>"
    )
    methods = audit_table(tables) if tables else ""
    if audit is None:
        leak = "<p>The leak test has not been run: <code>gsparc reproduce audit</code> runs it.</p>"
    else:
        kind, lines = leak_words(audit)
        leak = "".join(f'<p class="badge {kind}">{escape(line)}</p>' for line in lines) + leak_table(audit)
    return section("audit", "Audit", f"{intro}{methods}<h3>Leak test</h3>{leak}")
