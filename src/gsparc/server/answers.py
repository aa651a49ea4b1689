"""From a batch of requests to their answers: one call of the model, cut up again and written as JSON.

Everything here runs in the batcher's thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gsparc.server.batching import Job, Outcome
from gsparc.server.errors import ApiError
from gsparc.server.models import LoadedModel
from gsparc.server.requests import RowRequest, name_rows

__all__ = ["TASKS", "answer_jobs", "job_for", "warm_up"]

_MOST_PROBABLE = 10
Shape = Callable[[LoadedModel, dict[str, Any], int], dict[str, Any]]


def _predict(loaded: LoadedModel, record: dict[str, Any], k: int) -> dict[str, Any]:
    chances = record.get("probabilities") or {}
    if len(chances) > _MOST_PROBABLE:
        chances = dict(sorted(chances.items(), key=lambda item: -item[1])[:_MOST_PROBABLE])
    return {
        "class": record.get("class"),
        "confidence": record.get("confidence"),
        "probabilities": chances,
        "set": record.get("set") or [],
        "abstained": bool(record.get("abstained")),
        "why": record.get("why") or "",
        "cluster": record.get("cluster"),
        "links": _with_places(loaded, record.get("links"), k),
        "near": _with_places(loaded, record.get("near"), k),
        "position": record.get("position"),
    }


def _links(loaded: LoadedModel, record: dict[str, Any], k: int) -> dict[str, Any]:
    return {"links": _with_places(loaded, record.get("links"), k)}


def _cluster(_: LoadedModel, record: dict[str, Any], __: int) -> dict[str, Any]:
    return {"cluster": record.get("cluster"), "memberships": record.get("memberships")}


def _embed(_: LoadedModel, record: dict[str, Any], __: int) -> dict[str, Any]:
    return {"embedding": record["embedding"], "position": record.get("position")}


TASKS: dict[str, tuple[Shape, str | None]] = {  # how a row is answered, and what the model must have been fitted for
    "predict": (_predict, None),
    "links": (_links, "links"),
    "cluster": (_cluster, "clusters"),
    "embed": (_embed, None),
}


def _with_places(loaded: LoadedModel, found: list[dict[str, Any]] | None, k: int) -> list[dict[str, Any]]:
    """Nodes with their places on the map beside their ids."""
    return [{**item, "index": loaded.nodes.index(item["id"])} for item in (found or [])[:k]]


def job_for(task: str, loaded: LoadedModel, request: RowRequest) -> Job:
    """A job of the batcher; requests for the same model, task, form and coverage may be answered together."""
    needed = TASKS[task][1]
    if needed is not None and needed not in loaded.tasks:
        message = f"the model was not fitted for {needed}, only for {', '.join(loaded.tasks) or 'nothing'}."
        raise ApiError(409, "not_fitted", f"{message} Fit it again with this task.")
    key = (id(loaded), task, request.form, request.coverage)
    return Job(key, len(request), (task, loaded, request), answer_jobs)


def answer_jobs(jobs: Sequence[Job]) -> list[Outcome]:
    """One model call for all of these jobs; a job with rows that cannot be read gets an error of its own."""
    task, loaded, first = jobs[0].payload
    requests: list[RowRequest] = [job.payload[2] for job in jobs]
    k = max(request.k for request in requests)
    table = _table(loaded, first.form, [row for request in requests for row in request.rows])
    edges, ignored = _edges(loaded, requests)
    predictions = loaded.model.predict(
        table,
        coverage=first.coverage,
        links=k if task in ("predict", "links") else 0,
        near=k if task == "predict" and loaded.compares else 0,
        edges=edges,
    )
    records = predictions.records()
    if task == "embed":
        _add(records, "embedding", loaded.model.embed(table))
    if task == "cluster":
        _add(records, "memberships", predictions.memberships)
    outcomes: list[Outcome] = []
    start = 0
    for request, skipped in zip(requests, ignored, strict=True):
        bad = {row - start: text for row, text in predictions.bad.items() if start <= row < start + len(request)}
        rows = records[start : start + len(request)]
        outcomes.append(_bad_rows(request.form, bad) if bad else _encode(task, loaded, request, rows, skipped))
        start += len(request)
    return outcomes


def _add(records: list[dict[str, Any]], name: str, values: Any) -> None:
    """Put one row of an array into each record."""
    for record, row in zip(records, [] if values is None else np.asarray(values).tolist(), strict=values is not None):
        record[name] = [round(value, 6) for value in row]


def _table(loaded: LoadedModel, form: str, rows: list[Any]) -> Any:
    if form == "vectors":
        return np.asarray(rows, dtype=np.float32)
    from gsparc.tables.preprocess import records_to_table

    return records_to_table(rows, loaded.model.columns)


def _edges(loaded: LoadedModel, requests: list[RowRequest]) -> tuple[Any, list[int]]:
    """First edges of all requests as (rows, positions of known nodes), and how many named no known node."""
    rows, nodes, ignored, start = [], [], [], 0
    for request in requests:
        skipped = 0
        for row, node in request.edges:
            place = loaded.nodes.index(node)
            if place is None:
                skipped += 1
            else:
                rows.append(start + row)
                nodes.append(place)
        ignored.append(skipped)
        start += len(request)
    return ((np.array(rows), np.array(nodes)) if rows else None), ignored


def _bad_rows(form: str, bad: dict[int, str]) -> ApiError:
    return ApiError(422, "bad_rows", f"{name_rows(form, bad)}.", rows=bad)


def _encode(task: str, loaded: LoadedModel, request: RowRequest, records: list[dict[str, Any]], skipped: int) -> bytes:
    shape = TASKS[task][0]
    rows = [
        {"id": given, **shape(loaded, record, request.k)} for given, record in zip(request.ids, records, strict=True)
    ]
    answer: dict[str, Any] = {"model": loaded.version, "predictions": rows}
    if request.edges:
        answer["ignored_edges"] = skipped
    if request.missing:
        answer["missing_columns"] = request.missing
    try:
        text = json.dumps(answer, allow_nan=False, ensure_ascii=False)
    except ValueError:
        text = json.dumps(_finite(answer), allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8")


def _finite(value: Any) -> Any:
    """The same with null for what JSON cannot say."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def warm_up(loaded: LoadedModel) -> None:
    """Let a model answer once before it is used: the first call is the slow one, and it must be able to."""
    request = RowRequest("vectors", [[0.0] * loaded.reader.n_features], [None])
    loaded.model.predict(_table(loaded, "vectors", request.rows), coverage=0.9, links=1, near=int(loaded.compares))
    _ = loaded.nodes, loaded.map
