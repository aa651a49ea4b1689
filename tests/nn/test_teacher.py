"""Teachers: their formulas, sparse rows against dense ones, and what is not in their state."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from gsparc.graph import Graph
from gsparc.nn.spectral_map import InputLayer, SparseRows
from gsparc.nn.teacher import AppnpTeacher, FixedRows, SageTeacher, _blank, _drop, _SparseProject, _thin
from gsparc.ops.propagate import Propagation

GRAPH = Graph.from_edges([[0, 1, 2, 0], [1, 2, 3, 3]], num_nodes=5)  # a ring of four, and an isolated node
DENSE = torch.tensor(np.random.default_rng(0).poisson(0.6, (5, 7)), dtype=torch.float32)
ALL = torch.arange(5)


def sparse_rows(x: torch.Tensor) -> SparseRows:
    matrix = sp.csr_array(x.numpy())
    return SparseRows(
        torch.from_numpy(matrix.indptr).long(), torch.from_numpy(matrix.indices).long(), torch.from_numpy(matrix.data)
    )


def test_sage_is_its_formula() -> None:
    torch.manual_seed(0)
    teacher = SageTeacher(DENSE, Propagation(GRAPH, "mean"), 7, 3, hidden_channels=4).eval()
    mean = torch.tensor(
        [[0, 0.5, 0, 0.5, 0], [0.5, 0, 0.5, 0, 0], [0, 0.5, 0, 0.5, 0], [0.5, 0, 0.5, 0, 0], [0, 0, 0, 0, 0]]
    )
    weight, bias = teacher.input.weight, teacher.input.bias
    h = DENSE @ weight[:, :4] + bias[:4] + mean @ (DENSE @ weight[:, 4:] + bias[4:])
    h = F.relu(F.layer_norm(h, (4,)))
    out = teacher.output(h)
    torch.testing.assert_close(teacher(ALL), out[:, :3] + mean @ out[:, 3:])
    torch.testing.assert_close(teacher(torch.tensor([3, 1])), teacher(ALL)[[3, 1]])


def test_appnp_is_its_formula() -> None:
    torch.manual_seed(0)
    step = Propagation(GRAPH, "sym")
    teacher = AppnpTeacher(DENSE, step, 7, 3, hidden_channels=4, num_steps=200).eval()
    own = teacher.output(F.relu(F.layer_norm(DENSE @ teacher.input.weight + teacher.input.bias, (4,))))
    matrix = step(torch.eye(5))
    limit = 0.1 * torch.linalg.solve(torch.eye(5) - 0.9 * matrix, own)  # where personalised PageRank ends
    torch.testing.assert_close(teacher(ALL), limit, rtol=1e-4, atol=1e-5)


def test_all_steps_of_appnp_are_one_matrix() -> None:
    teacher = AppnpTeacher(DENSE, Propagation(GRAPH, "sym"), 7, 3, hidden_channels=4).eval()
    own, rows = torch.randn(5, 3), torch.tensor([4, 0, 3])
    torch.testing.assert_close(teacher._all_steps()[rows] @ own, teacher._steps(own)[rows])
    assert "_matrix" not in teacher.state_dict()


@pytest.mark.parametrize("network", [SageTeacher, AppnpTeacher])
def test_sparse_rows_give_the_same_values_and_gradients(network) -> None:
    step = Propagation(GRAPH, "mean" if network is SageTeacher else "sym")
    grads = []
    for x in (DENSE, sparse_rows(DENSE)):
        torch.manual_seed(1)
        teacher = network(x, step, 7, 3, hidden_channels=4).eval()
        out = teacher(ALL)
        out.square().sum().backward()
        grads.append([out.detach(), *(p.grad for p in teacher.parameters())])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_dropped_sparse_entries_agree_with_their_transpose() -> None:
    layer = InputLayer(7, 2)
    rows = FixedRows(sparse_rows(DENSE), 7)
    torch.manual_seed(3)
    out = rows.project(layer, dropout=0.5, training=True)
    coming = torch.randn(5, 2)
    out.backward(coming)
    # which entries were kept is read off the same draw
    torch.manual_seed(3)
    x = sparse_rows(DENSE)
    keep = torch.rand(len(x.values)) >= 0.5
    assert 0 < int(keep.sum()) < len(keep)
    dropped = torch.zeros(5, 7)
    dropped[torch.repeat_interleave(ALL, x.pointers.diff()), x.columns] = x.values * keep * 2
    torch.testing.assert_close(out.detach(), (dropped @ layer.weight + layer.bias).detach())
    torch.testing.assert_close(layer.weight.grad, dropped.T @ coming)


def test_zeros_in_the_place_of_dropped_entries_change_nothing() -> None:
    rows = FixedRows(sparse_rows(DENSE), 7)
    weight = torch.randn(7, 2, requires_grad=True)
    keep = torch.rand(len(rows.x.values)) >= 0.5
    found = []
    for leave_out in (_thin, _blank):
        parts = leave_out(rows.x, keep, 2.0), leave_out(rows._transpose, keep[rows._order], 2.0)
        out = _SparseProject.apply(weight, *parts)
        found.append((out.detach(), *torch.autograd.grad(out.square().sum(), weight)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_nothing_is_dropped_out_of_training_and_the_mean_is_kept_in_it() -> None:
    h = torch.ones(200, 200)
    assert torch.equal(_drop(h, 0.5, False), h)
    dropped = _drop(h, 0.25, True)
    np.testing.assert_allclose(dropped.unique(), [0, 4 / 3], rtol=1e-6)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("network", [SageTeacher, AppnpTeacher])
def test_features_and_edges_are_no_part_of_the_state(network) -> None:
    teacher = network(DENSE, Propagation(GRAPH), 7, 3, hidden_channels=4)
    assert {name.split(".")[0] for name in teacher.state_dict()} == {"input", "norm", "output"}
    assert teacher.x.x is DENSE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("network", [SageTeacher, AppnpTeacher])
@pytest.mark.parametrize("x", [DENSE, sparse_rows(DENSE)], ids=["dense", "sparse"])
def test_cuda_gives_the_same(x, network) -> None:
    torch.manual_seed(0)
    kind = "mean" if network is SageTeacher else "sym"
    here = network(x, Propagation(GRAPH, kind), 7, 3, hidden_channels=4).eval()
    moved = (
        x.cuda() if isinstance(x, torch.Tensor) else SparseRows(x.pointers.cuda(), x.columns.cuda(), x.values.cuda())
    )
    there = network(moved, Propagation(GRAPH, kind, "cuda"), 7, 3, hidden_channels=4).cuda().eval()
    there.load_state_dict(here.state_dict())
    torch.testing.assert_close(there(ALL.cuda()).cpu(), here(ALL), rtol=1e-4, atol=1e-4)
