"""The stages of a fit: baselines, estimators, what they reach on rows that pretend to be new, and calibration."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._version import __version__
from gsparc.experiments.comparison import compare_classifiers, compare_links
from gsparc.experiments.layout import sample_rows
from gsparc.experiments.sentences import words_for
from gsparc.metrics import truth_matrix
from gsparc.tables.fitting import Clock, FitSettings, Material
from gsparc.tables.measuring import OURS, confidence_figures, edges_of, gains, plain_sentences, reliability
from gsparc.tables.stages import Stages

__all__ = ["Estimators", "estimate"]

_QUICK_FROM = 10_000  # seen rows from which the quick half of the mixture is fitted
_QUICK_HEADS = ("mlp", "distilled", "spectral")
_MAP_STEPS = 500
_MOST_RANKED = 5_000
# seconds on a graph of 30,000 nodes, for the bar only
_COSTS = {"mlp": 5, "glnn": 25, "classifier": 130, "measure": 5, "links": 43, "ranking": 12, "clusters": 60, "grow": 5}
Array = NDArray[Any]


@dataclass
class Estimators:
    """What a fit leaves: estimators that know every row, and the record of what was measured."""

    classifier: Any
    links: Any
    clusterer: Any
    report: dict[str, Any]
    top_scores: Array | None  # best link score of each pretend-new row, sorted


@dataclass
class _Run:
    material: Material
    settings: FitSettings
    stages: Stages
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        material, split = self.material, self.material.split
        self.seen, self.cold, self.val = split.seen, split.cold, split.val
        self.X, self.graph = material.X[self.seen], material.graph[self.seen]
        self.y = material.y
        self.known = 0 if material.labels is None else int(self.y[self.seen].max()) + 1
        self.truth = truth_matrix(material.graph, self.cold, self.seen) if len(self.cold) else None
        judged = self.val[(self.y[self.val] >= 0) & (self.y[self.val] < self.known)]
        self.validation = (material.X[judged], self.y[judged]) if len(judged) else None
        self.measured = self.cold[self.y[self.cold] >= 0]

    def common(self, *steps: str) -> dict[str, Any]:
        """Parameters that all estimators share; ``steps`` are those that bound training."""
        chosen = self.settings
        shared: dict[str, Any] = {"random_state": chosen.seed, "device": chosen.device, "verbose": chosen.verbose}
        return shared if chosen.max_steps is None else shared | dict.fromkeys(steps, chosen.max_steps)


def estimate(material: Material, settings: FitSettings, stages: Stages) -> Estimators:
    """Run all stages."""
    start = time.perf_counter()
    run = _Run(material, settings, stages)
    wanted = {
        "classes": ("mlp", "glnn", "classifier", "measure"),
        "links": ("links", "ranking"),
        "clusters": ("clusters",),
    }
    names = [name for task in settings.tasks for name in wanted[task]]
    stages.plan({name: _COSTS[name] for name in names} | {"grow": _COSTS["grow"], "picture": 10})
    classifier, links, clusterer = None, None, None
    record = _record(run)
    if "classes" in settings.tasks:
        classifier = _classes(run, record)
    top_scores = None
    if "links" in settings.tasks:
        links, top_scores = _links(run, record)
    if "clusters" in settings.tasks:
        clusterer = _clusters(run, record)
    record["summary"] = plain_sentences(record)
    _grow(run, classifier, links, clusterer)
    record["seconds"] = {name: round(value, 2) for name, value in run.clock.seconds.items()}
    record["created"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")  # it is saved right after
    record["seconds"]["total"] = round(time.perf_counter() - start, 2)
    return Estimators(classifier, links, clusterer, record, top_scores)


def _record(run: _Run) -> dict[str, Any]:
    material, settings = run.material, run.settings
    return {
        "version": __version__,
        "settings": settings.identity(),
        "words": words_for(""),
        "data": {
            "nodes": len(material.ids),
            "edges": material.graph.num_edges,
            "features": int(material.X.shape[1]),
            "classes": 0 if material.labels is None else len(material.labels.names),
            "labelled": int((material.y >= 0).sum()),
            "edge_counts": material.edges.counts,
            "left_out": len(material.bad),
        },
        "split": {
            "seen": len(run.seen),
            "validation": len(run.val),
            "cold": len(run.cold),
            "cold_labelled": len(run.measured),
            "cold_ranked": 0,
        },
        "notes": material.notes,
        "classification": None,
        "links": None,
        "gains": {"accuracy": [], "mrr": []},
        "coverage": None,
        "first_edges": None,
    }


def _classes(run: _Run, record: dict[str, Any]) -> Any:
    proba: dict[str, Array] = {}
    if len(run.measured):
        proba = _baselines(run)
    classifier = run.stages.estimator(
        "classifier",
        f"fitting the classifier ({run.settings.backbone}) on {len(run.seen):,} rows",
        run.clock.time("classifier", lambda: _fit_classifier(run)),
    )
    record["classifier"] = classifier.report_
    if not len(run.measured):
        return classifier
    run.stages.announce("measure", f"measuring on {len(run.measured):,} rows that pretend to be new")

    def measure() -> None:
        X, y = run.material.X[run.measured], run.y[run.measured]
        methods = {**proba, OURS: classifier.predict_proba(X)}
        rows, right = compare_classifiers(y, methods, np.arange(run.known), ours=[OURS])
        record["classification"], record["gains"]["accuracy"] = rows, gains(right)
        record["reliability"] = reliability({name: methods[name] for name in ("MLP on features", OURS)}, y)
        assert run.truth is not None
        truth = sp.csr_array(run.truth[np.flatnonzero(run.y[run.cold] >= 0)])
        figures = confidence_figures(classifier, X, y, truth, run.settings.coverage, run.settings.seed)
        record["coverage"], record["first_edges"] = figures
        if (y < run.known).any():
            classifier.calibrate(X, y, edges=edges_of(truth, np.arange(len(y))))

    run.clock.time("measure", measure)()
    return classifier


def _baselines(run: _Run) -> dict[str, Array]:
    """What an MLP on the features and GLNN say of the rows that measure."""
    from gsparc.baselines import GLNNBaseline, MLPBaseline

    X, y, X_new = run.X, run.y[run.seen], run.material.X[run.measured]

    def mlp() -> Any:
        model = MLPBaseline(**run.common("max_steps")).fit(X, y, validation=run.validation)
        return {}, {"proba": model.predict_proba(X_new)}

    def glnn() -> Any:
        steps = run.common("max_steps", "teacher_steps")
        model = GLNNBaseline(**steps).fit(X, y, graph=run.graph, validation=run.validation)
        return {}, {"proba": model.predict_proba(X_new)}

    stages, clock = run.stages, run.clock
    plain = stages.arrays("mlp", "fitting a baseline: an MLP on the features", clock.time("mlp", mlp))[1]["proba"]
    words = "fitting a baseline: GLNN, an MLP taught by a graph network"
    taught = stages.arrays("glnn", words, clock.time("glnn", glnn))[1]["proba"]
    return {"MLP on features": plain, "GLNN": taught}


def _fit_classifier(run: _Run) -> Any:
    from gsparc.estimators import SparcClassifier, SpectralMap

    settings = run.settings
    steps = run.common("max_steps")
    large = len(run.seen) > _QUICK_FROM
    folder = run.stages.folder
    given: dict[str, Any] = ({"max_steps": _MAP_STEPS} if large else {}) | steps
    spectral = SpectralMap(**given, checkpoint=None if folder is None else Path(folder) / "map")
    quick = settings.backbone == "auto" and large
    heads = _QUICK_HEADS if quick else None
    memory = settings.memory_of_each
    model = SparcClassifier(settings.backbone, heads=heads, spectral_map=spectral, index_memory=memory, **steps)
    return model.fit(run.X, run.y[run.seen], graph=run.graph, validation=run.validation)


def _links(run: _Run, record: dict[str, Any]) -> tuple[Any, Array | None]:
    from gsparc.estimators import SparcLinkPredictor

    def fit() -> Any:
        steps = run.common("spectral_steps", "refine_steps")
        maps = 1 if len(run.seen) > _QUICK_FROM else "auto"
        model = SparcLinkPredictor(n_maps=maps, index_memory=run.settings.memory_of_each, **steps)
        return model.fit(run.X, graph=run.graph)

    words = f"fitting the link predictor on {run.graph.num_edges:,} edges"
    model = run.stages.estimator("links", words, run.clock.time("links", fit))
    if run.truth is None:
        return model, None
    linked = np.flatnonzero(np.diff(run.truth.indptr))
    chosen = linked[sample_rows(len(linked), _MOST_RANKED, np.random.default_rng(run.settings.seed))]

    def rank() -> Any:
        return _rank(run, model, chosen)

    words = f"ranking the links of {len(chosen):,} rows that pretend to be new against {len(run.seen):,}"
    rows, ranks = run.stages.arrays("ranking", words, run.clock.time("ranking", rank))
    if len(chosen):
        record["links"], record["split"]["cold_ranked"] = rows["rows"], len(chosen)
        names = [row["method"] for row in rows["rows"]]
        record["gains"]["mrr"] = gains({name: 1 / ranks[str(i)] for i, name in enumerate(names)})
    return model, np.sort(ranks["top"])


def _rank(run: _Run, model: Any, chosen: Array) -> Any:
    """Ours beside likeness and popularity, ranked against every seen row; and the best score of each new row."""
    from gsparc.baselines import FeatureCosineLinks

    assert run.truth is not None
    cold = run.cold[sample_rows(len(run.cold), _MOST_RANKED, np.random.default_rng(run.settings.seed))]
    top = model.predict_links(run.material.X[cold], k=1)[1][:, 0]
    if not len(chosen):
        return {"rows": []}, {"top": top}
    kinds = {"popularity alone": "only", "feature cosine": "none", "cosine + popularity": "degree"}
    baselines = {
        name: FeatureCosineLinks(prior=prior, random_state=run.settings.seed).fit(run.X, graph=run.graph)  # type: ignore[arg-type]
        for name, prior in kinds.items()
    }
    scorers = {name: baseline.score_all for name, baseline in baselines.items()} | {OURS: model.score_all}
    rows, ranks = compare_links(run.material.X[run.cold[chosen]], sp.csr_array(run.truth[chosen]), scorers, ours=[OURS])
    return {"rows": rows}, {"top": top} | {str(i): ranks[row["method"]] for i, row in enumerate(rows)}


def _clusters(run: _Run, record: dict[str, Any]) -> Any:
    from gsparc.estimators import SparcClusterer

    asked = run.settings.n_clusters or max(run.known, 8 if run.material.labels is None else 2)
    count, fewer = min(asked, len(run.seen) - 1), ""
    if run.settings.n_clusters is not None and count < asked:
        fewer = f": {asked:,} were asked for, but the fit sees {len(run.seen):,} rows"
        run.material.notes.append(f"{count:,} clusters{fewer}")

    def fit() -> Any:
        return SparcClusterer(count, **run.common("max_steps")).fit(run.X, graph=run.graph)

    model = run.stages.estimator("clusters", f"finding {count} clusters{fewer}", run.clock.time("clusters", fit))
    record["clusters"] = {"count": count, "sizes": np.bincount(model.labels_, minlength=count).tolist()}
    return model


def _grow(run: _Run, classifier: Any, links: Any, clusterer: Any) -> None:
    """Let the held-out rows join with their classes and edges, so that the model knows every row."""
    later = np.concatenate([run.val, run.cold])
    run.stages.announce("grow", f"letting the {len(later):,} rows that were held out join")
    if not len(later):
        return

    def grow() -> None:
        X, y = run.material.X[later], run.y[later]
        source, target, weights = run.material.new_edges()
        edges = (source, target) if weights is None else (source, target, weights)
        if classifier is not None:
            classifier.grow(X, np.where(y < run.known, y, -1), edges=edges)
        if links is not None:
            links.grow(X, edges=edges)
        if clusterer is not None:
            clusterer.grow(X, edges=edges)

    run.clock.time("grow", grow)()
