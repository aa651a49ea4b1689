"""Sphinx settings: pydata theme, numpydoc docstrings, a gallery made of examples/."""

from __future__ import annotations

import importlib.metadata
import re
import warnings
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

project = "gsparc"
author = "The gsparc developers"
copyright = "2026, The gsparc developers"
release = importlib.metadata.version("gsparc")
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
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
html_math_renderer = "mathml"
html_css_files = ["formulas.css"]

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


_ACCENTED = re.compile(r"(\\(?:bar|hat|tilde) ?(?:\w|\{\w\}))_")


def _formula(writer, node):
    # MathML, which browsers show without a script from elsewhere; a formula that docutils cannot read ends the build
    block = isinstance(node, nodes.math_block)
    try:
        # docutils takes an index behind an accented letter for a limit below it
        mathml = tex2mathml(_ACCENTED.sub(r"\1{}_", node.astext()), as_block=block)
    except MathError as error:
        raise ExtensionError(f"the formula {node.astext()!r} is not one that docutils can read: {error}") from error
    writer.body.append(f'<div class="formula">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def setup(app):
    """Register what is above."""
    app.connect("autodoc-skip-member", _skip_member)
    app.add_html_math_renderer("mathml", inline_renderers=(_formula, None), block_renderers=(_formula, None))
