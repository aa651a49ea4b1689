"""What results are measured by: free functions on numpy arrays."""

from gsparc.metrics.embedding import grassmann_distance, residuals, ritz_error
from gsparc.metrics.labels import (
    PairedDifference,
    accuracy,
    ari,
    expected_calibration_error,
    hungarian_accuracy,
    macro_f1,
    nmi,
    paired_difference,
    share_interval,
)
from gsparc.metrics.links import (
    LinkRanks,
    global_hits,
    link_metrics,
    neighborhood_prediction,
    rank_links,
    truth_matrix,
)

__all__ = [
    "LinkRanks",
    "PairedDifference",
    "accuracy",
    "ari",
    "expected_calibration_error",
    "global_hits",
    "grassmann_distance",
    "hungarian_accuracy",
    "link_metrics",
    "macro_f1",
    "neighborhood_prediction",
    "nmi",
    "paired_difference",
    "rank_links",
    "residuals",
    "ritz_error",
    "share_interval",
    "truth_matrix",
]
