"""StoreModel: predictions from a graph that does not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from gsparc._mapped import release
from gsparc._runtime import plain_torch, resolve_device
from gsparc.estimators._base import part_of, prefixed
from gsparc.estimators._conformal import Calibration, p_values
from gsparc.estimators._ranking import unit
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError
from gsparc.model_store import ModelFiles, bounded_tensors, write_folder
from gsparc.nn.mlp import FeatureMLP
from gsparc.ops.neighbors import NeighborIndex
from gsparc.tables.answering import _REASONS, OwnNodes, asked_rows, names_of
from gsparc.tables.columns import Columns, EdgeColumns
from gsparc.tables.model import TableModel
from gsparc.tables.predictions import Predictions
from gsparc.tables.preprocess import Preprocessor
from gsparc.tables.store import PREPROCESS, damaged, names_from_arrays, names_to_arrays
from gsparc.training.batches import FeatureSource
from gsparc.training.classify import class_logits

__all__ = ["ABOUT", "StoreModel", "StringIds", "coordinates_of"]

ABOUT = (
    "a model of a large store: a spectral map, a network of features and coordinates for the classes, and an index of "
    "all nodes. It has no graph network, and takes no first edges, does not grow and does not cluster."
)

_FAR_BELOW = 0.01
_BLOCK = 16_384


class StringIds:
    """Ids in a mapped file, as an array of strings that is made only where it is looked at.

    Examples
    --------
    >>> StringIds(np.frombuffer(b"abccc", np.uint8), np.array([1, 2, 5]))[np.array([2, 0])].tolist()
    ['ccc', 'a']
    """

    dtype = np.dtype(np.str_)

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.data, self.ends = data, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        places = np.arange(len(self))[index] if isinstance(index, slice) else np.asarray(index)
        last = self.ends[places.ravel()]
        first = np.where(places.ravel() > 0, self.ends[np.maximum(places.ravel() - 1, 0)], 0)
        words = [self.data[a:b].tobytes().decode() for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        return np.array(words, np.str_).reshape(places.shape)


def coordinates_of(spectral: SpectralMap, X: Any) -> NDArray[np.float32]:
    """Coordinates that nodes are compared by: scaled by the root of ``mu``, every row of one length."""
    mu = np.sqrt(np.clip(1 - spectral.eigenvalues_, 0, None)).astype(np.float32)
    return unit(spectral._transform(X) * mu) * np.float32(len(mu) ** 0.5)


class StoreModel(TableModel):
    """A model of a store: F_theta, a network of features and coordinates for the classes, and an index of all nodes.

    It answers as :class:`~gsparc.tables.model.TableModel` does, in memory that depends on the index alone. Links are
    the nearest nodes in the eigenspace, as in the paper. Made by :func:`gsparc.storage.fitting.fit_store`.
    """

    def __init__(
        self,
        columns: Columns,
        edge_columns: EdgeColumns,
        preprocess: Preprocessor,
        node_ids: Any,
        *,
        spectral: SpectralMap,
        neighbors: NeighborIndex,
        head: FeatureMLP | None,
        temperature: float,
        codes: NDArray[np.int32] | None,
        class_names: NDArray[Any] | None,
        calibration: Calibration,
        report: dict[str, Any],
    ) -> None:
        self.columns, self.edge_columns, self.preprocess, self.node_ids = columns, edge_columns, preprocess, node_ids
        self.classifier = self.links = self.clusterer = None
        self.spectral, self.neighbors, self.head, self.temperature = spectral, neighbors, head, temperature
        self.codes, self.class_names, self.calibration, self.report = codes, class_names, calibration, report
        self.top_scores = self.space_rows = None
        self.picture = np.zeros((0, 2), np.float32)
        self._lookup = self._index = self._far = None

    about = ABOUT

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the model was fitted for."""
        return ("links",) if self.head is None else ("classes", "links")

    def indexes(self) -> dict[str, str]:
        """The index of the known nodes in a sentence."""
        return {"nodes": self.neighbors.summary()}

    def index(self) -> NeighborIndex:
        """The index of the nodes' coordinates."""
        return self.neighbors

    def labels(self) -> NDArray[Any] | None:
        """Class of each known node, None where it has none; None for a model without classes."""
        return None if self.codes is None or self.class_names is None else names_of(self.class_names, self.codes)

    def embed(self, table: Any) -> NDArray[np.float32]:
        """Coordinates of rows, ``[m, k]``."""
        return coordinates_of(self.spectral, self.features(table)[0])

    def grow(self, nodes: Any, edges: Any = None, edge_columns: Any = None) -> dict[str, Any]:
        """Not offered: a store is ingested again."""
        raise InputError("a model of a store does not grow. Ingest the tables with the new rows, and fit again.")

    def evaluate(self, table: Any, *, coverage: float = 0.9, links: Any = None) -> dict[str, Any]:
        """Not offered: what was measured on held-out rows is in the report."""
        raise InputError("a model of a store is measured when it is fitted; see gsparc info MODEL.")

    @plain_torch()
    def proba(self, X: Any, coordinates: NDArray[np.float32]) -> NDArray[np.float32]:
        """Class probabilities of rows."""
        assert self.head is not None
        device = resolve_device(self.spectral.device)
        source, beside = FeatureSource(X, self.spectral._scaling, device), torch.from_numpy(coordinates).to(device)
        rows = torch.arange(X.shape[0], device=device)
        logits = class_logits(self.head.to(device), lambda part: (source.rows(part), beside[part]), rows)
        return torch.softmax(logits / self.temperature, dim=1).cpu().numpy()

    def predict(
        self,
        table: Any,
        *,
        coverage: float | None = 0.9,
        links: int = 5,
        near: int = 5,
        edges: Any = None,
        ids: Any = None,
        position: bool = True,
        abstain: bool = True,
    ) -> Predictions:
        """What the model says about rows; see :meth:`TableModel.predict <gsparc.tables.model.TableModel.predict>`."""
        if edges is not None:
            raise InputError("a model of a store takes no first edges of new rows. Leave --edges out.")
        X, _, out = asked_rows(self, table, coverage=coverage, links=links, near=near, ids=ids)
        if not X.shape[0]:
            return out
        coordinates = coordinates_of(self.spectral, X)

        def search(rows: Any, k: int) -> tuple[Any, Any]:
            distances, places = self.neighbors.search(rows, k)
            return np.array(places), np.array(distances)

        own = OwnNodes(self, table, out.ids, given=ids is not None)
        places, distances = own.leave_out(coordinates, *search(coordinates, max(near, links, 3)), search=search)
        if self.head is not None:
            self._classify(out, X, coordinates, coverage)
        if near:
            classes = (
                None if self.codes is None else names_of(np.asarray(self.class_names), self.codes[places[:, :near]])
            )
            out.near = self.node_ids[places[:, :near]], distances[:, :near], classes
        if links:
            out.links = self.node_ids[places[:, :links]], 1.0 - distances[:, :links]
        if abstain:
            self._abstain(out, distances)
        return out

    def _classify(self, out: Predictions, X: Any, coordinates: NDArray[np.float32], coverage: float | None) -> None:
        proba = self.proba(X, coordinates)
        best = proba.argmax(axis=1)
        out.proba, out.classes = proba, np.asarray(self.class_names)[best]
        out.confidence = proba[np.arange(len(best)), best]
        if coverage is not None:
            out.members = self.calibration.sets(proba, coverage, np.zeros(len(proba), bool))

    def _abstain(self, out: Predictions, distances: NDArray[np.float32]) -> None:
        reason = np.zeros(len(distances), np.int64)
        if out.members is not None and out.members.shape[1] > 1:
            reason[out.members.all(axis=1)] = 1
        if len(self.calibration.distances):
            out.novelty = p_values(self.calibration.distances, distances[:, :3].mean(axis=1))
            reason[out.novelty <= max(_FAR_BELOW, 1.0 / (1 + len(self.calibration.distances)) + 1e-9)] = 2
        out.why, out.abstained = [_REASONS[code] for code in reason.tolist()], reason > 0

    def save(self, folder: str | os.PathLike[str], *, documents: Mapping[str, bytes] | None = None) -> None:
        """Write the model; an existing one is replaced as a whole."""
        saved_map, arrays = self.spectral._as_part()
        arrays = prefixed("map", arrays)
        index_arrays, index = self.neighbors.state()
        arrays |= prefixed("index", index_arrays) | prefixed("calibration", self.calibration.arrays())
        config: dict[str, Any] = {"class": "StoreModel", "map": saved_map, "index": index, "report": self.report}
        config |= {"columns": self.columns.to_json(), "edge_columns": vars(self.edge_columns), "class_names": None}
        config |= {"counts": self.calibration.counts(), "head": None, "temperature": self.temperature}
        config["node_ids"] = len(self.node_ids)
        if isinstance(self.node_ids, StringIds):
            arrays |= {"ids.bytes": self.node_ids.data, "ids.ends": self.node_ids.ends}
        else:
            arrays["ids.numbers"] = np.asarray(self.node_ids, np.int64)
        if self.class_names is not None and self.head is not None and self.codes is not None:
            config["class_names"], own = names_to_arrays(self.class_names, "class_names")
            config["head"] = self.head.config()
            weights = {name: value.cpu().numpy() for name, value in self.head.state_dict().items()}
            arrays |= own | {"codes": self.codes} | prefixed("head", weights)
        write_folder(
            folder, config, arrays, files={PREPROCESS: self.preprocess.to_bytes()}, documents=dict(documents or {})
        )
        release(*arrays.values())

    @classmethod
    @plain_torch()
    def from_files(cls, found: ModelFiles, folder: Any) -> Self:
        """What :meth:`save` wrote; DamagedModelError where its parts do not fit together."""
        try:
            with bounded_tensors(sum(array.size for array in found.arrays.values()) + 1_000_000):
                return cls(**_parts(found))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
            raise damaged(folder, error) from error


