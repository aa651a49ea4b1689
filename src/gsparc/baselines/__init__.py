"""Baselines, fitted on the same nodes and tuned on the same kind of held-out nodes as our own models."""

from gsparc.baselines.cluster_gcn import ClusterGCNBaseline
from gsparc.baselines.cold_brew import ColdBrewBaseline
from gsparc.baselines.feature_cosine import FeatureCosineLinks, WeighedCosineLinks
from gsparc.baselines.feature_knn import FeatureKNNBaseline
from gsparc.baselines.feature_transformer import FeatureTransformerBaseline
from gsparc.baselines.gcn import GCNBaseline
from gsparc.baselines.glnn import GLNNBaseline
from gsparc.baselines.graph_mamba import GraphMambaBaseline
from gsparc.baselines.graph_mlp import GraphMLPBaseline
from gsparc.baselines.graph_sage import GraphSAGEBaseline
from gsparc.baselines.kmeans import KMeansBaseline
from gsparc.baselines.llp import LLPBaseline
from gsparc.baselines.llp_mlp import LLPMLPBaseline
from gsparc.baselines.logistic_regression import LogisticRegressionBaseline
from gsparc.baselines.mlp import MLPBaseline
from gsparc.baselines.nagphormer import NAGphormerBaseline
from gsparc.baselines.rgae import RGAEBaseline
from gsparc.baselines.sage_links import SAGELinksBaseline
from gsparc.baselines.sim_mlp import SimMLPBaseline
from gsparc.baselines.spectral_gcn import SpectralGCNBaseline
from gsparc.baselines.ssgc import SSGCBaseline

__all__ = [
    "ClusterGCNBaseline",
    "ColdBrewBaseline",
    "FeatureCosineLinks",
    "FeatureKNNBaseline",
    "FeatureTransformerBaseline",
    "GCNBaseline",
    "GLNNBaseline",
    "GraphMLPBaseline",
    "GraphMambaBaseline",
    "GraphSAGEBaseline",
    "KMeansBaseline",
    "LLPBaseline",
    "LLPMLPBaseline",
    "LogisticRegressionBaseline",
    "MLPBaseline",
    "NAGphormerBaseline",
    "RGAEBaseline",
    "SAGELinksBaseline",
    "SSGCBaseline",
    "SimMLPBaseline",
    "SpectralGCNBaseline",
    "WeighedCosineLinks",
]
