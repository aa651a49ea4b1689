"""Options that messages name: they exist, and the command that speaks has them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gsparc as package
from gsparc.cli.app import _COMMANDS
from gsparc.cli.common import _with_options, options_of

SOURCE = Path(package.__file__).parent
OTHERS = {"--head", "--help", "--install-completion", "--max-restarts", "--nnodes", "--nproc-per-node"}
OTHERS |= {"--rdzv-backend", "--rdzv-endpoint", "--upgrade", "--version"}  # of pip, ray, torchrun and all commands


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*\b", text))


def test_every_option_that_a_text_names_exists() -> None:
    known = OTHERS.union(*(options_of(module.run) for module in _COMMANDS))
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "report" and "style" in path.name:
            continue  # variables of style sheets
        texts = [n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Constant)]
        for text in texts:
            if isinstance(text, str) and " " in text:  # others are arguments of programs
                assert options_in(text) <= known, f"{path}: {text}"


def test_options_of_a_command_are_those_of_typer() -> None:
    import typer

    from gsparc.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for module in _COMMANDS:
        named = {name for parameter in commands[module.NAME].params for name in parameter.opts}
        assert {name for name in named if name.startswith("--")} - {"--help"} == options_of(module.run)


def test_arguments_of_the_library_become_options() -> None:
    options = {"--device", "--label", "--max-steps"}
    assert _with_options("device='cuda:1' was asked for. Pass device='auto'.", options) == (
        "--device cuda:1 was asked for. Pass --device auto."
    )
    assert _with_options("Pass label= to name another.", options) == "Pass --label to name another."
    assert _with_options("max_steps=0 is too small; graph=Graph(...)", options) == (
        "--max-steps 0 is too small; graph=Graph(...)"
    )
    assert _with_options("max_steps=-1 came (device='cpu').", options) == "--max-steps -1 came (--device cpu)."


@pytest.mark.parametrize(
    "text",
    [
        "/data/label=a/nodes.csv is no table.",
        "column 'label=5' holds text",
        'label="it\'s" came',
        "label=('a', 'b')",
    ],
)
def test_what_only_looks_like_an_argument_stays_as_it_is(text: str) -> None:
    assert _with_options(text, {"--label"}) == text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, inside) -> Path:
    """A model of 60 nodes of two classes."""
    path, rng = tmp_path_factory.mktemp("advice"), np.random.default_rng(0)
    kind = np.arange(60) % 2
    nodes = {
        "id": [f"n{i}" for i in range(60)],
        "size": rng.normal(size=60) + 3 * kind,
        "kind": np.array(["even", "odd"])[kind],
    }
    pq.write_table(pa.table(nodes), path / "nodes.parquet")
    ends = {"from": nodes["id"], "to": np.roll(nodes["id"], -2)}
    pq.write_table(pa.table(ends), path / "edges.parquet")
    new = {"id": [f"m{i}" for i in range(4)], "size": [0.0, 1.0, 2.0, 3.0]}
    pq.write_table(pa.table({**new, "kind": ["even", "odd"] * 2}), path / "new.parquet")
    pq.write_table(pa.table({**new, "kind": [0.5] * 4}), path / "strange.parquet")
    pq.write_table(pa.table({**new, "id": ["m0"] * 4}), path / "repeated.parquet")
    pq.write_table(pa.table({"when": ["x"], "here": ["m1"], "there": ["n3"]}), path / "more.parquet")
    done = inside(
        "fit", "--nodes", path / "nodes.parquet", "--edges", path / "edges.parquet", "--target", "kind", "-o",
        path / "model", "--backbone", "mlp", "--task", "classes", "--max-steps", 3, "-q",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return path / "model"


@pytest.mark.parametrize("command", ["evaluate", "grow"])
def test_classes_that_are_none(inside, model: Path, tmp_path: Path, command: str) -> None:
    rows = model.parent / "strange.parquet"
    done = inside(*(("evaluate", model, rows) if command == "evaluate" else ("grow", model, "--nodes", rows)))
    assert done.returncode == 1
    assert "not whole" in done.stderr
    assert "The classes of this model are such as 'even'." in done.stderr


def test_ids_of_rows_that_join(inside, model: Path) -> None:
    done = inside("grow", model, "--nodes", model.parent / "repeated.parquet")
    assert done.returncode == 1
    assert "drop or rename the others." in done.stderr


def test_edges_that_join_may_name_their_columns(inside, model: Path, tmp_path: Path) -> None:
    asked = ("grow", model, "--nodes", model.parent / "new.parquet", "--edges", model.parent / "more.parquet")
    done = inside(*asked, "-o", tmp_path / "a")
    assert "1 of 1 edges" in done.stderr  # 'when' and 'here' were guessed
    done = inside(*asked, "-o", tmp_path / "b", "--edge-source", "here", "--edge-target", "there", "--json")
    assert done.returncode == 0, done.stderr
    assert '"used": 1' in done.stdout
    assert inside(*asked, "-o", tmp_path / "c", "--edge-source", "where").returncode == 1


@pytest.mark.parametrize("arguments", [["info"], ["embed"], ["datasets"]])
def test_a_label_column_that_holds_no_classes(inside, tmp_path: Path, arguments: list[str]) -> None:
    nodes = {"id": [1, 2, 3], "label": [0.5, 1.0, 2.0], "kind": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3]}), tmp_path / "edges.parquet")
    more = {"embed": ["-o", tmp_path / "c.csv"], "datasets": ["--export", tmp_path / "out"]}.get(arguments[0], [])
    done = inside(*arguments, tmp_path, *more)
    assert done.returncode == 1
    assert "Pass --label to name another column." in done.stderr
    if arguments[0] != "embed":
        assert inside(*arguments, tmp_path, *more, "--label", "kind").returncode == 0
