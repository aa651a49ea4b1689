"""Do the Ritz values match the true spectrum of a real graph?

    python benchmarks/ritz.py

Largest connected component of the seen part of each graph (split `dense`), default settings: first 16 Ritz values
against scipy's eigsh.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.sparse.linalg import eigsh

from _common import Timer, record
from gsparc import ColdStartSplit, SpectralMap, load_dataset
from gsparc.metrics import ritz_error
from gsparc.ops.laplacian import normalized_affinity

COLUMNS = [
    ["dataset", "graph", ""],
    ["nodes", "nodes", ",d"],
    ["objective", "objective", ""],
    ["error", "mean absolute error of 16 Ritz values", ".4f"],
    ["seconds", "fit, s", ".0f"],
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["amazon-photo"])
    parser.add_argument("--objectives", nargs="+", default=["contrastive", "rayleigh"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    rows = []
    for name in args.datasets:
        data = load_dataset(name)
        (fold,) = ColdStartSplit("dense", random_state=0).split(data.X, data.y)
        graph = data.graph[fold.seen]
        _, label = graph.connected_components()
        largest = np.flatnonzero(label == np.bincount(label).argmax())
        X, graph = data.X[fold.seen][largest], graph[largest]
        mu = eigsh(normalized_affinity(graph.to_scipy()), k=17, which="LA", return_eigenvectors=False)
        truth = 1 - np.sort(mu)[::-1][1:]
        for objective in args.objectives:
            model = SpectralMap(objective=objective, device=args.device, random_state=0)
            with Timer() as timer:
                model.fit(X, graph=graph)
            row = {
                "dataset": name,
                "nodes": graph.num_nodes,
                "objective": objective,
                "error": ritz_error(model.eigenvalues_, truth, k=16),
                "seconds": timer.seconds,
                "ritz": model.eigenvalues_[:16].tolist(),
                "true": truth.tolist(),
            }
            rows.append(row)
            print(name, objective, row["error"], flush=True)
    record("ritz", {"columns": COLUMNS, "rows": rows, "bar": "amazon-photo <= 0.05"}, args.output)


if __name__ == "__main__":
    main()
