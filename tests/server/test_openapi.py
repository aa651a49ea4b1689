"""The OpenAPI description, and the service held against it by schemathesis."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import negative_data_rejection

from gsparc.server.app import create_app
from gsparc.server.listening import AnnouncingServer, listen
from gsparc.server.listening import address as url_of

EXAMPLES = 20  # benchmarks/service.py makes many more

NOTHING_TO_SEND = {"/v1/nodes/{node_id}", "/v1/map", "/v1/reload", "/health", "/ready", "/info", "/metrics"}
ROUTES = {
    "/v1/predict": "POST",
    "/v1/links": "POST",
    "/v1/cluster": "POST",
    "/v1/embed": "POST",
    "/v1/nodes/{node_id}": "GET",
    "/v1/nodes/by-position/{index}": "GET",
    "/v1/search": "GET",
    "/v1/map": "GET",
    "/v1/reload": "POST",
    "/health": "GET",
    "/ready": "GET",
    "/info": "GET",
    "/metrics": "GET",
}


def test_every_route_is_described_with_the_models_columns(client) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == set(ROUTES)
    records = document["components"]["schemas"]["RowsRequest"]["oneOf"][0]["properties"]["records"]["items"]
    assert set(records["properties"]) == {"words", "size", "arch", "package"}
    assert document["paths"]["/v1/predict"]["post"]["responses"].keys() >= {"200", "413", "422", "429", "504"}
    assert "securitySchemes" not in document["components"]


def test_the_token_is_described(start) -> None:
    client = start(token="long-enough")
    document = client.get("/openapi.json", headers={"Authorization": "Bearer long-enough"}).json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "security" in document["paths"]["/v1/predict"]["post"]
    assert "security" not in document["paths"]["/health"]["get"]


def test_columns_may_have_any_name(start, make_model, folder: Path) -> None:
    odd = ["with space", "_private", "class", "1st", "ünïcode", "model_config", "$ref"]
    model = make_model()
    form = [{"name": name, "kind": "number"} for name in odd]
    model.preprocess.form = lambda: form
    client = start(load=lambda _: model)
    record = client.get("/openapi.json").json()["components"]["schemas"]["RowsRequest"]["oneOf"][0]
    assert set(record["properties"]["records"]["items"]["properties"]) == {*odd, "package"}
    for name in odd:
        request = client.service.holder.current.reader.read({"records": [{name: 1.5}]})
        assert request.rows == [{**dict.fromkeys(odd), name: 1.5}]


@pytest.fixture(scope="module")
def address(make_model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service on a real port, without a token: what schemathesis leaves out or spoils shall not be mended here."""
    app = create_app(tmp_path_factory.mktemp("model"), load=lambda _: make_model(), watch_s=None)
    with listen("127.0.0.1", 0) as listener:
        server = AnnouncingServer(uvicorn.Config(app, log_config=None, lifespan="on"), None, "")
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield url_of(listener)
        server.should_exit = True
        thread.join(10)


def with_rows_that_came(body: Any) -> Any:
    """The body with its edges at rows that are there: the one thing of a valid body that a schema cannot say."""
    rows = body.get("records", body.get("vectors"))
    edges = [[int(row) % len(rows), node] for row, node in body.get("edges", [])]
    return {**body, "edges": edges} if edges else body


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_schemathesis_finds_nothing(address: str, path: str, mode: schemathesis.GenerationMode) -> None:
    document = httpx.get(f"{address}/openapi.json").json()
    operation = schemathesis.openapi.from_dict(document)[path][ROUTES[path]]
    if mode is schemathesis.GenerationMode.NEGATIVE and path in NOTHING_TO_SEND:
        pytest.skip("nothing can be sent wrongly to it")  # any text may be an id

    with requests.Session() as session:

        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            if mode is schemathesis.GenerationMode.POSITIVE and isinstance(case.body, dict):
                case.body = with_rows_that_came(case.body)
            response = case.call(base_url=address, session=session)
            # 413 refuses too many rows, but is not among the refusals that schemathesis knows
            known = [negative_data_rejection] if response.status_code == 413 else []
            case.validate_response(response, excluded_checks=known)

        check()
