"""Tokens, hosts, headers and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gsparc.exceptions import InputError
from gsparc.server import static
from gsparc.server.security import check_exposure, is_loopback

TOKEN = "correct-horse-battery"
OPEN = ["/health", "/ready", "/docs", "/docs/docs.js", "/docs/docs.css"]
CLOSED = ["/info", "/metrics", "/openapi.json", "/v1/map", "/v1/nodes/apt", "/v1/search?q=a", "/nowhere"]


@pytest.mark.parametrize("path", OPEN)
def test_probes_and_pages_are_open(start, path: str) -> None:
    assert start(token=TOKEN).get(path).status_code == 200


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN]
)
def test_without_the_token_nothing_is_told(start, model, given: str | None) -> None:
    client = start(token=TOKEN)
    headers = {} if given is None else {"Authorization": given}
    before = len(model.calls)
    for path in CLOSED:
        response = client.get(path, headers=headers)
        assert response.status_code == 401, path
        assert response.json()["error"]["code"] == "unauthorized"
        assert response.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/v1/predict", "/v1/reload"):
        assert client.post(path, json={"vectors": [[1, 2, 3]]}, headers=headers).status_code == 401
    assert len(model.calls) == before


def test_with_the_token_all_is_answered(start) -> None:
    client = start(token=TOKEN)
    headers = {"Authorization": f"bearer {TOKEN}"}
    for path in CLOSED[:6]:
        assert client.get(path, headers=headers).status_code == 200
    assert client.post("/v1/predict", json={"vectors": [[1, 2, 3]]}, headers=headers).status_code == 200


def test_a_header_with_odd_bytes_is_no_failure(start) -> None:
    assert start(token=TOKEN).get("/info", headers={"Authorization": b"Bearer \xff\xfe"}).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_only_named_hosts_are_answered(start, host: str, status: int) -> None:
    client = start(hosts=["localhost", "127.0.0.1", "[::1]"])
    assert client.get("/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback_is_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_other_machines_need_a_token_unless_told_otherwise() -> None:
    with pytest.raises(InputError, match="a token is needed"):
        check_exposure("0.0.0.0", None, insecure=False)
    with pytest.raises(InputError, match="at least 8"):
        check_exposure("0.0.0.0", "", insecure=False)
    check_exposure("0.0.0.0", TOKEN, insecure=False)
    check_exposure("0.0.0.0", None, insecure=True)
    check_exposure("127.0.0.1", None, insecure=False)


@pytest.mark.parametrize("path", ["/health", "/info", "/nowhere", "/v1/map", "/docs", "/docs/docs.js", "/metrics"])
def test_every_answer_carries_the_security_headers(client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_may_use_their_own_files_and_nothing_else(client, path: str) -> None:
    policy = client.get(path).headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    own = {name for name, sources in rules.items() if sources == "'self'"}
    assert own == {"script-src", "style-src", "img-src", "connect-src"}
    assert {sources for name, sources in rules.items() if name not in own} == {"'none'"}
    assert {"default-src", "base-uri", "form-action", "frame-ancestors"} == rules.keys() - own


def test_other_origins_are_not_let_in(client) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    response = client.send("OPTIONS", "/v1/predict", headers=headers).result(10)
    assert response.status_code == 405
    assert "access-control-allow-origin" not in response.headers


def test_errors_of_the_router_are_json_too(client) -> None:
    for method, path, status, code in [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/predict/", 404, "not_found"),
        ("GET", "/v1/predict", 405, "method_not_allowed"),
        ("DELETE", "/v1/nodes/apt", 405, "method_not_allowed"),
        ("GET", "/docs/../app.py", 404, "not_found"),
        ("GET", "/docs/..%2fapp.py", 404, "not_found"),
        ("GET", "/assets/../../app.py", 404, "not_found"),
        ("GET", "/assets/..%2f..%2fapp.py", 404, "not_found"),
        ("GET", "/assets/%2fetc%2fpasswd", 404, "not_found"),
        ("GET", "/assets/%00.js", 404, "not_found"),
        ("GET", "/docs/docs_page.py", 404, "not_found"),
    ]:
        response = client.send(method, path).result(10)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code), path
    assert client.send("GET", "/v1/predict").result(10).headers["Allow"] == "POST"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/docs", 200), ("/health", 200), ("/info", 200), ("/nowhere", 404), ("/v1/links", 405)],
)
def test_head_is_answered_as_get_without_a_body(client, path: str, status: int) -> None:
    whole, head = client.get(path), client.send("HEAD", path).result(10)
    assert (whole.status_code, head.status_code, head.content) == (status, status, b"")
    for name in ("Content-Length", "Content-Type", "Content-Security-Policy"):
        assert head.headers[name] == whole.headers[name]


def test_an_unforeseen_failure_is_a_500_without_details(client, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(client.service.holder.current.nodes, "search", lambda *_: 1 / 0)
    response = client.get("/v1/search?q=a")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal"
    assert "ZeroDivisionError" not in response.text
    assert "ZeroDivisionError" in caplog.text
    assert 'route="/v1/search",status="500"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize("name", ["index.html", "docs.js", "docs.css"])
def test_the_api_page_needs_nothing_from_elsewhere(name: str) -> None:
    text = (static.DOCS / name).read_text(encoding="utf-8")
    assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", text) == []


def test_the_explorer_is_served_where_it_was_built(client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "EXPLORER", tmp_path)
    assert client.get("/").json()["error"]["code"] == "no_explorer"
    assert client.get("/favicon.ico").status_code == 204
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "assets" / "app.js").write_text("1")
    (tmp_path / "assets" / "secret.key").write_text("1")
    page = client.get("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    script = client.get("/assets/app.js")
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert "immutable" in script.headers["Cache-Control"]
    assert client.get("/assets/secret.key").status_code == 404
