"""Model folders: replaced as a whole, believed only when every check holds."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gsparc import SparcClassifier, SparcLinkPredictor, SpectralMap, load_model, model_store
from gsparc._mapped import is_mapped
from gsparc.datasets import make_blocks
from gsparc.exceptions import DamagedModelError, InputError, ModelFolderError, NewerFormatError, OutputError
from gsparc.graph import Graph
from gsparc.model_store import FORMAT_VERSION, read_folder, write_folder

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], np.int64)}
FILES = ["checksums.json", "config.json", "weights.safetensors"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "model", {"class": "X", "value": 1}, ARRAYS)
    return tmp_path / "model"


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change config.json and make the checksums right again."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(change(config) or config))
    seal(folder)


def seal(folder: Path) -> None:
    names = ("config.json", "weights.safetensors")
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "checksums.json").write_text(json.dumps(sums))


def test_what_was_written_comes_back(folder: Path) -> None:
    config, arrays = read_folder(folder)
    assert (config["class"], config["value"], config["format_version"]) == ("X", 1, FORMAT_VERSION)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert sorted(os.listdir(folder)) == FILES
    assert os.listdir(folder.parent) == ["model"]


def test_an_existing_model_is_replaced_as_a_whole(folder: Path) -> None:
    write_folder(folder, {"value": 2}, {"c": np.zeros(1)})
    config, arrays = read_folder(folder)
    assert config["value"] == 2
    assert "class" not in config
    assert list(arrays) == ["c"]
    assert os.listdir(folder.parent) == ["model"]


def test_a_link_to_a_model_stays_a_link(folder: Path) -> None:
    link = folder.parent / "latest"
    link.symlink_to(folder, target_is_directory=True)
    for value in (2, 3):
        write_folder(link, {"value": value}, ARRAYS)
        assert link.is_symlink()
        assert read_folder(folder)[0]["value"] == read_folder(link)[0]["value"] == value
    assert sorted(os.listdir(folder.parent)) == ["latest", "model"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), ValueError("bug")])
@pytest.mark.parametrize("where", ["files", "weights", "first rename", "second rename"])
def test_a_save_that_breaks_leaves_the_old_model(
    folder: Path, where: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.rename, []

    def broken(*args: Any) -> None:
        calls.append(args)
        if len(calls) == {"second rename": 2}.get(where, 1):
            raise error
        real(*args)

    if where == "weights":
        monkeypatch.setattr("safetensors.numpy.save_file", broken)
    elif where == "files":
        monkeypatch.setattr(model_store.os, "fsync", broken)
    else:
        monkeypatch.setattr(model_store.os, "rename", broken)
    expected = OutputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected, match="nothing was changed" if expected is OutputError else None):
        write_folder(folder, {"value": 2}, {"c": np.zeros(1)})
    monkeypatch.undo()
    assert read_folder(folder)[0]["value"] == 1
    if where != "second rename" or isinstance(error, OSError):
        assert os.listdir(folder.parent) == ["model"]


def test_a_kill_between_the_two_renames_is_survived(folder: Path) -> None:
    os.rename(folder, folder.parent / ".model.previous")  # what a kill leaves
    assert read_folder(folder)[0]["value"] == 1
    write_folder(folder, {"value": 2}, ARRAYS)
    assert read_folder(folder)[0]["value"] == 2
    assert os.listdir(folder.parent) == ["model"]


def test_a_stale_backup_is_never_preferred(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / ".model.previous")
    write_folder(folder, {"value": 2}, ARRAYS)
    assert read_folder(folder)[0]["value"] == 2
    assert os.listdir(folder.parent) == ["model"]


def test_a_full_disk_is_reported_and_leaves_nothing(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        with pytest.raises(OutputError, match=r"File too large.*the disk is not full; nothing was changed"):
            write_folder(folder, {"value": 2}, {"big": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_folder(folder)[0]["value"] == 1
    assert os.listdir(folder.parent) == ["model"]


def test_what_is_not_a_model_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("words")
    for name in ("thesis", "file"):
        with pytest.raises(OutputError, match="exists and is not a gsparc model; nothing was written"):
            write_folder(tmp_path / name, {}, ARRAYS)
    assert os.listdir(tmp_path / "thesis") == ["config.json"]
    assert (tmp_path / "file").read_text() == "words"
    with pytest.raises(OutputError, match="cannot be written to"):
        write_folder(tmp_path / "file" / "below", {}, ARRAYS)
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", {}, ARRAYS)
    write_folder(tmp_path / "new" / "deeper", {}, ARRAYS)
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "new", "thesis"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "empty", "folder"])
def test_a_damaged_file_is_named(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes({"truncated": data[:-5], "flipped": flipped, "empty": b""}[damage])
    not_a_model = name == "config.json" and damage in ("missing", "folder")
    with pytest.raises(
        ModelFolderError if not_a_model else DamagedModelError,
        match="is not a gsparc model: no config.json" if not_a_model else "the model is damaged: .*Restore the folder",
    ):
        read_folder(folder)


def test_a_newer_format_says_how_to_upgrade(folder: Path) -> None:
    rewrite(folder, lambda config: config.update(format_version=FORMAT_VERSION + 1, gsparc_version="99.0"))
    with pytest.raises(NewerFormatError, match=r"format 3, written by gsparc 99\.0.*pip install --upgrade gsparc"):
        read_folder(folder)


def test_an_older_format_says_what_to_do(folder: Path) -> None:
    rewrite(folder, lambda config: config.update(format_version=FORMAT_VERSION - 1, gsparc_version="0.1.0"))
    with pytest.raises(ModelFolderError, match=r"format 1, written by gsparc 0\.1\.0.*Fit and save again"):
        read_folder(folder)


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\udcff", '{"format_version": true}', '{"format_version": "1"}', "{}"])
def test_a_config_that_is_none(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    seal(folder)
    with pytest.raises(DamagedModelError, match=r"config\.json"):
        read_folder(folder)


def test_deeply_nested_json_does_not_crash(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 200_000)
    with pytest.raises(DamagedModelError, match="cannot be read"):
        read_folder(folder)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"there is no such folder. Pass a folder that .gsparc fit -o. or save"):
        load_model(tmp_path / "nothing")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of each kind."""
    root = tmp_path_factory.mktemp("models")
    data = make_blocks(80, 300, 6, branching=(2, 2), random_state=0)
    graph = Graph.from_scipy(data.graph.to_scipy(), node_ids=[f"n{i}" for i in range(80)])
    small = {"random_state": 0, "device": "cpu"}
    base = SpectralMap(4, hidden_channels=(8,), max_steps=5, batch_size=64, **small)
    base.fit(data.X, graph=graph).save(root / "map")
    links = SparcLinkPredictor(
        4, n_maps=2, hidden_channels=(8,), spectral_steps=3, refine_steps=3, batch_size=64, **small
    )
    links.fit(data.X, graph=graph).save(root / "links")
    classifier = SparcClassifier("mlp", spectral_map=base, hidden_channels=8, max_steps=5, **small)
    classifier.fit(data.X, data.y, graph=graph).save(root / "classifier")
    return root


