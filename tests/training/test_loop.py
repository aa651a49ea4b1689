"""The loop: schedule, best weights, determinism, resuming."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gsparc._processes import World, entered
from gsparc.exceptions import InputError
from gsparc.training._captured import can_capture
from gsparc.training.checkpoints import keep_loops
from gsparc.training.classify import ClassTask
from gsparc.training.loop import LoopResult, LoopSettings, _State, learning_rate_at, rough_products, run_loop

CPU = torch.device("cpu")


class Regression:
    """Least squares with dropout on fresh random batches; scores are read from a list where there is one."""

    def __init__(self, scores: list[float] | None = None, *, die_at: int | None = None) -> None:
        torch.manual_seed(3)
        self.module: torch.nn.Module = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
        )
        self.scores = scores
        self.calls = self.evaluations = 0
        self.die_at = die_at
        self.seen: list[dict[str, torch.Tensor]] = []

    def loss(self, generator: torch.Generator) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.die_at:
            raise KeyboardInterrupt
        x = torch.randn(16, 3, generator=generator)
        return (self.module(x)[:, 0] - x.sum(dim=1)).square().mean()

    def evaluate(self) -> float | None:
        assert not self.module.training
        self.seen.append({name: value.clone() for name, value in self.module.state_dict().items()})
        self.evaluations += 1
        return None if self.scores is None else self.scores[self.evaluations - 1]


def weights(task: Regression) -> bytes:
    return b"".join(value.numpy().tobytes() for value in task.module.state_dict().values())


def test_the_learning_rate_rises_and_falls() -> None:
    settings = LoopSettings(steps=110, warmup=1 / 11)  # ten steps up, a hundred down
    assert [learning_rate_at(i, settings) for i in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert [learning_rate_at(i, settings) for i in (10, 35, 60, 110)] == pytest.approx(
        [1.0, 0.5 + math.sqrt(2) / 4, 0.5, 0.0]
    )
    one = LoopSettings(steps=1)
    assert learning_rate_at(0, one) == 1.0


def test_the_best_weights_are_kept_and_the_loop_stops() -> None:
    task = Regression([1.0, 5.0, 2.0, 3.0, 4.0, 9.0])
    result = run_loop(task, LoopSettings(steps=60, eval_every=10, patience=3, tolerance=0.0), CPU)
    assert (result.stopped_early, result.steps, result.best_step, result.best_score) == (True, 50, 20, 5.0)
    assert [entry["score"] for entry in result.history] == [1, 5, 2, 3, 4]
    state = task.module.state_dict()
    assert all(torch.equal(task.seen[1][name], state[name]) for name in state)
    assert not torch.equal(task.seen[4]["0.weight"], state["0.weight"])
    assert not task.module.training


@pytest.mark.parametrize("size", [0.01, 1000.0])
def test_gradients_are_clipped_by_their_length(size: float) -> None:
    class Large(Regression):
        def loss(self, generator: torch.Generator) -> torch.Tensor:
            return size * super().loss(generator)

    settings = LoopSettings(steps=8, learning_rate=0.05, weight_decay=0.1, clip=0.5, seed=2)
    task, plain = Large(), Large()
    run_loop(task, settings, CPU)
    torch.manual_seed(settings.seed)
    generator = torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.AdamW(plain.module.parameters(), weight_decay=0.1)
    for step in range(8):
        optimizer.param_groups[0]["lr"] = 0.05 * learning_rate_at(step, settings)
        optimizer.zero_grad()
        plain.loss(generator).backward()
        length = torch.nn.utils.clip_grad_norm_(plain.module.parameters(), 0.5)
        assert (length > 0.5) == (size > 1)
        optimizer.step()
    for found, expected in zip(task.module.parameters(), plain.module.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kinds", [(torch.float64,), (torch.bfloat16,), (torch.float64, torch.float32)])
def test_weights_of_any_precision_are_trained(kinds: tuple[torch.dtype, ...]) -> None:
    class Cast(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input.to(self.weight.dtype)).float()

    task = Regression()
    task.module = torch.nn.Sequential(*(Cast(3, 3, dtype=kind) for kind in kinds), Cast(3, 1, dtype=kinds[0]))
    before = [parameter.clone() for parameter in task.module.parameters()]
    run_loop(task, LoopSettings(steps=5, learning_rate=0.1, clip=0.01), CPU)
    after = list(task.module.parameters())
    assert [p.dtype for p in after] == [p.dtype for p in before]
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_among_equal_scores_the_later_weights_are_kept() -> None:
    task = Regression([1.0, 0.996, 0.9])
    result = run_loop(task, LoopSettings(steps=30, eval_every=10, tolerance=0.005), CPU)
    assert (result.best_step, result.best_score) == (20, 1.0)
    assert torch.equal(task.module.state_dict()["0.weight"], task.seen[1]["0.weight"])


def test_a_loop_that_ends_before_follows_the_same_course() -> None:
    whole, part = Regression(), Regression()
    settings = LoopSettings(steps=60, eval_every=10)
    run_loop(whole, settings, CPU)
    result = run_loop(part, replace(settings, stop_at=25, eval_every=5), CPU)
    assert (result.steps, part.calls, settings.last) == (25, 25, 60)
    assert all(torch.equal(part.seen[3][name], value) for name, value in whole.seen[1].items())  # after twenty steps
    assert all(torch.equal(part.seen[4][name], value) for name, value in part.module.state_dict().items())
    assert run_loop(Regression(), replace(settings, stop_at=99), CPU).steps == 60


def test_without_scores_all_steps_run_and_the_last_weights_stay() -> None:
    task = Regression()
    result = run_loop(task, LoopSettings(steps=25, eval_every=10), CPU)
    assert (result.steps, result.stopped_early) == (25, False)
    assert [entry["step"] for entry in result.history] == [10, 20, 25]
    assert "score" not in result.history[0]
    assert torch.equal(task.module.state_dict()["0.weight"], task.seen[2]["0.weight"])
    assert result.history[-1]["loss"] < result.history[0]["loss"]


def test_the_same_seed_gives_the_same_bytes_and_leaves_the_global_state() -> None:
    results = []
    for seed, noise in ((1, 0), (1, 99), (2, 0)):
        task = Regression()
        torch.manual_seed(noise)  # dropout must not depend on what ran before
        before = torch.get_rng_state()
        run_loop(task, LoopSettings(steps=20, seed=seed), CPU)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(weights(task))
    assert results[0] == results[1]
    assert results[0] != results[2]


@pytest.mark.parametrize("die_at", [3, 31, 47])
def test_a_killed_loop_goes_on_and_ends_with_the_same_weights(die_at: int, tmp_path) -> None:
    scores = [1.0, 3.0, 2.0, 2.5, 2.6, 2.7]  # stops at step 50, three evaluations after the best
    settings = LoopSettings(
        steps=60, eval_every=10, patience=3, seed=5, checkpoint=tmp_path, checkpoint_seconds=0, fingerprint="a"
    )
    whole = Regression(scores)
    expected = run_loop(whole, LoopSettings(steps=60, eval_every=10, patience=3, seed=5), CPU)
    with pytest.raises(KeyboardInterrupt):
        run_loop(Regression(scores, die_at=die_at), settings, CPU)
    done = (die_at - 1) // 10  # evaluations before the kill
    task = Regression(scores)
    task.evaluations = done
    result = run_loop(task, settings, CPU)
    assert task.calls == 50 - 10 * done  # it did go on, and not from the beginning
    assert weights(task) == weights(whole)
    assert result == expected
    # a finished fit that is started again does nothing more
    task = Regression(scores)
    assert run_loop(task, settings, CPU) == expected
    assert (task.calls, weights(task)) == (0, weights(whole))


def test_loops_that_have_ended_are_not_run_again(tmp_path) -> None:
    settings = [LoopSettings(steps=20, eval_every=10, seed=seed) for seed in (1, 2, 3)]
    whole = [Regression([1.0, 0.5]) for _ in settings]
    expected = [run_loop(task, one, CPU) for task, one in zip(whole, settings, strict=True)]

    def run(*die_at: int | None) -> tuple[list[Regression], list[LoopResult]]:
        tasks = [Regression([1.0, 0.5], die_at=step) for step in die_at]
        with keep_loops(tmp_path):
            return tasks, [run_loop(task, one, CPU) for task, one in zip(tasks, settings, strict=True)]

    with pytest.raises(KeyboardInterrupt):
        run(None, None, 15)
    tasks, results = run(None, None, None)
    assert [task.calls for task in tasks] == [0, 0, 20]
    assert results == expected
    assert [weights(task) for task in tasks] == [weights(task) for task in whole]
    assert not any(task.module.training for task in tasks)
    again = Regression([1.0, 0.5])
    run_loop(again, settings[0], CPU)  # outside of it nothing is kept or read
    assert again.calls == 20


@pytest.mark.parametrize("how", ["steps", "start", "damaged"])
def test_another_loops_result_is_not_taken(how: str, tmp_path) -> None:
    with keep_loops(tmp_path):
        run_loop(Regression(), LoopSettings(steps=20), CPU)
    task = Regression()
    if how == "start":
        task.module.get_parameter("0.weight").data += 1
    if how == "damaged":
        (file,) = tmp_path.rglob("*.safetensors")
        file.write_bytes(file.read_bytes()[:-3])
    with keep_loops(tmp_path):
        run_loop(task, LoopSettings(steps=21 if how == "steps" else 20), CPU)
    assert task.calls >= 20


def test_resuming_needs_the_whole_state(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with the optimiser's moments lost the weights differ."""
    from gsparc.training import loop

    settings = LoopSettings(steps=60, eval_every=10, checkpoint=tmp_path, checkpoint_seconds=0, seed=5)
    whole = Regression()
    run_loop(whole, LoopSettings(steps=60, eval_every=10, seed=5), CPU)
    with pytest.raises(KeyboardInterrupt):
        run_loop(Regression(die_at=35), settings, CPU)
    real = loop._parts
    monkeypatch.setattr(loop, "_parts", lambda tensors: {**real(tensors), "optimizer": {}})
    task = Regression()
    run_loop(task, settings, CPU)
    assert weights(task) != weights(whole)


