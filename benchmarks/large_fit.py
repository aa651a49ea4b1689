"""Fit SpectralMap on generated graphs of Reddit's and Amazon2M's size.

    python benchmarks/large_fit.py --size reddit      # two CPU cores
    python benchmarks/large_fit.py --size amazon2m    # one GPU

The graph is generated first (not timed). The first fit of a process also pays for what is loaded and prepared once;
on a GPU, where that is most of it, a second one is timed too. Peak memory is that of the whole process, features
included.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from _common import PeakMemory, Timer, record
from gsparc import SpectralMap
from gsparc.datasets import make_blocks

SIZES = {"reddit": (232_965, 11_600_000, 602, 41), "amazon2m": (2_449_029, 61_900_000, 100, 47)}
COLUMNS = [
    ["size", "size of", ""],
    ["nodes", "nodes", ",d"],
    ["edges", "edges", ",d"],
    ["features", "features", "d"],
    ["device", "device", ""],
    ["seconds", "fit, s", ".1f"],
    ["again_seconds", "fit again, s", ".1f"],
    ["transform_seconds", "transform of all, s", ".2f"],
    ["maxrss_gb", "peak memory, GB", ".2f"],
    ["steps", "steps", "d"],
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="reddit")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    nodes, edges, features, classes = SIZES[args.size]
    data = make_blocks(nodes, edges, features, num_classes=classes, random_state=0)
    print("generated", data.graph, flush=True)
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # the driver's own start is not ours to time
    model = SpectralMap(64, device=args.device, random_state=0)
    with PeakMemory() as memory, Timer() as fit:
        model.fit(data.X, graph=data.graph)
    again = None
    if torch.cuda.is_available() and args.device != "cpu":
        with Timer() as second:
            model = SpectralMap(64, device=args.device, random_state=0).fit(data.X, graph=data.graph)
        again = second.seconds
    with Timer() as transform:
        model.transform(data.X)
    row = {
        "size": args.size,
        "nodes": nodes,
        "edges": edges,
        "features": features,
        "device": str(next(model.module_.parameters()).device),
        "seconds": fit.seconds,
        "again_seconds": again,
        "transform_seconds": transform.seconds,
        "steps": model.n_steps_,
        "history": model.history_,
        "eigenvalues": model.eigenvalues_.tolist(),
        **memory.as_dict(),
    }
    print({k: v for k, v in row.items() if k not in ("history", "eigenvalues")}, flush=True)
    payload = {"columns": COLUMNS, "rows": [row]} | ({"bar": "<= 10 s on one H200"} if args.size == "amazon2m" else {})
    record(f"large_fit_{args.size}", payload, args.output)


if __name__ == "__main__":
    main()
