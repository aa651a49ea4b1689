"""How well do new nodes find their links, beside cosine and popularity, on the same splits?

    python benchmarks/links.py --seeds 5

Split `dense` (20 % cold, 5 % validation, the rest seen). Ranking against all seen nodes, filtered.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from _common import RESULTS, Timer, record
from gsparc import ColdStartSplit, SparcLinkPredictor, load_dataset
from gsparc.baselines import FeatureCosineLinks
from gsparc.experiments.provenance import hardware, versions
from gsparc.metrics import link_metrics, paired_difference, rank_links, truth_matrix

DATASETS = ["cora", "citeseer", "pubmed", "amazon-photo", "amazon-computers", "debian"]
COLUMNS = [
    ["dataset", "graph", ""],
    ["cosine", "feature cosine", ".1f"],
    ["popularity", "popularity", ".1f"],
    ["both", "cosine + popularity", ".1f"],
    ["likeness", "gsparc without popularity", ".1f"],
    ["gsparc", "gsparc", ".1f"],
    ["spread", "± sd", ".1f"],
    ["gain", "gain over the best baseline", "+.1f"],
    ["gain_low", "95 % low", "+.1f"],
    ["gain_high", "95 % high", "+.1f"],
    ["seconds", "fit, s", ".0f"],
]


def without_popularity(model: SparcLinkPredictor, rows):
    """Scores of the same fitted model with its popularity term taken out."""
    scores = model.score_all(rows)
    weight = model.weights_.popularity
    return scores - weight * model_log_degrees(model) if weight else scores


def model_log_degrees(model: SparcLinkPredictor) -> np.ndarray:
    """log(1 + degree) of the seen nodes, as the model's prior holds it."""
    return model.index_.state()[0]["prior"] / model.weights_.popularity


def run(name: str, seed: int, device: str) -> dict[str, dict[str, float]]:
    """Metrics of every method on one split."""
    data = load_dataset(name)
    split = ColdStartSplit("dense", random_state=seed)
    (fold,) = split.folds(data.X, data.y, data.groups)
    X, graph, X_cold = data.X[fold.seen], data.graph[fold.seen], data.X[fold.cold]
    truth = truth_matrix(data.graph, fold.cold, fold.seen)
    models = {
        "cosine": FeatureCosineLinks("none"),
        "popularity": FeatureCosineLinks("only"),
        "both": FeatureCosineLinks("degree", random_state=seed),
        "gsparc": SparcLinkPredictor(device=device, random_state=seed),
    }
    out = {}
    for label, model in models.items():
        with Timer() as timer:
            model.fit(X, graph=graph)
        ranks = rank_links(lambda rows, model=model: model.score_all(X_cold[rows]), truth)
        out[label] = link_metrics(ranks) | {"seconds": timer.seconds}
    ours = models["gsparc"]
    ranks = rank_links(lambda rows: without_popularity(ours, X_cold[rows]), truth)
    out["likeness"] = link_metrics(ranks)
    out["gsparc"]["report"] = ours.report_
    return out


def _earlier(path: Path, again: list[str]) -> tuple[list, dict]:
    """Rows and cells of an earlier run for the graphs that are not run again: a long run can be cut in pieces."""
    if not path.exists():
        return [], {}
    saved = json.loads(path.read_text(encoding="utf-8"))
    if saved["versions"] != versions() or saved["hardware"] != hardware():
        return [], {}  # one header speaks for all rows, so they must come from one place
    rows = [row for row in saved["rows"] if row["dataset"] not in again]
    return rows, {name: cell for name, cell in saved["cells"].items() if name not in again}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    rows, cells = _earlier(args.output or RESULTS / "links.json", args.datasets)
    for name in args.datasets:
        runs = [run(name, seed, args.device) for seed in range(args.seeds)]
        cells[name] = runs
        mrr = {label: np.array([100 * r[label]["mrr"] for r in runs]) for label in runs[0]}
        best = max(("cosine", "popularity", "both"), key=lambda label: mrr[label].mean())
        gain = paired_difference(mrr["gsparc"], mrr[best])
        row = {"dataset": name, "best_baseline": best, **{label: float(v.mean()) for label, v in mrr.items()}}
        row |= {"spread": float(mrr["gsparc"].std(ddof=1)), "gain": gain[0], "gain_low": gain[1], "gain_high": gain[2]}
        row["seconds"] = float(np.mean([r["gsparc"]["seconds"] for r in runs]))
        for label in ("cosine", "both", "gsparc"):
            row[f"{label}_mrr_edges"] = float(np.mean([100 * r[label]["mrr_edges"] for r in runs]))
        rows.append(row)
        print(row, flush=True)
        # written after each graph: a run that is stopped leaves what it has
        bar = "Cora 33.5, Citeseer 46, Pubmed 12, Photo 42, Computers 31, Debian 1.15 x cosine; each above cosine"
        record("links", {"columns": COLUMNS, "rows": rows, "bar": bar, "cells": cells}, args.output)


if __name__ == "__main__":
    main()
