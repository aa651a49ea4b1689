"""Fill the tables of README.md and docs/ from benchmarks/results/*.json.

A page marks the place; everything between the marks is rewritten::

    <!-- table:index -->          in Markdown           .. table:index          in reStructuredText
    <!-- /table -->                                     .. /table

``index`` names ``benchmarks/results/index.json``. That file carries ``rows`` (a list of objects) and
``columns`` (a list of ``[key, title, format]``); a file with several tables carries
``tables: {part: {rows, columns}}``, named ``index.part`` in the mark. ``format`` is a format specification
(``",d"``, ``".1f"``) or, when it contains a brace, a template over the whole row
(``"{mean:.1f} ± {std:.1f}"``). A result without columns of its own gets an entry in RENDERERS.

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


RENDERERS: dict[str, Callable[[dict[str, Any]], Table]] = {}
"""Result name -> function, for files that do not carry their own columns."""


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
    path = results / f"{stem}.json"
    if not path.is_file():
        raise TableError(f"table {name!r}: no {path.name} in {results.name}/. Run: python benchmarks/{stem}.py")
    result = json.loads(path.read_text(encoding="utf-8"))
    if stem in RENDERERS and not part:
        return RENDERERS[stem](result)
    source = result.get("tables", {}).get(part) if part else result
    if not source or "rows" not in source or "columns" not in source:
        known = sorted(result.get("tables", {}))
        raise TableError(
            f"table {name!r}: {path.name} has no rows and columns under that name; parts: {known}. "
            f"If the script has changed since, run: python benchmarks/{stem}.py"
        )
    columns = [(str(key), str(title), str(spec)) for key, title, spec in source["columns"]]
    return Table(columns, source["rows"], provenance(stem, result))


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
