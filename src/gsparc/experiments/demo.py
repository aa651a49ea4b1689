"""The demo: a part of a graph's nodes pretends to be new, and every method says what it can about them."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._version import __version__
from gsparc.datasets.base import Dataset, shape_of
from gsparc.exceptions import GraphError
from gsparc.experiments.comparison import compare_classifiers, compare_links, paired_gain
from gsparc.experiments.examples import MIN_LINKS, Candidates, choose_examples, describe_example
from gsparc.experiments.layout import project_2d, sample_rows
from gsparc.experiments.sentences import summary_sentences, words_for
from gsparc.graph import Graph
from gsparc.metrics import truth_matrix
from gsparc.splits import ColdStartSplit, Fold

__all__ = ["DemoResult", "run_demo"]

OURS = "gsparc"
_MOST_RANKED, _MOST_DRAWN, _MOST_DRAWN_NEW = 10_000, 4_000, 1_000
_SUGGESTED, _NEAREST = 8, 5
_MAP_STEPS = 500  # half the default: all of the demo stays under four minutes on two cores
Say = Callable[[str], None]


@dataclass
class DemoResult:
    """What a demo run leaves: a record of plain values, and the fitted models.

    Attributes
    ----------
    record : dict
        Everything shown, ready for JSON: versions, seeds, times, figures, examples, points of the map.
    classifier : SparcClassifier or None
        None where the data set has fewer than two classes.
    link_predictor : SparcLinkPredictor
    """

    record: dict[str, Any]
    classifier: Any
    link_predictor: Any


@dataclass
class _Run:
    """A data set cut into known and new nodes, and the times of what is done with it."""

    data: Dataset
    fold: Fold
    graph: Graph  # of the known nodes alone
    truth: sp.csr_array  # true links of the new nodes to known ones
    seed: int
    quick: bool
    max_steps: int | None
    verbose: int
    say: Say
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def X_seen(self) -> Any:
        return self.data.X[self.fold.seen]

    @property
    def X_cold(self) -> Any:
        return self.data.X[self.fold.cold]

    @contextmanager
    def clock(self, name: str, sentence: str) -> Iterator[None]:
        self.say(sentence)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def settings(self, *steps: str) -> dict[str, Any]:
        """Parameters of our estimators, ``steps`` naming those that bound training.

        The defaults, unless a shorter run was asked for.
        """
        chosen: dict[str, Any] = {"random_state": self.seed, "verbose": self.verbose}
        if self.quick:
            chosen |= {"n_components": 32, **dict.fromkeys(steps, 100)}
        if self.max_steps is not None:
            chosen |= dict.fromkeys(steps, self.max_steps)
        return chosen


def run_demo(
    data: Dataset,
    *,
    seed: int = 0,
    quick: bool = False,
    max_steps: int | None = None,
    verbose: int = 0,
    say: Say = lambda sentence: None,
) -> DemoResult:
    """Hold out nodes as new ones, fit ours and the baselines on the rest, and compare.

    Parameters
    ----------
    data : Dataset
    seed : int
        Of the split and of every fit.
    quick : bool
        Fewer components and steps, for a first look.
    max_steps : int, optional
        Training steps at most, instead of the default.
    verbose : int
        1 shows progress bars on standard error.
    say : callable
        Gets a sentence before each stage.
    """
    start = time.perf_counter()
    run = _cut(data, seed, quick=quick, max_steps=max_steps, verbose=verbose, say=say)
    words = words_for(data.name)
    classifier, classification, labels = _classify(run)
    predictor, links, best_rank = _rank(run)
    record: dict[str, Any] = {
        "what": "gsparc demo",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "quick": quick,
        "words": words,
        "dataset": _facts(data),
        "split": _split_facts(run, len(best_rank[OURS]), labels),
        "classification": classification,
        "links": links,
        "gains": _gains(labels, classification, links, best_rank),
    }
    with run.clock("examples", "choosing three examples"):
        record["examples"] = _examples(run, words, classifier, predictor, labels)
    record["examples_rule"] = {"min_links": MIN_LINKS}
    record["summary"] = summary_sentences(record)
    record |= _spectral_record(run, classifier)
    run.seconds["total"] = time.perf_counter() - start
    record["seconds"] = {name: round(value, 3) for name, value in run.seconds.items()}
    record["versions"] = versions()
    record["machine"] = {"cpus": os.cpu_count(), "device": _device_name()}
    return DemoResult(record, classifier, predictor)


def versions() -> dict[str, str]:
    """Versions of gsparc, Python and the packages that results depend on."""
    packages = ("torch", "numpy", "scipy", "scikit-learn")
    return {"gsparc": __version__, "python": platform.python_version(), **{p: version(p) for p in packages}}


def _device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def _cut(data: Dataset, seed: int, *, quick: bool, max_steps: int | None, verbose: int, say: Say) -> _Run:
    fold = next(iter(ColdStartSplit("dense", random_state=seed).folds(data.X, data.y, data.groups)))
    graph = data.graph[fold.seen]
    truth = truth_matrix(data.graph, fold.cold, fold.seen)
    if graph.num_edges == 0 or truth.nnz == 0:
        raise GraphError(
            f"data set {data.name!r} has too few edges for a demo: {graph.num_edges} among the "
            f"{len(fold.seen)} known nodes, {truth.nnz} from new nodes to known ones. Both need at least one."
        )
    return _Run(data, fold, graph, truth, seed, quick, max_steps, verbose, say)


def _facts(data: Dataset) -> dict[str, Any]:
    nodes, features = shape_of(data.X)
    return {
        "name": data.name,
        "description": data.description,
        "source": data.source,
        "nodes": nodes,
        "edges": data.graph.num_edges,
        "features": features,
        "classes": data.num_classes,
    }


@dataclass(frozen=True)
class _Labels:
    """Predictions for the new nodes: probabilities by method, and who was right where the truth is known."""

    known: NDArray[np.bool_]  # new nodes whose class is known
    proba: dict[str, NDArray[Any]]
    classes: NDArray[np.int64]
    right: dict[str, NDArray[Any]]


def _classify(run: _Run) -> tuple[Any, list[dict[str, Any]] | None, _Labels | None]:
    """Our classifier beside an MLP on the features and GLNN; nothing where there are no two classes to tell apart."""
    from gsparc.baselines import GLNNBaseline, MLPBaseline
    from gsparc.estimators import SparcClassifier, SpectralMap

    y = run.data.y
    if y is None or len(np.unique(y[run.fold.labelled])) < 2 or not (y[run.fold.cold] >= 0).any():
        return None, None, None
    visible, truth = run.fold.visible_labels(y), y[run.fold.cold]
    with run.clock("mlp", "fitting the baseline: an MLP on the features"):
        limit = {name: value for name, value in run.settings("max_steps").items() if name != "n_components"}
        mlp = MLPBaseline(**limit).fit(run.X_seen, visible)
        baseline = mlp.predict_proba(run.X_cold)
    with run.clock("glnn", "fitting the baseline: GLNN, an MLP taught by a graph network"):
        taught = GLNNBaseline(**limit).fit(run.X_seen, visible, graph=run.graph).predict_proba(run.X_cold)
    with run.clock("classifier", "fitting SparcClassifier"):
        settings = run.settings("max_steps")
        spectral = SpectralMap(**{"max_steps": _MAP_STEPS, **settings})
        # the quick half of the default mixture: gcn, phormer and samba double the time
        model = SparcClassifier(heads=("mlp", "distilled", "spectral"), spectral_map=spectral, **settings)
        model.fit(run.X_seen, visible, graph=run.graph)
        ours = model.predict_proba(run.X_cold)
    proba = {"MLP on features": baseline, "GLNN": taught, OURS: ours}
    known, classes = truth >= 0, np.asarray(model.classes_)
    rows, right = compare_classifiers(truth[known], {name: p[known] for name, p in proba.items()}, classes, ours=[OURS])
    return model, rows, _Labels(known, proba, classes, right)


def _rank(run: _Run) -> tuple[Any, list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Our link predictor beside similarity and popularity, all ranked against every known node."""
    from gsparc.baselines import FeatureCosineLinks
    from gsparc.estimators import SparcLinkPredictor

    with run.clock("link_baselines", "fitting the baselines: feature cosine and popularity"):
        baselines = {
            "popularity alone": FeatureCosineLinks(prior="only", random_state=run.seed),
            "feature cosine": FeatureCosineLinks(prior="none", random_state=run.seed),
            "cosine + popularity": FeatureCosineLinks(prior="degree", random_state=run.seed),
        }
        scorers = {n: m.fit(run.X_seen, graph=run.graph).score_all for n, m in baselines.items()}
    with run.clock("link_predictor", "fitting SparcLinkPredictor"):
        settings = run.settings("spectral_steps", "refine_steps")
        model = SparcLinkPredictor(n_maps=1, **settings).fit(run.X_seen, graph=run.graph)  # one map: half the time
    linked = np.flatnonzero(np.diff(run.truth.indptr))
    rows = linked[sample_rows(len(linked), _MOST_RANKED, np.random.default_rng(run.seed))]
    with run.clock("ranking", f"ranking the links of {len(rows):,} new nodes against {len(run.fold.seen):,} known"):
        figures, best_rank = compare_links(
            run.X_cold[rows],
            sp.csr_array(run.truth[rows]),
            {**scorers, OURS: model.score_all},
            ours=[OURS],
            progress=lambda name: run.say(f"  {name}"),
        )
    return model, figures, best_rank


