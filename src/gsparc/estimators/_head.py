"""The network on top of features and coordinates; the plain MLP baseline is the same without coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets

from gsparc._validation import unlabelled_mask
from gsparc.exceptions import LabelError
from gsparc.nn.mlp import FeatureMLP
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.classify import ClassTask, class_logits, fit_temperature
from gsparc.training.loop import LoopSettings, run_loop

__all__ = ["FeatureHead", "HeadSettings", "encode_labels"]


@dataclass(frozen=True)
class HeadSettings:
    """Network and optimiser of a head; ``input_dropout="auto"`` is 0.3 for sparse or count-like features."""

    hidden_channels: int = 256
    dropout: float = 0.5
    input_dropout: float | Literal["auto"] = "auto"
    batch_size: int = 1024
    max_steps: int = 600
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    patience: int = 8
    verbose: int = 0
    seed: int = 0


def encode_labels(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and the class number of each node: -1 for unlabelled."""
    check_classification_targets(labels)
    unlabelled = unlabelled_mask(labels)
    if unlabelled.all():
        raise LabelError("every label is -1, which means unlabelled. Pass at least two classes.")
    classes, numbers = np.unique(labels[~unlabelled], return_inverse=True)
    if len(classes) < 2:
        raise LabelError(
            f"the labels hold one class only ({classes[0]!r}), a classifier needs at least two. Only 1 class was given."
        )
    codes = np.full(len(labels), -1, np.int64)
    codes[~unlabelled] = numbers
    return classes, codes


def _hold_out_labelled(codes: np.ndarray, preferred: np.ndarray, seed: int) -> np.ndarray:
    """Rows that judge: labelled ones among ``preferred``, else a tenth of the labelled; each class keeps some."""
    labelled = np.flatnonzero(codes >= 0)
    held = preferred[codes[preferred] >= 0]
    if len(held) < 5:
        rng = np.random.default_rng(seed)
        count = len(labelled) // 10
        held = rng.choice(labelled, count, replace=False) if count >= 5 else np.zeros(0, np.int64)
    counts = np.bincount(codes[labelled])
    left = counts - np.bincount(codes[held], minlength=len(counts))
    return np.sort(held[left[codes[held]] > 0])


class FeatureHead:
    """A fitted :class:`FeatureMLP`, its scaling and its softmax temperature."""

    def __init__(
        self, module: FeatureMLP, scaling: Scaling, temperature: float, history: list[dict[str, float]]
    ) -> None:
        self.module, self.scaling, self.temperature, self.history = module, scaling, temperature, history

    @classmethod
    def fit(
        cls,
        X: Any,
        coordinates: np.ndarray | None,
        codes: np.ndarray,
        num_classes: int,
        held: np.ndarray,
        settings: HeadSettings,
        device: torch.device,
    ) -> FeatureHead:
        """Train on labelled rows (``codes >= 0``); ``held`` are the rows preferred for judging."""
        scaling = Scaling.fit(X)
        features = FeatureSource(X, scaling, device)
        judge = _hold_out_labelled(codes, held, settings.seed)
        is_judge = np.zeros(len(codes), bool)
        is_judge[judge] = True
        rows = np.flatnonzero((codes >= 0) & ~is_judge)
        auto = 0.3 if scaling.rows else 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            module = FeatureMLP(
                features.num_columns,
                num_classes,
                coordinate_channels=0 if coordinates is None else coordinates.shape[1],
                hidden_channels=settings.hidden_channels,
                dropout=settings.dropout,
                input_dropout=auto if settings.input_dropout == "auto" else settings.input_dropout,
            ).to(device)
        beside = None if coordinates is None else torch.from_numpy(coordinates).to(device)
        task = ClassTask(
            module, features, beside, rows, codes[rows], judge, codes[judge], batch_size=settings.batch_size
        )
        loop = LoopSettings(
            steps=settings.max_steps,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            eval_every=25,
            patience=settings.patience,
            tolerance=0.0,
            seed=settings.seed,
            description="classes",
            show_progress=bool(settings.verbose),
        )
        result = run_loop(task, loop, device)
        temperature = fit_temperature(task.held_logits(), task.held_labels) if len(judge) >= 20 else 1.0
        return cls(module, scaling, temperature, result.history)

    def probabilities(self, X: Any, coordinates: np.ndarray | None, device: torch.device) -> np.ndarray:
        """Class probabilities of rows, in blocks of bounded memory."""
        self.module.to(device)
        parts = []
        for start in range(0, X.shape[0], 65_536):
            features = FeatureSource(X[start : start + 65_536], self.scaling, device)
            beside = None if coordinates is None else torch.from_numpy(coordinates[start : start + 65_536]).to(device)
            index = torch.arange(features.num_rows, device=device)
            logits = class_logits(self.module, features, index, beside) / self.temperature
            parts.append(torch.softmax(logits.double(), dim=1).cpu().numpy())
        return np.concatenate(parts)

    def config(self) -> dict[str, Any]:
        """What is not an array."""
        return {"module": self.module.config(), "temperature": self.temperature, "history": self.history}

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights."""
        return {name: value.cpu().numpy() for name, value in self.module.state_dict().items()}

    @classmethod
    def from_state(cls, config: dict[str, Any], arrays: dict[str, np.ndarray], scaling: Scaling) -> FeatureHead:
        """What :meth:`config` and :meth:`arrays` described."""
        module = FeatureMLP(**config["module"])
        module.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
        module.eval()
        return cls(module, scaling, float(config["temperature"]), config["history"])
