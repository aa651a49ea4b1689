"""The words of a demo: what nodes and classes are called, and what was gained, said plainly."""

from __future__ import annotations

from typing import Any

__all__ = ["summary_sentences", "words_for"]

_GRAPH = {
    "node": "node",
    "nodes": "nodes",
    "class": "class",
    "classes": "classes",
    "link": "link",
    "links": "links",
}
_WORDS = {
    "debian": {
        "node": "package",
        "nodes": "packages",
        "class": "section",
        "classes": "sections",
        "link": "dependency",
        "links": "dependencies",
    }
}
_CALLED = {"MLP on features": "an MLP on the same features", "GLNN": "GLNN (that MLP, taught by a graph network)"}


def words_for(name: str) -> dict[str, str]:
    """What the things of a data set are called.

    Examples
    --------
    >>> words_for("debian")["links"], words_for("cora")["links"]
    ('dependencies', 'links')
    """
    return dict(_WORDS.get(name, _GRAPH))


def summary_sentences(record: dict[str, Any]) -> list[str]:
    """What the graph gave over the features alone, and over similarity and popularity; losses included."""
    words, sentences = record["words"], []
    if record["classification"]:
        baselines = [row for row in record["classification"] if not row["ours"]]
        (ours,) = [row for row in record["classification"] if row["ours"]]
        best = max(baselines, key=lambda row: row["accuracy"])
        gain = next(line for line in record["gains"]["accuracy"] if line["over"] == best["method"])
        beside = ", ".join(
            f"{_CALLED.get(row['method'], row['method'])} for {100 * row['accuracy']:.1f} %" for row in baselines
        )
        sentences.append(
            f"{words['class'].capitalize()} of a new {words['node']}: gsparc is right for "
            f"{100 * ours['accuracy']:.1f} %, {beside}. {_verdict(gain, 100, 'points', 1)}"
        )
    if not record["links"]:
        return sentences
    (ours,) = [row for row in record["links"] if row["ours"]]
    by_name = {row["method"]: row for row in record["links"]}
    plain, best = (
        by_name["feature cosine"],
        max((row for row in record["links"] if not row["ours"]), key=lambda row: row["mrr"] or 0.0),
    )
    gain = next(line for line in record["gains"]["mrr"] if line["over"] == best["method"])
    sentence = f"{words['links'].capitalize()} of a new {words['node']}: MRR {ours['mrr']:.3f}"
    if plain["mrr"]:
        sentence += f", {ours['mrr'] / plain['mrr']:.2f} times that of feature cosine ({plain['mrr']:.3f})"
    if best is not plain:
        sentence += f"; the best baseline, {best['method']}, reaches {best['mrr']:.3f}"
    sentences.append(f"{sentence}. {_verdict(gain, 1, 'MRR', 3)}")
    return sentences


def _verdict(gain: dict[str, Any], scale: float, unit: str, digits: int) -> str:
    """One sentence about a paired difference; an interval that covers zero is no difference."""
    if gain["mean"] is None or gain["low"] is None:
        return "There are too few new nodes to say which is better."
    # rounded as shown, so that "+0.0 to +1.5" does not count as ahead
    low, high, mean = (round(scale * gain[key], digits) + 0.0 for key in ("low", "high", "mean"))
    interval = f"{mean:+.{digits}f} {unit}, 95 % interval {low:+.{digits}f} to {high:+.{digits}f}"
    over = gain["over"] if not gain["over"].startswith("MLP") else "the MLP"
    if low > 0:
        return f"gsparc is ahead of {over}: {interval}."
    if high < 0:
        return f"gsparc loses to {over} here: {interval}."
    return f"That is no clear difference to {over}: {interval}."
