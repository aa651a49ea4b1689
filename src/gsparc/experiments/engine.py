"""What a table of the paper is made of: cells, methods, measures, and one function that runs a cell.

A module of this folder defines one ``TABLE = Experiment(...)``. Everything else is here and in
:mod:`~gsparc.experiments.runner`: which cells there are, running them in several processes, result files, rows.

The result file ``DIR/NAME.json`` that pages are made from::

    experiment, title, question, x_axis     as in the Experiment
    versions, hardware, commit, created     of the last run that wrote to the file
    methods   [{label, sees, cold, ours}]
    metrics   [{name, title, better}]       the first one is the headline
    cells     {"cora | dense | GLNN | 3": one of
                 {numbers: {metric: percent, curve: [..]}, seconds, device, commit, generated}
                 {not_applicable: sentence, ..}  {error: sentence, ..}}
    rows      [{dataset, setting, method, ours, generated, seconds, reason,
                metrics: {name: {mean, spread, seeds, paper, difference, reason}},
                curves: {name: {mean, spread, seeds}}}]
                 spread: sample standard deviation, None with one seed; paper: the paper's figure or None
                 difference: None, or {to: label, mean, low, high, seeds}: this method minus the best baseline of
                             the same data set and setting (None in the best baseline's own row), seed by seed,
                             with the 95 % interval (low and high are None with one seed)
                 reason: None, or the sentence to print where there are no figures (a metric's own: where it alone is
                         missing; ``run`` gives it as ``"reasons": {metric: sentence}`` among its numbers)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gsparc._validation import check_name
from gsparc.exceptions import InputError

if TYPE_CHECKING:
    from gsparc.datasets.base import Dataset

__all__ = ["GENERATED_SIZES", "SMALL_GRAPH", "Cell", "Context", "Experiment", "Method", "Metric", "never", "plan"]

SMALL_GRAPH = "generated"  # the data set of a smoke run
# Edges as the paper counts them; the graphs' own pages count those of Reddit differently.
GENERATED_SIZES = {
    "reddit": {"num_nodes": 232_965, "num_edges": 11_606_919, "num_features": 602, "num_classes": 41},
    "amazon2m": {"num_nodes": 2_449_029, "num_edges": 61_859_140, "num_features": 100, "num_classes": 47},
}
_SEPARATOR = " | "


@dataclass(frozen=True)
class Cell:
    """One number of a table before averaging: a method on a data set, in a setting, with a seed.

    Examples
    --------
    >>> cell = Cell("cora", "dense", "GLNN", 3)
    >>> cell.key
    'cora | dense | GLNN | 3'
    >>> Cell.from_key(cell.key) == cell
    True
    """

    dataset: str
    setting: str  # a split's name, a share "0.3", an alpha "0.5"; "" where there is none
    method: str
    seed: int

    @property
    def key(self) -> str:
        """The cell's name in a result file."""
        return _SEPARATOR.join((self.dataset, self.setting, self.method, str(self.seed)))

    @classmethod
    def from_key(cls, key: str) -> Cell:
        """The cell that a key names."""
        dataset, setting, method, seed = key.split(_SEPARATOR)
        return cls(dataset, setting, method, int(seed))


@dataclass(frozen=True)
class Method:
    """A method as a table and the audit page show it.

    Attributes
    ----------
    label : str
        As printed; unique within a table.
    sees : str
        One sentence: what its fit was allowed to see.
    cold : str
        What it does with a node without edges: ``"its own features only"``, ``"not applicable: needs edges"``.
    ours : bool
        Whether it is one of this library's methods rather than a baseline.
    no_rival_by : tuple of str
        Measures by which it does well by construction, so that nobody is compared with it.
    """

    label: str
    sees: str
    cold: str
    ours: bool = False
    no_rival_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric:
    """A measure: its key among the numbers of a cell, its heading, and which way is better."""

    name: str
    title: str
    better: Literal["higher", "lower"] = "higher"


