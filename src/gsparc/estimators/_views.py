"""What networks read of nodes: features, coordinates, tokens and neighbours, of seen nodes and of new ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gsparc._runtime import seeded, timed
from gsparc._validation import check_share
from gsparc.estimators._base import CPU, part_of, prefixed
from gsparc.estimators._directions import MOST_SHARE, DirectionView
from gsparc.estimators._ranking import unit
from gsparc.nn.spectral_map import SparseRows
from gsparc.ops._grown_tokens import grown_tokens
from gsparc.ops._knn import unit_rows
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.tokens import TokenIndex
from gsparc.training.batches import FeatureSource, Scaling

__all__ = ["NodeView", "SeenNodes", "dense_rows", "reduced_features"]

_WIDE = 1024  # columns up to which dense features are averaged as they are
_WIDE_SPARSE = 512  # the same for sparse ones
_DIRECTIONS = 256
_POWER_STEPS = 3  # of the search for them
_FILLED = 1 << 28  # entries that a GPU takes for it, sparse ones filled up
_CACHED = 1 << 27  # numbers that are kept between epochs: 512 MB of token lists
_SHARE = 0.3  # of the free memory of a GPU that they may take there
_MANY = 100_000  # nodes whose neighbours are not all looked for to know those of a few
_BLOCK = 16_384
_LISTS = {"cpu": 4096, "cuda": 16_384}  # token lists made at once


def dense_rows(x: Tensor | SparseRows, width: int) -> Tensor:
    """Rows as a dense matrix."""
    if isinstance(x, Tensor):
        return x
    row = torch.repeat_interleave(
        torch.arange(len(x), device=x.values.device), x.pointers.diff(), output_size=len(x.values)
    )
    out = x.values.new_zeros(len(x) * width)
    return out.index_put_((row * width + x.columns,), x.values, accumulate=True).view(len(x), width)


def leading_directions(X: Any, scaling: Scaling, seed: int, device: torch.device = CPU) -> np.ndarray | None:
    """Directions ``[d, r]`` that wide features are reduced to before they are averaged; ``None``: as they are.

    Means over neighbourhoods of words are averages of hundreds of rows: their leading singular directions
    say nearly all, and a batch of token lists stays small. The nodes' own words are read in full beside them.
    """
    n, d = X.shape
    if d <= (_WIDE_SPARSE if sp.issparse(X) else _WIDE):
        return None
    rank = min(_DIRECTIONS, n, d)
    sample: Any = X if n <= 100_000 else X[np.sort(np.random.default_rng(seed).choice(n, 100_000, replace=False))]
    if scaling.rows:
        length = np.sqrt(np.asarray((sample.multiply(sample) if sp.issparse(sample) else sample**2).sum(axis=1)))
        factor = np.divide(1.0, length.ravel(), out=np.zeros(sample.shape[0]), where=length.ravel() > 0)
        sample = sp.csr_array(sp.diags_array(factor) @ sample) if sp.issparse(sample) else sample * factor[:, None]
    else:
        assert scaling.factor is not None
        sample = sample @ sp.diags_array(scaling.factor) if sp.issparse(sample) else sample * scaling.factor
    find = _directions_on_device if device.type == "cuda" and sample.shape[0] * d <= _FILLED else _directions
    return np.ascontiguousarray(find(sample, rank, seed, device), dtype=np.float32)


def _directions(rows: Any, rank: int, seed: int, _: torch.device) -> np.ndarray:
    """Leading right singular vectors ``[d, rank]`` of dense or sparse rows, by a randomised range finder."""
    from sklearn.utils.extmath import randomized_svd

    found = randomized_svd(rows, rank, n_iter=_POWER_STEPS, random_state=seed % (2**32 - 1))  # type: ignore[arg-type]
    return found[2].T


def _directions_on_device(rows: Any, rank: int, seed: int, device: torch.device) -> np.ndarray:
    """The same on ``device``, where sparse rows are filled up."""
    filled = torch.as_tensor(rows.toarray() if sp.issparse(rows) else rows, dtype=torch.float32, device=device)
    with seeded(seed, device):
        _, _, right = torch.svd_lowrank(filled, min(rank + 10, *filled.shape), niter=_POWER_STEPS)
    return right[:, :rank].cpu().numpy()


class SeenNodes:
    """The seen nodes as networks read them: rows to average, coordinates, and the index that finds near ones.

    Parameters
    ----------
    rows
        ``[n, r]`` scaled features, or their leading directions where they are wide.
    index
        Of the spectral coordinates ``[n, k]``, every row of length ``sqrt(k)``; with `words`, of these and the features
        side by side.
    words, share
        Features as they are compared, and how much they count beside the coordinates in telling who is near; ``None``:
        not at all.
    """

    def __init__(
        self,
        scaling: Scaling,
        directions: Tensor | None,
        scale: float,
        rows: Tensor,
        index: NeighborIndex,
        device: torch.device,
        *,
        seed: int = 0,
        words: DirectionView | None = None,
        share: float = 0.0,
    ) -> None:
        self.scaling, self.directions, self.scale, self.rows = scaling, directions, scale, rows
        self.index, self.device, self.seed = index, device, seed
        self.words, self.share = words, share
        found = index.rows().to(device)
        if words is not None:
            found = unit_rows(found[:, : index.dim - words.directions.shape[1]])
        self.coordinates = found * found.shape[1] ** 0.5
        self._tokens: TokenIndex | None = None

    @classmethod
    def fit(
        cls,
        X: Any,
        scaling: Scaling,
        coordinates: np.ndarray,
        device: torch.device,
        seed: int,
        memory: int | None = None,
        words: DirectionView | None = None,
        share: float = 0.0,
    ) -> tuple[SeenNodes, NodeView]:
        """The seen nodes, and their own view."""
        source = FeatureSource(X, scaling, device)
        rows, directions, scale = reduced_features(X, source, seed)
        places = _places(X, coordinates, words, share)
        index = NeighborIndex.build(places, metric="cosine", device=device, memory=memory, seed=seed)
        seen = cls(scaling, directions, scale, rows, index, device, seed=seed, words=words, share=share)
        return seen, seen._view(source, coordinates, places, own=True)

    @property
    def table(self) -> Tensor:
        """What is averaged: rows and coordinates side by side, ``[n, r + k]``."""
        if not hasattr(self, "_table"):
            self._table = torch.cat([self.rows, self.coordinates], dim=1)
        return self._table

    @property
    def tokens(self) -> TokenIndex:
        """Token lists; built when first asked for."""
        if self._tokens is None:
            self._tokens = TokenIndex.build(self.index, self.table, seed=self.seed)
        return self._tokens

    @property
    def own_channels(self) -> int:
        """Width of the nodes' own features where the rows are a reduction of them, else 0."""
        return 0 if self.directions is None else int(self.directions.shape[0])

    def view(self, X: Any, coordinates: np.ndarray, places: np.ndarray | None = None) -> NodeView:
        """New nodes; with ``places`` seen ones at these positions, as the seen nodes' own view has them."""
        own = False if places is None else torch.from_numpy(places).to(self.device)
        asked = _places(X, coordinates, self.words, self.share)
        return self._view(FeatureSource(X, self.scaling, self.device), coordinates, asked, own=own)

    def _view(
        self, source: FeatureSource, coordinates: np.ndarray, places: np.ndarray, *, own: bool | Tensor
    ) -> NodeView:
        there = torch.from_numpy(coordinates).to(self.device)
        asked = None if places is coordinates else torch.from_numpy(places).to(self.device)
        return NodeView(source, there, self, own=own, queries=asked)

    def grown(self, X: Any, coordinates: np.ndarray) -> SeenNodes:
        """These and new nodes, which come last. What is here stays as it is: each of its arrays is copied once."""
        view = self.view(X, coordinates)
        every = torch.arange(len(view), device=self.device)
        rows = torch.cat([self.rows, *(view.reduced(part) for part in every.split(_BLOCK))])
        index, places = self.index.copy(), _places(X, coordinates, self.words, self.share)
        index.add(places)
        shape, more = (self.scaling, self.directions, self.scale), {"words": self.words, "share": self.share}
        fresh = SeenNodes(*shape, rows, index, self.device, seed=self.seed, **more)
        if self._tokens is not None:
            fresh._tokens = grown_tokens(self._tokens, index, fresh.table, index.prepare(places))
        return fresh

    def reduce(self, source: FeatureSource, index: Tensor) -> Tensor:
        """Rows of ``source`` as they are averaged."""
        return _reduce(source.rows(index), source.num_columns, self.directions) * self.scale

    def config(self) -> dict[str, Any]:
        """What is not an array."""
        out: dict[str, Any] = {"scale": self.scale, "seed": self.seed, "index": self.index.state()[1]}
        out |= {"share": self.share, "words": None if self.words is None else self.words.config()}
        return out | {"tokens": None if self._tokens is None else self._tokens.state()[1]}

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        out = {"rows": self.rows.cpu().numpy()}
        if self.directions is not None:
            out["directions"] = self.directions.cpu().numpy()
        out |= prefixed("index", self.index.state()[0])
        if self.words is not None:
            out |= prefixed("words", self.words.arrays())
        if self._tokens is not None:
            out |= prefixed("tokens", self._tokens.state()[0])
        return out

    @classmethod
    def from_state(
        cls, config: dict[str, Any], arrays: dict[str, np.ndarray], scaling: Scaling, width: int, device: torch.device
    ) -> SeenNodes:
        """What :meth:`config` and :meth:`arrays` described."""
        index = NeighborIndex.from_state(part_of(arrays, "index"), config["index"], device=device)
        words, share = None, 0.0
        if config.get("words") is not None:  # not in folders from before features counted here
            words = DirectionView.from_state(part_of(arrays, "words"), config["words"], width)
            share = check_share("share", config["share"], high=MOST_SHARE)
            if words.directions.shape[1] >= index.dim:
                raise ValueError(f"an index of {index.dim} columns, all of them features")
        rows, found = arrays["rows"], arrays.get("directions")
        directions = None if found is None else torch.from_numpy(found).to(device)
        columns = width if found is None else found.shape[1]
        if rows.shape != (index.num_vectors, columns) or (found is not None and found.shape[0] != width):
            raise ValueError(f"the rows of the seen nodes have shape {rows.shape}, expected {columns} columns")
        seen = cls(
            scaling,
            directions,
            float(config["scale"]),
            torch.from_numpy(rows).to(device),
            index,
            device,
            seed=int(config["seed"]),
            words=words,
            share=share,
        )
        if config["tokens"] is not None:
            seen._tokens = TokenIndex.from_state(part_of(arrays, "tokens"), config["tokens"], index, seen.table)
        return seen


