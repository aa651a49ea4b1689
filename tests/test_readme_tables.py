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


def _reproduced(cold: float, to: str | None, **changes: object) -> dict[str, object]:
    difference = None if to is None else {"to": to, "mean": 1.25, "low": -0.5, "high": 3.0, "seeds": 3}
    figures = {"mean": cold, "spread": 0.44, "seeds": 3, "paper": None, "difference": difference}
    row = {"dataset": "ring", "setting": "dense", "generated": False, "metrics": {"cold": figures}}
    return {**row, **changes}


def test_cuts_a_table_from_the_results_of_reproduce(script: ModuleType, root: Path) -> None:
    rows = [
        _reproduced(81.25, "Cold Brew", method="gsparc auto"),
        _reproduced(70.0, "Cold Brew", method="MLP"),
        _reproduced(80.0, None, method="Cold Brew"),
        _reproduced(99.0, "MLP", method="gsparc auto", dataset="made up", generated=True),
        _reproduced(98.0, "MLP", method="gsparc auto", setting="paper"),
    ]
    document = {"rows": rows, "hardware": {"gpu": "Some GPU", "cores": 4}, "created": "2026-01-02T03:04:05+00:00"}
    (root / "results").mkdir()
    (root / "results" / "classification.json").write_text(json.dumps(document), encoding="utf-8")
    (root / "README.md").write_text("<!-- table:reproduced.classes -->\n<!-- /table -->\n", encoding="utf-8")
    assert script.main([], root) == 0
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[3] == "| ring | dense | 70.0 | – | – | – | 80.0 (Cold Brew) | 81.2 ± 0.4 | +1.2 | -0.5 | +3.0 |"
    assert lines[5] == "Made by `gsparc reproduce classification` (3 seeds, Some GPU, 2026-01-02)."


def test_says_how_to_make_a_missing_result_of_reproduce(
    script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, message in (("links", "Run: gsparc reproduce links --output results"), ("other", "unknown; parts:")):
        (root / "README.md").write_text(f"<!-- table:reproduced.{part} -->\n<!-- /table -->\n", encoding="utf-8")
        assert script.main([], root) == 2
        assert message in capsys.readouterr().err
