"""The token transformer: read-out by hand, positions, short lists, what rebuilds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gsparc.exceptions import InputError
from gsparc.nn.phormer import TokenInput, TokenTransformer, _short_attention


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def model(**changes) -> TokenTransformer:
    settings = {"num_tokens": 5, "hidden_channels": 16, "num_heads": 4} | changes
    return TokenTransformer(6, 3, **settings)


def test_the_read_out_by_hand() -> None:
    net = model(num_layers=0).eval()  # without layers a token does not see the others
    tokens = torch.randn(2, 3, 6)
    z = net.encode(tokens)
    rows = net.input.norm(tokens @ net.input.linear.weight + net.input.linear.bias)
    torch.testing.assert_close(z, net.norm(rows + net.position[:3]))
    w = torch.cat([torch.randn(16), net.score.weight[0]])  # NAGphormer's w: any numbers for the node's own half
    for i in range(2):
        scores = torch.stack([w @ torch.cat([z[i, 0], z[i, j]]) for j in (1, 2)])
        alpha = scores.exp() / scores.exp().sum()
        torch.testing.assert_close(net.attention(tokens)[i], alpha)
        read = z[i, 0] + alpha[0] * z[i, 1] + alpha[1] * z[i, 2]
        logits = net.output(torch.nn.functional.gelu(net.hidden(read)))
        torch.testing.assert_close(net(tokens)[i], logits)


def test_attention_by_hand() -> None:
    net = model(num_heads=1, hidden_channels=4).eval()
    layer: Any = net.layers[0]
    z = torch.randn(1, 3, 4)
    q, k, v = layer.qkv(layer.attention_norm(z[0])).chunk(3, dim=1)
    mixed = torch.softmax(q @ k.T / 4**0.5, dim=1) @ v
    after = z[0] + layer.mix(mixed)
    after = after + layer.contract(torch.nn.functional.gelu(layer.expand(layer.mlp_norm(after))))
    torch.testing.assert_close(layer(z)[0], after)


@pytest.mark.parametrize(("layers", "own", "length"), [(1, 0, 5), (2, 7, 5), (0, 0, 2), (1, 0, 1)])
def test_inference_from_projected_rows_is_the_forward_pass(layers: int, own: int, length: int) -> None:
    net = model(num_layers=layers, own_channels=own).eval()
    for bias in (part.bias for part in net.modules() if isinstance(part, torch.nn.Linear) and part.bias is not None):
        torch.nn.init.normal_(bias)  # each of them counts
    tokens, further = torch.randn(9, length, 6), torch.randn(9, own) if own else None
    with torch.no_grad():
        got = net.infer(net.project(tokens.transpose(0, 1)), further)
        torch.testing.assert_close(got, net(tokens, further), atol=1e-5, rtol=1e-5)


def test_heads_are_separate() -> None:
    # the value of one head's channels does not depend on the other head's keys
    layer: Any = model(num_heads=2, hidden_channels=4).eval().layers[0]
    torch.nn.init.eye_(layer.mix.weight)
    torch.nn.init.zeros_(layer.contract.weight)
    z = torch.randn(1, 3, 4)
    before = layer(z)
    with torch.no_grad():
        layer.qkv.weight[4 + 2 : 8] *= 5  # keys of head 1, channels 2 and 3
    after = layer(z)
    torch.testing.assert_close(after[..., :2], before[..., :2])
    assert not torch.allclose(after[..., 2:], before[..., 2:])


def test_positions_tell_neighbourhoods_apart() -> None:
    net = model().eval()
    tokens = torch.randn(4, 5, 6)
    swapped = tokens[:, [0, 2, 1, 3, 4]]
    assert not torch.allclose(net(tokens), net(swapped), atol=1e-5)
    torch.nn.init.zeros_(net.position)
    torch.testing.assert_close(net(tokens), net(swapped))  # nothing else does
    assert not torch.allclose(net(tokens), net(tokens[:, [1, 0, 2, 3, 4]]), atol=1e-5)  # the node itself is special


def test_attention_weights_are_a_distribution_and_follow_the_scores() -> None:
    net = model().eval()
    tokens = torch.randn(7, 5, 6)
    weights = net.attention(tokens)
    assert weights.shape == (7, 4)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(7))
    assert weights.std() > 0
    top = net.score(net.encode(tokens)[:, 1:]).squeeze(-1).argmax(dim=1)
    assert torch.equal(weights.argmax(dim=1), top)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_short_lists_and_a_batch_of_one(length: int) -> None:
    net = model(num_layers=2).eval()
    tokens = torch.randn(6, length, 6)
    logits = net(tokens)
    assert logits.shape == (6, 3)
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(net(tokens[2:3]), logits[2:3])
    assert net.attention(tokens).shape == (6, length - 1)
    assert net(tokens[:0]).shape == (0, 3)


def test_gradients_reach_every_parameter() -> None:
    net = model(num_layers=2)
    net(torch.randn(8, 5, 6)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
        if name == "position":
            assert (parameter.grad.abs().amax(dim=1) > 0).all()


def test_dropout_in_training_only() -> None:
    tokens = torch.randn(8, 5, 6)
    for settings in ({"dropout": 0.5}, {"dropout": 0.0, "input_dropout": 0.5}):
        net = model(**settings)
        assert not torch.equal(net(tokens), net(tokens))
        net.eval()
        assert torch.equal(net(tokens), net(tokens))
    net = model(dropout=0.0)
    torch.testing.assert_close(net.train()(tokens), net.eval()(tokens))


def test_features_of_any_scale_enter_alike() -> None:
    layer = TokenInput(6, 16, num_tokens=3)
    tokens = torch.randn(2, 3, 6)
    torch.testing.assert_close(layer(tokens), layer(1000 * tokens), rtol=1e-3, atol=1e-3)


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
    assert net.eval().attention(tokens).mean(dim=0).argmax() == 2  # token 3 is neighbourhood 2, counted from 0


def test_config_rebuilds_the_same_network() -> None:
    net = model(num_layers=2, num_heads=2, dropout=0.2, input_dropout=0.3).eval()
    assert net.config()["input_dropout"] == 0.3
    again = TokenTransformer(**net.config()).eval()
    again.load_state_dict(net.state_dict())
    tokens = torch.randn(2, 4, 6)
    assert torch.equal(again(tokens), net(tokens))
    assert again.out_channels == 3


@pytest.mark.parametrize("heads", [0, 3])
def test_heads_must_divide_the_width(heads: int) -> None:
    with pytest.raises(InputError, match=rf"num_heads={heads} came, expected a divisor of hidden_channels=16"):
        model(num_heads=heads)


@pytest.mark.parametrize("shape", [(2, 6), (2, 0, 6), (2, 6, 6), (2, 5, 7)])
def test_tokens_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"came, expected \[nodes, 1 to 5 tokens, 6 features\]"):
        model()(torch.zeros(shape))


def test_attention_over_short_lists_is_attention() -> None:
    query, key, value = torch.randn(3, 5, 2, 11, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(_short_attention(query, key, value), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_gives_the_same() -> None:
    torch.manual_seed(0)
    model, tokens = TokenTransformer(6, 3, num_tokens=5, hidden_channels=16).eval(), torch.randn(4, 5, 6)
    here = model(tokens)
    torch.testing.assert_close(model.cuda()(tokens.cuda()).cpu(), here, rtol=1e-4, atol=1e-5)
