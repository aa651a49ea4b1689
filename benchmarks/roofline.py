"""How near to the limits of its GPU is a fit of Amazon2M's size, stage by stage?

    python benchmarks/roofline.py                 # one GPU
    python benchmarks/roofline.py --nodes 200000 --edges 5000000

For every stage of ``SpectralMap.fit``, and then of the whole of SPARCphormer, the script counts the operations of its
matrix products and the bytes that have to move at least: once between host and device, and once through the device's
memory. Steps of training are also counted in kernels, since one cannot start before the one before it has ended. What
the device can do is measured in the same run: one large product in the precision that the stage uses, one large copy on
the device, one from the host, and a chain of the smallest kernels, recorded and replayed. The largest of the four times
is the least the stage could take; what it took stands beside it. Last, what was far from the limits is done both ways,
and what half precision changes is held against what another seed changes.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _common import record
from _roofline import BATCH, EPOCHS, TOKENS, limit_rows, limits, map_counts, phormer_counts, stage_row, timed
from gsparc import SparcClassifier, SpectralMap
from gsparc._runtime import stage_times
from gsparc.datasets import make_blocks
from gsparc.estimators import _heads, embedding
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
QUALITY = [
    ["what", "trained in", ""],
    ["score", "held-out score of the map", ".3f"],
    ["ritz", "mean Ritz value", ".4f"],
    ["retrieval", "true neighbours of cold nodes among 1,000 nearest", ".2%"],
    ["accuracy", "cold accuracy", ".2%"],
]
LIMITS = [["what", "what", ""], ["value", "measured", ",.1f"], ["unit", "unit", ""]]


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
    split = Split(data)
    pipeline, facts, classifier = whole_pipeline(split, best)
    changes += changes_of_phormer(classifier)
    quality = qualities(split, classifier)
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
        "quality": {"columns": QUALITY, "rows": quality},
    }
    sizes = {"nodes": args.nodes, "edges": data.graph.num_edges, "features": args.features, "steps": model.n_steps_}
    figures = {"limits": best, "kernels_a_step": kernels, "map_seconds": whole, **facts, "bars": bars}
    record("roofline", {**sizes, **figures, "eigenvalues": model.eigenvalues_.tolist(), "tables": tables}, args.output)


class Split:
    """97 % of the nodes are seen, 3 % cold."""

    def __init__(self, data: Any) -> None:
        nodes = len(data.y)
        self.cold = np.sort(np.random.default_rng(0).choice(nodes, round(0.03 * nodes), replace=False))
        self.seen = np.setdiff1d(np.arange(nodes), self.cold, assume_unique=True)
        self.X, self.y, self.graph = data.X[self.seen], data.y[self.seen], data.graph[self.seen]
        self.new, self.truth, self.every = data.X[self.cold], data.y[self.cold], data.graph

    def model(self, seed: int = 0) -> SparcClassifier:
        """SPARCphormer with three epochs, not fitted yet."""
        steps = math.ceil(EPOCHS * len(self.seen) / BATCH)
        kept = {"spectral_map": SpectralMap(64), "num_tokens": TOKENS, "batch_size": BATCH}
        return SparcClassifier("phormer", **kept, max_steps=steps, patience=1000, random_state=seed)

    def quality(self, model: SparcClassifier) -> dict[str, float]:
        """Score of the map on held-out nodes, Ritz values, and what the cold nodes say."""
        position = np.full(self.every.num_nodes, -1)
        position[self.seen] = np.arange(len(self.seen))
        asked = np.arange(0, len(self.cold), max(1, len(self.cold) // 2000))
        found = model.index_.search(model._coordinates(self.new[asked]), 1000)[1]
        shares = []
        for row, node in enumerate(self.cold[asked]):
            near = position[self.every.neighbors(int(node))]
            near = near[near >= 0]
            shares.append(np.isin(near, found[row]).mean() if len(near) else np.nan)
        return {
            "score": model.map_.history_[-1]["score"],
            "ritz": float(1 - model.map_.eigenvalues_.mean()),
            "retrieval": float(np.nanmean(shares)),
            "accuracy": float((model.predict(self.new) == self.truth).mean()),
        }


def whole_pipeline(split: Split, best: dict[str, float]) -> tuple[list[dict[str, Any]], dict[str, float], Any]:
    """Stages of SPARCphormer, and seconds to the predictions for the cold nodes."""
    model, start = split.model(), time.perf_counter()
    with stage_times() as seconds:
        model.fit(split.X, split.y, graph=split.graph)
        fitted = time.perf_counter()
        model.predict(split.new)
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
    count = phormer_counts(len(split.seen), len(split.cold), len(split.graph.indices), split.X.shape[1], model)
    rows = [stage_row(stage, taken[stage], count[stage], best) for stage in taken]
    facts = {"phormer_seconds": end - start, "phormer_map_seconds": seconds["map"]}
    print(dict(seconds), facts, flush=True)
    for row in rows:
        print(row, flush=True)
    return rows, facts, model


def qualities(split: Split, model: SparcClassifier) -> list[dict[str, Any]]:
    """What half precision changes, beside what another seed changes."""

    def exact(**settings: Any) -> LoopSettings:
        return LoopSettings(**{**settings, "bf16": False})

    rows = [{"what": "bf16, as fitted", **split.quality(model)}]
    for module in (embedding, _heads):
        module.LoopSettings = exact  # type: ignore[attr-defined]
    rows.append({"what": "float32", **split.quality(split.model().fit(split.X, split.y, graph=split.graph))})
    for module in (embedding, _heads):
        module.LoopSettings = LoopSettings
    rows.append(
        {"what": "bf16, another seed", **split.quality(split.model(1).fit(split.X, split.y, graph=split.graph))}
    )
    for row in rows:
        print(row, flush=True)
    return rows


if __name__ == "__main__":
    main()
