"""Signatures, bodies and allowed addresses of calls: pure."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgpack import Timestamp  # type: ignore[import-untyped]
from standardwebhooks import Webhook

from xbus.headers import pack_headers
from xbus.http.batches import JSON, NDJSON, CheckpointTicket, batch_body, item_lines, plain, sse_event
from xbus.http.callbacks.client import outcome_of
from xbus.http.callbacks.service import cloudevents_body, json_body, routemaster_body, signature_headers
from xbus.http.targets import AllowedAddresses
from xbus.reader.batch import ReaderBatch
from xbus.rpc.codec import pack_items
from xbus.rpc.items import item_bytes
from xbus.rpc.messages import ClaimedBatchMap

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = datetime(2026, 11, 20, 10, tzinfo=UTC)


def claimed(*items: object, headers: dict[str, Any] | None = None, type_name: str = "orders") -> ClaimedBatchMap:
    event = {
        "event_id": "11111111-1111-1111-1111-111111111111",
        "type": type_name,
        "event": 0,
        "envelope_id": "22222222-2222-2222-2222-222222222222",
        "position": 7,
        "sealed_at": AT.timestamp(),
        "emitter": "shop 1",
        "key": None,
        "ordering_key": None,
        "partition_key": "a",
        "first_index": 0,
        "items": len(items),
        "data": pack_items([item_bytes(item) for item in items]),
        "headers": pack_headers(headers or {}),
        "event_headers": pack_headers({}),
    }
    told: dict[str, Any] = {"range": 1, "counter": 1, "from": [7, 0, 0], "to": [8, 0, 0], "id": "msg_1"}
    told |= {"repeated": False, "events": [event]}
    return cast(ClaimedBatchMap, told)


def batch(*items: object, headers: dict[str, Any] | None = None, type_name: str = "orders") -> ReaderBatch:
    return ReaderBatch(claimed(*items, headers=headers, type_name=type_name))


def test_a_signature_is_one_of_standard_webhooks() -> None:
    message_id = "msg_0123456789abcdef0123456789abcdef"
    seconds = int(datetime.now(UTC).timestamp())
    headers = signature_headers(SECRET, message_id, seconds, b'{"a":1}')
    assert Webhook(SECRET).verify(b'{"a":1}', headers) == {"a": 1}
    with pytest.raises(Exception, match="signature"):
        Webhook(SECRET).verify(b'{"a":2}', headers)
    assert "webhook-signature" not in signature_headers("", message_id, seconds, b"")


def test_json_has_events_with_their_items() -> None:
    (event,) = json.loads(json_body(batch({"n": 1}, {"b": b"\x00"}, headers={"shop": "north"})))["events"]
    assert (event["type"], event["position"], event["headers"]) == ("orders", 7, {"shop": "north"})
    assert event["items"] == [{"n": 1}, {"b": "AA=="}]


def test_an_event_of_cloudevents_goes_on_under_its_own_id() -> None:
    headers = {"ce_id": "42", "ce_source": "/till", "source_time": "2026-11-20T09:00:00Z", "ce_region": "north"}
    (event,) = json.loads(cloudevents_body(batch({"n": 1}, headers=headers | {"other_header": "x"})))
    assert (event["id"], event["source"], event["time"]) == ("42", "/till", "2026-11-20T09:00:00+00:00")
    assert (event["specversion"], event["type"], event["region"], event["data"]) == ("1.0", "orders", "north", {"n": 1})
    assert "other_header" not in event


def test_each_item_is_an_event_of_cloudevents_with_an_id_of_its_own() -> None:
    found = json.loads(cloudevents_body(batch(1, 2, headers={"ce_id": "42", "ce_source": "/till"})))
    assert [each["id"][-2:] for each in found] == ["/0", "/1"]
    assert {each["source"] for each in found} == {"/xbus/shop%201"}


def test_routemaster_has_its_own_fields() -> None:
    pushed = {"type": "create", "url": "https://shop.example/1", "timestamp": 5, "data": {"a": 1}}
    found = json.loads(routemaster_body(batch(pushed, {"type": "noop", "url": "u", "timestamp": 6}, "other")))
    assert found[0] == {"topic": "orders", "type": "create", "url": "https://shop.example/1", "t": 5, "data": {"a": 1}}
    assert found[1] == {"topic": "orders", "type": "noop", "url": "u", "t": 6}
    assert found[2]["t"] == int(AT.timestamp() * 1000)


def test_values_that_json_lacks_have_a_form() -> None:
    assert plain({1: float("inf"), "b": [b"\x01", AT]}) == {"1": None, "b": ["AQ==", AT.isoformat()]}


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::",
        ),
        *("fe80::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "224.0.0.1", "255.255.255.255", "240.0.0.1", "ff0e::1"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not AllowedAddresses([]).has(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert AllowedAddresses([]).has(address)


def test_named_networks_are_allowed() -> None:
    allowed = AllowedAddresses(["10.1.0.0/16", "::1"])
    assert allowed.has("10.1.2.3")
    assert allowed.has("::ffff:10.1.2.3")
    assert allowed.has("::1")
    assert not allowed.has("10.2.0.1")


@pytest.mark.parametrize(("status", "code"), [(200, ""), (204, ""), (299, ""), (301, "callback_refused")])
def test_only_2xx_takes_a_batch(status: int, code: str) -> None:
    assert outcome_of(status).code == code


def test_410_ends_a_subscription() -> None:
    assert outcome_of(410).is_end
    assert not outcome_of(404).is_end


def nested(depth: int) -> object:
    value: object = "end"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("write", [json_body, cloudevents_body, routemaster_body])
def test_an_item_that_json_has_no_form_for_is_written_all_the_same(write: Any) -> None:
    moment = AT.replace(microsecond=5)
    fields = {"type": "create", "url": "https://a.example", "timestamp": moment, "data": nested(400)}
    for item in (fields, fields | {"timestamp": b"\xff"}, nested(500), fields | {"data": nested(500)}):
        assert json.loads(write(batch(item)))


def test_a_moment_of_msgpack_is_written_by_iso_8601() -> None:
    assert plain(Timestamp.from_datetime(AT)) == "2026-11-20T10:00:00+00:00"
    assert plain(Timestamp(2**60)) == str(Timestamp(2**60))


@pytest.mark.parametrize(
    "address", ["64:ff9b:1::a00:1", "::ffff:0:10.0.0.1", "::127.0.0.1", "fec0::1", "fd00::1", "fe80::1%eth0", "::"]
)
def test_an_address_of_ipv6_that_nobody_was_given_is_not_public(address: str) -> None:
    assert not AllowedAddresses([]).has(address)
    assert AllowedAddresses([]).has("2606:4700::1111")


def packed_deep(depth: int) -> bytes:
    return b"\x91" * (depth - 1) + b"\x90"


@pytest.mark.parametrize("depth", [90, 600, 1000, 5000])
@pytest.mark.parametrize(
    "write",
    [
        json_body,
        cloudevents_body,
        routemaster_body,
        lambda batch: b"[" + b",".join(line.encode() for event in batch.events for _, line in item_lines(event)) + b"]",
        lambda batch: batch_body(
            JSON, claimed(packed_deep(90)), batch.events, CheckpointTicket.of(claimed(packed_deep(90)), "a")
        ),
    ],
    ids=["json", "cloudevents", "routemaster", "lines", "batch"],
)
def test_an_item_that_is_nested_deep_is_written(write: Callable[[ReaderBatch], bytes], depth: int) -> None:
    for item in (packed_deep(depth), b"[" * depth + b"]" * depth):
        assert write(batch(item))


@pytest.mark.parametrize("write", [json_body, cloudevents_body, routemaster_body])
def test_keys_of_one_name_are_both_written(write: Callable[[ReaderBatch], bytes]) -> None:
    value = {1: "x", "1": "y"}
    assert '[[1,"x"],["1","y"]]' in write(batch({"data": value})).decode()


HALF_PAIRS = b'{"\\ud800": ["\\udfff \xc3\xa9", "\\ud83d\\ude00"]}'


@pytest.mark.parametrize("media_type", [JSON, NDJSON])
def test_half_of_a_pair_of_surrogates_is_written_as_it_came(media_type: str) -> None:
    told = claimed(HALF_PAIRS)
    body = batch_body(media_type, told, batch(HALF_PAIRS).events, CheckpointTicket.of(told, "a"))
    found = json.loads(body)
    value = found["events"][0]["items"][0] if media_type == JSON else found["value"]
    assert value == json.loads(HALF_PAIRS)


def test_half_of_a_pair_of_surrogates_stops_no_tail() -> None:
    (event,) = batch(HALF_PAIRS).events
    ((place, line),) = item_lines(event)
    assert json.loads(sse_event(place, line).encode().partition(b"data: ")[2])["value"] == json.loads(HALF_PAIRS)
