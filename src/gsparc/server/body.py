"""Request bodies: read within limits, then parsed as strict JSON.

Strict means what RFC 8259 says and no more: UTF-8 only, no ``NaN`` or ``Infinity``, and no key twice in one
object, since which of the two values was meant cannot be known.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from gsparc.server.errors import ApiError

__all__ = ["parse_json", "read_body"]


async def read_body(request: Request, *, max_bytes: int, timeout: float) -> bytes:
    """The body of a request; every way in which it can be unusable is an ``ApiError``."""
    _check_content_type(request.headers.get("content-type", ""))
    _check_encoding(request.headers.get("content-encoding", ""))
    try:
        async with asyncio.timeout(timeout):
            return await _read(request, max_bytes)
    except TimeoutError:
        message = f"the body did not arrive within {timeout:g} s; the request was given up."
        raise ApiError(408, "body_timeout", message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ApiError(400, "disconnected", "the client left before its body was complete.") from None


def _check_content_type(value: str) -> None:
    """JSON must be announced: a page in a browser cannot do that across origins without asking first."""
    kind, *parameters = (part.strip().lower() for part in value.split(";"))
    charset = next((part[8:].strip('"') for part in parameters if part.startswith("charset=")), "utf-8")
    if kind == "application/json" and charset in ("utf-8", "utf8"):
        return
    came = f"content type {value[:80]!r} came" if value else "no content type came"
    message = f"{came}, expected application/json in UTF-8. With curl: -H 'Content-Type: application/json'."
    raise ApiError(415, "not_json", message)


def _check_encoding(value: str) -> None:
    """Bodies are not unpacked: a few packed bytes can be gigabytes."""
    if value.strip().lower() not in ("", "identity"):
        message = f"content encoding {value[:80]!r} came, expected a body that is not packed. Send the JSON as it is."
        raise ApiError(415, "packed_body", message, headers={"Accept-Encoding": "identity"})


async def _read(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > max_bytes):
        raise _too_large(max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():  # counted as it comes: a chunked body announces nothing
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(max_bytes: int) -> ApiError:
    message = f"the body is larger than the {max_bytes:,} bytes that are taken at once. Send fewer rows a request."
    return ApiError(413, "body_too_large", message, headers={"Connection": "close"})


def parse_json(raw: bytes) -> Any:
    """Strict JSON from bytes.

    Examples
    --------
    >>> parse_json(b'{"k": 3}')
    {'k': 3}
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad_json(f"byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except json.JSONDecodeError as error:
        raise _bad_json(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeEncodeError:
        raise _bad_json("it holds half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise _bad_json("it is nested too deeply") from None
    except ValueError:  # Python's own limit on the digits of one number
        raise _bad_json("a number has thousands of digits") from None


def _refuse_constant(name: str) -> NoReturn:
    raise _bad_json(f"{name} is not a JSON value; write null where a value is missing")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise _bad_json(f"the key {again[:80]!r} stands twice in one object")
    return found


def _bad_json(reason: str) -> ApiError:
    return ApiError(400, "bad_json", f"the body is not JSON that can be read: {reason}.")
