"""The Mamba block by hand, its causality and selection; the network over both directions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gsparc.exceptions import InputError
from gsparc.nn.samba import MambaBlock, SambaNet, causal_conv


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def model(**changes) -> SambaNet:
    settings = {"num_tokens": 5, "hidden_channels": 16, "state_channels": 4} | changes
    return SambaNet(6, 3, **settings)


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def block_by_loops(block: MambaBlock, tokens: Tensor) -> list[list[float]]:
    """The equations of the paper for one sequence, number by number."""
    inner, state, rank, width = block.inner_channels, block.state_channels, block.delta_rank, block.conv_width
    weight = {name: parameter.tolist() for name, parameter in block.named_parameters()}

    def times(name: str, vector: list[float]) -> list[float]:
        return [sum(w * v for w, v in zip(row, vector, strict=True)) for row in weight[name]]

    projected = [times("in_proj.weight", row) for row in tokens.tolist()]
    h = [[0.0] * state for _ in range(inner)]
    outputs = []
    for t in range(len(projected)):
        x = []
        for c in range(inner):
            # tap 0 is the furthest back; before the first position there are zeros
            past = [projected[t - width + 1 + k][c] if t - width + 1 + k >= 0 else 0.0 for k in range(width)]
            x.append(silu(weight["conv_bias"][c] + sum(weight["conv_weight"][k][c] * past[k] for k in range(width))))
        selected = times("select.weight", x)
        low, B, C = selected[:rank], selected[rank : rank + state], selected[rank + state :]
        raw = [a + b for a, b in zip(times("delta_proj.weight", low), weight["delta_proj.bias"], strict=True)]
        delta = [math.log1p(math.exp(r)) for r in raw]
        gated = []
        for c in range(inner):
            y = weight["D"][c] * x[c]
            for n in range(state):
                a = -math.exp(weight["A_log"][c][n])
                h[c][n] = math.exp(delta[c] * a) * h[c][n] + delta[c] * B[n] * x[c]
                y += C[n] * h[c][n]
            gated.append(y * silu(projected[t][inner + c]))
        outputs.append(times("out_proj.weight", gated))
    return outputs


@pytest.mark.parametrize(("channels", "state", "expand", "width"), [(1, 1, 1, 1), (2, 2, 2, 3), (17, 2, 1, 4)])
def test_the_block_by_hand(channels: int, state: int, expand: int, width: int) -> None:
    block = MambaBlock(channels, state_channels=state, expand=expand, conv_width=width).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    tokens = torch.randn(2, 5, channels, dtype=torch.float64)
    expected = torch.tensor([block_by_loops(block, row) for row in tokens], dtype=torch.float64)
    torch.testing.assert_close(block(tokens), expected, rtol=1e-10, atol=1e-10)


def test_the_convolution_by_hand_and_by_conv1d() -> None:
    x = torch.tensor([[[1.0], [2.0], [3.0]]])
    weight = torch.tensor([[10.0], [1.0]])  # ten times the one before, once the present
    assert causal_conv(x, weight, torch.tensor([0.5])).flatten().tolist() == [1.5, 12.5, 23.5]
    x, weight, bias = torch.randn(3, 6, 5), torch.randn(4, 5), torch.randn(5)
    expected = torch.nn.functional.conv1d(x.mT, weight.T[:, None], bias, padding=3, groups=5)[..., :6].mT
    torch.testing.assert_close(causal_conv(x, weight, bias), expected)


@pytest.mark.parametrize(("width", "length"), [(4, 6), (4, 2), (1, 3)])
def test_the_gradient_of_the_convolution_by_hand_is_right(width: int, length: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, length, 3, dtype=torch.float64), torch.randn(width, 3, dtype=torch.float64)
    inputs = tuple(tensor.requires_grad_() for tensor in (x, weight, torch.randn(3, dtype=torch.float64)))
    assert torch.autograd.gradcheck(causal_conv, inputs)


@pytest.mark.parametrize("changed", [0, 2, 5])
def test_the_block_is_causal(changed: int) -> None:
    block = MambaBlock(4)
    tokens = torch.randn(3, 6, 4)
    other = tokens.clone()
    other[:, changed] += 1
    before, after = block(tokens), block(other)
    assert torch.equal(after[:, :changed], before[:, :changed])
    assert ((after - before)[:, changed:].abs().amax(dim=(0, 2)) > 0).all()  # and remembers: all later ones move


def test_the_state_remembers_beyond_the_convolution() -> None:
    block = MambaBlock(4, conv_width=1)
    tokens = torch.randn(1, 12, 4)
    other = tokens.clone()
    other[:, 0] += 1
    assert not torch.equal(block(other)[:, 11], block(tokens)[:, 11])


def test_steps_and_what_is_read_and_written_depend_on_the_input() -> None:
    block = MambaBlock(4, state_channels=3)
    varied, constant = block.selection(torch.randn(1, 6, 8)), block.selection(torch.ones(1, 6, 8))
    for selected, same in zip(varied, constant, strict=True):
        assert (selected[0].std(dim=0) > 1e-2 * selected[0].abs().mean(dim=0)).all()  # differs from token to token
        torch.testing.assert_close(same[0], same[0, :1].expand_as(same[0]))
    delta, _, _ = block.selection(torch.randn(50, 6, 8))
    assert (delta > 0).all()


def test_the_scan_is_not_a_linear_time_invariant_system() -> None:
    """Without gate and non-linearities a fixed Delta, B, C would make the map from x to y linear."""
    from gsparc.ops.scan import selective_scan

    block = MambaBlock(4, state_channels=3)
    first, second = torch.randn(2, 1, 6, 8)

    def selective(x: Tensor) -> Tensor:
        return selective_scan(x, *arrange(*block.selection(x)))

    def fixed(x: Tensor) -> Tensor:
        return selective_scan(x, *arrange(*block.selection(torch.ones(1, 6, 8))))

    def arrange(delta: Tensor, B: Tensor, C: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return delta, -block.A_log.exp(), B, C, torch.zeros(8)

    torch.testing.assert_close(fixed(first + second), fixed(first) + fixed(second))
    superposed = selective(first) + selective(second)
    gap = (selective(first + second) - superposed).norm() / superposed.norm()
    assert gap > 0.1


def test_first_values_are_those_of_mamba() -> None:
    block = MambaBlock(32, state_channels=5)
    assert block.delta_rank == 2
    A = -block.A_log.exp()
    torch.testing.assert_close(A, -torch.arange(1.0, 6).expand(64, 5))
    steps = torch.nn.functional.softplus(block.delta_proj.bias)
    assert steps.min() >= 0.001 - 1e-6
    assert steps.max() <= 0.1 + 1e-6
    assert steps.max() / steps.min() > 20  # spread over the whole range
    assert (block.D == 1).all()


def test_one_layer_sees_every_token_in_both_directions() -> None:
    net = model(conv_width=1).eval()
    tokens = torch.randn(1, 5, 6)
    z = net.encode(tokens)
    for changed in range(5):
        other = tokens.clone()
        other[:, changed] += torch.randn(6)
        moved = (net.encode(other) - z).abs().amax(dim=(0, 2)) > 0
        assert moved[-1]  # the node itself, last after turning
        assert moved[0]  # the largest neighbourhood, last in the other direction
        assert moved[4 - changed]


def test_the_largest_neighbourhood_comes_first() -> None:
    net = model(num_layers=0).eval()
    tokens = torch.randn(2, 5, 6)
    torch.testing.assert_close(net.encode(tokens), net.norm(net.input(tokens)).flip(1))
    # along the sequence the node itself is last: with the other direction silent it moves no other position
    net = model().eval()
    layer: Any = net.layers[0]
    torch.nn.init.zeros_(layer.against.out_proj.weight)
    other = tokens.clone()
    other[:, 0] += torch.randn(6)
    moved = (net.encode(other) - net.encode(tokens)).abs().amax(dim=(0, 2)) > 0
    assert moved.tolist() == [False, False, False, False, True]
    other = tokens.clone()
    other[:, 4] += torch.randn(6)
    assert ((net.encode(other) - net.encode(tokens)).abs().amax(dim=(0, 2)) > 0).all()


def test_gradients_reach_every_parameter() -> None:
    net = model(num_layers=2)
    net(torch.randn(8, 5, 6)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("length", [1, 2, 5])
def test_short_lists_and_a_batch_of_one(length: int) -> None:
    net = model(num_layers=2).eval()
    tokens = torch.randn(6, length, 6)
    logits = net(tokens)
    assert logits.shape == (6, 3)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(net(tokens[2:3]), logits[2:3])
    assert net(tokens[:0]).shape == (0, 3)


def test_dropout_in_training_only() -> None:
    tokens = torch.randn(8, 5, 6)
    for settings in ({"dropout": 0.5}, {"dropout": 0.0, "input_dropout": 0.5}):
        net = model(**settings)
        assert not torch.equal(net(tokens), net(tokens))
        net.eval()
        assert torch.equal(net(tokens), net(tokens))


def test_it_learns_what_only_a_neighbourhood_knows() -> None:
    net = model(dropout=0.0)
    tokens = torch.randn(256, 5, 6)
    labels = (tokens[:, 3, 0] > 0).long()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(tokens), labels).backward()
        optimizer.step()
    assert (net(tokens).argmax(dim=1) == labels).float().mean() > 0.95


def test_config_rebuilds_the_same_network() -> None:
    net = model(num_layers=2, expand=1, conv_width=2, dropout=0.2, input_dropout=0.3).eval()
    assert net.config()["conv_width"] == 2
    again = SambaNet(**net.config()).eval()
    again.load_state_dict(net.state_dict())
    tokens = torch.randn(2, 4, 6)
    assert torch.equal(again(tokens), net(tokens))
    assert again.out_channels == 3


@pytest.mark.parametrize("shape", [(2, 6), (2, 0, 6), (2, 6, 6), (2, 5, 7)])
def test_tokens_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"came, expected \[nodes, 1 to 5 tokens, 6 features\]"):
        model()(torch.zeros(shape))
