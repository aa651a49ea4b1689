"""Whether new rows still look like those that a model was trained on, in figures and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gsparc.exceptions import InputError
from gsparc.metrics import share_interval

__all__ = ["drift", "total_variation", "total_variation_noise"]

_FAR = 2.0  # retrain when surely more than so many times the expected share of rows is far out
_SHIFT = 0.1  # retrain when labels have surely shifted by so much
_UNKNOWN = 0.05  # retrain when surely more than this share of the labelled rows is of a class without a column


def total_variation(one: ArrayLike, other: ArrayLike) -> float:
    """Half the sum of differences of two distributions: the share of rows that would have to change class.

    Examples
    --------
    >>> total_variation([0.5, 0.5, 0.0], [0.25, 0.5, 0.25])
    0.25
    """
    return float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).sum() / 2)


def total_variation_noise(
    one: ArrayLike, count: float, other: ArrayLike, other_count: float, confidence: float = 0.95
) -> float:
    """How much of a total variation distance chance alone explains, given the numbers of rows.

    With shares ``p`` of ``m`` rows and ``q`` of ``n`` rows, the distance differs from that of the true shares by
    no more than the noise ``1/2 sum |error of p - error of q|``. Its mean is at most
    ``1/2 sum_c sqrt(p_c (1 - p_c) / m + q_c (1 - q_c) / n)``, and as one row moves it by at most ``1/m`` or ``1/n``, it
    exceeds its mean by ``sqrt((1/m + 1/n) log(1 / (1 - confidence)) / 2)`` with probability ``1 - confidence`` at most
    (McDiarmid). The observed shares stand for the true ones in the first term. Nothing is resampled.

    Examples
    --------
    >>> round(total_variation_noise([0.5, 0.5], 100, [0.5, 0.5], np.inf), 4)
    0.1724
    """
    p, q = np.asarray(one, np.float64), np.asarray(other, np.float64)
    mean = np.sqrt(p * (1 - p) / count + q * (1 - q) / other_count).sum() / 2
    return float(mean + np.sqrt((1 / count + 1 / other_count) * np.log(1 / (1 - confidence)) / 2))


def drift(
    novelty: ArrayLike,
    labels: ArrayLike | None,
    training: ArrayLike | None,
    *,
    given: bool | None = None,
    classes: ArrayLike | None = None,
    strangers: Mapping[str, int] | None = None,
    labelled: int | None = None,
    level: float = 0.05,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Distance of new rows to what was seen, shift of their labels, and whether to retrain.

    Parameters
    ----------
    novelty : array of shape (m,)
        Their p-values (:meth:`SparcClassifier.novelty`): of rows like the training ones a share ``p`` is at most ``p``.
    labels : array of shape (C,) or None
        New rows of each class, given or predicted; or their shares, summing to one, of all ``m`` rows.
    training : array of shape (C,) or None
        The same of the training rows; of shares the number of rows is not known and they are taken as exact.
    given : bool or None
        Whether `labels` were given (True) or predicted (False); only changes the words. Predictions lean towards
        frequent classes: their shift is a hint, that of given labels a fact.
    classes : array of shape (C,), optional
        Names, to say which class moved most.
    strangers : mapping of str to int, optional
        Labelled new rows of each class that the model does not know, and so can never predict.
    labelled : int, optional
        All labelled new rows, those of `strangers` among them. Needed with `strangers`.
    level, confidence : float

    Returns
    -------
    dict
        Of plain numbers: ``rows``, ``far_share`` with ``far_low``, ``far_high``, ``far_expected``; ``label_rows``,
        ``label_distance``, ``label_noise`` (what chance may explain), ``label_shift`` (the rest: the labels have surely
        shifted by that much), ``label_most`` (the class that moved most); ``unknown_rows``, ``unknown_share`` (of the
        labelled rows), ``unknown_low``, ``unknown_classes`` (the most frequent five); ``retrain`` and ``sentence``.
        Those on labels are None without labels.

    Notes
    -----
    Retraining is advised where surely more than twice the expected share of rows is far out, where the labels have
    surely shifted by a tenth, or where surely more than a twentieth of the labelled rows is of a class that the model
    does not know. Surely: the lower end of a 95 % interval lies beyond that. The first two do not say that predictions
    are wrong: they say that the rows are not those that accuracy was measured on. The last one does: no model predicts
    a class that it was not fitted on.

    Examples
    --------
    >>> found = drift([0.01] * 30 + [0.5] * 70, [50, 50], [500, 500])
    >>> found["retrain"], round(found["far_low"], 3), found["label_shift"]
    (True, 0.212, 0.0)
    >>> found["sentence"]
    'Retraining is advised: 30.0 % of 100 new rows lie far from every known node, where 5 % are expected.'
    """
    values = np.asarray(novelty, np.float64)
    if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            f"novelty of shape {values.shape} came, expected one p-value from 0 to 1 for each of at least one new row."
        )
    hits = int(np.count_nonzero(values <= level))
    low, high = share_interval(hits, len(values), confidence)
    found: dict[str, Any] = {"rows": len(values), "far_share": hits / len(values), "far_low": low, "far_high": high}
    found["far_expected"] = level
    found |= _label_shift(labels, training, len(values), classes, confidence)
    found |= _unknown(strangers or {}, labelled, confidence)
    far, shifted = low > _FAR * level, (found["label_shift"] or 0.0) > _SHIFT
    unknown = (found["unknown_low"] or 0.0) > _UNKNOWN
    found["retrain"] = bool(far or shifted or unknown)
    found["sentence"] = _sentence(found, far=far, shifted=shifted, unknown=unknown, given=given)
    return found


