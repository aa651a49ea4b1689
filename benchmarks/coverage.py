"""Do prediction sets hold the true class of cold nodes as often as they promise?

    python benchmarks/coverage.py
    python benchmarks/coverage.py --backbone auto --device cuda --jobs 12    # the default model, on a GPU

A fifth of the nodes is cold. Of the others a fifth is held out without edges: half of it validates (stops, weighs and
sets the temperature), half calibrates. Sets, calibration error and novelty are measured on the cold nodes; beside them
the sets of the same model before ``calibrate``, when the validating nodes serve.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from _common import Timer, record
from gsparc import ColdStartSplit, SparcClassifier, load_dataset
from gsparc.metrics.labels import expected_calibration_error

RUNS = (("cora", "dense"), ("cora", "few"), ("pubmed", "dense"), ("debian", "dense"))
COVERAGES = (0.8, 0.9, 0.95)
COLUMNS = [
    ["dataset", "data set", ""],
    ["split", "labels", ""],
    ["seeds", "seeds", "d"],
    ["calibration", "calibration nodes", ",d"],
    ["accuracy", "accuracy, %", ".1f"],
    ["coverage", "coverage at 90 %", ".1f"],
    ["coverage_sd", "sd over seeds", ".1f"],
    ["size", "classes a set", ".2f"],
    ["uncalibrated", "without calibrate", ".1f"],
    ["ece", "calibration error, %", ".1f"],
    ["novel", "novelty < 5 %, % of cold", ".1f"],
]


def one(name: str, split: str, seed: int, backbone: str, device: str) -> dict[str, Any]:
    """Figures of one split."""
    data = load_dataset(name)
    assert data.y is not None
    fold = next(ColdStartSplit(split, validation=0.16, random_state=seed).folds(data.X, data.y, data.groups))
    held = np.random.default_rng(seed).permutation(fold.val)
    judge, calibration = np.sort(held[: len(held) // 2]), np.sort(held[len(held) // 2 :])
    model = SparcClassifier(backbone, random_state=seed, device=device)
    model.fit(
        data.X[fold.seen],
        fold.visible_labels(data.y),
        graph=data.graph[fold.seen],
        validation=(data.X[judge], data.y[judge]),
    )
    X, y = data.X[fold.cold], np.searchsorted(model.classes_, data.y[fold.cold])
    at = np.arange(len(y))
    before = model.predict_set(X)[at, y].mean()
    model.calibrate(data.X[calibration], data.y[calibration])
    proba = model.predict_proba(X)
    sets = {coverage: model.predict_set(X, coverage) for coverage in COVERAGES}
    return {
        "calibration": len(calibration),
        "accuracy": 100 * (proba.argmax(axis=1) == y).mean(),
        "uncalibrated": 100 * before,
        "ece": 100 * expected_calibration_error(proba, y),
        "novel": 100 * (model.novelty(X) < 0.05).mean(),
        "size": sets[0.9].sum(axis=1).mean(),
        "coverage": 100 * sets[0.9][at, y].mean(),
        **{f"coverage_{round(100 * c)}": 100 * sets[c][at, y].mean() for c in COVERAGES if c != 0.9},
    }


def summary(name: str, split: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and what each seed gave."""
    row = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
    spread = np.std([run["coverage"] for run in runs], ddof=1) if len(runs) > 1 else None
    row |= {"calibration": round(row["calibration"]), "coverage_sd": spread}
    return {"dataset": name, "split": split, "seeds": len(runs), **row, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="mlp")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="Processes; with more than one, give each one thread.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--datasets", nargs="+", default=sorted({name for name, _ in RUNS}))
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    runs = [run for run in RUNS if run[0] in args.datasets]
    cells = [(*run, seed) for run in reversed(runs) for seed in range(args.seeds)]  # the long ones first
    rows, timer = [], Timer()
    with timer, ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(one, *zip(*cells, strict=True), repeat(args.backbone), repeat(args.device))
        by_cell = dict(zip(cells, found, strict=True))
    for name, split in runs:
        rows.append(summary(name, split, [by_cell[name, split, seed] for seed in range(args.seeds)]))
        print({key: value for key, value in rows[-1].items() if key != "runs"}, flush=True)
    payload = {"columns": COLUMNS, "rows": rows, "backbone": args.backbone, "seconds": round(timer.seconds)}
    record("coverage", {**payload, "bar": "coverage 90 +- 2 % on cora, pubmed and debian"}, args.output)


if __name__ == "__main__":
    main()
