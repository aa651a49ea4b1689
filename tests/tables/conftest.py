"""A node table and an edge table in which words, numbers, categories and edges agree about three classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest


class Tables(NamedTuple):
    """Known rows with the edges among them, and new rows with their edges to known ones."""

    nodes: pa.Table
    edges: pa.Table
    new: pa.Table
    new_edges: pa.Table


def make_tables(count: int = 240, new: int = 40, seed: int = 0) -> Tables:
    rng = np.random.default_rng(seed)
    total = count + new
    kind = rng.integers(3, size=total)
    own, any_word = rng.integers(8, size=(total, 8)) + 8 * kind[:, None], rng.integers(24, size=(total, 8))
    words = np.where(rng.random((total, 8)) < 0.5, own, any_word)
    arch = np.array(["x86", "arm", "any"])[np.where(rng.random(total) < 0.6, kind, rng.integers(3, size=total))]
    section = np.array(["admin", "libs", "net"])[kind].astype(object)
    section[:count:40] = None
    table = pa.table(
        {
            "package": [f"p{i}" for i in range(total)],
            "section": section.tolist(),
            "description": [" ".join(f"w{w}" for w in row) for row in words],
            "installed_size": kind + rng.normal(size=total),
            "arch": arch.tolist(),
        }
    )
    source = rng.integers(total, size=4 * total)
    by_kind = [np.flatnonzero(kind == k) for k in range(3)]
    like = np.array([rng.choice(by_kind[kind[s]]) for s in source])
    target = np.where(rng.random(len(source)) < 0.85, like, rng.integers(total, size=len(source)))
    known = (source < count) & (target < count)
    edges = pa.table({"source": [f"p{i}" for i in source], "target": [f"p{i}" for i in target]})
    return Tables(
        table.slice(0, count), edges.filter(pa.array(known)), table.slice(count), edges.filter(pa.array(~known))
    )


@pytest.fixture(scope="session")
def tables() -> Tables:
    """240 known rows and 40 new ones."""
    return make_tables()
