"""What the first edges of a new node say of its class, added to what its features say.

Every neighbour whose class is known multiplies the odds of class ``c`` by the compatibility of the two classes: how
much oftener such ends meet on seen edges than by chance. That is naive Bayes, or one round of belief propagation; it
needs no homophily, and says nothing where edges say nothing. Neighbours repeat each other and the
features, so what they say grows more slowly than their number, and the answer is tempered the more the more they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from gsparc._cuts import mean_weight
from gsparc.graph import Graph

__all__ = ["Discount", "Evidence", "FirstEdges", "KnownEdges", "compatibility", "few_of_each", "with_evidence"]

_EDGES = 1 << 19  # at once
_STEPS = (1, 2, 4, 8)  # edges that pretend-cold nodes have when the discount is learned
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
_TEMPERS = (0.0, 0.25, 0.5, 1.0, 2.0)
_LIKENESSES = (0.0, 0.25, 0.5, 0.75)
_MOST_JUDGES = 3000
_PSEUDO = 10.0  # how hard the discount is held near its default, in units of log-likelihood
_UNLABELLED = 2 / 3  # of a neighbour whose class is itself predicted: it repeats what the features say already
_HEAVIEST = 10.0  # mean weights that one edge counts for at most


class KnownEdges(NamedTuple):
    """Edges from new nodes to seen ones, each pair once."""

    rows: np.ndarray
    nodes: np.ndarray
    weights: np.ndarray  # one where edges have none

    @classmethod
    def merged(cls, rows: np.ndarray, nodes: np.ndarray, weights: np.ndarray | None) -> KnownEdges:
        """Repeats of an edge are one edge, their weights added up; a weight of zero is no edge.

        Examples
        --------
        >>> edges = KnownEdges.merged(np.array([1, 0, 1]), np.array([4, 4, 4]), np.array([0.5, 0.0, 0.5]))
        >>> edges.rows.tolist(), edges.nodes.tolist(), edges.weights.tolist()
        ([1], [4], [1.0])
        """
        order = np.lexsort((nodes, rows))
        rows, nodes = rows[order], nodes[order]
        first = np.ones(len(rows), bool)
        first[1:] = (rows[1:] != rows[:-1]) | (nodes[1:] != nodes[:-1])
        if weights is None:
            return cls(rows[first], nodes[first], np.ones(np.count_nonzero(first)))
        sums = np.bincount(np.cumsum(first) - 1, weights=weights[order], minlength=0)
        kept = sums > 0
        return cls(rows[first][kept], nodes[first][kept], sums[kept])

    def part(self, kept: np.ndarray) -> KnownEdges:
        """Some of the edges."""
        return KnownEdges(self.rows[kept], self.nodes[kept], self.weights[kept])


class Discount(NamedTuple):
    """How much edges count beside features; the defaults are naive Bayes with three quarters of its evidence, tempered.

    They serve where no pretend-cold node has edges to learn from. Seen nodes cannot take their place: the networks
    were trained on them, and with an honest prediction borrowed from another node of the same class the edges look more
    independent of the features than they are (measured: overconfident on Cora, Citeseer and Pubmed, no different on
    actor). The defaults were set by hand on one split each of these four graphs, cold nodes included.
    """

    share: float = 0.75  # of the neighbours' evidence
    temper: float = 0.5  # logits are divided by up to one plus this
    likeness: float = 0.25  # of neighbours: the sum over k of them is divided by k to this power


def compatibility(
    graph: Graph, codes: np.ndarray, soft: FirstEdges | None, num_classes: int, device: torch.device | str = "cpu"
) -> np.ndarray:
    """``[C, C]``: how much oftener the two classes meet on an edge than by chance, from the seen edges.

    Ends without a label count as the distribution that `soft` holds for them, or not at all. One edge
    for each class, spread as chance would, is added: what was never seen is not impossible.

    Examples
    --------
    >>> square = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> compatibility(square, np.array([0, 1, 0, 1]), None, 2).round(2).tolist()
    [[0.33, 1.67], [1.67, 0.33]]
    """
    joint = np.zeros((num_classes, num_classes))
    on_host = torch.device(device).type == "cpu" or soft is not None or graph.weights is not None
    if not on_host:
        joint += _counted_on(graph, codes, num_classes, device)
    for left, right, weights in _seen_edges(graph) if on_host else ():
        one, two = codes[left], codes[right]
        both = (one >= 0) & (two >= 0)
        cells = one[both] * num_classes + two[both]
        mass = None if weights is None else weights[both]
        joint += np.bincount(cells, mass, num_classes**2).reshape(num_classes, num_classes)
        if soft is not None and not both.all():
            a, b = soft.beliefs(left[~both], codes), soft.beliefs(right[~both], codes)
            joint += (a if weights is None else a * weights[~both, None]).T @ b
    total = joint.sum()
    if total <= 0:
        return np.ones((num_classes, num_classes))
    joint *= len(graph.indices) / graph.degrees().sum()  # weights in units of their mean
    margin = joint.sum(axis=1) + 1.0
    chance = margin / margin.sum()
    joint += 2 * num_classes * np.outer(chance, chance)
    margin = joint.sum(axis=1)
    return joint * joint.sum() / np.outer(margin, margin)


def _counted_on(graph: Graph, codes: np.ndarray, num_classes: int, device: torch.device | str) -> np.ndarray:
    """``[C, C]``: how many labelled ends meet, counted on a GPU."""
    pointers, known = (torch.tensor(array, device=device) for array in (graph.indptr, codes))
    rest = num_classes**2  # where the pairs go that have an end without label
    joint = torch.zeros(rest + 1, dtype=torch.int64, device=device)
    for start in range(0, len(graph.indices), 8 * _EDGES):
        right = torch.tensor(graph.indices[start : start + 8 * _EDGES], device=device).long()
        entry = torch.arange(start, start + len(right), device=device)
        one, two = known[torch.searchsorted(pointers, entry, right=True) - 1], known[right]
        cell = torch.where((one >= 0) & (two >= 0), one * num_classes + two, rest)
        joint += torch.bincount(cell, minlength=rest + 1)
    return joint[:rest].view(num_classes, num_classes).cpu().numpy()


def _seen_edges(graph: Graph) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Both directions of every edge in blocks of bounded size: ends, and weights if there are any."""
    start, n = 0, graph.num_nodes
    while start < n:
        stop = int(np.searchsorted(graph.indptr, graph.indptr[start] + _EDGES, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        entries = slice(int(graph.indptr[start]), int(graph.indptr[stop]))
        left = np.repeat(np.arange(start, stop), np.diff(graph.indptr[start : stop + 1]))
        yield left, graph.indices[entries], None if graph.weights is None else graph.weights[entries]
        start = stop


class Evidence(NamedTuple):
    """What edges say of each row, before any discount."""

    said: np.ndarray  # [m, C], sum over the neighbours of the logarithm of their compatibility with each class
    heard: np.ndarray  # [m], neighbours that said something, by weight


def with_evidence(proba: np.ndarray, evidence: Evidence, discount: Discount) -> np.ndarray:
    """``softmax((log p + share * said / heard^likeness) / T)``; T grows from 1 to ``1 + temper`` with what is said.

    Examples
    --------
    >>> three_to_one = Evidence(np.log([[3.0, 1.0]]), np.array([1.0]))
    >>> with_evidence(np.array([[0.5, 0.5]]), three_to_one, Discount(1.0, 0.0, 0.0)).round(3).tolist()
    [[0.75, 0.25]]
    """
    said = discount.share * evidence.said / (np.maximum(evidence.heard, 1.0) ** discount.likeness)[:, None]
    spread = (said.max(axis=1) - said.min(axis=1))[:, None]
    logits = (np.log(np.clip(proba, 1e-12, None)) + said) / (1.0 + discount.temper * spread / (1.0 + spread))
    powered = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powered / powered.sum(axis=1, keepdims=True)


def few_of_each(edges: KnownEdges, seed: int = 0) -> KnownEdges:
    """At most 1, 2, 4 or 8 random edges of each row, the bound changing from row to row."""
    order = np.lexsort((np.random.default_rng(seed).random(len(edges.rows)), edges.rows))
    rows = edges.rows[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    ranks = np.unique(rows, return_inverse=True)[1] % len(_STEPS)  # of rows that have edges
    return edges.part(np.sort(order[place < np.array(_STEPS)[ranks]]))


class FirstEdges:
    """Compatibility of classes, beliefs about unlabelled seen nodes, and the discount of both."""

    def __init__(
        self,
        compatibility: np.ndarray,
        unlabelled: np.ndarray,
        soft: np.ndarray,
        *,
        mean_weight: float = 1.0,
        discount: Discount | None = None,
    ) -> None:
        self.compatibility, self.mean_weight = compatibility, mean_weight
        self.discount = Discount() if discount is None else discount
        self.unlabelled, self.soft = unlabelled, soft  # ascending positions, and their distributions over the classes

    @classmethod
    def fit(
        cls,
        graph: Graph,
        codes: np.ndarray,
        unlabelled: np.ndarray,
        soft: np.ndarray,
        device: torch.device | str = "cpu",
    ) -> FirstEdges:
        """From the seen edges, the labels, and what the model says of the ``unlabelled`` nodes (all or none)."""
        mean = mean_weight(graph)
        count = soft.shape[1]
        first = cls(np.ones((count, count)), unlabelled, soft.astype(np.float32), mean_weight=mean)
        first.compatibility = compatibility(graph, codes, first if len(unlabelled) else None, count, device)
        return first

    def beliefs(self, nodes: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """``[e, C]``: the class of each node as a distribution; zeros where nothing is known."""
        out = np.zeros((len(nodes), len(self.compatibility)))
        own = codes[nodes]
        at = np.flatnonzero(own >= 0)
        out[at, own[at]] = 1.0
        rest = np.flatnonzero(own < 0)
        if len(rest) and len(self.unlabelled):
            place = np.minimum(np.searchsorted(self.unlabelled, nodes[rest]), len(self.unlabelled) - 1)
            found = self.unlabelled[place] == nodes[rest]
            out[rest[found]] = self.soft[place[found]]
        return out

    def evidence(self, edges: KnownEdges, codes: np.ndarray, count: int) -> Evidence:
        """What the edges say of rows ``0 ... count - 1``."""
        said, heard = np.zeros((count, len(self.compatibility))), np.zeros(count)
        for start in range(0, len(edges.rows), _EDGES):
            part = edges.part(np.s_[start : start + _EDGES])  # type: ignore[arg-type]
            beliefs = self.beliefs(part.nodes, codes)
            known = np.any(beliefs, axis=1)  # of the others nothing is heard
            each = np.log(np.where(known.reshape(-1, 1), beliefs @ self.compatibility.T, 1.0))
            each[codes[part.nodes] < 0] *= _UNLABELLED
            weights = np.minimum(part.weights / self.mean_weight, _HEAVIEST) * known
            ends = (weights, (part.rows, np.arange(len(part.rows))))
            said += sp.csr_array(ends, shape=(count, len(part.rows))) @ each
            heard += np.bincount(part.rows, weights, count)
        return Evidence(said, heard)

    def update(self, proba: np.ndarray, edges: KnownEdges, codes: np.ndarray) -> np.ndarray:
        """Probabilities with the edges; rows that have none are not touched."""
        rows, place = np.unique(edges.rows, return_inverse=True)
        if not len(rows):
            return proba
        evidence = self.evidence(edges._replace(rows=place), codes, len(rows))
        out = proba.copy()
        out[rows] = with_evidence(proba[rows], evidence, self.discount)
        return out

    def learned(self, proba: np.ndarray, labels: np.ndarray, edges: KnownEdges, codes: np.ndarray) -> FirstEdges:
        """The same with the discount that fits pretend-cold nodes: their cold predictions, labels and few edges.

        The best likelihood on a grid, held near the default: a handful of nodes does not move it.
        """
        rows, place = np.unique(edges.rows, return_inverse=True)
        all_said = self.evidence(edges._replace(rows=place), codes, len(rows))
        known = np.flatnonzero(labels[rows] >= 0)[:_MOST_JUDGES]
        own, truth = proba[rows[known]], labels[rows[known]]
        evidence = Evidence(all_said.said[known], all_said.heard[known])
        at, default = np.arange(len(truth)), Discount()

        def cost(choice: Discount) -> float:
            likelihood = with_evidence(own, evidence, choice)[at, truth]
            away = sum((a - b) ** 2 for a, b in zip(choice, default, strict=True))
            return float(-np.log(np.clip(likelihood, 1e-6, None)).sum() + _PSEUDO * away)

        choices = [Discount(*each) for each in product(_SHARES, _TEMPERS, _LIKENESSES)]
        return self._with(discount=min(choices, key=cost) if len(known) else default)

    def grown(self, nodes: np.ndarray, soft: np.ndarray) -> FirstEdges:
        """The same with beliefs about further unlabelled nodes, whose positions come after all others."""
        unlabelled = np.concatenate([self.unlabelled, nodes.astype(np.int64)])
        return self._with(unlabelled=unlabelled, soft=np.concatenate([self.soft, soft.astype(np.float32)]))

    def _with(self, **changes: Any) -> FirstEdges:
        return FirstEdges(**(vars(self) | changes))

    def config(self) -> dict[str, Any]:
        """What is not an array."""
        return {"mean_weight": self.mean_weight, **self.discount._asdict()}

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return {"compatibility": self.compatibility, "unlabelled": self.unlabelled, "soft": self.soft}

    @classmethod
    def from_state(cls, config: dict[str, Any], arrays: dict[str, np.ndarray], num_classes: int) -> FirstEdges:
        """What :meth:`config` and :meth:`arrays` described; ValueError where it cannot be that."""
        table, nodes, soft = arrays["compatibility"], arrays["unlabelled"], arrays["soft"]
        numbers = [config[name] for name in ("mean_weight", *Discount._fields)]
        fine = all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v < 1e30 for v in numbers)
        if not fine or not numbers[0]:
            raise ValueError(f"mean weight and discount {numbers} of edges")
        if table.shape != (num_classes, num_classes) or not (np.isfinite(table) & (table > 0)).all():
            raise ValueError(f"compatibility of classes of shape {table.shape}, expected {num_classes} classes")
        if soft.shape != (len(nodes), num_classes) or not (np.isfinite(soft) & (soft >= 0)).all():
            raise ValueError(f"beliefs of shape {soft.shape} about {len(nodes)} nodes")
        if nodes.ndim != 1 or nodes.dtype != np.int64 or (nodes[1:] <= nodes[:-1]).any():
            raise ValueError("unlabelled nodes that are not ascending positions")
        discount = Discount(*(float(number) for number in numbers[1:]))
        return cls(table.astype(np.float64), nodes, soft, mean_weight=float(numbers[0]), discount=discount)
