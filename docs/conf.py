"""Sphinx settings: pydata theme, numpydoc docstrings, a gallery made of examples/."""

from __future__ import annotations

import importlib.metadata
import warnings
from pathlib import Path

project = "gsparc"
author = "The gsparc developers"
copyright = "2026, The gsparc developers"
release = importlib.metadata.version("gsparc")
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "auto_examples/*.ipynb", "**/GALLERY_HEADER.rst"]
source_suffix = {".rst": "restructuredtext"}

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's parameter lists already say it
numpydoc_show_class_members = False  # the class template lists members, inherited ones left out
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"[\\/]plot_",
    "abort_on_example_error": True,
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "plot_gallery": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "gsparc"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
html_show_sourcelink = False

# `make results-page` writes it from results/*.json; without those files the guide says so instead.
_STATIC = Path(__file__).parent / "_static"
html_static_path = ["_static"] if _STATIC.is_dir() else []
if (_STATIC / "results.html").is_file():
    tags.add("results_page")  # noqa: F821  Sphinx puts `tags` here

# matplotlib has no screen while the gallery runs; that is not news.
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")


def _skip_member(app, what, name, obj, skip, options):
    # scikit-learn writes these methods, and their docstrings refer to its own glossary
    return skip or (name.startswith("set_") and name.endswith("_request"))


def setup(app):
    """Register the filter above."""
    app.connect("autodoc-skip-member", _skip_member)
