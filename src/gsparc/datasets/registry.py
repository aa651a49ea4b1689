"""Data sets by name: what there is, where it lies, how to get it."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from gsparc._validation import check_name
from gsparc.datasets.base import Dataset, DatasetInfo
from gsparc.datasets.npz import load_npz
from gsparc.datasets.public import OgbProducts, PygSource
from gsparc.datasets.tables import load_tables
from gsparc.exceptions import DataNotFoundError, InputError

__all__ = ["as_path", "data_folders", "list_datasets", "load_dataset"]

logger = logging.getLogger(__name__)

_FORMATS = "Pass the path of an .npz file, or of a folder with nodes.parquet and edges.parquet."
_EMBEDDED = Path(__file__).with_name("debian.npz")


@dataclass(frozen=True)
class _Entry:
    nodes: int
    edges: int
    features: int
    classes: int
    source: str
    description: str
    public: PygSource | OgbProducts | None = None


def _planetoid(name: str) -> PygSource:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{name.lower()}.{part}" for part in parts)
    return PygSource("Planetoid", "planetoid", f"{name}/raw", files, {"name": name})


_CITATIONS = "papers, an edge where one cites the other; features: words"
_PRODUCTS = "goods, an edge where they are often bought together; features: words of reviews"
_POSTS = "posts, an edge where the same people comment on both; features: embedded text; class: community"
_GRAPHSAINT = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
_ACTOR = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
_ENTRIES: dict[str, _Entry] = {
    "debian": _Entry(
        34169,
        173558,
        5000,
        45,
        "Debian bookworm/main, embedded",
        "source packages, an edge where one depends on or recommends the other; features: counts of words of "
        "the descriptions, the 5,000 words (no stop words) that the most packages use, chosen over all packages "
        "before any split; class: section",
    ),
    "cora": _Entry(2708, 5278, 1433, 7, "Planetoid", _CITATIONS, _planetoid("Cora")),
    "citeseer": _Entry(3327, 4552, 3703, 6, "Planetoid", _CITATIONS, _planetoid("CiteSeer")),
    "pubmed": _Entry(19717, 44324, 500, 3, "Planetoid", _CITATIONS, _planetoid("PubMed")),
    "amazon_photo": _Entry(
        7650,
        119081,
        745,
        8,
        "Shchur et al. 2018",
        _PRODUCTS,
        PygSource("Amazon", "amazon", "Photo/raw", ("amazon_electronics_photo.npz",), {"name": "Photo"}),
    ),
    "amazon_computers": _Entry(
        13752,
        245861,
        767,
        10,
        "Shchur et al. 2018",
        _PRODUCTS,
        PygSource("Amazon", "amazon", "Computers/raw", ("amazon_electronics_computers.npz",), {"name": "Computers"}),
    ),
    "coauthor_cs": _Entry(
        18333,
        81894,
        6805,
        15,
        "Shchur et al. 2018",
        "authors, an edge where they wrote together; features: keywords of their papers; class: field",
        PygSource("Coauthor", "coauthor", "CS/raw", ("ms_academic_cs.npz",), {"name": "CS"}),
    ),
    "cora_ml": _Entry(
        2995,
        8158,
        2879,
        7,
        "Bojchevski and Günnemann 2018",
        _CITATIONS,
        PygSource("CitationFull", "citation_full", "cora_ml/raw", ("cora_ml.npz",), {"name": "Cora_ML"}),
    ),
    "actor": _Entry(
        7600,
        26659,
        932,
        5,
        "Pei et al. 2020",
        "actors, an edge where one page names both; features: words of the pages",
        PygSource("Actor", "actor", "raw", _ACTOR),
    ),
    "reddit": _Entry(
        232965,
        57307946,
        602,
        41,
        "Hamilton et al. 2017",
        _POSTS,
        PygSource("Reddit", "reddit", "raw", ("reddit_data.npz", "reddit_graph.npz")),
    ),
    "reddit2": _Entry(
        232965,
        11606919,
        602,
        41,
        "Zeng et al. 2020 (the sparser version of reddit that most papers count)",
        _POSTS,
        PygSource("Reddit2", "reddit2", "raw", _GRAPHSAINT),
    ),
    "amazon2m": _Entry(2449029, 61859140, 100, 47, "ogbn-products, Open Graph Benchmark", _PRODUCTS, OgbProducts()),
}


def data_folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where data sets are looked for, in order.

    ``folder`` alone if given; else the folder named by the environment variable ``GSPARC_DATA`` alone if
    set; else ``shared/data`` beside the source checkout that gsparc runs from, if it does, and the user's
    cache. The working directory plays no part.
    """
    if folder is not None:
        return [Path(folder).expanduser()]
    if os.environ.get("GSPARC_DATA"):
        return [Path(os.environ["GSPARC_DATA"]).expanduser()]
    return [place for place in (_beside_checkout(Path(__file__)), _cache()) if place is not None]


def _beside_checkout(file: Path) -> Path | None:
    """``../shared/data`` from the root of the checkout that holds ``file``; None for an installed package."""
    root = file.resolve().parents[3]  # file: <root>/src/gsparc/datasets/registry.py
    project, data = root / "pyproject.toml", root.parent / "shared" / "data"
    ours = project.is_file() and 'name = "gsparc"' in project.read_text(encoding="utf-8")
    return data if ours and data.is_dir() else None


def _cache() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gsparc"
    except RuntimeError:  # an account without a home folder
        return None


