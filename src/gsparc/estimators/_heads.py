"""Networks that classify nodes, one way to train and to save them all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gsparc._cuts import in_units, mean_weight
from gsparc._processes import world
from gsparc._runtime import seeded
from gsparc._validation import check_count
from gsparc.estimators._labels import hold_out_labelled
from gsparc.estimators._views import NodeView, dense_rows
from gsparc.exceptions import BackboneError
from gsparc.graph import Graph
from gsparc.nn.attach import AttachedModule, SeenEdges
from gsparc.nn.gcn import SpectralGCN
from gsparc.nn.mlp import FeatureMLP
from gsparc.nn.phormer import TokenTransformer
from gsparc.nn.samba import SambaNet
from gsparc.ops._near_lists import nested_sums
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling, as_tensor
from gsparc.training.classify import ClassTask, Inputs, Judge, class_logits
from gsparc.training.links import joint_info_nce
from gsparc.training.loop import LoopSettings, run_loop

__all__ = ["HeadData", "HeadSettings", "Judges", "NetHead", "attached", "choose_judges", "neighbor_weights"]

Kind = Literal["mlp", "gcn", "phormer", "samba", "module"]
_SUMMARY_SAMPLE = 8192  # seen nodes that stand for all when a network is judged in training
_BLOCK = 8192
_TOKEN_CHUNK = 128  # nodes whose tokens pass through a transformer at once: they stay in the cache
_PROJECTED = 1 << 27  # numbers that are kept to save a transformer its first layer: 512 MB
_TEMPERATURE, _CONTRAST_EDGES = 0.1, 512
_MANY = 100_000  # rows beyond which a GPU trains transformers in half precision


@dataclass(frozen=True)
class HeadSettings:
    """A network and its optimiser; ``None`` is filled in by :meth:`complete`."""

    kind: Kind = "mlp"
    coordinates: bool = True  # mlp only: read the spectral coordinates beside the features
    contrast: float = 0.0  # mlp only: weight of the loss that pulls ends of edges together
    hidden_channels: int | Sequence[int] | None = None
    num_layers: int | None = None
    num_tokens: int = 7
    num_heads: int = 8
    n_neighbors: int | None = None
    gcn_inference: Literal["neighbors", "summary"] = "neighbors"
    dropout: float | None = None
    input_dropout: float | Literal["auto"] = "auto"
    batch_size: int | None = None
    max_steps: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    patience: int = 8
    verbose: int = 0
    seed: int = 0
    description: str = "classes"

    def complete(self) -> HeadSettings:
        """The same with the defaults of its kind."""
        summary = self.kind == "gcn" and self.gcn_inference == "summary"
        defaults: dict[str, Any] = {
            "mlp": {"hidden_channels": 256, "dropout": 0.5, "batch_size": 1024, "max_steps": 600},
            "gcn": {"hidden_channels": 128, "num_layers": 2, "dropout": 0.5, "max_steps": 300, "n_neighbors": 16}
            | {"batch_size": 1024 if summary else 256},
            "phormer": {"hidden_channels": 128, "dropout": 0.3, "batch_size": 256, "max_steps": 300},
            "samba": {"hidden_channels": 64, "dropout": 0.3, "batch_size": 256, "max_steps": 300},
            "module": {"batch_size": 256, "max_steps": 200, "n_neighbors": 10},
        }[self.kind]
        rate = {"mlp": 3e-3, "gcn": 3e-3, "phormer": 1e-3, "samba": 1e-3, "module": 1e-2}[self.kind]
        decay = 5e-4 if self.kind == "module" else 1e-2
        defaults = {"learning_rate": rate, "weight_decay": decay, "num_layers": 1} | defaults
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})


Judges = tuple[NodeView, np.ndarray, np.ndarray]
"""Nodes that judge: a view, its rows, their class numbers."""


@dataclass(frozen=True)
class HeadData:
    """What a head is trained on: nodes to read, rows, their classes or soft labels, and the nodes that judge."""

    view: NodeView
    rows: np.ndarray
    targets: np.ndarray
    num_classes: int
    judge: Judges | None = None
    graph: Graph | None = None
    hidden: np.ndarray | None = None  # nodes of the graph whose edges are not learned from: they judge


def choose_judges(
    view: NodeView, codes: np.ndarray, outside: tuple[NodeView, np.ndarray] | None, preferred: np.ndarray, seed: int
) -> tuple[Judges, np.ndarray, np.ndarray]:
    """Who judges, what the others may know of the labels, and who may be trained on.

    Judges are the nodes of ``outside`` (a view and their class numbers), or else labelled nodes of ``view``, the
    ``preferred`` ones first.
    """
    if outside is not None:
        return (outside[0], np.arange(len(outside[1])), outside[1]), codes, np.arange(len(codes))
    held = hold_out_labelled(codes, preferred, seed)
    known, free = codes.copy(), np.ones(len(codes), bool)
    known[held], free[held] = -1, False
    return (view, held, codes[held]), known, np.flatnonzero(free)


def _never_waits(settings: HeadSettings, module: nn.Module, view: NodeView) -> bool:
    """Whether the training steps of a network may be recorded: all it reads is on the GPU before it starts."""
    if view.source.device.type != "cuda" or settings.kind == "module":
        return False
    own = settings.kind == "mlp" or bool(getattr(module, "own_channels", 0))
    if own and not view.source.settle():
        return False
    if settings.kind in ("phormer", "samba"):
        return view.keep_tokens(settings.num_tokens)
    summed_up = settings.kind == "gcn" and settings.gcn_inference == "summary"
    return settings.kind == "mlp" or summed_up or view.keeps_neighbors(settings.n_neighbors or 1)


def neighbor_weights(distances: Tensor, width: float) -> Tensor:
    """``exp(-(d - d_1) / width)``: one for the nearest, less the farther."""
    return torch.exp(-(distances - distances[:, :1]) / max(width, 1e-6))


class NetHead:
    """A fitted network: what it reads of a node, its weights, its softmax temperature."""

    def __init__(
        self,
        settings: HeadSettings,
        module: nn.Module,
        *,
        temperature: float = 1.0,
        history: list[dict[str, float]] | None = None,
        summaries: list[Tensor] | None = None,
        width: float = 1.0,
        edges: SeenEdges | None = None,
        source: FeatureSource | None = None,
        unit: float = 1.0,
    ) -> None:
        self.unit = unit  # edges are in multiples of this weight
        self.settings, self.module, self.temperature, self.history = settings, module, temperature, history or []
        self.summaries, self.width, self.edges, self.source = summaries, width, edges, source
        self._projected: tuple[Tensor, Tensor] | None = (
            None  # the seen nodes' table, and what a first layer makes of it
        )
        self.fitted_summaries: list[Tensor] | None = None  # those before any node joined, once some have

    @property
    def kind(self) -> str:
        return self.settings.kind

    @classmethod
    def fit(
        cls, settings: HeadSettings, data: HeadData, device: torch.device, module: nn.Module | None = None
    ) -> NetHead:
        """Train; `module` is the user's own for ``kind="module"`` and is copied."""
        settings = settings.complete()
        with seeded(settings.seed):
            built = _build(settings, data, module).to(device)
        head = cls(settings, built)
        if settings.kind == "module":
            assert data.graph is not None
            head.unit = mean_weight(data.graph)  # inferred edges weigh up to one, as much as a mean edge
            head.edges, head.source = seen_edges(in_units(data.graph, head.unit), device), data.view.source
            head.width = _kernel_width(data.view, settings.n_neighbors or 1)
        judge = None
        if data.judge is not None and len(data.judge[1]):
            view, rows, labels = data.judge
            judge = Judge(head.inputs(view, seen=data.view), rows, labels)
        assert settings.batch_size is not None
        assert settings.max_steps is not None
        assert settings.learning_rate is not None
        assert settings.weight_decay is not None
        task = ClassTask(
            built,
            head.inputs(data.view, training=True),
            data.rows,
            data.targets,
            judge,
            device,
            batch_size=settings.batch_size,
            chunk=256 if settings.kind == "module" else 4096,
            extra=_contrast(settings, built, data, device),
            capturable=_never_waits(settings, built, data.view),
        )
        loop = LoopSettings(
            steps=settings.max_steps,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            eval_every=25,
            patience=settings.patience,
            tolerance=0.0,
            seed=settings.seed,
            bf16=device.type == "cuda" and settings.kind == "phormer" and len(data.rows) > _MANY,
            description=settings.description,
            show_progress=bool(settings.verbose),
        )
        head.history = run_loop(task, loop, device).history
        if settings.kind == "gcn" and settings.gcn_inference == "summary":
            assert isinstance(built, SpectralGCN)
            head.summaries = built.layer_summaries(partial(_blocks, data.view, None))
        head.temperature = task.temperature()
        return head

    def inputs(self, view: NodeView, *, seen: NodeView | None = None, training: bool = False) -> Inputs:
        """How rows of `view` become arguments of the network.

        Parameters
        ----------
        seen
            View of the seen nodes, for a network whose summaries are not final yet.
        training
            Rows are a training batch: a random sample of the seen nodes.
        """
        if self.kind == "mlp":
            assert isinstance(self.module, FeatureMLP)
            if self.module.coordinate_channels:
                return lambda rows: (view.features(rows), view.coordinates(rows))
            return lambda rows: (view.features(rows),)
        if self.kind in ("phormer", "samba"):
            own = bool(getattr(self.module, "own_channels", 0))
            tokens = self.settings.num_tokens
            return lambda rows: (view.tokens(rows, tokens), view.features(rows) if own else None)
        if self.kind == "gcn" and self.settings.gcn_inference == "summary":
            return self._summary_inputs(view, seen, training)
        return self._gcn_inputs(view) if self.kind == "gcn" else self._module_inputs(view)

    def _gcn_inputs(self, view: NodeView) -> Inputs:
        k, own = self.settings.n_neighbors or 1, bool(getattr(self.module, "own_channels", 0))

        def read(rows: Tensor) -> tuple[Any, ...]:
            assert view.seen is not None
            ids, _ = view.neighbors(rows, k)
            x = torch.cat([view.table(rows).unsqueeze(1), view.seen.table[ids]], dim=1)  # [B, 1 + n_neighbors, r + k]
            u = torch.cat([view.coordinates(rows).unsqueeze(1), view.seen.coordinates[ids]], dim=1)
            return x, u, view.features(rows) if own else None, None, "first"

        return read

    def _summary_inputs(self, view: NodeView, seen: NodeView | None, training: bool) -> Inputs:
        module = self.module
        assert isinstance(module, SpectralGCN)

        def read(rows: Tensor) -> tuple[Any, ...]:
            summaries = self.summaries
            if summaries is None and not training:
                summaries = module.layer_summaries(partial(_blocks, seen or view, _SUMMARY_SAMPLE))
            own = view.features(rows) if module.own_channels else None
            return view.table(rows).unsqueeze(0), view.coordinates(rows).unsqueeze(0), own, summaries, "flat"

        return read

    def _module_inputs(self, view: NodeView) -> Inputs:
        module, edges, source, k = self.module, self.edges, self.source, self.settings.n_neighbors or 1
        assert isinstance(module, AttachedModule)
        assert edges is not None
        assert source is not None

        def seen_rows(ids: Tensor) -> Tensor:
            return dense_rows(source.rows(ids), source.num_columns)

        def read(rows: Tensor) -> tuple[Any, ...]:
            ids, distances = view.neighbors(rows, k)
            weights = neighbor_weights(distances, self.width)
            attached = module.attach(ids, weights, edges, exclude=view.places(rows))
            return dense_rows(view.features(rows), view.source.num_columns), seen_rows, attached

        return read

    def logits(self, view: NodeView, rows: np.ndarray | None = None) -> np.ndarray:
        """Logits of nodes of a view, all by default, divided by the temperature; in blocks of bounded memory."""
        self.module.to(view.source.device)
        wanted = np.arange(len(view)) if rows is None else rows
        index = torch.from_numpy(wanted).to(view.source.device)
        if not len(index):
            return np.zeros((0, int(self.module.out_channels)), np.float32)  # type: ignore[arg-type]
        found = self._token_logits(view, index)
        if found is None:
            chunk = 256 if self.kind == "module" else 4096
            found = class_logits(self.module, self.inputs(view), index, chunk=chunk)
        return (found / self.temperature).cpu().numpy()

    @torch.no_grad()
    def _token_logits(self, view: NodeView, index: Tensor) -> Tensor | None:
        """Logits of a token transformer on a CPU, from rows that went through its first layer beforehand."""
        module, seen = self.module, view.seen
        if not isinstance(module, TokenTransformer) or seen is None or index.is_cuda:
            return None
        if len(index) <= _TOKEN_CHUNK or len(seen.table) * module.hidden_channels > _PROJECTED:
            return None  # a few nodes do not repay it, and their answers should not depend on their order
        near = view.token_nodes(self.settings.num_tokens)
        if near is None:
            return None
        if self._projected is None or self._projected[0] is not seen.table:
            self._projected = seen.table, torch.cat([module.project(part) for part in seen.table.split(_BLOCK)])
        table, count = self._projected[1], self.settings.num_tokens
        sizes = 2.0 ** torch.arange(1, count + 1).view(-1, 1, 1)
        module.eval()
        # nodes that are near one another read the same rows, which then are in the cache
        visits = torch.sort(seen.tokens.cell_of(near[index, 0])).indices
        out = table.new_empty(len(index), module.out_channels)
        for part in visits.split(_TOKEN_CHUNK):
            rows = index[part]
            means = nested_sums(near[rows], table, count).div_(sizes)
            z = torch.cat([module.project(view.table(rows)).unsqueeze(0), means])
            out[part] = module.infer(z, view.features(rows) if module.own_channels else None)
        return out

    def config(self) -> dict[str, Any]:
        """What is not an array."""
        shape = {name: _plain(value) for name, value in vars(self.settings).items()}
        module = None if self.kind == "module" else self.module.config()  # type: ignore[operator]
        out = {"settings": shape, "module": module, "temperature": self.temperature, "history": self.history}
        return out | {"width": self.width, "unit": self.unit, "num_summaries": len(self.summaries or ())}

    def arrays(self) -> dict[str, np.ndarray]:
        """Weights, and the summaries of a spectral convolution."""
        out = {f"module.{name}": value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}
        out |= {f"summary.{i}": value.cpu().numpy() for i, value in enumerate(self.summaries or ())}
        out |= {f"fitted.{i}": value.cpu().numpy() for i, value in enumerate(self.fitted_summaries or ())}
        if self.edges is not None:
            out |= {f"edges.{n}": v.cpu().numpy() for n, v in self.edges._asdict().items() if v is not None}
        if self.source is not None:
            out |= {f"source.{name}": array for name, array in self.source.arrays().items()}
        return out

    @classmethod
    def from_state(
        cls,
        config: dict[str, Any],
        arrays: dict[str, np.ndarray],
        device: torch.device,
        scaling: Scaling,
        module: nn.Module | None = None,
    ) -> NetHead:
        """What :meth:`config` and :meth:`arrays` described; `module` for a user's own network."""
        saved = config["settings"]
        if isinstance(saved["hidden_channels"], list):
            saved = saved | {"hidden_channels": tuple(saved["hidden_channels"])}
        settings = HeadSettings(**saved)
        own = module is not None
        if module is None:
            module = _CLASSES[settings.kind](**config["module"])
        weights = {n.removeprefix("module."): torch.from_numpy(v) for n, v in arrays.items() if n.startswith("module.")}
        try:
            module.load_state_dict(weights, assign=not own)  # no copy: mapped weights stay in their file
        except RuntimeError as error:
            if own:
                raise BackboneError(f"the network that came does not fit the saved weights: {error}") from error
            raise
        module.to(device).eval()
        if not all(bool(torch.isfinite(weight).all()) for weight in weights.values() if weight.is_floating_point()):
            raise ValueError("weights of a network that are not finite")
        unit = config.get("unit", 1.0)  # what was saved before there was one used weights as they came
        numbers = (config["temperature"], config["width"], unit)
        positive = all(isinstance(v, (int, float)) and 0 <= v < float("inf") for v in numbers)
        if not positive or not numbers[0] or not unit:
            raise ValueError(f"temperature, width and unit {numbers} of a network")
        for name in ("num_tokens", "n_neighbors"):
            if getattr(settings, name) is not None:
                check_count(name, getattr(settings, name), 1)
        count = int(config["num_summaries"])
        summaries = [torch.from_numpy(arrays[f"summary.{i}"]).to(device) for i in range(count)] or None
        edges = None
        if "edges.indptr" in arrays:
            parts = (arrays["edges.indptr"], arrays["edges.indices"], arrays.get("edges.weights"))
            edges = SeenEdges(*(None if part is None else torch.from_numpy(part).to(device) for part in parts))  # type: ignore[arg-type]
        part = {n.removeprefix("source."): v for n, v in arrays.items() if n.startswith("source.")}
        head = cls(
            settings,
            module,
            source=FeatureSource.from_arrays(part, scaling, device) if part else None,
            temperature=float(config["temperature"]),
            history=config["history"],
            summaries=summaries,
            width=float(config["width"]),
            edges=edges,
            unit=float(unit),
        )
        if summaries is not None and "fitted.0" in arrays:
            head.fitted_summaries = [torch.from_numpy(arrays[f"fitted.{i}"]).to(device) for i in range(count)]
            if any(a.shape != b.shape for a, b in zip(head.fitted_summaries, summaries, strict=True)):
                raise ValueError("summaries of a network that differ in shape from those it was fitted with")
        return head


