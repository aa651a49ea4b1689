"""Seen nodes: cards, search, the binary map, and what the service says of itself."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsparc.server.nodes import NodeTable
from gsparc.server.schemas import Info, NodeCard, Ready, SearchAnswer


def test_a_node_is_found_by_id_and_by_place(client) -> None:
    card = client.get("/v1/nodes/zlib1g").json()
    assert card == {
        "id": "zlib1g",
        "index": 1,
        "class": "libs",
        "cluster": 1,
        "position": [1.0, 1.0],
        "degree": 2,
        "neighbours": [{"id": "apt", "index": 0, "class": "admin"}, {"id": "zlib-dev", "index": 2, "class": "libs"}],
    }
    assert client.get("/v1/nodes/by-position/1").json() == card
    NodeCard.model_validate(card)


def test_a_card_names_the_first_neighbours_and_counts_all() -> None:
    table = NodeTable(range(100), None, None, np.zeros((100, 2)), lambda index: np.arange(1, 100))
    card = table.card(0, neighbours=True)
    assert card["degree"] == 99
    assert [other["id"] for other in card["neighbours"]] == list(range(1, 51))
    NodeCard.model_validate(card)
    without = NodeTable(["a"], None, None, np.zeros((1, 2)), lambda index: None).card(0, neighbours=True)
    assert {"degree", "neighbours"}.isdisjoint(without)  # a folder that does not hold its edges
    NodeCard.model_validate(without)


def test_an_id_may_hold_slashes(client) -> None:
    for path in ("/v1/nodes/org/pkg", "/v1/nodes/org%2Fpkg"):
        card = client.get(path).json()
        assert (card["id"], card["class"], card["cluster"]) == ("org/pkg", None, None)


@pytest.mark.parametrize("path", ["/v1/nodes/none", "/v1/nodes/", "/v1/nodes/by-position/4"])
def test_an_unknown_node_is_404(client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "no_such_node"


def test_search_ranks_the_same_id_then_beginnings_then_the_rest(client) -> None:
    def found(query: str) -> list[str]:
        answer = SearchAnswer.model_validate(client.get("/v1/search", params={"q": query}).json())
        return [str(hit.id) for hit in answer.results]

    assert found("ZLIB") == ["zlib1g", "zlib-dev"]
    assert found("p") == ["apt", "org/pkg"]
    assert found("b1") == ["zlib1g"]
    assert found("(.*") == []
    assert len(client.get("/v1/search", params={"q": "z", "limit": 1}).json()["results"]) == 1


@pytest.mark.parametrize("query", ["", "?q=", "?q=a&limit=0", "?q=a&limit=x", "?q=" + "a" * 201])
def test_a_search_that_cannot_be_made_is_422(client, query: str) -> None:
    response = client.get(f"/v1/search{query}")
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "bad_parameter"


def read_map(raw: bytes) -> tuple[dict, list[np.ndarray]]:
    """As the explorer reads it."""
    (length,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + length])
    n, start, arrays = header["count"], 4 + length, []
    assert start % 4 == 0
    for _, kind in header["layout"]:
        arrays.append(np.frombuffer(raw, np.dtype(kind).newbyteorder("<"), n, start))
        start += arrays[-1].nbytes
    assert start == len(raw)
    return header, arrays


def test_the_map_holds_every_node(client) -> None:
    header, (x, y, classes, clusters) = read_map(client.get("/v1/map").content)
    assert header["classes"] == ["admin", "libs"]
    assert (header["count"], header["clusters"]) == (4, 2)
    assert x.tolist() == [0, 1, 1, 0]
    assert y.tolist() == [0, 1, 0, 1]
    assert classes.tolist() == [0, 1, 1, -1]
    assert clusters.tolist() == [0, 1, 1, -1]


def test_the_map_is_not_sent_twice(client) -> None:
    tag = client.get("/v1/map").headers["ETag"]
    again = client.get("/v1/map", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


@given(
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.sampled_from(["a", "ü"])), unique_by=lambda pair: pair[0])
)
def test_any_table_survives_the_map(pairs: list[tuple[str, str | None]]) -> None:
    table = NodeTable([node for node, _ in pairs], [name for _, name in pairs], None, np.zeros((len(pairs), 2)))
    header, arrays = read_map(table.map_bytes("v"))
    assert [header["classes"][code] if code >= 0 else None for code in arrays[2]] == [name for _, name in pairs]
    assert all(table.index(node) == place for place, (node, _) in enumerate(pairs))


def test_whole_numbers_stay_numbers() -> None:
    table = NodeTable(np.array([10, 20]), np.array([3, None], dtype=object), np.array([0, -1]), np.zeros((2, 2)))
    assert table.card(0) == {"id": 10, "index": 0, "class": 3, "cluster": 0, "position": [0.0, 0.0]}
    assert table.index("20") == table.index(20) == 1
    assert table.search("2", 5)[0]["id"] == 20
    assert b'"classes": [3]' in table.map_bytes("v")


def test_info_tells_all_that_a_client_needs(client, folder: Path) -> None:
    answer = client.get("/info").json()
    info = Info.model_validate(answer)
    assert info.tasks == ["classes", "links", "clusters"]
    assert info.classes == ["admin", "libs"]
    assert info.counts == {"nodes": 4, "edges": 2}
    assert [part["name"] for part in info.form] == ["words", "size", "arch"]
    assert (info.id_column, info.n_features, info.limits.max_rows) == ("package", 3, 1000)
    assert info.report == {"accuracy": 0.8}
    assert str(folder.parent) not in json.dumps(answer)  # where it lies on the machine is nobody's business


def test_health_and_readiness(client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert Ready.model_validate(client.get("/ready").json()).reload.ok


def test_metrics_count_by_route_and_status(client) -> None:
    client.post("/v1/predict", json={"vectors": [[1, 2, 3]] * 3})
    client.post("/v1/predict", json={})
    client.get("/v1/nodes/apt")
    client.get("/nowhere/at/all")
    client.get("/v1/predict")
    text = client.get("/metrics").text
    version = client.service.holder.current.version
    for line in (
        'gsparc_requests_total{route="/v1/predict",status="200"} 1.0',
        'gsparc_requests_total{route="/v1/predict",status="422"} 1.0',
        'gsparc_requests_total{route="/v1/nodes/{node_id:path}",status="200"} 1.0',
        'gsparc_requests_total{route="other",status="404"} 1.0',
        'gsparc_request_seconds_count{route="/v1/predict"}',
        'gsparc_batch_rows_bucket{le="4.0"} 1.0',
        "gsparc_rows_total 3.0",
        "gsparc_queue_rows 0.0",
        f'gsparc_model_info{{version="{version}"}} 1.0',
        "process_resident_memory_bytes",
    ):
        assert line in text, line
