"""``gsparc demo``: hold nodes out as new ones, compare, and leave a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, MaxSteps, Seed, command, emit, plain, say
from gsparc.cli.embed import Label

NAME = "demo"
_MODELS = ("classifier", "links")


@command
def run(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for report and models.")] = Path("gsparc-demo"),
    seed: Seed = 0,
    dataset: Annotated[
        str, typer.Option("--dataset", help="A data set's name, an .npz file or a folder of tables.")
    ] = "debian",
    label: Label = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less training, for a first look.")] = False,
    max_steps: MaxSteps = None,
    as_json: AsJson = False,
) -> None:
    """Fit on a graph with some nodes held out as new ones, compare with baselines, and write a report.

    Leaves report.html, result.json and the models classifier/ and links/ in the output folder.

    Example:  gsparc demo -o gsparc-demo
    """
    from gsparc._optional import import_optional
    from gsparc.cli.files import check_output
    from gsparc.datasets import load_dataset
    from gsparc.model_store import check_target

    import_optional("matplotlib", extra="report", purpose="the demo's report")
    check_output(output, table=False)
    for name in _MODELS:
        check_target(output / name)
    say(f"loading {dataset}")
    data = load_dataset(dataset, allow_pickle_sources=False, label=label)
    from gsparc.experiments import run_demo

    result = run_demo(data, seed=seed, quick=quick, max_steps=max_steps, verbose=1, say=say)
    _write(result, output, data.feature_names)
    document = {key: value for key, value in result.record.items() if key != "map"}
    document["files"] = {"report": str(output / "report.html"), "result": str(output / "result.json")}
    emit(document, as_json, _show)


def _write(result: Any, output: Path, feature_names: Any) -> None:
    import json

    from gsparc._files import write_text
    from gsparc.cli.models import save_with_names
    from gsparc.report import write_page

    record = plain(result.record)
    text = json.dumps(record, allow_nan=False, ensure_ascii=False, indent=1)
    write_text(output / "result.json", text + "\n")
    say("writing the report and the models")
    write_page(record, output / "report.html")
    for name, model in zip(_MODELS, (result.classifier, result.link_predictor), strict=True):
        if model is not None:
            save_with_names(model, output / name, feature_names)


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console

    from gsparc.cli.tables import CLASS_COLUMNS, LINK_COLUMNS, methods_table

    console, words, split = Console(), document["words"], document["split"]
    console.print()
    if document["classification"]:
        title = f"{words['class']} of {split['cold_labelled']:,} new {words['nodes']}"
        console.print(methods_table(document["classification"], CLASS_COLUMNS, title), "")
    title = f"{words['links']} of {split['cold_ranked']:,} new {words['nodes']}, ranked against {split['seen']:,}"
    console.print(methods_table(document["links"], LINK_COLUMNS, title), "")
    for sentence in document["summary"]:
        console.print(sentence, highlight=False, markup=False)
    for example in document["examples"]:
        console.print()
        _show_example(console, example, words)
    console.print(f"\nReport: {document['files']['report']}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"All of it took {document['seconds']['total']:.0f} s.", highlight=False)


def _show_example(console: Any, example: dict[str, Any], words: dict[str, str]) -> None:
    from rich.text import Text

    line = Text(f"{example['id']}", style="bold")
    line.append(f"  ({example['tag']})", style="dim")
    console.print(line)
    if example["predicted"]:
        first = example["predicted"][0]
        verdict = ("right", "green") if example["correct"] else (f"wrong, it is {example['true']}", "red")
        line = Text(f"  {words['class']}: {first['class']} ({100 * first['probability']:.0f} %), ")
        console.print(line.append(*verdict))
    line = Text(f"  suggested {words['links']} (* true, {example['links']} exist): ")
    for place, link in enumerate(example["suggested"]):
        line.append(", " if place else "")
        line.append(f"{link['id']}*" if link["true"] else link["id"], style="green" if link["true"] else "")
    console.print(line)
    if example["nearest"]:
        near = ", ".join(f"{n['id']} [{n['class']}]" if n["class"] else n["id"] for n in example["nearest"])
        console.print(Text(f"  nearest known {words['nodes']}: {near}"))
