"""What is taken from all scores of a new node, so that its pairs can be compared with those of other new nodes.

A score of :mod:`gsparc.estimators._ranking` ranks the candidates of one node. How high the scores of a node are as a
whole says little about how many links it has: a node in a crowd of its like scores high with all of them. If one of
its links goes to candidate ``i`` with probability ``exp(s_i / T) / Z``, where ``Z = sum_j exp(s_j / T)``, and it has
``d`` links, then ``d exp(s_i / T) / Z`` of them go to ``i`` on average, and ``s_i - T (log Z - log d)`` is comparable.
How much of that shift helps, and whether a node has as many links as those that it will be linked to, is tried on
held-out nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsparc.ops.combined import CombinedIndex

__all__ = ["Judged", "NodeShift", "choose_shift", "link_shifts"]

Floats = NDArray[np.float64]
TEMPERATURE = tuple(float(t) for t in np.geomspace(0.005, 0.3, 13))
AROUND = (0.6, 1.0, 1.6)  # of the likeliest temperature
SHARE = (0.0, 0.25, 0.5, 0.75, 1.0)
REACH = (0.0, 0.5, 1.0)
_FALSE_SHARES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)  # of the false pairs that may stand above a true one
_FALSE_PAIRS = 200_000  # looked at in each trial
_LEAST_NODES = 50  # held out, below which nothing is shifted
_NEAR, _ELSEWHERE = 128, 4096  # candidates whose scores make up Z where not all nodes are scored
_CELLS = 1 << 24  # scores that are held at once


class NodeShift(NamedTuple):
    """``share * temperature * (log Z - reach * log d)`` is taken from each score of a node."""

    temperature: float = 1.0
    share: float = 0.0  # of the shift that would make the scores logarithms of expected links; 0: none
    reach: float = 0.0  # power of the links of those that the node will be linked to, its own being unknown

    def checked(self) -> NodeShift:
        """ValueError where the numbers cannot be those of a fit."""
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and np.isfinite(v) for v in self)
        if not numbers or self.temperature <= 0 or not 0 <= self.share <= 1 or not 0 <= self.reach <= 1:
            raise ValueError(f"a shift of scores by {tuple(self)}")
        return self

    def of(self, scores: Tensor, log_degree: Tensor, log_weight: Tensor | None = None) -> Tensor:
        """The shift of each node, ``[m]``, from its scores with candidates ``[m, p]``.

        Parameters
        ----------
        log_degree
            ``log(1 + degree)`` of the candidates, ``[p]`` or ``[m, p]``.
        log_weight
            Logarithm of how many nodes each candidate stands for, if not for itself alone; ``-inf``: for none.

        Examples
        --------
        Two candidates, equally good, with 1 and 3 links:

        >>> scores, links = torch.zeros(1, 2), torch.tensor([1.0, 3.0])
        >>> NodeShift(1.0, 1.0, 0.0).of(scores, links.log1p()).exp().tolist()  # Z = 2
        [2.0]
        >>> NodeShift(1.0, 1.0, 1.0).of(scores, links.log1p()).exp().tolist()  # over 2 links on average
        [1.0]
        """
        z, links = totals(scores / self.temperature, log_degree, log_weight)
        return self.share * self.temperature * (z - self.reach * links)


def totals(logits: Tensor, log_degree: Tensor, log_weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """``log Z`` of each row, and the logarithm of the candidates' mean degree, each as likely as it is linked to."""
    logits = logits if log_weight is None else logits + log_weight
    z = torch.logsumexp(logits, dim=1)
    degree = torch.expm1(log_degree).expand_as(logits)
    mean = (torch.exp(logits - z[:, None]) * degree).sum(dim=1)
    return z, torch.log(mean.clamp_min(1e-3))  # candidates without links at all


class Judged(NamedTuple):
    """Scores of held-out nodes with candidates, and which of these are their neighbours."""

    scores: Tensor  # [m, p]
    truth: Tensor  # [m, p]
    log_degree: Tensor  # [p]
    num_nodes: int  # that candidates were drawn from; all neighbours are among the candidates


def choose_shift(trials: Sequence[Judged], *, degrees: bool) -> tuple[NodeShift, dict[str, float]]:
    """The shift with which true pairs of held-out nodes stand best above false ones of all of them together.

    The temperature is the one at which the true neighbours are likeliest, or one near it; the criterion is the share of
    true pairs above all but a few false ones, averaged over several meanings of "a few".

    Parameters
    ----------
    degrees
        Whether candidates' degrees may count.

    Returns
    -------
    shift, report
        The criterion without a shift and with it.
    """
    if sum(len(trial.scores) for trial in trials) < _LEAST_NODES:
        return NodeShift(), {}
    parts = [_Pairs(trial, number) for number, trial in enumerate(trials)]
    likeliest = max(TEMPERATURE, key=lambda t: np.mean([part.likelihood(t) for part in parts]))
    best, plain = NodeShift(), float(np.mean([part.found(NodeShift()) for part in parts]))
    most = plain
    for temperature in (factor * likeliest for factor in AROUND):
        for share in SHARE[1:]:
            for reach in REACH if degrees else REACH[:1]:
                shift = NodeShift(temperature, share, reach)
                found = float(np.mean([part.found(shift) for part in parts]))
                if found > most:
                    best, most = shift, found
    return best, {"pairs_found": plain, "pairs_found_shifted": most}


