"""The convergence table: its shape of batches, its measure, a smoke run of each method."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gsparc.experiments import minibatch
from gsparc.experiments.engine import Cell, Context, plan
from gsparc.experiments.minibatch import EPOCHS, TABLE, batch_shape, first_reached

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize(
    ("nodes", "parts", "batch"),
    [(232_965, 1503, 20), (18_534, 120, 18), (2_546, 16, 3), (376, 7, 1), (5, 5, 1)],
)
def test_batches_are_those_of_reddit_or_seven_an_epoch(nodes: int, parts: int, batch: int) -> None:
    assert batch_shape(nodes) == (parts, batch)


def test_first_reached_counts_from_one() -> None:
    assert first_reached([50.0, 79.9, 80.0, 81.0], 80.0) == 3
    assert first_reached([80.0], 80.0) == 1
    assert first_reached([50.0], 80.0) is None


def test_the_table_says_what_it_is() -> None:
    assert TABLE.name == "minibatch"
    assert [method.label for method in TABLE.methods if method.ours] == ["Spectral batches"]
    assert TABLE.metrics[0].name == "epochs"
    assert TABLE.metrics[0].better == "lower"
    assert str(EPOCHS + 1) in TABLE.metrics[0].title
    assert {cell.dataset for cell in plan(TABLE, seeds=range(1))} == {"cora", "pubmed", "reddit"}


@pytest.mark.parametrize("method", [method.label for method in TABLE.methods])
def test_a_smoke_cell(method: str) -> None:
    if method == "METIS batches":
        pytest.importorskip("pymetis")
    numbers = TABLE.run(Cell("generated", "paper", method, 0), Context("generated", device="cpu", smoke=True))
    curves = ("accuracy", "validation", "epoch", "training_seconds_curve", "seconds_curve")
    assert all(len(numbers[name]) == 2 for name in curves)
    assert 1 <= numbers["epochs"] <= 3
    assert numbers["seconds_curve"][0] >= numbers["training_seconds_curve"][0] + numbers["partition_seconds"]
    assert numbers["accuracy_last"] == numbers["accuracy"][-1]
    assert numbers["seconds_all"] == numbers["partition_seconds"] + numbers["seconds_training"]


def test_a_run_that_never_gets_there_counts_all_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"random": [50.0, 70.0, 80.0], "spectral": [60.0, 80.5, 79.0], "metis": [60.0, 70.0, 79.0]}

    def train(context: Context, setting: str, partition: str, seed: int) -> dict[str, object]:
        accuracy = curves[partition]
        times = {"training_seconds": [1.0, 2.0, 3.0], "partition_seconds": 10.0, "inside": 0.0}
        return {"accuracy": accuracy, "validation": accuracy, **times}

    monkeypatch.setattr(minibatch, "_train", train)
    minibatch._random_batches.cache_clear()
    found = {}
    for method in ("Spectral batches", "METIS batches", "Random batches"):
        numbers = TABLE.run(Cell("generated", "paper", method, 0), Context("generated", device="cpu"))
        found[method] = [numbers[name] for name in ("epochs", "reached", "seconds_training", "seconds_all")]
    minibatch._random_batches.cache_clear()
    assert found["Spectral batches"] == [2, 100, 2, 12]
    assert found["METIS batches"] == [4, 0, 3, 13]  # three epochs here: never is the fourth
    assert found["Random batches"] == [3, 100, 3, 13]


def test_random_batches_reach_their_own_end_and_repeat() -> None:
    cell = Cell("generated", "paper", "Random batches", 1)
    context = Context("generated", device="cpu", smoke=True)
    numbers = TABLE.run(cell, context)
    assert numbers["reached"] == 100.0
    assert TABLE.run(cell, context)["accuracy"] == numbers["accuracy"]


def test_the_run_that_others_are_measured_by_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("generated", device="cpu", smoke=True, shared=tmp_path)
    spectral = TABLE.run(Cell("generated", "paper", "Spectral batches", 2), context)
    minibatch._random_batches.cache_clear()  # as in another worker
    trained = []
    train = minibatch._train
    monkeypatch.setattr(minibatch, "_train", lambda *given: (trained.append(given[2]), train(*given))[1])
    numbers = TABLE.run(Cell("generated", "paper", "Random batches", 2), context)
    assert trained == []
    alone = TABLE.run(Cell("generated", "paper", "Random batches", 2), replace(context, shared=None))
    assert trained == ["random"]
    assert numbers["accuracy"] == alone["accuracy"]
    assert spectral["reached"] == (100.0 if max(spectral["accuracy"]) >= alone["accuracy_last"] else 0.0)
    TABLE.run(Cell("generated", "paper", "Random batches", 3), context)  # another seed is another run
    assert trained == ["random", "random"]


def test_noise_is_for_generated_graphs_only_and_changes_what_is_learned() -> None:
    assert TABLE.settings("pubmed") == ("paper",)
    assert TABLE.settings("reddit") == ("paper", "noise 8", "noise 25")
    cell = Cell("reddit", "noise 25", "Random batches", 0)
    assert "generated graphs" in TABLE.run(cell, Context("reddit", device="cpu"))["not_applicable"]
    context = Context("generated", device="cpu", smoke=True)
    plain = TABLE.run(Cell("generated", "paper", "Random batches", 0), context)
    noisy = TABLE.run(Cell("generated", "noise 25", "Random batches", 0), context)
    assert noisy["accuracy_last"] < plain["accuracy_last"]


def test_metis_cuts_a_graph_once_whatever_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    from gsparc.estimators import _partitions

    made = []
    partition = _partitions.node_partition
    monkeypatch.setattr(
        _partitions, "node_partition", lambda *given, **named: (made.append(given[0]), partition(*given, **named))[1]
    )
    context = Context("generated", device="cpu", smoke=True, shared=tmp_path)
    cells = {
        setting: TABLE.run(Cell("generated", setting, "METIS batches", 0), context) for setting in ("paper", "noise 8")
    }
    assert made.count("metis") == 1
    alone = TABLE.run(Cell("generated", "noise 8", "METIS batches", 0), replace(context, shared=None))
    assert made.count("metis") == 2
    assert alone["accuracy"] == cells["noise 8"]["accuracy"]
    assert alone["inside"] == cells["paper"]["inside"] == cells["noise 8"]["inside"]
    (file,) = tmp_path.glob("*METIS*/*.json")
    seconds = json.loads(file.read_text(encoding="utf-8"))["seconds"]
    assert all(cell["partition_seconds"] >= seconds > 0 for cell in cells.values())  # who found them counts them too
    TABLE.run(Cell("generated", "paper", "METIS batches", 1), context)  # another seed is another graph
    assert made.count("metis") == 3
