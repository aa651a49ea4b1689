"""Cold Brew: a graph network with free embeddings of nodes teaches an MLP that finds its own neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from gsparc._runtime import resolve_device, seeded
from gsparc._typing import RandomState
from gsparc._validation import check_features, check_positions, check_seen_ids
from gsparc.baselines._graph_taught import GraphTaughtBaseline, Lesson
from gsparc.estimators._heads import HeadData, HeadSettings, Judges, NetHead
from gsparc.estimators._views import NodeView
from gsparc.nn.mlp import FeatureMLP
from gsparc.nn.spectral_map import InputLayer
from gsparc.nn.teacher import FixedRows
from gsparc.ops.dropout import dropout
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.propagate import Propagation
from gsparc.training.batches import FeatureSource, as_tensor
from gsparc.training.classify import ClassTask, class_logits
from gsparc.training.loop import run_loop
from gsparc.training.teach import RECORDED_ROWS, default_steps, distilled_targets

__all__ = ["ColdBrewBaseline", "StructuralTeacher", "latent_neighbours"]

_BLOCK = 8192
_FEW = 40  # labels a class, on average, up to which the teacher's weights are held down harder


def latent_neighbours(guess: Tensor, memory: Tensor, ids: Tensor) -> Tensor:
    """Attention of ``guess [B, d]`` over the rows ``ids [B, K]`` of ``memory [n, d]``.

    ``sum_j a_j m_j`` with ``a = softmax(<g, m_j> / sqrt(d))`` over the K rows alone.

    Examples
    --------
    >>> memory = torch.tensor([[2.0], [0.0], [-1.0]])
    >>> latent_neighbours(torch.zeros(1, 1), memory, torch.tensor([[0, 2]])).tolist()
    [[0.5]]
    """
    chosen = memory[ids]  # [B, K, d]
    scores = (chosen @ guess.unsqueeze(2)).squeeze(2) / memory.shape[1] ** 0.5
    return (torch.softmax(scores, dim=1).unsqueeze(1) @ chosen).squeeze(1)


class StructuralTeacher(nn.Module):
    """Two graph convolutions in which every node has a free embedding beside its features.

    ``H <- relu(LN(P (X W + E)))``, ``Z = LN(P (H W' + E'))``, and linear class scores of ``Z``, where ``E`` and ``E'``
    belong to the nodes and ``P = D^-1/2 (A + I) D^-1/2``. Rows of ``Z`` have length ``sqrt(channels)``.
    """

    def __init__(
        self,
        x: FixedRows,
        propagation: Propagation,
        out_channels: int,
        *,
        channels: int = 128,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.x, self.propagation = x, propagation
        self.dropout, self.input_dropout = dropout, input_dropout
        self.input = InputLayer(x.num_columns, channels)
        self.hidden = nn.Linear(channels, channels)
        self.structure = nn.Parameter(torch.zeros(2, len(x), channels))
        self.norms = nn.ModuleList(nn.LayerNorm(channels, elementwise_affine=False) for _ in range(2))
        self.output = nn.Linear(channels, out_channels)

    def embed(self) -> Tensor:
        """The embedding of every node, ``[n, channels]``."""
        h = self.x.project(self.input, dropout=self.input_dropout, training=self.training)
        h = F.relu(self.norms[0](self.propagation(h + self.structure[0])))
        h = self.hidden(dropout(h, self.dropout, self.training))
        return self.norms[1](self.propagation(h + self.structure[1]))

    def penalty(self) -> Tensor:
        """Mean squared length of the nodes' own embeddings."""
        return self.structure.square().sum(dim=(0, 2)).mean()

    def forward(self, rows: Tensor) -> Tensor:
        """Class scores; whatever the rows, all nodes are computed."""
        return self.output(dropout(self.embed(), self.dropout, self.training))[rows]


