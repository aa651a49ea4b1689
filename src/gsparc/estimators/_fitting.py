"""Which heads a classifier trains, on which targets, judged by which nodes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gsparc._runtime import further_seed
from gsparc.estimators._auto import head_kind
from gsparc.estimators._heads import HeadData, HeadSettings, Judges, NetHead
from gsparc.estimators._views import NodeView
from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.training.teach import TeacherKind, default_steps, distilled_targets, soft_labels

__all__ = ["HEADS", "Fitter", "prior_weights", "random_starts"]

_log = logging.getLogger(__name__)

HEADS = ("mlp", "distilled", "spectral", "gcn", "phormer", "samba", "vote")
_LABEL_SHARE = 0.5  # of the true label in the target of a labelled node that the teachers answered for, too
_CONTRAST = 0.3  # weight of the loss on edges
_TEACHER_ENTRIES = {"cpu": 4_000_000, "cuda": 400_000_000}  # of the adjacency, up to which teachers are trained
_ALL_HEADS = 100_000  # nodes up to which the mixture has every head


def prior_weights(names: list[str], labelled_share: float) -> dict[str, float]:
    """Weights of the heads before any node has judged them.

    Networks on features and coordinates do best nearly everywhere, the others add variety. The plain MLP knows the
    labels only, so its share falls with theirs. Several starts of one network share its weight, which grows as
    their square root.

    Examples
    --------
    >>> prior_weights(["mlp", "spectral", "distilled", "distilled 2", "distilled 3", "distilled 4"], 0.5)["distilled 2"]
    0.5
    """
    prior = {"mlp": 0.1 + labelled_share, "vote": 0.2, "gcn": 0.4, "phormer": 0.4, "samba": 0.4}
    kinds = [head_kind(name) for name in names]
    return {name: prior.get(kind, 1.0) / kinds.count(kind) ** 0.5 for name, kind in zip(names, kinds, strict=True)}


def random_starts(num_nodes: int) -> int:
    """Random starts of the networks of the default mixture: more where they are cheap and labels are few.

    Examples
    --------
    >>> [random_starts(n) for n in (2_700, 30_000, 10**6)]
    [3, 2, 1]
    """
    return 3 if num_nodes <= 10_000 else 2 if num_nodes <= 100_000 else 1


@dataclass(frozen=True)
class Fitter:
    """Everything that the heads of one classifier are trained on.

    Attributes
    ----------
    settings
        Network and optimiser as the user asked; `kind` and what belongs to it are set for each head.
    codes
        Class numbers of the seen nodes, -1 for unlabelled ones and for those that judge.
    free
        Seen nodes that may be trained on: all but those that judge.
    judges
        A view, its rows and their class numbers.
    """

    settings: HeadSettings
    view: NodeView
    codes: np.ndarray
    free: np.ndarray
    num_classes: int
    judges: Judges
    graph: Graph | None
    device: torch.device
    own_graph: bool = True  # not made up from features
    starts: int = 1  # of the teachers, and of the networks on features

    @cached_property
    def labelled(self) -> np.ndarray:
        """Labelled nodes that may be trained on."""
        return np.flatnonzero(self.codes >= 0)

    @property
    def labelled_share(self) -> float:
        """Of the seen nodes that may be trained on."""
        return len(self.labelled) / max(len(self.free), 1)

    @cached_property
    def can_teach(self) -> bool:
        """Whether there is a graph that teachers can be trained on in reasonable time."""
        if self.graph is None or not self.own_graph:
            return False
        small = len(self.graph.indices) <= _TEACHER_ENTRIES[self.device.type]
        if not small:
            _log.info("no teachers: %d edges are too many for full-batch training here", self.graph.num_edges)
        return small

    def no_teachers(self) -> str:
        """Why there are none, as a sentence; empty where there are some."""
        if self.can_teach:
            return ""
        if self.graph is None or not self.own_graph:
            return "No graph was passed, so no teacher was trained."
        return (
            f"The graph has {self.graph.num_edges:,} edges, too many to train teachers on all of them at once here, so "
            "none was trained."
        )

    @cached_property
    def hidden(self) -> np.ndarray:
        """Seen nodes that judge: what they are linked to is nobody's to learn."""
        hidden = np.ones(len(self.codes), bool)
        hidden[self.free] = False
        return np.flatnonzero(hidden)

    @cached_property
    def sage(self) -> list[np.ndarray]:
        """Targets ``[n, C]`` from one GraphSAGE teacher a start: what it says, and the true label where it is known."""
        return [distilled_targets(self._taught("sage", i), self.codes, hard=_LABEL_SHARE) for i in range(self.starts)]

    @cached_property
    def soft(self) -> np.ndarray:
        """``[n, C]``: what all teachers of both kinds say, together with the true label where it is known."""
        appnp = [distilled_targets(self._taught("appnp", i), self.codes, hard=_LABEL_SHARE) for i in range(self.starts)]
        return np.mean([*self.sage, *appnp], axis=0)

    def _taught(self, kind: TeacherKind, start: int) -> np.ndarray:
        assert self.graph is not None
        steps = default_steps(len(self.view))
        if self.settings.max_steps is not None:
            steps = min(steps, self.settings.max_steps)
        return soft_labels(
            self.view.source,
            self._open_graph,
            self.codes,
            self.num_classes,
            kinds=(kind,),
            steps=steps,
            seed=further_seed(self.settings.seed, start),
            device=self.device,
            show_progress=bool(self.settings.verbose),
        )

    @cached_property
    def _open_graph(self) -> Graph:
        """The graph without the edges of those that judge."""
        assert self.graph is not None
        return self.graph.isolate(self.hidden) if len(self.hidden) else self.graph

    def data(self, soft: np.ndarray | None) -> HeadData:
        """All nodes and their soft labels, or labelled nodes and their classes."""
        rows, targets = (self.labelled, self.codes[self.labelled]) if soft is None else (self.free, soft[self.free])
        return HeadData(self.view, rows, targets, self.num_classes, self.judges, self.graph, self.hidden)

    def head(
        self,
        kind: Any,
        soft: np.ndarray | None,
        *,
        module: torch.nn.Module | None = None,
        start: int = 0,
        **changes: Any,
    ) -> NetHead:
        """Train one head, on soft labels or (``None``) on the true ones alone."""
        name = str(changes.pop("name", kind))
        settings = replace(
            self.settings, kind=kind, description=name, seed=further_seed(self.settings.seed, start), **changes
        )
        return NetHead.fit(settings, self.data(soft), self.device, module)

    def plan(self, asked: Any) -> list[str]:
        """Heads of the mixture."""
        asked = None if asked is None else list(asked)
        if asked is not None and "distilled" in asked and not self.can_teach:
            raise InputError(f"heads has 'distilled', which needs teachers. {self.no_teachers()} Leave it out.")
        if asked is not None:
            names = [name for name in HEADS if name in asked or name == "mlp"]  # the MLP is what all is measured by
        else:
            large = len(self.view) > _ALL_HEADS
            names = [name for name in HEADS if not (large and name in ("samba", "vote"))]
        return names if self.can_teach else [name for name in names if name != "distilled"]

    def mixture_heads(self, names: list[str]) -> dict[str, NetHead]:
        """The networks of the mixture, each as good as it gets with what there is.

        The plain MLP is started again only where labels abound, and what features say with them.
        """
        soft = self.soft if self.can_teach else None
        few = self.labelled_share <= 0.5
        edges = _CONTRAST if soft is not None else 0.0
        heads: dict[str, NetHead] = {}

        def add(name: str, kind: str, targets: Any, starts: int, **changes: Any) -> None:
            for i in range(starts):
                label = name if i == 0 else f"{name} {i + 1}"
                own = targets[i] if isinstance(targets, list) else targets
                heads[label] = self.head(kind, own, start=i, name=label, **changes)

        fewer = max(1, self.starts - 1)
        for name in names:
            if name == "mlp":
                add(name, "mlp", None, 1 if few else self.starts, coordinates=False)
            elif name == "distilled":
                add(name, "mlp", self.sage, self.starts, coordinates=False)
                add("distilled, edges", "mlp", soft, fewer, coordinates=False, contrast=edges)
            elif name == "spectral":
                add(name, "mlp", soft, fewer)
                if edges:
                    add("spectral, edges", "mlp", soft, fewer, contrast=edges)
            elif name != "vote":
                add(name, name, soft, 1)
        return heads
