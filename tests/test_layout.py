"""The row rule of docs/architecture.rst, and what no file of the library may contain."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "gsparc"
FILES = sorted(SOURCE.rglob("*.py"))

ROWS: dict[str, int] = {
    **dict.fromkeys(["exceptions", "_files", "_typing", "_optional", "_processes", "_runtime", "_version"], 0),
    **dict.fromkeys(["ops", "graph", "_csr", "_ids", "_cuts", "_store", "_mapped", "convert", "_validation"], 1),
    **dict.fromkeys(["nn", "training"], 2),
    **dict.fromkeys(["splits", "metrics", "model_store"], 3),
    **dict.fromkeys(["estimators"], 4),
    **dict.fromkeys(["baselines", "datasets", "recipes"], 5),
    **dict.fromkeys(["experiments", "integrations", "report", "storage", "tables"], 6),
    **dict.fromkeys(["cli", "server", "__main__"], 7),
}
FACE = "gsparc"  # __init__.py: loads everything lazily, so it has no row and nothing inside imports from it
NO_TABLES = {"sklearn", "pandas", "pyarrow", "polars", "narwhals"}  # ops and nn know nothing of these
UNPICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve"}
MAY_UNPICKLE: frozenset[str] = frozenset()  # files under datasets/ that read a publisher's pickled files


def module_name(path: Path) -> str:
    """``src/gsparc/ops/ritz.py`` -> ``gsparc.ops.ritz``; a package's ``__init__`` keeps that last part."""
    return ".".join([FACE, *path.relative_to(SOURCE).with_suffix("").parts])


def imports(source: str, module: str) -> Iterator[str]:
    """Dotted names that ``source`` imports anywhere, functions included, relative ones resolved."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in {"import_module", "import_optional", "__import__"}:
                yield str(node.args[0].value)


def row_of(name: str) -> int | None:
    """The row of a dotted gsparc name; None for the package's own face."""
    parts = name.split(".")
    return ROWS[parts[1]] if len(parts) > 1 and parts[1] in ROWS else None


def row_violations(source: str, module: str) -> list[str]:
    """Imports of ``module`` that reach a row below its own, or the face of the package."""
    if module == f"{FACE}.__init__":
        return []
    own, found = row_of(module), []
    if own is None:
        return [f"{module} has no row; give it one in ROWS and in docs/architecture.rst"]
    for name in imports(source, module):
        if name.split(".")[0] != FACE or name == f"{FACE}.__version__":
            continue
        row = row_of(name)
        if row is None:
            found.append(f"{module} imports {name} from the package's face; import the file that defines it")
        elif row > own:
            found.append(f"{module} (row {own}) imports {name} (row {row})")
    return found


def foreign_violations(source: str, module: str, forbidden: set[str]) -> list[str]:
    """Imports of packages that ``module`` must not know."""
    names = imports(source, module)
    return [f"{module} imports {name}" for name in names if name.split(".")[0] in forbidden]


def danger_violations(source: str, module: str) -> list[str]:
    """Calls that could execute what a file contains, and prints."""
    found = foreign_violations(source, module, UNPICKLERS)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        where = f"{module}:{node.lineno}"
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            found.append(f"{where} prints")
        for keyword in node.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else "an expression"
            if keyword.arg == "allow_pickle" and value is not False:
                found.append(f"{where} allow_pickle={value}")
            if keyword.arg == "weights_only" and value is not True:
                found.append(f"{where} weights_only={value}")
    return found


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_only_from_its_own_row_or_above(path: Path) -> None:
    assert row_violations(path.read_text(encoding="utf-8"), module_name(path)) == []


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_pickle_and_no_print(path: Path) -> None:
    if path.relative_to(SOURCE).as_posix() in MAY_UNPICKLE:
        pytest.skip("an explicit loader of a publisher's own files")
    assert danger_violations(path.read_text(encoding="utf-8"), module_name(path)) == []


@pytest.mark.parametrize("folder", ["ops", "nn"])
def test_mathematics_knows_no_tables_and_no_sklearn(folder: str) -> None:
    paths = sorted((SOURCE / folder).rglob("*.py"))
    assert paths, f"src/gsparc/{folder} is empty"
    for path in paths:
        assert foreign_violations(path.read_text(encoding="utf-8"), module_name(path), NO_TABLES) == []


def test_only_datasets_may_be_excused_from_the_pickle_rule() -> None:
    assert all(name.startswith("datasets/") and (SOURCE / name).is_file() for name in MAY_UNPICKLE)


@pytest.mark.parametrize("module", ["gsparc", "gsparc.cli"])
def test_torch_is_not_imported_before_a_command_runs(module: str) -> None:
    code = f"import sys, {module}; print({module}.__file__, *({{'torch', 'sklearn'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    file, *heavy = done.stdout.split()
    assert file.endswith("__init__.py"), f"{module} is an empty folder"
    assert heavy == [], f"import {module} loads {heavy}"


# The checker itself, on sources made up to break each rule.


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("gsparc.ops.ritz", "from gsparc.nn.gcn import Gcn", "row 1.*gsparc.nn.gcn.Gcn.*row 2"),
        ("gsparc.graph", "def f():\n    from gsparc.estimators import links", "row 1.*row 4"),
        ("gsparc.nn.gcn", "import gsparc.cli.demo", "row 2.*row 7"),
        ("gsparc.exceptions", "from ._validation import check_name", "row 0.*row 1"),
        ("gsparc.ops.ritz", "from ..report import plots", "row 1.*row 6"),
        ("gsparc.ops.__init__", "from ..datasets import load_dataset", "row 1.*row 5"),
        ("gsparc.splits", "importlib.import_module('gsparc.datasets')", "row 3.*row 5"),
        ("gsparc.splits", "from gsparc import Graph", "face"),
        ("gsparc.somewhere", "import numpy", "has no row"),
    ],
)
def test_the_row_checker_sees(module: str, source: str, expected: str) -> None:
    (message,) = row_violations(source, module)
    assert re.search(expected, message)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gsparc.nn.gcn", "from gsparc.ops.ritz import solve\nfrom gsparc._runtime import resolve_device"),
        ("gsparc.ops.ritz", "from . import laplacian\nfrom .laplacian import degrees\nimport numpy as np"),
        ("gsparc.cli.demo", "from gsparc.report import page\nfrom gsparc import __version__"),
        ("gsparc.__init__", "from gsparc.cli import main"),
    ],
)
def test_the_row_checker_passes(module: str, source: str) -> None:
    assert row_violations(source, module) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from joblib import load",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "torch.load(path, weights_only=False)",
        "print('hello')",
    ],
)
def test_the_danger_checker_sees(source: str) -> None:
    assert len(danger_violations(source, "gsparc.graph")) == 1


def test_the_danger_checker_passes_safe_calls() -> None:
    safe = "np.load(p, allow_pickle=False)\ntorch.load(p, weights_only=True)\nconsole.print('shown by rich')"
    assert danger_violations(safe, "gsparc.graph") == []


def test_the_table_checker_sees_function_level_imports() -> None:
    source = "def f():\n    import pandas as pd\n    from sklearn.base import clone"
    assert len(foreign_violations(source, "gsparc.ops.ritz", NO_TABLES)) == 2
