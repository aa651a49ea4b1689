"""Rows in, answers out: the four routes that run the model, and every way in which a body can be wrong."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsparc.exceptions import FeatureError
from gsparc.server.errors import ApiError
from gsparc.server.requests import RowReader
from gsparc.server.schemas import ClusterAnswer, EmbedAnswer, LinksAnswer, PredictAnswer
from gsparc.tables._values import FINITE

JSON = {"Content-Type": "application/json"}
ROUTES = {"predict": PredictAnswer, "links": LinksAnswer, "cluster": ClusterAnswer, "embed": EmbedAnswer}


def failure(response: Any, status: int) -> str:
    """The sentence of an error, whose form is always the same."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) <= {"code", "message", "rows"}
    assert error["message"].endswith((".", "'"))
    assert "Traceback" not in response.text
    return error["message"]


def test_a_record_is_answered_with_everything(client) -> None:
    record = {"package": "new", "words": "a tool", "size": 2, "arch": "amd64", "maintainer": "ignored"}
    answer = client.post("/v1/predict", json={"records": [record], "k": 2}).json()
    assert answer == {
        "model": client.service.holder.current.version,
        "predictions": [
            {
                "id": "new",
                "class": "libs",
                "confidence": 0.75,
                "probabilities": {"libs": 0.75, "admin": 0.25},
                "set": ["libs", "admin"],
                "abstained": False,
                "why": "",
                "cluster": 1,
                "links": [{"id": "apt", "score": 0.5, "index": 0}, {"id": "zlib1g", "score": 0.5, "index": 1}],
                "near": [
                    {"id": "apt", "distance": 0.5, "class": "admin", "index": 0},
                    {"id": "zlib1g", "distance": 0.5, "class": "libs", "index": 1},
                ],
                "position": [0.5, 2.0],
            }
        ],
    }


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "rows", [{"records": [{"words": "x"}, {"size": None}]}, {"vectors": [[1, 2.5, -3], [0, 0, 0]]}]
)
def test_answers_are_as_the_schemas_say(client, route: str, rows: dict[str, Any]) -> None:
    response = client.post(f"/v1/{route}", json={**rows, "edges": [[1, "apt"]]})
    assert response.status_code == 200, response.text
    assert len(ROUTES[route].model_validate(response.json()).predictions) == 2


def test_columns_that_are_left_out_count_as_null_and_are_named(client) -> None:
    answer = client.post("/v1/predict", json={"records": [{"words": "x", "size": 1}, {"words": "y"}]}).json()
    assert answer["missing_columns"] == ["arch", "size"]
    full = client.post("/v1/predict", json={"records": [{"words": "x", "size": 1, "arch": None}]}).json()
    assert "missing_columns" not in full


def test_first_edges_reach_the_model_as_positions(client, model) -> None:
    body = {"vectors": [[0, 0, 0], [1, 1, 1]], "edges": [[1, "zlib-dev"], [0, "apt"], [1, "unheard"]]}
    assert client.post("/v1/predict", json=body).json()["ignored_edges"] == 1
    rows, nodes = model.edges[-1]
    assert rows.tolist() == [1, 0]
    assert nodes.tolist() == [2, 0]


def test_coverage_reaches_the_model(client) -> None:
    sets = [
        client.post("/v1/predict", json={"vectors": [[0, 0, 0]], "coverage": share}).json()["predictions"][0]["set"]
        for share in (0.5, 0.95)
    ]
    assert sets == [["admin"], ["libs", "admin"]]


def test_ids_come_back_as_they_were_given(client) -> None:
    records = [{"package": "a", "words": ""}, {"package": 7, "words": ""}, {"words": ""}]
    rows = client.post("/v1/links", json={"records": records}).json()["predictions"]
    assert [row["id"] for row in rows] == ["a", 7, None]


def test_whole_numbers_may_be_written_with_a_point(client) -> None:
    body = {"vectors": [[1, 2, 3]], "k": 2.0, "edges": [[0.0, "apt"]]}
    response = client.post("/v1/links", content=json.dumps(body), headers=JSON)
    assert len(response.json()["predictions"][0]["links"]) == 2


