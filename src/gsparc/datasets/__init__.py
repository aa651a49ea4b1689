"""Data sets: public ones by name, the user's own files, and generated graphs whose truth is known."""

from gsparc.datasets.base import Dataset, DatasetInfo
from gsparc.datasets.generators.blocks import make_blocks
from gsparc.datasets.generators.communities import communities_of_blobs
from gsparc.datasets.generators.manifolds import (
    make_circle,
    make_swiss_roll,
    make_torus,
    true_eigenfunctions,
    true_eigenvalues,
)
from gsparc.datasets.npz import load_npz, save_npz
from gsparc.datasets.registry import data_folders, list_datasets, load_dataset
from gsparc.datasets.tables import load_tables

__all__ = [
    "Dataset",
    "DatasetInfo",
    "communities_of_blobs",
    "data_folders",
    "list_datasets",
    "load_dataset",
    "load_npz",
    "load_tables",
    "make_blocks",
    "make_circle",
    "make_swiss_roll",
    "make_torus",
    "save_npz",
    "true_eigenfunctions",
    "true_eigenvalues",
]
