"""The spectral convolution: by hand on three nodes, by sets and by stored sums, and what rebuilds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gsparc.nn.gcn import (
    SpectralConv,
    SpectralGCN,
    spectral_convolution,
    spectral_mixing,
    spectral_summary,
    with_constant,
)
from gsparc.nn.spectral_map import SparseRows


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def model(**changes: Any) -> SpectralGCN:
    settings = {"coordinate_channels": 2, "hidden_channels": (7, 9), "dropout": 0.4, "input_dropout": 0.4} | changes
    net = SpectralGCN(5, 3, **settings)
    for conv in net.convs:
        torch.nn.init.normal_(conv.filter)  # type: ignore[arg-type]
    return net


def test_the_convolution_by_hand() -> None:
    u = torch.tensor([[[1.0, 1.0], [1.0, 0.0], [1.0, -1.0]]])
    x = torch.tensor([[[3.0, 0.0], [0.0, 6.0], [3.0, 3.0]]])
    # U^T X = [[6, 9], [0, -3]], over three nodes
    summary = spectral_summary(x, u)
    assert summary.tolist() == [[[2.0, 3.0], [0.0, -1.0]]]
    # times g = (2, 1/2): [[4, 6], [0, -1/2]]; and back by the rows of U
    out = spectral_convolution(u, torch.tensor([2.0, 0.5]), summary)
    assert out.tolist() == [[[4.0, 5.5], [4.0, 6.0], [4.0, 6.5]]]


def test_sets_do_not_mix() -> None:
    u, x = torch.randn(4, 6, 3), torch.randn(4, 6, 2)
    for i in range(4):
        torch.testing.assert_close(spectral_summary(x, u)[i], u[i].T @ x[i] / 6)


@pytest.mark.parametrize(("nodes", "read"), [(3, 3), (3, 1), (40, 40), (40, 1)])
def test_both_orders_of_products_give_the_same_convolution_and_gradient(nodes: int, read: int) -> None:
    torch.manual_seed(0)
    u, x = torch.randn(2, nodes, 5, dtype=torch.float64), torch.randn(2, nodes, 4, dtype=torch.float64)
    found = []
    for convolve in (
        lambda g, x: spectral_mixing(u[:, :read], g, u, x),
        lambda g, x: spectral_convolution(u[:, :read], g, spectral_summary(x, u)),
    ):
        g, rows = torch.rand(5, dtype=torch.float64, requires_grad=True), x.clone().requires_grad_()
        with torch.no_grad():
            g.copy_(torch.arange(5))
        out = convolve(g, rows)
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        found.append((out, g.grad, rows.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_layer_by_hand() -> None:
    conv = SpectralConv(2, 2, coordinate_channels=1)
    with torch.no_grad():
        conv.filter.copy_(torch.tensor([1.0, 3.0]))
        conv.own.weight.copy_(torch.eye(2))
        conv.own.bias.zero_()
        conv.near.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))  # swaps the columns
    u = torch.tensor([[[1.0, 1.0], [1.0, -1.0]]])  # the constant, and one that tells the two nodes apart
    x = torch.tensor([[[4.0, 1.0], [2.0, 3.0]]])
    # means (3, 2), contrasts (1, -1): 3 times them added and taken off
    convolved = torch.tensor([[[6.0, -1.0], [0.0, 5.0]]])
    expected = F.gelu(conv.norm(x + convolved.flip(-1)))
    torch.testing.assert_close(conv(x, u), expected)
    given = torch.tensor([[[3.0, 2.0], [1.0, -1.0]]])
    torch.testing.assert_close(conv(x[:, :1], u[:, :1], given), expected[:, :1])


def test_the_constant_eigenfunction_comes_first() -> None:
    assert with_constant(torch.tensor([[[5.0], [6.0]]])).tolist() == [[[1.0, 5.0], [1.0, 6.0]]]


def blocks(x: Tensor, u: Tensor, own: Tensor | None, sizes: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor, Any]]:
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        yield x[None, part], u[None, part], None if own is None else own[part]
        start += size


@pytest.mark.parametrize("own_channels", [0, 4])
@pytest.mark.parametrize("hidden", [(7,), (7, 9), (6, 5, 4)])
@pytest.mark.parametrize("sizes", [(12,), (5, 7), (1, 10, 1)])
def test_stored_sums_over_all_nodes_are_one_set_of_all_nodes(
    sizes: tuple[int, ...], hidden: tuple[int, ...], own_channels: int
) -> None:
    net = model(hidden_channels=hidden, own_channels=own_channels).eval()
    x, u = torch.randn(12, 5), torch.randn(12, 2)
    own = torch.randn(12, 4) if own_channels else None
    summaries = net.layer_summaries(lambda: blocks(x, u, own, sizes))
    assert [tuple(s.shape) for s in summaries] == [(3, width) for width in (hidden[0], *hidden[:-1])]
    together = net(x[None], u[None], own)
    stored = net(x[None], u[None], own, summaries)
    torch.testing.assert_close(stored, together, atol=1e-5, rtol=1e-4)
    for i in (0, 11):  # one node at a time: that is what the sums are for
        one = net(x[None, i : i + 1], u[None, i : i + 1], None if own is None else own[i : i + 1], summaries, "flat")
        torch.testing.assert_close(one[0], together[0, i], atol=1e-5, rtol=1e-4)


def test_ways_to_read() -> None:
    net = model().eval()
    x, u = torch.randn(4, 6, 5), torch.randn(4, 6, 2)
    sets = net(x, u)
    assert sets.shape == (4, 6, 3)
    torch.testing.assert_close(net(x, u, read="first"), sets[:, 0])
    torch.testing.assert_close(net(x, u, read="flat"), sets.reshape(24, 3))


def test_the_order_of_the_others_does_not_matter_and_they_do() -> None:
    net = model().eval()
    x, u = torch.randn(2, 6, 5), torch.randn(2, 6, 2)
    order = torch.tensor([0, 4, 2, 5, 1, 3])
    first = net(x, u, read="first")
    torch.testing.assert_close(net(x[:, order], u[:, order], read="first"), first)
    torch.testing.assert_close(net(x[:, order], u[:, order]), net(x, u)[:, order])
    moved = x.clone()
    moved[:, 3] += 1
    assert (net(moved, u, read="first") - first).abs().max() > 1e-4
    # and another set does not
    moved[0] = x[0]
    torch.testing.assert_close(net(moved, u, read="first")[0], first[0])


def test_further_features_are_the_first_nodes() -> None:
    net = model(own_channels=4).eval()
    x, u, own = torch.randn(3, 6, 5), torch.randn(3, 6, 2), torch.randn(3, 4)
    everybody = torch.zeros(3, 6, 4)
    everybody[:, 0] = own
    # the layer of further features has a bias: nodes without them do not get it
    net.own.bias.data.zero_()  # type: ignore[union-attr]
    expected = net(x, u, everybody.flatten(0, 1), read="first")
    torch.testing.assert_close(net(x, u, own, read="first"), expected)
    sparse = own.clone()
    sparse[sparse < 0] = 0
    at, columns = sparse.nonzero(as_tuple=True)
    pointers = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(at, minlength=3).cumsum(0)])
    rows = SparseRows(pointers, columns, sparse[at, columns])
    torch.testing.assert_close(net(x, u, rows, read="first"), net(x, u, sparse, read="first"))


@pytest.mark.parametrize("read", ["sets", "first", "flat"])
def test_gradients_reach_every_parameter(read: Any) -> None:
    net = model(own_channels=4).train()
    out = net(torch.randn(8, 6, 5), torch.randn(8, 6, 2), torch.randn(8, 4), read=read)
    F.cross_entropy(out.reshape(-1, 3), torch.randint(3, (out.numel() // 3,))).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_dropout_is_for_training_only() -> None:
    net = model()
    x, u = torch.randn(2, 6, 5), torch.randn(2, 6, 2)
    assert not torch.equal(net.train()(x, u), net(x, u))
    assert torch.equal(net.eval()(x, u), net(x, u))
    assert not any(s.requires_grad for s in net.layer_summaries(lambda: iter([(x[:1], u[:1], None)])))


def test_the_config_rebuilds_it() -> None:
    import json

    net = model(own_channels=4).eval()
    again = SpectralGCN(**json.loads(json.dumps(net.config()))).eval()
    assert again.config() == net.config()
    again.load_state_dict(net.state_dict())
    x, u, own = torch.randn(2, 6, 5), torch.randn(2, 6, 2), torch.randn(2, 4)
    assert torch.equal(again(x, u, own), net(x, u, own))
    assert (again.dropout, again.input_dropout) == (0.4, 0.4)
