"""Which heads a classifier trains, on which targets, judged by which nodes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gsparc.estimators._heads import HeadData, HeadSettings, Judges, NetHead
from gsparc.estimators._views import NodeView
from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.training.teach import default_steps, distilled_targets, soft_labels

__all__ = ["HEADS", "Fitter", "prior_weights"]

_log = logging.getLogger(__name__)

HEADS = ("mlp", "distilled", "spectral", "gcn", "phormer", "samba", "vote")
_LABEL_SHARE = 0.5  # of the true label in the target of a labelled node that the teachers answered for, too
_CONTRAST = 0.3  # weight of the loss on edges
_TEACHER_ENTRIES = {"cpu": 4_000_000, "cuda": 400_000_000}  # of the adjacency, up to which teachers are trained
_ALL_HEADS = 100_000  # nodes up to which the mixture has every head


def prior_weights(names: list[str], labelled_share: float) -> dict[str, float]:
    """Weights of the heads before any node has judged them.

    Networks on features and coordinates do best nearly everywhere, the others add variety. The plain MLP knows the
    labels only, so its share falls with theirs.
    """
    plain = 0.1 + labelled_share
    prior = {"mlp": plain, "mlp, again": plain, "vote": 0.2, "gcn": 0.4, "phormer": 0.4, "samba": 0.4}
    return {name: prior.get(name, 1.0) for name in names}


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
    def soft(self) -> np.ndarray:
        """``[n, C]``: what the teachers say, together with the true label where it is known."""
        assert self.graph is not None
        graph = self.graph.isolate(self.hidden) if len(self.hidden) else self.graph
        steps = default_steps(len(self.view))
        if self.settings.max_steps is not None:
            steps = min(steps, self.settings.max_steps)
        soft = soft_labels(
            self.view.source,
            graph,
            self.codes,
            self.num_classes,
            steps=steps,
            seed=self.settings.seed,
            device=self.device,
            show_progress=bool(self.settings.verbose),
        )
        return distilled_targets(soft, self.codes, hard=_LABEL_SHARE)

    def data(self, *, distilled: bool) -> HeadData:
        """Labelled nodes and their classes, or all nodes and their soft labels."""
        rows, targets = (self.free, self.soft[self.free]) if distilled else (self.labelled, self.codes[self.labelled])
        return HeadData(self.view, rows, targets, self.num_classes, self.judges, self.graph, self.hidden)

    def head(self, kind: Any, *, distilled: bool, module: torch.nn.Module | None = None, **changes: Any) -> NetHead:
        """Train one head."""
        settings = replace(self.settings, kind=kind, description=str(changes.pop("name", kind)), **changes)
        return NetHead.fit(settings, self.data(distilled=distilled), self.device, module)

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

    def mixture_heads(self, names: list[str], *, full: bool) -> dict[str, NetHead]:
        """The networks of the mixture, each as good as it gets with what there is; ``full``: nobody chose them."""
        teach = self.can_teach
        edges = _CONTRAST if self.graph is not None and teach else 0.0
        heads: dict[str, NetHead] = {}
        for name in names:
            if name == "mlp":
                heads[name] = self.head("mlp", distilled=False, coordinates=False, name="plain MLP")
                if full and self.labelled_share > 0.5:  # another start: where labels abound, so does what features say
                    seed = self.settings.seed + 1
                    heads["mlp, again"] = self.head("mlp", distilled=False, coordinates=False, seed=seed)
            elif name == "distilled":
                heads[name] = self.head("mlp", distilled=True, coordinates=False, name=name)
                heads["distilled, edges"] = self.head(
                    "mlp", distilled=True, coordinates=False, contrast=edges, name="distilled, edges"
                )
            elif name == "spectral":
                heads[name] = self.head("mlp", distilled=teach, name=name)
                if edges:
                    heads["spectral, edges"] = self.head("mlp", distilled=teach, contrast=edges, name="spectral, edges")
            elif name != "vote":
                heads[name] = self.head(name, distilled=teach)
        return heads
