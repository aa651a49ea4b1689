"""Rebuild the embedded Debian graph from apt's own lists.

Run it on a Debian machine whose apt sources include bookworm/main::

    python scripts/build_debian.py

The lists are fetched by apt itself, from the sources configured on the machine, into a temporary
folder; nothing on the system changes. What is kept is facts only: names of source packages, their
sections, which ones depend on which, and counts of words. No description text is written.

How each part is made
---------------------
nodes     source packages; all binary packages of one source are one node
edges     Depends, Pre-Depends and Recommends between binary packages, lifted to their sources,
          undirected, without self-loops. Of alternatives (``a | b``) the first that exists counts.
          A virtual name counts when exactly one source provides it (as Haskell's and Rust's
          libraries do); a name that several sources provide says nothing about one of them.
labels    the section of the binary that has the source's name, otherwise the most common section
          of its binaries other than AUXILIARY ones. Sections that name a packaging role rather than
          a subject (ROLES), and those with fewer than 30 sources, are left unlabelled (-1).
features  counts of words of the English descriptions, a paragraph shared by several binaries of a
          source counted once, over the 5,000 most widely used words that occur in at least 10 and
          at most 20 % of the sources, without stop words.
groups    sources whose word counts are nearly the same (cosine >= 0.95), or that are versions of
          one thing (names equal but for digits, as gcc-11 and gcc-12, and cosine >= 0.8), share a
          group, so that a grouped split keeps copies of one text on one side.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.preprocessing import normalize

TARGET = Path(__file__).resolve().parents[1] / "src" / "gsparc" / "datasets" / "debian.npz"
AUXILIARY = {"libdevel", "doc", "debug", "oldlibs", "introspection", "localization", "metapackages", "tasks"}
ROLES = {"debug", "introspection", "metapackages", "oldlibs", "tasks", "libdevel", "doc"}
WORD = re.compile(r"[a-z][a-z0-9]*(?:\+\+|#|[a-z0-9])")
MIN_CLASS, MIN_DF, MAX_DF_SHARE, MAX_WORDS = 30, 10, 0.20, 5000
SAME_TEXT, SAME_FAMILY = 0.95, 0.80

Record = dict[str, str]


class Apt:
    """apt-get with a private state folder: it reads the system's sources and changes nothing."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.suite = suite
        self.options: list[str] = []
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        config = folder / "apt.conf"
        config.write_text(self._system_config_without_hooks(), encoding="utf-8")
        self.env = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}
        self.options = _as_options(
            {
                "Dir::Etc::main": "/dev/null",
                "Dir::Etc::parts": "/dev/null",
                "Dir::State": str(folder / "state"),
                "Dir::State::status": "/dev/null",
                "Dir::Cache": str(folder / "cache"),
                "Acquire::Languages": "en",
                "Acquire::GzipIndexes": "false",
                "APT::Architecture": "amd64",
                "APT::Architectures": "amd64",
                "APT::Get::IndexTargets::ReleaseInfo": "false",  # lists those not fetched yet, too
                "APT::Sandbox::User": "",
            }
        )
        self.options += _as_options({"Dir::Etc::sourcelist": self._source_file(), "Dir::Etc::sourceparts": "/dev/null"})

    @staticmethod
    def _system_config_without_hooks() -> str:
        """The machine's own settings (proxies among them) less the commands that run after an update."""
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
        dropped = ("Post-Invoke", "Pre-Invoke", "Acquire::Languages", "Dir::Etc::parts", "Dir::Etc::main")
        return "".join(f"{line}\n" for line in dump.splitlines() if not any(word in line for word in dropped))

    def _call(self, *words: str) -> str:
        command = ["apt-get", *self.options, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.env)
        if done.returncode:
            raise SystemExit(f"apt-get {words[0]} failed:\n{done.stderr.strip()}")
        return done.stdout

    def _targets(self, *fields: str) -> Iterator[list[str]]:
        form = "|".join(f"$({field})" for field in ("RELEASE", "COMPONENT", *fields))
        for line in self._call("indextargets", "--format", form).splitlines():
            release, component, *values = line.split("|")
            if release == self.suite and component == "main":
                yield values

    def _source_file(self) -> str:
        for (entry,) in self._targets("SOURCESENTRY"):
            return entry.rpartition(":")[0]
        raise SystemExit(
            f"apt's sources on this machine do not include {self.suite}/main. Add it to "
            "/etc/apt/sources.list, or run the script where it is configured."
        )

    def fetch(self) -> tuple[Path, Path, str]:
        """Fetch the lists; return the package list, the descriptions and the date of the release."""
        self._call("update", "-q")
        listed = self._targets("CREATED_BY", "FILENAME")
        files = {kind: Path(name) for kind, name in listed if Path(name).is_file()}
        packages, descriptions = files["Packages"], files["Translations"]
        stem = packages.name.split("_main_")[0]
        release = next(path for path in packages.parent.glob(f"{stem}_*Release") if path.is_file())
        fields = dict(re.findall(r"^(Date|Version): (.+)$", release.read_text(encoding="utf-8"), flags=re.M))
        return packages, descriptions, f"{fields['Date']} (Debian {fields.get('Version', self.suite)})"


