"""The result file of a table: read, checked against the present run, and written whole after every cell."""

from __future__ import annotations

import datetime
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gsparc._files import write_text
from gsparc.exceptions import InputError
from gsparc.experiments.engine import Cell, Experiment
from gsparc.experiments.provenance import commit, hardware, versions
from gsparc.experiments.rows import group_order, group_rows

__all__ = ["ResultFile", "fault", "plain", "read_result", "write_json"]

Record = dict[str, Any]
_OUTCOMES = ("numbers", "not_applicable", "error")
_OTHERWISE = "Pass --fresh to start over, or another folder with --output."


def plain(value: Any) -> Any:
    """Values that JSON knows: numpy's numbers and arrays as Python's, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    raise TypeError(f"a cell gave a {type(value).__name__}; numbers, strings, lists and dicts can be written.")


def write_json(path: Path, document: Record) -> None:
    """One JSON document, a line for every cell and row, that appears under its name only when it is complete."""
    text = "{\n" + ",\n".join(f"{_json(key)}: {_lines(value)}" for key, value in document.items()) + "\n}\n"
    write_text(path, text, "the table of results")


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _lines(value: Any) -> str:
    """JSON with one line for each entry of a list of records or of a dict of them."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n " + ",\n ".join(map(_json, value)) + "\n]"
    if isinstance(value, dict) and value and all(isinstance(entry, dict) for entry in value.values()):
        return "{\n " + ",\n ".join(f"{_json(key)}: {_json(entry)}" for key, entry in value.items()) + "\n}"
    return _json(value)


