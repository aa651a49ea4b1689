"""Text files as blocks of whole lines: compression, encodings, and lines that are too long."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from gsparc.exceptions import InputError

__all__ = ["BLOCK", "read_blocks"]

BLOCK = 1 << 22  # bytes read at a time
_MARKS = (  # the longer one first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_blocks(path: Path) -> Iterator[bytes]:
    """A text file in pieces of UTF-8 without a byte order mark; lines end in a newline."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            yield from _decoded(stream, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}). Copy or compress it again.") from error
    except UnicodeError as error:
        raise InputError(f"{path} is not what its byte order mark says ({error}). Save it as UTF-8.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}).") from error


def _decoded(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    first = stream.read(BLOCK)
    mark, encoding = next(((mark, name) for mark, name in _MARKS if first.startswith(mark)), (b"", "utf-8"))
    if encoding == "utf-8":
        head = first[:4096]
        if head.count(0) > 0.2 * len(head):
            raise InputError(
                f"{path} is full of NUL bytes: it is a binary file, or UTF-16 without a byte order mark. "
                "Save it as UTF-8 text."
            )
        pieces = _rest(first[len(mark) :], stream)
    else:
        decoder = codecs.getincrementaldecoder(encoding)()
        pieces = _recoded(first, stream, decoder)
    yield from _with_newlines(pieces)


def _rest(first: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    while first:
        yield first
        first = stream.read(BLOCK)


def _recoded(first: bytes, stream: IO[bytes], decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    for piece in _rest(first, stream):
        yield decoder.decode(piece).encode("utf-8")
    yield decoder.decode(b"", final=True).encode("utf-8")


def _with_newlines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Files of old systems end their lines in a carriage return alone."""
    returns_only: bool | None = None
    for piece in pieces:
        if returns_only is None and piece:
            returns_only = b"\r" in piece and b"\n" not in piece
        yield piece.replace(b"\r", b"\n") if returns_only else piece