def _as_options(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def read_records(path: Path) -> Iterator[Record]:
    """The paragraphs of a Debian control file; continuation lines keep their line breaks."""
    record: Record = {}
    field = ""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line == "\n":
                if record:
                    yield record
                record, field = {}, ""
            elif line[0] == " ":
                record[field] += "\n" + line.strip()
            else:
                field, _, value = line.partition(":")
                record[field] = value.strip()
    if record:
        yield record


def source_of(record: Record) -> str:
    return record.get("Source", record["Package"]).split(" ")[0]


def choose_section(source: str, binaries: list[Record]) -> str:
    sections = {record["Package"]: record.get("Section", "").rpartition("/")[2] for record in binaries}
    own = sections.get(source, "")
    if own and own not in AUXILIARY:
        return own
    counts = Counter(section for section in sections.values() if section and section not in AUXILIARY)
    if not counts:
        return own or min(sections.values())
    return min(counts, key=lambda section: (-counts[section], section))


def label_sections(sections: list[str]) -> tuple[np.ndarray, list[str]]:
    counts = Counter(sections)
    names = sorted(name for name, size in counts.items() if size >= MIN_CLASS and name not in ROLES)
    code = {name: index for index, name in enumerate(names)}
    return np.array([code.get(section, -1) for section in sections], dtype=np.int64), names


def link_sources(binaries: list[Record], row: dict[str, int]) -> np.ndarray:
    """Undirected edges [2, E] between sources, each once with the smaller row first."""
    home = {record["Package"]: row[source_of(record)] for record in binaries}
    providers: dict[str, set[int]] = defaultdict(set)
    for record in binaries:
        for name in dependency_names(record.get("Provides", "")):
            providers[name[0]].add(row[source_of(record)])
    pairs = set()
    for record in binaries:
        here = row[source_of(record)]
        wanted = ", ".join(record[field] for field in ("Pre-Depends", "Depends", "Recommends") if field in record)
        for alternatives in dependency_names(wanted):
            there = next((r for name in alternatives if (r := resolve(name, home, providers)) is not None), here)
            if there != here:
                pairs.add((min(here, there), max(here, there)))
    return np.array(sorted(pairs), dtype=np.int32).T


def dependency_names(field: str) -> Iterator[list[str]]:
    """Names of ``a (>= 1) | b, c:any`` as [["a", "b"], ["c"]]."""
    for clause in field.split(","):
        names = [re.split(r"[\s(:\[]", part.strip(), maxsplit=1)[0] for part in clause.split("|")]
        if names[0]:
            yield names


def resolve(name: str, home: dict[str, int], providers: dict[str, set[int]]) -> int | None:
    if name in home:
        return home[name]
    offered = providers.get(name, set())
    return next(iter(offered)) if len(offered) == 1 else None


def read_descriptions(path: Path) -> dict[str, str]:
    return {record["Description-md5"]: record.get("Description-en", "") for record in read_records(path)}


def count_words(binaries: list[Record], texts: dict[str, str]) -> Counter[str]:
    paragraphs: dict[str, None] = {}  # a dict keeps the order and drops the repeated ones
    for record in binaries:
        text = texts.get(record.get("Description-md5", ""), record.get("Description", ""))
        first, _, rest = text.partition("\n")
        paragraphs.update(dict.fromkeys([first, *rest.split("\n.\n")]))
    words = (word for text in paragraphs for word in WORD.findall(text.lower()))
    return Counter(word for word in words if word not in ENGLISH_STOP_WORDS)


def count_matrix(counters: list[Counter[str]]) -> tuple[sp.csr_matrix, list[str]]:
    spread = Counter(word for counter in counters for word in counter)
    most = MAX_DF_SHARE * len(counters)
    usable = [word for word, count in spread.items() if MIN_DF <= count <= most]
    vocabulary = sorted(sorted(usable, key=lambda word: (-spread[word], word))[:MAX_WORDS])
    column = {word: index for index, word in enumerate(vocabulary)}
    rows, columns, counts = [], [], []
    for row, counter in enumerate(counters):
        for word, count in counter.items():
            if word in column:
                rows.append(row)
                columns.append(column[word])
                counts.append(count)
    shape = (len(counters), len(vocabulary))
    return sp.csr_matrix((np.array(counts, dtype=np.float32), (rows, columns)), shape=shape), vocabulary


def group_siblings(x: sp.csr_matrix, names: list[str]) -> np.ndarray:
    """One number a node; nodes with the same number share (nearly) one text."""
    unit = sp.csr_matrix(normalize(x))
    code = {family: index for index, family in enumerate(sorted({re.sub(r"[\d.]+", "0", n) for n in names}))}
    family = np.array([code[re.sub(r"[\d.]+", "0", name)] for name in names])
    firsts, seconds = [], []
    for start in range(0, len(names), 2000):
        close = sp.coo_matrix(unit[start : start + 2000] @ unit.T)
        row, column = close.row + start, close.col
        keep = (close.data >= SAME_TEXT) | ((close.data >= SAME_FAMILY) & (family[row] == family[column]))
        firsts.append(row[keep])
        seconds.append(column[keep])
    row, column = np.concatenate(firsts), np.concatenate(seconds)
    links = sp.coo_matrix((np.ones(len(row), dtype=np.int8), (row, column)), shape=(len(names), len(names)))
    return connected_components(links.tocsr(), directed=False)[1].astype(np.int32)


def build(packages: Path, descriptions: Path) -> dict[str, np.ndarray]:
    binaries = list(read_records(packages))
    by_source: dict[str, list[Record]] = defaultdict(list)
    for record in binaries:
        by_source[source_of(record)].append(record)
    sources = sorted(by_source)
    row = {source: index for index, source in enumerate(sources)}
    texts = read_descriptions(descriptions)
    x, vocabulary = count_matrix([count_words(by_source[source], texts) for source in sources])
    y, class_names = label_sections([choose_section(source, by_source[source]) for source in sources])
    return {
        "x_data": x.data.astype(np.float32),
        "x_indices": x.indices.astype(np.int32),
        "x_indptr": x.indptr.astype(np.int64),
        "x_shape": np.array(x.shape, dtype=np.int64),
        "edges": link_sources(binaries, row),
        "y": y,
        "class_names": np.array(class_names),
        "feature_names": np.array(vocabulary),
        "node_ids": np.array(sources),
        "groups": group_siblings(x, sources),
    }


def describe(arrays: dict[str, np.ndarray], target: Path) -> None:
    nodes, words = arrays["x_shape"]
    degree = np.bincount(arrays["edges"].ravel(), minlength=nodes)
    sizes = np.bincount(arrays["groups"])
    print(f"{nodes} sources, {arrays['edges'].shape[1]} edges, {(degree == 0).sum()} without an edge")
    print(f"largest degrees: {[(str(arrays['node_ids'][i]), int(degree[i])) for i in np.argsort(-degree)[:6]]}")
    print(f"{words} words, {len(arrays['x_data'])} counts, {(np.diff(arrays['x_indptr']) == 0).sum()} empty")
    print(f"{len(sizes)} groups, the largest {np.sort(sizes)[::-1][:10].tolist()}")
    labelled = np.bincount(arrays["y"][arrays["y"] >= 0])
    print(f"{len(labelled)} sections, {(arrays['y'] < 0).sum()} sources unlabelled")
    print(", ".join(f"{arrays['class_names'][i]} {labelled[i]}" for i in np.argsort(-labelled)))
    print(f"{target.name}: {target.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", default="bookworm", help="Debian release to read (default: bookworm)")
    parser.add_argument("--out", type=Path, default=TARGET, help="file to write")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packages, descriptions, date = Apt(Path(folder), arguments.suite).fetch()
        arrays = build(packages, descriptions)
    source = f"Debian {arguments.suite}/main, package lists of {date}"
    np.savez_compressed(arguments.out, source=np.array(source), **arrays)  # pyright: ignore[reportArgumentType]
    print(source)
    describe(arrays, arguments.out)


if __name__ == "__main__":
    main()