def test_a_task_that_was_not_fitted_is_a_conflict(start, make_model) -> None:
    client = start(load=lambda _: make_model(links=False, clusters=False))
    for route, task in {"links": "links", "cluster": "clusters"}.items():
        assert f"not fitted for {task}" in failure(client.post(f"/v1/{route}", json={"vectors": [[1, 2, 3]]}), 409)


def test_rows_that_the_model_cannot_read_are_named_one_by_one(client) -> None:
    response = client.post("/v1/predict", json={"records": [{"words": "ok"}, {"words": "BAD"}]})
    assert "records[1]: words is 'BAD'" in failure(response, 422)
    assert response.json()["error"]["rows"] == [{"row": 1, "message": "words is 'BAD', which cannot be read"}]


def test_what_the_model_refuses_is_said(client, model) -> None:
    model.error = FeatureError("X has NaN. Fill them first.")
    assert failure(client.post("/v1/predict", json={"vectors": [[1, 2, 3]]}), 422) == "X has NaN. Fill them first."


def test_a_failing_model_is_a_500_without_details(client, model, caplog) -> None:
    model.error = RuntimeError("secret path /srv/x")
    message = failure(client.post("/v1/predict", json={"vectors": [[1, 2, 3]]}), 500)
    assert "secret" not in message
    assert "secret" in caplog.text
    model.error = None
    assert client.post("/v1/predict", json={"vectors": [[1, 2, 3]]}).status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1, column 2"),
        (b'{"vectors": [[1, 2, NaN]]}', "NaN is not a JSON value"),
        (b'{"vectors": [[1, 2, -Infinity]]}', "Infinity is not"),
        (b'{"vectors": [[1, 2, ' + b"9" * 5000 + b"]]}", "thousands of digits"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'\xff\xfe{"vectors": []}', "byte 0 is not UTF-8"),
        (b'{"records": [{"words": "\xe9"}]}', "not UTF-8"),
        ('{"vectors": [[1, 2, 3]]}'.encode("utf-16"), "not UTF-8"),
        (b'\xef\xbb\xbf{"vectors": [[1, 2, 3]]}', "BOM"),
        (b'{"records": [{"words": "\\ud800"}]}', "surrogate"),
        (b'{"vectors": [[1, 2, 3]], "k": 3, "k": 4}', "'k' stands twice"),
        (b'{"records": [{"words": "a", "words": "b"}]}', "'words' stands twice"),
    ],
)
def test_what_is_not_json_is_400(client, body: bytes, words: str) -> None:
    assert words in failure(client.post("/v1/predict", content=body, headers=JSON), 400)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "a list came as the body"),
        (None, "null came"),
        ({}, "neither 'records' nor 'vectors'"),
        ({"records": [{"words": "a"}], "vectors": [[1, 2, 3]]}, "both"),
        ({"records": []}, "the list of records is empty"),
        ({"vectors": []}, "the list of vectors is empty"),
        ({"records": {"words": "a"}}, "an object came"),
        ({"records": ["a"]}, "records[0]: the string 'a' came, expected an object"),
        ({"records": [{}]}, "records[0]: none of the model's columns is in it"),
        ({"records": [{"Words": "a"}]}, "none of the model's columns is in it (words, size, arch)"),
        ({"records": [{"words": 3}]}, "column 'words': 3 came, expected a string or null"),
        ({"records": [{"size": "3"}]}, "column 'size': the string '3' came, expected a finite number"),
        ({"records": [{"size": False}]}, "column 'size': false came"),
        ({"records": [{"size": 10**400}]}, "column 'size': a very large number came"),
        ({"records": [{"size": 1e300}]}, f"column 'size': 1e+300 came, {FINITE}, or null."),
        ({"records": [{"arch": ["amd64"]}]}, "column 'arch': a list came"),
        ({"records": [{"arch": {"a": 1}}]}, "column 'arch': an object came"),
        ({"records": [{"words": "a", "package": 1.5}]}, "column 'package': 1.5 came"),
        ({"vectors": [[1, 2]]}, "vectors[0]: 2 numbers came, but the model has 3 features"),
        ({"vectors": [[1, 2, 3], [1, 2, 3, 4]]}, "vectors[1]: 4 numbers came"),
        ({"vectors": [[1, 2, None]]}, "null came as feature 2"),
        ({"vectors": [[1, 2, True]]}, "true came as feature 2"),
        ({"vectors": [[1, 2, 1e13]]}, "10000000000000.0 came as feature 2"),
        ({"vectors": [1, 2, 3]}, "vectors[0]: 1 came, expected a list of numbers"),
        ({"vectors": [[1, 2, 3]], "k": 0}, "k: 0 came, expected a whole number from 1 to 100."),
        ({"vectors": [[1, 2, 3]], "k": True}, "k: "),
        ({"vectors": [[1, 2, 3]], "k": 5.5}, "k: "),
        ({"vectors": [[1, 2, 3]], "coverage": 1}, "coverage: 1 came, expected a number above 0 and below 1."),
        ({"vectors": [[1, 2, 3]], "coverage": "0.9"}, "coverage: "),
        (
            {"vectors": [[1, 2, 3]], "edges": [[1, "apt"]]},
            "edges[0] names vectors[1], but the last row",
        ),
        ({"vectors": [[1, 2, 3]], "edges": [[-1, "apt"]]}, "edges[0]"),
        ({"vectors": [[1, 2, 3]], "edges": [[False, "apt"]]}, "edges[0]"),
        ({"vectors": [[1, 2, 3]], "edges": [[0]]}, "edges[0]: a list of 1 came, expected [row, id]"),
        ({"vectors": [[1, 2, 3]], "edges": [[0, "apt", 2.0]]}, "edges[0]: a list of 3 came, expected [row, id]"),
        ({"vectors": [[1, 2, 3]], "edges": [[0, None]]}, "edges[0]"),
        ({"vectors": [[1, 2, 3]], "Coverage": 0.5}, "'Coverage' is not known"),
    ],
)
def test_what_cannot_be_used_is_422(client, model, body: Any, words: str) -> None:
    before = len(model.calls)
    assert words in failure(client.post("/v1/predict", content=json.dumps(body), headers=JSON), 422)
    assert len(model.calls) == before  # the model was not troubled with it


