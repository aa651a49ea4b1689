"""Public data sets through the loaders of torch_geometric and ogb.

Those loaders unpickle some of their own files, so they run only when Python code asks for such a data
set by name; the command line forbids them and reads ``.npz`` files alone.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._optional import import_optional
from gsparc._typing import Features
from gsparc.datasets.base import Dataset
from gsparc.exceptions import InputError
from gsparc.graph import Graph

__all__ = ["OgbProducts", "PygSource"]

_SPARSE_BELOW = 0.25  # a matrix with fewer non-zeros than this share is smaller as CSR


@dataclass(frozen=True)
class PygSource:
    """A data set class of torch_geometric and the files that it reads.

    Attributes
    ----------
    loader : str
        Class in ``torch_geometric.datasets``.
    root : str
        Folder inside the data folder that is the class's ``root``.
    raw : str
        Folder of the original files, inside ``root``.
    files : tuple of str
        Original files; when one is missing the class would start a download.
    options : dict
        Other arguments of the class.
    """

    loader: str
    root: str
    raw: str
    files: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    extra = "pyg"
    unpickles = True

    def root_in(self, folder: Path) -> Path | None:
        """The ``root`` in ``folder``, which may be the data folder or the root itself; None if not there."""
        for root in (folder / self.root, folder):
            if all((root / self.raw / name).is_file() for name in self.files):
                return root
        return None

    def load(self, name: str, root: Path) -> Dataset:
        """Read the files under ``root``, having let torch_geometric download them if they are not there."""
        module = import_optional("torch_geometric.datasets", extra="pyg", purpose=f"the data set {name!r}")
        here = self.root_in(root) is not None
        with _borrowed(root, self.raw) if here else contextlib.nullcontext(root) as folder:
            data = getattr(module, self.loader)(root=str(folder), **self.options)[0]
        return Dataset(
            X=_smaller(data.x.numpy()),
            y=data.y.numpy().astype(np.int64),
            graph=Graph.from_edges(data.edge_index.numpy(), num_nodes=int(data.num_nodes)),
            name=name,
            source=f"torch_geometric.datasets.{self.loader}",
        )


@contextlib.contextmanager
def _borrowed(root: Path, raw: str) -> Iterator[Path]:
    """A temporary root whose original files are those of ``root``.

    torch_geometric writes what it has worked out beside the files it read. Reading must leave the user's
    folder as it is, and permissions do not see to that: they do not stop an administrator.
    """
    with tempfile.TemporaryDirectory() as temporary:
        link = Path(temporary) / raw
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to((root / raw).resolve(), target_is_directory=True)
        yield Path(temporary)


def _smaller(x: NDArray[Any]) -> Features:
    """Dense features as they are; mostly-zero ones as CSR."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    if np.count_nonzero(x) >= _SPARSE_BELOW * x.size:
        return x
    return sp.csr_array(x)


@dataclass(frozen=True)
class OgbProducts:
    """ogbn-products: its own compressed CSV files, fetched by ogb."""

    root: str = "amazon2m"
    extra = "ogb"
    unpickles = False  # the CSV files are read here; ogb only fetches them

    files = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")

    def root_in(self, folder: Path) -> Path | None:
        """The folder that holds ``ogbn_products``; None if it is not there."""
        for root in (folder / self.root, folder):
            if all((root / "ogbn_products" / "raw" / name).is_file() for name in self.files):
                return root
        return None

    def load(self, name: str, root: Path) -> Dataset:
        """Read the files under ``root``, having let ogb download them if they are not there."""
        if self.root_in(root) is None:
            ogb = import_optional("ogb.nodeproppred", extra="ogb", purpose=f"the data set {name!r}")
            ogb.NodePropPredDataset(name="ogbn-products", root=str(root))
        raw = (self.root_in(root) or root) / "ogbn_products" / "raw"
        X = _read_csv(raw / "node-feat.csv.gz", np.float32)
        y = _read_csv(raw / "node-label.csv.gz", np.float64)[:, 0]
        edges = _read_csv(raw / "edge.csv.gz", np.int32).T
        return Dataset(
            X=X,
            y=np.where(np.isfinite(y), y, -1).astype(np.int64),
            graph=Graph.from_edges(edges, num_nodes=X.shape[0]),
            name=name,
            source="ogbn-products, Open Graph Benchmark",
        )


def _read_csv(path: Path, dtype: type) -> NDArray[Any]:
    """A compressed CSV file of numbers without a header, streamed into one array a batch at a time."""
    import pyarrow as pa
    from pyarrow import csv

    blocks = []
    try:
        with csv.open_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=True)) as reader:
            for batch in reader:
                block = np.empty((batch.num_rows, batch.num_columns), dtype=dtype)
                for index, column in enumerate(batch.columns):
                    block[:, index] = column.to_numpy(zero_copy_only=False)
                blocks.append(block)
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read as a table of numbers: {error}. Fetch it again.") from error
    return np.concatenate(blocks)
