"""Baselines, fitted on the same nodes and tuned on the same kind of held-out nodes as our own models."""

from gsparc.baselines.feature_cosine import FeatureCosineLinks
from gsparc.baselines.glnn import GLNNBaseline
from gsparc.baselines.graph_mamba import GraphMambaBaseline
from gsparc.baselines.mlp import MLPBaseline
from gsparc.baselines.nagphormer import NAGphormerBaseline
from gsparc.baselines.spectral_gcn import SpectralGCNBaseline

__all__ = [
    "FeatureCosineLinks",
    "GLNNBaseline",
    "GraphMambaBaseline",
    "MLPBaseline",
    "NAGphormerBaseline",
    "SpectralGCNBaseline",
]
