"""The estimators: scikit-learn's conventions around the networks."""

from gsparc.estimators._base import load_model
from gsparc.estimators.classifier import Evidence, SparcClassifier
from gsparc.estimators.clusterer import SparcClusterer
from gsparc.estimators.embedding import SpectralMap
from gsparc.estimators.links import SparcLinkPredictor

__all__ = ["Evidence", "SparcClassifier", "SparcClusterer", "SparcLinkPredictor", "SpectralMap", "load_model"]
