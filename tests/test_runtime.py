"""Progress where standard error is a file: a line now and then."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from gsparc import _runtime
from gsparc._runtime import progress_bar, stage_bar


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
