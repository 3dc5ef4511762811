"""Batches of readers by HTTP: programs without a connection share the ranges, and settle what they have processed."""

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from starlette.testclient import TestClient

from tests.integration.http.conftest import LEASE, Shop, Visit
from tests.support.waiting import wait_until
from xbus.reader import Reader

BATCH = "/v1/readers/billing/batch"
CHECKPOINT = "/v1/readers/billing/checkpoint"
LEAVE = "/v1/readers/billing/leave"
PROGRAMS = ("", "one", "two", "slow", "quick")
"""The names of all programs here; the empty one stands for a program without a name."""


@pytest.fixture
def reading(shop: Shop, visit: Visit) -> Iterator[TestClient]:
    """A program of the reader ``billing``, which begins with nothing to read."""
    made = visit()
    made.headers["authorization"] = f"Bearer {shop.tokens['billing_1']}"
    while (answer := made.get(BATCH)).status_code == 200:
        settle(made, answer.headers["x-xbus-checkpoint"])
    made.post(LEAVE)
    yield made
    for name in PROGRAMS:
        made.post(LEAVE, params={"program": name} if name else {})


@pytest.fixture
def send(program: TestClient) -> Callable[..., list[Any]]:
    """Sends one envelope with items."""

    def send(*items: Any, key: str = "client 7", name: str = "bills") -> list[Any]:
        told = {"x-xbus-partition-key": key, "x-xbus-note": "hello"}
        answer = program.post(f"/v1/types/{name}/envelopes", json=[*items], headers=told)
        assert answer.status_code == 201, answer.text
        return [*items]

    return send


