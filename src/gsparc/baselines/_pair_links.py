"""What link scorers with a decoder of pairs share: held-out nodes, edges against random pairs, scores in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from gsparc._runtime import PlainTorch, further_seed, resolve_device, resolve_seed, seeded
from gsparc._typing import RandomState
from gsparc._validation import check_count, check_features, check_graph, check_pair_ids, check_positions
from gsparc.baselines._parameters import check_parameters
from gsparc.estimators._nodes import NodeNames
from gsparc.graph import Graph
from gsparc.nn.mlp import FeatureMLP
from gsparc.ops.dropout import dropout
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling, as_tensor
from gsparc.training.links import Retrieval, default_fits, held_out_share, mean_reciprocal_rank
from gsparc.training.loop import LoopResult, LoopSettings, rough_products
from gsparc.training.spectral import at_distinct, hold_out
from gsparc.training.teach import RECORDED_ROWS

__all__ = ["EdgeTask", "LinkData", "LinkMLP", "LinkNet", "PairDecoder", "PairLinks", "mean_log_odds", "pair_logits"]

Embed = Callable[[Tensor], Tensor]

_BLOCK = 65_536  # rows embedded at once
_ROWS = 256  # new nodes that are scored with all seen ones at once


class PairDecoder(nn.Module):
    """Logit of a link from the elementwise product of two vectors, by an MLP of one hidden layer.

    Examples
    --------
    >>> import torch
    >>> PairDecoder(4, 8)(torch.ones(2, 1, 4), torch.ones(2, 3, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, in_channels: int, hidden_channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_channels, hidden_channels)
        self.output = nn.Linear(hidden_channels, 1)
        self.dropout = dropout

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Logits of ``left [..., h]`` with ``right [..., h]``, broadcast against each other."""
        h = dropout(F.relu(self.hidden(left * right)), self.dropout, self.training)
        return self.output(h).squeeze(-1)


class LinkNet(nn.Module):
    """What is trained: vectors of nodes, and the decoder of pairs of them."""

    encoder: Any  # a module, called with rows or with nodes
    decoder: PairDecoder


class LinkMLP(LinkNet):
    """An MLP on features, and the decoder of pairs of its outputs."""

    def __init__(self, in_channels: int, hidden_channels: int, dropout: float, input_dropout: float) -> None:
        super().__init__()
        self.encoder = FeatureMLP(
            in_channels,
            hidden_channels,
            hidden_channels=hidden_channels,
            dropout=dropout,
            input_dropout=input_dropout,
        )
        self.decoder = PairDecoder(hidden_channels, hidden_channels, dropout)


@torch.no_grad()
def pair_logits(decoder: PairDecoder, left: Tensor, right: Tensor) -> Tensor:
    """Logits of every row of ``left [m, h]`` with every row of ``right [n, h]``: ``[m, n]``, in blocks of pairs.

    What ``decoder.eval()(left[:, None], right[None])`` gives, without the products of all pairs: a row of ``left`` is
    multiplied into the weights instead, so that a block is one matrix product.
    """
    weight, bias = decoder.hidden.weight, decoder.hidden.bias  # [c, h], [c]
    out = torch.empty(len(left), len(right), device=left.device)
    pairs = (1 << 11) if left.device.type == "cpu" else (1 << 18)  # a CPU is twice as fast within its cache
    rows = max(1, pairs // max(len(right), 1))
    for top in range(0, len(left), rows):
        own = left[top : top + rows]
        scaled, shift = (weight * own[:, None]).flatten(0, 1).T, bias.repeat(len(own))  # [h, rows c], [rows c]
        for start in range(0, len(right), pairs):
            part = right[start : start + pairs]
            # on a GPU rectified as it is written: reading and writing it again takes as long as the product
            hidden = torch.ops.aten._addmm_activation(shift, part, scaled).view(len(part), len(own), -1)
            out[top : top + rows, start : start + pairs] = decoder.output(hidden).squeeze(-1).T
    return out


def mean_log_odds(logits: Sequence[Tensor]) -> Tensor:
    """Mean over the starts of their log-odds of the same pairs.

    All starts tell the same edges from as many random pairs in the same way, so that their log-odds are on one scale.
    Probabilities could be averaged too. Nearly all of them are near 0, where their mean is that of the one start that
    errs upwards, while a mean of log-odds asks every start. Both were tried with the ranks of cold nodes of Cora in
    view, which can only help these baselines; on Citeseer probabilities were a little better for some of them.

    Examples
    --------
    >>> mean_log_odds([torch.tensor([3.0, -8.0]), torch.tensor([1.0, 2.0])]).tolist()
    [2.0, -3.0]
    """
    return logits[0] if len(logits) == 1 else torch.stack(list(logits)).mean(dim=0)


@dataclass(frozen=True)
class LinkData:
    """What a fit reads: all seen rows, the edges among those trained on, and what held-out ones are ranked against."""

    features: FeatureSource
    graph: Graph  # edges among the training nodes
    train: Tensor  # rows of the training nodes
    retrieval: Retrieval | None
    device: torch.device
    seed: int

    @property
    def input_dropout(self) -> float:
        """As in the other networks on features: 0.3 for counts and sparse text."""
        return 0.3 if self.features.scaling.rows else 0.0


class EdgeTask:
    """True edges against as many random pairs, by cross-entropy; judged by held-out nodes, as if they were cold.

    Parameters
    ----------
    module
        What is trained.
    embed
        Vectors of training nodes, from their positions among the training nodes.
    decoder
        Of pairs of such vectors; a part of ``module``.
    data
        Nodes and edges.
    batch_size
        True edges a step.
    embed_held
        Vectors of rows of X that stand without edges, to judge by; ``None``: nothing is judged.
    """

    def __init__(
        self,
        module: nn.Module,
        embed: Embed,
        decoder: PairDecoder,
        data: LinkData,
        *,
        batch_size: int,
        embed_held: Embed | None = None,
    ) -> None:
        self.module, self.embed, self.decoder, self.data = module, embed, decoder, data
        self.batch_size = batch_size
        self.sampler = EdgeSampler(data.graph, data.device, self_loops=False)
        self._truth = (torch.arange(2 * batch_size, device=data.device) < batch_size).float()
        self._embed_held = embed_held

    @property
    def capturable(self) -> bool:
        """Whether a step may be recorded: nothing in it waits for the device."""
        return len(self.data.train) <= RECORDED_ROWS and self.data.features.settle()

    def pairs(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Both ends of true edges and of random pairs, and which is which.

        A random pair may happen to be an edge: on sparse graphs it hardly ever is.
        """
        source, target = self.sampler.sample(self.batch_size, generator)
        shape, device = (2, self.batch_size), self.data.device
        spare = torch.randint(self.data.graph.num_nodes, shape, generator=generator, device=device)
        return torch.cat([source, spare[0]]), torch.cat([target, spare[1]]), self._truth

    def vectors(self, *groups: Tensor) -> list[Tensor]:
        """Vectors of several groups of nodes, each distinct node computed once where that pays."""
        nodes = torch.cat([group.reshape(-1) for group in groups])
        vectors = at_distinct(self.embed, nodes, len(self.data.train))
        parts = vectors.split([group.numel() for group in groups])
        return [part.view(*group.shape, -1) for part, group in zip(parts, groups, strict=True)]

    def edge_loss(self, source: Tensor, target: Tensor, truth: Tensor) -> Tensor:
        """Cross-entropy of pairs of vectors."""
        return F.binary_cross_entropy_with_logits(self.decoder(source, target), truth)

    def loss(self, generator: torch.Generator) -> Tensor:
        """Loss of one batch of pairs."""
        source, target, truth = self.pairs(generator)
        left, right = self.vectors(source, target)
        return self.edge_loss(left, right, truth)

    def evaluate(self) -> float | None:
        """Mean reciprocal rank of held-out nodes' neighbours; ``None`` where nothing judges."""
        retrieval = self.data.retrieval
        if retrieval is None or self._embed_held is None:
            return None
        queries = self._embed_held(as_tensor(retrieval.queries).to(self.data.device))
        known = self.embed(as_tensor(retrieval.positions).to(self.data.device))
        with rough_products(self.data.device):  # millions of pairs, and hundreds of ranks cannot tell its rounding
            scores = pair_logits(self.decoder, queries, known)
        return mean_reciprocal_rank(scores, retrieval.truth)


class PairLinks(PlainTorch, BaseEstimator, ABC):
    """A link scorer that embeds nodes and decodes pairs. Subclasses train (:meth:`_train`) and embed.

    The decoder is no inner product, so no index can find the best pairs: every question costs all seen nodes.
    """

    hidden_channels: int
    batch_size: int
    n_starts: int | Literal["auto"]
    device: str
    random_state: RandomState
    verbose: int
    modules_: list[LinkNet]
    histories_: list[list[dict[str, float]]]

    @abstractmethod
    def _train(self, data: LinkData, start: int) -> tuple[LinkNet, LoopResult]:
        """The network of one start, trained, and what happened; the first one's number is 0."""

    @abstractmethod
    def _embed_new(self, net: LinkNet, features: FeatureSource) -> Tensor:
        """Vectors of nodes that have no edges."""

    def _embed_seen(self, net: LinkNet, features: FeatureSource, graph: Graph) -> Tensor:
        """Vectors of the seen nodes."""
        return self._embed_new(net, features)

    def fit(self, X: Any, y: Any = None, *, graph: Any) -> Self:
        """Learn from the seen nodes and the edges among them.

        For each start a share of the nodes is held out, without edges, to decide when to stop: as many starts, the
        same share, and as many nodes ranked among as many others as in :class:`~gsparc.SparcLinkPredictor`.
        """
        check_parameters(self)
        X = check_features(self, X, reset=True)
        graph = check_graph(graph, X.shape[0])
        seed, device = resolve_seed(self.random_state), resolve_device(self.device)
        self.scaling_ = Scaling.fit(X)
        features = FeatureSource(X, self.scaling_, device)
        count = default_fits(X.shape[0]) if self.n_starts == "auto" else self.n_starts
        self.modules_, self.histories_ = [], []
        for start in range(count):
            own = further_seed(seed, start)
            with seeded(own, device):
                net, result = self._train(_link_data(features, graph, own), start)
            self.modules_.append(net)
            self.histories_.append(result.history)
        self._nodes = NodeNames.of(graph)
        self._seen = [self._embed_seen(net, features, graph) for net in self.modules_]
        return self

    @property
    def history_(self) -> list[dict[str, float]]:
        """Losses and scores of the first start."""
        return self.histories_[0]

    def score_all(self, X: Any) -> np.ndarray:
        """Scores of new nodes with every seen node, ``[m, n]``, as log-odds; pass chunks of rows."""
        return self._scores(self._embed(X)).cpu().numpy()

    def predict_links(self, X: Any, k: int = 20) -> tuple[np.ndarray, np.ndarray]:
        """Ids and scores of the ``k`` best seen nodes; ``k`` beyond their number is cut to it."""
        check_count("k", k, 1)
        parts = []
        for new in zip(*(vectors.split(_ROWS) for vectors in self._embed(X)), strict=True):
            best = torch.topk(self._scores(new), min(k, len(self._seen[0])), dim=1)
            parts.append((best.indices.cpu().numpy(), best.values.cpu().numpy()))
        ids, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self._nodes.names(ids), scores

    @torch.no_grad()
    def score_pairs(self, X: Any, ids: Any) -> np.ndarray:
        """Score of each new node with the seen nodes ``ids`` (node ids), ``[m, p]``."""
        new = self._embed(X)
        wanted, flat = check_pair_ids(ids, len(new[0]))
        where = as_tensor(check_positions(self._nodes.positions(wanted), len(self._seen[0]))).to(new[0].device)
        out = torch.empty(where.shape, device=where.device)
        rows = max(1, (1 << 16) // max(where.shape[1], 1))
        for start in range(0, len(where), rows):
            part = slice(start, start + rows)
            every = zip(self.modules_, new, self._seen, strict=True)
            out[part] = mean_log_odds([net.decoder(own[part, None], seen[where[part]]) for net, own, seen in every])
        return (out[:, 0] if flat else out).cpu().numpy()

    def _scores(self, new: Sequence[Tensor]) -> Tensor:
        """Scores with all seen nodes of some new ones, whose vectors by each start are given."""
        every = zip(self.modules_, new, self._seen, strict=True)
        return mean_log_odds([pair_logits(net.decoder, own, seen) for net, own, seen in every])

    def _embed(self, X: Any) -> list[Tensor]:
        """Vectors of new nodes by each start."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        device = resolve_device(self.device)
        blocks = [FeatureSource(X[i : i + _BLOCK], self.scaling_, device) for i in range(0, X.shape[0], _BLOCK)]
        return [torch.cat([self._embed_new(net, block) for block in blocks]) for net in self.modules_]

    def _loop(
        self, data: LinkData, steps: int, *, learning_rate: float, weight_decay: float, eval_every: int = 50
    ) -> LoopSettings:
        return LoopSettings(
            steps=steps,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            eval_every=eval_every,
            patience=4,
            seed=data.seed,
            description=type(self).__name__,
            show_progress=bool(self.verbose),
        )


def _link_data(features: FeatureSource, graph: Graph, seed: int) -> LinkData:
    """What one start reads: some nodes are held out, which ones depends on its seed."""
    device = features.device
    held = hold_out(graph, held_out_share(graph), seed)
    if held is None:
        return LinkData(features, graph, torch.arange(graph.num_nodes, device=device), None, device, seed)
    train = as_tensor(held.train).to(device)
    return LinkData(features, graph[held.train], train, Retrieval(held, seed, device), device, seed)
