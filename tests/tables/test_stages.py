"""A fit in stages: what is done is not done again, and another fit's results are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc.exceptions import CheckpointError
from gsparc.tables.picture import Picture
from gsparc.tables.stages import Stages, identity


def run(folder: Path, calls: list[str], said: list[tuple[str, float]] | None = None, name: str = "one"):
    stages = Stages(folder, name, lambda sentence, done: None if said is None else said.append((sentence, done)))
    stages.plan({"a": 1.0, "b": 3.0})

    def compute() -> tuple[dict, dict]:
        calls.append("a")
        return {"rows": [{"mrr": 0.5}]}, {"x": np.arange(3)}

    return stages.arrays("a", "first", compute), stages


def test_a_finished_stage_is_read_back(tmp_path: Path) -> None:
    calls: list[str] = []
    said: list[tuple[str, float]] = []
    (_, before), _ = run(tmp_path / "state", calls)
    (figures, after), stages = run(tmp_path / "state", calls, said)
    stages.announce("b", "second")
    assert calls == ["a"]
    assert figures == {"rows": [{"mrr": 0.5}]}
    np.testing.assert_array_equal(before["x"], after["x"])
    assert said == [("first: done before", 0.0), ("second", 0.25)]


def test_a_damaged_stage_is_done_again(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls)
    file = tmp_path / "a" / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-2])
    (_, arrays), _ = run(tmp_path, calls)
    assert calls == ["a", "a"]
    assert arrays["x"].tolist() == [0, 1, 2]


def test_another_fit_is_refused(tmp_path: Path) -> None:
    run(tmp_path, [])
    with pytest.raises(CheckpointError, match=r"a fit of other data or with other settings.*leave out --resume"):
        run(tmp_path, [], name="two")
    (tmp_path / "fit.json").write_text("{")
    with pytest.raises(CheckpointError):
        run(tmp_path, [])


def test_nothing_is_kept_without_a_folder() -> None:
    calls: list[str] = []
    for _ in range(2):
        stages = Stages(None, "", lambda sentence, done: None)
        stages.arrays("a", "first", lambda: (calls.append("a") or {}, {}))  # type: ignore[func-returns-value]
    assert calls == ["a", "a"]


def test_a_fit_is_known_by_settings_and_data() -> None:
    X = sp.csr_array(np.eye(3, dtype=np.float32))
    names = np.array(["a", "b"])
    same = identity({"seed": 0}, X, names, np.zeros(0))
    assert same == identity({"seed": 0}, X.copy(), names.copy(), np.zeros(0))
    others = [
        identity({"seed": 1}, X, names, np.zeros(0)),
        identity({"seed": 0}, X * 2, names, np.zeros(0)),
        identity({"seed": 0}, X, np.array(["a", "c"]), np.zeros(0)),
        identity({"seed": 0}, X, np.array(["ab", ""]), np.zeros(0)),
    ]
    assert len({same, *others}) == 5


def test_alike_nodes_lie_together_on_the_picture() -> None:
    rng = np.random.default_rng(0)
    centre = np.eye(6)[np.repeat([0, 3], 100)]
    rows = (centre + 0.05 * rng.normal(size=centre.shape)).astype(np.float32)
    picture = Picture.draw(rows, seed=0)
    points = picture.place(rows)
    assert points.shape == (200, 2)
    assert points.dtype == np.float32
    within = np.linalg.norm(points[:100] - points[:100].mean(axis=0), axis=1).mean()
    between = np.linalg.norm(points[:100].mean(axis=0) - points[100:].mean(axis=0))
    assert between > 2 * within
    np.testing.assert_array_equal(points, Picture.draw(rows, seed=0).place(rows))
    np.testing.assert_allclose(picture.place(rows[7:8]), points[7:8], atol=1e-6)  # alone as among others
    with pytest.raises(ValueError, match="landmarks"):
        Picture(rows, points[:5])
