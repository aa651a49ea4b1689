"""Do neighbours by coordinates and features together serve the networks better than by coordinates alone?

    python benchmarks/feature_share.py --seeds 3 --jobs 2
    python benchmarks/feature_share.py --datasets amazon_photo --splits dense tenth

Accuracy on cold nodes of the paper's three architectures, with ``feature_share=0`` (the paper's neighbours) and with
the default, which is chosen on seen nodes that the map has held out. Both start from the same map. A plain MLP and GLNN
stand beside them. Splits, labels and validation nodes are those of ``gsparc reproduce classification``. Cells that an
interrupted run has finished are kept in the folder ``--scratch``.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from _common import kept, record
from gsparc.experiments.workers import as_finished

BACKBONES = {"gcn": "SPARC-GCN", "phormer": "SPARCphormer", "samba": "SAMBA"}
COLUMNS = [
    ["dataset", "graph", ""],
    ["split", "split", ""],
    ["method", "method", ""],
    ["seeds", "seeds", "d"],
    ["mlp", "MLP, %", ".1f"],
    ["glnn", "GLNN, %", ".1f"],
    ["alone", "coordinates alone, %", ".1f"],
    ["both", "with features, %", ".1f"],
    ["gain", "gain", "+.1f"],
    ["worst", "least gain of a seed", "+.1f"],
    ["share", "share of features", ".2f"],
]


def architectures(dataset: str, split: str, seed: int) -> dict[str, dict[str, float]]:
    """Accuracy of every architecture both ways, and the share that was chosen."""
    from gsparc import SparcClassifier, SpectralMap
    from gsparc.experiments.classification import ask

    question, found = _question(dataset, split, seed), {}
    with tempfile.TemporaryDirectory() as folder:
        for backbone in BACKBONES:
            figures = {}
            for name, share in (("alone", 0.0), ("both", "auto")):
                base = SpectralMap(64, checkpoint=folder, random_state=seed, device="cpu")
                options: dict[str, Any] = {"spectral_map": base, "random_state": seed, "device": "cpu"}
                model = SparcClassifier(backbone, feature_share=share, **options)
                figures[name] = ask(model, question, graph=True)["cold"]
            found[backbone] = {**figures, "share": model.feature_share_}
    return found


def baselines(dataset: str, split: str, seed: int) -> dict[str, float]:
    """Accuracy of networks that look for no neighbours."""
    from gsparc.baselines import GLNNBaseline, MLPBaseline
    from gsparc.experiments.classification import ask

    question = _question(dataset, split, seed)
    models = {"mlp": MLPBaseline, "glnn": GLNNBaseline}
    return {
        name: ask(model(random_state=seed, device="cpu"), question, graph=True)["cold"]
        for name, model in models.items()
    }


def _question(dataset: str, split: str, seed: int) -> Any:
    from gsparc import ColdStartSplit, load_dataset
    from gsparc.experiments.classification import class_question

    return class_question(load_dataset(dataset), ColdStartSplit(split, random_state=seed), seed)


def finished(piece: tuple[str, str, int], scratch: Path) -> dict[str, dict[str, float]]:
    """Figures of a split by architecture, from the scratch folder where they are there."""
    name = "-".join(map(str, piece))
    beside = kept(scratch / f"{name}-baselines.json", lambda: baselines(*piece))
    ours = kept(scratch / f"{name}.json", lambda: architectures(*piece))
    return {backbone: beside | figures for backbone, figures in ours.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer"])
    parser.add_argument("--splits", nargs="+", default=["dense", "few"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=Path("feature_share.scratch"))
    options = parser.parse_args()
    groups = [(dataset, split) for dataset in options.datasets for split in options.splits]
    work = [(*group, seed) for seed in range(options.seeds) for group in groups]
    found: dict[tuple[str, str], list[dict[str, dict[str, float]]]] = {}
    for (dataset, split, seed), result in as_finished(partial(finished, scratch=options.scratch), work, options.jobs):
        found.setdefault((dataset, split), []).append(result)
        print("done:", dataset, split, seed, result, flush=True)
    rows = []
    for (dataset, split), backbone in ((group, backbone) for group in groups for backbone in BACKBONES):
        cells = [result[backbone] for result in found[dataset, split]]
        means = {name: float(np.mean([c[name] for c in cells])) for name in cells[0]}
        gains = [c["both"] - c["alone"] for c in cells]
        row: dict[str, Any] = {"dataset": dataset, "split": split, "method": BACKBONES[backbone], "seeds": len(cells)}
        rows.append({**row, **means, "gain": float(np.mean(gains)), "worst": min(gains)})
    record("feature_share", {"columns": COLUMNS, "rows": rows})


if __name__ == "__main__":
    main()
