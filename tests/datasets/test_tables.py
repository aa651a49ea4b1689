"""A node table and an edge table of the user's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc.datasets import load_dataset, load_tables
from gsparc.exceptions import DataNotFoundError, FeatureError, GraphError, InputError, LabelError

NODES = {
    "id": ["c", "a", "b"],
    "size": [1, 2, 3],
    "remark": ["x", "y", "z"],
    "weight": [0.5, 1.5, 2.5],
    "big": [True, False, True],
    "label": ["dog", None, "cat"],
}
EDGES = {"source": ["a", "b"], "target": ["b", "c"]}


def test_columns_find_their_place():
    data = load_tables(pa.table(NODES), pa.table(EDGES))
    assert data.feature_names.tolist() == ["size", "weight", "big"]
    assert data.X.tolist() == [[1, 0.5, 1], [2, 1.5, 0], [3, 2.5, 1]]
    assert data.X.dtype == np.float32
    assert data.node_ids.tolist() == ["c", "a", "b"]
    assert data.class_names.tolist() == ["cat", "dog"]
    assert data.y.tolist() == [1, -1, 0]
    assert data.graph.neighbors(2).tolist() == [0, 1]  # b is joined to c and a


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_other_frames_give_the_same(frame):
    data, same = load_tables(frame(NODES), frame(EDGES)), load_tables(pa.table(NODES), pa.table(EDGES))
    assert data.graph == same.graph
    np.testing.assert_array_equal(data.X, same.X)
    np.testing.assert_array_equal(data.y, same.y)
    np.testing.assert_array_equal(data.node_ids, same.node_ids)


def test_folder_of_parquet(tmp_path):
    pq.write_table(pa.table(NODES), tmp_path / "nodes.parquet")
    with pytest.raises(DataNotFoundError, match=r"has no edges\.parquet"):
        load_dataset(str(tmp_path))
    pq.write_table(pa.table(EDGES), tmp_path / "edges.parquet")
    data = load_dataset(str(tmp_path))
    assert data.name == tmp_path.name
    assert data.graph.num_edges == 2


def test_without_ids_edges_hold_positions():
    data = load_tables(pa.table({"size": [1.0, 2.0, 3.0]}), pa.table({"source": [0], "target": [2]}))
    assert data.node_ids is None
    assert data.graph.node_ids is None
    assert data.graph.neighbors(0).tolist() == [2]


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.int32()), pa.list_(pa.float32(), 2)])
def test_columns_of_lists_are_features(kind):
    nodes = pa.table({"id": [0, 1], "v": pa.array([[1, 2], [3, 4]], type=kind)})
    data = load_tables(nodes, pa.table({"source": [0], "target": [1]}))
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert data.feature_names.tolist() == ["v[0]", "v[1]"]


@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        ([5, 2, -1], [1, 0, -1], ["2", "5"]),
        ([1.0, None, 0.0], [1, -1, 0], ["0", "1"]),
        ([True, False, None], [1, 0, -1], ["false", "true"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), [1, 0, 1], ["a", "b"]),
    ],
)
def test_labels(labels, y, names):
    nodes = pa.table({"size": [1, 2, 3], "y": labels})
    data = load_tables(nodes, pa.table({"source": [0], "target": [1]}))
    assert data.y.tolist() == y
    assert data.class_names.tolist() == names
    assert data.feature_names.tolist() == ["size"]


def points(y) -> pa.Table:
    return pa.table({"x": np.linspace(0, 1, len(y)), "y": y, "z": np.ones(len(y))})


@pytest.mark.parametrize(
    "y",
    [
        [0.25, 1.0, 2.0],  # not whole
        [-7, 1, 2],  # negative
        [np.inf, 1.0, 2.0],
        list(range(21)),  # more than 20 of 21 rows
        [2**60, 1, 2],
    ],
)
def test_coordinates_called_y_are_features(y):
    data = load_tables(points(y), pa.table({"source": [0], "target": [1]}))
    assert data.y is None
    assert data.feature_names.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(data.X[:, 1], np.float32(y))


@pytest.mark.parametrize("y", [[0, 1] * 30, list(range(20)), np.arange(900) % 30, ["a"] * 3, [True, False, True]])
def test_classes_called_y_are_labels(y):
    data = load_tables(points(y), pa.table({"source": [0], "target": [1]}))
    assert data.feature_names.tolist() == ["x", "z"]
    assert data.num_classes == len(set(np.asarray(y).tolist()))


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize(("column", "options"), [("weight", {}), ("Weight", {}), ("strength", {"weight": "strength"})])
def test_weights_of_edges(ids, column, options):
    names = ["a", "b", "c"] if ids else [0, 1, 2]
    nodes = pa.table({"id" if ids else "other": names, "size": [1, 2, 3]})
    edges = pa.table({"source": names[:2], "target": names[1:], column: [2, 0.5]})
    data = load_tables(nodes, edges, **options)
    assert data.graph.to_scipy().toarray().tolist() == [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]]


def test_what_are_no_weights(caplog):
    nodes = pa.table({"size": [1, 2, 3]})
    with caplog.at_level("INFO", logger="gsparc"):
        data = load_tables(nodes, pa.table({"source": [0], "target": [1], "weight": ["heavy"]}))
    assert data.graph.weights is None
    assert "unweighted" in caplog.text
    same = load_tables(nodes, pa.table({"source": [0], "weight": [1]}), source="source", target="weight")
    assert same.graph == data.graph


@pytest.mark.parametrize(
    ("nodes", "options", "error", "words"),
    [
        ({"id": ["a", "b"], "remark": ["x", "y"]}, {}, FeatureError, "no numeric column"),
        ({"id": ["a", "b"], "size": [1.0, None]}, {}, FeatureError, "'size' .* 1 missing"),
        ({"id": ["a", "z"], "size": [1, 2]}, {}, GraphError, "b"),
        ({"id": ["a", None], "size": [1, 2]}, {}, GraphError, "id"),
        ({"id": ["a", "a"], "size": [1, 2]}, {}, GraphError, "a"),
        ({"id": ["a", "b"], "size": [1, 2]}, {"label": "kind"}, LabelError, "no column 'kind'"),
        ({"id": ["a", "b"], "size": [1, 2], "label": [0.5, 1]}, {}, LabelError, "not whole"),
        ({"id": ["a", "b"], "size": [1, 2], "y": [0.5, 1]}, {"label": "y"}, LabelError, "not whole"),
        ({"id": ["a", "b"], "size": [1, 2], "label": [-7, 1]}, {}, LabelError, "class -7"),
        ({"id": ["a", "b"], "size": [1, 2]}, {"weight": "w"}, InputError, "no column 'w' for weight="),
        ({"id": ["a", "b"], "size": [1, 2]}, {"weight": "source"}, InputError, "'source' .* weights are numbers"),
        ({"id": pa.array([], pa.string()), "size": pa.array([], pa.int32())}, {}, InputError, "no rows"),
    ],
)
def test_bad_tables(nodes, options, error, words):
    with pytest.raises(error, match=words):
        load_tables(pa.table(nodes), pa.table({"source": ["a"], "target": ["b"]}), **options)


def test_not_tables(tmp_path):
    with pytest.raises(InputError, match="nodes is a int"):
        load_tables(3, pa.table(EDGES))
    with pytest.raises(DataNotFoundError, match="no nodes table"):
        load_tables(tmp_path / "gone.parquet", pa.table(EDGES))
    (tmp_path / "bad.parquet").write_text("not Parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        load_tables(tmp_path / "bad.parquet", pa.table(EDGES))
