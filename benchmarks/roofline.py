"""How near to the limits of its GPU is a fit of Amazon2M's size, stage by stage?

    python benchmarks/roofline.py                 # one GPU
    python benchmarks/roofline.py --nodes 200000 --edges 5000000

For every stage of ``SpectralMap.fit`` the script counts the operations of its matrix products and the bytes that have
to move at least: once between host and device, and once through the device's memory. What the device can do is
measured in the same run, with one large product in the precision that the stage uses, one large copy on the device and
one from the host. The larger of the three times is the least the stage could take; what it took stands beside it.
Then the whole of SPARCphormer, by stages.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _common import record
from gsparc import SparcClassifier, SpectralMap
from gsparc._runtime import stage_times
from gsparc.datasets import make_blocks

STAGES = (
    "checks",
    "components",
    "scaling",
    "features to the device",
    "edges to the device",
    "training",
    "values at all nodes",
    "Rayleigh-Ritz",
)
COLUMNS = [
    ["stage", "stage", ""],
    ["seconds", "took, s", ".3f"],
    ["possible", "possible, s", ".4f"],
    ["bound", "bound by", ""],
    ["share", "of the possible", ".1%"],
    ["gflop", "GFLOP", ",.0f"],
    ["device_gb", "GB in device memory", ".1f"],
    ["host_gb", "GB from the host", ".1f"],
]
PHORMER = [["stage", "stage", ""], ["seconds", "seconds", ".2f"]]


def timed(work: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest of a few calls, after one that prepares."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def limits() -> dict[str, float]:
    """What this device does at best: FLOP/s in bf16 and float32, bytes/s within and into it."""
    size = 8192
    found = {}
    for name, kind in (("bf16", torch.bfloat16), ("float32", torch.float32)):
        left = torch.randn(size, size, device="cuda", dtype=kind)
        found[name] = 2 * size**3 / timed(lambda left=left: left @ left)
    source = torch.empty(1 << 30, device="cuda")
    target = torch.empty_like(source)
    found["device"] = 2 * 4 * source.numel() / timed(lambda: target.copy_(source))
    host = torch.empty(1 << 27)
    found["host"] = 4 * host.numel() / timed(host.cuda)
    return found


def counts(nodes: int, entries: int, width: int, model: SpectralMap) -> dict[str, tuple[float, float, float, str]]:
    """Operations, bytes on the device, bytes from the host and precision of each stage."""
    module, k = model.module_, model.module_.out_channels
    weights = sum(p.numel() for p in module.parameters() if p.ndim == 2)
    parameters = sum(p.numel() for p in module.parameters())
    hidden = sum(module.hidden_channels)
    X, edges = 4.0 * nodes * width, 4.0 * entries + 8.0 * nodes
    ends = 2 * model.batch_size  # rows a step
    # forward and twice that backward; activations are written and read in both directions; the optimiser reads and
    # writes weight, gradient and two moments
    step_flop = 6.0 * ends * weights + 3 * 2.0 * ends * k * k
    step_bytes = ends * (4.0 * width + 2 * 2 * 2.0 * (hidden + k)) + 4.0 * 7 * parameters
    return {
        "checks": (0, 0, X, "float32"),  # on the host: its memory is no slower than the way to the device
        "components": (0, 2 * (edges + 4.0 * entries), edges, "float32"),
        "scaling": (0, 2 * X, 2 * X, "float32"),
        "features to the device": (0, X, X, "float32"),
        "edges to the device": (0, edges, edges, "float32"),
        "training": (model.n_steps_ * step_flop, model.n_steps_ * step_bytes, 0, "bf16"),
        "values at all nodes": (2.0 * nodes * weights, X + 4.0 * nodes * k, 0, "float32"),
        "Rayleigh-Ritz": (
            2.0 * entries * k + 2 * 2.0 * nodes * k * k,
            edges + 4.0 * entries * k + 6 * 4.0 * nodes * k,  # every entry reads a row
            edges,
            "float32",
        ),
    }


def stage_row(stage: str, seconds: float, count: tuple[float, float, float, str], best: dict[str, float]) -> dict:
    """What a stage took beside what it could take."""
    flop, device, host, kind = count
    least = {"arithmetic": flop / best[kind], "device memory": device / best["device"], "host": host / best["host"]}
    bound = max(least, key=lambda name: least[name])
    row = {"stage": stage, "seconds": seconds, "possible": least[bound], "bound": bound}
    row |= {"share": least[bound] / seconds if seconds else None, "gflop": flop / 1e9}
    return row | {"device_gb": device / 1e9, "host_gb": host / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=61_900_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    data = make_blocks(args.nodes, args.edges, args.features, num_classes=47, random_state=0)
    print("generated", data.graph, flush=True)
    best = limits()
    print({name: f"{value:.3g}" for name, value in best.items()}, flush=True)
    SpectralMap(64, max_steps=60, random_state=0).fit(data.X[:50_000], graph=data.graph[np.arange(50_000)])  # warm up
    start = time.perf_counter()
    model = SpectralMap(64, random_state=0).fit(data.X, graph=data.graph)
    torch.cuda.synchronize()
    whole = time.perf_counter() - start
    with stage_times() as seconds:
        model = SpectralMap(64, random_state=0).fit(data.X, graph=data.graph)
    count = counts(args.nodes, len(data.graph.indices), args.features, model)
    rows = [stage_row(stage, seconds[stage], count[stage], best) for stage in STAGES]
    for row in rows:
        print(row, flush=True)
    print("F_theta", whole, "steps", model.n_steps_, flush=True)
    phormer, total = whole_pipeline(data)
    tables = {
        "map": {"columns": COLUMNS, "rows": rows},
        "phormer": {"columns": PHORMER, "rows": [{"stage": name, "seconds": value} for name, value in phormer.items()]},
    }
    facts = {"nodes": args.nodes, "edges": data.graph.num_edges, "features": args.features, "steps": model.n_steps_}
    bars = {"map": "<= 10 s", "phormer": "<= 60 s"}
    figures = {"limits": best, "map_seconds": whole, "phormer_seconds": total, "bars": bars}
    record("roofline", {**facts, **figures, "eigenvalues": model.eigenvalues_.tolist(), "tables": tables}, args.output)


def whole_pipeline(data: Any) -> tuple[dict[str, float], float]:
    """Stages of SPARCphormer with three epochs, and seconds to the predictions for 3 % cold nodes."""
    nodes = len(data.y)
    cold = np.sort(np.random.default_rng(0).choice(nodes, round(0.03 * nodes), replace=False))
    seen = np.setdiff1d(np.arange(nodes), cold, assume_unique=True)
    X, y, graph = data.X[seen], data.y[seen], data.graph[seen]
    steps = math.ceil(3 * len(seen) / 8192)
    model = SparcClassifier(
        "phormer", spectral_map=SpectralMap(64), num_tokens=10, batch_size=8192, max_steps=steps, patience=1000,
        random_state=0,
    )  # fmt: skip
    start = time.perf_counter()
    with stage_times() as seconds:
        model.fit(X, y, graph=graph)
        fitted = time.perf_counter()
        predicted = model.predict(data.X[cold])
    end = time.perf_counter()
    seconds["predict 3 % cold"] = end - fitted
    print(seconds, "in all", end - start, "cold accuracy", float((predicted == data.y[cold]).mean()), flush=True)
    return seconds, end - start


if __name__ == "__main__":
    main()
