"""Hop tokens against powers of the dense operator."""

from __future__ import annotations

import pytest
import torch

from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.ops.hops import HopTokens, hop_tokens
from gsparc.ops.propagate import Propagation

PATH = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=5)


def test_tokens_of_a_path_by_hand() -> None:
    x = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])
    tokens = hop_tokens(x, Propagation(PATH, "mean"), 2)
    # means over neighbours: [2, 2.5, 5, 4, 0], and once more: [2.5, 3.5, 3.25, 5, 0]
    assert tokens.squeeze(-1).T.tolist() == [[1, 2, 4, 8, 16], [2, 2.5, 5, 4, 0], [2.5, 3.5, 3.25, 5, 0]]


def test_powers_of_the_dense_operator() -> None:
    step = Propagation(PATH, "sym")
    matrix = step(torch.eye(5))
    x, index = torch.randn(5, 3), torch.tensor([3, 0, 3])
    expected = torch.stack([torch.linalg.matrix_power(matrix, j) @ x for j in range(5)], dim=1)[index]
    torch.testing.assert_close(hop_tokens(x, step, 4, index), expected)
    torch.testing.assert_close(HopTokens(x, step, 4)(index), expected)


def test_no_hops_are_the_features_and_less_is_refused() -> None:
    x = torch.randn(5, 3)
    assert torch.equal(hop_tokens(x, Propagation(PATH), 0), x.unsqueeze(1))
    with pytest.raises(InputError, match="num_hops=-1 came"):
        hop_tokens(x, Propagation(PATH), -1)
