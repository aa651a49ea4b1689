"""Where a computation runs, what seeds it, and how it shows its progress."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from gsparc._processes import world
from gsparc._typing import RandomState
from gsparc.exceptions import InputError

if TYPE_CHECKING:
    import torch  # takes seconds: what only needs a seed or a bar does without it

__all__ = [
    "PlainTorch",
    "Progress",
    "Stage",
    "further_seed",
    "plain_torch",
    "progress_bar",
    "resolve_device",
    "resolve_seed",
    "seeded",
    "stage_bar",
    "stage_times",
    "timed",
    "torch_generator",
]

_borrowed = [threading.RLock()]  # held by the thread that uses torch's generators, of which a process has one a device
_number_type = [threading.Lock()]  # guards the next two
_inside = [0]  # calls, of any thread, that need single precision as torch's default
_outside: list[torch.dtype] = []  # the default that the last of them restores
_SEEDS = 2**32
_times: ContextVar[dict[str, float] | None] = ContextVar("times", default=None)


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"`` into a usable device."""
    import torch

    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device={device!r} is not a device. Pass 'auto', 'cpu', 'cuda' or 'cuda:N'.") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"device={str(device)!r} was asked for, but torch sees no CUDA device here. Pass device='auto' or 'cpu'."
        )
    return resolved


def resolve_seed(random_state: RandomState) -> int:
    """One integer seed from anything scikit-learn accepts as ``random_state``."""
    if random_state is None:
        return world().fresh_seed()
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**31 - 1))
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if not 0 <= random_state < _SEEDS:
            reason = "negative" if random_state < 0 else "too large"
            raise InputError(f"random_state={random_state} is {reason}; pass an integer from 0 to 4294967295 or None.")
        return int(random_state)
    raise InputError(
        f"random_state={random_state!r} cannot seed a generator; pass an integer >= 0, "
        "a numpy RandomState or Generator, or None."
    )


def further_seed(seed: int, number: int) -> int:
    """The seed of a further start, map or teacher: ``seed + number``, and after the largest seed 0.

    Examples
    --------
    >>> further_seed(7, 2), further_seed(4294967295, 1)
    (9, 0)
    """
    return (seed + number) % _SEEDS


def torch_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator on ``device`` started from ``seed``."""
    import torch

    return torch.Generator(device=device).manual_seed(seed)


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Start torch's own generators from ``seed`` in here, and leave them afterwards as they were.

    Layers draw their first weights and dropout from the generator of the CPU and from that of ``device``. The whole
    process shares them: other threads wait here until this one is done.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     drawn = torch.rand(1)
    >>> bool(drawn == torch.rand(1, generator=torch_generator(3))), bool((torch.get_rng_state() == before).all())
    (True, True)
    """
    import torch

    place = torch.device(device)
    on_gpu = place.type == "cuda"
    with _borrowed[0], torch.random.fork_rng(devices=[place] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(place):
                torch.cuda.manual_seed(seed)
        yield


def _lock_anew() -> None:
    """In a forked process, where a thread that held a lock does not exist any more."""
    _borrowed[0], _number_type[0] = threading.RLock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock_anew)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Torch as it is after its import: gradients, no inference mode, no autocast, single precision by default.

    A call of ours computes the same whatever the caller has set, and leaves those settings as they were. The default
    type of numbers is one for the whole process: it comes back when no thread is in here any more.

    Examples
    --------
    >>> import torch
    >>> with torch.inference_mode(), plain_torch():
    ...     torch.ones(1, requires_grad=True).sum().backward()
    """
    import torch

    with ExitStack() as settings:
        settings.enter_context(_single_precision())
        if torch.is_inference_mode_enabled():
            settings.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            settings.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                settings.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def _single_precision() -> Iterator[None]:
    import torch

    with _number_type[0]:
        if not _inside[0]:
            _outside[:] = [torch.get_default_dtype()]
            if _outside[0] != torch.float32:
                torch.set_default_dtype(torch.float32)
        _inside[0] += 1
    try:
        yield
    finally:
        with _number_type[0]:
            _inside[0] -= 1
            if not _inside[0] and _outside[0] != torch.float32:
                torch.set_default_dtype(_outside[0])


class PlainTorch:
    """Base of what users call: the public methods of every class below it run in :func:`plain_torch`.

    Examples
    --------
    >>> import torch
    >>> class Model(PlainTorch):
    ...     def fit(self):
    ...         return torch.is_grad_enabled()
    >>> with torch.no_grad():
    ...     Model().fit()
    True
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _in_plain_torch(method))


