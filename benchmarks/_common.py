"""What every benchmark script shares: a stopwatch, a memory watch, and one way to write results.

A script answers one question and ends with ``record(name, payload)``, which writes ``results/NAME.json``.
A payload with ``columns`` and ``rows`` becomes a table of the README with no further code
(see scripts/readme_tables.py).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil

__all__ = ["RESULTS", "PeakMemory", "Timer", "kept", "record"]

RESULTS = Path(__file__).resolve().parent / "results"


def kept(file: Path, make: Callable[[], Any]) -> Any:
    """What ``make`` returns, from ``file`` where an earlier run has left it there: an interrupt loses little."""
    if not file.exists():
        found = json.dumps(make())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found)
    return json.loads(file.read_text())


class Timer:
    """Wall-clock seconds of a ``with`` block.

    Examples
    --------
    >>> with Timer() as timer:
    ...     pass
    >>> timer.seconds >= 0
    True
    """

    def __init__(self) -> None:
        self._start = 0.0
        self.seconds = 0.0

    def __enter__(self) -> Timer:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


class PeakMemory:
    """The highest resident memory seen during a ``with`` block.

    ``peak_bytes`` is sampled, so a spike shorter than ``interval`` can escape it; ``maxrss_bytes`` is the
    kernel's own figure, which misses nothing but covers the whole life of the process. A bar is safe when
    both are under it.
    """

    def __init__(self, interval: float = 0.02) -> None:
        self.interval = interval
        self.start_bytes = self.peak_bytes = self.maxrss_bytes = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> PeakMemory:
        self._process = psutil.Process()
        self.start_bytes = self.peak_bytes = self._process.memory_info().rss
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._sample()
        unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, KiB elsewhere
        self.maxrss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def as_dict(self) -> dict[str, float]:
        """The figures in GB (10^9 bytes), ready for a payload."""
        return {
            "start_gb": round(self.start_bytes / 1e9, 3),
            "peak_gb": round(self.peak_bytes / 1e9, 3),
            "maxrss_gb": round(self.maxrss_bytes / 1e9, 3),
        }

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self._sample()


def record(name: str, payload: dict[str, Any], output: str | Path | None = None) -> Path:
    """Write ``payload`` with its provenance to ``results/NAME.json`` (or ``output``) in one step."""
    from gsparc.experiments.provenance import commit, hardware, versions  # loads torch: only when all is measured

    header = {
        "name": name,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
    }
    clash = header.keys() & payload.keys()
    if clash:
        raise ValueError(f"payload of {name!r} uses the reserved keys {sorted(clash)}; rename them.")
    target = Path(output) if output is not None else RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**header, **payload}, indent=1, default=_plain, ensure_ascii=False)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    scratch.write_text(text + "\n", encoding="utf-8")
    os.replace(scratch, target)
    return target


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return value.name  # a folder of the machine has no place in a result
    raise TypeError(f"{type(value).__name__} cannot be written to a result file; pass numbers, strings, lists.")
