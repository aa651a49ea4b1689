"""Can scores of different new nodes be compared? Hits@k against one set of false pairs, with and without the shift.

    python benchmarks/pair_scores.py --seeds 2 --jobs 2
    python benchmarks/pair_scores.py --datasets amazon_photo

The setting is that of LLP's authors, as in ``gsparc reproduce links``: a true pair is a hit if it scores above the k-th
best of the false pairs of all new nodes together. ``SparcLinkPredictor`` is fitted once for both of its rows; LLP-MLP,
whose decoder is trained to tell true pairs from false ones of any nodes, stands beside it. Cells that an interrupted
run has finished are kept in the folder ``--scratch``.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from _common import kept, record
from gsparc.experiments.workers import as_finished

KS = (10, 20, 50)
OURS, SHIFTED, RIVAL = "SPARC, as it ranks", "SPARC, comparable=True", "LLP-MLP"
COLUMNS = [
    ["dataset", "graph", ""],
    ["method", "scores", ""],
    ["seeds", "seeds", "d"],
    *([f"hits@{k}", f"Hits@{k}, %", ".1f"] for k in KS),
    ["mrr", "MRR of the best neighbour, %", ".1f"],
]


class _Plain:
    """A link predictor whose scores are left as they rank."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def score_all(self, X: Any) -> np.ndarray:
        return self._model.score_all(X)


def cell(dataset: str, seed: int, method: str) -> dict[str, dict[str, float]]:
    """Figures of one fit by what scores are called."""
    from gsparc import SparcLinkPredictor, load_dataset
    from gsparc.baselines import LLPMLPBaseline
    from gsparc.experiments.links import link_question, measure

    question = link_question(load_dataset(dataset), "llp", seed, dataset)
    if method == RIVAL:
        model = LLPMLPBaseline(random_state=seed, device="cpu").fit(question.X, graph=question.graph)
        return {RIVAL: measure(model, question)}
    model = SparcLinkPredictor(random_state=seed, device="cpu").fit(question.X, graph=question.graph)
    return {OURS: measure(_Plain(model), question), SHIFTED: measure(model, question)}


def finished(piece: tuple[str, int, str], scratch: Path) -> dict[str, dict[str, float]]:
    """The cell, from the scratch folder where it is there."""
    dataset, seed, method = piece
    name = f"{dataset}-{seed}-{'rival' if method == RIVAL else 'ours'}.json"
    return kept(scratch / name, lambda: cell(dataset, seed, method))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["amazon_photo", "amazon_computers", "debian"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=Path("pair_scores.scratch"))
    options = parser.parse_args()
    work = [
        (dataset, seed, method)
        for seed in range(options.seeds)
        for dataset in options.datasets
        for method in (OURS, RIVAL)
    ]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (dataset, seed, _), result in as_finished(partial(finished, scratch=options.scratch), work, options.jobs):
        for name, figures in result.items():
            found.setdefault((dataset, name), []).append(figures)
        print("done:", dataset, seed, *result, flush=True)
    rows = [
        {"dataset": dataset, "method": name, "seeds": len(found[dataset, name])}
        | {f"hits@{k}": float(np.mean([f[f"global_hits@{k}"] for f in found[dataset, name]])) for k in KS}
        | {"mrr": float(np.mean([f["mrr"] for f in found[dataset, name]]))}
        for dataset in options.datasets
        for name in (OURS, SHIFTED, RIVAL)
    ]
    record("pair_scores", {"columns": COLUMNS, "rows": rows})


if __name__ == "__main__":
    main()
