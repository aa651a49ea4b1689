"""Which of several processes that train together this one is. Knows nothing of torch, so that asking costs nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

__all__ = ["World", "entered", "launched", "usable_cores", "world"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each of its workers


@dataclass(frozen=True)
class World:
    """One of ``size`` processes that run the same program on the same data, and train together.

    Attributes
    ----------
    rank, size
        Number of this process, from 0, and how many there are.
    local_rank, local_size
        The same among the processes of this machine.
    entropy
        A number that all of them share: fresh seeds are made from it, so that they are the same everywhere.
    attempt
        How often torchrun has started them again because one was lost.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    entropy: int = 0
    attempt: int = 0
    _fresh: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and shows progress."""
        return self.rank == 0

    def share(self, count: int) -> int:
        """How many of ``count`` draws each process makes, rounded up.

        Examples
        --------
        >>> [World(size=size).share(2048) for size in (1, 2, 3)]
        [2048, 1024, 683]
        """
        return -(-count // self.size)

    def seed(self, seed: int) -> int:
        """A seed of this process' own; the first process, and a process alone, keeps ``seed`` itself."""
        return seed if self.first else int(np.random.SeedSequence([seed, self.rank]).generate_state(1)[0])

    def fresh_seed(self) -> int:
        """A seed that nobody chose, the same in all processes that ask equally often."""
        if self.size == 1:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(np.random.SeedSequence([self.entropy, next(self._fresh)]).generate_state(1)[0])


_current: list[World] = []


def world() -> World:
    """The processes that this one has joined; itself alone if none."""
    return _current[-1] if _current else World()


@contextmanager
def entered(joined: World) -> Iterator[World]:
    """Make ``joined`` what :func:`world` answers."""
    _current.append(joined)
    try:
        yield joined
    finally:
        _current.remove(joined)


def launched() -> World | None:
    """What torchrun has told this process of itself; ``None`` when it was not started by it, or alone."""
    if not all(os.environ.get(name) for name in _VARIABLES):
        return None
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return World(rank, size, *local) if size > 1 else None


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
