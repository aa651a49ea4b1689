"""Plots and the self-contained HTML page, both made from a result file."""

from gsparc.report.page import render_page, write_page

__all__ = ["render_page", "write_page"]
