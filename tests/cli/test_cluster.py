"""``gsparc cluster``: tables of clusters, new rows from a saved model, wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def saved(small: Path, inside, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, Path]:
    """A model fitted on the small graph, what the command said, and the table it wrote."""
    folder = tmp_path_factory.mktemp("cluster")
    done = inside(
        "cluster", small, "-n", 3, "-o", folder / "all.parquet", "--new", small.parent / "new.npz",
        "--model-out", folder / "model", "--max-steps", 60, "--components", 4, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "model", json.loads(done.stdout), folder / "all.parquet"


def test_clusters_of_known_and_new_nodes(saved: tuple[Path, dict, Path]) -> None:
    _, document, table = saved
    rows = pq.read_table(table)
    assert rows.column_names == ["id", "new", "cluster", "membership"]
    assert (document["rows"], document["new_rows"], document["n_clusters"]) == (155, 5, 3)
    assert sum(document["sizes"]) == 155
    clusters, share = np.array(rows["cluster"]), np.array(rows["membership"])
    assert set(clusters) <= {0, 1, 2}
    assert ((share > 1 / 3) & (share <= 1)).all()
    # three groups of fifty that features and edges agree on
    assert max(np.bincount(clusters[:50]).max(), np.bincount(clusters[50:100]).max()) > 40
    assert rows["id"].to_pylist()[-5:] == [f"new{i}" for i in range(5)]


def test_a_saved_model_clusters_new_rows(saved, small: Path, inside, tmp_path: Path) -> None:
    model, _, table = saved
    new = small.parent / "new.npz"
    done = inside("cluster", "--model", model, "--new", new, "-o", tmp_path / "new.csv")
    assert done.returncode == 0, done.stderr
    assert "5 nodes (5 of them new) in 3 clusters" in done.stdout
    lines = (tmp_path / "new.csv").read_text().splitlines()
    expected = pq.read_table(table)["cluster"].to_pylist()[-5:]
    assert [int(line.split(",")[2]) for line in lines[1:]] == expected


def test_info_knows_the_model(saved, inside) -> None:
    done = inside("info", saved[0])
    assert done.returncode == 0, done.stderr
    assert "SparcClusterer" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (["--n-clusters", "3"], "DATA is missing", 2),
        (["DATA", "--n-clusters", "0"], "greater than or equal to 1", 2),
        (["DATA", "--model", "MODEL", "--n-clusters", "3"], "a saved model has its clusters", 2),
        (["DATA", "--n-clusters", "500", "--max-steps", "1"], "expected at least 500", 1),
        (["DATA", "--alpha", "2"], "less than or equal to 1", 2),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, status: int, saved, small: Path, inside, tmp_path: Path) -> None:
    named = {"DATA": small, "MODEL": saved[0]}
    done = inside("cluster", *(named.get(part, part) for part in arguments), "-o", tmp_path / "out.parquet")
    assert done.returncode == status
    assert words in " ".join(done.stderr.replace("│", " ").split())
