"""Which options of ``gsparc fit`` go together; said before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

__all__ = [
    "BACKBONES",
    "check_folder",
    "check_report",
    "check_usage",
    "check_values",
    "refuse_beside_a_store",
    "refuse_other_sources",
    "refuse_the_other_form",
]

BACKBONES = ("auto", "gcn", "mlp", "phormer", "samba")


def refuse_other_sources(*others: object) -> None:
    """A store holds nodes and edges: nothing else may be given beside it."""
    if any(other is not None for other in others):
        raise typer.BadParameter(
            "a store holds nodes and edges already; pass it without --nodes, --edges, --dataset and --recipe.",
            param_hint="--store",
        )


def refuse_beside_a_store(columns: dict[str, Any], others: dict[str, Any]) -> None:
    """What a store has settled, or what is not done with one, must not be ignored in silence."""
    for name, value in columns.items():
        if _is_said(value):
            raise typer.BadParameter(
                "what the columns are and which rows are held out was said when the store was made: pass this to "
                "gsparc ingest.",
                param_hint=name,
            )
    for name, value in others.items():
        if _is_said(value):
            raise typer.BadParameter("it goes with --nodes and --edges, not with --store.", param_hint=name)


def _is_said(value: Any) -> bool:
    return value is not None and value is not False and value != []


def refuse_the_other_form(tables: bool, said: dict[str, Any], evaluate: bool) -> None:
    """An option that the form of the command has no use for is an error: ignored, it would be taken for done."""
    if tables and evaluate:
        raise typer.BadParameter(
            "it goes with --dataset or --recipe. With --nodes and --edges rows are held out and compared anyway; "
            "--holdout says how many.",
            param_hint="--evaluate",
        )
    for name, value in said.items():
        if _is_said(value) and not tables:
            raise typer.BadParameter("it goes with --nodes and --edges alone.", param_hint=name)


def check_usage(
    dataset: str | None, nodes: Path | None, edges: Path | None, recipe: str | None, backbone: str | None
) -> None:
    """Which options go together."""
    if (nodes is None) != (edges is None):
        raise typer.BadParameter("--nodes and --edges go together; pass both.", param_hint="--nodes")
    if dataset is not None and nodes is not None:
        raise typer.BadParameter("pass either --dataset or --nodes and --edges, not both.", param_hint="--dataset")
    if dataset is None and nodes is None and recipe is None:
        raise typer.BadParameter(
            "pass a node table and an edge table (--nodes, --edges), a --store, a --dataset or a --recipe.",
            param_hint="--nodes",
        )
    if recipe is not None and backbone is not None:
        raise typer.BadParameter(
            "a recipe says which backbone it is for; pass one of the two.", param_hint="--backbone"
        )


def check_values(backbone: str | None, index_memory: str | None) -> None:
    """Names that do not exist and sizes that are none are refused before anything is loaded."""
    from gsparc._validation import check_memory, check_name

    if backbone is not None:
        check_name("backbone", backbone, BACKBONES)
    if index_memory is not None:
        check_memory("--index-memory", index_memory)


def check_folder(output: Path, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a folder that cannot be written, or that holds something else or an input, before the fit."""
    from gsparc._files import refuse_overwriting
    from gsparc.cli.files import check_output
    from gsparc.model_store import check_target

    check_target(output)
    refuse_overwriting(output, inputs)
    check_output(output.parent, table=False)


def check_report(report: Path, output: Path, inputs: Iterable[Path]) -> None:
    """Refuse a report that cannot be written, or would be written over an input or a file of the model."""
    from gsparc._files import refuse_overwriting
    from gsparc.cli.files import check_output
    from gsparc.exceptions import OutputError

    if report.is_dir():
        raise OutputError(f"the report {report} is a folder. Pass the name of a file, such as report.html.")
    refuse_overwriting(report, inputs)
    folder, model = report.absolute().parent.resolve(), output.resolve()
    if not folder.is_relative_to(model):
        check_output(folder, table=False)  # makes it; one within the model's folder is made after that
    elif folder == model and report.suffix.lower() != ".html":
        raise OutputError(
            f"the report {report} would stand among the files of the model. Pass a name that ends in .html."
        )
