"""How several heads become one prediction: weights chosen on pretend-cold nodes, and a report in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gsparc.metrics.labels import paired_difference

__all__ = ["Mixture", "choose_mixture", "head_kind", "softmax"]

_PSEUDO = 40.0  # nodes that the prior counts as
_LEAST = 20  # judging nodes below which the prior decides alone


def head_kind(name: str) -> str:
    """``"distilled 3"`` is a third start of ``"distilled"``."""
    return name.rstrip("0123456789").rstrip()


def softmax(logits: np.ndarray) -> np.ndarray:
    """Rows of logits as probabilities."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Mixture:
    """Weights of the heads, what they were judged by, and what to tell the user."""

    weights: dict[str, float]
    temperature: float
    judged: int
    accuracy: dict[str, float]  # of each head and of "mixture", on the judging nodes
    report: str

    def combine(self, probabilities: dict[str, np.ndarray]) -> np.ndarray:
        """The calibrated mean of the heads' probabilities."""
        mixed = sum(weight * probabilities[name] for name, weight in self.weights.items() if weight > 0)
        powered = np.clip(mixed, 1e-12, None) ** (1.0 / self.temperature)
        return powered / powered.sum(axis=1, keepdims=True)

    def check(self, heads: set[str]) -> None:
        """ValueError where the numbers cannot be those of a fit with these heads."""
        values = [*self.weights.values(), self.temperature]
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and np.isfinite(v) for v in values)
        if not numbers or min(self.weights.values()) < 0 or self.temperature <= 0:
            raise ValueError(f"weights {self.weights} and temperature {self.temperature} of the heads")
        if set(self.weights) != heads:
            raise ValueError(f"weights for {sorted(self.weights)}, but the heads are {sorted(heads)}")

    def config(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return dict(vars(self))


def mixture_weights(likelihood: np.ndarray, prior: np.ndarray, *, pseudo: float = _PSEUDO, rounds: int = 500):
    """Weights with the best log-likelihood on judging nodes, held near a prior.

    Minimises ``-sum_i log(w . p_i) + pseudo * KL(prior || w)``: the prior counts as `pseudo` nodes, so a handful of
    nodes moves the weights little and thousands move them freely. Solved by the EM steps of a mixture.

    Parameters
    ----------
    likelihood
        ``[heads, nodes]`` probability that each head gives to the true class.
    prior
        ``[heads]`` weights that sum to one.

    Examples
    --------
    >>> even = np.array([0.5, 0.5])
    >>> mixture_weights(np.array([[0.9] * 1000, [0.1] * 1000]), even).round(2).tolist()
    [0.98, 0.02]
    >>> mixture_weights(np.array([[0.9] * 5, [0.1] * 5]), even).round(2).tolist()
    [0.55, 0.45]
    """
    weights = prior.copy()
    for _ in range(rounds):
        share = weights[:, None] * likelihood
        share /= np.maximum(share.sum(axis=0, keepdims=True), 1e-300)
        fresh = (share.sum(axis=1) + pseudo * prior) / (likelihood.shape[1] + pseudo)
        if np.abs(fresh - weights).max() < 1e-6:
            return fresh
        weights = fresh
    return weights


def choose_mixture(probabilities: dict[str, np.ndarray], prior: dict[str, float], labels: np.ndarray) -> Mixture:
    """Weigh the heads on nodes that played cold ones; fall back to the plain MLP where mixing does not beat it."""
    names = list(probabilities)
    start = np.array([prior[name] for name in names], dtype=np.float64)
    start /= start.sum()
    count = len(labels)
    if count < _LEAST:
        text = _too_few(names, start, count)
        return Mixture(dict(zip(names, start.tolist(), strict=True)), 1.0, count, {}, text)
    at = np.arange(count)
    likelihood = np.stack([np.clip(probabilities[name][at, labels], 1e-6, 1) for name in names])
    weights = mixture_weights(likelihood, start)
    accuracy = {name: float((p.argmax(axis=1) == labels).mean()) for name, p in probabilities.items()}
    mixed = np.einsum("h,hmc->mc", weights, np.stack([probabilities[name] for name in names]))
    accuracy["mixture"] = float((mixed.argmax(axis=1) == labels).mean())
    hits = {"mixture": mixed.argmax(axis=1) == labels, "mlp": probabilities["mlp"].argmax(axis=1) == labels}
    gain = hits["mixture"].astype(float) - hits["mlp"].astype(float)
    better = -np.log(np.clip(mixed[at, labels], 1e-6, 1)).mean() < -np.log(likelihood[names.index("mlp")]).mean()
    clearly_worse = paired_difference(gain, np.zeros(count)).high < 0
    falls_back = len(names) > 1 and (clearly_worse or (gain.mean() <= 0 and not better))
    if falls_back:
        weights = np.array([float(name == "mlp") for name in names])
        mixed = probabilities["mlp"]
    temperature = _temperature(mixed, labels)
    chosen = dict(zip(names, weights.tolist(), strict=True))
    text = _in_words(chosen, accuracy, gain, falls_back)
    return Mixture(chosen, temperature, count, accuracy, text)


def _temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Power of the mixed probabilities with the best likelihood."""
    log = np.log(np.clip(probabilities, 1e-12, None))
    grid = np.logspace(-0.7, 0.7, 57)
    losses = []
    for temperature in grid:
        scaled = log / temperature
        top = scaled.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(scaled - top).sum(axis=1))
        losses.append(float((total - scaled[np.arange(len(labels)), labels]).mean()))
    return float(grid[int(np.argmin(losses))])


def _too_few(names: list[str], weights: np.ndarray, count: int) -> str:
    return (
        f"Only {count} labelled nodes could be held out as pretend-cold ones, too few to compare "
        f"{len(names)} heads: they are averaged with fixed weights. More labels, or validation=(X, y), would tell "
        "whether the graph helps."
    )


def _in_words(weights: dict[str, float], accuracy: dict[str, float], gain: np.ndarray, falls_back: bool) -> str:
    count = len(gain)
    plain = 100 * accuracy["mlp"]
    if len(weights) == 1:
        return f"The plain MLP alone predicts: it is right for {plain:.1f} % of {count} pretend-cold nodes."
    if falls_back:
        best = max((name for name in weights if name != "mlp"), key=accuracy.__getitem__)
        return (
            f"On {count} pretend-cold nodes the mixture of heads did not beat the plain MLP (the MLP {plain:.1f} %, "
            f"the mixture {100 * accuracy['mixture']:.1f} %; the best other head alone, {best}, "
            f"{100 * accuracy[best]:.1f} %), so the plain MLP alone predicts."
        )
    mean, low, high = (100 * value for value in paired_difference(gain, np.zeros(count))[:3])
    sure = "a clear gain" if low > 0 else "no clear difference" if high >= 0 else "a clear loss"
    kinds: dict[str, list[str]] = {}
    for name in weights:
        kinds.setdefault(head_kind(name), []).append(name)
    parts = sorted(((sum(weights[n] for n in names), kind) for kind, names in kinds.items()), reverse=True)
    shares = ", ".join(_share(kind, len(kinds[kind]), w, accuracy[kinds[kind][0]]) for w, kind in parts if w >= 0.01)
    return (
        f"On {count} pretend-cold nodes the mixture of heads is right for {100 * accuracy['mixture']:.1f} %, one plain "
        f"MLP for {plain:.1f} %: {mean:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}), {sure}. "
        f"Weights: {shares}."
    )


def _share(kind: str, starts: int, weight: float, accuracy: float) -> str:
    several, one = (f" from {starts} starts", "one ") if starts > 1 else ("", "")
    return f"{kind}{several} {100 * weight:.0f} % ({one}alone {100 * accuracy:.1f} %)"
