"""Predictions as a table and as records: the same answers, in types that files and JSON know."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from gsparc.tables.predictions import Predictions


@pytest.fixture
def three() -> Predictions:
    """Three rows over classes a, b, c; the second cannot be read."""
    return Predictions(
        ids=np.array(["x", "y", "z"], dtype=object),
        bad={1: "size is 'abc', expected a number"},
        classes=np.array(["b", "a", "c"]),
        confidence=np.array([0.6, 1.0, 0.5]),
        proba=np.array([[0.3, 0.6, 0.1], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]]),
        members=np.array([[True, True, False], [True, False, False], [True, True, True]]),
        abstained=np.array([False, False, True]),
        why=["", "", "far from every known node"],
        clusters=np.array([0, 0, 1]),
        memberships=np.array([[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]]),
        links=(np.array([["p", "q"]] * 3), np.array([[0.9, 0.1]] * 3)),
        near=(np.array([["r"]] * 3), np.array([[0.5]] * 3), np.array([["a"], [None], [None]], dtype=object)),
        position=np.array([[0.0, 1.0], [0.0, 0.0], [0.5, 0.25]], np.float32),
        class_names=np.array(["a", "b", "c"]),
    )


def test_sets_begin_with_the_most_probable(three: Predictions) -> None:
    assert three.sets == [["b", "a"], ["a"], ["c", "a", "b"]]


def test_the_table_leaves_out_what_cannot_be_read(three: Predictions) -> None:
    table = three.to_arrow()
    assert table.column_names == [
        "id",
        "class",
        "confidence",
        "set",
        "abstained",
        "why",
        "cluster",
        "membership",
        "links",
        "link_scores",
        "near",
        "near_distances",
    ]
    assert table.to_pylist()[1] == {
        "id": "z",
        "class": "c",
        "confidence": 0.5,
        "set": ["c", "a", "b"],
        "abstained": True,
        "why": "far from every known node",
        "cluster": 1,
        "membership": 0.5,
        "links": ["p", "q"],
        "link_scores": pytest.approx([0.9, 0.1]),
        "near": ["r"],
        "near_distances": [0.5],
    }
    assert table["id"].to_pylist() == ["x", "z"]


def test_records_are_plain_json(three: Predictions) -> None:
    records = json.loads(json.dumps(three.records(), allow_nan=False))
    assert records[1] == {"id": "y", "error": "size is 'abc', expected a number"}
    assert records[0]["probabilities"] == {"b": 0.6, "a": 0.3, "c": 0.1}
    assert records[0]["set"] == ["b", "a"]
    assert records[0]["near"] == [{"id": "r", "distance": 0.5, "class": "a"}]
    assert records[2]["near"][0]["class"] is None
    assert records[2]["position"] == [0.5, 0.25]


def test_what_was_not_asked_for_is_absent() -> None:
    bare = Predictions(ids=np.arange(2))
    assert bare.to_arrow().equals(pa.table({"id": [0, 1]}))
    record = bare.records()[1]
    assert (record["id"], record["class"], record["set"], record["links"], record["near"]) == (1, None, [], [], [])
    assert bare.sets is None


def test_whole_numbers_stay_numbers() -> None:
    numbers = Predictions(ids=np.array([4, 5]), classes=np.array([10, 20]), class_names=np.array([10, 20]))
    assert numbers.to_arrow().schema.types == [pa.int64(), pa.int64()]
    assert numbers.records()[0]["class"] == 10
