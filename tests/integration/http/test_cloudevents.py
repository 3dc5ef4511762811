"""CloudEvents as the library of the package index sends them, in all modes."""

import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from starlette.testclient import TestClient

from tests.integration.http.conftest import Shop

EVENTS = "/v1/cloudevents"
BATCHED = {"content-type": "application/cloudevents-batch+json"}


def cloud_event(data: Any = None, **attributes: Any) -> CloudEvent:
    given = {"type": "orders", "source": "/shop/north", "specversion": "1.0", "time": datetime(2030, 1, 31, tzinfo=UTC)}
    return CloudEvent({**given, **attributes}, data)


def send(program: TestClient, message: HTTPMessage) -> dict[str, Any]:
    answer = program.post(EVENTS, content=message.body, headers=message.headers)
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_both_modes_say_the_same(shop: Shop, program: TestClient, write: Any) -> None:
    event = cloud_event(
        {"number": 1},
        id=f"é {write.__name__}",
        subject="order 7",
        datacontenttype="application/json",
        dataschema="https://shop.example/order",
        partitionkey="client 7",
        shopversion="3",
    )
    receipt = send(program, write(event))
    stored = shop.stored(receipt["envelope_id"])
    assert stored.items == [{"number": 1}]
    assert (stored.key, stored.partition_key) == (f"/shop/north é {write.__name__}", "client 7")
    assert stored.headers.pop("source_time") == datetime(2030, 1, 31, tzinfo=UTC)
    assert stored.headers == {
        "ce_id": f"é {write.__name__}",
        "ce_source": "/shop/north",
        "ce_subject": "order 7",
        "ce_shopversion": "3",
        "content_type": "application/json",
        "schema": "https://shop.example/order",
    }
    assert send(program, write(event)) == receipt


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize(
    ("data", "content_type", "item"),
    [
        (b"\0\xff", "application/octet-stream", b"\0\xff"),
        ("hello", "text/plain", "hello"),
        (None, None, None),
    ],
)
def test_data_becomes_the_item(
    shop: Shop, program: TestClient, write: Any, data: Any, content_type: str | None, item: Any
) -> None:
    event = cloud_event(data, **({"datacontenttype": content_type} if content_type else {}))
    assert shop.stored(send(program, write(event))["envelope_id"]).items == [item]