def load_dataset(
    name: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = False,
    allow_pickle_sources: bool = True,
    label: str | None = None,
) -> Dataset:
    """Load a data set by name, or from the user's own files.

    Parameters
    ----------
    name : str or path
        A name from :func:`list_datasets`; case, dashes and underscores do not matter. Or the path of an
        ``.npz`` file (see :func:`load_npz`), or of a folder with ``nodes.parquet`` and ``edges.parquet``
        (see :func:`load_tables`).
    folder : path, optional
        Where the files are. Default: the folder in the environment variable ``GSPARC_DATA``, or else
        ``shared/data`` beside the source checkout, where gsparc runs from one, and the user's cache.
    download : bool
        Let torch_geometric or ogb fetch a data set that is not there.
    allow_pickle_sources : bool
        Some public data sets come in files that torch_geometric unpickles. ``False`` refuses those; the
        command line always does.
    label : str, optional
        For a folder of tables: the column of ``nodes.parquet`` that holds the classes.

    Examples
    --------
    >>> from gsparc.datasets import load_dataset
    >>> data = load_dataset("debian")
    >>> data
    Dataset('debian': 34,169 nodes, 173,558 edges, 5,000 features, 45 classes)
    >>> data.class_names[data.y[data.graph.ids_to_index(["vim", "apache2"])]].tolist()
    ['editors', 'httpd']
    """
    path = as_path(name)
    if label is not None and (path is None or not path.is_dir()):
        raise InputError(
            f"label={label!r} names a column of nodes.parquet, but {str(name)!r} is no folder of tables. "
            "Leave it out: named data sets and .npz files say themselves what their classes are."
        )
    if path is not None:
        return _load_path(path, label)
    key = check_name("data set", _canonical(str(name)), _ENTRIES)
    entry = _ENTRIES[key]
    if key == "debian":
        return replace(load_npz(_EMBEDDED), name=key, description=entry.description)
    folders = data_folders(folder)
    for place in folders:
        if (place / f"{key}.npz").is_file():
            data = load_npz(place / f"{key}.npz")
            return replace(data, name=key, description=entry.description, source=data.source or entry.source)
    return replace(_load_public(key, entry, folders, download, allow_pickle_sources), description=entry.description)


def list_datasets(folder: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """All named data sets, and whether their files are on this machine.

    Examples
    --------
    >>> from gsparc.datasets import list_datasets
    >>> list_datasets()[0].name, list_datasets()[0].available
    ('debian', True)
    """
    folders = data_folders(folder)
    lines = []
    for name, entry in _ENTRIES.items():
        found = name == "debian" or _find(name, entry, folders) is not None
        how = "comes with gsparc" if name == "debian" else _how_to_get(name, entry)
        sizes = (entry.nodes, entry.edges, entry.features, entry.classes)
        lines.append(DatasetInfo(name, *sizes, entry.source, found, how))
    return lines


def _canonical(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def as_path(name: str | os.PathLike[str]) -> Path | None:
    """``name`` as a path if it is meant as one: it has a suffix or a separator, or exists; a known name is none."""
    if isinstance(name, os.PathLike):
        return Path(name)
    if not isinstance(name, str) or _canonical(name) in _ENTRIES:
        return None
    path = Path(name).expanduser()
    looks = bool(path.suffix) or os.sep in name or "/" in name
    return path if looks or path.exists() else None


def _load_path(path: Path, label: str | None) -> Dataset:
    if path.is_dir():
        tables = path / "nodes.parquet", path / "edges.parquet"
        missing = [table.name for table in tables if not table.is_file()]
        if missing:
            raise DataNotFoundError(
                f"the folder {path} has no {' and no '.join(missing)}. Expected nodes.parquet (one row a "
                "node) and edges.parquet (one row an edge), or pass the path of an .npz file."
            )
        return load_tables(*tables, label=label, name=path.resolve().name)
    if not path.exists():
        raise DataNotFoundError(f"there is no file {path}. {_FORMATS}")
    if path.suffix != ".npz":
        raise InputError(f"{path} is not an .npz file. {_FORMATS}")
    return load_npz(path)


def _find(name: str, entry: _Entry, folders: list[Path]) -> Path | None:
    for folder in folders:
        if (folder / f"{name}.npz").is_file():
            return folder / f"{name}.npz"
        root = entry.public.root_in(folder) if entry.public else None
        if root is not None:
            return root
    return None


def _load_public(name: str, entry: _Entry, folders: list[Path], download: bool, allow_pickle_sources: bool) -> Dataset:
    public = entry.public
    if public is None:
        raise _not_found(name, entry, folders)
    root = next((root for place in folders if (root := public.root_in(place)) is not None), None)
    if root is None and not (download and folders):
        raise _not_found(name, entry, folders)
    if public.unpickles and not allow_pickle_sources:
        raise DataNotFoundError(
            f"the files of data set {name!r} need torch_geometric, which unpickles them; that is not "
            f"allowed here. Convert them once in Python: from gsparc.datasets import load_dataset, save_npz; "
            f'save_npz(load_dataset("{name}"), "{name}.npz"), then use {name}.npz.'
        )
    logger.info("reading %s from %s", name, root or "the internet")
    return public.load(name, root or folders[-1] / public.root)


def _not_found(name: str, entry: _Entry, folders: list[Path]) -> DataNotFoundError:
    looked = ", ".join(str(folder) for folder in folders) or "no folder, as there is no home folder"
    return DataNotFoundError(
        f"the files of data set {name!r} are not on this machine. Looked for {name}.npz and the original "
        f"files in: {looked}. {_how_to_get(name, entry)}, or say where they are with folder= or the "
        "environment variable GSPARC_DATA."
    )


def _how_to_get(name: str, entry: _Entry) -> str:
    extra = entry.public.extra if entry.public else "all"
    code = f'from gsparc import load_dataset; load_dataset("{name}", download=True)'
    return f"Get it with: pip install 'gsparc[{extra}]' && python -c '{code}'"
