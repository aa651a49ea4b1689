"""What a training step reads: feature rows and sampled edges, on the training device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gsparc._mapped import release
from gsparc._typing import Features
from gsparc.graph import Graph
from gsparc.nn.spectral_map import SparseRows
from gsparc.ops.laplacian import operator_degrees

__all__ = ["EdgeSampler", "FeatureSource", "Scaling", "as_tensor", "rows_on"]

_FAR = 1e6  # standard deviations
_SHORTEST = 1e-45  # below every length of a row in single precision but that of a row of zeros
_WIDE = 4096  # columns up to which a batch of signed sparse rows is made dense
_PASS = 65_536  # rows looked at at once in passes over all of them
_DROWNED = 0.99  # share of squared lengths: columns that hold more of them leave nothing to the others
_THIN = 0.03  # share of entries up to which the rows of a whole graph are multiplied as sparse ones everywhere
_FILLED = 1 << 30  # bytes of sparse rows that are made dense on a GPU, where reading a dense row never waits
_LISTED = 1 << 22  # pairs of nodes up to which all are listed: 64 MB


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor that shares memory with ``array``, read-only arrays included (never write to it).

    A copy where the array runs backwards, such as ``X[::-1]``, which torch cannot share.
    """
    if min(array.strides, default=0) < 0:
        array = array.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch cannot mark a tensor read-only
        return torch.from_numpy(array)


def rows_on(X: Any, device: torch.device) -> Any:
    """Dense features as a tensor on a GPU, where they fit: what several passes read. Anything else as it is."""
    if device.type != "cuda" or sp.issparse(X) or isinstance(X, Tensor):
        return X
    dense = _plain_rows(X)
    return dense.to(device) if _fits(dense, device) else X


def _plain_rows(X: Any) -> Tensor:
    """Dense features over their own memory; half precision stays as it is, and is widened a batch at a time."""
    return as_tensor(np.asarray(X) if X.dtype == np.float16 else np.asarray(X, dtype=np.float32))


def _fits(dense: Tensor, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return dense.numel() * dense.element_size() < 0.6 * free


@dataclass(frozen=True)
class Scaling:
    """How raw feature rows become network input, fitted on seen nodes only.

    ``rows``: every row is scaled to norm ``sqrt(width)`` (counts, sparse text, categories). Otherwise columns are
    shifted by ``shift`` and multiplied by ``factor``: mean zero, variance one. Either way a typical row has
    norm ``sqrt(width)``.
    """

    rows: bool
    shift: np.ndarray | None
    factor: np.ndarray | None

    @classmethod
    def fit(cls, X: Features | Tensor) -> Scaling:
        """Row norms for counts (no entry negative, most of them zero), column statistics otherwise.

        Columns of another unit beside them, such as an income beside categories, would be all that is left of a row
        of norm one: where columns that most rows fill hold nearly all of the length of rows that have others too,
        columns are standardised. In no data set of the registry do such columns hold more than a quarter.

        Looks at all entries, so neither the order of the rows nor how they are stored matters. Signed sparse
        features that are too wide for a batch to be made dense are scaled by rows too. Dense features are looked at
        block by block, and where they are: a tensor on its device.
        """
        shape: Any = X.shape
        n, width = int(shape[0]), int(shape[1])
        if sp.issparse(X):
            matrix: Any = X
            counts = bool((matrix.data >= 0).all()) and np.count_nonzero(matrix.data) < 0.5 * n * width
            if width > 1 and (width > _WIDE or (counts and not _several_units(matrix.tocsr(), [slice(0, n)]))):
                return cls(True, None, None)
            return cls._columns(*_column_statistics(matrix.tocsr(), n, width))
        blocks = [slice(start, start + _PASS) for start in range(0, n, _PASS)]  # no copy of all of X
        if isinstance(X, Tensor):
            return cls._fit_tensor(X, blocks)
        X = np.asarray(X)  # a view of what is mapped
        filled = sum(np.count_nonzero(X[part]) for part in blocks)
        counts = width > 1 and filled < 0.5 * n * width and all((X[part] >= 0).all() for part in blocks)
        if counts and not _several_units(X, blocks):
            return cls(True, None, None)
        mean = sum((X[part].sum(axis=0, dtype=np.float64) for part in blocks), np.zeros(width)) / max(n, 1)
        square = sum((np.square(X[part] - mean).sum(axis=0) for part in blocks), np.zeros(width)) / max(n, 1)
        release(X)
        return cls._columns(mean, np.sqrt(square))

    @classmethod
    def _fit_tensor(cls, X: Tensor, blocks: list[slice]) -> Scaling:
        """:meth:`fit` for dense features on a GPU."""
        (n, width), device = X.shape, X.device
        total = torch.zeros(width, dtype=torch.float64, device=device)
        filled, lowest = torch.zeros((), dtype=torch.int64, device=device), torch.zeros((), device=device)
        for part in blocks:
            block = X[part].float()
            total += block.sum(dim=0, dtype=torch.float64)
            filled += torch.count_nonzero(block)
            lowest = torch.minimum(lowest, block.amin())
        counts = width > 1 and int(filled) < 0.5 * n * width and float(lowest) >= 0
        if counts and not _several_units(X, blocks):
            return cls(True, None, None)
        mean = total / max(n, 1)
        square = torch.zeros_like(total)
        for part in blocks:
            square += (X[part].double() - mean).square_().sum(dim=0)
        return cls._columns(mean.cpu().numpy(), (square / max(n, 1)).sqrt().cpu().numpy())

    @classmethod
    def _columns(cls, mean: np.ndarray, deviation: np.ndarray) -> Scaling:
        # a column that does not vary (up to rounding) carries nothing and must not be blown up
        constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-30)
        factor = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
        return cls(False, mean.astype(np.float32), factor.astype(np.float32))


