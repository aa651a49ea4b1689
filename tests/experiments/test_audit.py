"""The leak test finds leaks of every kind, and passes pipelines that have none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc.datasets import load_npz, make_blocks
from gsparc.estimators import SpectralMap
from gsparc.exceptions import InputError
from gsparc.experiments import audit, provenance
from gsparc.experiments.audit import CHANGES, Nodes, Part, leak_audit, pipelines, run_audit
from gsparc.splits import ColdStartSplit

DATA = make_blocks(120, 500, 5, branching=(3,), random_state=0)
SPARSE = replace(DATA, X=sp.csr_array(np.maximum(np.asarray(DATA.X), 0)))


class Model:
    """Saves the numbers that it is given."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays = arrays

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for number, array in enumerate(self.arrays):
            (folder / f"{number}.bin").write_bytes(np.ascontiguousarray(array).tobytes())


def fit(part: Part) -> Model:
    X = part.X.toarray() if sp.issparse(part.X) else part.X
    return Model(X, part.y, part.graph.indptr, part.graph.indices)


@pytest.mark.parametrize("data", [DATA, SPARSE], ids=["dense", "sparse"])
def test_a_pipeline_without_leaks_passes(data: Any) -> None:
    found = leak_audit(data, {"all of it": fit})
    assert [row["change"] for row in found["rows"]] == list(CHANGES)
    assert all(row["identical"] and row["files"] == 4 and row["differ"] == [] for row in found["rows"])
    assert len({row["sha256"] for row in found["rows"]}) == 1
    assert found["controls"][0]["noticed"]
    assert (found["cold_nodes"], found["seen_nodes"]) == (24, 90)


def test_a_model_of_the_library_passes() -> None:
    small = {"hidden_channels": (4,), "max_steps": 5, "batch_size": 32, "random_state": 0, "device": "cpu"}
    found = leak_audit(DATA, {"map": lambda part: SpectralMap(2, **small).fit(part.X, graph=part.graph)})
    assert all(row["identical"] for row in found["rows"])
    assert found["controls"][0]["noticed"]


def leaky_part(run: audit.Run, *, kind: str, original: Any) -> Part:
    """The same cut, but with something of the whole file in it."""
    part, whole = original(run), load_npz(run.file)
    if kind == "scaled over all nodes":
        return replace(part, X=part.X / np.abs(np.asarray(whole.X)).max(axis=0))
    if kind == "degrees of the whole graph":
        degrees = np.diff(whole.graph.indptr)[: len(part.y)]
        return replace(part, X=np.column_stack([part.X, degrees]))
    return replace(part, X=np.column_stack([part.X, np.asarray(whole.X)[: len(part.y), 0]]))


@pytest.mark.parametrize(
    ("kind", "caught"),
    [
        ("scaled over all nodes", {0, 3}),
        ("degrees of the whole graph", {1, 2, 3}),
        ("rows by position", {0, 1, 3}),
    ],
)
def test_leaks_are_caught(monkeypatch: pytest.MonkeyPatch, kind: str, caught: set[int]) -> None:
    original = audit.Run.part
    monkeypatch.setattr(audit.Run, "part", lambda run: leaky_part(run, kind=kind, original=original))
    found = leak_audit(DATA, {"leaky": fit})
    assert {i for i, row in enumerate(found["rows"]) if not row["identical"]} == caught
    assert all(row["differ"] == ["0.bin"] for row in found["rows"] if not row["identical"])


def test_several_processes_find_the_same() -> None:
    names = ("SpectralMap", "SparcClusterer")
    fits = {name: pipelines(smoke=True)[name] for name in names}
    alone, together = (leak_audit(DATA, fits, jobs=jobs) for jobs in (1, 2))
    assert together == alone
    assert [row["estimator"] for row in alone["rows"]] == [name for name in names for _ in CHANGES]
    assert all(row["identical"] for row in together["rows"])


def test_a_model_that_learns_nothing_fails_the_control() -> None:
    assert not leak_audit(DATA, {"constant": lambda part: Model(np.zeros(3))})["controls"][0]["noticed"]


