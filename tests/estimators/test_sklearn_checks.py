"""scikit-learn's own checks, for every estimator, with no expected failure."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from gsparc import SparcClassifier, SparcClusterer, SparcLinkPredictor, SpectralMap

SMALL_MAP = SpectralMap(4, hidden_channels=(16,), max_steps=60, batch_size=256, random_state=0, device="cpu")

QUICK: dict[str, Any] = {
    "spectral_map": SpectralMap(2, hidden_channels=(8,), max_steps=10, batch_size=64),
    "max_steps": 30,
    "batch_size": 64,
    "learning_rate": 1e-2,
    "device": "cpu",
}


@parametrize_with_checks(
    [
        SMALL_MAP,
        SpectralMap(4, objective="rayleigh", hidden_channels=(16,), max_steps=30, batch_size=256, device="cpu"),
        SparcClassifier("mlp", hidden_channels=32, **QUICK | {"max_steps": 60}),
        SparcClassifier("gcn", hidden_channels=16, **QUICK),
        SparcClassifier("phormer", hidden_channels=8, num_heads=2, num_tokens=3, **QUICK),
        SparcClassifier("auto", heads=["mlp", "gcn", "vote"], hidden_channels=16, **QUICK),
        SparcClusterer(4, n_components=4, max_steps=20, n_init=2, device="cpu"),
        SparcLinkPredictor(
            8, n_maps=1, hidden_channels=(16,), spectral_steps=10, refine_steps=10, batch_size=64, device="cpu"
        ),
    ]
)
def test_scikit_learn_check(estimator, check) -> None:
    check(estimator)