def test_a_loss_that_is_not_a_number_is_reported() -> None:
    task = Regression()
    task.module.get_parameter("0.weight").data.fill_(float("nan"))
    with pytest.raises(InputError, match=r"diverged at step 10 \(the loss is nan\).*Lower learning_rate"):
        run_loop(task, LoopSettings(steps=20, eval_every=10), CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_recorded_steps_learn_what_ordinary_steps_learn() -> None:
    from gsparc.datasets import make_blocks
    from gsparc.estimators.embedding import SpectralMap
    from gsparc.training.spectral import SpectralTask

    data = make_blocks(40_000, 400_000, 16, random_state=0)
    maps, ordinary = [], property(lambda task: False)
    recorded = SpectralTask.capturable
    for capturable in (recorded, ordinary):
        SpectralTask.capturable = capturable  # type: ignore[method-assign]
        try:
            maps.append(SpectralMap(8, max_steps=200, device="cuda", random_state=0).fit(data.X, graph=data.graph))
        finally:
            SpectralTask.capturable = recorded  # type: ignore[method-assign]
    first, second = maps
    assert [entry["step"] for entry in first.history_] == [entry["step"] for entry in second.history_]
    np.testing.assert_allclose(first.eigenvalues_, second.eigenvalues_, atol=0.01)


def test_steps_are_recorded_on_one_gpu_alone() -> None:
    class Fits:
        capturable = True

    gpu = torch.device("cuda")
    assert can_capture(Fits(), gpu)
    assert not can_capture(Fits(), CPU)
    assert not can_capture(object(), gpu)
    with entered(World(rank=1, size=2)):
        assert not can_capture(Fits(), gpu)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("batch_size", [64, 500])
def test_recorded_classes_are_those_of_ordinary_steps(batch_size: int) -> None:
    gpu, x = torch.device("cuda"), torch.randn(500, 4, generator=torch.Generator().manual_seed(0)).cuda()
    losses = []
    for capturable in (True, False):
        torch.manual_seed(0)
        module = torch.nn.Linear(4, 3).cuda()
        task = ClassTask(module, lambda rows: (x[rows],), np.arange(500), np.arange(500) % 3, None, gpu,
            batch_size=batch_size, capturable=capturable)  # fmt: skip
        result = run_loop(task, LoopSettings(steps=40, eval_every=5), gpu)
        losses.append([entry["loss"] for entry in result.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_products_are_rough_within_steps_on_a_gpu_only() -> None:
    products = torch.backends.cuda.matmul
    gpu, host = torch.device("cuda"), torch.device("cpu")
    assert products.fp32_precision == "none"
    with rough_products(host):
        assert products.fp32_precision == "none"
    with rough_products(gpu, enabled=False):
        assert products.fp32_precision == "none"
    with rough_products(gpu):
        assert products.fp32_precision == "tf32"
    assert products.fp32_precision == "none"
    with pytest.raises(ValueError, match=r"domain|negative"), rough_products(gpu):
        math.sqrt(-1)
    assert products.fp32_precision == "none"


def test_a_precision_that_the_user_has_set_stays() -> None:
    products = torch.backends.cuda.matmul
    try:
        torch.set_float32_matmul_precision("highest")
        with rough_products(torch.device("cuda")):
            assert products.fp32_precision == "ieee"
        assert products.fp32_precision == "ieee"
    finally:
        products.fp32_precision = "none"


def test_an_objective_that_needs_all_digits_gets_them() -> None:
    seen = {}

    class Looks(Regression):
        def __init__(self, exact: bool) -> None:
            super().__init__()
            self.exact = exact

        def loss(self, generator: torch.Generator) -> torch.Tensor:
            seen[self.exact] = torch.backends.cuda.matmul.fp32_precision
            return super().loss(generator)

    for exact in (False, True):
        state = _State(Looks(exact), LoopSettings(steps=1), torch.device("cpu"))
        state.device = torch.device("cuda")
        state.step()
    assert seen == {False: "tf32", True: "none"}
