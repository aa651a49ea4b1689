"""The transform and the Data of new nodes: hand-made graphs, no mutation, errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from gsparc.datasets import make_blocks
from gsparc.estimators import SparcClassifier, SparcLinkPredictor, SpectralMap
from gsparc.exceptions import FeatureError, GraphShapeError, InputError
from gsparc.graph import Graph

pytest.importorskip("torch_geometric")

from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform, Compose, ToUndirected

from gsparc.integrations.pyg import AddSpectralEmbedding, cold_data

STEPS: dict[str, Any] = {"max_steps": 20, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def seen() -> Data:
    made = make_blocks(120, 600, 6, random_state=0)
    return made.graph.to_pyg(made.X)


@pytest.fixture(scope="module")
def classifier(seen: Data) -> SparcClassifier:
    y = np.arange(120) % 3
    return SparcClassifier("mlp", n_components=4, **STEPS).fit(seen.x.numpy(), y, graph=seen)


class TestTransform:
    def test_coordinates_are_those_of_the_map(self, seen: Data) -> None:
        before = {name: seen[name].clone() for name in ("x", "edge_index")}
        add = AddSpectralEmbedding(4, **STEPS)
        assert isinstance(add, BaseTransform)
        assert repr(add) == "AddSpectralEmbedding(4, attr_name='spectral', not fitted)"
        out = add(seen)
        expected = SpectralMap(4, **STEPS).fit(seen.x.numpy(), graph=seen).transform(seen.x.numpy())
        np.testing.assert_array_equal(out.spectral.numpy(), expected)
        assert repr(add) == "AddSpectralEmbedding(4, attr_name='spectral', fitted)"
        assert set(seen.keys()) == {"x", "edge_index", "num_nodes"}
        assert all(torch.equal(seen[name], value) for name, value in before.items())
        assert out.edge_index is seen.edge_index

    def test_new_nodes_need_no_edges_and_do_not_refit(self, seen: Data) -> None:
        add = AddSpectralEmbedding(4, **STEPS).fit(seen)
        fitted, all_of_them = add.map_, add(seen).spectral
        out = add(Data(x=seen.x[5:8]))
        torch.testing.assert_close(out.spectral, all_of_them[5:8])
        with_edges = add(Data(x=seen.x[5:8], edge_index=torch.tensor([[0, 1], [1, 0]])))
        assert torch.equal(with_edges.spectral, out.spectral)
        assert add.map_ is fitted

    def test_appended_to_x(self, seen: Data) -> None:
        out = AddSpectralEmbedding(4, attr_name=None, **STEPS)(seen)
        assert out.x.shape == (120, 10)
        assert torch.equal(out.x[:, :6], seen.x)
        assert seen.x.shape == (120, 6)
        assert "spectral" not in out

    @pytest.mark.parametrize(
        "layout",
        [
            torch.sparse_coo,
            pytest.param(
                torch.sparse_csr,
                marks=pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),  # of the input itself
            ),
        ],
    )
    def test_sparse_x(self, seen: Data, layout: Any) -> None:
        sparse = seen.x.relu()
        given = Data(x=sparse.to_sparse(layout=layout), edge_index=seen.edge_index)
        add = AddSpectralEmbedding(4, attr_name=None, **STEPS)
        out = add(given)
        assert out.x.layout == layout
        dense = out.x.to_dense()
        assert torch.equal(dense[:, :6], sparse)
        coordinates = AddSpectralEmbedding(spectral_map=add.map_)(Data(x=sparse)).spectral
        torch.testing.assert_close(dense[:, 6:], coordinates, atol=1e-5, rtol=1e-4)

    def test_a_fitted_map_is_used_as_it_is(self, seen: Data) -> None:
        fitted = SpectralMap(3, **STEPS).fit(seen.x.numpy(), graph=seen)
        add = AddSpectralEmbedding(64, spectral_map=fitted)
        assert add.map_ is fitted
        assert add(Data(x=seen.x[:2])).spectral.shape == (2, 3)

    def test_an_unfitted_map_gives_its_settings_and_stays_unfitted(self, seen: Data) -> None:
        settings = SpectralMap(3, **STEPS)
        assert AddSpectralEmbedding(spectral_map=settings)(seen).spectral.shape == (120, 3)
        assert not hasattr(settings, "module_")

    def test_in_a_chain(self, seen: Data) -> None:
        out = Compose([ToUndirected(), AddSpectralEmbedding(2, attr_name="u", **STEPS)])(seen)
        assert out.u.shape == (120, 2)

    def test_edge_weights_count(self, seen: Data) -> None:
        weights = torch.where(seen.edge_index.sum(dim=0) % 2 == 0, 5.0, 0.1)
        weighted = Data(x=seen.x, edge_index=seen.edge_index, edge_weight=weights)
        a, b = AddSpectralEmbedding(2, **STEPS)(seen).spectral, AddSpectralEmbedding(2, **STEPS)(weighted).spectral
        assert not torch.allclose(a, b)

    def test_other_types_of_x(self, seen: Data) -> None:
        whole = Data(x=seen.x.round().long(), edge_index=seen.edge_index)
        assert AddSpectralEmbedding(2, attr_name=None, **STEPS)(whole).x.dtype == torch.float32
        half = Data(x=seen.x.bfloat16(), edge_index=seen.edge_index)
        assert AddSpectralEmbedding(2, attr_name=None, **STEPS)(half).x.dtype == torch.bfloat16

    def test_errors(self, seen: Data) -> None:
        add = AddSpectralEmbedding(4, **STEPS)
        with pytest.raises(FeatureError, match=r"no x.*set data\.x"):
            add(Data(edge_index=seen.edge_index, num_nodes=120))
        with pytest.raises(InputError, match=r"no edges to fit.*Pass the seen graph first"):
            add(Data(x=seen.x))
        with pytest.raises(InputError, match="no edges to fit"):
            add(Data(x=seen.x, edge_index=torch.empty(2, 0, dtype=torch.int64)))
        with pytest.raises(InputError, match="HeteroData came"):
            add(HeteroData())
        with pytest.raises(FeatureError, match="NaN"):
            add(Data(x=torch.full((120, 6), float("nan")), edge_index=seen.edge_index))
        assert add.map_ is None
        add.fit(seen)
        with pytest.raises(FeatureError, match=r"5 features.*expecting 6.*same columns"):
            add(Data(x=seen.x[:, :5]))

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({"n_components": 0}, "n_components=0"),
            ({"attr_name": "x"}, "would replace x"),
            ({"attr_name": 3}, "attr_name=3"),
            ({"spectral_map": "map"}, "expected a SpectralMap"),
        ],
    )
    def test_bad_arguments(self, arguments: Any, match: str) -> None:
        with pytest.raises(InputError, match=match):
            AddSpectralEmbedding(**arguments)


class Neighbours:
    """A model whose answers are written down: it fits the little that ``cold_data`` asks of one."""

    def __init__(self, ids: Any, distances: Any, count: int) -> None:
        from gsparc.estimators._nodes import NodeNames

        self.ids, self.distances = np.array(ids), np.array(distances)
        self._nodes, self.index_ = NodeNames(count, None), self
        self.num_vectors = count

    def nearest(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self.ids[:, :k], self.distances[:, :k]


#   0 - 1 - 2 - 3 - 4
PATH = Data(
    x=torch.arange(5.0)[:, None] * 10,
    edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]]),
)
MODEL = Neighbours([[4, 2], [2, 0]], [[0.2, 0.6], [0.5, 1.5]], 5)  # likeness .8 .4 / .5 -.5
X_NEW = np.array([[100.0], [200.0]])


class TestColdData:
    def test_inferred_edges_by_hand(self) -> None:
        data = cold_data(MODEL, X_NEW, k=2)
        assert data.x is None
        assert data.n_id.tolist() == [-1, -1, 2, 4]
        assert data.is_new.tolist() == [True, True, False, False]
        assert data.num_nodes == 4
        assert data.batch_size == 2
        # 4 -> first, 2 -> first, 2 -> second; the last neighbour of the second is not alike
        assert data.edge_index.tolist() == [[3, 2, 2], [0, 0, 1]]
        np.testing.assert_allclose(data.edge_weight, [1.0, 0.5, 1.0], rtol=1e-6)
        assert data.is_inferred.all()
        assert data.validate()

    @pytest.mark.parametrize("form", [np.asarray, torch.from_numpy, sp.csr_array, pd.DataFrame, np.ndarray.tolist])
    def test_features_of_any_form(self, form: Any) -> None:
        seen = PATH.x.numpy()
        data = cold_data(MODEL, form(X_NEW), k=2, seen=form(seen))
        assert data.x.tolist() == [[100.0], [200.0], [20.0], [40.0]]
        assert data.x.dtype == torch.float32
        assert data.edge_index.shape == (2, 3)

    @pytest.mark.parametrize(
        ("num_hops", "seen_nodes", "real"),
        [(0, [2, 4], 0), (1, [1, 2, 3, 4], 6), (2, [0, 1, 2, 3, 4], 8)],
    )
    def test_real_edges_around(self, num_hops: int, seen_nodes: list[int], real: int) -> None:
        data = cold_data(MODEL, Data(x=torch.from_numpy(X_NEW)), k=2, seen=PATH, num_hops=num_hops)
        assert data.n_id[2:].tolist() == seen_nodes
        assert data.x[2:, 0].tolist() == [10.0 * i for i in seen_nodes]
        assert int((~data.is_inferred).sum()) == real
        ends = data.n_id[data.edge_index[:, ~data.is_inferred]]
        assert ((ends[0] - ends[1]).abs() == 1).all()
        assert data.edge_weight[~data.is_inferred].eq(1).all()
        assert not data.is_new[data.edge_index[0]].any()
        assert data.validate()

    @pytest.mark.parametrize("name", ["edge_weight", "edge_attr"])
    def test_real_weights_and_no_mutation(self, name: str) -> None:
        weights = torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0])
        seen = Data(x=PATH.x, edge_index=PATH.edge_index, **{name: weights})
        before = seen.clone()
        data = cold_data(MODEL, X_NEW, k=2, seen=seen, num_hops=1)
        assert data.edge_weight[~data.is_inferred].tolist() == [2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
        assert set(seen.keys()) == set(before.keys())
        assert all(torch.equal(seen[key], before[key]) for key in before.keys())  # noqa: SIM118 - a Data, no dict

    def test_wide_edge_features_are_no_weights(self) -> None:
        seen = Data(x=PATH.x, edge_index=PATH.edge_index, edge_attr=torch.zeros(8, 3))
        assert cold_data(MODEL, X_NEW, k=2, seen=seen).edge_weight[3:].eq(1).all()

    def test_nothing_alike_means_equally_alike(self) -> None:
        model = Neighbours([[0, 1]], [[1.2, 1.4]], 5)
        assert cold_data(model, X_NEW[:1], k=2).edge_weight.tolist() == [1.0, 1.0]

    def test_classifier(self, classifier: SparcClassifier, seen: Data) -> None:
        data = cold_data(classifier, seen.x[:7], k=4, seen=seen)
        ids, distances = classifier.nearest(seen.x[:7].numpy(), 4)
        assert data.batch_size == 7
        inferred = data.edge_index[:, data.is_inferred]
        assert data.n_id[inferred[0]].reshape(7, 4).tolist() == ids.tolist()
        likeness = 1 - distances
        weights = data.edge_weight[data.is_inferred].reshape(7, 4)
        np.testing.assert_allclose(weights, likeness / likeness[:, :1], rtol=1e-5)
        assert torch.equal(data.x[~data.is_new], seen.x[data.n_id[7:]])

    def test_link_predictor_with_named_nodes(self, seen: Data) -> None:
        names = [f"node{i}" for i in range(120)]
        graph = Graph.from_edges(seen.edge_index, num_nodes=120, node_ids=names)
        model = SparcLinkPredictor(4, n_maps=1, spectral_steps=10, refine_steps=10, random_state=0, device="cpu")
        model.fit(seen.x.numpy(), graph=graph)
        data = cold_data(model, seen.x[:3], k=5, seen=seen.x)
        ids, _ = model.predict_links(seen.x[:3].numpy(), 5)
        found = data.n_id[data.edge_index[0]].reshape(3, 5).tolist()
        assert [[names[i] for i in row] for row in found] == ids.tolist()

    def test_spectral_map(self, seen: Data) -> None:
        spectral = SpectralMap(4, **STEPS).fit(seen.x.numpy(), graph=seen)
        data = cold_data(spectral, seen.x[:3], k=1, seen=seen, num_hops=0)
        assert data.n_id[data.edge_index[0, :3]].tolist() == [0, 1, 2]  # a copy of a seen node is nearest to it
        with pytest.raises(InputError, match="keeps no seen nodes"):
            cold_data(spectral, seen.x[:3])

    def test_a_gnn_runs_on_it(self, classifier: SparcClassifier, seen: Data) -> None:
        from torch_geometric.nn import GCN

        data = cold_data(classifier, seen.x[:7], k=4, seen=seen)
        out = GCN(6, 8, num_layers=2, out_channels=3)(data.x, data.edge_index, data.edge_weight)
        assert out[: data.batch_size].shape == (7, 3)
        assert torch.isfinite(out).all()

    def test_errors(self, classifier: SparcClassifier, seen: Data) -> None:
        with pytest.raises(GraphShapeError, match="seen has 119 nodes but the model was fitted on 120"):
            cold_data(classifier, seen.x[:2], seen=seen.x[1:])
        with pytest.raises(FeatureError, match="seen has 5 features but the model was fitted on 6"):
            cold_data(classifier, seen.x[:2], seen=seen.x[:, :5])
        with pytest.raises(FeatureError, match="5 features"):
            cold_data(classifier, seen.x[:2, :5])
        with pytest.raises(FeatureError, match="no x"):
            cold_data(classifier, seen.x[:2], seen=Data(edge_index=seen.edge_index, num_nodes=120))
        with pytest.raises(InputError, match="k=0"):
            cold_data(classifier, seen.x[:2], k=0)
        with pytest.raises(InputError, match="num_hops=-1"):
            cold_data(classifier, seen.x[:2], num_hops=-1)
        with pytest.raises(InputError, match=r"dict came, expected a fitted SparcClassifier"):
            cold_data({}, seen.x[:2])


def test_without_pyg_the_install_command_is_shown() -> None:
    code = "import sys; sys.modules['torch_geometric'] = None; import gsparc.integrations.pyg"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MissingExtraError" in done.stderr
    assert "pip install 'gsparc[pyg]'" in done.stderr
