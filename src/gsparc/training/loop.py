"""The only optimisation loop of gsparc: every network, ours or a baseline's, is trained here."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gsparc._processes import world
from gsparc._runtime import further_seed, progress_bar, seeded, torch_generator
from gsparc.exceptions import InputError
from gsparc.training._captured import Replayed, can_capture
from gsparc.training.checkpoints import digest, finished_loop, load_checkpoint, next_loop, save_checkpoint
from gsparc.training.distributed import average_gradients, everyone, from_first, gather, mean_of, share_module

__all__ = ["LoopResult", "LoopSettings", "Task", "rough_products", "run_loop"]

_log = logging.getLogger(__name__)


class Task(Protocol):
    """What the loop needs to know of a model and its data.

    A task whose ``loss`` never waits for the device and always works on the same shapes may say so with an attribute
    ``capturable = True``: on a GPU its steps are recorded and replayed. What the host must decide before each of them,
    such as the rows of the next batch, is left to a method ``draw(generator)``, which puts it where the step reads it.
    A task with an attribute ``exact = True`` takes its steps in full single precision (see :func:`rough_products`).
    """

    @property
    def module(self) -> nn.Module:
        """What is trained."""
        ...

    def loss(self, generator: torch.Generator) -> Tensor:
        """Loss of one freshly drawn batch."""
        ...

    def evaluate(self) -> float | None:
        """Score on held-out seen nodes, higher is better; ``None`` if nothing is held out."""
        ...


@dataclass(frozen=True)
class LoopSettings:
    """Numbers of the loop.

    The learning rate rises over ``warmup`` of the steps and falls to zero along a cosine. Every
    ``eval_every`` steps the task is evaluated; after ``patience`` evaluations without a better
    score the loop ends, and the weights of the best evaluation are the result. A score within
    ``tolerance`` (relative) of the best counts as equal to it, and the later one is kept.
    With ``stop_at`` the loop ends after that step of the same course: the learning rate is that of
    all ``steps``, cut off.
    """

    steps: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    warmup: float = 0.05
    eval_every: int = 50
    patience: int = 8
    tolerance: float = 0.005
    clip: float = 1.0
    seed: int = 0
    bf16: bool = False
    description: str = "fit"
    show_progress: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_seconds: float = 20.0
    fingerprint: str = ""
    stop_at: int | None = None

    @property
    def last(self) -> int:
        """The step after which there is none."""
        return self.steps if self.stop_at is None else min(self.stop_at, self.steps)


@dataclass
class LoopResult:
    """What happened: ``history`` has one record an evaluation."""

    history: list[dict[str, float]] = field(default_factory=list)
    best_score: float = -math.inf
    best_step: int = 0
    steps: int = 0
    stopped_early: bool = False


def learning_rate_at(step: int, settings: LoopSettings) -> float:
    """Factor of the learning rate at ``step``: linear warm-up, then a cosine to zero."""
    rise = max(1, round(settings.warmup * settings.steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, settings.steps - rise)))


@contextmanager
def rough_products(device: torch.device, *, enabled: bool = True) -> Iterator[None]:
    """Matrix products of single precision in TF32 on a GPU: steps of random batches are noisier than its rounding.

    Training steps are within, and the ranks of held-out nodes by decoders of pairs, which would take longer than the
    steps. Other scores of held-out nodes, Ritz values and all predictions are in full single precision.
    Where the user has set a precision of products, that stays: after
    ``torch.set_float32_matmul_precision("highest")`` training is in full precision too.
    """
    products = torch.backends.cuda.matmul
    if not enabled or device.type != "cuda" or products.fp32_precision != "none":
        yield
        return
    products.fp32_precision = "tf32"
    try:
        yield
    finally:
        products.fp32_precision = "none"


class _State:
    """Everything that a resumed loop must find again to end with the same weights."""

    def __init__(self, task: Task, settings: LoopSettings, device: torch.device) -> None:
        self.task, self.settings, self.device = task, settings, device
        self.generator = torch_generator(world().seed(settings.seed), device)
        self.parameters = [p for p in task.module.parameters() if p.requires_grad]
        self.captured = can_capture(task, device)
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            # a recorded step reads its learning rate from the device
            lr=torch.tensor(settings.learning_rate, device=device) if self.captured else settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=self.captured,
        )
        self.optimizer.zero_grad(set_to_none=True)
        self.losses = torch.zeros((), device=device)
        self.result = LoopResult()
        self.best: dict[str, Tensor] | None = None
        self.since_best = 0

    def save(self) -> None:
        module = self.task.module.state_dict()
        tensors = {f"module.{name}": value for name, value in module.items()}
        for number, parameter in enumerate(self.parameters):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{number}.{name}"] = torch.as_tensor(value).clone()
        tensors |= {f"best.{name}": value for name, value in (self.best or {}).items()}
        for name, state in self._random_states().items():
            for rank, value in enumerate(gather(state)):
                tensors[f"rng.{name}" + (f".{rank}" if rank else "")] = value
        result = self.result
        record: dict[str, Any] = {
            "fingerprint": self.settings.fingerprint,
            "steps": result.steps,
            "history": result.history,
            "best_score": result.best_score if math.isfinite(result.best_score) else None,
            "best_step": result.best_step,
            "stopped_early": result.stopped_early,
            "since_best": self.since_best,
        }
        if self.settings.checkpoint is not None and world().first:
            save_checkpoint(self.settings.checkpoint, tensors, record)

    def _random_states(self) -> dict[str, Tensor]:
        states = {"own": self.generator.get_state(), "cpu": torch.get_rng_state()}
        return states | ({"cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {})

    def restore(self) -> None:
        if self.settings.checkpoint is None:
            return
        found = load_checkpoint(self.settings.checkpoint, self.settings.fingerprint)
        if found is None:
            return
        tensors, record = found
        part = _parts(tensors)
        self.task.module.load_state_dict(part["module"])
        self.best = {name: v.to(self.device) for name, v in part["best"].items()} or None
        for key, value in part["optimizer"].items():
            number, name = key.split(".", 1)
            slot = self.optimizer.state[self.parameters[int(number)]]
            on_cpu = name == "step" and self.device.type == "cpu"
            slot[name] = value if on_cpu else value.to(self.device)
        self._restore_random(part["rng"], record["steps"])
        best_score = record["best_score"]
        self.result = LoopResult(
            history=record["history"],
            best_score=-math.inf if best_score is None else best_score,
            best_step=record["best_step"],
            steps=record["steps"],
            stopped_early=record["stopped_early"],
        )
        self.since_best = record["since_best"]

    def _restore_random(self, states: dict[str, Tensor], steps: int) -> None:
        own = f".{world().rank}" if world().rank else ""
        if f"own{own}" not in states:  # saved by fewer processes: this one must not repeat another's draws
            fresh = world().seed(further_seed(self.settings.seed, steps))
            self.generator.manual_seed(fresh)
            torch.manual_seed(fresh)
            return
        self.generator.set_state(states[f"own{own}"])
        torch.set_rng_state(states[f"cpu{own}"])
        if f"cuda{own}" in states:
            torch.cuda.set_rng_state(states[f"cuda{own}"], self.device)

    def step(self) -> None:
        """Draw a batch, follow its gradient; the loss is added to ``losses`` without waiting for it."""
        half = {"dtype": torch.bfloat16, "enabled": self.settings.bf16}
        cache = not self.captured  # cached casts of weights would be read again in every replay
        with rough_products(self.device, enabled=not getattr(self.task, "exact", False)):
            with torch.autocast(self.device.type, cache_enabled=cache, **half):
                loss = self.task.loss(self.generator)
            loss.backward()
        average_gradients(self.parameters)
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        # the optimiser's one kernel divides by it: clipping before would be several kernels more in every step;
        # it reads a float32, whatever the weights are
        self.optimizer.grad_scale = (norm / self.settings.clip).float().clamp_min_(1.0)  # pyright: ignore[reportAttributeAccessIssue]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses += loss.detach()

    def set_learning_rate(self, value: float) -> None:
        """For the next step."""
        for group in self.optimizer.param_groups:
            if self.captured:
                group["lr"].fill_(value)
            else:
                group["lr"] = value

    def evaluate(self, mean_loss: float) -> None:
        share_module(self.task.module)  # machines that differ may round differently
        self.task.module.eval()
        with torch.no_grad():
            score = self.task.evaluate()
        if score is not None:
            (score,) = from_first(score)  # all must stop at the same step
        self.task.module.train()
        entry = {"step": float(self.result.steps), "loss": mean_loss}
        if score is not None:
            entry["score"] = score
            # scores of held-out nodes are noisy: among equals the later, better converged state wins
            slack = self.settings.tolerance * abs(self.result.best_score)
            if score >= self.result.best_score - slack or not math.isfinite(self.result.best_score):
                self.result.best_score = max(score, self.result.best_score)
                self.result.best_step = self.result.steps
                self.best = {k: v.detach().clone() for k, v in self.task.module.state_dict().items()}
                self.since_best = 0
            else:
                self.since_best += 1
        self.result.history.append(entry)


def _parts(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {"module": {}, "best": {}, "optimizer": {}, "rng": {}}
    for key, value in tensors.items():
        kind, name = key.split(".", 1)
        parts[kind][name] = value
    return parts


def run_loop(task: Task, settings: LoopSettings, device: torch.device) -> LoopResult:
    """Train ``task.module`` in place and leave the weights of the best evaluation in it.

    The same seed on the same machine gives the same weights, also when the loop was
    killed and started again from its checkpoint. Global random state is left as it was.
    Within :func:`~gsparc.training.checkpoints.keep_loops` a loop that has ended before is not run again.

    Where several processes train together (:func:`~gsparc.training.distributed.joined`), each draws its own
    batches, gradients are averaged, and all end with the same weights.
    """
    place = next_loop() if settings.checkpoint is None else None
    return _run(task, settings, device) if place is None else _run_once(place, task, settings, device)


def _run_once(place: Path, task: Task, settings: LoopSettings, device: torch.device) -> LoopResult:
    """The result that the same loop has left in ``place``, or that of running it now, which is left there."""
    name = _likeness(task.module, settings, device)
    found = finished_loop(place, name)
    if everyone(found is not None) and found is not None:
        _log.info("%s: done before", settings.description)
        task.module.load_state_dict(found[0])
        task.module.eval()
        return LoopResult(**found[1]["result"])
    result = _run(task, settings, device)
    if world().first:
        save_checkpoint(place, task.module.state_dict(), {"fingerprint": name, "result": vars(result)})
    return result


def _likeness(module: nn.Module, settings: LoopSettings, device: torch.device) -> str:
    """What tells a loop from others over the same data: its numbers, and the weights that it starts from."""
    shown = ("description", "show_progress", "checkpoint", "checkpoint_seconds", "fingerprint")
    numbers = {name: value for name, value in asdict(settings).items() if name not in shown}
    start = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    return digest(start, f"{numbers} {device.type} {torch.__version__}")


def _run(task: Task, settings: LoopSettings, device: torch.device) -> LoopResult:
    """Run from the start, or from the checkpoint that the settings name."""
    with seeded(world().seed(settings.seed), device):
        share_module(task.module)
        state = _State(task, settings, device)
        state.restore()
        _steps(state)
        if state.best is not None:
            task.module.load_state_dict(state.best)
        task.module.eval()
        return state.result


def _steps(state: _State) -> None:
    task, settings, result = state.task, state.settings, state.result
    task.module.train()
    step = Replayed(state.step, state.generator, getattr(task, "draw", None)) if state.captured else state.step
    counted, saved = 0, time.monotonic()
    with progress_bar(settings.description, settings.last, show=settings.show_progress and world().first) as bar:
        while result.steps < settings.last and not result.stopped_early:
            state.set_learning_rate(settings.learning_rate * learning_rate_at(result.steps, settings))
            step()
            counted += 1
            result.steps += 1
            if result.steps % settings.eval_every == 0 or result.steps == settings.last:
                mean_loss = mean_of(float(state.losses) / counted)
                if not math.isfinite(mean_loss):
                    raise InputError(
                        f"training diverged at step {result.steps} (the loss is {mean_loss}). "
                        "Lower learning_rate, or look for extreme values in the features."
                    )
                state.losses.zero_()
                counted = 0
                state.evaluate(mean_loss)
                bar.update(result.steps, loss=f"{mean_loss:.4g}", **_score_field(result))
                result.stopped_early = state.since_best >= settings.patience
                if settings.checkpoint is not None:
                    (waited,) = from_first(time.monotonic() - saved)
                    if waited >= settings.checkpoint_seconds or result.stopped_early:
                        state.save()
                        saved = time.monotonic()
        if settings.checkpoint is not None:
            state.save()


def _score_field(result: LoopResult) -> dict[str, str]:
    last = result.history[-1]
    return {"held-out": f"{last['score']:.4g}"} if "score" in last else {}
