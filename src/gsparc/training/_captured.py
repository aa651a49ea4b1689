"""A training step recorded once and replayed: on a GPU small networks wait for the launches of their kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gsparc._processes import world

__all__ = ["Replayed", "can_capture"]

_WARM_UP = 3  # ordinary steps before the recording, in which libraries set themselves up


def can_capture(task: object, device: torch.device) -> bool:
    """Whether a task says that its step never waits for the device and always has the same shapes.

    Steps of several processes wait for each other, and are never recorded.
    """
    return device.type == "cuda" and world().size == 1 and bool(getattr(task, "capturable", False))


class Replayed:
    """``step()`` for a step that takes no argument: run as it is a few times, then recorded, then replayed.

    Everything that changes between steps must live on the device: the learning rate and the step counts of the
    optimiser are tensors, and random numbers come from the default generator or from ``generator``, whose state goes
    on from step to step as in ordinary steps.

    Parameters
    ----------
    step : callable
        One whole step, with the optimiser's. It drops the gradients at its end, so that the recording makes them in
        memory of its own.
    generator : torch.Generator
        Where it draws from.
    draw : callable, optional
        Called with the generator before each step, and never recorded: what the host decides.
    """

    def __init__(
        self,
        step: Callable[[], None],
        generator: torch.Generator,
        draw: Callable[[torch.Generator], None] | None = None,
    ) -> None:
        self._step, self._generator, self._draw = step, generator, draw
        self._stream, self._left = torch.cuda.Stream(device=generator.device), _WARM_UP
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._draw is not None:
            self._draw(self._generator)
        if self._graph is not None:
            self._graph.replay()
        elif self._left:
            self._left -= 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._step()
            torch.cuda.current_stream().wait_stream(self._stream)
        else:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self._generator)
            with torch.cuda.graph(graph, stream=self._stream):
                self._step()
            self._graph = graph
            graph.replay()
