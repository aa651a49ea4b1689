"""Several processes, on one machine or many, that train one model: how they meet, and what they tell each other.

Every process runs the same program on the same data. In a training step each draws its own share of the batch;
what the loss needs of the whole batch, and then the gradients, are averaged over the processes, so that all of them
make the same step. Whatever is read from or written to disk is the first process' business.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gsparc._processes import World, entered, launched, usable_cores, world
from gsparc.exceptions import ProcessesError
from gsparc.training._meeting import meet

__all__ = [
    "average",
    "average_gradients",
    "bytes_from_first",
    "computed_together",
    "everyone",
    "from_first",
    "gather",
    "gathered",
    "joined",
    "mean_of",
    "share_module",
]

_log = logging.getLogger(__name__)
_lines: list[dist.ProcessGroup | None] = []  # between the processes that have joined


@contextmanager
def joined(timeout: float = 60.0) -> Iterator[World]:
    """Train together with the other processes that torchrun has started; alone if it has not started any.

    Parameters
    ----------
    timeout : float
        Seconds to wait for the others to appear.

    Yields
    ------
    World
        Number of this process and how many there are. What is written should be written by the first one only.

    Notes
    -----
    CPU tensors travel by gloo, those on GPUs by NCCL, where each process of a machine has a GPU of its own.

    Examples
    --------
    A script that is started with ``torchrun --nproc-per-node 2 script.py``, or as it is:

    >>> from gsparc import Graph, SpectralMap
    >>> X = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)).numpy()
    >>> ring = Graph.from_edges([list(range(40)), [*range(1, 40), 0]])
    >>> with joined() as together:
    ...     spectral = SpectralMap(2, max_steps=5, random_state=0).fit(X, graph=ring)
    ...     if together.first:
    ...         print(spectral.transform(X).shape)
    (40, 2)
    """
    found = launched()
    if found is None or world().size > 1:
        yield world()
        return
    own = not dist.is_initialized()
    lines, attempt = meet(found, timeout) if own else (dist.group.WORLD, 0)
    _lines.append(lines)
    try:
        with _contact():
            entropy = torch.tensor([secrets.randbits(31)])
            dist.broadcast(entropy, 0, group=_lines[-1])
        with entered(replace(found, entropy=int(entropy), attempt=attempt)) as together:
            if found.local_size > usable_cores() and found.local_rank == 0:
                _log.info("%d processes share the %d cores of this machine", found.local_size, usable_cores())
            yield together
    finally:
        _lines.pop()
        if own:
            dist.destroy_process_group()


@contextmanager
def _contact() -> Iterator[None]:
    """What torch says when a line breaks, as a sentence."""
    try:
        yield
    except RuntimeError as error:
        here = world()
        raise ProcessesError(
            f"process {here.rank} of {here.size} has lost contact with another one: it was killed, has failed, or its "
            "machine cannot be reached. torchrun with --max-restarts starts all of them again, and they go on from the "
            f"last checkpoint. ({' '.join(str(error).split())[:160]})"
        ) from error


class _Average(torch.autograd.Function):
    """The mean over processes; gradients that are averaged over processes later come out as those of one batch."""

    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        return _mean(value.clone())

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        # L = mean of L_r(mean of x_s): what x_s gets, times the number of processes, is the mean of dL_r / d mean
        return _mean(gradients[0].contiguous().clone())


class _AverageOfEqualUse(_Average):
    """Where every process has the same gradient of the mean: it needs no second message."""

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0]


def _mean(value: Tensor) -> Tensor:
    """In place."""
    with _contact():
        dist.all_reduce(value, group=_lines[-1])
    return value.div_(world().size)


def average(value: Tensor, *, alike: bool = False) -> Tensor:
    """Mean of ``value`` over all processes, differentiable; ``value`` itself where there is one process.

    ``alike``: the loss depends on nothing but such means, so that all processes have the same one, and its gradient.
    """
    if world().size == 1:
        return value
    return (_AverageOfEqualUse if alike else _Average).apply(value)  # type: ignore[return-value]


class _Gathered(torch.autograd.Function):
    """Rows of all processes below each other; the gradients of all flow back to their owners."""

    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        return torch.cat(gather(value))

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        with _contact():
            dist.all_reduce(total, group=_lines[-1])
        return total.chunk(world().size)[world().rank]


def gathered(value: Tensor) -> Tensor:
    """Rows ``[B, ...]`` of all processes as ``[size * B, ...]``, differentiable; all have equally many."""
    return value if world().size == 1 else _Gathered.apply(value)  # type: ignore[return-value]


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Mean gradient of each parameter over all processes, as one message."""
    if world().size == 1:
        return
    flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in parameters])
    for parameter, part in zip(parameters, _mean(flat).split([p.numel() for p in parameters]), strict=True):
        # no process has used a parameter without gradient: the optimiser leaves it alone, as it would in one process
        if parameter.grad is not None:
            parameter.grad.copy_(part.view_as(parameter))
        elif bool(part.any()):
            parameter.grad = part.view_as(parameter).clone()


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@torch.no_grad()
def share_module(module: nn.Module) -> None:
    """Parameters and buffers of the first process for all."""
    if world().size == 1:
        return
    tensors = [value for value in module.state_dict().values() if isinstance(value, Tensor)]
    for kind in {(value.dtype, value.device) for value in tensors}:
        same = [value for value in tensors if (value.dtype, value.device) == kind]
        flat = torch.cat([value.reshape(-1) for value in same])
        with _contact():
            dist.broadcast(flat, 0, group=_lines[-1])
        for value, part in zip(same, flat.split([value.numel() for value in same]), strict=True):
            value.copy_(part.view_as(value))


