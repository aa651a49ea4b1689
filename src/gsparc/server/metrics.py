"""What Prometheus may read at /metrics; one registry an app, so that two apps in a process do not mix."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

__all__ = ["Metrics"]

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

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
