"""The frame of a page, and a section of it."""

from __future__ import annotations

from html import escape

__all__ = ["document", "section"]


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
