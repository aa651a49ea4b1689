"""Every answer that is not a success: JSON ``{"error": {"code", "message"}}`` with one sentence."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

__all__ = ["ApiError", "add_handlers", "error_response", "first_problems"]

logger = logging.getLogger(__name__)

_PARAMETERS = {
    "limit": "a whole number from 1 to 100",
    "q": "a part of an id, of 1 to 200 characters",
    "index": "a whole number from 0",
}
_SHOWN = 5  # problems named in one message; the rest is counted


class ApiError(Exception):
    """An answer other than success, on purpose.

    ``rows``: which rows of the request are meant, where that is known, each with its own sentence.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        rows: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})
        self.rows = dict(rows or {})


def error_response(error: ApiError) -> Response:
    """The error as JSON."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.rows:
        body["rows"] = [{"row": row, "message": text} for row, text in sorted(error.rows.items())]
    text = json.dumps({"error": body}, ensure_ascii=True)  # ASCII: a message may quote half a surrogate pair
    return Response(text, error.status, media_type="application/json", headers=error.headers)


def first_problems(problems: list[str]) -> str:
    """The first few sentences of many, and how many more there are.

    Examples
    --------
    >>> first_problems(["a", "b"])
    'a; b'
    """
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more


async def _on_api_error(_: Request, error: Any) -> Response:
    return error_response(error)


async def _on_http_exception(request: Request, error: Any) -> Response:
    """404 and 405 of the router, and what else the framework raises by itself."""
    path = request.scope.get("path", "")[:200]
    known = {
        404: ("not_found", f"there is nothing at {path!r}. The routes are listed at /docs."),
        405: ("method_not_allowed", f"{request.method} is not possible at {path!r}; see /docs for what is."),
    }
    code, message = known.get(error.status_code, ("http_error", str(error.detail)))
    return error_response(ApiError(error.status_code, code, message, headers=error.headers))


async def _on_validation_error(_: Request, error: Any) -> Response:
    """Path and query parameters; bodies are checked by this package itself."""
    problems = [_parameter(str(item["loc"][-1]), item) for item in error.errors()]
    return error_response(ApiError(422, "bad_parameter", f"{first_problems(problems)}."))


def _parameter(name: str, item: Any) -> str:
    """What is wrong with one parameter, in our own words."""
    expected = _PARAMETERS.get(name, "another value; see /docs")
    if item["type"] == "missing":
        return f"{name} is missing, expected {expected}"
    return f"{name}: {str(item['input'])[:40]!r} came, expected {expected}"


def add_handlers(app: FastAPI) -> None:
    """Let the app answer all its errors in one form."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
