"""From tables to predictions and back: files, columns, preprocessing, and models of tables."""

from __future__ import annotations
