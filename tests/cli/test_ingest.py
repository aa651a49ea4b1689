"""``gsparc ingest``, and the commands that take a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc import ModelFolderError, load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of 120 nodes in two groups."""
    path, rng = tmp_path_factory.mktemp("store"), np.random.default_rng(0)
    kind = np.arange(120) % 2
    vectors = rng.normal(size=(120, 4)) + 2 * np.eye(4)[kind]
    pq.write_table(
        pa.table({"id": np.arange(120) + 5, "v": vectors.tolist(), "label": kind.tolist()}), path / "n.parquet"
    )
    source = np.repeat(np.arange(120), 3)
    target = (source + 2 * rng.integers(1, 9, size=360)) % 120
    pq.write_table(pa.table({"source": source + 5, "target": target + 5}), path / "e.parquet")
    return path


@pytest.fixture(scope="module")
def store(folder: Path, inside) -> Path:
    done = inside(
        "ingest", "--nodes", folder / "n.parquet", "--edges", folder / "e.parquet", "-o", folder / "store", "-q"
    )
    assert done.returncode == 0, done.stderr
    assert "120 nodes" in done.stdout
    return folder / "store"


def test_info_describes_and_verifies(store: Path, inside) -> None:
    done = inside("info", store, "--verify", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["kind"], said["nodes"], said["verified"], said["classes"]) == ("store", 120, True, [0, 1])


def test_embed_writes_coordinates_of_all_nodes(store: Path, folder: Path, inside) -> None:
    done = inside(
        "embed", store, "-o", folder / "c.npy", "--components", 3, "--max-steps", 5, "--model-out", folder / "map"
    )
    assert done.returncode == 0, done.stderr
    coordinates = np.load(folder / "c.npy")
    assert coordinates.shape == (120, 3)
    done = inside("embed", store, "--model", folder / "map", "-o", folder / "c.parquet")
    assert done.returncode == 0, done.stderr
    table = pq.read_table(folder / "c.parquet")
    assert table["id"].to_pylist() == list(range(5, 125))
    np.testing.assert_allclose(table["c1"].to_numpy(), coordinates[:, 0], atol=1e-6)


def test_fit_and_predict(store: Path, folder: Path, inside, monkeypatch: pytest.MonkeyPatch) -> None:
    from gsparc.storage import fitting

    monkeypatch.setattr(fitting, "SMALL", 100)
    done = inside("fit", "--store", store, "-o", folder / "model", "--max-steps", 40, "--json")
    assert done.returncode == 0, done.stderr
    assert "It has no graph network" in " ".join(done.stderr.split())
    assert json.loads(done.stdout)["tasks"] == ["classes", "links"]
    done = inside("predict", folder / "model", folder / "n.parquet", "-o", folder / "out.parquet", "-q")
    assert done.returncode == 0, done.stderr
    out = pq.read_table(folder / "out.parquet")
    assert np.mean(np.array(out["class"].to_pylist()) == np.arange(120) % 2) > 0.85
    done = inside("info", folder / "model")
    assert done.returncode == 0, done.stderr
    assert "StoreModel" in done.stdout
    assert "It has no graph network" in " ".join(done.stdout.split())
    done = inside("export", folder / "model", "--onnx", "-o", folder / "model.onnx")
    assert done.returncode == 1
    assert "holds a model of a large store, which is not written as ONNX" in done.stderr
    with pytest.raises(ModelFolderError, match="holds a model of tables"):
        load_model(folder / "model")
    done = inside("predict", folder / "model", folder / "n.parquet", "-o", folder / "o.parquet", "--links", -1, "-q")
    assert done.returncode == 2
    done = inside("fit", "--store", store, "-o", folder / "other", "--backbone", "phormer", "-q")
    assert done.returncode == 1
    assert "up to 200,000 nodes" in done.stderr


def test_an_interrupted_fit_goes_on(store: Path, tmp_path: Path, inside, monkeypatch: pytest.MonkeyPatch) -> None:
    from gsparc.storage import fitting

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "SMALL", 100)
    asked = ("fit", "--store", store, "-o", tmp_path / "model", "--max-steps", 20)
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_head", stopped)  # after the map
        done = inside(*asked)
    assert done.returncode == 130
    assert f"kept in {tmp_path / '.model.fit'}. Go on with: gsparc" in done.stderr
    assert (tmp_path / ".model.fit" / "map").is_dir()
    done = inside(*asked, "--resume")
    assert done.returncode == 0, done.stderr
    assert "resuming from" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_half_written_store_is_refused_by_every_command(tmp_path: Path, inside) -> None:
    from gsparc import Graph, StoreError

    half = tmp_path / "half"
    (half / "ingest").mkdir(parents=True)
    for asked in (["info", half], ["fit", "--store", half, "-o", tmp_path / "model"], ["embed", half, "-o", "c.npy"]):
        done = inside(*asked)
        assert done.returncode == 1
        assert "half written" in done.stderr
        assert "Repeat the gsparc ingest" in done.stderr
    with pytest.raises(StoreError, match="half written"):
        Graph.open(half)
    assert not (tmp_path / "model").exists()


def test_a_store_that_has_changed_is_refused(store: Path, tmp_path: Path, inside) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(store, changed)
    data = bytearray((changed / "indices.npy").read_bytes())
    data[-2] ^= 1
    (changed / "indices.npy").write_bytes(data)
    for asked in (["fit", "--store", changed, "-o", tmp_path / "model"], ["embed", changed, "-o", tmp_path / "c.npy"]):
        done = inside(*asked, "--max-steps", 2)
        assert done.returncode == 1
        assert "the contents of indices.npy are not those that were written" in done.stderr
    done = inside("embed", store, "-o", store / "indices.npy")
    assert done.returncode == 1
    assert "would be written over" in done.stderr
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["fit", "--store", "{store}", "--nodes", "{folder}/n.parquet", "-o", "{folder}/m"],
            "holds nodes and edges already",
        ),
        (["fit", "--store", "{folder}/nothing", "-o", "{folder}/m"], "there is no store"),
        (
            [
                "ingest",
                "--nodes",
                "{folder}/n.parquet",
                "--edges",
                "{folder}/e.parquet",
                "-o",
                "{folder}/x",
                "--memory",
                "1MB",
            ],
            "512MB",
        ),
        (
            [
                "ingest",
                "--nodes",
                "{folder}/n.parquet",
                "--edges",
                "{folder}/e.parquet",
                "-o",
                "{folder}/x",
                "--dtype",
                "int8",
            ],
            "unknown dtype",
        ),
    ],
)
def test_wrong_usage(store: Path, folder: Path, inside, arguments: list[str], words: str) -> None:
    done = inside(*[argument.format(store=store, folder=folder) for argument in arguments])
    assert done.returncode in (1, 2)
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_a_small_store_is_reported_as_tables_are(store: Path, folder: Path, inside) -> None:
    options = ["--backbone", "mlp", "--max-steps", 5, "-o", folder / "small"]
    done = inside("fit", "--store", store, *options)
    assert done.returncode == 0, done.stderr
    assert "rows that pretended to be new" in done.stdout
    assert "Does the graph help on this data?" in done.stdout
    assert f"report: {folder / 'small' / 'report.html'}" in done.stdout.replace("\n", " ").replace("  ", " ")
    assert (folder / "small" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