def _column_statistics(matrix: Any, n: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns of a CSR matrix without duplicates, in passes over blocks of rows.

    scipy sums and squares in the type of the entries. In single precision that loses what varies about a large mean,
    and squares of huge or tiny entries altogether.
    """
    parts = [slice(matrix.indptr[i], matrix.indptr[min(i + _PASS, n)]) for i in range(0, n, _PASS)]

    def sums(values: Callable[[slice], np.ndarray | None]) -> np.ndarray:
        each = (np.bincount(matrix.indices[part], weights=values(part), minlength=width) for part in parts)
        return sum(each, np.zeros(width))

    mean = sums(lambda part: matrix.data[part]) / max(n, 1)
    square = sums(lambda part: np.square(matrix.data[part] - mean[matrix.indices[part]]))
    square += (n - sums(lambda part: None)) * np.square(mean)
    return mean, np.sqrt(square / max(n, 1))


def _several_units(X: Any, blocks: list[slice]) -> bool:
    """Whether the columns that most rows fill drown the others of mostly empty rows, none of them negative."""
    common = sum((_column_counts(X[part]) for part in blocks), np.zeros(X.shape[1])) > X.shape[0] / 2
    if not common.any():
        return False
    shares = np.concatenate([_shares_of(X[part], common) for part in blocks])
    return len(shares) > 0 and float(np.median(shares)) > _DROWNED


def _column_counts(rows: Any) -> np.ndarray:
    """Entries of each column that are not zero."""
    if isinstance(rows, Tensor):
        return torch.count_nonzero(rows, dim=0).cpu().numpy()
    return np.asarray((rows != 0).sum(axis=0)).ravel()


def _shares_of(rows: Any, columns: np.ndarray) -> np.ndarray:
    """Share of some columns in the squared length of each row, of those rows that fill others, too."""
    if isinstance(rows, Tensor):
        squares, chosen = rows.double().square(), torch.from_numpy(columns).to(rows.device, torch.float64)
        within, beside = ((squares @ weights).cpu().numpy() for weights in (chosen, 1 - chosen))
    else:
        squares = rows.astype(np.float64).power(2) if sp.issparse(rows) else np.square(rows, dtype=np.float64)
        within, beside = (np.asarray(squares @ weights) for weights in (columns.astype(float), 1.0 - columns))
    both = (within > 0) & (beside > 0)
    return within[both] / (within[both] + beside[both])


class FeatureSource:
    """Rows of a dense or sparse feature matrix, scaled, on a device; the matrix is never densified."""

    def __init__(self, X: Any, scaling: Scaling, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.num_rows, self.num_columns = int(X.shape[0]), int(X.shape[1])
        self.scaling = scaling
        self._pages = (X.data, X.indices) if sp.issparse(X) else (X,)
        self._dense: Tensor | None = None
        self._filled: Tensor | None = None  # all rows of sparse features, scaled and dense
        if sp.issparse(X):
            matrix: Any = X
            self._pointers = as_tensor(np.asarray(matrix.indptr, np.int64)).to(self.device)
            self._columns = as_tensor(matrix.indices).to(self.device)
            self._values = as_tensor(np.asarray(matrix.data, np.float32)).to(self.device)
            # a fifth full or more: dense products of one batch are faster than gathers
            self._scatter = matrix.nnz > 0.2 * self.num_rows * self.num_columns or self.device.type == "cuda"
        else:
            dense = X if isinstance(X, Tensor) else _plain_rows(X)
            self._dense = dense.to(self.device) if _fits(dense, self.device) else dense
        self._shift = None if scaling.shift is None else as_tensor(scaling.shift).to(self.device)
        self._factor = None if scaling.factor is None else as_tensor(scaling.factor).to(self.device)

    @property
    def dense(self) -> bool:
        """Whether the features came dense."""
        return self._dense is not None

    @property
    def resident(self) -> bool:
        """Whether the rows are dense and on the device, so that reading a batch never waits for the host."""
        dense = self._filled if self._dense is None else self._dense
        return dense is not None and dense.device.type == self.device.type

    def settle(self) -> bool:
        """Make what is read in every step of a training :attr:`resident`, if there is room for it; whether it is.

        Where a sparse row ends the host must know before the next kernel starts. On a GPU small networks wait
        for nothing else, and dense rows of a graph of some ten thousand nodes take little of its memory.
        """
        if self.device.type == "cuda" and self._dense is None and self._filled is None:
            size, (free, _) = 4 * self.num_rows * self.num_columns, torch.cuda.mem_get_info(self.device)
            if size <= min(_FILLED, free // 16):
                self._filled = self._all_rows()
        return self.resident

    def _all_rows(self) -> Tensor:
        """All rows of sparse features, scaled and dense."""
        out = torch.empty(self.num_rows, self.num_columns, device=self.device)
        size = max(1, (_FILLED >> 4) // (4 * max(self.num_columns, 1)))
        for part in torch.arange(self.num_rows, device=self.device).split(size):
            rows = self._sparse_rows(part)
            assert isinstance(rows, Tensor)
            out[part] = rows
        return out

    def matrix(self, rows: np.ndarray | None = None) -> Any:
        """The features as they were passed, unscaled; all, or some rows."""
        if self._dense is not None:
            dense = self._dense if rows is None else self._dense[as_tensor(rows).to(self._dense.device)]
            return dense.cpu().numpy()
        arrays, shape = self.arrays(), (self.num_rows, self.num_columns)
        every = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        return every if rows is None else every[rows]

    def lengths(self) -> np.ndarray:
        """Lengths of all rows of dense features, once their columns are standardised."""
        assert self._dense is not None
        assert self._shift is not None
        assert self._factor is not None
        shift, factor = self._shift.double(), self._factor.double()
        parts = [((part.double() - shift) * factor).square_().sum(dim=1).sqrt_() for part in self._dense.split(_PASS)]
        return torch.cat(parts).cpu().numpy()

    def arrays(self) -> dict[str, np.ndarray]:
        """The features as they were passed, for :meth:`from_arrays`."""
        if self._dense is not None:
            return {"dense": self._dense.cpu().numpy()}
        parts = {"data": self._values, "indices": self._columns, "indptr": self._pointers}
        out = {name: part.cpu().numpy() for name, part in parts.items()}
        return out | {"shape": np.array([self.num_rows, self.num_columns])}

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], scaling: Scaling, device: torch.device | str = "cpu"
    ) -> FeatureSource:
        """What :meth:`arrays` gave; ValueError where the parts do not fit together."""
        if "dense" in arrays:
            return cls(arrays["dense"], scaling, device)
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        matrix = sp.csr_array(parts, shape=tuple(int(size) for size in arrays["shape"]))
        matrix.check_format(full_check=True)
        return cls(matrix, scaling, device)

    def release(self) -> None:
        """Let go of the pages of features that lie in a file."""
        release(*self._pages)

    def rows(self, index: Tensor) -> Tensor | SparseRows:
        """Scaled rows ``index [B]`` as network input."""
        if self._filled is not None:
            return self._filled[index]
        if self._dense is None:
            return self._sparse_rows(index)
        x = self._dense[index.to(self._dense.device)].to(self.device, non_blocking=True).float()
        if self._shift is None or self._factor is None:  # scaled by rows
            length = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)  # squares may overflow
            return (x * (self.num_columns**0.5 / length.clamp_min(_SHORTEST))).float()
        return self._standardised(x)

    def _standardised(self, x: Tensor) -> Tensor:
        """Columns shifted and scaled; what is absurdly far out is cut, so that a network stays finite."""
        assert self._shift is not None
        assert self._factor is not None
        return ((x - self._shift) * self._factor).clamp_(-_FAR, _FAR)

    def fixed_rows(self, index: Tensor) -> Tensor | SparseRows:
        """The same for rows that are multiplied as a whole in every step, such as those of all nodes of a graph.

        Sparse rows with few entries stay sparse on a GPU too: where they end is known once and for all.
        """
        thin = self._dense is None and len(self._values) <= _THIN * self.num_rows * self.num_columns
        return self._sparse_rows(index, scatter=False) if thin else self.rows(index)

    def _sparse_rows(self, index: Tensor, *, scatter: bool | None = None) -> SparseRows | Tensor:
        starts = self._pointers[index]
        lengths = self._pointers[index + 1] - starts
        pointers = torch.zeros(len(index) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(lengths, 0, out=pointers[1:])
        total = int(pointers[-1])
        shift = torch.repeat_interleave(starts - pointers[:-1], lengths, output_size=total)
        position = shift + torch.arange(total, device=self.device)
        values = self._values[position]
        row = torch.repeat_interleave(torch.arange(len(index), device=self.device), lengths, output_size=total)
        columns = self._columns[position].long()
        if self._shift is None or self._factor is None:  # scaled by rows
            norm = torch.zeros(len(index), device=self.device, dtype=torch.float64)
            norm.index_add_(0, row, values.double().square_()).sqrt_()  # squares may overflow in single precision
            values = (values * (self.num_columns**0.5 / norm.clamp_min(_SHORTEST))[row]).float()
            if not (self._scatter if scatter is None else scatter):
                return SparseRows(pointers, columns, values)
        out = torch.zeros(len(index) * self.num_columns, device=self.device)
        out = out.index_put_((row * self.num_columns + columns,), values).view(len(index), -1)
        return out if self._shift is None else self._standardised(out)


class EdgeSampler:
    """Node pairs drawn with probability proportional to their weight in the operator.

    The operator is ``A + I + tau/n``; with ``walk_length = k`` a pair is the two ends of a
    stationary walk of 1 to ``k`` steps (the average of ``P, ..., P^k``). A draw costs
    ``O(log n)``, whatever the number of edges; of a small graph without weights it is one look-up in the list of all
    pairs. ``self_loops=False`` leaves ``I`` out of the draws. Nodes in
    ``exclude`` are never drawn: that spares cutting a large graph for a few held-out nodes.
    """

    def __init__(
        self,
        graph: Graph,
        device: torch.device | str = "cpu",
        *,
        tau: float = 0.0,
        walk_length: int = 1,
        self_loops: bool = True,
        exclude: np.ndarray | None = None,
    ) -> None:
        self.device = torch.device(device)
        self._excluded: Tensor | None = None
        if exclude is not None and len(exclude):
            self._excluded = torch.zeros(graph.num_nodes, dtype=torch.bool, device=self.device)
            self._excluded[as_tensor(exclude).to(self.device)] = True
            self._fallback = int((~self._excluded).nonzero()[0])  # here, so that drawing never waits for the device
        self.num_nodes, self.tau, self.walk_length = graph.num_nodes, float(tau), walk_length
        self._loop = 1.0 if self_loops else 0.0
        self._pointers = as_tensor(graph.indptr).to(self.device)
        self._indices = as_tensor(graph.indices).to(self.device)
        self._entries = int(graph.indptr[-1])
        self._sums: Tensor | None = None
        if graph.weights is not None:  # running sums with a leading zero, for inverse sampling
            sums = np.concatenate([[0.0], np.cumsum(graph.weights, dtype=np.float64)])
            self._sums = as_tensor(sums).to(self.device)
        self._volume = float(self._sums[-1]) if self._sums is not None else float(self._entries)
        degrees = operator_degrees(graph.indptr, graph.weights, tau=tau)
        self.pi = as_tensor(degrees / degrees.sum()).to(self.device, torch.float32)
        self._pairs = self._all_pairs(graph) if graph.weights is None and not tau else None

    def _all_pairs(self, graph: Graph) -> Tensor | None:
        """All pairs of a small graph, each as likely as any other: ``[2, pairs]``; None where it does not pay."""
        loops = self.num_nodes if self._loop else 0
        if self._entries + loops > _LISTED or (self._excluded is not None and self.walk_length > 1):
            return None
        source = np.repeat(np.arange(self.num_nodes), np.diff(graph.indptr))
        pairs = np.stack([source, graph.indices]).astype(np.int64)
        pairs = as_tensor(np.concatenate([pairs, np.tile(np.arange(loops), (2, 1))], axis=1)).to(self.device)
        if self._excluded is not None:
            pairs = pairs[:, ~self._excluded[pairs].any(dim=0)]
        return pairs if pairs.shape[1] else None

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` pairs as two index tensors."""
        if self._pairs is not None:
            drawn = torch.randint(self._pairs.shape[1], (count,), generator=generator, device=self.device)
            source, target = self._pairs[:, drawn]
            return source, target if self.walk_length == 1 else self._walk_on(target, generator)
        source, target = self._draw(count, generator)
        if self._excluded is None:
            return source, target
        for _ in range(2):  # excluded nodes are few: after two more draws hardly a pair is left
            bad = self._excluded[source] | self._excluded[target]
            again = self._draw(count, generator)
            source, target = torch.where(bad, again[0], source), torch.where(bad, again[1], target)
        for shift in (1, 2):  # those few take the pair of a neighbour in the batch, which is drawn by the same law
            bad = self._excluded[source] | self._excluded[target]
            source, target = torch.where(bad, source.roll(shift), source), torch.where(bad, target.roll(shift), target)
        bad = self._excluded[source] | self._excluded[target]
        return source.masked_fill(bad, self._fallback), target.masked_fill(bad, self._fallback)

    def _draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        n = self.num_nodes
        total = self._volume + n * (self._loop + self.tau)
        u = torch.rand(count, generator=generator, device=self.device, dtype=torch.float64) * total
        spare = torch.randint(n, (2, count), generator=generator, device=self.device)
        entry, source = self._edge_at(u)
        on_edge = u < self._volume
        target = self._indices[entry].long() if self._entries else spare[0]
        source = torch.where(on_edge, source, spare[0])
        target = torch.where(on_edge, target, spare[0])  # a self-loop
        if self.tau:
            target = torch.where(u >= self._volume + n * self._loop, spare[1], target)  # a uniform jump
        if self.walk_length > 1:
            target = self._walk_on(target, generator)
        return source, target

    def _edge_at(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """CSR entry and row at position ``u`` of the running weight sums."""
        if not self._entries:
            zero = torch.zeros_like(u, dtype=torch.int64)
            return zero, zero
        if self._sums is None:
            entry = u.long().clamp_(max=self._entries - 1)
        else:
            entry = (torch.searchsorted(self._sums, u, right=True) - 1).clamp_(0, self._entries - 1)
        return entry, torch.searchsorted(self._pointers, entry, right=True) - 1

    def _walk_on(self, node: Tensor, generator: torch.Generator) -> Tensor:
        """Go on for 0 to ``walk_length - 1`` further steps."""
        steps = torch.randint(self.walk_length, node.shape, generator=generator, device=self.device)
        for step in range(self.walk_length - 1):
            node = torch.where(steps > step, self._one_step(node, generator), node)
        return node

    def _one_step(self, node: Tensor, generator: torch.Generator) -> Tensor:
        first, last = self._pointers[node], self._pointers[node + 1]
        if self._sums is None:
            low, weight = first.double(), (last - first).double()
        else:
            low = self._sums[first]
            weight = self._sums[last] - low
        u = torch.rand(node.shape, generator=generator, device=self.device, dtype=torch.float64)
        u = u * (weight + self._loop + self.tau)
        at = low + u
        entry = at.long() if self._sums is None else torch.searchsorted(self._sums, at, right=True) - 1
        # rounding at the end of a row must not reach into the next one
        entry = torch.minimum(torch.maximum(entry, first), last - 1).clamp_min_(0)
        moved = self._indices[entry].long() if self._entries else node
        out = torch.where(u < weight, moved, node)
        if self.tau:
            jump = torch.randint(self.num_nodes, node.shape, generator=generator, device=self.device)
            out = torch.where(u >= weight + self._loop, jump, out)
        return out
