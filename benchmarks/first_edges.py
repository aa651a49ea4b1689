"""How does the accuracy on new nodes rise as their first edges arrive?

    python benchmarks/first_edges.py

A fifth of the nodes is cold. They are predicted with 0, 1, 2, 4, 8 and all of their edges to seen nodes, drawn at
random; a node that has fewer brings what it has. Half of the split's validation nodes validate, the others calibrate
with their edges, which is where the model learns how much an edge is worth.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from _common import Timer, record
from gsparc import ColdStartSplit, Graph, SparcClassifier, load_dataset
from gsparc.metrics.labels import expected_calibration_error

SEEDS = {"cora": 3, "citeseer": 3, "pubmed": 1, "actor": 2}
COUNTS = {"0": 0, "1": 1, "2": 2, "4": 4, "8": 8, "all": 10**9}
COLUMNS = [
    ["dataset", "data set", ""],
    ["split", "labels", ""],
    ["seeds", "seeds", "d"],
    *([f"accuracy_{name}", f"{name} edges" if name != "1" else "1 edge", ".1f"] for name in COUNTS),
    ["linked", "with edges, %", ".0f"],
    ["ece_0", "calibration error, 0", ".1f"],
    ["ece_8", "calibration error, 8", ".1f"],
    ["coverage_8", "sets at 90 %, 8 edges", ".1f"],
    ["size_0", "classes a set, 0", ".2f"],
    ["size_8", "classes a set, 8", ".2f"],
]


def some_edges(graph: Graph, rows: np.ndarray, seen: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` random edges of each of ``rows`` to nodes of ``seen``, as positions in either."""
    place = np.full(graph.num_nodes, -1)
    place[seen] = np.arange(len(seen))
    ends = [(np.full(len(found), i), found) for i, v in enumerate(rows) for found in [place[graph.neighbors(v)]]]
    new, old = (np.concatenate(part) for part in zip(*ends, strict=True))
    new, old = new[old >= 0], old[old >= 0]
    order = np.lexsort((np.random.default_rng(seed).random(len(new)), new))
    new, old = new[order], old[order]
    kept = np.arange(len(new)) - np.searchsorted(new, new) < most
    return new[kept], old[kept]


def one(name: str, split: str, seed: int, backbone: str) -> dict[str, float]:
    """Figures of one split."""
    data = load_dataset(name)
    assert data.y is not None
    fold = next(ColdStartSplit(split, random_state=seed).folds(data.X, data.y))
    held = np.random.default_rng(seed).permutation(fold.val)
    judge, calibration = np.sort(held[: len(held) // 2]), np.sort(held[len(held) // 2 :])
    model = SparcClassifier(backbone, random_state=seed, device="cpu").fit(
        data.X[fold.seen],
        fold.visible_labels(data.y),
        graph=data.graph[fold.seen],
        validation=(data.X[judge], data.y[judge]),
    )
    edges = some_edges(data.graph, calibration, fold.seen, 10**9, seed)
    model.calibrate(data.X[calibration], data.y[calibration], edges=edges)
    X, y = data.X[fold.cold], np.searchsorted(model.classes_, data.y[fold.cold])
    out: dict[str, float] = {}
    for label, most in COUNTS.items():
        edges = some_edges(data.graph, fold.cold, fold.seen, most, seed)
        proba, sets = model.predict_proba(X, edges=edges), model.predict_set(X, edges=edges)
        out[f"accuracy_{label}"] = 100 * float((proba.argmax(axis=1) == y).mean())
        out[f"ece_{label}"] = 100 * expected_calibration_error(proba, y)
        out[f"coverage_{label}"] = 100 * float(sets[np.arange(len(y)), y].mean())
        out[f"size_{label}"] = float(sets.sum(axis=1).mean())
    out["linked"] = 100 * len(np.unique(edges[0])) / len(y)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(SEEDS))
    parser.add_argument("--splits", nargs="+", default=["dense", "few"])
    parser.add_argument("--backbone", default="mlp")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Timer() as timer:
        for name in args.datasets:
            for split in args.splits:
                runs = [one(name, split, seed, args.backbone) for seed in range(SEEDS[name])]
                means = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
                rows.append({"dataset": name, "split": split, "seeds": len(runs), **means, "runs": runs})
                print({key: value for key, value in rows[-1].items() if key != "runs"}, flush=True)
    payload = {"columns": COLUMNS, "rows": rows, "backbone": args.backbone, "seconds": round(timer.seconds)}
    record("first_edges", {**payload, "bar": "accuracy rises with the edges, and does not fall on actor"}, args.output)


if __name__ == "__main__":
    main()
