"""Clusters of a graph as mini-batches for any PyG model; no compiled extension is needed."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from gsparc._optional import import_optional
from gsparc._runtime import resolve_seed, torch_generator
from gsparc._typing import RandomState
from gsparc._validation import check_count
from gsparc.estimators._partitions import SMOOTHING, node_partition
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.ops.clusters import ClusterEdges
from gsparc.ops.partition import check_partition

__all__ = ["ClusterSubgraphs", "SpectralClusterLoader"]


class ClusterSubgraphs:
    """Subgraphs of a ``Data`` on its clusters: ``clusters[i]`` is one of them, ``clusters([i, j])`` the union of two.

    Parameters
    ----------
    data : torch_geometric.data.Data
        Never changed; its tensors are shared, not copied.
    label : array of int, shape (num_nodes,)
        The cluster of every node: ``0, 1, ...``, none of them empty.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> path = Data(x=torch.arange(4.0).view(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> clusters = ClusterSubgraphs(path, np.array([0, 0, 1, 1]))
    >>> clusters[1].x.ravel().tolist(), clusters[1].edge_index.tolist(), clusters([1, 0]).num_edges
    ([2.0, 3.0], [[0], [1]], 3)
    """

    def __init__(self, data: Any, label: np.ndarray) -> None:
        n = len(label)
        self.edges = ClusterEdges(_edge_index(data), label)
        self._data = copy.copy(data)
        self._counted = "num_nodes" in data or data.x is None
        self._data.num_nodes = n  # what is a node's and what an edge's is told from their numbers
        names = [name for name in data.keys() if name not in ("edge_index", "num_nodes")]  # noqa: SIM118
        self._of_nodes = [name for name in names if self._data.is_node_attr(name)]
        self._of_edges = [name for name in names if self._data.is_edge_attr(name)]
        if not self._counted:
            del self._data.num_nodes

    def __len__(self) -> int:
        return self.edges.num_parts

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"cluster {index} came, and there are {len(self)}.")
        return self([index % len(self)])

    def __call__(self, parts: Sequence[int]) -> Any:
        """The subgraph on the union of some clusters, with every attribute of its nodes and edges."""
        found = self.edges.induced(parts)
        out = copy.copy(self._data)
        out.edge_index = found.edge_index
        for names, index in ((self._of_nodes, found.nodes), (self._of_edges, found.edges)):
            for name in names:
                value = self._data[name]
                out[name] = _select(value, index, self._data.__cat_dim__(name, value))
        if self._counted:
            out.num_nodes = len(found.nodes)
        if "n_id" not in self._data:
            out.n_id = found.nodes
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)})"


class _Epochs(Sampler[int]):
    """Clusters in a new random order every epoch, the same for the same seed and epoch."""

    def __init__(self, count: int, shuffle: bool, seed: int) -> None:
        self.count, self.shuffle, self.seed, self.epoch = count, shuffle, seed, 0

    def __iter__(self) -> Iterator[int]:
        if not self.shuffle:
            return iter(range(self.count))
        mixed = int(np.random.SeedSequence([self.seed, self.epoch]).generate_state(1, np.uint64)[0] >> 1)
        self.epoch += 1
        return iter(torch.randperm(self.count, generator=torch_generator(mixed)).tolist())

    def __len__(self) -> int:
        return self.count


class SpectralClusterLoader(DataLoader):
    """Mini-batches of clusters that are near in the Laplacian eigenspace, for any PyG model.

    The nodes are cut into `num_parts` clusters once. Every batch is a ``Data``: the subgraph on `batch_size`
    clusters, with the edges inside and between them, as PyG's ``ClusterLoader`` gives it. Clusters keep a node and its
    neighbours in one batch; nodes drawn at random hardly have an edge among them.

    Parameters
    ----------
    data : torch_geometric.data.Data
        The graph, directed or not. Every attribute of its nodes and edges (``x``, ``y``, masks, ``edge_attr``,
        lists, ...) is carried into the batches; others are passed on as they are. It is never changed.
    num_parts : int
        Clusters. The default is that of the paper, for Reddit's 232,965 nodes: about one for 155 nodes.
    method : {"spectral", "diffusion", "random", "metis"}
        ``"spectral"``: near in spectral coordinates, see :func:`gsparc.ops.partition.partition_spectral`.
        ``"diffusion"``: the same without a map, from the edges alone; needs no features. ``"random"``: equal parts at
        random. ``"metis"``: few edges between parts; needs ``pip install 'gsparc[metis]'``.
    batch_size : int
        Clusters a batch.
    shuffle, drop_last
        Put clusters together anew in each epoch; leave out a last batch with fewer clusters than the others.
    coordinates : array or tensor of shape (num_nodes, d), optional
        Spectral coordinates of your own, used as they are.
    spectral_map : SpectralMap, optional
        A fitted map, which gives the coordinates, or an unfitted one, whose settings are used. Without either, a
        map with the default settings is fitted on ``data.x`` and the edges.
    smoothing : int
        Rounds in which the coordinates of a map, and random signals beside them, are averaged with those of the
        neighbours before they are cut, see Notes; 0: the coordinates as the map gives them.
    partition : array of int, shape (num_nodes,), optional
        The cluster of every node, in place of `num_parts` and `method`.
    num_workers, pin_memory, persistent_workers
        As in ``torch.utils.data.DataLoader``.
    device : str
        Where a map is fitted.
    random_state : int, RandomState, Generator or None
        Of the clusters and of their order. The same seed gives the same batches, epoch by epoch.

    Attributes
    ----------
    num_parts : int
        Clusters that there are; METIS may leave some empty, and they are not counted.
    partition : ndarray of shape (num_nodes,)
        The cluster of every node.
    cluster_data : ClusterSubgraphs
        ``cluster_data[i]`` is the subgraph on one cluster.
    spectral_map : SpectralMap or None
        The map that was used.
    partition_seconds : float
        What the clusters took to make, a map included.

    Notes
    -----
    Chiang et al., *Cluster-GCN*, arXiv 1905.07953, with the clusters of SPARC, arXiv 2411.01532. Unlike PyG's loader,
    it takes the ``Data`` itself, and every batch has ``n_id``: the positions of its nodes in `data`. A batch
    costs as much as the edges that leave its nodes. Directions and weights of edges play no part in the
    clusters, except that a map is fitted, and its coordinates are averaged, with ``edge_weight``, or ``edge_attr``
    with one column.

    The paper cuts the coordinates that the map gives to the features. It is made for nodes without edges, and where
    features say little, its clusters hold few edges. The nodes of a batch have their edges, so every row is averaged
    with its neighbours' a few times (`smoothing`): power iteration from the map's coordinates towards the
    eigenvectors themselves. Nodes that the features cannot tell apart would still lie in one place, so 64 random
    signals, averaged in the same way, stand beside the coordinates with the same weight: distances between them are
    diffusion distances (:func:`gsparc.ops.propagate.diffused_signals`). They do much of the work; ``"diffusion"`` has
    nothing else, and where it does as well, a map need not be fitted for batches.

    Examples
    --------
    >>> from gsparc.datasets import make_blocks
    >>> made = make_blocks(300, 1500, 8, branching=(3, 2), random_state=0)
    >>> data = made.graph.to_pyg(made.X, made.y)
    >>> loader = SpectralClusterLoader(data, num_parts=12, batch_size=4, method="random", random_state=0)
    >>> len(loader), sum(batch.num_nodes for batch in loader)
    (3, 300)
    """

    def __init__(
        self,
        data: Any,
        num_parts: int = 1500,
        *,
        method: str = "spectral",
        batch_size: int = 20,
        shuffle: bool = True,
        drop_last: bool = False,
        coordinates: Any = None,
        spectral_map: SpectralMap | None = None,
        smoothing: int = SMOOTHING,
        partition: Any = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        n, seed = _num_nodes(data), resolve_seed(random_state)
        check_count("batch_size", batch_size, 1)
        start = time.perf_counter()
        self.spectral_map = spectral_map
        if partition is not None:
            label = check_partition(partition, n)
        else:
            label, self.spectral_map = node_partition(
                method,
                num_parts,
                _undirected(data, n),
                X=_features(data) if method == "spectral" else None,
                coordinates=coordinates.detach().cpu() if isinstance(coordinates, Tensor) else coordinates,
                spectral_map=spectral_map,
                smoothing=smoothing,
                device=device,
                seed=seed,
            )
        self.partition, self.partition_seconds = label, time.perf_counter() - start
        self.cluster_data = ClusterSubgraphs(data, label)
        self.num_parts, self.method = len(self.cluster_data), "given" if partition is not None else method
        if drop_last and batch_size > self.num_parts:
            raise InputError(
                f"batch_size={batch_size} with drop_last=True leaves no batch of {self.num_parts} clusters. "
                "Pass a smaller batch_size, or drop_last=False."
            )
        super().__init__(
            range(self.num_parts),  # type: ignore[arg-type]
            batch_size=batch_size,
            sampler=_Epochs(self.num_parts, shuffle, seed),
            drop_last=drop_last,
            collate_fn=self.cluster_data,
            num_workers=num_workers,
            pin_memory=pin_memory,
            persistent_workers=persistent_workers,
            generator=torch_generator(seed),  # torch's own state is left alone
        )

    def set_epoch(self, epoch: int) -> None:
        """Let the next epoch have this number, and with it its order: a resumed training goes on as it would have."""
        order: Any = self.sampler
        order.epoch = check_count("epoch", epoch, 0)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_parts={self.num_parts}, method={self.method!r}, batch_size={self.batch_size})"
        )


def _num_nodes(data: Any) -> int:
    kind: Any = import_optional("torch_geometric.data", extra="pyg", purpose="SpectralClusterLoader")
    if not isinstance(data, kind.Data):
        raise InputError(
            f"{type(data).__name__} came, expected a torch_geometric.data.Data (HeteroData: data.to_homogeneous())."
        )
    if data.edge_index is None and "adj_t" in data:
        raise InputError(
            "a Data with adj_t and no edge_index came. Pass edge_index; ToSparseTensor goes after loading."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # PyG warns where it only guesses
            n = data.num_nodes
    except UserWarning:
        n = None
    if not n:
        raise InputError(
            f"{data} came, which does not say how many nodes it has, those without edges included. Set data.x or "
            "data.num_nodes."
        )
    return int(n)


def _edge_index(data: Any) -> Tensor:
    return torch.empty(2, 0, dtype=torch.int64) if data.edge_index is None else data.edge_index


def _undirected(data: Any, n: int) -> Graph:
    """The edges as the partitions see them."""
    edges = _edge_index(data).cpu().numpy()
    weights = data.edge_weight if "edge_weight" in data else data.edge_attr
    if weights is None or weights.numel() != edges.shape[1] or not bool((weights > 0).all()):
        return Graph.from_edges(edges, n)  # several features an edge are no weight, nor are negative ones
    return Graph.from_edges(edges, n, weights=weights.detach().cpu().numpy().reshape(-1))


def _features(data: Any) -> Any:
    """``x`` as the estimators take it: CSR where it is sparse."""
    if data.x is None:
        return None
    x = data.x.detach().cpu()
    if x.layout == torch.strided:
        return x.float().numpy()
    x = x.to_sparse_coo().coalesce()
    return sp.coo_array((x.values().numpy(), tuple(x.indices().numpy())), shape=tuple(x.shape)).tocsr()


def _select(value: Any, index: Tensor, dim: int) -> Any:
    """Some entries of an attribute."""
    if isinstance(value, Tensor):
        if value.layout == torch.sparse_csr:  # has no index_select of its own
            return value.to_sparse_coo().index_select(dim, index.to(value.device)).to_sparse_csr()
        return value.index_select(dim, index.to(value.device))
    if isinstance(value, np.ndarray):
        return value.take(index.cpu().numpy(), axis=dim)
    return type(value)(value[i] for i in index.tolist())
