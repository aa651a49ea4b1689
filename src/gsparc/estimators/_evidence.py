"""What part each of a node's neighbours has in its prediction."""

from __future__ import annotations

import torch
from torch import Tensor

from gsparc.estimators._heads import NetHead, neighbor_weights
from gsparc.estimators._views import NodeView
from gsparc.nn.phormer import TokenTransformer

__all__ = ["module_or_gcn_weights", "token_shares"]

_GCN_WIDTH = 0.1  # of the kernel by which the neighbours of a spectral convolution are shown
_CHUNK = 4096


def token_shares(head: NetHead, view: NodeView, rows: Tensor, k: int) -> Tensor:
    """Part of each of the k nearest nodes in a node's token list, rows summing to one.

    A node of rank ``r`` is in every mean over more than ``r`` nodes: its part is the sum of ``a_j / 2^j`` over those,
    ``a_j`` the attention that token ``j`` is read with; without attention, all alike.
    """
    tokens = head.settings.num_tokens
    assert view.seen is not None
    available = view.seen.index.num_vectors - view.own
    sizes = (2 ** torch.arange(1, tokens + 1, device=rows.device)).clamp_max(max(available, 1))
    inside = (torch.arange(k, device=rows.device)[:, None] < sizes[None, :]).float() / sizes  # [k, tokens]
    if isinstance(head.module, TokenTransformer):
        head.module.to(rows.device).eval()
        read = head.inputs(view)
        with torch.no_grad():
            attention = torch.cat([head.module.attention(*read(part)) for part in rows.split(_CHUNK)])
    else:
        attention = torch.full((len(rows), tokens), 1.0 / tokens, device=rows.device)
    shares = attention @ inside.T
    return shares / shares.sum(dim=1, keepdim=True)


def module_or_gcn_weights(head: NetHead, distances: Tensor) -> Tensor:
    """Weights of the inferred edges, rows summing to one."""
    weights = neighbor_weights(distances, head.width if head.kind == "module" else _GCN_WIDTH)
    return weights / weights.sum(dim=1, keepdim=True)
