"""scikit-learn's own checks, for every estimator, with no expected failure."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from gsparc import SparcClassifier, SparcLinkPredictor, SpectralMap

SMALL_MAP = SpectralMap(4, hidden_channels=(16,), max_steps=60, batch_size=256, random_state=0, device="cpu")


@parametrize_with_checks(
    [
        SMALL_MAP,
        SpectralMap(4, objective="rayleigh", hidden_channels=(16,), max_steps=30, batch_size=256, device="cpu"),
        SparcClassifier("mlp", spectral_map=SMALL_MAP, hidden_channels=32, max_steps=150, device="cpu"),
        SparcLinkPredictor(
            8, n_maps=1, hidden_channels=(16,), spectral_steps=10, refine_steps=10, batch_size=64, device="cpu"
        ),
    ]
)
def test_scikit_learn_check(estimator, check) -> None:
    check(estimator)
