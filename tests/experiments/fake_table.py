"""A table whose numbers are known, for tests of the engine; workers import it by its name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from gsparc.experiments.engine import Cell, Context, Experiment, Method, Metric

COLD = {"Ours": (60.0, 62.0, 67.0), "A": (58.0, 61.0, 61.0), "B": (50.0, 50.0, 50.0)}
LOSS = {"Ours": (1.0, 1.0, 1.0), "A": (3.0, 3.0, 3.0), "B": (2.0, 2.0, 2.0)}


def note(cell: Cell, table: str = "") -> None:
    """Leave a line for a cell that is run in the file named by FAKE_LOG, and take as long as FAKE_SLEEP says."""
    if log := os.environ.get("FAKE_LOG"):
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(f"{table}{cell.key} by {os.getpid()}\n")
    time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))


def _tried_before(cell: Cell) -> bool:
    return Path(os.environ["FAKE_LOG"]).read_text(encoding="utf-8").count(f"{cell.key} by") > 1


def run(cell: Cell, context: Context) -> dict[str, object]:
    """Known numbers, an error or a refusal, as the method's name says."""
    note(cell)
    if cell.method == "Broken" and not os.environ.get("FAKE_MENDED"):
        raise ValueError("two\nlines")
    if cell.method == os.environ.get("FAKE_CROWDED") and cell.seed == 0 and not _tried_before(cell):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    lost = os.environ.get("FAKE_LOST")
    if lost == "all" or (lost == cell.method and cell.seed == 0 and not _tried_before(cell)):
        raise torch.AcceleratorError("CUDA error: device(s) is/are busy or unavailable")
    if cell.method == "Dies":
        os._exit(9)
    if cell.method == "NA":
        return {"not_applicable": "needs edges"}
    cold = COLD.get(cell.method, (1.0, 2.0, 3.0))[cell.seed]
    loss = LOSS.get(cell.method, (9.0, 9.0, 9.0))[cell.seed]
    curve = [float(cell.seed), 2.0 * cell.seed, 7.0][: 2 + (cell.seed == 0)]
    return {"cold": cold, "loss": loss, "curve": curve, "nan": float("nan"), "seconds": 2.0}


def settings(dataset: str) -> tuple[str, ...]:
    """Two splits, but none for actor."""
    return ("",) if dataset == "actor" else ("dense", "few")


def skip(dataset: str, setting: str, method: str) -> str | None:
    """One method is left out of one setting."""
    return "too many nodes for it" if (setting, method) == ("few", "B") else None


TABLE = Experiment(
    name="fake",
    title="A table for tests.",
    question="Are the rows right?",
    datasets=("generated",),
    settings=settings,
    methods=(
        Method("Ours", "seen nodes", "its own features only", ours=True),
        Method("A", "seen nodes", "its own features only"),
        Method("B", "seen nodes", "its own features only"),
        Method("Broken", "nothing", "nothing"),
        Method("NA", "nothing", "not applicable: needs edges"),
    ),
    metrics=(Metric("cold", "cold accuracy, %"), Metric("loss", "loss", better="lower")),
    run=run,
    paper={("generated", "dense", "Ours"): {"cold": 64.5}},
    skip=skip,
)
