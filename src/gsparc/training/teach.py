"""Soft labels for every seen node from graph networks that see the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import nn

from gsparc._runtime import further_seed, seeded
from gsparc._validation import check_name
from gsparc.graph import Graph
from gsparc.nn.teacher import AppnpTeacher, FixedRows, SageTeacher
from gsparc.ops.propagate import Propagation
from gsparc.training.batches import FeatureSource
from gsparc.training.classify import ClassTask, class_logits
from gsparc.training.loop import LoopSettings, run_loop

__all__ = ["RECORDED_ROWS", "TeacherKind", "default_steps", "distilled_targets", "soft_labels"]

TeacherKind = Literal["sage", "appnp"]

RECORDED_ROWS = 1 << 18  # up to which a step over a whole graph may be recorded: beyond, its launches do not matter
_FEW = 40  # labels a class, on average, up to which the weights are held down harder


def default_steps(num_nodes: int) -> int:
    """Optimiser steps of a teacher: 200 up to 10,000 nodes, fewer where a step costs more, at least 60.

    Measured by the accuracy of a student on cold nodes: Photo (5.7k nodes) loses a point with 60 steps, Debian
    (26k) gains half a point, for a third of the time.

    Examples
    --------
    >>> [default_steps(n) for n in (100, 25_000, 10**6)]
    [200, 80, 60]
    """
    return int(min(200, max(60, 2_000_000 // max(num_nodes, 1))))


def distilled_targets(soft: np.ndarray, codes: np.ndarray, *, hard: float = 0.5) -> np.ndarray:
    """What a student learns: the teacher's ``soft [n, C]``, mixed with the true class where ``codes >= 0``.

    Examples
    --------
    >>> soft = np.array([[0.6, 0.4], [0.6, 0.4]])
    >>> distilled_targets(soft, np.array([1, -1])).round(2).tolist()
    [[0.3, 0.7], [0.6, 0.4]]
    """
    targets = soft.copy()
    labelled = np.flatnonzero(codes >= 0)
    targets[labelled] *= 1 - hard
    targets[labelled, codes[labelled]] += hard
    return targets


def soft_labels(
    features: FeatureSource,
    graph: Graph,
    codes: np.ndarray,
    num_classes: int,
    *,
    kinds: Sequence[TeacherKind] = ("sage", "appnp"),
    seeds: int = 1,
    steps: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    show_progress: bool = False,
) -> np.ndarray:
    """Class probabilities of all seen nodes, the mean over several teachers.

    Parameters
    ----------
    features, graph
        The seen nodes, and the edges among them.
    codes
        Class numbers ``[n]``, -1 for unlabelled nodes.
    kinds, seeds
        One teacher of each kind is trained from each of ``seeds`` random starts.
    steps
        Optimiser steps a teacher, each over the whole graph; :func:`default_steps` by default. Nothing is held out:
        with twenty labels a class every one of them is worth more to the training than to a stopping rule.

    Returns
    -------
    probabilities : float32 array, shape (n, num_classes)

    Examples
    --------
    >>> from gsparc.training.batches import Scaling
    >>> X = np.array([[1.0, 0.0], [0.9, 0.3], [0.2, 0.8], [0.0, 1.0]], np.float32)
    >>> path = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    >>> soft = soft_labels(FeatureSource(X, Scaling.fit(X)), path, np.array([0, -1, -1, 1]), 2, steps=20)
    >>> soft.shape, soft.argmax(axis=1).tolist()
    ((4, 2), [0, 0, 1, 1])
    """
    device = torch.device(device)
    steps = default_steps(graph.num_nodes) if steps is None else steps
    everyone = torch.arange(features.num_rows, device=device)
    rows = FixedRows(features.fixed_rows(everyone), features.num_columns)
    total = torch.zeros(features.num_rows, num_classes, device=device)
    for kind in kinds:
        check_name("teacher", kind, ("sage", "appnp"))
        propagation = Propagation(graph, "mean" if kind == "sage" else "sym", device)
        for number in range(seeds):
            own = further_seed(seed, number)
            module = _teacher(kind, rows, propagation, features, num_classes, own)
            _train(module, codes, num_classes, steps, own, device, f"{kind} teacher", show_progress)
            # one chunk: any row costs as much as all of them
            logits = class_logits(module, lambda index: (index,), everyone, chunk=features.num_rows)
            total += torch.softmax(logits, dim=1)
    return (total / (seeds * len(kinds))).cpu().numpy()


def _teacher(
    kind: TeacherKind,
    rows: FixedRows,
    propagation: Propagation,
    features: FeatureSource,
    num_classes: int,
    seed: int,
) -> nn.Module:
    network = SageTeacher if kind == "sage" else AppnpTeacher
    with seeded(seed):
        module = network(
            rows,
            propagation,
            features.num_columns,
            num_classes,
            hidden_channels=256 if kind == "sage" else 128,
            dropout=0.5,
            input_dropout=0.5 if features.scaling.rows else 0.2,
        )
    return module.to(propagation.device)


def _train(
    module: nn.Module,
    codes: np.ndarray,
    num_classes: int,
    steps: int,
    seed: int,
    device: torch.device,
    description: str,
    show_progress: bool,
) -> None:
    labelled = np.flatnonzero(codes >= 0)
    task = ClassTask(
        module,
        lambda index: (index,),
        labelled,
        codes[labelled],
        None,
        device,
        batch_size=len(labelled),
        capturable=len(codes) <= RECORDED_ROWS,
    )
    few = len(labelled) <= _FEW * num_classes
    settings = LoopSettings(
        steps=steps,
        learning_rate=0.01,
        weight_decay=0.05 if few else 0.01,
        eval_every=steps,
        seed=seed,
        description=description,
        show_progress=show_progress,
    )
    run_loop(task, settings, device)
