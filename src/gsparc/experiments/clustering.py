"""The clustering figure: do clusters of connected and of cold nodes agree with the classes?

Clusters are found among the seen nodes, as many as there are classes, and no method sees a label. Cold nodes join
afterwards. Accuracy is that of the best matching of clusters to classes (Hungarian) on the connected nodes. Cold nodes
are judged by that same matching: 81 nodes, as in Cora's split ``paper``, would find a better one by chance, and seem
easier than the connected. NMI has no matching and stays too high for so few; ARI is right for chance.
The paper shows bars without figures, so none of its own stand beside ours.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gsparc.experiments.engine import Cell, Context, Experiment, Method, Metric

if TYPE_CHECKING:
    import numpy as np

    from gsparc.datasets.base import Dataset

__all__ = ["TABLE", "agreement", "classes_of"]

_EIGENVECTORS = 32
_CLASSES_SEEN = "Features of the seen nodes, and how many classes there are."
_GRAPH_SEEN = "Features and edges of the seen nodes, and how many classes there are."


def agreement(
    connected: tuple[np.ndarray, np.ndarray], cold: tuple[np.ndarray, np.ndarray] | None = None
) -> dict[str, float]:
    """Accuracy, NMI and ARI in percent of classes and clusters, over the nodes that have a class.

    Examples
    --------
    >>> import numpy as np
    >>> agreement((np.array([0, 0, 1, -1]), np.array([1, 1, 0, 0])))
    {'connected': 100.0, 'connected_nmi': 100.0, 'connected_ari': 100.0}
    """
    from gsparc.metrics import ari, hungarian_accuracy, nmi

    known = connected[0] >= 0
    matched_on = connected[0][known], connected[1][known]
    figures = {}
    for prefix, pair in (("connected", connected), ("cold", cold)):
        if pair is not None:
            truth, found = (values[pair[0] >= 0] for values in pair)
            figures[prefix] = hungarian_accuracy(truth, found, matched_on=matched_on)
            figures |= {f"{prefix}_nmi": nmi(truth, found), f"{prefix}_ari": ari(truth, found)}
    return {name: 100 * value for name, value in figures.items()}


def classes_of(data: Dataset) -> np.ndarray:
    """The classes that clusters are compared with; an error where a data set has none."""
    from gsparc.exceptions import LabelError

    if data.y is None:
        raise LabelError(f"{data.name} has no classes to compare clusters with. Pass a data set that has.")
    return data.y


def run(cell: Cell, context: Context) -> dict[str, Any]:
    """One method on one split: the clusters of seen nodes, and of cold ones where it has an answer."""
    import numpy as np

    from gsparc.splits import ColdStartSplit

    data = context.data
    y = classes_of(data)
    (fold,) = ColdStartSplit(cell.setting, random_state=cell.seed).folds(data.X, y, data.groups)
    count = len(np.unique(y[y >= 0]))
    start = time.perf_counter()
    seen, predict = _clusters(cell.method, data.X[fold.seen], data.graph[fold.seen], count, context, cell.seed)
    seconds = time.perf_counter() - start
    cold = None if predict is None else (y[fold.cold], predict(data.X[fold.cold]))
    return {**agreement((y[fold.seen], seen), cold), "seconds": seconds}


def _clusters(label: str, X: Any, graph: Any, count: int, context: Context, seed: int) -> tuple[Any, Any]:
    """Clusters of the seen nodes, and what gives those of others; ``None`` where nothing does."""
    common: dict[str, Any] = {"random_state": seed, "device": context.device}
    few: dict[str, Any] = context.steps(n_init=1)
    short: dict[str, Any] = context.steps(max_steps=10)
    if label == "SPARC":
        from gsparc.estimators.clusterer import SparcClusterer

        ours = SparcClusterer(count, **common, **few, **short).fit(X, graph=graph)
        return ours.labels_, ours.predict
    if label == "spectral clustering":
        return _true_spectral(graph, count, context, seed), None
    if label == "SSGC":
        from gsparc.baselines.ssgc import SSGCBaseline

        return SSGCBaseline(count, **common, **few).fit(X, graph=graph).predict_seen(), None
    if label == "R-GAE":
        from gsparc.baselines.rgae import RGAEBaseline

        model = RGAEBaseline(count, **common, **short).fit(X, graph=graph)
        return model.predict_seen(), model.predict
    from gsparc.baselines.kmeans import KMeansBaseline

    rows: Any = "weighed" if label == "k-means, words weighed" else "as they are"
    floor = KMeansBaseline(count, rows=rows, **common, **few).fit(X)
    return floor.labels_, floor.predict


def _true_spectral(graph: Any, count: int, context: Context, seed: int) -> np.ndarray:
    """Ng, Jordan and Weiss: k-means on rows of true eigenvectors, scaled to length one."""
    from gsparc._runtime import resolve_device
    from gsparc.baselines._connected import true_eigenvectors
    from gsparc.estimators._kmeans import kmeans
    from gsparc.estimators._ranking import unit

    rows = unit(true_eigenvectors(graph, min(_EIGENVECTORS, graph.num_nodes - 1), seed))
    return kmeans(rows, count, seed=seed, device=resolve_device(context.device)).labels


TABLE = Experiment(
    name="clustering",
    title="Clusters of connected and of cold nodes",
    question="Do clusters found on the seen graph agree with the classes, also for nodes that have no edges?",
    datasets=("citeseer", "pubmed", "cora"),
    settings=lambda dataset: ("paper", "dense"),
    methods=(
        Method(
            "SPARC",
            _GRAPH_SEEN,
            "its own features only: the nearest centroid in the eigenspace and along directions of the features",
            ours=True,
        ),
        Method("k-means", _CLASSES_SEEN, "its own features only: the nearest centroid"),
        Method("k-means, words weighed", _CLASSES_SEEN, "its own features only: the nearest centroid"),
        Method("R-GAE", _GRAPH_SEEN, "its own row through the encoder, then the nearest centroid"),
        Method("SSGC", _GRAPH_SEEN, "not applicable: needs edges"),
        Method(
            "spectral clustering",
            "Edges of the seen nodes, and how many classes there are.",
            "not applicable: needs edges",
        ),
    ),
    metrics=(
        Metric("cold", "cold accuracy, %"),
        Metric("connected", "connected accuracy, %"),
        Metric("cold_nmi", "cold NMI, %"),
        Metric("connected_nmi", "connected NMI, %"),
        Metric("cold_ari", "cold ARI, %"),
        Metric("connected_ari", "connected ARI, %"),
    ),
    run=run,
)
