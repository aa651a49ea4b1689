"""The networks: dense and sparse input, output layer, dropout, what rebuilds them."""

from __future__ import annotations

import pytest
import torch

from gsparc.nn.mlp import FeatureMLP
from gsparc.nn.spectral_map import InputLayer, SparseRows, SpectralNet, drop_inputs

DENSE = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
SPARSE = SparseRows(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 3, 0]), torch.tensor([2.0, 1.0, 3.0]))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_sparse_rows_are_the_dense_rows() -> None:
    layer = InputLayer(4, 3)
    torch.nn.init.normal_(layer.bias)
    assert len(SPARSE) == 3
    torch.testing.assert_close(layer(SPARSE), layer(DENSE))
    torch.testing.assert_close(layer(SPARSE)[1], layer.bias)  # an empty row
    layer(SPARSE).sum().backward()
    from_sparse = layer.weight.grad
    layer.zero_grad()
    layer(DENSE).sum().backward()
    assert from_sparse is not None
    torch.testing.assert_close(from_sparse, layer.weight.grad)


@pytest.mark.parametrize("hidden", [(), (5,), (6, 5)])
@pytest.mark.parametrize("linear_path", [False, True])
def test_the_output_layer_is_an_affine_map_of_the_raw_output(hidden: tuple[int, ...], linear_path: bool) -> None:
    net = SpectralNet(4, 3, hidden_channels=hidden, linear_path=linear_path).eval()
    raw = net.raw(DENSE)
    assert raw.shape == (3, 3)
    torch.testing.assert_close(net(DENSE), raw)  # identity before it is set
    torch.testing.assert_close(net(SPARSE), net(DENSE))
    offset, rotation = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    net.set_output_layer(offset.double(), rotation.double())
    expected = torch.stack([raw[:, 0] - 1, 2 * (raw[:, 1] - 2)], dim=1)
    torch.testing.assert_close(net(DENSE), expected)
    names = dict(net.named_parameters())
    assert "offset" not in names
    assert "rotation" not in names
    assert {"offset", "rotation"} <= set(net.state_dict())


def test_the_linear_path_is_linear() -> None:
    net = SpectralNet(4, 2, hidden_channels=()).eval()
    x = torch.randn(5, 4)
    torch.testing.assert_close(net(2 * x), 2 * net(x))
    assert net.output is None


def test_config_rebuilds_the_same_network() -> None:
    net = SpectralNet(4, 3, hidden_channels=(6, 5), dropout=0.2, input_dropout=0.1, linear_path=True).eval()
    again = SpectralNet(**net.config()).eval()
    again.load_state_dict(net.state_dict())
    assert torch.equal(again(DENSE), net(DENSE))
    head = FeatureMLP(4, 3, coordinate_channels=2, hidden_channels=6, dropout=0.3).eval()
    again = FeatureMLP(**head.config()).eval()
    again.load_state_dict(head.state_dict())
    assert torch.equal(again(DENSE, torch.ones(3, 2)), head(DENSE, torch.ones(3, 2)))


def test_dropout_acts_in_training_only_and_on_stored_entries_only() -> None:
    assert drop_inputs(DENSE, 0.5, False) is DENSE
    assert drop_inputs(SPARSE, 0.0, True) is SPARSE
    dropped = drop_inputs(SPARSE, 0.5, True)
    assert isinstance(dropped, SparseRows)
    assert torch.equal(dropped.columns, SPARSE.columns)
    assert set((dropped.values / SPARSE.values).tolist()) <= {0.0, 2.0}
    net = SpectralNet(4, 3, hidden_channels=(64,), dropout=0.5)
    x = torch.randn(8, 4)
    assert not torch.equal(net.train()(x), net(x))
    assert torch.equal(net.eval()(x), net(x))


def test_coordinates_enter_the_head() -> None:
    head = FeatureMLP(4, 3, coordinate_channels=2, hidden_channels=8).eval()
    zero, one = head(DENSE, torch.zeros(3, 2)), head(DENSE, torch.ones(3, 2))
    assert zero.shape == (3, 3)
    assert not torch.allclose(zero, one)
    torch.testing.assert_close(zero, head(DENSE, None))
    torch.testing.assert_close(head(SPARSE, torch.ones(3, 2)), one)
    assert FeatureMLP(4, 3).coordinates is None