def read_result(path: Path) -> Record:
    """A result file; says what is wrong with one that cannot be used."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as a result file ({error}). {_OTHERWISE}") from error
    if not isinstance(document, dict) or not isinstance(document.get("cells"), dict):
        raise InputError(f"{path} is no result file of this command: it holds no cells. {_OTHERWISE}")
    for name, kind in (("versions", dict), ("hardware", dict), ("other_hardware", list), ("rows", list)):
        if not isinstance(document.get(name, kind()), kind):
            raise InputError(f"{path} is damaged: {name!r} is {_short(document[name])}. {_OTHERWISE}")
    for key, record in document["cells"].items():
        if wrong := _fault_of_cell(key, record):
            raise InputError(f"{path} holds a damaged cell {key!r}: {wrong}. Mend or remove it. {_OTHERWISE}")
    return document


def fault(numbers: Any) -> str | None:
    """What is wrong with the numbers of a cell; None where nothing is.

    Each is a finite number, null or, for a curve, a list of these; ``"reasons"`` names sentences.

    Examples
    --------
    >>> fault({"cold": 87.1, "curve": [1.0, None], "reasons": {"test": "no edges"}})
    >>> fault({"cold": "abc"})
    "'cold' is 'abc', expected a finite number"
    """
    if not isinstance(numbers, dict):
        return f"'numbers' is {_short(numbers)}, expected names with a number each"
    for name, value in numbers.items():
        if name == "reasons":
            if not isinstance(value, dict) or not all(isinstance(sentence, str) for sentence in value.values()):
                return f"'reasons' is {_short(value)}, expected names with a sentence each"
            continue
        items, verb = (value, "holds") if isinstance(value, list) else ([value], "is")
        for item in items:
            if item is not None and not _is_number(item):
                return f"{name!r} {verb} {_short(item)}, expected a finite number"
    return None


def _fault_of_cell(key: str, record: Any) -> str | None:
    try:
        Cell.from_key(key)
    except ValueError:
        return "its name is not 'data set | setting | method | seed'"
    if not isinstance(record, dict) or sum(name in record for name in _OUTCOMES) != 1:
        return f"it is {_short(record)}, expected one of {', '.join(map(repr, _OUTCOMES))}"
    for name in _OUTCOMES[1:]:
        if not isinstance(record.get(name, ""), str):
            return f"{name!r} is {_short(record[name])}, expected a sentence"
    if not _is_number(record.get("seconds", 0)):
        return f"'seconds' is {_short(record['seconds'])}, expected a finite number"
    return fault(record.get("numbers", {}))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class ResultFile:
    """The cells of one table on disk.

    Parameters
    ----------
    path : Path
        ``DIR/NAME.json``.
    experiment : Experiment
        The table.
    smoke : bool
        Whether this run is a smoke run, whose figures mean nothing.
    """

    def __init__(self, path: Path, experiment: Experiment, *, smoke: bool = False) -> None:
        self.path, self.experiment, self.smoke = path, experiment, smoke
        self.cells: dict[str, Record] = {}
        self.groups: dict[tuple[str, str], None] = {}  # data sets and settings that get rows, even without a cell
        self._header: Record = {"versions": versions(), "hardware": hardware(), "commit": commit()}
        self._other_hardware: list[Record] = []
        self._rows: dict[tuple[str, str], list[Record]] = {}

    @property
    def finished(self) -> set[str]:
        """Keys of the cells that need not run again: failed ones are tried anew."""
        return {key for key, record in self.cells.items() if "error" not in record}

    def open(self, *, resume: bool, fresh: bool) -> None:
        """Take over the cells of an earlier run, or refuse to mix or overwrite them."""
        if fresh or not self.path.exists():
            return
        document = read_result(self.path)
        done = sum("error" not in record for record in document["cells"].values())
        if not resume:
            if done:
                raise InputError(
                    f"{self.path} holds {done} finished cell(s) of an earlier run. Pass --resume to keep them and run "
                    f"only what is missing. {_OTHERWISE}"
                )
            return
        self._check_same(document)
        self.cells = dict(document["cells"])
        known, last = document.get("other_hardware", []), document.get("hardware", {})
        self._other_hardware = known + [last] * (last not in known)
        rows = (row for row in document.get("rows", []) if isinstance(row, dict))
        self.groups |= dict.fromkeys(
            (str(row["dataset"]), str(row["setting"])) for row in rows if {"dataset", "setting"} <= row.keys()
        )

    def check_generated(self, dataset: str, generated: bool) -> None:
        """Refuse to put figures from a generated graph beside those of the real one."""
        for key, record in self.cells.items():
            if Cell.from_key(key).dataset == dataset and bool(record.get("generated")) != generated:
                kinds = ("a generated graph", "the data set itself")
                was, now = kinds if not generated else kinds[::-1]
                raise InputError(
                    f"{self.path} holds cells of {dataset!r} from {was}, this run uses {now}. {_OTHERWISE}"
                )

    def _check_same(self, document: Record) -> None:
        """Same versions, same GPU: else one header could not speak for all cells."""
        before, now = document.get("versions", {}), self._header["versions"]
        changed = [f"{name} {before.get(name)} (now {now[name]})" for name in now if before.get(name) != now[name]]
        gpu, gpu_now = document.get("hardware", {}).get("gpu"), self._header["hardware"]["gpu"]
        if gpu != gpu_now:
            changed.append(f"{gpu or 'no GPU'} (now {gpu_now or 'no GPU'})")
        if bool(document.get("smoke")) != self.smoke:
            changed.append("a smoke run (now a real one)" if document.get("smoke") else "a real run (now a smoke run)")
        if document.get("experiment") != self.experiment.name:
            changed.append(f"table {document.get('experiment')!r} (now {self.experiment.name!r})")
        if changed:
            raise InputError(
                f"{self.path} was made with {', '.join(changed)}; cells of both cannot stand in one table. {_OTHERWISE}"
            )

    def add(self, cell: Cell, record: Record) -> None:
        """Keep a finished cell and write the file."""
        self.cells[cell.key] = {**record, "commit": self._header["commit"]}
        self.groups.setdefault((cell.dataset, cell.setting))
        self._rows.pop((cell.dataset, cell.setting), None)
        self.write()

    def write(self) -> None:
        """Write everything; only groups of rows that a new cell belongs to are worked out again."""
        write_json(self.path, self.document())

    def document(self) -> Record:
        """All that the file holds."""
        table = self.experiment
        others = [machine for machine in self._other_hardware if machine != self._header["hardware"]]
        return {
            "experiment": table.name,
            "title": table.title,
            "question": table.question,
            "x_axis": table.x_axis,
            "smoke": self.smoke,
            **self._header,
            "other_hardware": others,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "methods": [plain(asdict(method)) for method in table.methods],
            "metrics": [asdict(metric) for metric in table.metrics],
            "rows": self._all_rows(),
            "cells": dict(sorted(self.cells.items())),
        }

    def _all_rows(self) -> list[Record]:
        for group in self.groups:
            if group not in self._rows:
                self._rows[group] = group_rows(self.experiment, *group, self.cells)
        order = group_order(self.experiment, self.groups)
        return [row for group in order for row in self._rows[group]]
