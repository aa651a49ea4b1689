"""Fill the tables of README.md and docs/ from benchmarks/results/*.json and results/*.json.

A page marks the place; everything between the marks is rewritten::

    <!-- table:index -->          in Markdown           .. table:index          in reStructuredText
    <!-- /table -->                                     .. /table

``index`` names ``benchmarks/results/index.json``. That file carries ``rows`` (a list of objects) and
``columns`` (a list of ``[key, title, format]``); a file with several tables carries
``tables: {part: {rows, columns}}``, named ``index.part`` in the mark. ``format`` is a format specification
(``",d"``, ``".1f"``) or, when it contains a brace, a template over the whole row
(``"{mean:.1f} ± {std:.1f}"``). Marks that start with ``reproduced.`` are cut from the tables that ``gsparc reproduce``
left in ``results/`` (see REPRODUCED).

Usage: python scripts/readme_tables.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MISSING = "–"

Column = tuple[str, str, str]
_MARKS = {
    ".md": re.compile(r"^<!-- table:(?P<name>[\w.-]+) -->\n(?P<body>.*?)^<!-- /table -->$", re.M | re.S),
    ".rst": re.compile(r"^\.\. table:(?P<name>[\w.-]+)\n(?P<body>.*?)^\.\. /table$", re.M | re.S),
}


class Table(NamedTuple):
    """What a result file says about one table."""

    columns: list[Column]
    rows: list[dict[str, Any]]
    note: str = ""


class TableError(ValueError):
    """A mark that cannot be filled."""


Rows = list[dict[str, Any]]


def _number(row: dict[str, Any] | None, metric: str, key: str = "mean") -> float | None:
    """A figure of one method's row, None where there is none."""
    return None if row is None else row["metrics"].get(metric, {}).get(key)


def _groups(result: dict[str, Any], settings: Sequence[str]) -> list[tuple[tuple[str, str], dict[str, dict[str, Any]]]]:
    """Rows by method for every data set, one setting after the other; generated graphs are left out."""
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for setting in settings:
        for row in result["rows"]:
            if row["setting"] == setting and not row["generated"]:
                groups.setdefault((row["dataset"], setting), {})[row["method"]] = row
    return list(groups.items())


def _beside(
    result: dict[str, Any], ours: str, metric: str, others: Sequence[str], settings: Sequence[str]
) -> tuple[list[Column], Rows]:
    """One method of ours beside chosen baselines, and its difference to the best baseline of all."""
    columns: list[Column] = [("dataset", "graph", ""), ("setting", "split", "")]
    columns += [(label, label, ".1f") for label in others]
    columns += [("best", "best baseline", "{best:.1f} ({to})"), ("ours", "gsparc", "{ours:.1f} ± {spread:.1f}")]
    columns += [("gain", "over the best", "+.1f"), ("low", "from", "+.1f"), ("high", "to", "+.1f")]
    rows: Rows = []
    for (dataset, setting), methods in _groups(result, settings):
        own = methods.get(ours)
        difference = (_number(own, metric, "difference") or {}) if own else {}
        best = methods.get(difference.get("to", ""))
        rows.append(
            {label: _number(methods.get(label), metric) for label in others}
            | {"dataset": dataset, "setting": setting, "ours": _number(own, metric)}
            | {"spread": _number(own, metric, "spread"), "gain": difference.get("mean")}
            | {"low": difference.get("low"), "high": difference.get("high"), "to": difference.get("to")}
            | {"best": _number(best, metric)}
        )
    return columns, rows


def _classes(result: dict[str, Any]) -> tuple[list[Column], Rows]:
    others = ("MLP", "MLP, 6 starts", "GLNN", "GLNN, 6 starts")
    return _beside(result, "gsparc auto", "cold", others, ("dense", "few", "tenth"))


def _links(result: dict[str, Any]) -> tuple[list[Column], Rows]:
    others = ("popularity", "feature cosine", "LLP-MLP", "SPARC, unrefined")
    return _beside(result, "SPARC", "mrr", others, ("dense", "paper"))


def _paper(result: dict[str, Any]) -> tuple[list[Column], Rows]:
    """The paper's architectures and their originals on its split, cold and connected."""
    labels = ("MLP", "SPARC-GCN", "SPARCphormer", "SAMBA", "Spectral-GCN", "NAGphormer", "Graph Mamba")
    columns: list[Column] = [("dataset", "graph", ""), ("method", "method", "")]
    for metric, title in (("cold", "cold"), ("test", "connected")):
        columns += [(metric, title, f"{{{metric}:.1f}} ± {{{metric}_spread:.1f}}")]
        columns += [(f"{metric}_paper", f"{title}, paper", ".2f")]  # as it prints them
    rows: Rows = []
    for (dataset, _), methods in _groups(result, ("paper",)):
        found = [methods[label] for label in labels if label in methods]
        if not any(_number(row, "cold", "paper") for row in found):
            continue  # a graph that the paper has no figures for
        for row in found:
            figures = {f"{metric}{end}": _number(row, metric, key) for metric in ("cold", "test") for end, key in _KEYS}
            rows.append({"dataset": dataset, "method": row["method"], **figures})
    return columns, rows


_KEYS = (("", "mean"), ("_spread", "spread"), ("_paper", "paper"))
REPRODUCED: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[list[Column], Rows]]]] = {
    "classes": ("classification", _classes),
    "paper": ("classification", _paper),
    "links": ("links", _links),
}
"""Part of a mark -> the table of ``gsparc reproduce`` it is cut from, and how."""


