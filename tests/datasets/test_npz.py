"""Files without pickles: what is read, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc.datasets import Dataset, load_dataset, load_npz, save_npz
from gsparc.exceptions import (
    DataNotFoundError,
    FeatureError,
    GraphError,
    GraphShapeError,
    InputError,
    LabelError,
    OutputError,
)
from gsparc.graph import Graph

EDGES = np.array([[0, 1], [1, 2]])


def write(folder, **arrays):
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def test_dense_features(tmp_path):
    data = load_npz(write(tmp_path, x=np.arange(6).reshape(3, 2), edges=EDGES, y=np.array([1, -1, 0])))
    assert repr(data) == "Dataset('mine': 3 nodes, 2 edges, 2 features, 2 classes)"
    assert data.X.dtype == np.float32
    assert data.X.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert data.y.tolist() == [1, -1, 0]
    assert data.graph.neighbors(1).tolist() == [0, 2]
    assert data.node_ids is None


def test_weights(tmp_path):
    data = load_npz(write(tmp_path, x=np.eye(3), edges=EDGES, weights=np.array([2.0, 0.5], dtype=np.float32)))
    assert data.graph.to_scipy().toarray().tolist() == [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]]
    again = load_npz(save_npz(data, tmp_path / "again.npz"))
    assert again.graph == data.graph
    with np.load(tmp_path / "again.npz", allow_pickle=False) as file:
        assert file["weights"].dtype == np.float32
        assert file["weights"].tolist() == [2, 0.5]


def test_an_unweighted_graph_is_saved_without_weights(tmp_path):
    data = load_npz(write(tmp_path, x=np.eye(3), edges=EDGES))
    assert data.graph.weights is None
    with np.load(save_npz(data, tmp_path / "again.npz"), allow_pickle=False) as file:
        assert "weights" not in file.files


def test_sparse_features_and_names(tmp_path):
    path = write(
        tmp_path,
        x_data=np.array([1.0, 2.0]),
        x_indices=np.array([1, 0], dtype=np.int64),
        x_indptr=np.array([0, 1, 1, 2], dtype=np.int64),
        x_shape=np.array([3, 2]),
        edges=EDGES,
        node_ids=np.array(["a", "b", "c"]),
        feature_names=np.array(["red", "blue"]),
    )
    data = load_npz(path)
    assert sp.issparse(data.X)
    assert data.X.toarray().tolist() == [[0, 1], [0, 0], [2, 0]]
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32  # what scikit-learn's solvers take
    assert data.graph.ids_to_index(["c"]).tolist() == [2]
    assert data.y is None
    assert data.num_classes == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_saved_is_what_loads(tmp_path, sparse):
    X = np.array([[0.0, 1.5], [2.0, 0.0], [0.0, 0.0], [1.0, 1.0]], dtype=np.float32)
    before = Dataset(
        X=sp.csr_array(X) if sparse else X,
        y=np.array([0, 1, -1, 1]),
        graph=Graph.from_edges([[3, 0], [0, 1]], num_nodes=4),
        class_names=np.array(["no", "yes"]),
        groups=np.array([0, 0, 1, 2]),
        name="four",
        source="by hand",
    )
    after = load_npz(save_npz(before, tmp_path / "any"))
    assert after.name == "four"
    assert after.source == "by hand"
    assert after.graph == before.graph
    assert sp.issparse(after.X) is sparse
    np.testing.assert_array_equal(after.X.toarray() if sparse else after.X, X)
    np.testing.assert_array_equal(after.y, before.y)
    np.testing.assert_array_equal(after.groups, before.groups)
    np.testing.assert_array_equal(after.class_names, before.class_names)


X = np.ones((3, 2), dtype=np.float32)
CSR = {"x_data": [1.0], "x_indices": [0], "x_indptr": [0, 1, 1, 1], "x_shape": [3, 2]}


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        ({"x": X}, InputError, "no array 'edges'"),
        ({"edges": EDGES}, FeatureError, "x_data, x_indices, x_indptr, x_shape missing"),
        ({"x": X[0], "edges": EDGES}, FeatureError, r"shape \(2,\)"),
        ({"x": np.array([["a"], ["b"]]), "edges": EDGES}, FeatureError, "numbers of shape"),
        ({"x": X, "edges": EDGES[0]}, InputError, r"\(2, E\) was expected"),
        ({"x": X, "edges": EDGES + 1}, GraphError, "node id 3"),
        ({"x": X, "edges": EDGES - 1}, GraphError, "negative"),
        ({"x": X, "edges": EDGES, "weights": [1.0]}, GraphError, "one weight an edge"),
        ({"x": X, "edges": EDGES, "weights": [1.0, -1.0]}, GraphError, "negative"),
        ({"x": X, "edges": EDGES, "y": [0, 1]}, LabelError, "y has 2 entries, but there are 3 nodes"),
        ({"x": X, "edges": EDGES, "y": [0.5, 1, 1]}, LabelError, "integers"),
        ({"x": X, "edges": EDGES, "y": [0, 1, -2]}, LabelError, "-1 for unlabelled"),
        ({"x": X, "edges": EDGES, "y": [0, 1, 2], "class_names": ["a", "b"]}, LabelError, "holds class 2"),
        ({**CSR, "x_indices": [7], "edges": EDGES}, FeatureError, "no valid CSR"),
        ({**CSR, "x_indptr": [0, 1], "edges": EDGES}, FeatureError, "no valid CSR"),
    ],
)
def test_bad_arrays(tmp_path, arrays, error, words):
    with pytest.raises(error, match=words):
        load_npz(write(tmp_path, **{key: np.asarray(value) for key, value in arrays.items()}))


def test_pickles_are_refused(tmp_path):
    path = write(tmp_path, x=X, edges=EDGES, y=np.array([{"a": 1}, 2, 3], dtype=object))
    with pytest.raises(InputError, match="dtype=object"):
        load_npz(path)


def test_cut_file(tmp_path):
    path = write(tmp_path, x=X, edges=EDGES)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot be read"):
        load_dataset(path)


def test_missing_file(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"no file .*gone\.npz"):
        load_dataset(tmp_path / "gone.npz")


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    data = load_npz(write(tmp_path, x=X, edges=EDGES))
    with pytest.raises(OutputError, match="cannot write"):
        save_npz(data, tmp_path / "file" / "x.npz")


def test_rows_and_nodes_must_agree():
    with pytest.raises(GraphShapeError, match="graph has 5 nodes but X has 3 rows"):
        Dataset(X=X, y=None, graph=Graph.empty(5))