def never(dataset: str, setting: str, method: str) -> str | None:
    """Skip no cell: the default of :class:`Experiment`."""
    return None


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    ``run`` is called in a process of its own that imports the module in which ``run`` is defined and takes its
    ``TABLE``: both belong into the same module. It takes all randomness from ``cell.seed`` and returns numbers in
    percent, lists for curves, ``"seconds"`` where fitting alone was timed, or ``{"not_applicable": sentence}``.

    Attributes
    ----------
    name : str
        The command's word: ``"cold-share"``.
    title, question : str
        One sentence each.
    datasets : tuple of str
        Those that run by default; ``--datasets`` may name any other as well.
    settings : callable
        ``settings(dataset)`` gives the settings of a data set, of any name, ``"generated"`` included.
    methods, metrics : tuple
        Rows and columns; the first metric is the headline.
    run : callable
        ``run(cell, context)``.
    paper : mapping
        (dataset, setting, method) to the paper's figures by metric.
    x_axis : str, optional
        What the setting means, where it is a number to plot against.
    skip : callable
        ``skip(dataset, setting, method)``: the sentence to print in place of a cell that is not run, or None.
    against : str, optional
        The method that the question names; differences to it stand beside those to the best baseline.
    """

    name: str
    title: str
    question: str
    datasets: tuple[str, ...]
    settings: Callable[[str], tuple[str, ...]]
    methods: tuple[Method, ...]
    metrics: tuple[Metric, ...]
    run: Callable[[Cell, Context], dict[str, Any]]
    paper: Mapping[tuple[str, str, str], dict[str, float]] = field(default_factory=dict)
    x_axis: str | None = None
    skip: Callable[[str, str, str], str | None] = never
    against: str | None = None

    @property
    def module(self) -> str:
        """The module that a worker imports to find this table again."""
        return self.run.__module__

    def method(self, label: str) -> Method:
        """The method of this label."""
        return next(method for method in self.methods if method.label == label)


@dataclass(frozen=True)
class Context:
    """What a cell runs with: a device, its data, and whether it is a smoke run.

    Attributes
    ----------
    dataset : str
        Name of the data set.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    smoke : bool
        Settings so small that a cell ends in about a second.
    data_dir : Path, optional
        Where the data sets' files are, instead of the usual places.
    generated : bool
        Replace Reddit and Amazon2M by generated graphs of their size.
    shared : Path, optional
        A folder of this run and table, where cells leave what others would compute again.
    """

    dataset: str
    device: str = "auto"
    smoke: bool = False
    data_dir: Path | None = None
    generated: bool = False
    shared: Path | None = None

    @property
    def data(self) -> Dataset:
        """The data set; read once a process."""
        return _load(self.dataset, self.data_dir, self.is_generated, self.smoke)

    @property
    def is_generated(self) -> bool:
        """Whether the data is made up, so that no accuracy on it is a claim about the data set of that name."""
        return self.dataset == SMALL_GRAPH or (self.generated and self.dataset in GENERATED_SIZES)

    @property
    def scale(self) -> dict[str, bool]:
        """``{"smoke": True}`` in a smoke run."""
        return {"smoke": self.smoke}

    def steps(self, **settings: int) -> dict[str, int]:
        """``settings`` in a smoke run, nothing otherwise: for ``Model(**context.steps(max_steps=5))``."""
        return settings if self.smoke else {}


@lru_cache(maxsize=1)  # cells come ordered by data set, and the large ones take gigabytes
def _load(name: str, folder: Path | None, generated: bool, smoke: bool) -> Dataset:
    from dataclasses import replace

    from gsparc.datasets import load_dataset, make_blocks

    if name == SMALL_GRAPH:
        data = make_blocks(400, 2400, 32, branching=(4, 2), random_state=0)
    elif generated:
        size: dict[str, Any] = GENERATED_SIZES[name]
        if smoke:  # the same path at a hundredth of the size
            size = {**size, "num_nodes": size["num_nodes"] // 100, "num_edges": size["num_edges"] // 100}
        data = make_blocks(**size, random_state=0)
    else:
        return load_dataset(name, folder=folder, allow_pickle_sources=False)  # the command line never unpickles
    return replace(data, name=name)


def plan(
    experiment: Experiment,
    *,
    seeds: Iterable[int],
    datasets: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    smoke: bool = False,
) -> list[Cell]:
    """All cells of a run in the order of the table, seeds innermost; unknown names are refused.

    Examples
    --------
    >>> from gsparc.experiments.engine import Experiment, Method, Metric, plan
    >>> table = Experiment("t", "T.", "Q?", ("cora",), lambda name: ("dense",), (Method("A", "all", "own"),),
    ...                    (Metric("cold", "cold, %"),), run=lambda cell, context: {"cold": 50.0})
    >>> [cell.key for cell in plan(table, seeds=range(2))]
    ['cora | dense | A | 0', 'cora | dense | A | 1']
    """
    from gsparc.datasets import list_datasets

    labels = [method.label for method in experiment.methods]
    chosen = labels if methods is None else _choose("method", methods, labels)
    default = (SMALL_GRAPH,) if smoke else experiment.datasets
    known = dict.fromkeys((*experiment.datasets, *(entry.name for entry in list_datasets()), SMALL_GRAPH))
    graphs = list(default) if datasets is None else _choose("data set", datasets, list(known))
    numbers = list(seeds)
    offered = list(dict.fromkeys(setting for graph in graphs for setting in experiment.settings(graph)))
    wanted = None if settings is None else _choose("setting", settings, offered)
    cells = [
        Cell(graph, setting, method, seed)
        for graph in graphs
        for setting in _settings_of(experiment, graph, wanted, smoke)
        for method in chosen
        for seed in numbers
    ]
    if not cells:
        raise InputError(
            f"no cell is left of table {experiment.name!r}. Pass at least one seed, data set, setting and method."
        )
    return cells


def _settings_of(experiment: Experiment, dataset: str, wanted: list[str] | None, smoke: bool) -> list[str]:
    """A smoke run takes the first setting, and the last of an axis, so that its ends are seen to work."""
    offered = list(experiment.settings(dataset))
    if wanted is not None:
        return [setting for setting in offered if setting in wanted]
    return list(dict.fromkeys((offered[0], offered[-1] if experiment.x_axis else offered[0]))) if smoke else offered


def _choose(kind: str, wanted: Iterable[str], known: list[str]) -> list[str]:
    """The wanted names in the table's order; upper and lower case do not matter."""
    lower = {name.lower(): name for name in known}
    chosen = {check_name(kind, lower.get(str(name).lower(), name), known) for name in wanted}
    return [name for name in known if name in chosen]