class _Pairs:
    """True pairs of one trial, a sample of its false ones, and per node what a shift is made from."""

    def __init__(self, trial: Judged, seed: int) -> None:
        self._trial = trial
        m, p = trial.scores.shape
        drawn = np.random.default_rng(seed).integers(m * p, size=min(_FALSE_PAIRS, m * p))
        true = trial.truth.flatten()
        cells = torch.from_numpy(drawn).to(true.device)
        self._false, self._true = (cells[~true[cells]], torch.nonzero(true)[:, 0])
        # a neighbour is a candidate for certain, another node with the same probability as all others
        others = (~trial.truth).sum(dim=1, keepdim=True).clamp_min(1)
        stands_for = (trial.num_nodes - trial.truth.sum(dim=1, keepdim=True)).clamp_min(1) / others
        self._log_weight = torch.where(trial.truth, torch.ones_like(stands_for), stands_for).log()
        self._totals: dict[float, tuple[Floats, Floats]] = {}
        self._values = [(self._of(cells), (cells // p).cpu().numpy()) for cells in (self._true, self._false)]

    def _of(self, cells: Tensor) -> Floats:
        return self._trial.scores.flatten()[cells].double().cpu().numpy()

    def totals(self, temperature: float) -> tuple[Floats, Floats]:
        if temperature not in self._totals:
            both = totals(self._trial.scores / temperature, self._trial.log_degree, self._log_weight)
            self._totals[temperature] = tuple(part.double().cpu().numpy() for part in both)  # type: ignore[assignment]
        return self._totals[temperature]

    def likelihood(self, temperature: float) -> float:
        """Mean logarithm of the probability that a link goes where it goes."""
        values, rows = self._values[0]
        return float((values / temperature - self.totals(temperature)[0][rows]).mean()) if len(values) else 0.0

    def found(self, shift: NodeShift) -> float:
        """Share of the true pairs above all but a few false ones."""
        taken = np.zeros(len(self._trial.scores))
        if shift.share:
            z, links = self.totals(shift.temperature)
            taken = shift.share * shift.temperature * (z - shift.reach * links)
        true, false = (values - taken[rows] for values, rows in self._values)
        if not len(true) or not len(false):
            return 0.0
        false, true = np.sort(false)[::-1], np.sort(true)
        limits = false[[int(share * len(false)) for share in _FALSE_SHARES]]
        return float(1 - np.searchsorted(true, limits, side="right").mean() / len(true))


def link_shifts(model: Any, own: Any, view: Any, everything: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """What is taken from the scores of each new node, ``[m]``.

    An exact index scores all nodes. Elsewhere the nodes with the best scores make up ``Z``, and a fixed sample that
    stands for all others.

    Parameters
    ----------
    model
        With ``index_``, ``weights_`` and ``shift_``.
    own, view
        New nodes as the index compares them.
    everything
        Their scores with all seen nodes, where these are known already.
    """
    index, shift, m = model.index_, model.shift_, view.shape[0]
    if not shift.share or not m:
        return np.zeros(m, np.float32)
    degree = torch.zeros(index.num_vectors)
    if shift.reach:  # what the index adds to each score is a multiple of the degree's logarithm
        degree = torch.from_numpy(index.prior / model.weights_.popularity)
    exact, parts = index.kind == "exact", []
    size = max(1, _CELLS // (index.num_vectors if exact else _NEAR + _ELSEWHERE))
    for start in range(0, m, size):
        part = slice(start, start + size)
        if exact:
            scores = index.score_all(own[part], view[part]) if everything is None else everything[part]
            parts.append(shift.of(torch.from_numpy(scores), degree))
        else:
            parts.append(shift.of(*_sampled(index, own[part], view[part], degree)))
    return torch.cat(parts).numpy().astype(np.float32)


def _sampled(index: CombinedIndex, own: Any, view: Any, degree: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, degrees and weights of the best candidates and of some others."""
    best, ids = index.search(own, view, _NEAR)
    n = index.num_vectors
    sample = np.sort(np.random.default_rng(0).choice(n, min(_ELSEWHERE, n), replace=False))
    rows, features = (part.cpu() if isinstance(part, Tensor) else part for part in index.rows_at(sample))
    prior = None if index.prior is None else index.prior[sample]
    others = CombinedIndex.build(rows, features, index.weight, prior=prior, kind="exact").score_all(own, view)
    elsewhere = others < best[:, -1:]
    left = max(n - best.shape[1], 1)
    counted = np.maximum(elsewhere.sum(axis=1, keepdims=True), 1)
    with np.errstate(divide="ignore"):
        weight = np.log(np.where(elsewhere, left / counted, 0.0))
    at = torch.from_numpy(np.concatenate([ids, np.broadcast_to(sample, others.shape)], axis=1))
    log_weight = torch.from_numpy(np.concatenate([np.zeros_like(best), weight.astype(np.float32)], axis=1))
    return torch.from_numpy(np.concatenate([best, others], axis=1)), degree[at], log_weight
