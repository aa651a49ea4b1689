"""The frame of a page, a section of it, and writing it whole."""

from __future__ import annotations

import os
import tempfile
from html import escape
from pathlib import Path

from gsparc.exceptions import OutputError

__all__ = ["document", "section", "write_whole"]


def document(title: str, style: str, body: str) -> str:
    """A self-contained page: its style is inside, and nothing is asked from elsewhere."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def section(place: str, title: str, body: str) -> str:
    """A section that a contents list can point to and a screen reader can name.

    Examples
    --------
    >>> section("a", "A & B", "<p>x</p>")
    '<section id="a" aria-labelledby="a-title"><h2 id="a-title">A &amp; B</h2><p>x</p></section>'
    """
    name = escape(place)
    heading = f'<h2 id="{name}-title">{escape(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{body}</section>'


def write_whole(text: str, target: Path, what: str) -> Path:
    """Write a page; the file appears under its name only when it is complete."""
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise OutputError(
            f"{what} cannot be written to {target} ({error.strerror or error}). Choose a folder that can be written."
        ) from error
    return target