def take(client: TestClient, /, **asked: str) -> Any:
    """Get a batch; what was sent just now may take a moment to be there."""
    headers = {"accept": asked.pop("accept")} if "accept" in asked else {}
    answer = client.get(BATCH, params={"wait": "10s", **asked}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


def settle(program: TestClient, checkpoint: str, **more: str) -> Any:
    answer = program.post(CHECKPOINT, json={"checkpoint": checkpoint, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def items(answer: Any) -> list[Any]:
    return [item for event in answer.json()["events"] for item in event["items"]]


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_batch_comes_again_until_it_is_settled(reading: TestClient, send: Callable[..., list[Any]]) -> None:
    sent = send({"n": 1}, {"n": 2}, {"n": 3}, {"n": 4})
    first = take(reading)
    assert items(first) == sent[:3]
    assert first.headers["content-type"] == "application/json"
    told = first.json()
    assert (told["repeated"], first.headers["x-xbus-repeated"]) == (False, "false")
    assert first.headers["x-xbus-lease"] == str(LEASE)
    assert told["checkpoint"] == first.headers["x-xbus-checkpoint"]
    event = told["events"][0]
    assert (event["type"], event["emitter"], event["partition_key"]) == ("bills", "emitter_1", "client 7")
    assert (event["headers"], event["first_index"]) == ({"note": "hello"}, 0)
    again = take(reading)
    assert items(again) == sent[:3]
    assert again.json()["repeated"]
    assert (again.json()["from"], again.json()["to"]) == (told["from"], told["to"])
    assert settle(reading, told["checkpoint"]) == {"lease": LEASE}
    rest = take(reading)
    assert items(rest) == sent[3:]
    # Settled twice is settled once.
    settle(reading, rest.json()["checkpoint"])
    settle(reading, rest.json()["checkpoint"])
    assert reading.get(BATCH).status_code == 204


def test_the_next_batch_settles_the_one_before(reading: TestClient, send: Callable[..., list[Any]]) -> None:
    sent = send(*range(7))
    got: list[Any] = []
    done: dict[str, str] = {}
    while len(got) < len(sent):
        answer = take(reading, **done)
        assert not answer.json()["repeated"]
        got += items(answer)
        done = {"done": answer.headers["x-xbus-checkpoint"]}
    assert got == sent
    assert reading.get(BATCH, params=done).status_code == 204


def test_part_of_a_batch_is_settled(reading: TestClient, send: Callable[..., list[Any]]) -> None:
    send("a", "b", "c")
    told = take(reading).json()
    position = told["events"][0]["position"]
    settle(reading, told["checkpoint"], place=f"{position}:0:2")
    again = take(reading)
    assert (items(again), again.json()["from"]) == (["c"], f"{position}:0:2")
    wrong = reading.post(CHECKPOINT, json={"checkpoint": told["checkpoint"], "place": str(position + 9)})
    assert code(wrong) == (409, "place_not_in_batch")
    settle(reading, again.headers["x-xbus-checkpoint"])


def test_the_formats(reading: TestClient, send: Callable[..., list[Any]]) -> None:
    send({"n": 1}, "é")
    lines = take(reading, accept="text/html, application/x-ndjson;q=0.9")
    assert lines.headers["content-type"] == "application/x-ndjson"
    told = [json.loads(line) for line in lines.text.splitlines()]
    assert [(line["index"], line["value"], line["type"]) for line in told] == [
        (0, {"n": 1}, "bills"),
        (1, "é", "bills"),
    ]
    packed = take(reading, accept="application/msgpack")
    assert packed.headers["content-type"] == "application/msgpack"
    facts = msgpack.unpackb(packed.content)
    assert facts["events"][0]["items"] == [{"n": 1}, "é"]
    assert facts["checkpoint"] == lines.headers["x-xbus-checkpoint"] == packed.headers["x-xbus-checkpoint"]
    settle(reading, facts["checkpoint"])


def test_json_gets_what_it_can_have(shop: Shop, program: TestClient, reading: TestClient) -> None:
    odd = {b"\x00": b"\xff", 1: float("inf"), "deep": [{"x": b"a"}], "big": 2**63}
    body = msgpack.packb([odd, b"{}"])
    sent = program.post("/v1/types/bills/envelopes", content=body, headers={"content-type": "application/msgpack"})
    assert sent.status_code == 201, sent.text
    answer = take(reading)
    wanted = {"AA==": base64.b64encode(b"\xff").decode(), "1": None, "deep": [{"x": "YQ=="}], "big": 2**63}
    assert items(answer) == [wanted, "e30="]
    whole = msgpack.unpackb(take(reading, accept="application/msgpack").content, strict_map_key=False)
    assert whole["events"][0]["items"] == [odd, b"{}"]
    settle(reading, answer.headers["x-xbus-checkpoint"])


def test_programs_share_the_ranges_at_any_gateway(shop: Shop, visit: Visit, reading: TestClient, send: Any) -> None:
    sent = [send(number, key=f"client {number}")[0] for number in range(40)]
    programs = [("one", reading), ("two", visit())]
    programs[1][1].headers["authorization"] = reading.headers["authorization"]
    got: dict[str, list[Any]] = {"one": [], "two": []}

    def is_read() -> bool:
        for name, client in programs:
            answer = client.get(BATCH, params={"program": name})
            if answer.status_code == 200:
                got[name] += items(answer)
                # It may be settled at another gateway.
                settle(programs[0][1], answer.headers["x-xbus-checkpoint"])
        return sum(map(len, got.values())) >= len(sent)

    wait_until(is_read, "all is read")
    assert sorted(got["one"] + got["two"]) == sent
    assert all(got.values())
    renewed = reading.post("/v1/readers/billing/renew", params={"program": "one"}).json()
    assert len(renewed["ranges"]) == 2
    for name, client in programs:
        assert client.post(LEAVE, params={"program": name}).status_code == 204


def test_a_late_checkpoint_is_refused(reading: TestClient, send: Callable[..., list[Any]]) -> None:
    sent = send("late")
    late = take(reading, program="slow").headers["x-xbus-checkpoint"]
    assert reading.post(LEAVE, params={"program": "slow"}).status_code == 204
    following = take(reading, program="quick")
    assert (items(following), following.json()["repeated"]) == (sent, True)
    refused = reading.post(CHECKPOINT, json={"checkpoint": late})
    assert code(refused) == (409, "lease_lost")
    assert code(reading.get(BATCH, params={"done": late})) == (409, "lease_lost")
    settle(reading, following.headers["x-xbus-checkpoint"])


def test_a_program_of_the_library_and_one_by_http_are_programs_of_one_reader(
    shop: Shop, reading: TestClient, send: Callable[..., list[Any]]
) -> None:
    with Reader(shop.daemon.back, "billing_1", "password", program=uuid.UUID(int=7)) as other:
        sent = send("both")
        reading.post(LEAVE)
        batch = other.next_batch()
        assert [item.value for item in batch] == sent
        batch.done()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"{BATCH}?wait=31s", (400, "bad_request")),
        (f"{BATCH}?wait=soon", (400, "bad_request")),
        (f"{BATCH}?max_items=0", (400, "bad_request")),
        (f"{BATCH}?max_bytes=-1", (400, "bad_request")),
        (f"{BATCH}?nothing=1", (400, "bad_request")),
        (f"{BATCH}?wait=1s&wait=1s", (400, "bad_request")),
        (f"{BATCH}?done=7", (400, "bad_request")),
        (f"{BATCH}?program={'x' * 101}", (400, "bad_request")),
        ("/v1/readers/following/batch", (403, "reader_not_allowed")),
        ("/v1/readers/nobody/batch", (403, "reader_not_allowed")),
    ],
)
def test_what_is_wrong_is_refused(reading: TestClient, path: str, wanted: tuple[int, str]) -> None:
    assert code(reading.get(path)) == wanted


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"checkpoint": 1}', '{"checkpoint": "x", "place": 1}', "{"])
def test_a_wrong_checkpoint_is_refused(reading: TestClient, body: str) -> None:
    assert code(reading.post(CHECKPOINT, content=body)) == (400, "bad_body")


def test_a_checkpoint_of_nothing_is_refused(reading: TestClient) -> None:
    assert code(reading.post(CHECKPOINT, json={"checkpoint": "x"})) == (400, "bad_request")
    assert code(reading.post(CHECKPOINT, json={"checkpoint": f"1.1.x.{uuid.uuid4()}"})) == (400, "bad_request")
    assert code(reading.post(CHECKPOINT, json={"checkpoint": f"999.1.1.{uuid.uuid4()}"})) == (409, "lease_lost")


def test_who_has_no_role_reads_nothing(shop: Shop, program: TestClient, visit: Visit) -> None:
    assert code(program.get(BATCH)) == (401, "session_unknown")
    nobody = visit()
    del nobody.headers["authorization"]
    assert code(nobody.get(BATCH)) == (401, "token_missing")


def test_a_large_batch_takes_room_until_it_is_sent(shop: Shop, visit: Visit, reading: TestClient, send: Any) -> None:
    send("x" * 50_000)
    small = visit(max_document_bytes=10)
    small.headers["authorization"] = reading.headers["authorization"]
    # It alone takes all there is, and gives it back.
    for _ in range(3):
        take(small)
    settle(reading, take(reading).headers["x-xbus-checkpoint"])
