"""Thousands of made-up files against ``gsparc predict`` and ``gsparc fit``: a sentence or a result, never a traceback.

    python benchmarks/fuzz_tables.py --files 2000

hypothesis makes tables with columns of any names and values, writes them in any of the formats, and breaks some of the
bytes. Nine of ten files go to predict, which is quick; every tenth is the node table of a fit. Each run gets a minute.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import signal
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from _common import record

SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".jsonl")
NAMES = st.sampled_from(["id", "words", "size", "kind", "label", "x"]) | st.text(max_size=6)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["", "007", "1e999", "NaN", "1,5", "2024-02-30", "=cmd()", "a\nb", '"', "\0"])
    | st.lists(st.floats(), max_size=3)
)
FOUR = st.lists(VALUES, min_size=4, max_size=4)
LIKELY = {  # mostly what the columns hold, now and then anything
    "id": st.lists(st.integers(0, 99), min_size=4, max_size=4, unique=True) | FOUR,
    "words": st.lists(st.sampled_from(["red rose big", "blue sea", "", "née 東京"]), min_size=4, max_size=4) | FOUR,
    "size": st.lists(st.floats(-3, 3), min_size=4, max_size=4) | FOUR,
    "kind": st.lists(st.sampled_from("abc"), min_size=4, max_size=4) | FOUR,
}
TABLES = (
    st.fixed_dictionaries(LIKELY, optional={"label": FOUR, "x": FOUR})
    | st.fixed_dictionaries(LIKELY)
    | st.dictionaries(NAMES, FOUR, min_size=1, max_size=6)
)
SMALL = ["--max-steps", "3", "--backbone", "mlp", "-q"]
COLUMNS = [["command", "command", ""], ["files", "files", ",d"], ["answered", "answered", ",d"]]
COLUMNS += [["refused", "refused with a sentence", ",d"], ["failed", "traceback, hang or nothing said", ",d"]]


def as_text(columns: dict[str, list[Any]], separator: str) -> bytes:
    """Delimited text as careless programs write it: quotes only where a value asks for them."""
    lines = [separator.join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(separator.join("" if value is None else str(value) for value in row))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def as_file(folder: Path, suffix: str, columns: dict[str, list[Any]]) -> Path:
    """The table in one of the formats; values that a typed format does not take become text."""
    import json

    path = folder / f"rows{suffix}"
    if suffix in (".csv", ".tsv"):
        path.write_bytes(as_text(columns, "," if suffix == ".csv" else "\t"))
    elif suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_bytes("\n".join(json.dumps(row) for row in rows).encode())
    else:
        arrays = {}
        for name, values in columns.items():
            try:
                arrays[name] = pa.array(values)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                arrays[name] = pa.array([None if value is None else repr(value) for value in values])
        table = pa.table(arrays)
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, path)
        else:
            from pyarrow import feather

            feather.write_feather(table, str(path))
    return path


def write_graph(folder: Path) -> None:
    rng = np.random.default_rng(0)
    kind, size = rng.integers(0, 2, 60), rng.normal(size=60)
    words = [
        f"{'red rose' if k else 'blue sea'} {'big' if s > 0 else 'small'}" for k, s in zip(kind, size, strict=True)
    ]
    lines = [f"{i},{w},{s},{'ab'[k]},{'xy'[k]}" for i, (w, s, k) in enumerate(zip(words, size, kind, strict=True))]
    (folder / "nodes.csv").write_text("id,words,size,kind,label\n" + "\n".join(lines))
    same = [(i, j) for i in range(60) for j in range(i) if kind[i] == kind[j] and rng.random() < 0.2]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(f"{i},{j}" for i, j in same))


@contextlib.contextmanager
def limit(seconds: int) -> Any:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


class Fuzz:
    """Runs commands on files, and counts what became of them."""

    def __init__(self, folder: Path) -> None:
        from gsparc.cli.app import app

        self.app, self.folder, self.runner = app, folder, CliRunner()
        self.counts: Any = collections.defaultdict(collections.Counter)
        self.problems: list[str] = []
        write_graph(folder)
        tables = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "label"]
        made = self.runner.invoke(app, ["fit", *tables, *SMALL, "-o", "model"])
        if made.exit_code:
            raise SystemExit(made.output)

    @property
    def total(self) -> int:
        return sum(count["files"] for count in self.counts.values())

    def attempt(self, command: str, arguments: list[str]) -> None:
        with limit(60), warnings.catch_warnings():
            warnings.simplefilter("error")
            done = self.runner.invoke(self.app, arguments)
        said, count = done.output, self.counts[command]
        strange = done.exception is not None and not isinstance(done.exception, SystemExit)
        silent = done.exit_code and "rror" not in said
        if strange or silent or "Traceback" in said or "error: unexpected" in said or done.exit_code not in (0, 1, 2):
            count["failed"] += 1
            self.problems.append(
                f"{arguments}: {done.exit_code} {done.exception!r} {said[-400:]} {self.where(arguments)}"
            )
            print(self.problems[-1], flush=True)
        else:
            count["answered" if done.exit_code == 0 else "refused"] += 1
        count["files"] += 1

    def where(self, arguments: list[str]) -> str:
        """Run it again so that the place shows."""
        again = self.runner.invoke(self.app, arguments, env={"GSPARC_DEBUG": "1"})
        return "" if again.exc_info is None else "".join(traceback.format_exception(*again.exc_info)[-4:])

    def one(self, columns: dict[str, list[Any]], suffix: str, broken: list[tuple[float, int]]) -> None:
        for old in self.folder.glob("rows*"):
            old.unlink()
        try:
            path = as_file(self.folder, suffix, columns)
        except (UnicodeError, ValueError, pa.ArrowException):
            path = self.folder / "rows.csv"
            path.write_bytes(as_text(columns, ","))
        data = bytearray(path.read_bytes())
        for where, value in broken:
            if data:
                data[int(where * (len(data) - 1))] = value
        path.write_bytes(bytes(data))
        number = self.total
        if number % 10 == 9:
            self.attempt("fit", ["fit", "--nodes", path.name, "--edges", "edges.csv", *SMALL, "-o", "other"])
        else:
            self.attempt("predict", ["predict", "model", path.name, "-q", "-o", f"out{SUFFIXES[number % 5]}"])
        if number % 100 == 0:
            print(number, dict(self.counts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        fuzz = Fuzz(Path(place))
        quick = {"deadline": None, "phases": [Phase.generate], "suppress_health_check": list(HealthCheck)}
        broken = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3)
        run = given(TABLES, st.sampled_from(SUFFIXES), st.just([]) | broken)(fuzz.one)
        settings(max_examples=args.files, **quick)(run)()
    keys = ("files", "answered", "refused", "failed")
    rows = [{"command": f"gsparc {name}", **{key: count[key] for key in keys}} for name, count in fuzz.counts.items()]
    print(rows)
    payload = {"columns": COLUMNS, "rows": rows, "problems": fuzz.problems[:20], "bar": "no traceback, no hang"}
    record("fuzz_tables", payload, args.output)


if __name__ == "__main__":
    main()
