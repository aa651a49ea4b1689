"""The seen nodes as the explorer needs them: looked up, searched, and all at once as one binary map.

The map (``GET /v1/map``, little-endian throughout)::

    uint32          H, the number of bytes of the header
    H bytes         JSON: {"count", "classes": [...], "clusters", "version", "layout"}, padded with spaces so
                    that what follows starts at a multiple of 4 bytes
    float32[count]  x of every node
    float32[count]  y
    int16[count]    class, a position in "classes"; -1: none
    int16[count]    cluster; -1: none

A node's place in these arrays is its ``index`` in the answers of the other routes.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NodeTable"]

_SHOWN = 50  # neighbours on a card
_LAYOUT = [["x", "float32"], ["y", "float32"], ["class", "int16"], ["cluster", "int16"]]


class NodeTable:
    """Ids, classes, clusters and places of the seen nodes.

    Parameters
    ----------
    ids
        One a node, strings or whole numbers.
    classes
        Class names a node, ``None`` where it has none; or ``None`` for a model without classes.
    clusters
        Cluster numbers, -1 where there is none; or ``None``.
    position
        ``[n, 2]``, the place of each node on the picture.
    neighbours
        Gives the places of the nodes that one is linked to; ``None`` where the model does not hold its edges.

    Examples
    --------
    >>> table = NodeTable(["apt", "zlib"], ["admin", "libs"], None, np.array([[0, 1], [1, 0]]))
    >>> table.card(table.index("zlib"))["class"]
    'libs'
    """

    def __init__(
        self,
        ids: Any,
        classes: Any,
        clusters: Any,
        position: Any,
        neighbours: Callable[[int], Any] | None = None,
    ) -> None:
        self._neighbours = neighbours
        self.ids = [_plain(value) for value in ids]
        self.position = np.ascontiguousarray(position, dtype="<f4").reshape(len(self.ids), 2)
        self.class_names, self.class_codes = _encode(classes, len(self.ids))
        codes = np.full(len(self.ids), -1) if clusters is None else np.asarray(clusters)
        self.clusters: NDArray[np.int16] = codes.astype("<i2")

    @classmethod
    def of(cls, model: Any) -> NodeTable:
        """The table of a model's ``nodes()``."""
        nodes = model.nodes()
        neighbours = getattr(model, "neighbours", None)
        return cls(nodes["id"], nodes.get("class"), nodes.get("cluster"), nodes["position"], neighbours)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {str(value): index for index, value in enumerate(self.ids)}

    @cached_property
    def _arrow_ids(self) -> Any:
        import pyarrow as pa

        return pa.array([str(value) for value in self.ids], type=pa.large_string())

    def index(self, node: Any) -> int | None:
        """The place of a node by its id; ids are compared as text, as they come in addresses."""
        return self._places.get(str(node))

    def card(self, index: int, *, neighbours: bool = False) -> dict[str, Any]:
        """What is known of one node; with ``neighbours`` those it is linked to, the first ones of many."""
        code, cluster = int(self.class_codes[index]), int(self.clusters[index])
        card = {
            "id": self.ids[index],
            "index": index,
            "class": self.class_names[code] if code >= 0 else None,
            "cluster": cluster if cluster >= 0 else None,
            "position": [float(value) for value in self.position[index]],
        }
        ends = self._neighbours(index) if neighbours and self._neighbours is not None else None
        if ends is not None:
            card["degree"] = len(ends)
            card["neighbours"] = [self._reference(int(end)) for end in ends[:_SHOWN]]
        return card

    def _reference(self, index: int) -> dict[str, Any]:
        code = int(self.class_codes[index])
        return {"id": self.ids[index], "index": index, "class": self.class_names[code] if code >= 0 else None}

    def search(self, query: str, limit: int) -> list[dict[str, Any]]:
        """Nodes whose id holds ``query``, whatever the case: the same id first, then those that begin with it."""
        import pyarrow.compute as pc

        hit = pc.match_substring(self._arrow_ids, query, ignore_case=True)  # pyright: ignore
        hits = np.flatnonzero(hit.to_numpy(zero_copy_only=False)).tolist()
        wanted = query.lower()

        def rank(index: int) -> tuple[int, int, str]:
            text = str(self.ids[index]).lower()
            return (0 if text == wanted else 1 if text.startswith(wanted) else 2, len(text), text)

        return [self.card(index) for index in heapq.nsmallest(limit, hits, key=rank)]

    def map_bytes(self, version: str) -> bytes:
        """All nodes as described at the top of this file."""
        header = {
            "count": len(self),
            "classes": self.class_names,
            "clusters": int(self.clusters.max(initial=-1)) + 1,
            "version": version,
            "layout": _LAYOUT,
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 4)
        x, y = np.ascontiguousarray(self.position.T)
        arrays = (x, y, self.class_codes, self.clusters)
        return b"".join([struct.pack("<I", len(text)), text, *(array.tobytes() for array in arrays)])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _encode(classes: Any, count: int) -> tuple[list[Any], NDArray[np.int16]]:
    """Classes in the order of their names, and each node's position among them."""
    if classes is None:
        return [], np.full(count, -1, dtype="<i2")
    values = [_plain(value) for value in classes]
    names = sorted({value for value in values if value is not None}, key=str)
    places: dict[Any, int] = {name: place for place, name in enumerate(names)}
    return names, np.array([places.get(value, -1) for value in values], dtype="<i2")