_CLASSES: dict[str, Callable[..., nn.Module]] = {
    "mlp": FeatureMLP,
    "gcn": SpectralGCN,
    "phormer": TokenTransformer,
    "samba": SambaNet,
}


def attached(module: nn.Module, in_channels: int, out_channels: int) -> AttachedModule:
    """A copy of the user's network that answers for attached nodes.

    It gets one hop of real edges around them, or two where it has more than two layers (or steps: APPNP's ``K``).
    Every hop makes the surrounding eight times larger: a third would cost more than it can say.
    """
    layers = [part for part in module.modules() if hasattr(part, "propagate") and hasattr(part, "message")]
    steps = max([len(layers), *(k for k in (getattr(part, "K", 0) for part in layers) if isinstance(k, int))])
    return AttachedModule(
        copy.deepcopy(module), in_channels=in_channels, out_channels=out_channels, num_hops=2 if steps > 2 else 1
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) else value


def seen_edges(graph: Graph, device: torch.device) -> SeenEdges:
    """The graph as tensors."""
    weights = None if graph.weights is None else as_tensor(graph.weights).to(device)
    return SeenEdges(as_tensor(graph.indptr).to(device), as_tensor(graph.indices).to(device), weights)


def _build(settings: HeadSettings, data: HeadData, module: nn.Module | None) -> nn.Module:
    view, seen = data.view, data.view.seen
    width = view.source.num_columns
    auto = 0.3 if view.source.scaling.rows else 0.0
    input_dropout = auto if settings.input_dropout == "auto" else settings.input_dropout
    if settings.kind == "module":
        assert module is not None
        return attached(module, width, data.num_classes)
    common = {"dropout": settings.dropout, "input_dropout": input_dropout}
    hidden = settings.hidden_channels
    if settings.kind == "mlp":
        columns = view.coordinates(torch.zeros(1, dtype=torch.int64)).shape[1] if settings.coordinates else 0
        hidden = hidden if isinstance(hidden, int) else hidden[-1]  # type: ignore[index]
        return FeatureMLP(width, data.num_classes, coordinate_channels=columns, hidden_channels=hidden, **common)  # type: ignore[arg-type]
    assert seen is not None
    common["own_channels"] = seen.own_channels
    r, k = seen.rows.shape[1], seen.coordinates.shape[1]
    if settings.kind == "gcn":
        widths = [hidden] * (settings.num_layers or 1) if isinstance(hidden, int) else list(hidden or ())
        return SpectralGCN(r + k, data.num_classes, coordinate_channels=k, hidden_channels=widths, **common)  # type: ignore[arg-type]
    common |= {"num_tokens": settings.num_tokens + 1, "num_layers": settings.num_layers}
    common["hidden_channels"] = hidden if isinstance(hidden, int) else hidden[-1]  # type: ignore[index]
    if settings.kind == "phormer":
        common["num_heads"] = settings.num_heads
    return _CLASSES[settings.kind](r + k, data.num_classes, **common)