@pytest.mark.parametrize("kind", ["map", "links", "classifier"])
def test_arrays_of_other_shapes_are_damage(kind: str, saved: Path, tmp_path: Path) -> None:
    arrays = load_file(saved / kind / "weights.safetensors")
    assert len(arrays) > 5
    accepted = []
    for name, array in arrays.items():
        for change in ("gone", "shorter", "narrower", "deeper"):
            if (change == "narrower" and array.ndim < 2) or (change == "shorter" and not len(array)):
                continue
            shutil.copytree(saved / kind, tmp_path / "copy", dirs_exist_ok=True)
            changed = dict(arrays)
            if change == "gone":
                del changed[name]
            else:
                changed[name] = {
                    "shorter": array[:-1],
                    "narrower": np.ascontiguousarray(array[:, :-1]) if array.ndim > 1 else array,
                    "deeper": array[None],
                }[change]
            save_file(changed, tmp_path / "copy" / "weights.safetensors")
            seal(tmp_path / "copy")
            try:
                load_model(tmp_path / "copy")
            except DamagedModelError:
                continue
            accepted.append((name, change))
    # popularity may be absent, and nothing else
    assert [pair for pair in accepted if pair != ("index.prior", "gone")] == []


@pytest.mark.parametrize("kind", ["map", "links", "classifier"])
def test_a_config_with_a_part_missing_or_of_another_type_is_damage(kind: str, saved: Path, tmp_path: Path) -> None:
    config = json.loads((saved / kind / "config.json").read_text())
    changes = [{**config, "class": name} for name in ("os.system", "BaseEstimator", None, 3)]
    changes += [{k: v for k, v in config.items() if k != name} for name in ("class", "parameters", "fitted")]
    changes += [{**config, "n_features_in": bad} for bad in (5, -1, "x", None, 1e999)]
    changes += [{**config, "parameters": {**config["parameters"], "evil": 1}}, {**config, "fitted": []}]
    younger = {"shift", "unit"}  # than the first folders, which are read as if there were none
    lacking = {
        name: {**config, "fitted": {k: v for k, v in config["fitted"].items() if k != name}}
        for name in config["fitted"]
    }
    for changed in (lacking.pop(name) for name in younger & lacking.keys()):
        shutil.copytree(saved / kind, tmp_path / "older", dirs_exist_ok=True)
        (tmp_path / "older" / "config.json").write_text(json.dumps(changed))
        seal(tmp_path / "older")
        load_model(tmp_path / "older")
    changes += lacking.values()
    for changed in changes:
        shutil.copytree(saved / kind, tmp_path / "copy", dirs_exist_ok=True)
        (tmp_path / "copy" / "config.json").write_text(json.dumps(changed))
        seal(tmp_path / "copy")
        with pytest.raises(DamagedModelError, match=r"damaged"):
            load_model(tmp_path / "copy")