def _unknown(strangers: Mapping[str, int], labelled: int | None, confidence: float) -> dict[str, Any]:
    """How many of the labelled rows are of classes that the model does not know."""
    names = ("unknown_rows", "unknown_share", "unknown_low", "unknown_classes")
    rows = sum(strangers.values())
    if strangers and (labelled is None or labelled < rows):
        raise InputError(f"labelled={labelled} came with {rows} rows of unknown classes; pass all labelled rows.")
    if not labelled:
        return dict.fromkeys(names)
    often = sorted(strangers, key=lambda name: -strangers[name])[:5]
    low, _ = share_interval(rows, labelled, confidence)
    return dict(zip(names, (rows, rows / labelled, low, often), strict=True))


def _label_shift(
    labels: ArrayLike | None, training: ArrayLike | None, rows: int, classes: ArrayLike | None, confidence: float
) -> dict[str, Any]:
    names = ("label_rows", "label_distance", "label_noise", "label_shift", "label_most")
    if labels is None or training is None:
        return dict.fromkeys(names)
    (now, count), (before, seen) = _shares("labels", labels, rows), _shares("training", training, np.inf)
    if now.shape != before.shape:
        raise InputError(
            f"labels of {len(now)} classes came with training rows of {len(before)}; pass the same classes."
        )
    if not count:  # no new row is labelled
        return dict.fromkeys(names) | {"label_rows": 0}
    distance = total_variation(now, before)
    noise = total_variation_noise(now, count, before, seen, confidence)
    most = int(np.abs(now - before).argmax())
    name = most if classes is None else np.asarray(classes)[most].item()
    return dict(zip(names, (int(count), distance, noise, max(0.0, distance - noise), name), strict=True))


def _shares(what: str, values: ArrayLike, rows: float) -> tuple[NDArray[np.float64], float]:
    """Shares and the number of rows behind them; ``rows`` where shares came."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array) or not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(f"{what} of shape {array.shape} came, expected a number >= 0 for each class.")
    total = float(array.sum())
    if not total:
        if rows == np.inf:
            raise InputError("training holds no labelled row, so there is nothing to compare labels with; pass None.")
        return array, 0
    return array / total, rows if abs(total - 1.0) < 1e-6 else total


def _sentence(found: dict[str, Any], *, far: bool, shifted: bool, unknown: bool, given: bool | None) -> str:
    count, share = f"{found['rows']:,} new row" + "s" * (found["rows"] != 1), f"{100 * found['far_share']:.1f} %"
    expected = f"{100 * found['far_expected']:g} %"
    kind = {None: "", True: "given ", False: "predicted "}[given]
    moved = "" if found["label_shift"] is None else f"{100 * found['label_shift']:.0f} %"
    reasons = []
    if unknown:
        reasons.append(f"{_strangers(found)} (up to {100 * _UNKNOWN:g} % are borne)")
    if far:
        reasons.append(f"{share} of {count} lie far from every known node, where {expected} are expected")
    if shifted:
        most = f", most of all {found['label_most']!r}"
        reasons.append(f"the {kind}labels have shifted by at least {moved} of the rows{most}")
    if reasons:
        return f"Retraining is advised: {', and '.join(reasons)}."
    near = f"{share} of {count} lie far from every known node ({expected} are expected"
    near += ", up to chance)" if found["far_low"] <= found["far_expected"] else "; more than chance, but few)"
    few = f" {_strangers(found)}." if found["unknown_rows"] else ""
    few = few[:1] + few[1:2].upper() + few[2:]
    if found["label_shift"] is None:
        return f"Retraining is not needed: {near}.{few}"
    labels = "as in training, up to chance" if not found["label_shift"] else f"nearly as in training ({moved} moved)"
    return f"Retraining is not needed: {near}, and their {kind}labels are spread {labels}.{few}"


def _strangers(found: dict[str, Any]) -> str:
    """How many rows are of classes that the model does not know, and of which."""
    names = ", ".join(map(repr, found["unknown_classes"][:3])) + (", ..." if len(found["unknown_classes"]) > 3 else "")
    rows, share, be = found["unknown_rows"], found["unknown_share"], "is" if found["unknown_rows"] == 1 else "are"
    return (
        f"{rows:,} of the labelled rows ({100 * share:.1f} %) {be} of a class that the model does not know and "
        f"cannot predict: {names}"
    )
