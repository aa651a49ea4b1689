"""Limits: sizes, rows, a full queue, time-outs, and what batching must not change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest

ROW = {"vectors": [[1, 2, 3]]}
JSON = {"Content-Type": "application/json"}


def wait_until(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_requests_that_wait_are_answered_in_one_call(start, model) -> None:
    client = start(batch_wait_ms=1)
    model.gate.clear()
    first = client.send("POST", "/v1/predict", json=ROW)
    wait_until(lambda: model.held == 1)
    rest = [
        client.send("POST", "/v1/predict", json={"vectors": [[float(i % 2), i, 0]], "k": 1 + i % 3}) for i in range(20)
    ]
    wait_until(lambda: client.service.batcher.waiting_rows == 20)
    calls = len(model.calls)
    model.gate.set()
    answers = [each.result(10).json()["predictions"][0] for each in rest]
    assert first.result(10).status_code == 200
    assert model.calls[calls:] == [1, 20]
    for i, answer in enumerate(answers):  # each got its own row's answer, and as many links as it asked for
        assert answer["position"] == [0.5, float(i)]
        assert answer["class"] == ("libs" if i % 2 else "admin")
        assert len(answer["links"]) == 1 + i % 3


def test_two_workers_answer_side_by_side(start, model) -> None:
    client = start(workers=2)
    model.gate.clear()
    waiting = []
    for i in range(2):  # each is taken by a worker of its own, though neither can go on
        waiting.append(client.send("POST", "/v1/predict", json=ROW))
        wait_until(lambda i=i: model.held == i + 1)
    waiting += [client.send("POST", "/v1/predict", json={"vectors": [[1, i, 0]]}) for i in range(30)]
    wait_until(lambda: client.service.batcher.waiting_rows == 30)
    model.gate.set()
    answers = [each.result(10).json()["predictions"][0]["position"][1] for each in waiting]
    assert answers == [2.0, 2.0, *map(float, range(30))]


def test_a_batch_is_no_larger_than_told_and_keeps_forms_and_coverages_apart(start, model) -> None:
    client = start(batch_rows=4, batch_wait_ms=1)
    model.gate.clear()
    client.send("POST", "/v1/embed", json=ROW)
    wait_until(lambda: model.held == 1)
    kinds = [ROW] * 6 + [{"records": [{"words": "a"}]}] * 2 + [{**ROW, "coverage": 0.5}]
    waiting = []
    for i, body in enumerate(kinds):
        waiting.append(client.send("POST", "/v1/predict", json=body))
        wait_until(lambda i=i: client.service.batcher.waiting_rows == i + 1)
    calls = len(model.calls)
    model.gate.set()
    assert {each.result(10).status_code for each in waiting} == {200}
    assert model.calls[calls:] == [1, 4, 2, 2, 1]


def test_one_bad_request_does_not_spoil_the_batch(start, model, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start()
    honest = type(model).predict

    def fussy(self, table, **options):
        if hasattr(table, "shape") and (table[:, 0] == 13).any():
            raise RuntimeError("thirteen")
        return honest(self, table, **options)

    monkeypatch.setattr(type(model), "predict", fussy)
    model.gate.clear()
    client.send("POST", "/v1/embed", json=ROW)
    wait_until(lambda: model.held == 1)
    waiting = [client.send("POST", "/v1/predict", json={"vectors": [[value, 0, 0]]}) for value in (1, 13, 2)]
    wait_until(lambda: client.service.batcher.waiting_rows == 3)
    model.gate.set()
    assert [each.result(10).status_code for each in waiting] == [200, 500, 200]


def test_a_full_queue_sheds_and_recovers(start, model) -> None:
    client = start(queue=3)
    model.gate.clear()
    accepted = [client.send("POST", "/v1/predict", json=ROW)]
    wait_until(lambda: model.held == 1)
    accepted += [client.send("POST", "/v1/predict", json=ROW) for _ in range(2)]
    wait_until(lambda: client.service.batcher.waiting_rows == 2)
    refused = client.post("/v1/predict", json=ROW)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["Retry-After"]) >= 1
    assert client.get("/health").status_code == 200  # only rows are refused
    model.gate.set()
    assert [each.result(10).status_code for each in accepted] == [200] * 3
    assert client.post("/v1/predict", json=ROW).status_code == 200
    assert "gsparc_shed_requests_total 1.0" in client.get("/metrics").text


def test_rows_that_would_wait_too_long_are_refused(start, model) -> None:
    client = start(batch_rows=4, max_wait_s=1.0)
    batcher = client.service.batcher
    batcher._seconds_per_batch = 0.9
    model.gate.clear()
    accepted = [client.send("POST", "/v1/predict", json=ROW)]
    wait_until(lambda: model.held == 1)
    for i in range(5):  # four are one batch, 0.9 s; a fifth makes it 1.125 s
        accepted.append(client.send("POST", "/v1/predict", json=ROW))
        wait_until(lambda i=i: batcher.waiting_rows == i + 1)
    assert batcher.expected_wait == pytest.approx(5 / 4 * 0.9)
    refused = client.post("/v1/predict", json=ROW)
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "2"
    model.gate.set()
    assert [each.result(10).status_code for each in accepted] == [200] * 6
    assert batcher._seconds_per_batch != 0.9  # goes with what calls take


def test_a_batch_waits_on_while_rows_keep_coming(start, model) -> None:
    client = start(batch_rows=8, batch_wait_ms=400)
    waiting = []
    for _ in range(4):  # the last comes later than the first would wait for a second
        waiting.append(client.send("POST", "/v1/predict", json=ROW))
        time.sleep(0.15)
    assert {each.result(10).status_code for each in waiting} == {200}
    assert model.calls[-1:] == [4]
    waiting = [client.send("POST", "/v1/predict", json=ROW) for _ in range(8)]  # full: nothing to wait for
    assert {each.result(10).status_code for each in waiting} == {200}
    assert model.calls[-1:] == [8]


def test_rows_count_for_the_queue_and_a_large_request_is_taken_when_it_is_empty(start, model) -> None:
    client = start(queue=4)
    large = {"vectors": [[1, 2, 3]] * 10}
    assert client.post("/v1/predict", json=large).status_code == 200
    model.gate.clear()
    held = [client.send("POST", "/v1/predict", json=ROW)]
    wait_until(lambda: model.held == 1)
    held.append(client.send("POST", "/v1/predict", json=ROW))
    wait_until(lambda: client.service.batcher.waiting_rows == 1)
    assert client.post("/v1/predict", json=large).status_code == 429
    model.gate.set()
    assert [each.result(10).status_code for each in held] == [200, 200]


def test_an_answer_that_takes_too_long_is_504_and_its_row_is_not_computed(start, model) -> None:
    client = start(timeout=0.15)
    model.gate.clear()
    slow = [client.send("POST", "/v1/predict", json=ROW)]
    wait_until(lambda: model.held == 1)
    slow.append(client.send("POST", "/v1/predict", json=ROW))
    assert [each.result(10).status_code for each in slow] == [504, 504]
    calls = len(model.calls)
    model.gate.set()
    assert client.post("/v1/predict", json=ROW).status_code == 200
    assert len(model.calls) == calls + 2  # the one that had begun, and the last: not the one given up in the queue
    assert client.service.batcher.waiting_rows == 0


def test_a_body_that_is_announced_too_large_is_refused_unread(start) -> None:
    client = start(max_bytes=1000)
    response = client.post("/v1/predict", content=b"x" * 1001, headers=JSON)
    assert response.status_code == 413
    assert "1,000 bytes" in response.json()["error"]["message"]


def test_a_body_without_a_length_is_refused_while_it_comes(start) -> None:
    client = start(max_bytes=1000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100
            yield b"x" * 100

    assert client.post("/v1/predict", content=endless(), headers=JSON).status_code == 413
    assert sent <= 1200


def test_a_body_that_does_not_come_is_408(start) -> None:
    client = start(timeout=0.1)

    async def stalling() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)
        yield b"}"

    assert client.post("/v1/predict", content=stalling(), headers=JSON).status_code == 408


def test_too_many_rows_are_refused(start) -> None:
    client = start(max_rows=2)
    response = client.post("/v1/predict", json={"vectors": [[1, 2, 3]] * 3})
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "too_many_rows"
    assert client.post("/v1/predict", json={"vectors": [[1, 2, 3]] * 2}).status_code == 200


def test_a_large_body_is_answered_like_a_small_one(client) -> None:
    records = [{"package": str(i), "words": "w" * 200} for i in range(1000)]
    answer = client.post("/v1/predict", json={"records": records}).json()
    assert [row["id"] for row in answer["predictions"]] == [str(i) for i in range(1000)]


def test_what_is_queued_is_answered_before_the_end(start, model) -> None:
    client = start()
    model.gate.clear()
    waiting = [client.send("POST", "/v1/predict", json=ROW) for _ in range(5)]
    wait_until(lambda: client.service.batcher.open_requests == 5)
    time.sleep(0.05)
    stopping = asyncio.run_coroutine_threadsafe(client.service.batcher.stop(), client._loop)
    wait_until(lambda: client.service.batcher._closing)
    late = client.post("/v1/predict", json=ROW)
    assert late.status_code == 503
    model.gate.set()
    assert [each.result(10).status_code for each in waiting] == [200] * 5
    stopping.result(10)
    assert client.get("/health").status_code == 503


def test_a_client_that_leaves_is_no_failure(start, model) -> None:
    client = start()
    model.gate.clear()
    gone = client.send("POST", "/v1/predict", json=ROW)
    wait_until(lambda: client.service.batcher.open_requests == 1)
    gone.cancel()
    wait_until(lambda: client.service.batcher.open_requests == 0)
    model.gate.set()
    assert client.post("/v1/predict", json=ROW).status_code == 200
    assert isinstance(client.get("/health"), httpx.Response)
