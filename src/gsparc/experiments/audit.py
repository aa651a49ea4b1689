"""The leak test: whether anything of a cold node reaches a fitted model.

A data set is written to a file as it is, and again with its cold nodes changed, permuted, wired otherwise, or not in
the file at all. From each file the whole pipeline runs: read, cut to the seen nodes, fit, save. Every file of the
saved model must keep every byte. As a control, a change to one seen node must change the model.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._runtime import progress_bar
from gsparc.datasets.base import Dataset, shape_of
from gsparc.datasets.npz import load_npz, save_npz
from gsparc.exceptions import InputError
from gsparc.experiments.engine import SMALL_GRAPH, Context
from gsparc.experiments.provenance import commit, hardware, source, versions
from gsparc.experiments.results import write_json
from gsparc.experiments.workers import as_finished
from gsparc.graph import Graph
from gsparc.splits import ColdStartSplit

__all__ = [
    "CHANGES",
    "UNFINISHED",
    "Nodes",
    "Part",
    "Pipeline",
    "check_nothing_is_lost",
    "leak_audit",
    "model_bytes",
    "pipelines",
    "run_audit",
]

UNFINISHED = "audit.unfinished"
"""The file of fits that an interrupted run has left."""
_FILE = "audit.json"
_UNCHANGED, _CONTROL = "as it is", "features of one seen node changed"
Ids = NDArray[np.int64]
Record = dict[str, Any]
Digests = dict[str, str]  # of the files of a saved model
Found = dict[tuple[str, str], Digests]  # by estimator and change


@dataclass(frozen=True)
class Nodes:
    """Positions of the seen, the validation and the cold nodes in the unchanged data set."""

    seen: Ids
    val: Ids
    cold: Ids


@dataclass(frozen=True)
class Part:
    """What a pipeline may use of a file: the seen nodes with their edges, the validation nodes without any."""

    X: Any
    y: NDArray[np.int64]
    graph: Graph
    validation: tuple[Any, NDArray[np.int64]]


Fit = Callable[[Part], Any]
Change = Callable[[Dataset, Nodes, np.random.Generator], Dataset]


def _as_it_is(data: Dataset, nodes: Nodes, rng: np.random.Generator) -> Dataset:
    return data


def _changed(data: Dataset, nodes: Nodes, rng: np.random.Generator) -> Dataset:
    """Features of random seen nodes times 1000, and a class that nobody has."""
    X = _with_rows_of(data.X, nodes.cold, rng.choice(nodes.seen, len(nodes.cold)), 1000)
    y = np.array(data.y)
    y[nodes.cold] = data.num_classes
    return replace(data, X=X, y=y, class_names=None)


def _permuted(data: Dataset, nodes: Nodes, rng: np.random.Generator) -> Dataset:
    """The cold nodes in another order, with everything that is theirs."""
    order = np.arange(data.graph.num_nodes)
    order[nodes.cold] = rng.permutation(nodes.cold)
    return _taken(data, order)


def _rewired(data: Dataset, nodes: Nodes, rng: np.random.Generator) -> Dataset:
    """No edge of a cold node is left, and as many random ones have come."""
    cold = np.zeros(data.graph.num_nodes, bool)
    cold[nodes.cold] = True
    edges = sp.coo_array(sp.triu(data.graph.to_scipy(), 1))
    rows, columns = edges.coords
    stays = ~(cold[rows] | cold[columns])
    count = max(int((~stays).sum()), len(nodes.cold))
    fresh = np.stack([rng.choice(nodes.cold, count), rng.integers(len(cold), size=count)])
    fresh = fresh[:, fresh[0] != fresh[1]]
    weights = None
    if data.graph.weights is not None:
        weights = np.concatenate([edges.data[stays], np.ones(fresh.shape[1], np.float32)])
    both = np.concatenate([np.stack([rows, columns])[:, stays], fresh], axis=1)
    return replace(data, graph=Graph.from_edges(both, num_nodes=len(cold), weights=weights))


def _removed(data: Dataset, nodes: Nodes, rng: np.random.Generator) -> Dataset:
    """The file does not hold the cold nodes, nor any of their edges."""
    return _taken(data, np.sort(np.concatenate([nodes.seen, nodes.val])))


CHANGES: dict[str, Change] = {
    "features and labels of the cold nodes changed": _changed,
    "cold nodes in another order": _permuted,
    "edges of the cold nodes replaced by random ones": _rewired,
    "cold nodes and their edges not in the file": _removed,
}


def _with_rows_of(X: Any, where: Ids, donors: Ids, factor: float) -> Any:
    """Features with some rows replaced by others, times ``factor``; dense stays dense, sparse sparse."""
    rows, _ = shape_of(X)
    source, scale = np.arange(rows), np.ones(rows, np.float32)
    source[where], scale[where] = donors, factor
    taken = X[source]
    if sp.issparse(taken):
        return sp.csr_array(sp.diags_array(scale) @ taken, dtype=np.float32)
    return taken * scale[:, None]


def _taken(data: Dataset, order: Ids) -> Dataset:
    ids = np.asarray(data.node_ids)[order]
    return replace(data, X=data.X[order], y=np.asarray(data.y)[order], graph=data.graph[order], node_ids=ids)


@dataclass(frozen=True)
class Pipeline:
    """An estimator under test, on the CPU, where equal input promises equal bytes; a worker can be sent it."""

    name: str
    random_state: int = 0
    smoke: bool = False

    def __call__(self, part: Part) -> Any:
        from gsparc.estimators import SparcClassifier, SparcClusterer, SparcLinkPredictor, SpectralMap

        common: Record = {"random_state": self.random_state, "device": "cpu"}
        small: Record = _SMALL if self.smoke else {"map": {}, "heads": {}, "links": {}}
        fresh: Record = {"spectral_map": SpectralMap(**small["map"])} if self.smoke else {}
        kind, _, backbone = self.name.partition(", ")
        if kind == "SpectralMap":
            return SpectralMap(**small["map"], **common).fit(part.X, graph=part.graph)
        if kind == "SparcClusterer":
            return SparcClusterer(int(part.y.max()) + 1, **fresh, **common).fit(part.X, graph=part.graph)
        if kind == "SparcLinkPredictor":
            return SparcLinkPredictor(**small["links"], **common).fit(part.X, graph=part.graph)
        model = SparcClassifier(backbone, **fresh, **small["heads"], **common)
        return model.fit(part.X, part.y, graph=part.graph, validation=part.validation)


_SMALL: Record = {
    "map": {"n_components": 4, "hidden_channels": (8,), "max_steps": 20, "batch_size": 64},
    "heads": {"hidden_channels": 8, "max_steps": 3},
    "links": {"n_components": 8, "n_maps": 2, "hidden_channels": (8,), "batch_size": 64}
    | {"spectral_steps": 10, "refine_steps": 20},
}


def pipelines(*, random_state: int = 0, smoke: bool = False) -> dict[str, Fit]:
    """The estimators under test by name; those that take longest come first."""
    single = [f"SparcClassifier, {backbone}" for backbone in ("samba", "phormer", "gcn")]
    names = ["SparcClassifier, auto", "SparcLinkPredictor", *single, "SpectralMap", "SparcClusterer"]
    return {name: Pipeline(name, random_state, smoke) for name in names}


def model_bytes(model: Any, folder: Path) -> Digests:
    """SHA-256 of every file of the saved model."""
    model.save(folder)
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def leak_audit(
    data: Dataset,
    fits: Mapping[str, Fit],
    *,
    split: str = "dense",
    random_state: int = 0,
    jobs: int = 1,
    show_progress: bool = False,
    known: Mapping[tuple[str, str], Digests] | None = None,
    keep: Callable[[Found], None] = lambda found: None,
) -> Record:
    """Fit each pipeline from every version of a data set's file and compare the saved models.

    Parameters
    ----------
    data : Dataset
        With labels.
    fits : mapping
        Name of an estimator to a function from a :class:`Part` to a fitted model with ``save``.
    split : str
        Which nodes are cold: a name that :class:`~gsparc.splits.ColdStartSplit` knows.
    random_state : int
        Seed of the split and of the changes.
    jobs : int
        Processes; with several, ``fits`` must be objects that can be sent to them.
    show_progress : bool
        A bar on standard error.
    known : mapping, optional
        What fits of an earlier run of the same ``fits`` have left, by estimator and change: they are not made again.
    keep : callable
        Called with all that is known after every fit.

    Returns
    -------
    dict
        ``rows``: one for each estimator and change, with ``identical``, the number of ``files`` compared, one digest
        over all of them as ``sha256``, and the names of those that ``differ``. ``controls``: for each estimator
        whether a change to a seen node was noticed, as it must be.
    """
    n = data.graph.num_nodes
    data = replace(data, node_ids=np.array([f"n{i}" for i in range(n)]), feature_names=None)
    (fold,) = ColdStartSplit(split, random_state=random_state).folds(data.X, data.y, data.groups)
    nodes = Nodes(fold.seen, fold.val, fold.cold)
    rows, controls = [], []
    with (
        tempfile.TemporaryDirectory(prefix="gsparc-audit-") as place,
        progress_bar("audit", len(fits) * (len(CHANGES) + 2) - len(known or {}), show=show_progress) as bar,
    ):
        files = _write_files(data, nodes, random_state, Path(place))
        names = np.asarray(data.node_ids)
        work = [
            Run(name, change, fit, file, names[nodes.seen], names[nodes.val], np.isin(nodes.seen, fold.labelled))
            for name, fit in fits.items()
            for change, file in files.items()
        ]
        found = dict(known or {})
        work = [run for run in work if (run.name, run.change) not in found]
        with closing(as_finished(_digests, work, jobs)) as results:
            for number, (run, digests) in enumerate(results, 1):
                found[run.name, run.change] = digests
                keep(found)
                bar.update(number, last=run.name)
    for name in fits:
        expected, control = found[name, _UNCHANGED], found[name, _CONTROL]
        controls.append({"estimator": name, "change": _CONTROL, "noticed": control != expected})
        rows += [_row(name, change, expected, found[name, change]) for change in CHANGES]
    return {"rows": rows, "controls": controls, "cold_nodes": len(nodes.cold), "seen_nodes": len(nodes.seen)}


def _write_files(data: Dataset, nodes: Nodes, seed: int, folder: Path) -> dict[str, Path]:
    """One file for the data set as it is, one for each change, one for the control."""
    changes = {_UNCHANGED: _as_it_is, **CHANGES, _CONTROL: _seen_changed}
    plain = replace(data, groups=None)
    return {
        name: save_npz(change(plain, nodes, np.random.default_rng(seed)), folder / f"{number}.npz")
        for number, (name, change) in enumerate(changes.items())
    }


def _seen_changed(data: Dataset, nodes: Nodes, rng: np.random.Generator) -> Dataset:
    """The control: one seen node gets the features of another one, times 2."""
    return replace(data, X=_with_rows_of(data.X, nodes.seen[:1], nodes.seen[-1:], 2))


@dataclass(frozen=True)
class Run:
    """One fit of the leak test: which pipeline from which file, and whose nodes it may use, by name."""

    name: str
    change: str
    fit: Fit
    file: Path
    seen: NDArray[Any]
    val: NDArray[Any]
    labelled: NDArray[np.bool_]  # of the seen

    def part(self) -> Part:
        """What may be used of the file: found by the nodes' names, as positions differ between the files."""
        data = load_npz(self.file)
        seen, val = (data.graph.ids_to_index(names) for names in (self.seen, self.val))
        labels = np.asarray(data.y)
        y = np.where(self.labelled, labels[seen], -1)
        return Part(data.X[seen], y, data.graph[seen], (data.X[val], labels[val]))


