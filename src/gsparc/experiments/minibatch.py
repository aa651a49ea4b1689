"""The figure on convergence: Cluster-GCN on batches of random, METIS and spectral clusters, by epochs and by time.

Diffusion batches are a control: spectral ones without the map, which show what the map does.

Split ``paper``; a tenth of the seen labels is hidden, and accuracy on these connected nodes is taken after every epoch,
over the whole graph. Only the clusters differ between the methods: network, optimiser, seeds, number of clusters
and clusters a batch are the same. One cluster for 155 nodes and 20 a batch, as 1,500 and 20 are on Reddit; on
smaller graphs fewer a batch, so that an epoch has seven of them.

What is compared is the first epoch in which the accuracy is that of random batches in their last one (same seed),
when the learning rate has fallen to zero. A run that never gets there counts one epoch more than there are, and all
the time that it took.

The features of generated graphs tell the class to any network within one epoch, so there is nothing to compare on them
as they are. Settings ``noise 8`` and ``noise 25`` add noise of that deviation to every feature (split ``paper``). How
much there is decides which batches are better, so several amounts are shown, not one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gsparc.experiments.engine import GENERATED_SIZES, Cell, Context, Experiment, Method, Metric
from gsparc.experiments.results import write_json
from gsparc.experiments.workers import one_at_a_time

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gsparc.graph import Graph

__all__ = ["TABLE", "batch_shape", "first_reached"]

EPOCHS = 30
_PART, _BATCH, _BATCHES = 155, 20, 7  # nodes a cluster, clusters a batch at most, batches an epoch at least
_NOISY = ("noise 8", "noise 25")  # for the graphs that may be generated
_RANDOM = "Random batches"
_PARTITIONS = {
    _RANDOM: "random",
    "METIS batches": "metis",
    "Diffusion batches": "diffusion",
    "Spectral batches": "spectral",
}


def batch_shape(num_nodes: int) -> tuple[int, int]:
    """Clusters, and clusters a batch, for a graph of this size.

    Examples
    --------
    >>> batch_shape(232_965), batch_shape(18_500), batch_shape(2_500), batch_shape(60)
    ((1503, 20), (119, 17), (16, 3), (7, 1))
    """
    parts = max(round(num_nodes / _PART), min(_BATCHES, num_nodes))
    return parts, min(_BATCH, -(-parts // _BATCHES))


def first_reached(curve: Sequence[float], target: float) -> int | None:
    """Number of the first entry, counted from one, that is at least ``target``; None if there is none.

    Examples
    --------
    >>> first_reached([70.0, 81.0, 80.0], 80.0), first_reached([70.0], 80.0)
    (2, None)
    """
    return next((number for number, value in enumerate(curve, start=1) if value >= target), None)


def _once(context: Context, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` gives: made by whoever comes first, and left under this name for the other workers."""
    if context.shared is None:
        return make()
    folder = context.shared / f"{context.dataset}, {name}"
    file = folder / "made.json"
    with one_at_a_time(folder):
        if not file.is_file():
            write_json(file, make())
        return json.loads(file.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _random_batches(context: Context, setting: str, seed: int) -> dict[str, Any]:
    """The run that all others with this seed are measured by."""
    return _once(context, f"{setting}, {seed}", lambda: _train(context, setting, "random", seed))


def _metis(context: Context, graph: Graph, parts: int, seed: int) -> tuple[NDArray[np.int64], float]:
    """METIS's clusters and the seconds that they took: noise on the features leaves them as they are."""
    import numpy as np

    from gsparc.estimators._partitions import node_partition

    def make() -> dict[str, Any]:
        start = time.perf_counter()
        label, _ = node_partition("metis", parts, graph, seed=seed)
        return {"seconds": time.perf_counter() - start, "clusters": label.tolist()}

    made = _once(context, f"METIS, {seed}", make)
    return np.array(made["clusters"], np.int64), made["seconds"]


def _train(context: Context, setting: str, partition: str, seed: int) -> dict[str, Any]:
    """Curves of one run."""
    import numpy as np

    from gsparc.baselines.cluster_gcn import ClusterGCNBaseline
    from gsparc.estimators.embedding import SpectralMap
    from gsparc.splits import ColdStartSplit

    data = context.data
    assert data.y is not None
    noise = float(setting.split()[1]) if setting in _NOISY else 0.0
    (fold,) = ColdStartSplit("paper" if noise else setting, random_state=seed).folds(data.X, data.y, data.groups)
    y = fold.visible_labels(data.y)
    test = np.sort(np.random.default_rng(seed).choice(len(y), len(y) // 10, replace=False))
    test = test[y[test] >= 0]
    y[test] = -1
    X = data.X[fold.seen]
    if noise:
        X = X + noise * np.random.default_rng([seed, 1]).standard_normal(X.shape, dtype=np.float32)
    graph = data.graph[fold.seen]
    parts, batch = batch_shape(len(y))
    clusters, making = _metis(context, graph, parts, seed) if partition == "metis" else (partition, 0.0)
    spectral: dict[str, Any] = {"device": context.device, "random_state": seed} | context.steps(max_steps=5)
    model = ClusterGCNBaseline(
        partition=clusters,  # type: ignore[arg-type]
        num_parts=parts,
        batch_clusters=batch,
        max_epochs=2 if context.smoke else EPOCHS,
        spectral_map=SpectralMap(64, **spectral) if partition == "spectral" else None,
        device=context.device,
        random_state=seed,
    )
    model.fit(X, y, graph=graph, watch=(test, data.y[fold.seen[test]]))
    return {
        "accuracy": [100 * entry["watched"] for entry in model.history_],
        "validation": [100 * entry["validation"] for entry in model.history_ if "validation" in entry],
        "training_seconds": [entry["seconds"] for entry in model.history_],
        "partition_seconds": making + model.partition_seconds_,
        "inside": 100 * model.inner_share_,
    }


def run(cell: Cell, context: Context) -> dict[str, Any]:
    """One run, and how soon it is as good as random batches are in the end."""
    if cell.setting in _NOISY and not context.is_generated:
        return {"not_applicable": "added noise is for generated graphs, whose own features are too easy"}
    random = cell.method == _RANDOM
    found = None if random else _train(context, cell.setting, _PARTITIONS[cell.method], cell.seed)
    usual = _random_batches(context, cell.setting, cell.seed)  # last, when another worker may have made it
    found, target = found or usual, usual["accuracy"][-1]
    curve, seconds, making = found["accuracy"], found["training_seconds"], found["partition_seconds"]
    reached = first_reached(curve, target)
    numbers: dict[str, Any] = {
        "epochs": float(reached or len(curve) + 1),
        "reached": 100.0 * (reached is not None),
        "accuracy_last": curve[-1],
        "inside": found["inside"],
        "partition_seconds": making,
        "seconds": making + seconds[-1],
        "accuracy": curve,
        "validation": found["validation"],
        "epoch": [float(number) for number in range(1, len(curve) + 1)],
        "training_seconds_curve": seconds,
        "seconds_curve": [making + passed for passed in seconds],
    }
    numbers["seconds_training"] = seconds[(reached or len(curve)) - 1]
    numbers["seconds_all"] = making + numbers["seconds_training"]
    return numbers


_COLD = "not applicable: needs edges"
_SEES = "seen nodes, their features and the edges among them, the visible labels; clusters are made from "

TABLE = Experiment(
    name="minibatch",
    title="Cluster-GCN on batches of random, METIS, diffusion and spectral clusters.",
    question="Do spectral mini-batches reach the final accuracy of random batches in fewer epochs?",
    against=_RANDOM,
    datasets=("cora", "pubmed", "reddit"),
    settings=lambda dataset: ("paper", *_NOISY) if dataset in GENERATED_SIZES else ("paper",),
    methods=(
        Method("Spectral batches", _SEES + "features and edges: a map, averaged along edges", _COLD, ours=True),
        Method("Diffusion batches", _SEES + "the edges: random signals, averaged along them", _COLD),
        Method("METIS batches", _SEES + "the edges", _COLD),
        Method(_RANDOM, _SEES + "nothing", _COLD, no_rival_by=("reached",)),  # each gets where it gets itself
    ),
    metrics=(
        Metric("epochs", f"epochs to the final accuracy of random batches ({EPOCHS + 1}: never)", "lower"),
        Metric("reached", "runs that got there, %"),
        Metric("accuracy_last", "accuracy after the last epoch, %"),
        Metric("seconds_training", "seconds of training to get there (never: all of them)", "lower"),
        Metric("seconds_all", "the same with making the clusters, s", "lower"),
        Metric("partition_seconds", "making the clusters, s", "lower"),
        Metric("inside", "edges inside clusters, %"),
    ),
    run=run,
)
