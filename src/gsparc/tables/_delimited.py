"""Comma-separated files as columns of strings: fast where a block is clean, line by line where it is not."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from gsparc.exceptions import InputError
from gsparc.tables._lines import read_blocks

__all__ = ["Block", "csv_blocks"]

_DELIMITERS = ",;\t|"
_MAX_RECORD = 1 << 24  # bytes that a quotation mark may stay open for
_STRICT = {
    "expected after": "text follows a closing quotation mark",
    "new-line character": "a carriage return stands inside the line",
    "field larger": "a field is too long",
}


class Block(NamedTuple):
    """Rows of a file: their numbers, from 1 without the header, and their cells as strings, an empty cell as null."""

    numbers: np.ndarray
    cells: pa.RecordBatch


def csv_blocks(path: Path, delimiter: str | None, reject: Callable[[int, str], None]) -> Iterator[Block]:
    """Blocks of rows in the order of the file; rows that cannot be read go to ``reject``, and are counted too."""
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_RECORD))  # 128 kB by default: long texts are longer
    reader: _Reader | None = None
    left = b""
    for piece in read_blocks(path):
        left += piece
        if reader is None:
            reader, left = _start(path, left, delimiter, reject, final=False)
        if reader is not None:
            block, left = reader.take(left, final=False)
            yield from block
    if reader is None:
        reader, left = _start(path, left, delimiter, reject, final=True)
    if reader is None:
        raise InputError(f"{path} is empty; a header line and one row a line were expected.")
    yield from reader.take(left, final=True)[0]


def _start(
    path: Path, data: bytes, delimiter: str | None, reject: Callable[[int, str], None], *, final: bool
) -> tuple[_Reader | None, bytes]:
    """A reader once the header is there, and what follows the header."""
    while True:  # empty lines before the header
        end = data.find(b"\n")
        if end < 0 and not final:
            if len(data) > _MAX_RECORD:
                raise InputError(f"the first line of {path} is longer than {_MAX_RECORD >> 20} MB; it is no table.")
            return None, data
        first, rest = (data, b"") if end < 0 else (data[:end], data[end + 1 :])
        if first.strip():
            break
        if not rest:
            return None, rest
        data = rest
    if re.match(rb"#\s", first) or (first.startswith(b"#") and rest.startswith(b"#")):
        raise InputError(
            f"{path} begins with a comment ({first[:40].decode('utf-8', 'replace').strip()!r}), a header line was "
            "expected. Take the lines with # out, and write one with the names of the columns first."
        )
    try:
        header = first.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {first[error.start]:#04x} in the header. Save it as UTF-8 and try again."
        ) from error
    if "\0" in header:
        raise InputError(f"the header of {path} holds a NUL byte; it is no text file. Save it as UTF-8 text.")
    bare = re.sub(r'"[^"]*"', "", header)
    found = max(_DELIMITERS, key=bare.count)
    if delimiter is not None and delimiter not in bare and found in bare:
        raise InputError(
            f"the header of {path} has no tab, as a .tsv has between columns, but {found!r} ({header[:60]!r}). "
            "Call the file .csv, or separate its columns by tabs."
        )
    delimiter = delimiter or found
    try:
        names = next(csv.reader([header], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(f"the header of {path} cannot be read ({error}). Close every quotation mark.") from error
    return _Reader(_column_names(names, path), delimiter, reject), rest


def _column_names(cells: list[str], path: Path) -> list[str]:
    """Names without spaces around them; one that is empty is called by its place, as pandas' index is."""
    names = [cell.strip() or f"column_{place}" for place, cell in enumerate(cells, 1)]
    again = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if again:
        raise InputError(f"{path} has more than one column {again[0]!r}. Give each column a name of its own.")
    return names


