"""The command line: ``gsparc COMMAND``. Importing it loads neither torch nor scikit-learn."""

from gsparc.cli.app import app, main

__all__ = ["app", "main"]
