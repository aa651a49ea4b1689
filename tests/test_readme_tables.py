"""README and documentation show what benchmarks/results holds, and the script that sees to it works."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

RESULT = {
    "name": "toy",
    "date": "2026-01-02",
    "hardware": {"cores": 2, "gpu": None},
    "columns": [["name", "graph", ""], ["edges", "edges", ",d"], ["mrr", "MRR", "{mrr:.1f} ± {std:.1f}"]],
    "rows": [{"name": "ring", "edges": 12345, "mrr": 33.04, "std": 0.26}, {"name": "star", "edges": None}],
    "tables": {"short": {"columns": [["ok", "ok?", ""], ["t", "s", ".2f"]], "rows": [{"ok": True, "t": 1}]}},
}
MARKDOWN = """| graph | edges | MRR |
|---|---:|---:|
| ring | 12,345 | 33.0 ± 0.3 |
| star | – | – |

Made by `benchmarks/toy.py` (2 CPU cores, 2026-01-02).
"""


@pytest.fixture(scope="module")
def script(project: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_tables", project / "scripts" / "readme_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (results / "toy.json").write_text(json.dumps(RESULT), encoding="utf-8")
    (tmp_path / "README.md").write_text("# x\n<!-- table:toy -->\nold\n<!-- /table -->\nend\n", encoding="utf-8")
    return tmp_path


def test_the_project_pages_are_up_to_date(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--check"]) == 0, capsys.readouterr().err


def test_fills_a_markdown_table_and_leaves_the_rest(script: ModuleType, root: Path) -> None:
    assert script.main([], root) == 0
    expected = f"# x\n<!-- table:toy -->\n{MARKDOWN}<!-- /table -->\nend\n"
    assert (root / "README.md").read_text(encoding="utf-8") == expected


def test_check_fails_until_filled_and_changes_nothing(script: ModuleType, root: Path) -> None:
    before = (root / "README.md").read_bytes()
    assert script.main(["--check"], root) == 1
    assert (root / "README.md").read_bytes() == before
    script.main([], root)
    assert script.main(["--check"], root) == 0


def test_fills_one_of_several_tables_in_rst(script: ModuleType, root: Path) -> None:
    page = root / "docs" / "page.rst"
    page.write_text("Title\n\n.. table:toy.short\n.. /table\n", encoding="utf-8")
    script.main([], root)
    text = page.read_text(encoding="utf-8")
    assert "   * - ok?\n     - s\n   * - yes\n     - 1.00\n" in text
    assert text.startswith("Title\n\n.. table:toy.short\n\n.. list-table::")
    assert text.endswith("\n\n.. /table\n")


@pytest.mark.parametrize(
    ("mark", "message"),
    [("absent", "python benchmarks/absent.py"), ("toy.long", r"parts: \['short'\]")],
)
def test_a_table_that_cannot_be_filled(
    script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str], mark: str, message: str
) -> None:
    (root / "README.md").write_text(f"<!-- table:{mark} -->\n<!-- /table -->\n", encoding="utf-8")
    assert script.main([], root) == 2
    with pytest.raises(script.TableError, match=message):
        script.load_table(mark, root / "benchmarks" / "results")
    assert mark in capsys.readouterr().err
