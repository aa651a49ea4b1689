"""Experiments: each returns a record that is written as JSON and from which pages and tables are made."""

from gsparc.experiments.comparison import compare_classifiers, compare_links
from gsparc.experiments.demo import DemoResult, run_demo

__all__ = ["DemoResult", "compare_classifiers", "compare_links", "run_demo"]