def _digests(run: Run) -> Digests:
    """Fit, save, and the digest of every file of the model."""
    with tempfile.TemporaryDirectory(prefix="gsparc-audit-") as place:
        return model_bytes(run.fit(run.part()), Path(place) / "model")


def _row(estimator: str, change: str, expected: Digests, found: Digests) -> Record:
    differ = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    whole = hashlib.sha256("".join(f"{name} {digest}\n" for name, digest in found.items()).encode()).hexdigest()
    return {
        "estimator": estimator,
        "change": change,
        "identical": not differ,
        "files": len(expected),
        "differ": differ,
        "sha256": whole,
    }


def check_nothing_is_lost(output: Path, *, resume: bool, fresh: bool) -> None:
    """Refuse to make a leak test again that is already there, unless told what to do with it."""
    there = [file for file in (output / _FILE, output / UNFINISHED) if file.exists()]
    if there and not resume and not fresh:
        raise InputError(
            f"{there[0]} holds the leak test of an earlier run. Pass --resume to keep what is of the same source and "
            "data and make the rest, --fresh to make all of it, or another folder with --output."
        )


def run_audit(
    output: Path,
    *,
    dataset: str | None = None,
    smoke: bool = False,
    data_dir: Path | None = None,
    generated: bool = False,
    resume: bool = False,
    fresh: bool = False,
    random_state: int = 0,
    jobs: int = 1,
    show_progress: bool = True,
) -> Record:
    """The leak test on all estimators of the library, written to ``output/audit.json``.

    The data set is Cora unless said otherwise, in a smoke run the small generated graph. With ``resume`` nothing is
    made again that is of the same source, versions and data: neither a whole result nor, after an interrupt, single
    fits, which are kept in ``output/audit.unfinished``. An earlier result stays until the new one is complete.
    ``seconds`` is the wall-clock time of all pieces together.

    Raises
    ------
    InputError
        There is an earlier result and neither ``resume`` nor ``fresh``; or fits of an interrupted run were made on
        another machine or by another number of processes or threads, on which bytes depend.
    """
    check_nothing_is_lost(output, resume=resume, fresh=fresh)
    unfinished = output / UNFINISHED
    dataset = dataset or (SMALL_GRAPH if smoke else "cora")
    context = Context(dataset, "cpu", smoke, data_dir, generated)
    same = {"experiment": "audit", "versions": versions(), "source": source(), "dataset": dataset}
    same |= {"data": _data_digest(context.data), "seed": random_state, "smoke": smoke}
    if resume and (before := _earlier(output / _FILE, same)) is not None:
        return before
    machine = {"hardware": hardware(), "jobs": jobs, "threads": os.environ.get("OMP_NUM_THREADS")}
    earlier = _earlier(unfinished, same) if resume else None
    if earlier is not None and (other := [key for key, value in machine.items() if earlier.get(key) != value]):
        raise InputError(
            f"{unfinished} was made with other {' and '.join(other)}: {', '.join(str(earlier.get(k)) for k in other)}, "
            f"now {', '.join(str(machine[k]) for k in other)}. Bytes depend on that. Continue as it was begun, or pass "
            "--fresh to start over."
        )
    fits, begun_at = pipelines(random_state=random_state, smoke=smoke), commit()
    spent, start = float((earlier or {}).get("seconds", 0.0)), time.perf_counter()

    def so_far() -> float:
        return round(spent + time.perf_counter() - start, 3)

    found = leak_audit(
        context.data,
        fits,
        random_state=random_state,
        jobs=jobs,
        show_progress=show_progress,
        known=_fits_of(earlier, fits),
        keep=lambda fits: write_json(unfinished, {**same, **machine, "seconds": so_far(), "fits": _as_lists(fits)}),
    )
    document = {
        **same,
        "title": "Leak test of the whole pipeline.",
        "question": "Does anything of a cold node reach a fitted model?",
        "commit": begun_at,
        **machine,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": so_far(),
        **found,
    }
    write_json(output / _FILE, document)
    unfinished.unlink(missing_ok=True)
    return document


def _as_lists(found: Found) -> list[Record]:
    return [{"estimator": name, "change": change, "files": files} for (name, change), files in found.items()]


def _fits_of(document: Record | None, fits: Mapping[str, Fit]) -> Found:
    """What the file of an unfinished run knows of these; nothing where it is not of the form that is written here."""
    changes = (_UNCHANGED, *CHANGES, _CONTROL)
    try:
        found = {(e["estimator"], e["change"]): dict(e["files"]) for e in (document or {}).get("fits", [])}
    except (KeyError, TypeError, ValueError):
        return {}
    return {key: files for key, files in found.items() if key[0] in fits and key[1] in changes}


def _data_digest(data: Dataset) -> str:
    """SHA-256 over features, edges and labels."""
    from gsparc.estimators._base import fingerprint

    return fingerprint({}, data.X, data.graph, hashlib.sha256(np.ascontiguousarray(data.y).tobytes()).hexdigest())


def _earlier(file: Path, same: Record) -> Record | None:
    """What is in ``file`` if it is of the same source, versions and data."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    alike = isinstance(document, dict) and all(document.get(key) == value for key, value in same.items())
    return document if alike else None