def from_first(*numbers: float) -> tuple[float, ...]:
    """The first process' numbers."""
    if world().size == 1:
        return numbers
    shared = torch.tensor(numbers, dtype=torch.float64)
    with _contact():
        dist.broadcast(shared, 0, group=_lines[-1])
    return tuple(shared.tolist())


def mean_of(number: float) -> float:
    """Mean of a number over all processes."""
    return number if world().size == 1 else float(_mean(torch.tensor([number], dtype=torch.float64)))


def everyone(flag: bool) -> bool:
    """Whether ``flag`` is true in every process."""
    return mean_of(float(flag)) == 1.0


def bytes_from_first(data: bytes | None) -> bytes | None:
    """What the first process holds; the others' ``data`` is not looked at."""
    if world().size == 1:
        return data
    (length,) = from_first(-1 if data is None else len(data))
    if length < 0:
        return None
    own = data if world().first and data is not None else bytes(int(length))
    shared = torch.frombuffer(bytearray(own), dtype=torch.uint8) if length else torch.zeros(0, dtype=torch.uint8)
    with _contact():
        dist.broadcast(shared, 0, group=_lines[-1])
    return shared.numpy().tobytes()


def gather(value: Tensor) -> list[Tensor]:
    """The tensors of all processes, which are of one shape."""
    if world().size == 1:
        return [value]
    # where processes share a GPU they speak by gloo, which gathers what is in main memory only
    own = value.cpu() if value.is_cuda and "cuda:nccl" not in dist.get_backend_config(_lines[-1]) else value
    parts = [torch.empty_like(own) for _ in range(world().size)]
    with _contact():
        dist.all_gather(parts, own.contiguous(), group=_lines[-1])
    return [part.to(value.device) for part in parts]


def computed_together(compute: Callable[[Tensor], Tensor], index: Tensor) -> Tensor:
    """The rows ``compute(index)``, each process computing its share of them."""
    size = world().size
    if size == 1 or len(index) < size:
        return compute(index)
    longest = world().share(len(index))
    shares = index.tensor_split(size)
    own = compute(shares[world().rank])
    padded = own.new_zeros(longest, *own.shape[1:])
    padded[: len(own)] = own
    parts = gather(padded)
    return torch.cat([part[: len(rows)] for part, rows in zip(parts, shares, strict=True)])