def test_every_bad_row_is_named(client) -> None:
    rows = [{"size": [1]}, {"size": 1}, {"size": "q"}, {"Size": 1}, {"words": 3}, "row", {"size": True}]
    response = client.post("/v1/predict", json={"records": rows})
    message = failure(response, 422)
    assert "records[0]: column 'size': a list came" in message
    assert "records[2]: column 'size': the string 'q' came" in message
    assert message.endswith("; and 1 more.")
    named = {item["row"]: item["message"] for item in response.json()["error"]["rows"]}
    assert sorted(named) == [0, 2, 3, 4, 5, 6]
    assert named[3].startswith("none of the model's columns is in it")
    assert named[5] == "the string 'row' came, expected an object"
    vectors = [[1, 2, "a"], [1, 2], [1, 2, 3], 4]
    response = client.post("/v1/predict", json={"vectors": vectors})
    assert [item["row"] for item in response.json()["error"]["rows"]] == [0, 1, 3]


def test_of_many_bad_rows_the_first_hundred_are_named(client) -> None:
    response = client.post("/v1/predict", json={"records": [{"size": 1}] + [{"size": "q"}] * 300})
    assert failure(response, 422).endswith("; and 95 more; the 200 rows after records[100] were not looked at.")
    assert [item["row"] for item in response.json()["error"]["rows"]] == list(range(1, 101))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "column 'place': a list of 1 came, expected a list of 2 numbers from -1e12 to 1e12, or null"),
        ([1, 2, 3], "column 'place': a list of 3 came, expected a list of 2 numbers"),
        ([1, "a"], "column 'place'[1]: the string 'a' came, expected a list of 2 numbers"),
        (3, "column 'place': 3 came, expected a list of 2 numbers"),
    ],
)
def test_vectors_of_a_wrong_length_are_told_both_numbers(value: Any, words: str) -> None:
    reader = RowReader([{"name": "place", "kind": "vector", "example": [0.5, 1.5]}], 2, None, 10)
    with pytest.raises(ApiError, match=re.escape(f"records[0]: {words}")):
        reader.read({"records": [{"place": value}]})