def _parts(found: ModelFiles) -> dict[str, Any]:
    config, arrays = found.config, found.arrays
    columns = Columns.from_json(config["columns"])
    preprocess = Preprocessor.from_bytes(found.files[PREPROCESS], columns)
    neighbors = NeighborIndex.from_state(part_of(arrays, "index"), config["index"])
    ids = arrays["ids.numbers"] if "ids.numbers" in arrays else StringIds(arrays["ids.bytes"], arrays["ids.ends"])
    names, head = config["class_names"], None
    if config["head"] is not None:
        head = FeatureMLP(**config["head"])
        head.load_state_dict({name: torch.from_numpy(value) for name, value in part_of(arrays, "head").items()})
        head.eval()
    if not len(ids) == neighbors.num_vectors == config["node_ids"]:
        raise ValueError(f"{len(ids)} ids for {neighbors.num_vectors} nodes")
    codes = arrays.get("codes")
    if (names is None) != (head is None) or (head is not None and (codes is None or len(codes) != len(ids))):
        raise ValueError("the classes do not belong to the network")
    return {
        "columns": columns,
        "edge_columns": EdgeColumns(**config["edge_columns"]),
        "preprocess": preprocess,
        "node_ids": ids,
        "spectral": SpectralMap._from_part(config["map"], part_of(arrays, "map"), preprocess.n_features),
        "neighbors": neighbors,
        "head": head,
        "temperature": float(config["temperature"]),
        "codes": codes,
        "class_names": None if names is None else names_from_arrays(names, arrays, "class_names"),
        "calibration": Calibration.from_arrays(part_of(arrays, "calibration"), config["counts"]),
        "report": config["report"],
    }
