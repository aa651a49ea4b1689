"""Names of the seen nodes, kept by estimators that answer with nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gsparc._ids import as_id_column, as_node_ids
from gsparc.exceptions import GraphError, InputError
from gsparc.graph import Graph

__all__ = ["NodeNames"]


class NodeNames:
    """Positions to node ids and back; positions stand for themselves where the graph has no ids."""

    def __init__(self, count: int, names: np.ndarray | None) -> None:
        self._count, self._names = count, names
        self._graph: Graph | None = None

    @classmethod
    def of(cls, graph: Graph) -> NodeNames:
        """Names of a graph's nodes."""
        return cls(graph.num_nodes, graph.node_ids)

    def names(self, positions: np.ndarray) -> np.ndarray:
        """Ids at ``positions``."""
        return positions if self._names is None else self._names[positions]

    def positions(self, names: np.ndarray) -> np.ndarray:
        """Positions of ids, of any shape."""
        if self._names is None:
            if not np.issubdtype(names.dtype, np.integer):
                raise InputError(f"node ids of type {names.dtype} came, expected positions 0 to {self._count - 1}.")
            return names.astype(np.int64)
        if self._graph is None:  # the graph's own look-up, without its edges
            self._graph = Graph(np.zeros(self._count + 1, np.int64), np.zeros(0, np.int32), node_ids=self._names)
        return self._graph.ids_to_index(names.ravel()).reshape(names.shape)

    def __len__(self) -> int:
        return self._count

    def grown(self, count: int, names: Any) -> NodeNames:
        """These and the names of ``count`` new nodes; GraphError for a name that is missing, repeated or taken."""
        total = self._count + count
        if self._names is None:
            if names is not None and not np.array_equal(np.asarray(names), np.arange(self._count, total)):
                raise GraphError(
                    f"node_ids came, but this model knows its {self._count} nodes by position. Pass none: the new "
                    f"nodes are {self._count} to {total - 1}. To name nodes, fit with a graph that has node_ids."
                )
            return NodeNames(total, None)
        if names is None:
            raise GraphError(
                f"no node_ids came for {count} new nodes, but this model knows its nodes by id (such as "
                f"{self._names[0].item()!r}). Pass one id for each row of X."
            )
        fresh = as_node_ids(names, count)
        if (fresh.dtype.kind == "U") != (self._names.dtype.kind == "U"):
            raise GraphError(
                f"node_ids such as {fresh[0].item()!r} came, but the ids of this model are of another type (such as "
                f"{self._names[0].item()!r}). Convert them."
            )
        self._refuse_taken(fresh)
        return NodeNames(total, np.concatenate([self._names, fresh]))

    def _refuse_taken(self, fresh: np.ndarray) -> None:
        import pyarrow.compute as pc

        column = as_id_column(fresh, "node_ids")
        taken = pc.is_in(column, value_set=as_id_column(self._names, "node ids"))  # pyright: ignore[reportAttributeAccessIssue]
        again = column.filter(taken).to_pylist()
        if again:
            shown = ", ".join(repr(name) for name in again[:5]) + (", ..." if len(again) > 5 else "")
            raise GraphError(
                f"{len(again)} of the new node ids are nodes of the model already ({shown}). Leave those rows out: a "
                "node joins once."
            )

    def config(self) -> dict[str, Any]:
        """What is not an array."""
        kind = "positions" if self._names is None else "integers" if self._names.dtype.kind in "iu" else "strings"
        return {"kind": kind, "count": self._count}

    def arrays(self) -> dict[str, np.ndarray]:
        """Ids as integers, or as UTF-8 bytes with the end of each."""
        if self._names is None:
            return {}
        if self._names.dtype.kind in "iu":
            return {"ids": self._names.astype(np.int64)}
        encoded = [str(name).encode() for name in self._names]
        ends = np.cumsum([len(part) for part in encoded], dtype=np.int64)
        return {"bytes": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], config: dict[str, Any], count: int) -> NodeNames:
        """What :meth:`arrays` and :meth:`config` described."""
        if config["kind"] == "positions":
            return cls(count, None)
        if config["kind"] == "integers":
            names = arrays["ids"]
        else:
            data, ends = arrays["bytes"].tobytes(), arrays["ends"].tolist()
            names = np.array([data[a:b].decode() for a, b in zip([0, *ends[:-1]], ends, strict=True)])
            if arrays["bytes"].shape != (ends[-1] if ends else 0,):
                raise ValueError("the node ids do not end where their bytes end")
        if names.shape != (count,):
            raise ValueError(f"{len(names)} node ids for {count} nodes")
        return cls(count, names)
