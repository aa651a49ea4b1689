"""How near to the limits of its GPU is a fit of Amazon2M's size, stage by stage?

    python benchmarks/roofline.py                 # one GPU
    python benchmarks/roofline.py --nodes 200000 --edges 5000000

For every stage of ``SpectralMap.fit``, and then of the whole of SPARCphormer, the script counts the operations of its
matrix products and the bytes that have to move at least: once between host and device, and once through the device's
memory. Steps of training are also counted in kernels, since one cannot start before the one before it has ended. What
the device can do is measured in the same run: one large product in the precision that the stage uses, one large copy on
the device, one from the host, and a chain of the smallest kernels, recorded and replayed. The largest of the four times
is the least the stage could take; what it took stands beside it. Last, what was far from the limits is done both ways.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from _common import record
from gsparc import SparcClassifier, SpectralMap
from gsparc._runtime import stage_times
from gsparc.datasets import make_blocks
from gsparc.nn import phormer
from gsparc.ops import _gathered
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling, rows_on
from gsparc.training.loop import LoopSettings, Task, run_loop
from gsparc.training.spectral import SpectralTask

STAGES = (
    "checks",
    "components",
    "features to the device",
    "scaling",
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
    ["tflops", "TFLOP/s", ".2f"],
    ["device_gbs", "device memory, GB/s", ",.0f"],
    ["host_gbs", "from the host, GB/s", ",.1f"],
]
WHOLE = [["what", "what", ""], ["seconds", "seconds", ".1f"], ["bar", "asked for", ""]]
CHANGES = [
    ["what", "what", ""],
    ["before", "before, s", ".3f"],
    ["now", "now, s", ".3f"],
    ["times", "times faster", ".1f"],
]
LIMITS = [["what", "what", ""], ["value", "measured", ",.1f"], ["unit", "unit", ""]]
BATCH, EPOCHS, TOKENS = 8192, 3, 10


class Count(NamedTuple):
    """What a stage has to do at least."""

    flop: float = 0.0
    device: float = 0.0  # bytes through the device's memory
    host: float = 0.0  # bytes between host and device
    kernels: float = 0.0  # one after the other
    kind: str = "float32"


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
    """What this device does at best: FLOP/s in bf16 and float32, bytes/s within and into it, kernels/s."""
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
    number, chain = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(chain):
        for _ in range(1000):
            number += 1
    found["kernels"] = 1000 / timed(chain.replay)
    return found


def limit_rows(best: dict[str, float]) -> list[dict[str, Any]]:
    """The limits as a table."""
    named = {
        "bf16": ("matrix products in bf16", 1e12, "TFLOP/s"),
        "float32": ("matrix products in float32", 1e12, "TFLOP/s"),
        "device": ("copy within the device, read and written", 1e9, "GB/s"),
        "host": ("copy from the host", 1e9, "GB/s"),
        "kernels": ("kernels one after the other, replayed", 1e3, "thousand a second"),
    }
    return [{"what": what, "value": best[name] / size, "unit": unit} for name, (what, size, unit) in named.items()]


def kernels_of(task: Task, *, bf16: bool) -> float:
    """Kernels that one recorded step of a task launches."""
    found = []
    for steps in (20, 40):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run_loop(task, LoopSettings(steps=steps, eval_every=100, bf16=bf16), torch.device("cuda"))
            torch.cuda.synchronize()
        found.append(sum(1 for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA))
    return (found[1] - found[0]) / 20


def map_task(data: Any, model: SpectralMap) -> SpectralTask:
    """The training of a map that is fitted already, to look at its steps."""
    cuda, nodes = torch.device("cuda"), np.arange(len(data.X))
    features = FeatureSource(data.X, model._scaling, cuda)
    module = copy.deepcopy(model.module_)
    sampler = EdgeSampler(data.graph, cuda, exclude=nodes[:2000])
    return SpectralTask(module, features, sampler, nodes, None, objective="contrastive", batch_size=model.batch_size)


def changed(what: str, before: Callable[[], Any], now: Callable[[], Any], repeats: int = 2) -> dict[str, Any]:
    """One thing done in two ways."""
    seconds = {"before": timed(before, repeats), "now": timed(now, repeats)}
    row = {"what": what, **seconds, "times": seconds["before"] / seconds["now"]}
    print(row, flush=True)
    return row


def changes_of_map(data: Any, task: SpectralTask) -> list[dict[str, Any]]:
    """What was far from the limits in the map."""
    rows, loop, cuda = rows_on(data.X, task.features.device), LoopSettings(steps=500, eval_every=500, bf16=True), "cuda"
    recorded, ordinary = SpectralTask.capturable, property(lambda task: False)

    def train(capturable: Any) -> None:
        SpectralTask.capturable = capturable
        try:
            run_loop(task, loop, task.features.device)
        finally:
            SpectralTask.capturable = recorded

    return [
        changed(
            "components: on the host, on the device",
            data.graph.connected_components,
            lambda: data.graph.connected_components(cuda),
            1,
        ),
        changed("scaling: on the host, on the device", lambda: Scaling.fit(data.X), lambda: Scaling.fit(rows), 1),
        changed("500 steps of the map: launched, replayed", lambda: train(ordinary), lambda: train(recorded)),
    ]


def changes_of_phormer(model: SparcClassifier) -> list[dict[str, Any]]:
    """What was far from the limits after the map."""
    seen, module = model._seen, model._heads["phormer"].module
    assert seen is not None
    nodes = torch.arange(0, len(seen.table), max(1, len(seen.table) // 100_000), device="cuda")
    coordinates = seen.coordinates[nodes]

    def lists(*, copied: bool) -> None:
        _gathered._broken[:] = [True] if copied else []
        seen.tokens.tokens(coordinates, TOKENS, exclude=nodes)
        _gathered._broken.clear()

    tokens = torch.randn(BATCH, TOKENS + 1, seen.table.shape[1], device="cuda")

    def step(short: int, *, bf16: bool) -> None:
        phormer._SHORT, usual = short, phormer._SHORT
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
            loss = module.train()(tokens).float().square().mean()
        loss.backward()
        phormer._SHORT = usual

    def fused() -> None:
        step(0, bf16=False)

    def plain() -> None:
        step(phormer._SHORT, bf16=True)

    return [
        changed(
            f"token lists of {len(nodes):,} nodes: candidates copied, read in place",
            lambda: lists(copied=True),
            lambda: lists(copied=False),
        ),
        changed("a transformer step: float32 and fused attention, bf16 and plain attention", fused, plain, 10),
    ]


def map_counts(nodes: int, entries: int, width: int, model: SpectralMap, kernels: float) -> dict[str, Count]:
    """The stages of the map."""
    module, k = model.module_, model.module_.out_channels
    weights = sum(p.numel() for p in module.parameters() if p.ndim == 2)
    parameters = sum(p.numel() for p in module.parameters())
    hidden = sum(module.hidden_channels)
    X, edges, steps = 4.0 * nodes * width, 4.0 * entries + 8.0 * nodes, model.n_steps_
    ends = 2 * model.batch_size  # rows a step
    # forward and twice that backward; activations are written and read in both directions; the optimiser reads and
    # writes weight, gradient and two moments
    step_flop = 6.0 * ends * weights + 3 * 2.0 * ends * k * k
    step_bytes = ends * (4.0 * width + 2 * 2 * 2.0 * (hidden + k)) + 4.0 * 7 * parameters
    return {
        "checks": Count(host=X),  # on the host: its memory is no slower than the way to the device
        "components": Count(device=2 * (edges + 4.0 * entries), host=edges),
        "features to the device": Count(device=X, host=X),
        "scaling": Count(device=2 * X),
        "edges to the device": Count(device=edges, host=edges),
        "training": Count(steps * step_flop, steps * step_bytes, 0.0, steps * kernels, "bf16"),
        "values at all nodes": Count(2.0 * nodes * weights, X + 4.0 * nodes * k),
        "Rayleigh-Ritz": Count(
            2.0 * entries * k + 2 * 2.0 * nodes * k * k,
            edges + 4.0 * entries * k + 6 * 4.0 * nodes * k,  # every entry reads a row
            edges,
        ),
    }


def phormer_counts(nodes: int, cold: int, entries: int, width: int, model: SparcClassifier) -> dict[str, Count]:
    """The stages after the map."""
    head, seen = model._heads["phormer"].module, model._seen
    assert seen is not None
    k, row = model.map_.n_components_, width + model.map_.n_components_
    map_weights = sum(p.numel() for p in model.map_.module_.parameters() if p.ndim == 2)
    tokens, cells = seen.tokens, seen.tokens.cells
    looked, near = tokens._num_candidates(TOKENS), 2**tokens.exact_tokens
    around = math.ceil(1.25 * looked * cells.num_cells / cells.num_vectors) + 4  # cells whose sums are read
    # a list: candidates are scored, the rows of the nearest and the sums of the cells around are weighed
    list_flop = 2.0 * (looked * k + TOKENS * near * row + (TOKENS - tokens.exact_tokens) * around * row)
    list_bytes = 4.0 * (looked * k + (near + around) * row + (TOKENS + 1) * row)
    weights = sum(p.numel() for p in head.parameters() if p.ndim == 2)
    steps, ends, hidden = model.history_[-1]["step"], BATCH * (TOKENS + 1), head.hidden_channels
    # widths of what each token becomes on its way: linear and norm, queries to values, mix, norm, two of twice the
    # width, back, and the last norm
    passed = (2 + 3 + 1 + 1 + 4 + 1 + 1) * hidden
    levels = math.log2(max(2, seen.index.num_vectors / 32))
    return {
        "coordinates": Count(2.0 * nodes * map_weights, 4.0 * nodes * (width + k), 4.0 * nodes * (width + k)),
        # every halving reads all vectors; two rounds compare each with the centroids of 12 parts of 32 cells
        "index": Count(2 * 2.0 * nodes * 384 * k, (levels + 2) * 4.0 * nodes * k, 4.0 * nodes * (width + k)),
        "token lists": Count(nodes * list_flop, nodes * list_bytes),
        "transformer": Count(
            6.0 * steps * ends * weights, steps * ends * (4.0 * row + 2 * 2 * 2.0 * passed), 0.0, 0.0, "bf16"
        ),
        "confidence": Count(device=4.0 * nodes * width + 12.0 * entries, host=4.0 * entries),
        "predict the cold": Count(cold * list_flop, cold * list_bytes, 4.0 * cold * width),
    }


def stage_row(stage: str, seconds: float, count: Count, best: dict[str, float]) -> dict[str, Any]:
    """What a stage took beside what it could take."""
    least = {
        "arithmetic": count.flop / best[count.kind],
        "device memory": count.device / best["device"],
        "host": count.host / best["host"],
        "kernels in a row": count.kernels / best["kernels"],
    }
    bound = max(least, key=lambda name: least[name])
    row = {"stage": stage, "seconds": seconds, "possible": least[bound], "bound": bound}
    row |= {"share": least[bound] / seconds, "tflops": count.flop / seconds / 1e12}
    row |= {"device_gbs": count.device / seconds / 1e9, "host_gbs": count.host / seconds / 1e9}
    return row | {"counted": count._asdict()}


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
    task = map_task(data, model)
    kernels = kernels_of(task, bf16=True)
    count = map_counts(args.nodes, len(data.graph.indices), args.features, model, kernels)
    rows = [stage_row(stage, seconds[stage], count[stage], best) for stage in STAGES]
    for row in rows:
        print(row, flush=True)
    print("F_theta", whole, "steps", model.n_steps_, "kernels a step", kernels, flush=True)
    changes = changes_of_map(data, task)
    pipeline, facts, classifier = whole_pipeline(data, best)
    changes += changes_of_phormer(classifier)
    bars = {"map": "at most 10 s", "phormer": "at most 60 s"}
    ends = [
        {"what": "F_theta", "seconds": whole, "bar": bars["map"]},
        {"what": "SPARCphormer, to the predictions", "seconds": facts["phormer_seconds"], "bar": bars["phormer"]},
    ]
    tables = {
        "whole": {"columns": WHOLE, "rows": ends},
        "limits": {"columns": LIMITS, "rows": limit_rows(best)},
        "map": {"columns": COLUMNS, "rows": rows},
        "phormer": {"columns": COLUMNS, "rows": pipeline},
        "changes": {"columns": CHANGES, "rows": changes},
    }
    sizes = {"nodes": args.nodes, "edges": data.graph.num_edges, "features": args.features, "steps": model.n_steps_}
    figures = {"limits": best, "kernels_a_step": kernels, "map_seconds": whole, **facts, "bars": bars}
    record("roofline", {**sizes, **figures, "eigenvalues": model.eigenvalues_.tolist(), "tables": tables}, args.output)


def whole_pipeline(data: Any, best: dict[str, float]) -> tuple[list[dict[str, Any]], dict[str, float], SparcClassifier]:
    """Stages of SPARCphormer with three epochs, and seconds to the predictions for 3 % cold nodes."""
    nodes = len(data.y)
    cold = np.sort(np.random.default_rng(0).choice(nodes, round(0.03 * nodes), replace=False))
    seen = np.setdiff1d(np.arange(nodes), cold, assume_unique=True)
    X, y, graph = data.X[seen], data.y[seen], data.graph[seen]
    steps = math.ceil(EPOCHS * len(seen) / BATCH)
    model = SparcClassifier(
        "phormer", spectral_map=SpectralMap(64), num_tokens=TOKENS, batch_size=BATCH, max_steps=steps, patience=1000,
        random_state=0,
    )  # fmt: skip
    start = time.perf_counter()
    with stage_times() as seconds:
        model.fit(X, y, graph=graph)
        fitted = time.perf_counter()
        predicted = model.predict(data.X[cold])
    end = time.perf_counter()
    lists = seconds["token lists of the seen"]
    taken = {
        "coordinates": seconds["coordinates"],
        "index": seconds["index"],
        "token lists": lists,
        "transformer": seconds["networks"] - lists,
        "confidence": seconds["confidence"],
        "predict the cold": end - fitted,
    }
    count = phormer_counts(len(seen), len(cold), len(graph.indices), data.X.shape[1], model)
    rows = [stage_row(stage, taken[stage], count[stage], best) for stage in taken]
    facts = {"phormer_seconds": end - start, "phormer_map_seconds": seconds["map"]}
    facts["cold_accuracy"] = 100 * float((predicted == data.y[cold]).mean())
    print(dict(seconds), facts, flush=True)
    for row in rows:
        print(row, flush=True)
    return rows, facts, model


if __name__ == "__main__":
    main()