def cell(row: dict[str, Any], key: str, spec: str) -> str:
    """One value as text; a missing one is a dash.

    Examples
    --------
    >>> cell({"n": 1234567}, "n", ",d"), cell({}, "n", ",d"), cell({"m": 1, "s": 0.5}, "m", "{m} ± {s:.1f}")
    ('1,234,567', '–', '1 ± 0.5')
    """
    if "{" in spec:
        try:
            return spec.format(**row)
        except (KeyError, TypeError):  # absent, or None where a number is formatted
            return MISSING
    value = row.get(key)
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if spec.endswith("d"):
        value = int(value)
    return format(value, spec)


def to_markdown(table: Table) -> str:
    """A pipe table; the first column to the left, numbers to the right."""
    head = "| " + " | ".join(title for _, title, _ in table.columns) + " |"
    rule = "|---|" + "---:|" * (len(table.columns) - 1)
    lines = ["| " + " | ".join(cell(row, key, spec) for key, _, spec in table.columns) + " |" for row in table.rows]
    return "\n".join([head, rule, *lines]) + "\n" + (f"\n{table.note}\n" if table.note else "")


def to_rst(table: Table) -> str:
    """A list-table with one header row."""
    lines = ["", ".. list-table::", "   :header-rows: 1", ""]
    titles = [title for _, title, _ in table.columns]
    bodies = [[cell(row, key, spec) for key, _, spec in table.columns] for row in table.rows]
    for values in [titles, *bodies]:
        lines += [f"   {'* -' if i == 0 else '  -'} {value}".rstrip() for i, value in enumerate(values)]
    if table.note:
        lines += ["", table.note.replace("`", "``")]
    return "\n".join([*lines, "", ""])


def load_table(name: str, results: Path) -> Table:
    """The table behind a mark: ``index`` or, one of several in a file, ``index.part``."""
    stem, _, part = name.partition(".")
    if stem == "reproduced":
        return reproduced_table(part, results.parent.parent / "results")
    path = results / f"{stem}.json"
    if not path.is_file():
        raise TableError(f"table {name!r}: no {path.name} in {results.name}/. Run: python benchmarks/{stem}.py")
    result = json.loads(path.read_text(encoding="utf-8"))
    source = result.get("tables", {}).get(part) if part else result
    if not source or "rows" not in source or "columns" not in source:
        known = sorted(result.get("tables", {}))
        raise TableError(
            f"table {name!r}: {path.name} has no rows and columns under that name; parts: {known}. "
            f"If the script has changed since, run: python benchmarks/{stem}.py"
        )
    columns = [(str(key), str(title), str(spec)) for key, title, spec in source["columns"]]
    return Table(columns, source["rows"], provenance(stem, result))


def reproduced_table(part: str, results: Path) -> Table:
    """A table cut from a result file of ``gsparc reproduce``."""
    if part not in REPRODUCED:
        raise TableError(f"table 'reproduced.{part}': unknown; parts: {sorted(REPRODUCED)}.")
    name, cut = REPRODUCED[part]
    path = results / f"{name}.json"
    if not path.is_file():
        command = f"gsparc reproduce {name} --output results"
        raise TableError(f"table 'reproduced.{part}': no results/{path.name}. Run: {command}")
    result = json.loads(path.read_text(encoding="utf-8"))
    seeds = max((figures["seeds"] for row in result["rows"] for figures in row["metrics"].values()), default=0)
    place = result["hardware"].get("gpu") or f"{result['hardware']['cores']} CPU cores"
    note = f"Made by `gsparc reproduce {name}` ({seeds} seeds, {place}, {result['created'][:10]})."
    return Table(*cut(result), note)


def provenance(stem: str, result: dict[str, Any]) -> str:
    """One line under a table: which script, on what, when."""
    machine = result.get("hardware", {})
    place = machine.get("gpu") or (f"{machine['cores']} CPU cores" if "cores" in machine else "")
    details = ", ".join(part for part in (place, result.get("date", "")) if part)
    script = stem
    while "_" in script and not (ROOT / "benchmarks" / f"{script}.py").is_file():
        script = script.rpartition("_")[0]  # one script may write several files: large_fit_reddit.json
    return f"Made by `benchmarks/{script}.py`" + (f" ({details})." if details else ".")


def fill(text: str, suffix: str, results: Path) -> str:
    """``text`` with every marked block rewritten."""
    render = to_markdown if suffix == ".md" else to_rst

    def replace(match: re.Match[str]) -> str:
        start = match.group(0)[: match.start("body") - match.start()]
        end = match.group(0)[match.end("body") - match.start() :]
        return start + render(load_table(match["name"], results)) + end

    return _MARKS[suffix].sub(replace, text)


def pages(root: Path) -> list[Path]:
    """The pages that may carry tables."""
    built = root / "docs" / "_build"
    rst = [path for path in sorted((root / "docs").rglob("*.rst")) if built not in path.parents]
    return [path for path in (root / "README.md", *rst) if path.is_file()]


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Rewrite the pages, or with ``--check`` say which are out of date (exit 1)."""
    parser = argparse.ArgumentParser(description="Fill the tables of README.md and docs/ from benchmarks/results.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is out of date")
    check = parser.parse_args(argv).check
    stale = []
    for page in pages(root):
        old = page.read_text(encoding="utf-8")
        try:
            new = fill(old, page.suffix, root / "benchmarks" / "results")
        except TableError as error:
            print(f"{page.relative_to(root)}: {error}", file=sys.stderr)
            return 2
        if new != old:
            stale.append(str(page.relative_to(root)))
            if not check:
                page.write_text(new, encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}. Run: python scripts/readme_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
