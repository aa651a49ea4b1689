"""Progress where standard error is a file: a line now and then. And torch's own state, which a fit borrows."""

from __future__ import annotations

import io
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from gsparc import Graph, SparcClassifier, SpectralMap, _runtime, baselines, load_model
from gsparc._runtime import plain_torch, progress_bar, seeded, stage_bar

ANGLE = np.linspace(0, 2 * np.pi, 60, endpoint=False)
X = np.stack([np.cos(ANGLE), np.sin(ANGLE)], axis=1)
RING = Graph.from_edges(np.stack([np.arange(60), (np.arange(60) + 1) % 60]), num_nodes=60)
LEFT = (X[:, 0] < 0).astype(int)


def tiny_map(**changes) -> SpectralMap:
    options = {"hidden_channels": (16,), "max_steps": 20, "device": "cpu", "random_state": 0}
    return SpectralMap(3, **(options | changes))


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
    def fit(seed: int) -> bytes:
        return tiny_map(dropout=0.3, random_state=seed).fit(X, graph=RING).transform(X).tobytes()

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


@contextmanager
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
        assert torch.get_default_dtype() == torch.float64  # as it was
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default dtype": double_by_default,
}


class Averaging(torch.nn.Module):
    """A message-passing module of one layer: a node's neighbours, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2, dtype=torch.float32)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layer(x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("backbone", ["mlp", "module", "baseline"])
def test_settings_of_torch_around_a_call_change_nothing(setting: str, backbone: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Averaging() if backbone == "module" else None

    def fitted():
        if backbone == "baseline":
            return baselines.MLPBaseline(max_steps=20, device="cpu", random_state=0).fit(X, LEFT)
        options = {"spectral_map": tiny_map(), "distill": False, "max_steps": 20, "random_state": 0, "device": "cpu"}
        return SparcClassifier(network or backbone, **options).fit(X, LEFT, graph=RING)

    def answers() -> list[bytes]:
        model = fitted()
        found = [model.predict_proba(X[:5]).tobytes()]
        if backbone != "baseline":
            model.save(tmp_path / "model")
            loaded = load_model(tmp_path / "model", backbone=network)
            found.append(loaded.predict_proba(X[:5]).tobytes())
        return found

    usual = answers()
    with SETTINGS[setting]():
        assert answers() == usual


@pytest.mark.parametrize("setting", SETTINGS)
def test_blocks_made_later_are_made_as_usual_too(setting: str) -> None:
    model = tiny_map().fit(X, graph=RING)
    with SETTINGS[setting]():
        parts = model.transform_blocks(X)
        assert torch.is_grad_enabled() == (setting in ("autocast", "default dtype"))
        assert np.concatenate(list(parts)).tobytes() == model.transform(X).tobytes()


def test_the_default_type_comes_back_with_the_last_thread() -> None:
    first_in, second_in = threading.Event(), threading.Event()

    def first() -> None:
        with plain_torch():
            first_in.set()
            second_in.wait(30)

    with double_by_default():
        thread = threading.Thread(target=first)
        thread.start()
        first_in.wait(30)
        with plain_torch():
            second_in.set()
            thread.join()
            assert torch.get_default_dtype() == torch.float32
