"""The task of classifying: hard and soft targets, who judges, the temperature, logits in chunks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gsparc.training.classify import ClassTask, Judge, class_logits, fit_temperature

CPU = torch.device("cpu")
X = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
LABELS = np.arange(40) % 3


def rows_of(rows: Tensor) -> tuple[Tensor]:
    return (X[rows],)


def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(5, 3)


def task(targets: np.ndarray, *, rows: np.ndarray | None = None, judge: Judge | None = None, **more: Any) -> ClassTask:
    rows = np.arange(40) if rows is None else rows
    return ClassTask(linear(), rows_of, rows, targets, judge, CPU, **{"batch_size": 16} | more)


def test_the_loss_by_hand() -> None:
    even = task(np.array([0, 2]), rows=np.array([3, 4]))
    for parameter in even.module.parameters():
        nn.init.zeros_(parameter)
    assert even.loss(torch.Generator()).item() == pytest.approx(math.log(3))
    with torch.no_grad():
        even.module.bias.copy_(torch.tensor([math.log(2.0), 0.0, 0.0]))  # type: ignore[union-attr, operator]
    # probabilities 1/2, 1/4, 1/4
    assert even.loss(torch.Generator()).item() == pytest.approx((math.log(2) + math.log(4)) / 2)


@pytest.mark.parametrize("batch_size", [16, 40, 1000])
def test_classes_are_one_hot_distributions(batch_size: int) -> None:
    hard = task(LABELS, batch_size=batch_size)
    soft = task(np.eye(3, dtype=np.float32)[LABELS], batch_size=batch_size)
    for seed in (0, 1):
        drawn = [one.loss(torch.Generator().manual_seed(seed)) for one in (hard, soft)]
        torch.testing.assert_close(drawn[0], drawn[1])


def test_targets_belong_to_rows_and_not_to_positions() -> None:
    rows = np.array([30, 7, 19])
    whole = task(LABELS[rows], rows=rows).loss(torch.Generator())
    expected = nn.functional.cross_entropy(linear()(X[rows]), torch.from_numpy(LABELS[rows]))
    torch.testing.assert_close(whole, expected)
    torch.testing.assert_close(task(LABELS[rows[::-1]], rows=rows[::-1].copy()).loss(torch.Generator()), expected)


def test_batches_are_drawn_by_the_generator_and_smaller_sets_are_whole() -> None:
    losses = [task(LABELS).loss(torch.Generator().manual_seed(seed)).item() for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    few = task(LABELS[:5], rows=np.arange(5))
    assert few.batch_size == 5
    assert few.loss(torch.Generator().manual_seed(0)).item() == few.loss(torch.Generator().manual_seed(1)).item()


def test_a_further_term_is_added() -> None:
    plain, more = task(LABELS), task(LABELS, extra=lambda generator: torch.tensor(2.5))
    first, second = (t.loss(torch.Generator().manual_seed(0)).item() for t in (plain, more))
    assert second == pytest.approx(first + 2.5)


def test_nobody_judges() -> None:
    for judge in (None, Judge(rows_of, np.zeros(0, np.int64), np.zeros(0, np.int64))):
        one = task(LABELS, judge=judge)
        assert one.evaluate() is None
        assert one.temperature() == 1.0


def test_judged_by_accuracy_then_likelihood() -> None:
    judge = Judge(rows_of, np.arange(30), LABELS[:30])
    one = task(LABELS, judge=judge)
    with torch.no_grad():
        logits = one.module(X[:30])
    right = (logits.argmax(dim=1).numpy() == LABELS[:30]).mean()
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(LABELS[:30])).item()
    assert one.evaluate() == pytest.approx(right - 0.05 * loss)


def test_too_few_judges_leave_the_temperature_alone() -> None:
    def with_judges(count: int) -> ClassTask:
        one = task(LABELS, judge=Judge(rows_of, np.arange(count), LABELS[:count]))
        one.module.load_state_dict({k: 50 * v for k, v in one.module.state_dict().items()})
        return one

    assert with_judges(19).temperature() == 1.0
    assert with_judges(20).temperature() > 2.0  # wildly sure and wrong two times out of three
    assert with_judges(19).temperature(least=5) > 2.0


def test_the_temperature_by_hand() -> None:
    # right three times out of four at odds e^2: the best odds are 3, so T = 2 / ln 3 = 1.82
    logits = torch.tensor([[2.0, 0.0]] * 4)
    labels = torch.tensor([0, 0, 0, 1])
    assert fit_temperature(logits, labels) == pytest.approx(2 / math.log(3), rel=0.03)
    # a network that is too timid: odds e^(1/2) and right 99 of 100 times
    timid = torch.tensor([[0.5, 0.0]] * 100)
    assert fit_temperature(timid, torch.tensor([0] * 99 + [1])) == pytest.approx(0.5 / math.log(99), rel=0.06)
    assert fit_temperature(logits, torch.zeros(4, dtype=torch.int64)) == pytest.approx(0.1)  # the end of the grid


@pytest.mark.parametrize("chunk", [1, 7, 40, 4096])
def test_logits_in_chunks(chunk: int) -> None:
    sizes: list[int] = []

    def inputs(rows: Tensor) -> tuple[Tensor]:
        sizes.append(len(rows))
        return rows_of(rows)

    module = linear()
    rows = torch.arange(39, -1, -1)
    out = class_logits(module, inputs, rows, chunk=chunk)
    torch.testing.assert_close(out, module(X[rows]).detach())
    assert not out.requires_grad
    assert sum(sizes) == 40
    assert max(sizes) <= chunk


def test_logits_without_dropout_and_the_mode_is_put_back() -> None:
    module = nn.Sequential(nn.Dropout(0.5), linear())
    for training in (True, False):
        module.train(training)
        first, second = (class_logits(module, rows_of, torch.arange(40)) for _ in range(2))
        assert torch.equal(first, second)
        assert module.training is training


def test_an_epoch_shows_every_row_once() -> None:
    seen: list[int] = []
    rows = np.arange(40)

    def read(index: torch.Tensor) -> tuple[torch.Tensor]:
        seen.extend(index.tolist())
        return (X[index],)

    one = ClassTask(linear(), read, rows, LABELS[rows], None, torch.device("cpu"), batch_size=10)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        one.loss(generator)
    assert sorted(seen[:40]) == sorted(seen[40:]) == list(range(40))
    assert seen[:40] != seen[40:]
