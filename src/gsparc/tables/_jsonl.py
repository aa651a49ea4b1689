"""JSON lines: one object a line, each line read on its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gsparc.tables._lines import read_blocks

__all__ = ["MAX_LINE", "json_rows"]

MAX_LINE = 1 << 26  # bytes; more than this is no line of a table


def json_rows(path: Path, reject: Callable[[int, str], None]) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Row, object and length of the line; a line that holds none goes to ``reject`` with the reason.

    Rows are counted from 1; empty lines are none.
    """
    for number, line in _numbered_lines(path, reject):
        try:
            value = json.loads(line)
        except UnicodeDecodeError:
            reject(number, "the line is not UTF-8")
        except (ValueError, RecursionError) as error:
            reject(number, f"the line is not JSON ({_short(error)})")
        else:
            if not isinstance(value, dict):
                reject(number, f"the line holds a JSON {_kind(value)}, expected an object: {{...}}")
            elif _has_surrogate(line, value):
                reject(number, "the line holds half of a character (a lone surrogate)")
            else:
                yield number, value, len(line)


def _numbered_lines(path: Path, reject: Callable[[int, str], None]) -> Iterator[tuple[int, bytes]]:
    left, number, too_long = b"", 1, False
    for block in read_blocks(path):
        lines = (left + block).split(b"\n")
        left = lines.pop()
        for line in lines:
            if line.strip() and not too_long:
                yield number, line
                number += 1
            too_long = False
        if len(left) > MAX_LINE:
            if not too_long:
                reject(number, f"the line is longer than {MAX_LINE >> 20} MB")
                number += 1
            left, too_long = b"", True
    if left.strip() and not too_long:
        yield number, left


def _has_surrogate(line: bytes, value: dict[str, Any]) -> bool:
    if b"\\ud" not in line and b"\\uD" not in line:
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _kind(value: Any) -> str:
    names = {list: "list", str: "string", bool: "true or false", int: "number", float: "number"}
    return names.get(type(value), "null")


def _short(error: Exception) -> str:
    return str(error).split(" (char")[0][:100] or type(error).__name__