def test_numbers_beyond_float64_written_in_json_are_refused(client) -> None:
    response = client.post("/v1/predict", content=b'{"vectors": [[1, 2, 1e999]]}', headers=JSON)
    assert "inf came" in failure(response, 422)


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_json_must_be_announced(client, kind: str | None) -> None:
    response = client.post("/v1/predict", content=b"{}", headers={} if kind is None else {"Content-Type": kind})
    assert "application/json" in failure(response, 415)


def test_json_may_be_announced_with_its_charset(client) -> None:
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert client.post("/v1/embed", content=b'{"vectors": [[1, 2, 3]]}', headers=headers).status_code == 200


def test_packed_bodies_are_refused_as_such(client) -> None:
    body = gzip.compress(b'{"vectors": [[1, 2, 3]]}')
    response = client.post("/v1/embed", content=body, headers={**JSON, "Content-Encoding": "gzip"})
    assert "content encoding 'gzip' came, expected a body that is not packed" in failure(response, 415)
    assert response.headers["Accept-Encoding"] == "identity"
    plain = {**JSON, "Content-Encoding": "identity"}
    assert client.post("/v1/embed", content=b'{"vectors": [[1, 2, 3]]}', headers=plain).status_code == 200


def test_text_beyond_ascii_survives(client) -> None:
    answer = client.post("/v1/links", json={"records": [{"package": "naïve-😀", "words": "日本語"}]})
    assert answer.json()["predictions"][0]["id"] == "naïve-😀"
    assert "😀".encode() in answer.content


def test_figures_that_json_cannot_say_become_null(client, model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(model), "embed", lambda *_: np.array([[np.nan, np.inf, 1.0]]))
    answer = client.post("/v1/embed", json={"vectors": [[1, 2, 3]]})
    assert answer.json()["predictions"][0]["embedding"] == [None, None, 1.0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "records": st.lists(st.dictionaries(st.sampled_from(["words", "size", "arch", "package"]), json_values)),
        "vectors": st.lists(st.lists(json_values, max_size=4), max_size=3),
        "k": json_values,
        "coverage": json_values,
        "edges": json_values,
    },
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies | json_values)
def test_no_body_is_answered_with_a_failure_of_ours(client, body: Any) -> None:
    response = client.post("/v1/predict", content=json.dumps(body), headers=JSON)
    if response.status_code != 200:
        failure(response, response.status_code)
        assert response.status_code in (400, 422)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"vectors": [[1, 2, 3]], "colour": 1}, "'colour' is not known; beside records or vectors there may be"),
        ({"vectors": 3}, "vectors: 3 came, expected a list of lists of numbers."),
        ({"vectors": [[1, 2, 3]], "edges": 3}, "edges: 3 came, expected a list of [row, id of a known node]."),
        ({"vectors": [[1, 2, 3]], "edges": [[0, None]]}, "edges[0][1]: null came, expected [row, id]: the place of a"),
    ],
)
def test_fields_are_explained_in_our_own_words(client, body: Any, sentence: str) -> None:
    message = failure(client.post("/v1/predict", json=body), 422)
    assert sentence in message
    assert "Input should" not in message


def test_parameters_are_explained_in_our_own_words(client) -> None:
    message = failure(client.get("/v1/search?q=a&limit=0"), 422)
    assert message == "limit: '0' came, expected a whole number from 1 to 100."
    assert failure(client.get("/v1/search"), 422).startswith("q is missing, expected a part of an id")
