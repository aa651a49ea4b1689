"""Classes of cold nodes: gsparc beside the plain MLP and GLNN, and the paper's three architectures beside its table.

    python benchmarks/classification.py --table auto --seeds 10 --jobs 8     # dense, and few / tenth, six graphs
    python benchmarks/classification.py --table paper --seeds 10 --jobs 8    # the paper's split, cold and connected

Every method for cold nodes sees the same seen nodes, labels and validation nodes. The originals of the paper's table,
which need edges, cannot be judged by nodes without any: they hold out a tenth of their labelled nodes instead. A cell
that an earlier run finished on the same kind of machine, with the same versions and at the same commit, is not run
again, so a long run can be cut into pieces (``--datasets``, ``--first-seed``). With ``--starts 6`` the baselines of
``auto`` are also run from six random starts and averaged: the mixture is an average, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, record
from gsparc.experiments.provenance import commit, hardware, versions
from gsparc.metrics import paired_difference

GRAPHS = ("cora", "citeseer", "pubmed", "amazon_photo", "amazon_computers", "debian")
OTHERS = ("cora_ml", "coauthor_cs")  # graphs that no setting of the library was chosen on
FEW = {"cora": "few", "citeseer": "few", "pubmed": "few", "cora_ml": "few"}  # the others: tenth
PAPER_GRAPHS = ("cora", "citeseer", "pubmed")
# arXiv 2411.01532, table "Classification" of the appendix: connected test nodes, cold nodes (its main table for gcn)
PAPER = {
    ("gcn", "cora"): (84.46, 73.88),
    ("gcn", "citeseer"): (69.44, 64.90),
    ("gcn", "pubmed"): (86.46, 82.78),
    ("phormer", "cora"): (79.41, 68.49),
    ("phormer", "citeseer"): (73.80, 66.35),
    ("phormer", "pubmed"): (85.12, 84.66),
    ("samba", "cora"): (81.48, 69.33),
    ("samba", "citeseer"): (71.99, 70.10),
    ("samba", "pubmed"): (86.40, 82.61),
    ("Spectral-GCN", "cora"): (87.94, None),
    ("Spectral-GCN", "citeseer"): (77.92, None),
    ("Spectral-GCN", "pubmed"): (86.20, None),
    ("NAGphormer", "cora"): (89.55, None),
    ("NAGphormer", "citeseer"): (76.32, None),
    ("NAGphormer", "pubmed"): (88.30, None),
}
COLUMNS = {
    "auto": [
        ["dataset", "graph", ""],
        ["split", "split", ""],
        ["mlp", "MLP", ".1f"],
        ["glnn", "GLNN", ".1f"],
        ["auto", "gsparc", ".1f"],
        ["spread", "±", ".1f"],
        ["gain", "over the better", "+.1f"],
        ["low", "from", "+.1f"],
        ["high", "to", "+.1f"],
        ["seconds", "fit, s", ".0f"],
    ],
    "paper": [
        ["dataset", "graph", ""],
        ["method", "method", ""],
        ["cold", "cold", ".1f"],
        ["cold_spread", "±", ".1f"],
        ["paper_cold", "cold, paper", ".1f"],
        ["test", "connected", ".1f"],
        ["test_spread", "±", ".1f"],
        ["paper_test", "connected, paper", ".1f"],
    ],
}
AVERAGED = [
    ["mlp_averaged", "MLP, 6 starts", ".1f"],
    ["glnn_averaged", "GLNN, 6 starts", ".1f"],
    ["averaged_gain", "over the better of these", "+.1f"],
    ["averaged_low", "from", "+.1f"],
    ["averaged_high", "to", "+.1f"],
]


def auto_cell(name: str, split: str, seed: int, device: str, starts: int = 1) -> dict[str, Any]:
    """The mixture, the MLP and GLNN on one split: accuracy on cold nodes in percent, and seconds."""
    from gsparc import ColdStartSplit, SparcClassifier, load_dataset
    from gsparc.baselines import GLNNBaseline, MLPBaseline
    from gsparc.metrics import expected_calibration_error

    data = load_dataset(name)
    (fold,) = ColdStartSplit(split, random_state=seed).folds(data.X, data.y, data.groups)
    X, y, graph = data.X[fold.seen], fold.visible_labels(data.y), data.graph[fold.seen]
    judges, cold = (data.X[fold.val], data.y[fold.val]), fold.cold[data.y[fold.cold] >= 0]
    models = {
        "mlp": MLPBaseline(random_state=seed, device=device),
        "glnn": GLNNBaseline(random_state=seed, device=device),
        "auto": SparcClassifier(random_state=seed, device=device),
    }
    out: dict[str, Any] = {}
    for label, model in models.items():
        start = time.perf_counter()
        edges = {} if label == "mlp" else {"graph": graph}
        model.fit(X, y, validation=judges, **edges)
        seconds = time.perf_counter() - start
        proba = model.predict_proba(data.X[cold])
        right = model.classes_[proba.argmax(axis=1)] == data.y[cold]
        error = expected_calibration_error(proba, np.searchsorted(model.classes_, data.y[cold]))
        out[label] = {"accuracy": 100 * float(right.mean()), "calibration_error": error, "seconds": seconds}
    out["auto"] |= {"weights": models["auto"].weights_, "report": models["auto"].report_}
    for label, kind in (("mlp", MLPBaseline), ("glnn", GLNNBaseline)) if starts > 1 else ():
        edges = {} if label == "mlp" else {"graph": graph}
        fitted = [kind(random_state=1000 * seed + i, device=device) for i in range(starts)]
        proba = sum(model.fit(X, y, validation=judges, **edges).predict_proba(data.X[cold]) for model in fitted)
        right = fitted[0].classes_[np.asarray(proba).argmax(axis=1)] == data.y[cold]
        out[f"{label}_averaged"] = {"accuracy": 100 * float(right.mean()), "starts": starts}
    return out


def paper_cell(name: str, split: str, seed: int, device: str, starts: int = 1) -> dict[str, Any]:
    """The paper's architectures and their originals; a tenth of the seen labels is hidden for the connected nodes."""
    from gsparc import ColdStartSplit, SparcClassifier, load_dataset
    from gsparc.baselines import GraphMambaBaseline, MLPBaseline, NAGphormerBaseline, SpectralGCNBaseline

    data = load_dataset(name)
    (fold,) = ColdStartSplit(split, random_state=seed).folds(data.X, data.y, data.groups)
    X, graph = data.X[fold.seen], data.graph[fold.seen]
    y = fold.visible_labels(data.y)
    test = np.sort(np.random.default_rng(seed).choice(len(y), len(y) // 10, replace=False))
    y[test] = -1
    judges, truth = (data.X[fold.val], data.y[fold.val]), data.y[fold.seen[test]]
    common: dict[str, Any] = {"random_state": seed, "device": device}
    out = {}
    for label in ("mlp", "gcn", "phormer", "samba"):
        model: Any = MLPBaseline(**common) if label == "mlp" else SparcClassifier(label, **common)
        start = time.perf_counter()
        model.fit(X, y, validation=judges, **({} if label == "mlp" else {"graph": graph}))
        seconds = time.perf_counter() - start
        cold, seen = model.predict(data.X[fold.cold]), model.predict(X[test])
        out[label] = {
            "cold": 100 * float((cold == data.y[fold.cold]).mean()),
            "test": 100 * float((seen == truth).mean()),
            "seconds": seconds,
        }
    originals = {
        "Spectral-GCN": SpectralGCNBaseline,
        "NAGphormer": NAGphormerBaseline,
        "Graph Mamba": GraphMambaBaseline,
    }
    for label, kind in originals.items():
        start = time.perf_counter()
        model = kind(**common).fit(X, y, graph=graph)
        seconds = time.perf_counter() - start
        out[label] = {"test": 100 * float((model.predict_seen()[test] == truth).mean()), "seconds": seconds}
    return out


CELLS = {"auto": auto_cell, "paper": paper_cell}


def _work(job: tuple[str, str, str, int, str, int]) -> tuple[str, dict[str, Any]]:
    table, name, split, seed, device, starts = job
    return f"{name} {split} {seed}", CELLS[table](name, split, seed, device, starts)


def rows_of(table: str, cells: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a graph and split, or a graph and method, from the finished cells."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key in sorted(cells, key=lambda k: int(k.split()[2])):
        groups.setdefault(tuple(key.split()[:2]), []).append(cells[key])  # type: ignore[arg-type]
    order = sorted(groups, key=lambda pair: (pair[1] != "dense", (*GRAPHS, *OTHERS).index(pair[0])))
    if table == "auto":
        return [_auto_row(*pair, groups[pair]) for pair in order]
    return [_paper_row(name, label, groups[name, s]) for name, s in order for label in groups[name, s][0]]


def _auto_row(name: str, split: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    values = {label: np.array([run[label]["accuracy"] for run in runs]) for label in ("mlp", "glnn", "auto")}
    better = max(("mlp", "glnn"), key=lambda label: values[label].mean())
    gain, low, high = paired_difference(values["auto"], values[better])
    averaged = {
        f"{label}_averaged": [run.get(f"{label}_averaged", {}).get("accuracy") for run in runs]
        for label in ("mlp", "glnn")
    }
    row: dict[str, Any] = {"dataset": name, "split": split, "seeds": len(runs), "better": better}
    row |= {label: float(v.mean()) for label, v in values.items()}
    row |= {
        f"{label}_calibration_error": float(np.mean([r[label]["calibration_error"] for r in runs])) for label in values
    }
    spread = float(values["auto"].std(ddof=1)) if len(runs) > 1 else 0.0
    row |= {"spread": spread, "gain": gain, "low": low, "high": high}
    if all(value is not None for column in averaged.values() for value in column):
        row |= {label: float(np.mean(column)) for label, column in averaged.items()}
        over = max(averaged, key=lambda label: np.mean(averaged[label]))
        gains = paired_difference(values["auto"], np.array(averaged[over]))
        row |= dict(zip(("averaged_gain", "averaged_low", "averaged_high"), gains, strict=True))
    return row | {"seconds": float(np.mean([run["auto"]["seconds"] for run in runs]))}


def _paper_row(name: str, label: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"dataset": name, "method": label, "seeds": len(runs)}
    for kind in ("cold", "test"):
        values = np.array([run[label][kind] for run in runs if kind in run[label]])
        row[kind] = float(values.mean()) if len(values) else None
        row[f"{kind}_spread"] = float(values.std(ddof=1)) if len(values) > 1 else None
    row["paper_test"], row["paper_cold"] = PAPER.get((label, name), (None, None))
    return row | {"seconds": float(np.mean([run[label]["seconds"] for run in runs]))}


def finished(path: Path) -> dict[str, Any]:
    """Cells of an earlier run, if one header may speak for both."""
    if not path.exists():
        return {}
    saved = json.loads(path.read_text(encoding="utf-8"))
    same = saved["versions"] == versions() and saved["hardware"] == hardware()
    return saved["cells"] if same and saved["commit"] == commit() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=list(CELLS), required=True)
    parser.add_argument("--datasets", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    import torch

    torch.cuda.is_available()  # the header says which GPU it was
    target = args.output or RESULTS / f"classification_{args.table}.json"
    cells = finished(target)
    names = args.datasets or (GRAPHS if args.table == "auto" else PAPER_GRAPHS)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = []
    for name in sorted(names, key=lambda n: -(*GRAPHS, *OTHERS).index(n)):  # the long ones first
        splits = ("paper",) if args.table == "paper" else ("dense", FEW.get(name, "tenth"))
        jobs += [(args.table, name, split, seed, args.device, args.starts) for split in splits for seed in seeds]
    jobs = [job for job in jobs if f"{job[1]} {job[2]} {job[3]}" not in cells]
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(args.jobs, max(len(jobs), 1))) as pool:
        for key, cell in pool.imap_unordered(_work, jobs):
            cells[key] = cell
            shown = {
                label: round(run.get("accuracy", run.get("cold", run.get("test"))), 1) for label, run in cell.items()
            }
            print(key, shown, flush=True)
            columns = COLUMNS[args.table] + (AVERAGED if args.starts > 1 and args.table == "auto" else [])
            payload = {"columns": columns, "rows": rows_of(args.table, cells), "cells": cells}
            record(target.stem, payload, args.output)


if __name__ == "__main__":
    main()
