"""What the stages of a large fit have to do at least, and what a GPU does at best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from gsparc import SparcClassifier, SpectralMap

__all__ = [
    "BATCH",
    "EPOCHS",
    "TOKENS",
    "limit_rows",
    "limits",
    "map_counts",
    "phormer_counts",
    "stage_row",
    "timed",
]

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
