"""Three cold nodes chosen by a rule: one that went well, a typical one, and a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["Candidates", "choose_examples", "describe_example"]

MIN_LINKS = 3
_SUGGESTED, _NEAREST, _CLASSES_SHOWN = 8, 5, 3


@dataclass(frozen=True)
class Candidates:
    """What is known about each cold node after prediction.

    Attributes
    ----------
    degree : int array of shape (m,)
        True links to seen nodes.
    found : int array of shape (m,)
        How many of the suggested nodes are true links.
    right : bool array of shape (m,), or None without classes
    labelled : bool array of shape (m,), or None
    confidence : float array of shape (m,), or None
        Probability of the predicted class.
    """

    degree: NDArray[Any]
    found: NDArray[Any]
    right: NDArray[Any] | None = None
    labelled: NDArray[Any] | None = None
    confidence: NDArray[Any] | None = None


def choose_examples(nodes: Candidates, min_links: int = MIN_LINKS) -> list[tuple[str, int]]:
    """Positions of a good case, a typical case and a mistake; fewer where the nodes do not offer them.

    The pool are the nodes with at least ``min_links`` true links (all with one, where that leaves none).
    Good: classified right, most suggestions true. Typical: classified right, with the median number of true
    suggestions and the confidence nearest the median. Mistake: the most confident wrong class, or
    without classes no true suggestion for the most links. Ties go to the node with more links.

    Examples
    --------
    >>> import numpy as np
    >>> nodes = Candidates(np.array([3, 4, 5]), np.array([3, 0, 1]), np.array([True, False, True]),
    ...                    np.ones(3, bool), np.array([0.9, 0.8, 0.5]))
    >>> choose_examples(nodes)
    [('good', 0), ('typical', 2), ('mistake', 1)]
    """
    labelled = np.ones(len(nodes.degree), bool) if nodes.labelled is None else nodes.labelled
    pool = np.flatnonzero((nodes.degree >= min_links) & labelled)
    if not len(pool):
        pool = np.flatnonzero(labelled)
    right = np.ones(len(nodes.degree), bool) if nodes.right is None else nodes.right
    confidence = np.zeros(len(nodes.degree)) if nodes.confidence is None else nodes.confidence
    chosen: list[tuple[str, int]] = []

    def take(kind: str, among: NDArray[Any], *keys: NDArray[Any]) -> None:
        """The first of ``among`` in ascending order of the keys, the most important key first."""
        among = among[~np.isin(among, [where for _, where in chosen])]
        if len(among):
            order = np.lexsort(tuple(key[among] for key in reversed(keys)))
            chosen.append((kind, int(among[order[0]])))

    good = pool[right[pool]]
    take("good", good, -nodes.found, -confidence, -nodes.degree)
    wrong = pool[~right[pool]] if nodes.right is not None else pool[nodes.found[pool] == 0]
    if len(good):
        usual = np.abs(nodes.found - np.median(nodes.found[good]))
        take(
            "typical",
            np.setdiff1d(good, wrong),
            usual,
            np.abs(confidence - np.median(confidence[good])),
            -nodes.degree,
        )
    take("mistake", wrong, -confidence, -nodes.degree)
    return chosen


_TAGS = {"good": "went well", "typical": "typical", "mistake": "a mistake"}


def describe_example(
    kind: str,
    name: str,
    *,
    words: dict[str, str],
    truth_row: sp.csr_array,
    seen_names: NDArray[Any],
    suggested: tuple[NDArray[Any], NDArray[Any]],
    nearest: tuple[NDArray[Any], NDArray[Any]] | None,
    proba: NDArray[Any] | None,
    class_names: NDArray[Any],
    seen_class: NDArray[Any] | None,
    true_class: int,
) -> dict[str, Any]:
    """Everything the page and the terminal show about one cold node, as plain values.

    ``suggested`` and ``nearest`` are positions among the seen nodes, with scores and distances.
    """
    true_links = set(truth_row.indices.tolist())
    links = [
        {"id": str(seen_names[where]), "score": float(score), "true": int(where) in true_links}
        for where, score in zip(*suggested, strict=True)
    ]
    top = [] if proba is None else np.argsort(-proba, kind="stable")[:_CLASSES_SHOWN]
    predicted = [{"class": str(class_names[c]), "probability": float(proba[c])} for c in top]  # pyright: ignore[reportOptionalSubscript]
    near = []
    if nearest is not None:
        for where, distance in zip(*nearest, strict=True):
            label = -1 if seen_class is None else int(seen_class[where])
            near.append(
                {
                    "id": str(seen_names[where]),
                    "class": str(class_names[label]) if label >= 0 else None,
                    "distance": float(distance),
                }
            )
    found = sum(link["true"] for link in links)
    correct = bool(len(top)) and int(top[0]) == true_class
    record = {
        "kind": kind,
        "tag": _TAGS[kind],
        "id": name,
        "links": len(true_links),
        "predicted": predicted,
        "true": str(class_names[true_class]) if true_class >= 0 else None,
        "correct": correct if predicted else None,
        "suggested": links,
        "found": found,
        "nearest": near,
    }
    return {**record, "why": _why(record, words)}


def _why(record: dict[str, Any], words: dict[str, str]) -> str:
    linked = f"{record['found']} of {len(record['suggested'])} suggested {words['links']} are true"
    if not record["predicted"]:
        return f"{linked}."
    share = f"{100 * record['predicted'][0]['probability']:.0f} %"
    if record["kind"] == "mistake":
        return (
            f"The most confident wrong {words['class']}: {record['predicted'][0]['class']} at {share}, "
            f"but it is {record['true']}. {linked}."
        )
    if record["kind"] == "typical":
        return f"The usual case: the right {words['class']} at {share}, and {linked}."
    return f"The right {words['class']} at {share}, and {linked}: the most of all."
