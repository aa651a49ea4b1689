"""GraphSAGE and GCN: layers worked out by hand, a cold node read by its own row, and a published figure."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc.baselines import GCNBaseline, GraphSAGEBaseline
from gsparc.baselines.gcn import GCNNet
from gsparc.baselines.graph_sage import SageNet, adjacency_tensor
from gsparc.datasets import communities_of_blobs
from gsparc.exceptions import GraphShapeError, InputError, LabelError
from gsparc.graph import Graph
from gsparc.nn.teacher import FixedRows
from gsparc.ops.propagate import Propagation
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.classify import ClassTask, Judge, class_logits
from gsparc.training.loop import LoopSettings, run_loop

pytest.importorskip("torch_geometric", reason="the layers are torch_geometric's; install gsparc[pyg]")

PATH = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4)  # 0 - 1 - 2, and 3 alone
X4 = torch.tensor([[1.0, 0, 0, 2], [0, 1, 0, 0], [0, 2, 1, 0], [3, 0, 0, 1]])
EVERY = torch.arange(4)


def sage() -> SageNet:
    torch.manual_seed(0)
    module = SageNet(FixedRows(X4, 4), adjacency_tensor(PATH), 4, 2, hidden_channels=3).eval()
    module.norm = torch.nn.Identity()
    torch.nn.init.normal_(module.bias)
    return module


def test_two_layers_by_hand() -> None:
    module = sage()
    x = X4 / 2  # rows are brought from length sqrt(4) to length one
    around, own = module.input.weight.chunk(2, dim=1)
    mean = torch.stack([x[1], (x[0] + x[2]) / 2, x[1], torch.zeros(4)])
    h = torch.relu(mean @ around + x @ own + module.bias)
    mean = torch.stack([h[1], (h[0] + h[2]) / 2, h[1], torch.zeros(3)])
    second = module.second
    expected = mean @ second.lin_l.weight.T + second.lin_l.bias + h @ second.lin_r.weight.T
    torch.testing.assert_close(module(EVERY), expected)
    torch.testing.assert_close(module(torch.tensor([2, 0])), expected[[2, 0]])


def test_the_same_as_the_layers_of_torch_geometric_in_their_own_order() -> None:
    from torch_geometric.nn import SAGEConv

    module = sage()
    conv = SAGEConv(4, 3)
    around, own = (module.input.weight / 2).chunk(2, dim=1)
    conv.load_state_dict({"lin_l.weight": around.T, "lin_l.bias": module.bias, "lin_r.weight": own.T})
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    torch.testing.assert_close(module(EVERY), module.second(torch.relu(conv(X4, edges)), edges))


def test_a_cold_node_is_read_as_an_isolated_one() -> None:
    module = sage()
    torch.testing.assert_close(module(EVERY[:1], X4[3:]), module(EVERY)[3:])
    assert not torch.allclose(module(EVERY[:1], X4[:1]), module(EVERY)[:1])


def test_a_convolution_by_hand() -> None:
    torch.manual_seed(0)
    module = GCNNet(FixedRows(X4, 4), Propagation(PATH, "sym"), 4, 2, hidden_channels=3).eval()
    # D^-1/2 (A + I) D^-1/2 with degrees 2, 3, 2, 1
    a, b = 0.5, 6**-0.5
    P = torch.tensor([[a, b, 0, 0], [b, 1 / 3, b, 0], [0, b, a, 0], [0, 0, 0, 1]])
    h = torch.relu(P @ (X4 / 2) @ module.input.weight + module.first.bias)
    expected = P @ h @ module.second.lin.weight.T + module.second.bias
    torch.testing.assert_close(module(EVERY), expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_penalty_is_a_gradient(sparse: bool) -> None:
    source = FeatureSource(sp.csr_array(X4.numpy()) if sparse else X4.numpy(), Scaling(True, None, None))
    gradients = []
    for l2 in (0.0, 0.25):
        torch.manual_seed(0)
        rows = FixedRows(source.rows(EVERY), 4)
        module = GCNNet(rows, Propagation(PATH, "sym"), 4, 2, hidden_channels=3, l2=l2).eval()
        module(EVERY).square().sum().backward()
        gradients.append(module.input.weight.grad)
    torch.testing.assert_close(gradients[1] - gradients[0], 0.25 * module.input.weight.detach())


DATA = communities_of_blobs(500, num_blobs=50, dim=12, random_state=0)
SEEN, COLD = np.arange(400), np.arange(400, 500)
LABELS = np.where(SEEN % 2, DATA.y[SEEN], -1)
GRAPH = DATA.graph[SEEN]
SAGE = GraphSAGEBaseline(max_steps=60, hidden_channels=32, random_state=0, device="cpu")


def test_sage_learns_from_edges_and_answers_without_them() -> None:
    judges = (DATA.X[COLD[:50]], DATA.y[COLD[:50]])
    model = clone(SAGE).fit(DATA.X[SEEN], LABELS, graph=GRAPH, validation=judges)
    assert (model.predict_seen() == DATA.y[SEEN])[LABELS < 0].mean() > 0.85
    proba = model.predict_proba(DATA.X[COLD[50:]])
    assert (model.classes_[proba.argmax(axis=1)] == DATA.y[COLD[50:]]).mean() > 0.4  # 0.25 by chance
    np.testing.assert_allclose(model.predict_proba(DATA.X[COLD[50:51]]), proba[:1], atol=1e-5)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert model.module_.x is None  # no seen node is kept


def test_sage_with_sparse_rows_strings_and_the_same_bytes() -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(0.05, (400, 80)).astype(np.float32))
    names = np.array(["a", "b", "c", "d"])[DATA.y[SEEN]]
    short = clone(SAGE).set_params(max_steps=5)
    first, again = (clone(short).fit(X, names, graph=GRAPH).predict_proba(X) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    assert set(clone(short).fit(X, names, graph=GRAPH).predict(X)) <= set("abcd")


def test_gcn_finds_hidden_labels() -> None:
    model = GCNBaseline(max_steps=60, random_state=0, device="cpu").fit(DATA.X[SEEN], LABELS, graph=GRAPH)
    assert (model.predict_seen() == DATA.y[SEEN])[LABELS < 0].mean() > 0.85


@pytest.mark.parametrize("model", [SAGE, GCNBaseline(device="cpu")], ids=["sage", "gcn"])
def test_bad_input(model) -> None:
    with pytest.raises(NotFittedError):
        clone(model).predict_seen()
    with pytest.raises(GraphShapeError, match="graph has 400 nodes but X has 399 rows"):
        clone(model).fit(DATA.X[SEEN][1:], LABELS[1:], graph=GRAPH)
    with pytest.raises(LabelError, match="every label is -1"):
        clone(model).fit(DATA.X[SEEN], np.full(400, -1), graph=GRAPH)
    with pytest.raises(InputError, match="hidden_channels=0 came"):
        clone(model).set_params(hidden_channels=0).fit(DATA.X[SEEN], LABELS, graph=GRAPH)


@pytest.mark.data
def test_gcn_reaches_its_published_accuracy(data_folder: Path, tmp_path: Path) -> None:
    """Kipf and Welling, table 2: 81.5 % on the public split of Cora; 140 labels train, 500 choose the step."""
    from torch_geometric.datasets import Planetoid

    raw = data_folder / "planetoid" / "Cora"
    if not raw.is_dir():
        pytest.skip("the public split of Cora (planetoid/Cora/raw) is not on this machine")
    shutil.copytree(raw, tmp_path / "Cora")  # its loader writes beside what it reads
    data = Planetoid(str(tmp_path), "Cora")[0]
    X, y = sp.csr_array(data.x.numpy()), data.y.numpy()
    train, judges, test = (np.flatnonzero(getattr(data, f"{name}_mask")) for name in ("train", "val", "test"))
    assert len(train) == 140
    every = torch.arange(len(y))
    rows = FixedRows(FeatureSource(X, Scaling.fit(X)).rows(every), X.shape[1])
    operator = Propagation(Graph.from_edges(data.edge_index.numpy(), num_nodes=len(y)), "sym")
    cpu, found = torch.device("cpu"), []
    for seed in range(2):
        torch.manual_seed(seed)
        module = GCNNet(rows, operator, X.shape[1], 7, hidden_channels=16)
        judge = Judge(lambda index: (index,), judges, y[judges])
        task = ClassTask(module, lambda i: (i,), train, y[train], judge, cpu, batch_size=140, chunk=len(y))
        run_loop(task, LoopSettings(200, 0.01, eval_every=10, tolerance=0.0, seed=seed), cpu)
        answers = class_logits(module, lambda index: (index,), every, chunk=len(y)).argmax(dim=1).numpy()
        found.append(100 * (answers == y)[test].mean())
    assert np.mean(found) == pytest.approx(81.5, abs=1.0)