def test_changes_touch_only_cold_nodes_and_do_touch_them() -> None:
    (fold,) = ColdStartSplit("dense", random_state=0).folds(DATA.X, DATA.y)
    nodes = Nodes(fold.seen, fold.val, fold.cold)
    data = replace(DATA, node_ids=np.arange(120).astype(str))
    for name, change in CHANGES.items():
        new = change(data, nodes, np.random.default_rng(0))
        where = np.flatnonzero(np.isin(np.asarray(new.node_ids), fold.seen.astype(str)))
        np.testing.assert_array_equal(np.asarray(new.X)[where], np.asarray(data.X)[fold.seen])
        assert new.graph[where].num_edges == data.graph[fold.seen].num_edges
        same_size = new.graph.num_nodes == 120
        assert not same_size or (new.X != data.X).any() or new.graph != data.graph, name


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a leak test on one pipeline that takes no time, of a source that is known."""
    monkeypatch.setattr(audit, "pipelines", lambda **_: {"all of it": fit})
    monkeypatch.setattr(audit, "source", lambda: "abc")
    return {"smoke": True, "show_progress": False}


def test_the_file_and_when_it_is_made_again(
    tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_audit(tmp_path, **quick)
    stored = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert stored == first
    assert (stored["experiment"], stored["dataset"], stored["source"]) == ("audit", "generated", "abc")
    monkeypatch.setattr(audit, "leak_audit", lambda *_, **__: pytest.fail("it was made again"))
    assert run_audit(tmp_path, resume=True, **quick) == first
    with pytest.raises(InputError, match=r"audit\.json holds the leak test of an earlier run\. Pass --resume"):
        run_audit(tmp_path, **quick)
    with pytest.raises(pytest.fail.Exception, match="made again"):
        run_audit(tmp_path, fresh=True, **quick)
    monkeypatch.setattr(audit, "source", lambda: "changed, though not committed")
    with pytest.raises(pytest.fail.Exception, match="made again"):
        run_audit(tmp_path, resume=True, **quick)


def test_other_data_is_tested_anew(tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run_audit(tmp_path, **quick)
    data = audit.Context("generated", "cpu", smoke=True).data
    X = np.array(data.X)
    X[0, 0] += 1
    monkeypatch.setattr(audit.Context, "data", replace(data, X=X))
    monkeypatch.setattr(audit, "leak_audit", lambda *_, **__: pytest.fail("it was made again"))
    with pytest.raises(pytest.fail.Exception, match="made again"):
        run_audit(tmp_path, resume=True, **quick)


def test_an_interrupted_run_goes_on_fit_by_fit(
    tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(part: Part) -> Model:
        if len(made) == 2 and not (tmp_path / "go").exists():
            raise KeyboardInterrupt
        made.append(part)
        return fit(part)

    monkeypatch.setattr(audit, "pipelines", lambda **_: {"all of it": counted})
    with pytest.raises(KeyboardInterrupt):
        run_audit(tmp_path, **quick)
    assert [file.name for file in tmp_path.iterdir()] == ["audit.unfinished"]
    kept = (tmp_path / "audit.unfinished").read_text(encoding="utf-8")
    (tmp_path / "audit.unfinished").write_text(re.sub(r'"seconds": [0-9.]+', '"seconds": 1000', kept), encoding="utf-8")
    (tmp_path / "go").touch()
    with pytest.raises(InputError, match=r"audit\.unfinished holds the leak test of an earlier run"):
        run_audit(tmp_path, **quick)
    with pytest.raises(InputError, match=r"was made with other jobs: 1, now 2\. Bytes depend on that"):
        run_audit(tmp_path, resume=True, jobs=2, **quick)
    went_on = run_audit(tmp_path, resume=True, **quick)
    assert len(made) == 6
    assert 1000 < went_on["seconds"] < 1900  # both pieces
    assert not (tmp_path / "audit.unfinished").exists()
    anew = run_audit(tmp_path, fresh=True, **quick)
    assert 0 < anew["seconds"] < 900
    assert len(made) == 12
    assert went_on["rows"] == anew["rows"]
    assert went_on["controls"] == anew["controls"]
    for damaged in (kept.replace("abc", "def"), kept[:-30], kept.replace('"change"', '"chance"')):
        (tmp_path / "audit.json").unlink()
        (tmp_path / "audit.unfinished").write_text(damaged, encoding="utf-8")
        made.clear()
        assert run_audit(tmp_path, resume=True, **quick)["rows"] == anew["rows"]
        assert len(made) == 6, damaged


def test_the_source_is_another_after_any_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "experiments/provenance.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "experiments" / "provenance.py"))
    first = provenance.source()
    assert provenance.source() == first
    (tmp_path / "a.py").write_text("x = 2\n", encoding="utf-8")
    second = provenance.source()
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, provenance.source()}) == 3


def test_fits_of_an_earlier_run_are_believed_and_compared(tmp_path: Path) -> None:
    whole: list[audit.Found] = []
    leak_audit(DATA, {"all of it": fit}, keep=lambda found: whole.append(dict(found)))
    assert [len(found) for found in whole] == [1, 2, 3, 4, 5, 6]
    changed = "cold nodes in another order"
    known = {**whole[-1], ("all of it", changed): {"0.bin": "another"}}
    found = leak_audit(DATA, {"all of it": lambda part: pytest.fail("it was fitted again")}, known=known)
    assert [row["change"] for row in found["rows"] if not row["identical"]] == [changed]


def test_every_estimator_is_under_test() -> None:
    from gsparc import estimators

    public = {name for name in estimators.__all__ if name.startswith(("Sparc", "Spectral"))}
    assert {name.partition(",")[0] for name in pipelines()} == public
