"""Predictions for units of work, each written as a part of the output: what a worker of a batch engine does."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gsparc import exceptions
from gsparc.exceptions import GsparcError, InputError
from gsparc.tables import BATCH_ROWS
from gsparc.tables.parts import part_name
from gsparc.tables.reading import Reject
from gsparc.tables.streaming import FirstEdges, RepeatedIds, _numbered, _one_thread, _predicted, _schema, id_keys
from gsparc.tables.typing import read_more_edges
from gsparc.tables.units import Unit, UnitReader
from gsparc.tables.writing import TableWriter

if TYPE_CHECKING:
    from gsparc.tables.model import TableModel

__all__ = ["NO_IDS", "Job", "Outcome", "Scorer", "Tally"]

NO_IDS = "--edges came, but the model was fitted without an id column, so edges cannot name new rows."


@dataclass(frozen=True)
class Job:
    """What is asked of every worker; all paths are such that every worker finds them.

    ``parts`` is the folder that parts are written to; ``edges`` a table of edges of new rows, and ``edge_source`` and
    ``edge_target`` its columns where they are not those of the fit.
    """

    model: str
    parts: str
    coverage: float | None = 0.9
    links: int = 5
    near: int = 5
    batch_rows: int = BATCH_ROWS
    edges: str | None = None
    edge_source: str | None = None
    edge_target: str | None = None

    def asked(self) -> dict[str, Any]:
        """Arguments of :meth:`~gsparc.tables.model.TableModel.predict`."""
        return {"coverage": self.coverage, "links": self.links, "near": self.near, "position": False}


@dataclass
class Outcome:
    """What became of one unit.

    ``written`` are rows of its part. ``edges`` counts all edges and the new nodes that they name; ``used`` are those
    of them that are rows of the unit, and ``degrees`` says how many edges each has. ``keys`` stand for the ids of the
    rows that were written. With ``error`` (its class and
    its words) nothing was written. ``worker`` is the process that did it, as ``host:number``.
    """

    number: int
    last: bool = False
    rows: int = 0
    written: int = 0
    abstained: int = 0
    rejects: list[Reject] = field(default_factory=list)
    edges: dict[str, int] | None = None
    used: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    degrees: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    error: tuple[str, str] | None = None
    worker: str = ""

    def raise_error(self) -> None:
        """Raise what went wrong in the worker, if something did."""
        if self.error is None:
            return
        kind, words = self.error
        known = getattr(exceptions, kind, None)
        if isinstance(known, type) and issubclass(known, GsparcError):
            raise known(words)
        raise GsparcError(f"a worker failed ({kind}: {words}). Nothing was written.")


class Scorer:
    """Scores units with one model, which is loaded when the first unit comes.

    A unit that is scored again, because the worker that had it was lost, gives the same part under the same name.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._reader = UnitReader(job.batch_rows)
        self._model: TableModel | None = None
        self._edges: _Used | None = None

    def score(self, unit: Unit) -> Outcome:
        """Write the part of a unit; errors are returned, since an engine would try again what cannot succeed."""
        try:
            out = self._score(unit)
        except Exception as error:
            out = Outcome(unit.number, error=(type(error).__name__, str(error)))
        out.worker = f"{platform.node()}:{os.getpid()}"
        return out

    def _score(self, unit: Unit) -> Outcome:
        out = Outcome(unit.number, unit.is_last, unit.rows, rejects=list(unit.rejects))
        if unit.is_last and unit.number:
            return out
        model = self._loaded()
        named = model.columns.id in unit.columns
        schema = _schema(model, self.job.asked(), named)
        with TableWriter(Path(self.job.parts) / part_name(unit.number), schema) as writer:
            offset = unit.offset
            for batch in () if unit.is_last else self._reader.batches(unit):  # no row at all: a part without rows
                answer = _predicted(model, Path(unit.file), batch, self.job.asked(), self._edges, named)
                writer.write(answer.table if named else _numbered(answer.table, offset))
                if named:
                    out.keys = np.concatenate([out.keys, id_keys(answer.table["id"], stable=True)])
                out.rejects += answer.rejects
                out.abstained += answer.abstained
                offset += answer.rows
        out.written = writer.rows
        if self._edges is not None:
            out.edges = self._edges.totals()
            out.used, out.degrees = self._edges.take_used()
        return out

    def _loaded(self) -> TableModel:
        if self._model is None:
            from gsparc.tables.model import TableModel

            _one_thread()  # as in the local engine: sums over another number of threads may round otherwise
            model = TableModel.load(self.job.model, mapped=True)  # one copy in memory for all workers of a machine
            if self.job.edges is not None:
                if model.columns.id is None:
                    raise InputError(NO_IDS)
                asked = (self.job.edge_source, self.job.edge_target)
                self._edges = _Used(model, *read_more_edges(self.job.edges, model.edge_columns, *asked))
            self._model = model
        return self._model


class _Used(FirstEdges):
    """First edges that say, unit by unit, which of them rows had."""

    def take_used(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the new nodes that were looked up since the last call, and how many edges each has."""
        used = np.flatnonzero(self._used)
        self._used[:] = False
        return used, np.diff(self._starts)[used]

    def totals(self) -> dict[str, int]:
        """Counts that do not depend on the rows."""
        return {"edges": self.counts["edges"], "unknown": self.counts["unknown"], "nodes": len(self._used)}


class Tally:
    """Adds up outcomes that come in any order, some of them perhaps twice.

    Rejected rows go to ``reject`` in the order of the units.

    Examples
    --------
    >>> tally = Tally(lambda reject: None)
    >>> for number in (1, 0, 0):
    ...     tally.add(Outcome(number, rows=3, written=3))
    >>> tally.add(Outcome(2, last=True))
    >>> tally.rows, tally.parts, tally.is_complete
    (6, [3, 3], True)
    """

    def __init__(self, reject: Callable[[Reject], object]) -> None:
        self.rows = self.abstained = 0
        self.parts: list[int] = []  # rows of each part
        self.repeated = RepeatedIds()
        self._reject = reject
        self._waiting: dict[int, Outcome] = {}
        self._next, self._count = 0, -1
        self._edges: dict[str, int] | None = None
        self._degrees = np.zeros(0, np.int64)

    @property
    def is_complete(self) -> bool:
        """Whether every unit has been done."""
        return self._next == self._count

    def add(self, outcome: Outcome) -> None:
        """One more outcome; raises what went wrong in it."""
        outcome.raise_error()
        if outcome.number < self._next or outcome.number in self._waiting:
            return
        self._waiting[outcome.number] = outcome
        while (ready := self._waiting.pop(self._next, None)) is not None:
            self._take(ready)
            self._next += 1

    def _take(self, outcome: Outcome) -> None:
        for reject in outcome.rejects:
            self._reject(reject)
        if outcome.last:
            self._count = outcome.number + 1
        if not outcome.last or not outcome.number:
            self.parts.append(outcome.written)
        self.rows, self.abstained = self.rows + outcome.rows, self.abstained + outcome.abstained
        self.repeated.add(outcome.keys)
        if outcome.edges is not None:
            self._edges = outcome.edges
            if not len(self._degrees):
                self._degrees = np.zeros(outcome.edges["nodes"], np.int64)
            self._degrees[outcome.used] = outcome.degrees

    def edges(self) -> dict[str, int] | None:
        """Edges of new rows: how many, how many name no known node, and how many belong to none of the rows."""
        if self._edges is None:
            return None
        total, unknown = self._edges["edges"], self._edges["unknown"]
        return {"edges": total, "unknown": unknown, "unused": total - unknown - int(self._degrees.sum())}
