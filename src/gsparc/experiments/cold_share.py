"""The cold-start proportion figure: accuracy as more and more of the nodes have no edges.

The share of cold nodes grows and the seen graph shrinks with it. 5 % of the nodes, without edges as well, are the
validation nodes of every method; all seen labels are given. The paper shows Reddit and prints no figures; here the
same goes for smaller graphs, and for Reddit where its files are present.

The paper's figure has SPARCphormer alone. Beside it stands what the library does when nothing is chosen, an average of
several networks, and for a fair comparison the two strongest plain baselines averaged over as many random starts.
"""

from __future__ import annotations

from typing import Any

from gsparc.experiments.classification import METHODS, SPARC, WITHOUT_GRAPH, ask, class_question, make_model, shared_map
from gsparc.experiments.engine import Cell, Context, Experiment, Metric

__all__ = ["SHARES", "TABLE"]

SHARES = ("0.03", "0.1", "0.2", "0.35", "0.5", "0.7")
_LABELS = (
    "gsparc auto",
    "SPARCphormer",
    "GraphSAGE",
    "feature transformer",
    "MLP",
    "GLNN",
    "MLP, 6 starts",
    "GLNN, 6 starts",
)


def run(cell: Cell, context: Context) -> dict[str, Any]:
    """One method with one share of cold nodes."""
    from gsparc.splits import ColdStartSplit

    split = ColdStartSplit("dense", cold=float(cell.setting), random_state=cell.seed)
    question = class_question(context.data, split, cell.seed)
    maps, before = shared_map(question, context, cell.seed) if cell.method in SPARC else (None, 0.0)
    model = make_model(cell.method, context, cell.seed, maps=maps)
    numbers = ask(model, question, graph=cell.method not in WITHOUT_GRAPH)
    numbers["seconds"] += before
    return {name: value for name, value in numbers.items() if name != "test"}


TABLE = Experiment(
    name="cold-share",
    title="Accuracy as the share of cold nodes grows.",
    question="How much of the graph may be missing before its edges stop helping nodes without any?",
    datasets=("cora", "pubmed", "amazon_photo"),
    settings=lambda dataset: SHARES,
    methods=tuple(method for label in _LABELS for method in METHODS if method.label == label),
    metrics=(
        Metric("cold", "cold accuracy, %"),
        Metric("macro_f1", "macro-F1 on cold nodes, %"),
        Metric("calibration", "calibration error on cold nodes, %", better="lower"),
    ),
    run=run,
    x_axis="share of cold nodes",
)
