"""The clustering table and the sweeps of views: figures by hand, every method in a smoke run."""

from __future__ import annotations

import numpy as np
import pytest

from gsparc.experiments import clustering, laplacians
from gsparc.experiments.engine import Cell, Context, Experiment, plan

SMOKE = Context("generated", device="cpu", smoke=True)
CONNECTED_ONLY = {"SSGC", "spectral clustering"}


def test_agreement_by_hand() -> None:
    seen = np.array([0, 0, 0, 1, 1, -1]), np.array([7, 7, 3, 3, 3, 7])
    found = clustering.agreement(seen)
    assert found["connected"] == pytest.approx(80)  # of five nodes with a class one is wrong
    assert 0 < found["connected_ari"] < 100
    assert set(found) == {"connected", "connected_nmi", "connected_ari"}
    # by themselves two of the three would be right (3 -> 0, 7 -> 1); by the matching of the seen one is
    both = clustering.agreement(seen, (np.array([0, 1, 1, -1]), np.array([3, 3, 7, 3])))
    assert both["cold"] == pytest.approx(100 / 3)
    assert {name: both[name] for name in found} == found
    alone = clustering.agreement(seen, (np.array([0, 0]), np.array([3, 3])))
    assert (alone["cold"], alone["cold_nmi"]) == (0, 100)


@pytest.mark.parametrize("method", [method.label for method in clustering.TABLE.methods])
@pytest.mark.parametrize("setting", ["paper", "dense"])
def test_every_method_runs(method: str, setting: str) -> None:
    found = clustering.run(Cell("generated", setting, method, 0), SMOKE)
    wanted = {metric.name for metric in clustering.TABLE.metrics}
    if method in CONNECTED_ONLY:
        wanted = {name for name in wanted if not name.startswith("cold")}
    assert set(found) == wanted | {"seconds"}
    assert all(-100 <= found[name] <= 100 for name in wanted)


def test_the_seed_decides() -> None:
    first, again, other = (clustering.run(Cell("generated", "dense", "SPARC", seed), SMOKE) for seed in (0, 0, 1))
    figures = [{name: run[name] for name in run if name != "seconds"} for run in (first, again, other)]
    assert figures[0] == figures[1]
    assert figures[0] != figures[2]


@pytest.mark.parametrize("setting", ["alpha=0", "alpha=1", "k=50"])
def test_a_view_runs(setting: str) -> None:
    assert setting in laplacians.TABLE.settings("cora")
    found = laplacians.run(Cell("generated", setting, "SPARC", 0), SMOKE)
    assert {metric.name for metric in laplacians.TABLE.metrics} <= set(found)


def test_views_by_hand() -> None:
    assert laplacians.view_of("alpha=0.75") == {"alpha": 0.75, "k_power": 1}
    assert laplacians.view_of("k=10") == {"alpha": 0.0, "k_power": 10}


@pytest.mark.parametrize("table", [clustering.TABLE, laplacians.TABLE], ids=lambda table: table.name)
def test_the_plan(table: Experiment) -> None:
    cells = plan(table, seeds=range(2))
    assert (
        len(cells)
        == len({cell.key for cell in cells})
        == 2 * sum(len(table.settings(name)) * len(table.methods) for name in table.datasets)
    )
    assert table.datasets == ("citeseer", "pubmed", "cora")
