"""Every error that gsparc raises on purpose, as one tree.

::

    GsparcError
    ├── InputError (ValueError)            something passed in cannot be used
    │   ├── FeatureError                   X: NaN, infinite, not numeric, wrong width
    │   ├── GraphError                     edges: out of range, negative, none at all
    │   │   └── GraphShapeError            graph and X disagree about the number of nodes
    │   ├── LabelError                     y: one class only, wrong length, all unlabelled
    │   ├── BackboneError                  a user's own network is missing, or does not fit a saved model
    │   └── UnknownNameError               a data set, Laplacian, objective ... that does not exist
    ├── MissingExtraError (ImportError)    an optional package is not installed
    ├── DataNotFoundError (FileNotFoundError)  a data set's files are not on this machine
    ├── ModelFolderError (ValueError)      a saved model cannot be read
    │   ├── DamagedModelError              a file is missing, truncated or changed
    │   └── NewerFormatError               written by a later version of gsparc
    ├── StoreError (ValueError)            a store on disk is half written, damaged or of another version
    ├── OutputError (OSError)              a result cannot be written where it was asked to be
    ├── CheckpointError (ValueError)       a checkpoint belongs to another fit
    └── ProcessesError (RuntimeError)      processes that train together cannot meet, or one was lost

Each class also inherits the built-in exception that callers already catch, so
``except ValueError`` keeps working.
"""

from __future__ import annotations

__all__ = [
    "BackboneError",
    "CheckpointError",
    "DamagedModelError",
    "DataNotFoundError",
    "FeatureError",
    "GraphError",
    "GraphShapeError",
    "GsparcError",
    "InputError",
    "LabelError",
    "MissingExtraError",
    "ModelFolderError",
    "NewerFormatError",
    "OutputError",
    "ProcessesError",
    "UnknownNameError",
]


class GsparcError(Exception):
    """Root of all errors raised by gsparc."""


class InputError(GsparcError, ValueError):
    """Something passed in cannot be used."""


class FeatureError(InputError):
    """The feature matrix cannot be used."""


class GraphError(InputError):
    """The edges or the graph cannot be used."""


class GraphShapeError(GraphError):
    """The graph and the feature matrix disagree about the number of nodes."""


class LabelError(InputError):
    """The labels cannot be used."""


class BackboneError(InputError):
    """A user's own network is missing, or does not fit a saved model."""


class UnknownNameError(InputError):
    """A name that gsparc does not know."""


class MissingExtraError(GsparcError, ImportError):
    """An optional package is not installed."""


class DataNotFoundError(GsparcError, FileNotFoundError):
    """The files of a data set are not on this machine."""


class ModelFolderError(GsparcError, ValueError):
    """A saved model cannot be read."""


class DamagedModelError(ModelFolderError):
    """A file of a saved model is missing, truncated or changed."""


class NewerFormatError(ModelFolderError):
    """A saved model was written by a later version of gsparc."""


class StoreError(GsparcError, ValueError):
    """A store on disk is half written, damaged or of another version."""


class OutputError(GsparcError, OSError):
    """A result cannot be written where it was asked to be."""


class CheckpointError(GsparcError, ValueError):
    """A checkpoint belongs to another fit."""


class ProcessesError(GsparcError, RuntimeError):
    """Processes that train together cannot meet, or one of them was lost."""
