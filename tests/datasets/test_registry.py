"""Data sets by name, the embedded graph, and what is said when files are missing."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc.datasets import data_folders, list_datasets, load_dataset, registry
from gsparc.exceptions import DataNotFoundError, InputError, MissingExtraError, UnknownNameError


@pytest.fixture(scope="module")
def debian():
    return load_dataset("debian")


def test_embedded_graph_is_sound(debian):
    n = debian.graph.num_nodes
    assert debian.X.shape == (n, len(debian.feature_names))
    assert debian.X.dtype == np.float32
    assert len(set(debian.node_ids.tolist())) == n
    assert len(set(debian.feature_names.tolist())) == len(debian.feature_names)
    assert debian.X.data.min() >= 1
    np.testing.assert_array_equal(debian.X.data, np.round(debian.X.data))
    rows = np.repeat(np.arange(n), np.diff(debian.graph.indptr))
    assert not (rows == debian.graph.indices).any()
    sizes = np.bincount(debian.y[debian.y >= 0])
    assert len(sizes) == len(debian.class_names)
    assert sizes.min() >= 30
    assert "bookworm" in debian.source
    assert "chosen over all packages" in debian.description


def test_embedded_graph_says_what_is_known(debian):
    node = {name: int(debian.graph.ids_to_index([name])[0]) for name in ("vim", "glibc", "apache2", "bash")}
    assert node["glibc"] in debian.graph.neighbors(node["vim"])
    assert debian.class_names[debian.y[node["vim"]]] == "editors"
    assert debian.class_names[debian.y[node["apache2"]]] == "httpd"
    assert debian.y[node["bash"]] == -1  # "shells" has fewer than 30 sources
    words = debian.feature_names[debian.X[[node["apache2"]]].indices]
    assert "server" in words
    assert "the" not in debian.feature_names


def test_versions_of_one_source_share_a_group(debian):
    group = dict(zip(debian.node_ids.tolist(), debian.groups.tolist(), strict=True))
    assert group["llvm-toolchain-13"] == group["llvm-toolchain-14"]
    assert group["vim"] != group["bash"]


def test_no_two_groups_hold_the_same_counts(debian):
    unit = sp.csr_array(debian.X / sp.linalg.norm(debian.X, axis=1)[:, None])
    part = np.random.default_rng(0).choice(len(debian.groups), 500, replace=False)
    close = sp.coo_array(unit[part] @ unit.T)
    same = close.data >= 0.9501
    assert (debian.groups[part[close.coords[0][same]]] == debian.groups[close.coords[1][same]]).all()


def test_list_agrees_with_what_loads(debian):
    line = next(info for info in list_datasets() if info.name == "debian")
    assert line.available
    assert (line.nodes, line.edges) == (debian.graph.num_nodes, debian.graph.num_edges)
    assert (line.features, line.classes) == (debian.X.shape[1], debian.num_classes)


@pytest.mark.data
@pytest.mark.parametrize("info", [i for i in list_datasets() if i.name not in ("debian", "coauthor_cs")])
def test_benchmark_graphs_have_the_listed_size(info, data_folder):
    if not (data_folder / f"{info.name}.npz").is_file():
        pytest.skip(f"{info.name}.npz is not in the data folder")
    data = load_dataset(info.name.replace("_", "-").upper(), folder=data_folder)
    assert (data.graph.num_nodes, data.graph.num_edges) == (info.nodes, info.edges)
    assert (data.X.shape[1], data.num_classes) == (info.features, info.classes)
    assert data.name == info.name


@pytest.mark.data
@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_raw_planetoid_equals_npz(name, data_folder, tmp_path):
    pytest.importorskip("torch_geometric")
    shutil.copytree(data_folder / "planetoid", tmp_path / "planetoid")
    before = sorted(tmp_path.rglob("*"))
    raw, npz = load_dataset(name, folder=tmp_path), load_dataset(name, folder=data_folder)
    assert raw.graph == npz.graph
    assert raw.num_classes == npz.num_classes
    np.testing.assert_array_equal(raw.y, npz.y)
    assert abs(sp.csr_array(raw.X) - npz.X).max() == 0
    assert sorted(tmp_path.rglob("*")) == before  # reading writes nothing beside the files


@pytest.mark.data
def test_command_line_never_unpickles(data_folder, tmp_path):
    (tmp_path / "planetoid").symlink_to(data_folder / "planetoid")
    with pytest.raises(DataNotFoundError, match=r"unpickles.*save_npz"):
        load_dataset("cora", folder=tmp_path, allow_pickle_sources=False)


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'amazon_photo'"):
        load_dataset("amazon-foto")


@pytest.mark.parametrize("name", ["cora", "amazon_photo", "reddit", "reddit2", "amazon2m"])
def test_missing_files(name, tmp_path):
    with pytest.raises(DataNotFoundError) as caught:
        load_dataset(name, folder=tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert f'load_dataset("{name}", download=True)' in str(caught.value)
    assert not next(info for info in list_datasets(tmp_path) if info.name == name).available


def test_paths_that_are_no_data(tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        load_dataset(tmp_path / "data.csv")
    with pytest.raises(DataNotFoundError, match=r"no nodes\.parquet and no edges\.parquet"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("name", ["graph.csv", "graph.parquet", "some/graph", "./cora"])
def test_what_looks_like_a_path_is_one(name):
    with pytest.raises(DataNotFoundError, match=r"there is no file .*\.npz file, or of a folder with nodes\.parquet"):
        load_dataset(name)


def test_what_exists_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("")
    with pytest.raises(InputError, match=r"mine is not an \.npz file"):
        load_dataset("mine")
    (tmp_path / "debian").mkdir()  # a known name stays one
    assert load_dataset("debian").name == "debian"


def test_label_is_for_tables():
    with pytest.raises(InputError, match="label='kind' names a column"):
        load_dataset("debian", label="kind")


def test_where_is_looked(tmp_path, monkeypatch):
    assert data_folders("here") == [type(tmp_path)("here")]
    monkeypatch.setenv("GSPARC_DATA", str(tmp_path))
    assert data_folders() == [tmp_path]
    monkeypatch.delenv("GSPARC_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert tmp_path / "shared" / "data" not in data_folders()  # nothing near the working directory
    assert data_folders()[-1] == tmp_path / "cache" / "gsparc"


def test_data_beside_a_checkout(tmp_path):
    file = tmp_path / "project" / "src" / "gsparc" / "datasets" / "registry.py"
    data = tmp_path / "shared" / "data"
    data.mkdir(parents=True)
    file.parent.mkdir(parents=True)
    assert registry._beside_checkout(file) is None  # installed, not a checkout
    (tmp_path / "project" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert registry._beside_checkout(file) is None
    (tmp_path / "project" / "pyproject.toml").write_text('[project]\nname = "gsparc"\n')
    assert registry._beside_checkout(file) == data
    data.rmdir()
    assert registry._beside_checkout(file) is None


def test_an_account_without_home(monkeypatch):
    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GSPARC_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(registry, "_beside_checkout", lambda file: None)
    monkeypatch.setattr("pathlib.Path.expanduser", no_home)
    assert data_folders() == []
    with pytest.raises(DataNotFoundError, match="no home folder"):
        load_dataset("cora", download=True)


def write_products(raw):
    raw.mkdir(parents=True)
    lines = {"edge": "0,1\n1,2\n", "node-feat": "0.5,1\n2,3\n4,5\n", "node-label": "1\n0\n1\n"}
    for name, text in lines.items():
        with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            file.write(text)


def check_products(data):
    assert data.X.tolist() == [[0.5, 1], [2, 3], [4, 5]]
    assert data.X.dtype == np.float32
    assert data.y.tolist() == [1, 0, 1]
    assert data.graph.neighbors(1).tolist() == [0, 2]


def test_products_from_their_own_files(tmp_path):
    write_products(tmp_path / "ogbn_products" / "raw")
    check_products(load_dataset("amazon2m", folder=tmp_path, allow_pickle_sources=False))


def test_products_fetched_by_ogb(tmp_path, monkeypatch):
    calls = []

    def fetch(name, root):
        calls.append((name, root))
        write_products(tmp_path / "amazon2m" / "ogbn_products" / "raw")

    fake = types.ModuleType("ogb.nodeproppred")
    fake.NodePropPredDataset = fetch
    monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", fake)
    check_products(load_dataset("amazon2m", folder=tmp_path, download=True))
    assert calls == [("ogbn-products", str(tmp_path / "amazon2m"))]


def test_products_without_ogb(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gsparc\[ogb\]'"):
        load_dataset("amazon2m", folder=tmp_path, download=True)


def test_damaged_products(tmp_path):
    raw = tmp_path / "ogbn_products" / "raw"
    write_products(raw)
    (raw / "node-feat.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match=r"node-feat\.csv\.gz cannot be read"):
        load_dataset("amazon2m", folder=tmp_path)


def test_import_stays_light():
    heavy = "('torch_geometric', 'pandas', 'ogb')"
    code = f"import sys, gsparc.datasets; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
