"""Tables to a store: nodes, edges and their sorting as stages that are kept when a run is interrupted."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from gsparc._files import refuse_overwriting, write_text
from gsparc._store import FORMAT_VERSION, STORE, WORK, Store, file_checksum, open_store
from gsparc._validation import check_memory, check_name, check_share
from gsparc._version import __version__
from gsparc.exceptions import InputError, OutputError
from gsparc.storage._edges import DATABASE, connect, header_note, join_edges, refuse_repeated_ids, write_csr
from gsparc.storage._inputs import HoldOut, check_alike, node_batches, rows_in, sample_nodes
from gsparc.storage._nodes import write_nodes
from gsparc.tables._types import infer_types
from gsparc.tables.columns import Columns, EdgeColumns, guess_columns, guess_edge_columns, role_lines, sample_ends
from gsparc.tables.preprocess import Preprocessor
from gsparc.tables.reading import table_files

__all__ = ["IngestSettings", "check_ingest_memory", "ingest"]

_SAMPLE = 50_000  # rows that the preprocessing is fitted on
_MOST_HELD = 50_000  # rows that are held out at most
_STAGES = "stages.json"
_ROLES = ("id", "target", "text", "numeric", "categorical", "ignore", "group")
_ORDER = ["nodes", "edges", "sort"]
_LEAST_MEMORY = 512 * 10**6
Stage = Callable[[str, float], object]


@dataclass(frozen=True)
class IngestSettings:
    """How tables become a store."""

    id: str | None = None
    target: str | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    group: str | None = None
    source: str | None = None
    edge_target: str | None = None
    weight: str | None = None
    dtype: str = "float32"
    dangling: str = "error"
    holdout: float = 0.2
    seed: int = 0
    memory: int = field(default=4 * 10**9)

    def identity(self) -> dict[str, Any]:
        """What changes the store."""
        return {name: value for name, value in asdict(self).items() if name != "memory"}


def check_ingest_memory(got: int | str) -> int:
    """Bytes that a text such as ``4GB`` says, enough to sort in.

    Examples
    --------
    >>> check_ingest_memory("4GB")
    4000000000
    """
    size = check_memory("memory", got)
    if size < _LEAST_MEMORY:
        raise InputError(f"memory={got!r} came, expected at least 512MB: edges cannot be sorted in less.")
    return size


def ingest(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    output: str | os.PathLike[str],
    settings: IngestSettings | None = None,
    *,
    fresh: bool = False,
    stage: Stage = lambda sentence, done: None,
    progress: Callable[[int], object] = lambda rows: None,
) -> Store:
    """Write a store from a node table and an edge table, in bounded memory.

    Parameters
    ----------
    nodes, edges : path
        A file, a folder or a pattern each, as for ``gsparc fit``.
    output : path
        Folder of the store. What an interrupted run left there is gone on with if the tables and settings are the same.
    settings : IngestSettings, optional
    fresh : bool
        Start from the beginning.
    stage, progress : callable
        Get a sentence with the share of the work done before each stage, and the rows done within one.
    """
    settings = settings or IngestSettings()
    check_name("dtype", settings.dtype, ("float32", "float16"))
    check_name("dangling", settings.dangling, ("error", "drop"))
    check_share("holdout", settings.holdout, high=0.8)
    files = {"nodes": table_files(nodes, what="nodes"), "edges": table_files(edges, what="edges")}
    refuse_overwriting(Path(output), [file for several in files.values() for file in several])
    run = _Run(files, Path(output), settings, stage, progress)
    run.prepare(fresh)
    try:
        return run.all_stages()
    except OSError as error:
        if isinstance(error, (OutputError, FileNotFoundError)):
            raise
        raise _cannot_write(Path(output), error.strerror or str(error)) from error
    except Exception as error:
        if type(error).__module__.split(".")[0].lstrip("_") == "duckdb":
            raise _cannot_write(Path(output), " ".join(str(error).split())[:200]) from error
        raise


def _cannot_write(path: Path, reason: str) -> OutputError:
    return OutputError(
        f"the store {path} could not be finished ({reason}). Make room on the disk or raise --memory, then repeat the "
        "command: finished stages are kept."
    )


class _Run:
    def __init__(
        self, files: dict[str, list[Path]], path: Path, settings: IngestSettings, stage: Stage, progress: Any
    ) -> None:
        self.files, self.path, self.settings, self.stage, self.progress = files, path, settings, stage, progress
        self.work = path / WORK
        self.done: dict[str, Any] = {}

    def prepare(self, fresh: bool) -> None:
        """The folder, empty or with stages that can be kept."""
        if self.path.exists() and (not self.path.is_dir() or not self._may_be_written()):
            raise OutputError(f"{self.path} exists and is no store; nothing was written. Pass a new folder.")
        settled = {"settings": self.settings.identity(), "files": self._inputs(), "version": FORMAT_VERSION}
        self.identity = json.loads(json.dumps(settled | {"gsparc": __version__}))
        found = None if fresh else self._found()
        try:
            if found is None and self.path.exists():
                self._remove()
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(self.path, error.strerror or str(error)) from error
        self.done = found or {}

    def _remove(self) -> None:
        """What is there, so that a kill on the way leaves something that is refused, and that this command may remove.

        Without its description a folder is no store, and as long as it has the folder of the work it was to be one.
        """
        (self.path / STORE).unlink(missing_ok=True)
        for file in sorted(self.path.iterdir(), key=lambda file: file.name == WORK):
            shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()

    def _may_be_written(self) -> bool:
        return (self.path / STORE).is_file() or self.work.is_dir() or not any(self.path.iterdir())

    def _inputs(self) -> dict[str, Any]:
        facts = {}
        for kind, files in self.files.items():
            facts[kind] = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
        return facts

    def _found(self) -> dict[str, Any] | None:
        """Finished stages of the same ingest; None where there is none."""
        try:
            kept = json.loads((self.work / _STAGES).read_text(encoding="utf-8"))
            return kept["stages"] if kept["identity"] == self.identity else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _stage(self, name: str, sentence: str, share: float, outputs: list[str], work: Callable[[], Any]) -> Any:
        """Do a stage, or take its result where its files are as they were left."""
        said = self.done.get(name)
        if said is not None and all(_unchanged(self.path / file, size) for file, size in said["outputs"].items()):
            self.stage(f"{sentence}: done before", share)
            return said["result"]
        self.stage(sentence, share)
        for later in _ORDER[_ORDER.index(name) :]:  # what was made from the old result is made anew
            self.done.pop(later, None)
        result = work()
        sizes = {file: (self.path / file).stat().st_size for file in outputs if (self.path / file).is_file()}
        self.done[name] = {"result": result, "outputs": sizes}
        write_text(self.work / _STAGES, json.dumps({"identity": self.identity, "stages": self.done}) + "\n")
        return result

    def all_stages(self) -> Store:
        if (self.path / STORE).is_file():  # finished before, by the same tables and settings
            self.stage("the store is there already, made from the same tables", 1.0)
            self._clear_work()
            return open_store(self.path)
        columns, edge_columns, preprocess, held = self._understand()
        nodes = self._nodes(columns, preprocess, held)
        joined, weighted = self._join(columns, edge_columns, nodes), edge_columns.weight is not None
        csr = self._stage(
            "sort",
            f"sorting {joined['rows']:,} edges both ways",
            0.7,
            ["indptr.npy", "indices.npy", "weights.npy"],
            lambda: self._with_base(lambda b: write_csr(b, self.path, nodes["nodes"], weighted, self.progress)),
        )
        self._finish(columns, edge_columns, preprocess, nodes, joined, csr, held)
        return open_store(self.path)

    def _understand(self) -> tuple[Columns, EdgeColumns, Preprocessor, HoldOut]:
        """What the columns are, and how they become features, from a sample."""
        said, files = self.settings, self.files["nodes"]
        self.stage("reading a sample of the rows", 0.0)
        check_alike(files)
        total = rows_in(files)
        share = said.holdout if total is None else min(said.holdout, _MOST_HELD / max(total, 1))
        held = HoldOut(said.seed, 0.0 if total is not None and total < 10 else share)
        first = sample_nodes(files, 10_000, None, None)
        roles = {name: getattr(said, name) for name in _ROLES}
        edges = infer_types(pa.Table.from_batches([next(node_batches(self.files["edges"][0], 1000))]))
        ends = guess_edge_columns(edges, source=said.source, target=said.edge_target, weight=said.weight)
        names = sample_ends(edges, ends)
        columns = guess_columns(first, **roles, ends=names)
        for line in role_lines(columns, first, ends, names if first.num_rows == total else None):
            self.stage(line, 0.0)
        written = (*columns.text, *columns.categorical)
        seen = sample_nodes(files, _SAMPLE, held, columns.group, written=written)
        preprocess = Preprocessor.fit(seen, columns)
        self._check_room(preprocess, total or 0)
        return columns, ends, preprocess, held

    def _check_room(self, preprocess: Preprocessor, rows: int) -> None:
        """Refuse before the work what certainly does not fit on the disk."""
        edges = rows_in(self.files["edges"]) or 0
        width = preprocess.n_features * (2 if self.settings.dtype == "float16" else 4) if preprocess.dense else 64
        needed = 0 if self.done else rows * width + edges * (2 * 4 + 8)
        free = shutil.disk_usage(self.path).free
        if needed > free:
            raise OutputError(
                f"the store {self.path} needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on that "
                "disk. Choose another with -o, or pass --dtype float16."
            )

    def _nodes(self, columns: Columns, preprocess: Preprocessor, held: HoldOut) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            asked = (columns, preprocess, self.settings.dtype, held, self.progress)
            found = write_nodes(self.files["nodes"], self.path, *asked)
            if found["ids"] == "integers" and _are_positions(self.path / "ids.npy"):
                (self.path / "ids.npy").unlink()
                found["ids"] = "positions"
            if found["ids"] != "positions":
                self._with_base(lambda b: refuse_repeated_ids(b, self.path, found["ids"], str(columns.id)), fresh=True)
            return found

        outputs = ["features.npy", "features_indptr.npy", "features_indices.npy", "features_data.npy", "ids.npy"]
        outputs += ["ids.arrow", "labels.npy", "split.npy", "preprocess.skops"]
        found = self._stage("nodes", "reading the nodes", 0.05, outputs, work)
        if "note" in found:
            self.stage(f"note: {found['note']}", 0.05)
        return found

    def _join(self, columns: Columns, ends: EdgeColumns, nodes: dict[str, Any]) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            def join(base: Any) -> dict[str, Any]:
                if nodes["ids"] != "positions":
                    refuse_repeated_ids(base, self.path, nodes["ids"], str(columns.id))
                files, named = self.files["edges"], (ends, nodes["nodes"], nodes["ids"])
                note = header_note(base, files, *named)
                if note is not None:
                    self.stage(f"note: {note}", 0.3)
                return join_edges(base, files, *named, self.settings.dangling, self.progress)

            return self._with_base(join, fresh=True)

        return self._stage("edges", "joining the edges to the nodes", 0.3, [f"{WORK}/{DATABASE}"], work)

    def _with_base(self, work: Callable[[Any], Any], *, fresh: bool = False) -> Any:
        base = connect(self.work, self.settings.memory, fresh=fresh)
        try:
            result = work(base)
            base.execute("CHECKPOINT")
            return result
        finally:
            base.close()

    def _finish(self, columns: Any, ends: Any, preprocess: Any, nodes: Any, joined: Any, csr: Any, held: Any) -> None:
        """Checksums of all files, and the description last."""
        self.stage("writing checksums", 0.95)
        files = [self.path / name for stage in ("nodes", "sort") for name in sorted(self.done[stage]["outputs"])]
        meta = {
            "format_version": FORMAT_VERSION,
            "gsparc_version": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "nodes": nodes["nodes"],
            "edges": csr["edges"],
            "weighted": csr["weighted"],
            "features": preprocess.n_features,
            "sparse": not preprocess.dense,
            "dtype": self.settings.dtype if preprocess.dense else "float32",
            "ids": nodes["ids"],
            "class_names": nodes["class_names"],
            "columns": columns.to_json(),
            "edge_columns": asdict(ends),
            "edge_counts": joined,
            "missing_numbers": nodes["missing"],
            "seed": self.settings.seed,
            "holdout": held.share,
            "inputs": {kind: [file.name for file in found] for kind, found in self.files.items()},
            "files": {f.name: {"bytes": f.stat().st_size, "sha256": file_checksum(f)} for f in files},
        }
        write_text(self.path / STORE, json.dumps(meta, indent=1) + "\n", "the store")
        self._clear_work()

    def _clear_work(self) -> None:
        """Remove what only the work needed; by the list of stages a repeated command knows that nothing is left."""
        half = self.path.glob(f".{Path(STORE).stem}.*")  # a description that a kill kept from its name
        for file in [*half, *self.work.iterdir()]:
            if file.name != _STAGES:
                shutil.rmtree(file) if file.is_dir() else file.unlink()


def _unchanged(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _are_positions(path: Path) -> bool:
    """Whether ids are 0, 1, 2, ... in order: then they need not be kept."""
    import numpy as np

    ids = np.load(path, mmap_mode="r", allow_pickle=False)
    step = 1 << 22
    return all(
        np.array_equal(ids[i : i + step], np.arange(i, min(i + step, len(ids)))) for i in range(0, len(ids), step)
    )
