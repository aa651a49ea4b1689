"""From tables to predictions and back: files, columns, preprocessing, and models of tables."""

from __future__ import annotations

BATCH_ROWS = 16_384  # new rows that are worked on at once: two engines with other numbers may round differently