class _GuessTask:
    """First part of the student: the teacher's embedding of a node from its features."""

    def __init__(self, module: FeatureMLP, source: FeatureSource, memory: Tensor, seed: int) -> None:
        self.module, self.source, self.memory = module, source, memory
        order = as_tensor(np.random.default_rng(seed).permutation(source.num_rows)).to(memory.device)
        held = min(source.num_rows // 20, 2000)
        self.held, self.train = order[:held], order[held:]
        self.capturable = source.settle()

    def loss(self, generator: torch.Generator) -> Tensor:
        pick = torch.randint(len(self.train), (1024,), generator=generator, device=self.train.device)
        rows = self.train[pick] if len(self.train) > 1024 else self.train
        return F.mse_loss(self.module(self.source.rows(rows)), self.memory[rows])

    def evaluate(self) -> float | None:
        """How near it comes on seen nodes that it was not trained on."""
        if len(self.held) < 5:
            return None
        guess = class_logits(self.module, lambda rows: (self.source.rows(rows),), self.held)
        return -float(F.mse_loss(guess, self.memory[self.held]))


class ColdBrewBaseline(GraphTaughtBaseline):
    """Cold Brew (Zheng et al., arXiv 2111.04840, ICLR 2022): teacher, guessed embedding, latent neighbours.

    A graph network with an embedding for every node is the teacher. The student's first part guesses a node's
    embedding in the teacher from its features; attention of the guess over the ``n_neighbors`` most similar
    embeddings of seen nodes stands in for the missing neighbourhood; its second part classifies by the features,
    the guess and that neighbourhood.

    Parameters
    ----------
    n_neighbors
        Latent neighbours of a node.
    channels
        Width of the teacher's embedding.
    penalty
        Weight of the mean squared length of the nodes' own embeddings in the teacher's loss.
    distil
        Share of the teacher's word in the targets of labelled nodes; unlabelled ones have that alone. 0: labels only,
        as in the paper.
    teacher_steps, max_steps
        Optimiser steps of the teacher (``None``: 200, and fewer on graphs of more than 10,000 nodes), and of each of
        the student's parts at most.
    device, random_state, verbose
        As elsewhere.

    Notes
    -----
    Where it differs from the paper: the layers are normalised, so that the largest inner products are the nearest
    neighbours by angle and an index can find them; inner products are divided by the root of the width; a
    seen node is no neighbour of itself, since a new one is not among the seen either; the second part also learns
    the teacher's soft labels (``distil``). Where all nodes are labelled the teacher fits them nearly perfectly, and its
    soft labels say no more than the labels do.

    Checked against its attention over the best two of four embeddings, and a layer of its teacher, worked by hand.

    Examples
    --------
    >>> from gsparc import Graph
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4)); y = (X[:, 0] > 0).astype(int)
    >>> graph = Graph.from_edges(np.array([np.arange(59), np.arange(1, 60)]))
    >>> model = ColdBrewBaseline(max_steps=25, teacher_steps=10, random_state=0)
    >>> model.fit(X, y, graph=graph).predict(X).shape
    (60,)
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 16,
        channels: int = 128,
        penalty: float = 1e-3,
        distil: float = 0.5,
        teacher_steps: int | None = None,
        max_steps: int = 600,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.channels = channels
        self.penalty = penalty
        self.distil = distil
        self.teacher_steps = teacher_steps
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, lesson: Lesson) -> float:
        self.memory_, soft = self._teach(lesson)
        self.index_ = NeighborIndex.build(self.memory_, metric="cosine", device=lesson.device, seed=lesson.seed)
        self.guess_ = self._learn_to_guess(lesson)
        view = self._view(lesson.source, torch.arange(lesson.source.num_rows, device=lesson.device))
        rows, targets = np.arange(len(lesson.codes)), distilled_targets(soft, lesson.codes, hard=1 - self.distil)
        if self.distil == 0:
            rows, targets = lesson.labelled, lesson.codes[lesson.labelled]
        judge: Judges | None = None
        if lesson.judges is not None:
            judge = self._view(lesson.judges), np.arange(len(lesson.judge_codes)), lesson.judge_codes
        settings = HeadSettings(max_steps=self.max_steps, seed=lesson.seed, verbose=self.verbose)
        self.head_ = NetHead.fit(settings, HeadData(view, rows, targets, lesson.num_classes, judge), lesson.device)
        return 1.0  # the head divides by its own

    def _teach(self, lesson: Lesson) -> tuple[Tensor, np.ndarray]:
        """Embeddings and class probabilities of all seen nodes by the teacher."""
        source, device, rows = lesson.source, lesson.device, lesson.labelled
        everyone = torch.arange(source.num_rows, device=device)
        with seeded(lesson.seed):
            teacher = StructuralTeacher(
                FixedRows(source.fixed_rows(everyone), source.num_columns),
                Propagation(lesson.graph, "sym", device),
                lesson.num_classes,
                channels=self.channels,
                input_dropout=0.5 if source.scaling.rows else 0.2,
            ).to(device)
        task = ClassTask(
            teacher,
            lambda index: (index,),
            rows,
            lesson.codes[rows],
            None,
            device,
            batch_size=len(rows),
            extra=lambda _: self.penalty * teacher.penalty(),
            capturable=source.num_rows <= RECORDED_ROWS,
        )
        steps = self.teacher_steps or default_steps(source.num_rows)
        decay = 0.05 if len(rows) <= _FEW * lesson.num_classes else 0.01
        settings = self._settings(steps, 0.01, decay, seed=lesson.seed, eval_every=steps, description="teacher")
        run_loop(task, settings, device)
        with torch.no_grad():
            memory = teacher.embed()
            soft = torch.softmax(teacher.output(memory), dim=1)
        return memory, soft.cpu().numpy()

    def _learn_to_guess(self, lesson: Lesson) -> FeatureMLP:
        with seeded(lesson.seed):
            module = FeatureMLP(
                lesson.source.num_columns, self.channels, input_dropout=0.3 if lesson.source.scaling.rows else 0.0
            ).to(lesson.device)
        task = _GuessTask(module, lesson.source, self.memory_, lesson.seed)
        settings = self._settings(self.max_steps, 3e-3, 1e-2, seed=lesson.seed, description="guess")
        run_loop(task, settings, lesson.device)
        return module

    def predict_seen(self, X: Any, ids: Any = None) -> np.ndarray:
        """Most probable classes of nodes that were fitted on, at the rows ``ids``; none is its own neighbour."""
        check_is_fitted(self, "temperature_")
        X = check_features(self, X, reset=False)
        count, device = len(self._places), resolve_device(self.device)
        places = self._places[check_positions(check_seen_ids(ids, X.shape[0], count), count)]
        own = torch.from_numpy(places).to(device)
        view = self._view(FeatureSource(X, self.scaling_, device), own)
        return self.classes_[self.head_.logits(view).argmax(axis=1)]

    def _view(self, source: FeatureSource, own: Tensor | None = None) -> NodeView:
        """Nodes with the guess and its latent neighbourhood as coordinates; ``own``: their places among the seen."""
        everyone = torch.arange(source.num_rows, device=source.device)
        guess = class_logits(self.guess_.to(source.device), lambda rows: (source.rows(rows),), everyone)
        near = [self._neighbourhood(guess[part], None if own is None else own[part]) for part in everyone.split(_BLOCK)]
        return NodeView(source, torch.cat([guess, torch.cat(near)], dim=1))

    def _neighbourhood(self, guess: Tensor, own: Tensor | None) -> Tensor:
        memory = self.memory_.to(guess.device)
        ids = torch.as_tensor(self.index_.search(guess, self.n_neighbors + (own is not None))[1]).to(guess.device)
        if own is not None and ids.shape[1] > 1:  # a new node is not in the memory either
            strange = ids != own.unsqueeze(1)
            strange[strange.all(dim=1), -1] = False  # not found itself: drop the farthest
            ids = ids[strange].view(len(ids), -1)
        return latent_neighbours(guess, memory, ids)

    def _logits(self, source: FeatureSource) -> Tensor:
        return torch.from_numpy(self.head_.logits(self._view(source)))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Scores of the second part."""
        return self.head_.history