def test_loading_runs_nothing(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import pickle

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("code from a model folder was about to run")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (builtins, "eval")):
        monkeypatch.setattr(module, name, refuse)
    for kind in ("map", "links", "classifier"):
        load_model(saved / kind)
    assert all(sorted(os.listdir(saved / kind)) == FILES for kind in ("map", "links", "classifier"))


def test_mapped_arrays_stay_in_their_file(folder: Path) -> None:
    config, arrays = read_folder(folder, mapped=True)
    assert "mapped" not in config
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
        assert is_mapped(arrays[name])
    arrays["a"][0, 0] = 7.0  # stays with this process
    assert read_folder(folder)[1]["a"][0, 0] == 0.0


def test_what_was_mapped_when_saved_is_mapped_when_loaded(folder: Path) -> None:
    _, arrays = read_folder(folder, mapped=True)
    write_folder(folder, {"class": "X"}, arrays)  # over the file that is mapped: it is replaced, not written to
    config, again = read_folder(folder)
    assert config["mapped"] is True
    assert is_mapped(again["a"])
    np.testing.assert_array_equal(arrays["a"], ARRAYS["a"])
    assert not is_mapped(read_folder(folder, mapped=False)[1]["a"])


def test_a_model_whose_index_has_codes_answers_as_before_when_it_is_mapped(tmp_path: Path) -> None:
    data = make_blocks(400, 2000, 8, random_state=0)
    model = SparcLinkPredictor(
        16, n_maps=1, spectral_steps=20, refine_steps=20, index_memory="20KB", device="cpu", random_state=0
    ).fit(data.X, graph=data.graph)
    assert model.index_.kind == "ivf-sq8"
    model.save(tmp_path / "model")
    loaded: Any = load_model(tmp_path / "model")
    assert is_mapped(loaded.index_.neighbors.state()[0]["rows"])
    for mine, theirs in zip(model.predict_links(data.X[:9], k=4), loaded.predict_links(data.X[:9], k=4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    loaded.grow(data.X[:2]).save(tmp_path / "model")
    assert load_model(tmp_path / "model").index_.num_vectors == 402  # type: ignore[attr-defined]


def test_index_memory_that_is_too_small_or_none_is_said() -> None:
    data = make_blocks(300, 1500, 8, random_state=0)
    with pytest.raises(InputError, match="index_memory='lots'; pass a size such as"):
        SparcLinkPredictor(8, index_memory="lots").fit(data.X, graph=data.graph)
    with pytest.raises(InputError, match="does not fit into 100 bytes"):
        SparcClassifier("mlp", n_components=8, max_steps=5, index_memory=100, random_state=0).fit(
            data.X, data.y, graph=data.graph
        )
