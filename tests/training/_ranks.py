"""What the processes of test_distributed.py run; each of them is started as ``python _ranks.py NAME``."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gsparc._processes import world
from gsparc._runtime import resolve_seed
from gsparc.exceptions import CheckpointError, ProcessesError
from gsparc.graph import Graph
from gsparc.nn.objectives import contrastive_loss, info_nce_loss, rayleigh_loss
from gsparc.ops.orthonormal import orthonormal_layer
from gsparc.training.classify import ClassTask
from gsparc.training.distributed import (
    average,
    average_gradients,
    bytes_from_first,
    computed_together,
    everyone,
    from_first,
    joined,
    mean_of,
)
from gsparc.training.links import joint_info_nce
from gsparc.training.loop import LoopSettings, run_loop

WIDTH, EDGES, OUT = 5, 10, 6


class Lesson:
    """One network, and edges of all ranks: rank ``r`` has the rows ``source[r]``, ``target[r]``."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, OUT)).double()
        self.parameters = list(self.net.parameters())
        self.source, self.target = torch.randn(2, world().size, EDGES, WIDTH, dtype=torch.float64)
        self.errors: dict[str, float] = {}

    def own(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.net(self.source[world().rank]), self.net(self.target[world().rank])

    def all(self, *, halves: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Everybody's edges as one batch, whose first half is made of the first halves of the shares."""
        if not halves:
            return self.net(self.source.flatten(0, 1)), self.net(self.target.flatten(0, 1))
        cut = EDGES // 2
        parts = (torch.cat([x[:, :cut].flatten(0, 1), x[:, cut:].flatten(0, 1)]) for x in (self.source, self.target))
        source, target = (self.net(part) for part in parts)
        return source, target

    def compare(self, name: str, whole: torch.Tensor, share: torch.Tensor) -> None:
        """Largest difference of loss and gradients between one process with all edges, and many with a share each."""
        wanted = torch.autograd.grad(whole, self.parameters, allow_unused=True)
        self.net.zero_grad()
        share.backward()
        average_gradients(self.parameters)
        worst = abs(float(whole.detach()) - mean_of(float(share.detach())))
        for gradient, parameter in zip(wanted, self.parameters, strict=True):
            assert gradient is not None
            assert parameter.grad is not None
            worst = max(worst, float((gradient - parameter.grad).abs().max()))
        self.errors[name] = worst


def equality() -> dict[str, float]:
    """Every loss that is more than a mean over the rows of its batch."""
    lesson = Lesson()
    for nested in (False, True):
        whole = contrastive_loss(*lesson.all(halves=True), nested=nested)
        lesson.compare(f"contrastive {nested}", whole, contrastive_loss(*lesson.own(), nested=nested, average=average))
        whole = contrastive_loss(*lesson.all(halves=True), nested=nested)
        share = contrastive_loss(*lesson.own(), nested=nested, average=partial(average, alike=True))
        lesson.compare(f"contrastive {nested}, one message", whole, share)
    with torch.no_grad():
        offset, rotation = orthonormal_layer(torch.cat(lesson.all(halves=False)))
        layer = orthonormal_layer(torch.cat(lesson.own()), average=average)
        lesson.errors["layer"] = float(max((offset - layer[0]).abs().max(), (rotation - layer[1]).abs().max()))
    whole, share = ([(v - offset) @ rotation for v in ends] for ends in (lesson.all(halves=False), lesson.own()))
    lesson.compare("rayleigh", rayleigh_loss(*whole), rayleigh_loss(*share, average=average))
    lesson.compare("edges", info_nce_loss(*lesson.all(halves=False), 0.1), joint_info_nce(*lesson.own(), 0.1))
    ids = torch.randint(15, (2, world().size, EDGES))
    ids[1, 0, 3] = ids[0, 0, 3]  # one pair is no edge
    first, second = ids.flatten(1, 2)
    keep = first != second
    first, second = first[keep], second[keep]
    same = (first[:, None] == first) | (second[:, None] == second) | (first[:, None] == second)
    same.fill_diagonal_(False)
    source, target = lesson.all(halves=False)
    pairs = (ids[0, world().rank], ids[1, world().rank])
    lesson.compare(
        "links", info_nce_loss(source[keep], target[keep], 0.1, same), joint_info_nce(*lesson.own(), 0.1, pairs)
    )
    rows, labels = np.arange(7), np.arange(7) % OUT  # shares of four and three rows
    x = torch.randn(7, WIDTH, dtype=torch.float64)
    task = ClassTask(lesson.net, lambda r: (x[r],), rows, labels, None, torch.device("cpu"), batch_size=100)
    whole = nn.functional.cross_entropy(lesson.net(x), torch.from_numpy(labels))
    logits = lesson.net(x[task.rows])
    lesson.compare("classes", whole, task.weight * nn.functional.cross_entropy(logits, task.targets))
    return lesson.errors


def messages() -> dict[str, object]:
    """What is the same everywhere, and what is not."""
    rank = world().rank
    rows = torch.arange(7)
    return {
        "first": from_first(10.0 + rank, 3.0),
        "mean": mean_of(float(rank)),
        "everyone": [everyone(True), everyone(rank == 0)],
        "bytes": (bytes_from_first(b"abc" if rank == 0 else None) or b"").decode(),
        "nothing": bytes_from_first(None if rank == 0 else b"x"),
        "rows": computed_together(lambda part: part[:, None] * 2, rows)[:, 0].tolist(),
        "one row": computed_together(lambda part: part, rows[:1]).tolist(),
        "fresh seeds": [resolve_seed(None), resolve_seed(None)],
        "own seed": world().seed(5),
    }


class Noisy:
    """Least squares with dropout; rank 1 is killed at a step of the first attempt."""

    def __init__(self, die_at: int | None = None) -> None:
        torch.manual_seed(world().rank)  # ranks start differently: the first one's weights must win
        self.module: nn.Module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.calls, self.die_at = 0, die_at

    def loss(self, generator: torch.Generator) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.die_at and world().rank == 1 and world().attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(16, 3, generator=generator)
        return (self.module(x)[:, 0] - x.sum(dim=1)).square().mean()

    def evaluate(self) -> float | None:
        return -float(next(self.module.parameters()).detach().square().sum()) + world().rank  # ranks disagree


def loop(folder: str, die_at: str = "") -> dict[str, object]:
    """Train with a checkpoint at every evaluation."""
    task = Noisy(int(die_at) if die_at else None)
    settings = LoopSettings(steps=60, eval_every=10, patience=99, seed=3, checkpoint=folder, checkpoint_seconds=0.0)
    result = run_loop(task, settings, torch.device("cpu"))
    weights = b"".join(value.numpy().tobytes() for value in task.module.state_dict().values())
    try:
        other = LoopSettings(steps=60, seed=3, checkpoint=folder, fingerprint="another")
        run_loop(Noisy(), other, torch.device("cpu"))
        refused = ""
    except CheckpointError as error:
        refused = str(error)
    return {
        "steps": result.steps,
        "calls": task.calls,
        "best": result.best_step,
        "losses": [entry["loss"] for entry in result.history],
        "weights": weights.hex(),
        "refused": refused,
    }


def spectral() -> dict[str, object]:
    """A spectral map of a ring, by both objectives."""
    from gsparc.estimators.embedding import SpectralMap

    angle = np.linspace(0, 2 * np.pi, 300, endpoint=False)
    X = np.stack([f(k * angle) for k in (1, 2) for f in (np.cos, np.sin)], axis=1).astype(np.float32)
    nodes = np.arange(300)
    ring = Graph.from_edges(np.concatenate([[nodes, (nodes + s) % 300] for s in (1, 2, 3)], axis=1), num_nodes=300)
    out: dict[str, object] = {}
    for objective in ("contrastive", "rayleigh"):
        model = SpectralMap(4, objective=objective, max_steps=60, batch_size=512, hidden_channels=(32,), random_state=0)
        model.fit(X, graph=ring)
        out[objective] = {"values": model.eigenvalues_.tolist(), "sum": float(model.transform(X).sum())}
    return out


def stored(folder: str) -> dict[str, object]:
    """A ring in a store: the networks are everybody's work, a Ritz step over blocks of edges too, the index is not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gsparc.ops import ritz
    from gsparc.storage import IngestSettings, ingest
    from gsparc.storage.fitting import model_of_store
    from gsparc.tables.fitting import FitSettings

    own, rows = Path(folder) / f"store {world().rank}", np.arange(300)
    own.mkdir(parents=True)
    angle = 2 * np.pi * rows / 300
    X = np.stack([f(k * angle) for k in (1, 2) for f in (np.cos, np.sin)], axis=1)
    pq.write_table(pa.table({"id": rows, "v": X.tolist(), "half": rows // 150}), own / "nodes.parquet")
    ends = {"source": np.tile(rows, 3), "target": np.concatenate([(rows + s) % 300 for s in (1, 2, 3)])}
    pq.write_table(pa.table(ends), own / "edges.parquet")
    settings = IngestSettings(target="half", holdout=0.1)
    store = ingest(own / "nodes.parquet", own / "edges.parquet", own / "store", settings)
    ritz._BLOCK_ENTRIES = 100  # some blocks for each process
    chosen = FitSettings(("classes", "links"), device="cpu", max_steps=60)
    model = model_of_store(store, chosen, progress=lambda sentence, done: None, whole=False)
    if model is None:
        return {"model": False}
    values = model.spectral.eigenvalues_  # type: ignore[attr-defined]
    return {"model": True, "values": values[:4].tolist(), "measured": model.report["measured"]}


def everything(folder: str) -> dict[str, object]:
    """All of the above in one go: starting processes is what takes the time."""
    found = {"equality": equality(), "messages": messages(), "spectral": spectral(), "stored": stored(folder)}
    return found | {"loop": loop(folder)}


def late() -> dict[str, object]:
    """Never reached by the rank that does not join."""
    return {}


def main() -> None:
    """Join, run what was asked for, and leave the result as ``RANK.json`` in the folder."""
    name, folder, *rest = sys.argv[1:]
    path = Path(folder) / f"{os.environ.get('RANK', '0')}.json"
    if name == "late" and os.environ["RANK"] == "1":
        return
    try:
        with joined(2.0 if name == "late" else 60.0):
            result = globals()[name](*rest)
    except ProcessesError as error:
        if name != "late":
            raise
        result = {"error": str(error)}
    path.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
