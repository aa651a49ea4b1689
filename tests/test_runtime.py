"""Progress where standard error is a file: a line now and then. And torch's own state, which a fit borrows."""

from __future__ import annotations

import io
import multiprocessing
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from gsparc import Graph, SpectralMap, _runtime
from gsparc._runtime import progress_bar, seeded, stage_bar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of day, to be set by hand."""
    now = [100.0]
    monkeypatch.setattr(_runtime.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Lines on standard error, which is a file here, since the last call."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def lines() -> list[str]:
        return capsys.readouterr().err.splitlines()

    return lines


def test_a_log_gets_a_line_every_half_minute_at_most(clock: list[float], log: Callable[[], list[str]]) -> None:
    with progress_bar("links", 66, show=True) as bar:
        for done, seconds in ((1, 10), (2, 29), (11, 60), (12, 89), (33, 90), (60, 3600), (66, 3700)):
            clock[0] = 100.0 + seconds
            bar.update(done, last=f"cell [{done}]")
        assert log() == [
            "links: 11 of 66, about 5 minutes left; last cell [11]",
            "links: 33 of 66, about 90 seconds left; last cell [33]",
            "links: 60 of 66, about 6 minutes left; last cell [60]",
            "links: 66 of 66; last cell [66]",
        ]


def test_without_a_total_it_counts(clock: list[float], log: Callable[[], list[str]]) -> None:
    with progress_bar("predict", None, show=True) as bar:
        clock[0] += 31
        bar.update(120_000)
        assert log() == ["predict: 120,000"]


def test_bars_of_stages_speak_as_well(clock: list[float], log: Callable[[], list[str]]) -> None:
    with stage_bar("demo", show=True) as begin:
        begin("Fit the map", 0.1)
        with progress_bar("fit", 10, show=True) as bar:
            clock[0] += 31
            bar.update(5)
        assert log() == ["Fit the map", "fit: 5 of 10, about 31 seconds left"]


def test_quiet_is_quiet(clock: list[float], log: Callable[[], list[str]]) -> None:
    with progress_bar("links", 66, show=False) as bar:
        clock[0] += 1000
        bar.update(5)
    assert log() == []


def test_a_terminal_gets_no_lines(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("links", 66, show=True) as bar:
        clock[0] += 1000
        bar.update(5)
    assert "5 of 66, about" not in stream.getvalue()


def test_seeded_draws_do_not_depend_on_other_threads() -> None:
    meet = threading.Barrier(2, timeout=0.2)

    def draw(seed: int) -> list[float]:
        with seeded(seed):
            first = torch.rand(2)
            try:
                meet.wait()  # never met: the other one is not let in
            except threading.BrokenBarrierError:
                meet.reset()
            with seeded(99):  # the same thread may borrow again
                torch.rand(5)
            return torch.cat([first, torch.rand(2)]).tolist()

    before = torch.get_rng_state()
    alone = [torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(draw, (1, 2))) == alone
    assert torch.equal(torch.get_rng_state(), before)


def test_fits_in_threads_equal_fits_one_after_the_other() -> None:
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ring = Graph.from_edges(np.stack([np.arange(60), (np.arange(60) + 1) % 60]), num_nodes=60)

    def fit(seed: int) -> bytes:
        options = {"hidden_channels": (16,), "dropout": 0.3, "max_steps": 20, "device": "cpu"}
        return SpectralMap(3, random_state=seed, **options).fit(X, graph=ring).transform(X).tobytes()

    before = torch.get_rng_state()
    one_by_one = [fit(seed) for seed in range(4)]
    with ThreadPoolExecutor(4, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        assert list(pool.map(fit, range(4))) == one_by_one
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not hasattr(_runtime.os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with seeded(0):
            inside.set()
            done.wait(30)

    def borrow() -> None:
        with seeded(1):
            pass

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(30)
    child = multiprocessing.get_context("fork").Process(target=borrow)
    child.start()
    child.join(20)
    ended = child.exitcode
    child.kill()
    done.set()
    thread.join()
    assert ended == 0
