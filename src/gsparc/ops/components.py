"""Connected components on the device that the graph is trained on."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["connected_labels"]

_CHUNK = 1 << 25  # entries looked at once: bounds the memory beside the graph


def connected_labels(indptr: Tensor, indices: Tensor) -> Tensor:
    """The smallest node of each node's component, ``[n]``, on the device of the CSR adjacency.

    Labels start as the nodes' own numbers. In every round each node hands the smallest label among its neighbours to
    the node that its own label names, and labels of labels are followed to their end, so that whole trees
    join at once: the rounds grow as the logarithm of the number of nodes (after Zhang, Azad and Buluc, *FastSV*,
    arXiv 1910.05971). The entries are read in chunks.

    Parameters
    ----------
    indptr, indices
        Symmetric CSR adjacency.

    Examples
    --------
    >>> indptr, indices = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([2, 3, 0, 1])
    >>> connected_labels(indptr, indices).tolist()
    [0, 1, 0, 1, 4]
    """
    n = len(indptr) - 1
    labels = torch.arange(n, device=indptr.device)
    while True:
        lowest = _lowest_neighbour(indptr, indices, labels)
        found = labels.scatter_reduce(0, labels, lowest, "amin")
        found = torch.minimum(found, lowest)
        jumped = found[found]
        while not torch.equal(jumped, found):
            found, jumped = jumped, jumped[jumped]
        if torch.equal(found, labels):
            return labels
        labels = found


def _lowest_neighbour(indptr: Tensor, indices: Tensor, labels: Tensor) -> Tensor:
    """The smallest label among each node and its neighbours."""
    lowest, total = labels.clone(), len(indices)
    for first in range(0, total, _CHUNK):
        entries = torch.arange(first, min(first + _CHUNK, total), device=indices.device)
        rows = torch.searchsorted(indptr, entries, right=True) - 1
        lowest.scatter_reduce_(0, rows, labels[indices[entries].long()], "amin")
    return lowest
