"""Do neighbours by coordinates and features together serve the networks better than by coordinates alone?

    python benchmarks/feature_share.py --seeds 3 --jobs 2
    python benchmarks/feature_share.py --datasets amazon_photo --splits dense tenth

Accuracy on cold nodes of the paper's three architectures, with ``feature_share=0`` (the paper's neighbours) and with
the default, which is chosen on seen nodes that the map has held out. Both start from the same map. Splits, labels and
validation nodes are those of ``gsparc reproduce classification``. Cells that an interrupted run has finished are kept
in the folder ``--scratch``.
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
    ["alone", "coordinates alone, %", ".1f"],
    ["both", "with features, %", ".1f"],
    ["gain", "gain", "+.1f"],
    ["worst", "least gain of a seed", "+.1f"],
    ["share", "share of features", ".2f"],
]


def cell(dataset: str, split: str, seed: int) -> dict[str, dict[str, float]]:
    """Accuracy of every architecture both ways, and the share that was chosen."""
    from gsparc import ColdStartSplit, SparcClassifier, SpectralMap, load_dataset
    from gsparc.experiments.classification import ask, class_question

    question = class_question(load_dataset(dataset), ColdStartSplit(split, random_state=seed), seed)
    found: dict[str, dict[str, float]] = {}
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


def finished(piece: tuple[str, str, int], scratch: Path) -> dict[str, dict[str, float]]:
    """The cell, from the scratch folder where it is there."""
    return kept(scratch / f"{'-'.join(map(str, piece))}.json", lambda: cell(*piece))


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
        alone, both, share = (np.array([c[name] for c in cells]) for name in ("alone", "both", "share"))
        gain = both - alone
        row: dict[str, Any] = {"dataset": dataset, "split": split, "method": BACKBONES[backbone], "seeds": len(cells)}
        row |= {"alone": float(alone.mean()), "both": float(both.mean()), "share": float(share.mean())}
        rows.append({**row, "gain": float(gain.mean()), "worst": float(gain.min())})
    record("feature_share", {"columns": COLUMNS, "rows": rows})


if __name__ == "__main__":
    main()