def _fit_map(run: _Run) -> Any:
    """A map to look at where no classifier has one; the link predictor's are bent towards retrieval."""
    from gsparc.estimators import SpectralMap

    with run.clock("spectral_map", "fitting SpectralMap"):
        return SpectralMap(**run.settings("max_steps")).fit(run.X_seen, graph=run.graph)


def _split_facts(run: _Run, ranked: int, labels: _Labels | None) -> dict[str, Any]:
    fold = run.fold
    return {
        "name": "dense",
        "seen": len(fold.seen),
        "validation": len(fold.val),
        "cold": len(fold.cold),
        "cold_labelled": 0 if labels is None else int(labels.known.sum()),
        "cold_linked": int(np.count_nonzero(np.diff(run.truth.indptr))),
        "cold_ranked": ranked,
        "grouped": run.data.groups is not None,
    }


def _gains(labels: _Labels | None, classes: Any, links: Any, best_rank: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Paired differences over the same new nodes: ours to every baseline."""
    gains: dict[str, Any] = {"accuracy": [], "mrr": []}
    if labels is not None:
        others = [row["method"] for row in classes if not row["ours"]]
        gains["accuracy"] = [paired_gain(labels.right[OURS], labels.right[name], name) for name in others]
    others = [row["method"] for row in links if not row["ours"]]
    gains["mrr"] = [paired_gain(1 / best_rank[OURS], 1 / best_rank[name], name) for name in others]
    return gains


def _examples(
    run: _Run, words: dict[str, str], classifier: Any, predictor: Any, labels: _Labels | None
) -> list[dict[str, Any]]:
    names = run.data.node_ids if run.data.node_ids is not None else np.arange(run.data.graph.num_nodes)
    seen_names, cold = np.asarray(names)[run.fold.seen], run.fold.cold
    width = min(_SUGGESTED, len(run.fold.seen))
    ids, scores = predictor.predict_links(run.X_cold, k=width)
    places = run.graph.ids_to_index(np.asarray(ids).ravel()).reshape(len(cold), width)
    is_true = np.asarray(run.truth[np.arange(len(cold)).repeat(width), places.ravel()]) != 0
    candidates = _candidates(run, is_true.reshape(places.shape).sum(axis=1), labels)
    y, class_names = run.data.y, run.data.class_names
    if class_names is None:
        class_names = np.array([str(c) for c in range(run.data.num_classes)])
    described = []
    for kind, row in choose_examples(candidates):
        nearest = proba = None
        if classifier is not None and labels is not None:
            near, distance = classifier.nearest(run.X_cold[row : row + 1], k=min(_NEAREST, len(run.fold.seen)))
            nearest = run.graph.ids_to_index(near[0]), distance[0]
            proba = np.zeros(max(len(class_names), int(labels.classes.max()) + 1))
            proba[labels.classes] = labels.proba[OURS][row]
        described.append(
            describe_example(
                kind,
                str(np.asarray(names)[cold[row]]),
                words=words,
                truth_row=sp.csr_array(run.truth[row : row + 1]),
                seen_names=seen_names,
                suggested=(places[row], np.asarray(scores)[row]),
                nearest=nearest,
                proba=proba,
                class_names=class_names,
                seen_class=None if y is None else y[run.fold.seen],
                true_class=-1 if y is None or proba is None else int(y[cold[row]]),
            )
        )
    return described


def _candidates(run: _Run, found: NDArray[Any], labels: _Labels | None) -> Candidates:
    degree = np.diff(run.truth.indptr)
    if labels is None:
        return Candidates(degree, found)
    right = np.zeros(len(degree), bool)
    right[labels.known] = labels.right[OURS] > 0
    return Candidates(degree, found, right, labels.known, labels.proba[OURS].max(axis=1))


def _spectral_record(run: _Run, classifier: Any) -> dict[str, Any]:
    """Spectrum, training curve and the points of the map, from the spectral map inside the classifier."""
    spectral = _fit_map(run) if classifier is None else classifier.map_
    rng = np.random.default_rng(run.seed)
    share = 4 if run.quick else 1
    known = sample_rows(len(run.fold.seen), _MOST_DRAWN // share, rng)
    new = sample_rows(len(run.fold.cold), _MOST_DRAWN_NEW // share, rng)
    eigenvalues = np.asarray(spectral.eigenvalues_, np.float64)
    with run.clock("map", f"drawing the map of {len(known) + len(new):,} nodes"):
        values = spectral.transform(run.data.X[np.concatenate([run.fold.seen[known], run.fold.cold[new]])])
        points, how = project_2d(values, np.sqrt(np.clip(1.0 - eigenvalues, 0.0, None)), run.seed)
    points = np.round(points, 3)
    y = np.full(run.data.graph.num_nodes, -1) if run.data.y is None else run.data.y
    names = run.data.class_names
    return {
        "spectrum": {"eigenvalues": eigenvalues.tolist(), "operator": spectral.operator_},
        "history": [dict(line) for line in spectral.history_],
        "map": {
            "how": how,
            "known": points[: len(known)].tolist(),
            "new": points[len(known) :].tolist(),
            "known_class": y[run.fold.seen[known]].tolist(),
            "new_class": y[run.fold.cold[new]].tolist(),
            "class_names": [str(n) for n in (range(run.data.num_classes) if names is None else names)],
        },
    }