def _kernel_width(view: NodeView, k: int) -> float:
    """Typical distance from a node's nearest to its k-th neighbour among the seen nodes."""
    rows = torch.linspace(0, len(view) - 1, min(len(view), 2000), device=view.source.device).long()
    _, distances = view.neighbors(rows, k)
    return float((distances[:, -1] - distances[:, 0]).median()) if distances.numel() else 1.0


def _blocks(view: NodeView, sample: int | None) -> Iterator[tuple[Tensor, Tensor, Any]]:
    """Seen nodes as sets for :meth:`SpectralGCN.layer_summaries`; evenly spaced ones where a sample will do."""
    device = view.source.device
    count = len(view) if sample is None else min(sample, len(view))
    rows = torch.linspace(0, len(view) - 1, count, device=device, dtype=torch.float64).long()
    own = view.seen is not None and view.seen.own_channels
    for part in rows.split(_BLOCK):
        features = view.features(part) if own else None
        yield view.table(part).unsqueeze(0), view.coordinates(part).unsqueeze(0), features


def _contrast(
    settings: HeadSettings, module: nn.Module, data: HeadData, device: torch.device
) -> Callable[[torch.Generator], Tensor] | None:
    """InfoNCE between the hidden layers of nodes that share an edge: neighbours tend to be of one class."""
    if not settings.contrast or data.graph is None or data.graph.num_edges == 0:
        return None
    assert isinstance(module, FeatureMLP)
    view = data.view
    sampler = EdgeSampler(data.graph, device, self_loops=False, exclude=data.hidden)

    def hidden(rows: Tensor) -> Tensor:
        beside = view.coordinates(rows) if module.coordinate_channels else None
        return module.hidden(view.features(rows), beside)

    def loss(generator: torch.Generator) -> Tensor:
        ends = torch.cat(sampler.sample(world().share(_CONTRAST_EDGES), generator))
        source, target = hidden(ends).chunk(2)
        return settings.contrast * joint_info_nce(source, target, _TEMPERATURE)

    return loss
