"""The model in use, and how another takes its place without a request being dropped.

A request keeps the model that it was checked against until it is answered, so a swap is one assignment.
While a new folder is loaded both models are in memory.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gsparc.exceptions import GsparcError
from gsparc.server.metrics import Metrics
from gsparc.server.nodes import NodeTable
from gsparc.server.requests import RowReader

__all__ = ["LoadedModel", "ModelHolder", "load_mapped_model", "load_table_model", "settle"]

logger = logging.getLogger(__name__)

_CHECKSUMS = "checksums.json"
_FEW_PARTS = 100
_SETTLE_S = 5.0  # after a swap, when the old model has answered what came to it
_GONE_S = 3.0  # a folder is missing for a moment between the two renames of a save; beyond this it is lost
Stat = tuple[int, int, int] | None
Signature = tuple[Stat, ...] | None


def load_table_model(folder: Path) -> Any:
    """The default way to read a folder."""
    from gsparc.tables.model import TableModel

    return TableModel.load(folder)


def load_mapped_model(folder: Path) -> Any:
    """The way of several processes: the arrays stay in their file, which all of them share."""
    from gsparc.tables.model import TableModel

    return TableModel.load(folder, mapped=True)


@dataclass(eq=False)
class LoadedModel:
    """One model with everything that is derived from it once."""

    model: Any
    version: str
    loaded_at: float
    reader: RowReader

    @cached_property
    def nodes(self) -> NodeTable:
        """The seen nodes."""
        return NodeTable.of(self.model)

    @cached_property
    def map(self) -> bytes:
        """The seen nodes as one binary map."""
        return self.nodes.map_bytes(self.version)

    @property
    def class_names(self) -> list[Any]:
        """Every class that can be predicted."""
        names = getattr(self.model, "class_names", None)
        return [] if names is None else [getattr(name, "item", lambda name=name: name)() for name in names]

    @property
    def compares(self) -> bool:
        """Whether the model can name known nodes like a new one; clusters alone keep none."""
        return bool({"classes", "links"} & set(self.tasks))

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes and edges the model knows."""
        edges = self.model.report.get("data", {}).get("edges", 0)
        return {"nodes": len(self.nodes), "edges": int(getattr(self.model, "num_edges", edges))}

    @property
    def tasks(self) -> list[str]:
        """What the model can be asked for."""
        parts = {"classes": "classifier", "links": "links", "clusters": "clusterer"}
        return [task for task, attribute in parts.items() if getattr(self.model, attribute, None) is not None]


class ModelHolder:
    """Loads a folder, watches it, and swaps.

    Parameters
    ----------
    load
        Reads a folder; a damaged one raises.
    warm
        Called with every model before it is used; raises if the model cannot answer.
    """

    def __init__(
        self,
        folder: Path,
        metrics: Metrics,
        *,
        max_rows: int,
        load: Callable[[Path], Any],
        warm: Callable[[LoadedModel], None],
    ) -> None:
        self.folder, self._metrics, self._max_rows = Path(folder), metrics, max_rows
        self._load, self._warm = load, warm
        self._lock = asyncio.Lock()
        self._tried = _signature(self.folder)
        self._gone_since: float | None = None
        self.problem: str | None = None  # why the folder's present contents are not in use
        self.ask: Callable[[], Awaitable[str | None]] | None = None  # who loads instead, where that is another process
        self.current = self._read()
        metrics.model_in_use(self.current.version, self.current.loaded_at)

    def _read(self) -> LoadedModel:
        version = _version(self.folder)
        model = self._load(self.folder)
        _stop_training(model)
        form = model.preprocess.form()
        reader = RowReader(form, model.preprocess.n_features, model.columns.id, self._max_rows)
        loaded = LoadedModel(model, version, time.time(), reader)
        self._warm(loaded)
        return loaded

    @property
    def behind(self) -> bool:
        """Whether the folder holds something that was not tried yet, or is lost for longer than a save takes."""
        now = _signature(self.folder)
        if now is not None:
            self._gone_since = None
            return now != self._tried
        if self._gone_since is None:
            self._gone_since = time.monotonic()
        return self._tried is not None and time.monotonic() - self._gone_since > _GONE_S

    async def reload(self) -> str | None:
        """Take what the folder holds now into use; its version, or None where it cannot be used and the old stays."""
        async with self._lock:
            if self.ask is not None:
                return await self.ask()
            version = await asyncio.to_thread(self.reload_now)
            if version is not None and gc.get_freeze_count():
                asyncio.get_running_loop().call_later(_SETTLE_S, settle)
            return version

    def reload_now(self) -> str | None:
        """:meth:`reload` by this thread."""
        self._tried = _signature(self.folder)
        try:
            fresh = self._read()
        except Exception as error:
            self._refuse(error)
            return None
        self.current, self.problem = fresh, None
        self._metrics.model_in_use(fresh.version, fresh.loaded_at)
        self._metrics.reloaded(ok=True)
        logger.info("model %s is in use", fresh.version)
        return fresh.version

    def _refuse(self, error: Exception) -> None:
        expected = isinstance(error, (GsparcError, OSError))
        self.problem = " ".join(str(error).split()) if expected else f"unexpected {type(error).__name__}"
        self._metrics.reloaded(ok=False)
        logger.error(
            "the model folder cannot be used as it is now, the loaded model stays: %s",
            self.problem,
            exc_info=None if expected else error,
        )

    async def watch(self, seconds: float) -> None:
        """Look every ``seconds`` whether the folder was replaced; runs until cancelled."""
        while self.ask is None:
            await asyncio.sleep(seconds)
            if self.behind:
                await self.reload()


def _stop_training(model: Any) -> None:
    """Put every network of a model into evaluation mode for good.

    Predicting puts each there for the length of a call and back; of two threads one would undo it for the other.
    """
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, (list, tuple)):
            waiting += part[:_FEW_PARTS]  # networks stand in short lists; longer ones are data
        elif hasattr(part, "parameters") and hasattr(part, "training"):
            part.eval()
        elif type(part).__module__.startswith("gsparc."):
            waiting += vars(part).values() if hasattr(part, "__dict__") else ()


def settle() -> None:
    """Take what is in memory now out of the garbage collector's rounds.

    Those walk over every object of the process, a quarter of a second with torch loaded, while all requests wait.
    It is for a process that does nothing but serve.
    """
    gc.unfreeze()  # what a former model has left is found now
    gc.collect()
    gc.freeze()


def _signature(folder: Path) -> Signature:
    """Changes whenever a save replaces the folder, a link to it is set anew, or a file that loading reads changed."""
    sums = _stat(folder / _CHECKSUMS)
    return None if sums is None else (sums, *(_stat(folder / name) for name in _files(folder)))


def _stat(path: Path) -> Stat:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _files(folder: Path) -> list[str]:
    """The files that the checksums of a folder name; none where these are damaged, which loading will say."""
    try:
        names = json.loads((folder / _CHECKSUMS).read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    return sorted(name for name in names if Path(name).name == name) if isinstance(names, dict) else []


def _version(folder: Path) -> str:
    """Twelve digits that name the contents of a folder: its checksums' checksum."""
    try:
        return hashlib.sha256((folder / _CHECKSUMS).read_bytes()).hexdigest()[:12]
    except OSError:
        return "unknown"