def _in_plain_torch(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with plain_torch():
            found = method(*args, **kwargs)
        return _step_by_step(found) if isinstance(found, Generator) else found

    return call


def _step_by_step(parts: Generator[Any, Any, Any]) -> Iterator[Any]:
    """Blocks that are made when they are asked for, each in :func:`plain_torch`; between them the caller's settings."""
    while True:
        with plain_torch():
            try:
                part = next(parts)
            except StopIteration:
                return
        yield part


@contextmanager
def stage_times() -> Iterator[dict[str, float]]:
    """Seconds that the stages of computations in here take, by name, in the order in which they end.

    A stage on a GPU is waited for at both ends, which costs a little; without this nothing is waited for.

    Examples
    --------
    >>> with stage_times() as seconds:
    ...     with timed("nothing"):
    ...         pass
    >>> list(seconds)
    ['nothing']
    """
    seconds: dict[str, float] = {}
    token = _times.set(seconds)
    try:
        yield seconds
    finally:
        _times.reset(token)


@contextmanager
def timed(stage: str) -> Iterator[None]:
    """A stage of a computation, for :func:`stage_times`; stages of one name add up."""
    seconds = _times.get()
    if seconds is None:
        yield
        return
    _wait_for_gpu()
    start = time.perf_counter()
    try:
        yield
    finally:
        _wait_for_gpu()
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start


def _wait_for_gpu() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Progress:
    """What a long computation reports to: a bar, or nothing."""

    def update(self, completed: float, **fields: Any) -> None:
        """Say how much is done; ``fields`` are short figures shown beside the bar."""


class _RichProgress(Progress):
    """A bar in a terminal; elsewhere, where a bar cannot move, a line now and then."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task
        console = bar.console
        self._moves = console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal)
        self._start = self._said = time.monotonic()

    def update(self, completed: float, **fields: Any) -> None:
        note = "  ".join(f"{name} {value}" for name, value in fields.items())
        self._bar.update(self._task, completed=completed, note=note)
        now = time.monotonic()
        if not self._moves and now - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = now
            task = next(task for task in self._bar.tasks if task.id == self._task)
            line = f"{task.description.strip()}: {_how_far(completed, task.total, now - self._start)}"
            self._bar.console.print(f"{line}; {note}" if note else line, highlight=False, markup=False, soft_wrap=True)


def _how_far(completed: float, total: float | None, seconds: float) -> str:
    """How much is done and how long the rest will take, in words.

    Examples
    --------
    >>> _how_far(30, 90, 240.0), _how_far(89, 90, 240.0), _how_far(5000, None, 60.0)
    ('30 of 90, about 8 minutes left', '89 of 90, about 3 seconds left', '5,000')
    """
    if not total:
        return f"{completed:,.0f}"
    words = f"{completed:,.0f} of {total:,.0f}"
    if not 0 < completed < total:
        return words
    left = seconds * (total - completed) / completed
    unit, size = next(((u, s) for u, s in (("hour", 3600), ("minute", 60)) if left >= 2 * s), ("second", 1))
    return f"{words}, about {round(left / size)} {unit}s left"


_SECONDS_BETWEEN_LINES = 30.0  # in a log, where no bar can be shown
_shared: list[Any] = []  # the bar of a job in stages; bars that are opened inside join it: a terminal has one display


@contextmanager
def progress_bar(description: str, total: float | None, *, show: bool) -> Iterator[Progress]:
    """A progress bar with the time left, on standard error; silent when ``show`` is false.

    Without a ``total`` it counts and does not know the end. Where standard error is no terminal, a line every half
    minute at most says how far it is.
    """
    if not show:
        yield Progress()
        return
    if _shared:
        task = _shared[-1].add_task(f"  {description}", total=total, note="")
        try:
            yield _RichProgress(_shared[-1], task)
        finally:
            _shared[-1].remove_task(task)
        return
    with _rich_bar() as bar:
        yield _RichProgress(bar, bar.add_task(description, total=total, note=""))


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichBar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return RichBar(*columns, console=Console(file=sys.stderr), transient=False)


Stage = Callable[[str, float], None]
"""Called with a sentence when a stage begins, and with the share of all work that is done by then."""


@contextmanager
def stage_bar(description: str, *, show: bool) -> Iterator[Stage]:
    """One bar for a job in several stages; each stage is a line above it, and bars of the stages appear below."""
    if not show:
        yield lambda sentence, done: None
        return
    with _rich_bar() as bar:
        task = bar.add_task(description, total=100, note="")
        _shared.append(bar)

        def begin(sentence: str, done: float) -> None:
            bar.console.print(sentence, highlight=False, markup=False, soft_wrap=True)
            bar.update(task, completed=max(bar.tasks[0].completed, round(100 * done)))

        try:
            yield begin
            bar.update(task, completed=100)
        finally:
            _shared.remove(bar)