def _places(X: Any, coordinates: np.ndarray, words: DirectionView | None, share: float) -> np.ndarray:
    """Where nodes are looked for: by their coordinates, or by these and their features."""
    return coordinates if words is None else words.beside(unit(coordinates), X, share)


def _reduce(x: Tensor | SparseRows, width: int, directions: Tensor | None) -> Tensor:
    if directions is None:
        return dense_rows(x, width)
    if isinstance(x, Tensor):
        return x @ directions
    return torch.nn.functional.embedding_bag(
        x.columns, directions, x.pointers, mode="sum", per_sample_weights=x.values, include_last_offset=True
    )


def reduced_features(X: Any, source: FeatureSource, seed: int) -> tuple[Tensor, Tensor | None, float]:
    """All rows as they are averaged, the directions that wide ones were reduced to, and the factor after that.

    A typical row has norm ``sqrt(width)``, as raw ones have.
    """
    found = leading_directions(X, source.scaling, seed, source.device)
    directions = None if found is None else torch.from_numpy(found).to(source.device)
    everything = torch.arange(source.num_rows, device=source.device)
    parts = [_reduce(source.rows(part), source.num_columns, directions) for part in everything.split(_BLOCK)]
    rows = torch.cat(parts)
    if directions is None:
        return rows, None, 1.0
    length = float(rows.square().sum(dim=1).mean().sqrt())
    scale = rows.shape[1] ** 0.5 / length if length > 0 else 1.0
    return rows * scale, directions, scale


