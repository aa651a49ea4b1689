"""A command as a process of its own, watched: seconds and memory of each of its stages.

A command says the stages on its standard error, a sentence each. What the process holds is sampled in between, in two
parts: anonymous memory, which is its own, and pages of mapped files, which the system may take back at any time. The
peak of the whole command is the kernel's own figure, so nothing escapes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import psutil

__all__ = ["watched"]

_INTERVAL = 0.05


class _Stages:
    """The stage that runs, and what was seen of each."""

    def __init__(self, process: psutil.Process, names: Mapping[str, str]) -> None:
        self._process, self._names = process, names
        self.found: list[dict[str, Any]] = []
        self.last: dict[str, float] = {}
        self.begin("start")

    def begin(self, name: str) -> None:
        self.found.append({"part": name, "began": time.perf_counter(), "before": self._used()})
        self.found[-1] |= {"peak_gb": 0.0, "anonymous_gb": 0.0, "file_gb": 0.0}

    def sentence(self, line: str) -> None:
        """A line of the command; one that begins as a stage does begins it."""
        for start, name in self._names.items():
            if line.startswith(start):
                self.begin(name)

    def _used(self) -> dict[str, float]:
        """Processor seconds, and gigabytes read from and written to disk, so far."""
        try:
            times, moved = self._process.cpu_times(), self._process.io_counters()
        except (psutil.Error, AttributeError):
            return {}
        found = {"cpu_seconds": times.user + times.system}
        return found | {"read_gb": moved.read_bytes / 1e9, "written_gb": moved.write_bytes / 1e9}

    def sample(self) -> None:
        now, held = self.found[-1], {"RssAnon": 0, "RssFile": 0, "RssShmem": 0}
        with contextlib.suppress(psutil.Error, OSError):
            for each in [self._process, *self._process.children(recursive=True)]:
                with open(f"/proc/{each.pid}/status", encoding="utf-8") as stream:
                    for line in stream:
                        name, _, value = line.partition(":")
                        if name in held:
                            held[name] += int(value.split()[0]) * 1024
        own, mapped = held["RssAnon"] / 1e9, (held["RssFile"] + held["RssShmem"]) / 1e9
        for name, value in (("peak_gb", own + mapped), ("anonymous_gb", own), ("file_gb", mapped)):
            now[name] = max(now[name], value)
        self.last = self._used() or self.last

    def finished(self) -> list[dict[str, Any]]:
        """Every stage with its seconds and its share of what was used."""
        ends = [*self.found[1:], {"began": time.perf_counter(), "before": self.last}]
        rows = []
        for stage, end in zip(self.found, ends, strict=True):
            row = {"part": stage["part"], "seconds": end["began"] - stage["began"]}
            row |= {name: value - stage["before"].get(name, 0.0) for name, value in end["before"].items()}
            row |= {name: stage[name] for name in ("peak_gb", "anonymous_gb", "file_gb")}
            rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
        return rows


def watched(name: str, command: list[str], names: Mapping[str, str]) -> dict[str, Any]:
    """Run ``python *command``; ``names`` gives stages by the first words of the sentence that begins each."""
    print(f"{name}: {' '.join(command)[:150]}", file=sys.stderr, flush=True)
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    stages, over = _Stages(psutil.Process(process.pid), names), threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            stages.sentence(line.strip())
            print(f"  {time.perf_counter() - start:8.1f} s  {line.rstrip()}"[:160], file=sys.stderr, flush=True)

    def sample() -> None:
        while not over.wait(_INTERVAL):
            stages.sample()

    threads = [threading.Thread(target=read), threading.Thread(target=sample)]
    for thread in threads:
        thread.start()
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    over.set()
    for thread in threads:
        thread.join()
    if process.returncode:
        raise SystemExit(f"{name} ended with status {process.returncode}")
    found = {"stage": name, "seconds": round(time.perf_counter() - start, 1)}
    found |= {
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gb": round(usage.ru_maxrss * 1024 / 1e9, 3),
    }
    parts = stages.finished()
    found |= {key: max(part[key] for part in parts) for key in ("anonymous_gb", "file_gb")}
    print(f"  {found['seconds']} s, {found['peak_gb']:.2f} GB", file=sys.stderr, flush=True)
    return found | {"parts": parts, "said": json.loads(out) if out.strip().startswith("{") else {}}
