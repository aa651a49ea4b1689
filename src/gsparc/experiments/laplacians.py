"""The two ablation figures: clustering accuracy against alpha of the features-edges view and k of the k-power view.

``alpha=0.5`` clusters ``0.5 W + 0.5 A``: feature likeness and edges, walks of one step. ``k=3``: walks of one to
three steps along edges, without feature likeness. The eigenspace alone is clustered (``feature_share=0``), all else is
as in ``SparcClusterer``. The split is ``dense``.
The paper names neither its data sets nor its values for these figures.
"""

from __future__ import annotations

import time
from typing import Any

from gsparc.experiments.clustering import agreement, classes_of
from gsparc.experiments.engine import Cell, Context, Experiment, Method, Metric

__all__ = ["ALPHAS", "POWERS", "TABLE", "view_of"]

ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
POWERS = (1, 2, 3, 5, 10, 20, 50)


def view_of(setting: str) -> dict[str, Any]:
    """Parameters of the clusterer for a setting.

    Examples
    --------
    >>> view_of("alpha=0.25"), view_of("k=3")
    ({'alpha': 0.25, 'k_power': 1}, {'alpha': 0.0, 'k_power': 3})
    """
    name, _, value = setting.partition("=")
    return {"alpha": float(value), "k_power": 1} if name == "alpha" else {"alpha": 0.0, "k_power": int(value)}


def run(cell: Cell, context: Context) -> dict[str, Any]:
    """The clusterer with one view of the graph."""
    import numpy as np

    from gsparc.estimators.clusterer import SparcClusterer
    from gsparc.splits import ColdStartSplit

    data = context.data
    y = classes_of(data)
    (fold,) = ColdStartSplit("dense", random_state=cell.seed).folds(data.X, y, data.groups)
    settings: dict[str, Any] = view_of(cell.setting) | context.steps(max_steps=10, n_init=1) | {"feature_share": 0.0}
    count = len(np.unique(y[y >= 0]))
    model = SparcClusterer(count, random_state=cell.seed, device=context.device, **settings)
    start = time.perf_counter()
    model.fit(data.X[fold.seen], graph=data.graph[fold.seen])
    seconds = time.perf_counter() - start
    cold = y[fold.cold], model.predict(data.X[fold.cold])
    return {**agreement((y[fold.seen], model.labels_), cold), "seconds": seconds}


TABLE = Experiment(
    name="laplacians",
    title="Views of the graph",
    question="How do the share of feature likeness and the length of walks change the clusters?",
    datasets=("citeseer", "pubmed", "cora"),
    settings=lambda dataset: (*(f"alpha={a:g}" for a in ALPHAS), *(f"k={k}" for k in POWERS)),
    methods=(
        Method(
            "SPARC",
            "Features and edges of the seen nodes, and how many classes there are.",
            "its own features only: the nearest centroid in the eigenspace",
            ours=True,
        ),
    ),
    metrics=(
        Metric("cold", "cold accuracy, %"),
        Metric("connected", "connected accuracy, %"),
        Metric("cold_nmi", "cold NMI, %"),
        Metric("connected_nmi", "connected NMI, %"),
    ),
    run=run,
)
