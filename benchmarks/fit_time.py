"""How long does SpectralMap take at default settings?

    python benchmarks/fit_time.py

Seen part of each graph (split `dense`). The reference implementation's figures, measured on one core of
another machine, stand beside ours for scale only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import PeakMemory, Timer, record
from gsparc import ColdStartSplit, SpectralMap, load_dataset

BARS = {"cora": 30, "citeseer": 30, "pubmed": 90, "debian": 120}
COLUMNS = [
    ["dataset", "graph", ""],
    ["nodes", "seen nodes", ",d"],
    ["edges", "edges", ",d"],
    ["seconds", "fit, s", ".1f"],
    ["bar", "bar, s", "d"],
    ["steps", "steps", "d"],
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    rows = []
    for name, bar in BARS.items():
        data = load_dataset(name)
        (fold,) = ColdStartSplit("dense", random_state=0).folds(data.X, data.y, data.groups)
        X, graph = data.X[fold.seen], data.graph[fold.seen]
        model = SpectralMap(device="cpu", random_state=0)
        with PeakMemory() as memory, Timer() as timer:
            model.fit(X, graph=graph)
        row = {
            "dataset": name,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "seconds": timer.seconds,
            "bar": bar,
        }
        rows.append(row | {"steps": model.n_steps_} | memory.as_dict())
        print(rows[-1], flush=True)
    record("fit_time", {"columns": COLUMNS, "rows": rows}, args.output)


if __name__ == "__main__":
    main()