class _Reader:
    """Turns bytes into blocks of rows and keeps count of them."""

    def __init__(self, names: list[str], delimiter: str, reject: Callable[[int, str], None]) -> None:
        self.names, self.delimiter, self._reject = names, delimiter, reject
        self.row = 1  # the number of the next one
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def take(self, data: bytes, *, final: bool) -> tuple[list[Block], bytes]:
        """Blocks of the whole rows of ``data``, and what is left for the next call."""
        end = len(data) if final else data.rfind(b"\n") + 1
        whole, left = data[:end], data[end:]
        if not whole:
            if len(left) > _MAX_RECORD:
                raise InputError(f"row {self.row} is longer than {_MAX_RECORD >> 20} MB; it is no row of a table.")
            return [], left
        fast = self._fast(whole)
        if fast is not None:
            return [fast], left
        block, used = self._slow(whole, final=final)
        return [block] if len(block.numbers) else [], whole[used:] + left

    def reject(self, reason: str) -> None:
        """The next row cannot be read."""
        self._reject(self.row, reason)
        self.row += 1

    def _fast(self, data: bytes) -> Block | None:
        """All rows at once with Arrow; None where a line needs a closer look."""
        quoted = b'"' in data
        if (
            (quoted and not _properly_quoted(data, self.delimiter))
            or b"\0" in data
            or b"\n\n" in data
            or b"\n\r" in data
            or data[:1] in b"\r\n"
        ):
            return None
        count = data.count(b"\n") + (not data.endswith(b"\n"))
        try:
            table = pacsv.read_csv(
                pa.BufferReader(data),
                read_options=pacsv.ReadOptions(column_names=self.names, block_size=len(data) + 1),
                parse_options=pacsv.ParseOptions(delimiter=self.delimiter, quote_char='"' if quoted else False),
                convert_options=pacsv.ConvertOptions(
                    column_types=self.schema, null_values=[""], strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid:  # a line with more or fewer fields, or one that is not UTF-8
            return None
        if table.num_rows != count:  # a carriage return inside a line
            return None
        numbers = np.arange(self.row, self.row + count)
        self.row += count
        return Block(numbers, table.combine_chunks().to_batches()[0])

    def _slow(self, data: bytes, *, final: bool) -> tuple[Block, int]:
        """Line by line: quotation marks, lines that are rejected; and how many bytes were used."""
        raw = io.BytesIO(data).readlines()
        texts, broken = _decode(raw)
        found: list[tuple[int, list[str]]] = []
        end = self._records(texts, 0, broken, found)
        open_bytes = sum(map(len, raw[end:]))
        if open_bytes and not final and open_bytes <= _MAX_RECORD:
            return self._done(found, len(data) - open_bytes)  # the rest of the record is still to come
        if open_bytes:
            self.reject("a quotation mark is opened and never closed")
            for place in range(end + 1, len(raw)):  # each on its own: the open mark must not swallow them all
                if self._records([texts[place]], place, broken, found) == place:
                    self.reject("a quotation mark is opened and not closed in the line")
        return self._done(found, len(data))

    def _records(self, texts: list[str], first: int, broken: set[int], found: list[tuple[int, list[str]]]) -> int:
        """Records of some lines, the first of which is ``first``; gives the first line of one that has no end."""
        reader = csv.reader(texts, delimiter=self.delimiter, strict=True)
        start = first  # where the record begins that is being read
        while start < first + len(texts):
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                if "unexpected end" in str(error):
                    return start
                self.reject(_reason(error))
            else:
                lines = range(start, first + reader.line_num)
                self._sort_out(row, not broken.isdisjoint(lines) if broken else False, found)
            start = first + reader.line_num
        return first + len(texts)

    def _sort_out(self, row: list[str], broken: bool, found: list[tuple[int, list[str]]]) -> None:
        """One record to the rows, to the rejects, or, if it is an empty line, nowhere."""
        if broken:
            self.reject("the row is not UTF-8")
        elif not row or (len(row) == 1 and not row[0].strip()):
            return
        elif len(row) != len(self.names):
            self.reject(f"the row has {len(row)} fields, the header has {len(self.names)}")
        elif any("\0" in cell for cell in row):
            self.reject("the row holds a NUL byte")
        else:
            found.append((self.row, row))
            self.row += 1

    def _done(self, found: list[tuple[int, list[str]]], used: int) -> tuple[Block, int]:
        columns = zip(*(row for _, row in found), strict=True) if found else [()] * len(self.names)
        arrays = [pa.array([cell or None for cell in column], pa.string()) for column in columns]
        numbers = np.array([number for number, _ in found], dtype=np.int64)
        return Block(numbers, pa.RecordBatch.from_arrays(arrays, schema=self.schema)), used


def _properly_quoted(data: bytes, delimiter: str) -> bool:
    """Whether every mark opens or closes a whole field that ends on its line, or is a doubled one inside it."""
    text = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    marks = np.flatnonzero(text == ord('"'))
    if len(marks) % 2:
        return False
    between = np.zeros(256, bool)
    between[[ord(delimiter), ord("\n"), ord('"')]] = True
    if not between[text[marks[::2] - 1]].all():
        return False
    between[ord("\r")] = True
    if not between[text[marks[1::2] + 1]].all():
        return False
    ends = np.flatnonzero(text == ord("\n"))
    return not bool((np.searchsorted(marks, ends) % 2).any())


def _decode(raw: list[bytes]) -> tuple[list[str], set[int]]:
    """Lines as text, and which of them are not UTF-8."""
    texts: list[str] = []
    broken: set[int] = set()
    for place, line in enumerate(raw):
        try:
            texts.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            broken.add(place)
            texts.append(line.decode("utf-8", "replace"))
    return texts, broken


def _reason(error: csv.Error) -> str:
    return next((words for key, words in _STRICT.items() if key in str(error)), str(error))
