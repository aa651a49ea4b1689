"""Baselines, fitted on the same nodes and tuned on the same kind of held-out nodes as our own models."""

from gsparc.baselines.feature_cosine import FeatureCosineLinks
from gsparc.baselines.mlp import MLPBaseline

__all__ = ["FeatureCosineLinks", "MLPBaseline"]
