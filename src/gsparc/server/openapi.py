"""The OpenAPI description: every status that a route can answer, and rows as the loaded model has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from gsparc.server.schemas import ErrorAnswer

__all__ = ["ASKED", "describe", "responses", "rows_body"]

ASKED = (400, 401, 403, 408, 409, 413, 415, 422, 429, 503, 504)  # what a route that runs the model can answer
_ROWS = "RowsRequest"
_WORDS = {
    304: "unchanged since the version that If-None-Match names",
    400: "the body is not JSON",
    401: "no token, or the wrong one",
    403: "not allowed here",
    404: "not known",
    408: "the body took too long",
    409: "the model in use cannot do this",
    413: "too many bytes, or too many rows",
    415: "the body is not announced as JSON, or is packed",
    422: "what was sent cannot be used; the message says why",
    429: "the queue is full; Retry-After says when to come back",
    500: "a failure inside the service",
    503: "starting or stopping",
    504: "no answer in time",
}


def responses(model: type[BaseModel] | None, statuses: Iterable[int]) -> dict[int | str, dict[str, Any]]:
    """Declarations for a route: its success, and its errors, which all look alike."""
    declared: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, 403, 500}):  # those two can come from the layer around all routes
        declared[status] = {"model": ErrorAnswer, "description": _WORDS[status]}
    if 429 in declared:
        declared[429]["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "string"}}}
    if model is not None:
        declared[200] = {"model": model, "description": "the answer"}
    return declared


def rows_body() -> dict[str, Any]:
    """The body of a route that takes rows."""
    schema = {"$ref": f"#/components/schemas/{_ROWS}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI, *, secured: bool) -> None:
    """Give ``app.openapi()`` the columns of whichever model is in use."""
    made: dict[str, Any] = {"of": None, "document": None}

    def openapi() -> dict[str, Any]:
        loaded = app.state.service.holder.current
        if made["of"] is not loaded:
            made["document"], made["of"] = _document(app, loaded.reader.json_schema(), secured), loaded
        return made["document"]

    app.openapi = openapi


def _document(app: FastAPI, rows: dict[str, Any], secured: bool) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    parts = document.setdefault("components", {})
    parts.setdefault("schemas", {})[_ROWS] = rows
    if secured:
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            if path not in ("/health", "/ready"):
                for operation in operations.values():
                    operation["security"] = [{"token": []}]
    return document