def _room(device: torch.device) -> int:
    """Numbers that may be kept on a device."""
    if device.type != "cuda":
        return _CACHED
    return max(_CACHED, int(_SHARE * torch.cuda.mem_get_info(device)[0] / 4))


class NodeView:
    """Nodes to read: new ones, or seen ones, none of which is its own neighbour.

    ``own``: whether they are all seen nodes in their order, or the positions of some among these. ``queries``: what the
    index of the seen nodes is asked with; the coordinates where there is nothing else.
    """

    def __init__(
        self,
        source: FeatureSource,
        coordinates: Tensor | None,
        seen: SeenNodes | None = None,
        *,
        own: bool | Tensor = False,
        queries: Tensor | None = None,
    ) -> None:
        self.source, self._coordinates, self.seen = source, coordinates, seen
        self._queries = coordinates if queries is None else queries
        self.own, self._places = own is not False, own if isinstance(own, Tensor) else None
        self._kept: dict[int, Tensor] = {}
        self._near: dict[int, tuple[Tensor, Tensor]] = {}
        self._nodes: dict[int, Tensor | None] = {}

    def __len__(self) -> int:
        return self.source.num_rows

    def places(self, rows: Tensor) -> Tensor | None:
        """Positions of nodes among the seen ones; None for new nodes."""
        if not self.own:
            return None
        return rows if self._places is None else self._places[rows]

    def features(self, rows: Tensor) -> Tensor | SparseRows:
        """Scaled features."""
        return self.source.rows(rows)

    def coordinates(self, rows: Tensor) -> Tensor:
        """Spectral coordinates."""
        assert self._coordinates is not None
        return self._coordinates[rows]

    def queries(self, rows: Tensor) -> Tensor:
        """What the index of the seen nodes is asked with."""
        assert self._queries is not None
        return self._queries[rows]

    def reduced(self, rows: Tensor) -> Tensor:
        """Features as they are averaged."""
        assert self.seen is not None
        own = self.places(rows)
        return self.seen.reduce(self.source, rows) if own is None else self.seen.rows[own]

    def table(self, rows: Tensor) -> Tensor:
        """What is averaged, ``[B, r + k]``: features and coordinates side by side."""
        assert self.seen is not None
        own = self.places(rows)
        return torch.cat([self.reduced(rows), self.coordinates(rows)], dim=1) if own is None else self.seen.table[own]

    def tokens(self, rows: Tensor, num_tokens: int) -> Tensor:
        """``[B, num_tokens + 1, r + k]``: the node itself, then means over its ``2^j`` nearest."""
        return self._kept[num_tokens][rows] if self.keep_tokens(num_tokens) else self._tokens(rows, num_tokens)

    def keep_tokens(self, num_tokens: int) -> bool:
        """Make the token lists of all nodes, if there is room to keep them; whether they are kept."""
        assert self.seen is not None
        if num_tokens in self._kept:
            return True
        device, shape = self.source.device, (len(self), num_tokens + 1, self.seen.table.shape[1])
        if math.prod(shape) > _room(device):
            return False
        kept, every = torch.empty(shape, device=device), torch.arange(len(self), device=device)
        with timed("token lists of the seen" if self.own else "token lists of others"):
            size = _LISTS[device.type]
            for part, place in zip(every.split(size), kept.split(size), strict=True):
                place.copy_(self._tokens(part, num_tokens))
        self._kept[num_tokens] = kept
        return True

    def _tokens(self, rows: Tensor, num_tokens: int) -> Tensor:
        assert self.seen is not None
        own = self.table(rows)
        far = self.seen.tokens.tokens(self.queries(rows), num_tokens, exclude=self.places(rows))
        return torch.cat([own.unsqueeze(1), far.to(own)], dim=1)

    def token_nodes(self, num_tokens: int) -> Tensor | None:
        """The seen nodes that each node's tokens are means of, ``[m, 2^num_tokens]``; None where that is not all.

        Looked for once, for all nodes of the view; None too where they would not fit into memory.
        """
        assert self.seen is not None
        if len(self) * 2**num_tokens > _CACHED:
            return None
        if num_tokens not in self._nodes:
            every = torch.arange(len(self), device=self.source.device)
            self._nodes[num_tokens] = self.seen.tokens.nearest(self.queries(every), num_tokens, self.places(every))
        return self._nodes[num_tokens]

    def known_near(self) -> Tensor | None:
        """Seen nodes near each node, ``[m, any number]``, where some have been looked for already."""
        return next((nodes.cpu() for nodes in self._nodes.values() if nodes is not None), None)

    def neighbors(self, rows: Tensor, k: int, *, once: bool = False) -> tuple[Tensor, Tensor]:
        """Nearest seen nodes and their distances (1 - cosine), the node itself left out.

        Those of all nodes are looked for at the first call and kept, unless they are too many, or the few that are
        asked for are asked for ``once`` only.
        """
        few = once and k not in self._near and len(self) > _MANY and len(rows) < len(self) // 16
        if few or not self.keeps_neighbors(k):
            return self._neighbors(rows, k)
        if k not in self._near:
            every = torch.arange(len(self), device=rows.device)
            found = [self._neighbors(part, k) for part in every.split(_BLOCK)]
            self._near[k] = torch.cat([ids for ids, _ in found]), torch.cat([d for _, d in found])
        ids, distances = self._near[k]
        return ids[rows], distances[rows]

    def keeps_neighbors(self, k: int) -> bool:
        """Whether the ``k`` neighbours of all nodes are few enough to be kept once they have been looked for."""
        return len(self) * k <= _CACHED // 4

    def _neighbors(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        assert self.seen is not None
        found = self.seen.index.search(self.queries(rows), k + 1 if self.own else k)
        distances, ids = (torch.as_tensor(part).to(rows.device) for part in found)
        own = self.places(rows)
        if own is None:
            return ids, distances
        strange = ids != own.unsqueeze(1)
        strange[strange.all(dim=1), -1] = False  # not found itself: drop the farthest
        width = ids.shape[1] - 1
        return ids[strange].view(-1, width), distances[strange].view(-1, width)