@pytest.mark.parametrize("time", ["2030-01-31t00:00:00z", "2030-01-30T23:59:60Z", "2030-01-31t05:00:00.0+05:00"])
def test_a_time_is_any_of_rfc_3339(shop: Shop, program: TestClient, time: str) -> None:
    event = {"specversion": "1.0", "id": time, "source": "time", "type": "orders", "time": time}
    answer = program.post(EVENTS, json=event, headers={"content-type": "application/cloudevents+json"})
    assert answer.status_code == 201, answer.text
    headers = shop.stored(answer.json()["envelope_id"]).headers
    assert headers["source_time"] == datetime(2030, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("data", ["AP8=", "eyJhIjoxfQ==", ""])
def test_base64_without_a_type_is_bytes(shop: Shop, program: TestClient, data: str) -> None:
    event = {"specversion": "1.0", "id": f"64 {data}", "source": "base64", "type": "orders", "data_base64": data}
    answer = program.post(EVENTS, json=event, headers={"content-type": "application/cloudevents+json"})
    assert answer.status_code == 201, answer.text
    assert shop.stored(answer.json()["envelope_id"]).items == [b64decode(data)]


def test_a_batch_is_many_envelopes(shop: Shop, program: TestClient) -> None:
    events = [{"specversion": "1.0", "id": str(n), "source": "batch", "type": "orders", "data": n} for n in range(20)]
    first = program.post(EVENTS, content=json.dumps(events), headers=BATCHED)
    assert first.status_code == 201
    assert [shop.stored(receipt["envelope_id"]).items for receipt in first.json()] == [[n] for n in range(20)]
    # Of a batch that comes again with more events only those are new.
    events.append({"specversion": "1.0", "id": "20", "source": "batch", "type": "orders"})
    again = program.post(EVENTS, content=json.dumps(events), headers=BATCHED)
    assert again.json()[:20] == first.json()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"id": ""}, "bad_event"),
        ({"id": "b", "time": "yesterday"}, "bad_header"),
        ({"id": "b", "number": 1 << 64}, "bad_header"),
        ({"id": "b", "partitionkey": "\ud83d"}, "bad_partition_key"),
    ],
)
def test_a_bad_event_keeps_a_batch_out(program: TestClient, changes: dict[str, Any], code: str) -> None:
    before = program.post("/v1/types/orders/envelopes", json=1).json()["position"]
    good = {"specversion": "1.0", "id": "a", "source": f"/batch/{code}", "type": "orders"}
    answer = program.post(EVENTS, content=json.dumps([good, {**good, **changes}]), headers=BATCHED)
    assert answer.json()["code"] == code
    assert program.post("/v1/types/orders/envelopes", json=1).json()["position"] == before + 1


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"specversion": "0.3"}, 400, "bad_event"),
        ({"id": 7}, 400, "bad_event"),
        ({"source": "a b"}, 400, "bad_event"),
        ({"Upper": "x"}, 400, "bad_event"),
        ({"nested": {}}, 400, "bad_event"),
        ({"data": 1, "data_base64": "AA=="}, 400, "bad_event"),
        ({"data_base64": "!"}, 400, "bad_event"),
        ({"data_base64": "é"}, 400, "bad_event"),
        ({"data_base64": "\ud83d"}, 400, "bad_event"),
        ({"subject": "\ud83d"}, 422, "bad_header"),
        ({"id": "\ud83d"}, 422, "bad_header"),
        ({"partitionkey": "\ud83d"}, 422, "bad_partition_key"),
        ({"number": 1 << 64}, 422, "bad_header"),
        ({"time": "yesterday"}, 422, "bad_header"),
        ({"type": "nothing"}, 404, "unknown_type"),
        ({"type": "forbidden_orders"}, 403, "type_not_allowed"),
    ],
)
def test_bad_events_are_refused(program: TestClient, changes: dict[str, Any], status: int, code: str) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "refused", "type": "orders", **changes}
    answer = program.post(EVENTS, content=json.dumps(event), headers={"content-type": "application/cloudevents+json"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    answer = program.post(EVENTS, content=json.dumps([event]), headers=BATCHED)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([("ce-id", "z%fe")], "bad_event"),
        ([("ce-id", "z%ed%a0%bd")], "bad_event"),
        ([("ce-id", "a"), ("ce-subject", "%ff")], "bad_event"),
        ([("ce-id", "a"), ("ce-id", "b")], "bad_request"),
    ],
)
def test_headers_that_would_change_an_event_are_refused(
    program: TestClient, headers: list[tuple[str, str]], code: str
) -> None:
    others = [("ce-specversion", "1.0"), ("ce-type", "orders"), ("ce-source", "bytes")]
    answer = program.post(EVENTS, json=1, headers=[*others, *headers])
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["next_step"]


@pytest.mark.parametrize(
    "value", [b"%22K%C3%B6ln%22%20north", b'"\\"K%C3%B6ln\\" north"', '"\\"Köln\\" north"'.encode()]
)
def test_a_header_says_the_same_in_each_form(shop: Shop, program: TestClient, value: bytes) -> None:
    headers = {b"ce-specversion": b"1.0", b"ce-type": b"orders", b"ce-source": b'"forms"', b"ce-id": value}
    answer = program.post(EVENTS, json=1, headers=headers)
    assert answer.status_code == 201, answer.text
    stored = shop.stored(answer.json()["envelope_id"])
    assert (stored.key, stored.headers["ce_id"]) == ('forms "Köln" north', '"Köln" north')


@pytest.mark.parametrize("value", ['"', '"a', 'a"', '"a"b"', '"a\\"'])
def test_a_quote_that_quotes_nothing_is_a_letter(shop: Shop, program: TestClient, value: str) -> None:
    headers = {"ce-specversion": "1.0", "ce-type": "orders", "ce-source": "quotes", "ce-id": value}
    answer = program.post(EVENTS, json=1, headers=headers)
    assert shop.stored(answer.json()["envelope_id"]).headers["ce_id"] == value
