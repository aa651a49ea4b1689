"""Cold-start splits: some nodes arrive after everything has been fitted, with features and without edges."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gsparc._runtime import resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import check_name, unlabelled_mask
from gsparc.exceptions import InputError, LabelError

__all__ = ["ColdStartSplit", "Fold"]

logger = logging.getLogger(__name__)

Ids = NDArray[np.int64]


class Preset(NamedTuple):
    """Shares are floats; an integer counts nodes of each class."""

    cold: float
    validation: float | int
    labels: float | int


PRESETS = {
    "paper": Preset(cold=0.03, validation=0.03, labels=1.0),
    "dense": Preset(cold=0.20, validation=0.05, labels=1.0),
    "few": Preset(cold=0.20, validation=30, labels=20),
    "tenth": Preset(cold=0.20, validation=0.05, labels=0.10),
}
_FROM_A_PERSON: Any = object()  # tells split(X, y) from scikit-learn's split(X, y, groups=None)


class Fold(tuple[Ids, Ids, Ids]):
    """Three sorted index arrays ``(seen, val, cold)``, and which of the seen labels may be used.

    Attributes
    ----------
    seen, val, cold : int64 arrays
        They cover every node once. Only ``seen`` nodes have edges.
    labelled : int64 array
        The seen nodes whose label is visible.
    """

    labelled: Ids

    def __new__(cls, seen: Ids, val: Ids, cold: Ids, labelled: Ids) -> Fold:
        fold = super().__new__(cls, (seen, val, cold))
        fold.labelled = labelled
        return fold

    def __getnewargs__(self) -> tuple[Ids, Ids, Ids, Ids]:  # copies and other processes keep ``labelled``
        return self.seen, self.val, self.cold, self.labelled

    @property
    def seen(self) -> Ids:
        return self[0]

    @property
    def val(self) -> Ids:
        return self[1]

    @property
    def cold(self) -> Ids:
        return self[2]

    def visible_labels(self, y: Any) -> NDArray[np.integer[Any]]:
        """``y`` of the seen nodes, hidden labels replaced by -1 (scikit-learn's sign for unlabelled)."""
        labels = np.asarray(y)
        if not np.issubdtype(labels.dtype, np.integer):
            raise LabelError(
                f"labels of type {labels.dtype} cannot be hidden as -1. Pass integers, for example "
                "sklearn.preprocessing.LabelEncoder().fit_transform(y)."
            )
        if set(np.unique(labels)) == {-1, 1}:
            raise LabelError(
                "the labels -1 and 1 are two classes, so -1 cannot mark hidden ones. Recode them, such as to 0 and 1."
            )
        signed = labels.dtype if np.issubdtype(labels.dtype, np.signedinteger) else np.int64
        visible = np.full(len(self.seen), -1, dtype=signed)
        keep = np.isin(self.seen, self.labelled, assume_unique=True)
        visible[keep] = labels[self.seen[keep]]
        return visible

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={len(ids)}" for name, ids in zip(("seen", "val", "cold"), self, strict=True))
        return f"Fold({sizes}, labelled={len(self.labelled)})"


class ColdStartSplit:
    """Splits nodes into seen, validation and cold ones; usable as scikit-learn's ``cv=``.

    ============ ====== ============= =======================
    name         cold   validation    labels among the seen
    ============ ====== ============= =======================
    ``"paper"``  3 %    3 %           all
    ``"dense"``  20 %   5 %           all
    ``"few"``    20 %   30 per class  20 per class
    ``"tenth"``  20 %   5 %           10 %
    ============ ====== ============= =======================

    Parameters
    ----------
    split : {"dense", "paper", "few", "tenth"}
    cold : float in (0, 1), optional
        Share of all nodes that are cold; overrides the one of the name.
    validation : float in [0, 1) or int, optional
        Share of all nodes, or (an integer) nodes of each class. They have no edges either.
    labels : float in (0, 1] or int, optional
        Share of the seen labels that is visible, or (an integer) how many of each class.
    n_splits : int
        Independent draws, not a partition: a node may be cold in several of them.
    random_state : int, RandomState, Generator or None

    Notes
    -----
    With labels the draw is stratified; unlabelled nodes (-1) form a stratum of their own. A class too small
    for its shares keeps a seen node before it gives one to validation or cold. The same ``random_state``
    and cold share draw the same cold nodes whatever the other two are.

    Called as ``split(X, y)`` it yields triples; called with ``groups``, even ``groups=None``, as
    scikit-learn does, it yields pairs ``(seen + val, cold)``. :meth:`folds` and :meth:`pairs` say which.
    With scikit-learn's metadata routing switched on, pass ``cv=list(split.pairs(X, y))``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.zeros((100, 2)), np.repeat([0, 1], 50)
    >>> for seen, val, cold in ColdStartSplit("dense", random_state=0).split(X, y):
    ...     print(len(seen), len(val), len(cold), np.bincount(y[cold]))
    75 5 20 [10 10]
    """

    def __init__(
        self,
        split: str = "dense",
        *,
        cold: float | None = None,
        validation: float | int | None = None,
        labels: float | int | None = None,
        n_splits: int = 1,
        random_state: RandomState = None,
    ) -> None:
        preset = PRESETS[check_name("split", split, PRESETS)]
        self.name = split
        self.cold = preset.cold if cold is None else _plain(cold)
        self.validation = preset.validation if validation is None else _plain(validation)
        self.labels = preset.labels if labels is None else _plain(labels)
        self.n_splits, self.random_state = n_splits, random_state
        _check_shares(self.cold, self.validation, self.labels, n_splits)

    def __repr__(self) -> str:
        return (
            f"ColdStartSplit({self.name!r}, cold={self.cold:g}, validation={self.validation:g}, "
            f"labels={self.labels:g}, n_splits={self.n_splits}, random_state={self.random_state!r})"
        )

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds there will be; the arguments are scikit-learn's and do not matter."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = _FROM_A_PERSON) -> Iterator[Fold] | Iterator[tuple[Ids, Ids]]:
        """Triples for ``split(X, y)``; pairs, as scikit-learn expects, when ``groups`` is passed."""
        if groups is _FROM_A_PERSON:
            return self.folds(X, y)
        return self.pairs(X, y, groups)

    def pairs(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Ids, Ids]]:
        """``(seen + val, cold)`` of each fold."""
        for seen, val, cold in self.folds(X, y, groups):
            yield np.sort(np.concatenate([seen, val])), cold

    def folds(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Fold]:
        """A :class:`Fold` for each draw; nodes of one group always stay together."""
        n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
        classes = _classes(y, n)
        counted = (isinstance(self.validation, int) and self.validation > 0) or isinstance(self.labels, int)
        if classes is None and counted:
            came = "is missing" if y is None else "holds no classes"
            raise LabelError(
                f"split {self.name!r} counts nodes of each class, but y {came}. "
                "Pass split(X, y) with one class a node, or shares: validation=0.05, labels=0.1."
            )
        units, sizes, strata = _units(classes, groups, n)
        if len(sizes) < 2:
            raise InputError(
                f"{n} node(s) in {len(sizes)} group(s) cannot be split into seen and cold. "
                "Pass at least two nodes, and at least two groups where groups are given."
            )
        unlabelled = np.zeros(n, dtype=bool) if classes is None else classes == 0
        for seed in np.random.SeedSequence(resolve_seed(self.random_state)).spawn(self.n_splits):
            cold_rng, val_rng, label_rng = (np.random.default_rng(s) for s in seed.spawn(3))
            role = np.zeros(len(sizes), dtype=np.int8)  # 0 seen, 1 validation, 2 cold
            role[_draw_cold(strata, sizes, self.cold, cold_rng)] = 2
            role[self._draw_validation(strata, sizes, role == 0, val_rng)] = 1
            of_node = role[units]
            seen, val, cold = (np.flatnonzero(of_node == r).astype(np.int64) for r in range(3))
            known = seen[~unlabelled[seen]]
            labels_of = np.zeros(len(known), dtype=np.int64) if classes is None else classes[known]
            yield Fold(seen, val, cold, known[_draw_labelled(labels_of, self.labels, label_rng)])

    def _draw_validation(self, strata: Ids, sizes: Ids, free: NDArray[np.bool_], rng: np.random.Generator) -> Ids:
        """Units for validation among those that are not cold; each stratum keeps one."""
        where = np.flatnonzero(free)
        if not self.validation or len(where) < 2:
            return where[:0]
        if isinstance(self.validation, int):
            left = np.bincount(strata[where], weights=sizes[where], minlength=strata.max() + 1)
            # With few nodes left, training keeps what it asked for or half of them, whichever is less.
            spare = np.maximum(left - self.labels, left // 2) if isinstance(self.labels, int) else left // 2
            targets = np.minimum(self.validation, spare)
            targets[0] = 0  # stratum 0 holds the unlabelled
        else:
            targets = _targets(strata, sizes, self.validation, rng)
        return where[_take(strata[where], sizes[where], targets, rng)]


def _plain(number: Any) -> Any:
    """numpy's numbers as Python's: whether a number is an integer has a meaning here."""
    return number.item() if isinstance(number, np.number) else number


def _check_shares(cold: Any, validation: Any, labels: Any, n_splits: Any) -> None:
    for name, value in (("cold", cold), ("validation", validation), ("labels", labels)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise InputError(f"{name}={value!r} is not a share; pass a number such as 0.2.")
    if not 0 < cold < 1:
        raise InputError(f"cold={cold} is not a share of the nodes; pass a number between 0 and 1, such as 0.2.")
    if isinstance(validation, float) and cold + validation >= 1:
        raise InputError(
            f"cold={cold:g} and validation={validation:g} leave no seen nodes; pass shares that add up "
            "to less than 1 (an integer validation counts nodes of each class)."
        )
    if labels == 0 or (isinstance(labels, float) and labels > 1):
        raise InputError(f"labels={labels!r}; pass a share in (0, 1], or an integer >= 1 for a number of each class.")
    if isinstance(n_splits, bool) or not isinstance(n_splits, int | np.integer) or n_splits < 1:
        raise InputError(f"n_splits={n_splits!r}; pass an integer >= 1.")


def _classes(y: Any, n: int) -> Ids | None:
    """Codes 1, 2, ... of the classes and 0 for unlabelled; None where y holds no classes."""
    if y is None:
        return None
    labels = np.asarray(y)
    if len(labels) != n:
        raise LabelError(f"y has {len(labels)} labels but X has {n} rows; pass one label a row.")
    if labels.ndim != 1 or (labels.dtype.kind == "f" and not np.array_equal(labels, np.round(labels))):
        return None  # several outputs, or a quantity: nothing to stratify by
    if labels.dtype == object:
        labels = labels.astype(str)
    codes = np.unique(labels, return_inverse=True)[1].astype(np.int64) + 1
    codes[unlabelled_mask(labels)] = 0
    return codes


def _units(classes: Ids | None, groups: Any, n: int) -> tuple[Ids, Ids, Ids]:
    """What is drawn as a whole: the unit of each node, the units' sizes, and their strata."""
    strata = np.ones(n, dtype=np.int64) if classes is None else classes
    if n >= 20 and np.count_nonzero(np.bincount(strata)[1:] == 1) > n // 2:
        logger.debug("most nodes are the only one of their class: the split is not stratified")
        strata = np.minimum(strata, 1)
    if groups is None:
        return np.arange(n), np.ones(n, dtype=np.int64), strata
    names = np.asarray(groups)
    if names.shape != (n,):
        raise InputError(f"groups has shape {names.shape}, expected ({n},): one group for each row of X.")
    names = names.astype(str) if names.dtype == object else names
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    sizes = np.bincount(units)
    # A group belongs to its most frequent class: the last of its (class, count) pairs ordered by count.
    pairs, counts = np.unique(units * (strata.max() + 1) + strata, return_counts=True)
    order = np.lexsort((counts, pairs // (strata.max() + 1)))
    unit_strata = pairs[order][np.cumsum(np.bincount(pairs // (strata.max() + 1))) - 1] % (strata.max() + 1)
    return units, sizes.astype(np.int64), unit_strata


def _targets(strata: Ids, sizes: Ids, share: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Nodes to take from each stratum: the share rounded so that the total is right.

    Rounding the running sum over strata in random order gives each its quota rounded up or down, and the
    small classes their turn over seeds.
    """
    quota = share * np.bincount(strata, weights=sizes)
    order = rng.permutation(len(quota))
    running = np.cumsum(quota[order])
    running[-1] = max(1.0, running[-1])
    targets = np.empty(len(quota))
    targets[order] = np.diff(np.round(running), prepend=0.0)
    return targets


def _take(strata: Ids, sizes: Ids, targets: NDArray[np.float64], rng: np.random.Generator) -> Ids:
    """Random units of each stratum until its target is met; a class always keeps one unit."""
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    sorted_strata, sorted_sizes = strata[order], sizes[order]
    first = np.searchsorted(sorted_strata, sorted_strata)  # where each unit's stratum begins
    before = np.cumsum(sorted_sizes) - sorted_sizes
    before -= before[first]
    last = np.r_[sorted_strata[1:] != sorted_strata[:-1], True] & (sorted_strata > 0)
    # A unit is in when its middle lies below the target: exact for single nodes, unbiased for groups.
    chosen = (before + sorted_sizes / 2 < targets[sorted_strata]) & ~last
    if chosen.all():
        chosen[-1] = False
    return order[chosen]


def _draw_cold(strata: Ids, sizes: Ids, share: float, rng: np.random.Generator) -> Ids:
    cold = _take(strata, sizes, _targets(strata, sizes, share, rng), rng)
    if len(cold):
        return cold
    # Every group is larger than the share, or every class has one node: one of the smallest units is cold.
    crowded = np.bincount(strata)[strata]
    return cast(Ids, np.lexsort((rng.random(len(sizes)), sizes, -crowded))[:1])


def _draw_labelled(classes: Ids, labels: float | int, rng: np.random.Generator) -> Ids:
    """Positions whose label is visible, sorted; at least one of each class."""
    if isinstance(labels, float) and labels == 1.0:
        return np.arange(len(classes))
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    ordered = classes[order]
    position = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    if isinstance(labels, int):
        wanted = np.full(int(classes.max(initial=0)) + 1, float(labels))
    else:
        counts = np.bincount(classes)
        wanted = np.maximum(1.0, _targets(classes, np.ones_like(classes), labels, rng)) if len(counts) else counts
    return np.sort(order[position < wanted[ordered]])
