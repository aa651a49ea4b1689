"""What Prometheus may read at /metrics; one registry an app, so that two apps in a process do not mix."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

__all__ = ["Metrics", "merged"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters and histograms of one app.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.answered("/v1/predict", 200, 0.004)
    >>> b'gsparc_requests_total{route="/v1/predict",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "gsparc_requests", "Answers by route and status.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "gsparc_request_seconds", "Time to the answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.batch_rows = Histogram("gsparc_batch_rows", "Rows a model call.", buckets=_ROWS, registry=registry)
        self.batch_seconds = Histogram(
            "gsparc_batch_seconds", "Time of a model call.", buckets=_SECONDS, registry=registry
        )
        self.queue_rows = Gauge("gsparc_queue_rows", "Rows that wait for the model.", registry=registry)
        self.open_requests = Gauge("gsparc_open_requests", "Requests being answered.", registry=registry)
        self.shed = Counter("gsparc_shed_requests", "Requests refused because the queue was full.", registry=registry)
        self.rows = Counter("gsparc_rows", "Rows answered.", registry=registry)
        self._model = Gauge("gsparc_model_info", "1 for the model in use.", ["version"], registry=registry)
        self._loaded = Gauge("gsparc_model_loaded_timestamp_seconds", "When it was loaded.", registry=registry)
        self._reloads = Counter("gsparc_model_reloads", "Models loaded after the first.", ["result"], registry=registry)
        self._stale = Gauge(
            "gsparc_model_stale", "1 while a newer folder cannot be used and the old model serves.", registry=registry
        )
        for result in ("ok", "failed"):
            self._reloads.labels(result)
        self._folder: Path | None = None
        self._worker = 0
        self.retired = False  # another process has taken the place of this one

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def model_in_use(self, version: str, when: float) -> None:
        """Name the model that serves now."""
        self._model.clear()
        self._model.labels(version).set(1)
        self._loaded.set(when)

    def reloaded(self, ok: bool) -> None:
        """Count a new folder that was taken into use, or could not be."""
        self._reloads.labels("ok" if ok else "failed").inc()
        self._stale.set(0 if ok else 1)

    def share(self, folder: Path, worker: int) -> None:
        """Let the processes of one service tell each other their figures through files in ``folder``."""
        self._folder, self._worker = folder, worker

    def publish(self) -> None:
        """Write the figures of this process down for the others."""
        if self._folder is not None and not self.retired:
            path = self._folder / f"{self._worker}.prom"
            fresh = path.with_suffix(".new")
            fresh.write_bytes(generate_latest(self.registry))
            fresh.replace(path)

    def text(self) -> bytes:
        """The exposition format; of several processes those of all, each sample with the number of its worker."""
        if self._folder is None:
            return generate_latest(self.registry)
        self.publish()
        files = sorted(self._folder.glob("*.prom"), key=lambda path: int(path.stem))
        return merged((path.stem, path.read_text(encoding="utf-8")) for path in files).encode()


def merged(texts: Iterable[tuple[str, str]]) -> str:
    """One exposition out of several, with the label ``worker`` on every sample.

    Examples
    --------
    >>> print(merged([("0", "# TYPE a gauge\\na 1.0"), ("1", "# TYPE a gauge\\na{b='c'} 2.0")]), end="")
    # TYPE a gauge
    a{worker="0"} 1.0
    a{worker="1",b='c'} 2.0
    """
    families: dict[str, tuple[list[str], list[str]]] = {}  # by name: what is said of it, and its samples
    for worker, text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                said = families.setdefault(family, ([], []))[0]
                if line not in said:
                    said.append(line)
            elif line:
                families.setdefault(family, ([], []))[1].append(_labelled(line, worker))
    return "".join(f"{line}\n" for said, samples in families.values() for line in (*said, *samples))


def _labelled(sample: str, worker: str) -> str:
    """A sample with one more label; its name ends at the first brace or space."""
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{worker="{worker}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{worker="{worker}"}} {value}'
