"""Envelopes by HTTP: every format, every key, every refusal."""

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterator

import msgpack  # type: ignore[import-untyped]
import pytest
from starlette.testclient import TestClient

from tests.integration.http.conftest import BODY_BYTES, DOCUMENT_BYTES, Shop, Visit
from tests.support.waiting import wait_until
from xbus.broker.journal.api_tokens import add_api_token, revoke_api_token
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.http.batches import BATCH_FORMATS

ORDERS = "/v1/types/orders/envelopes"
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.mark.parametrize(
    ("content_type", "body", "items"),
    [
        ("application/json", b'{"number": 1}', [{"number": 1}]),
        ("application/json; charset=utf-8", '["\u00e9", null, 1.5]'.encode(), ["\u00e9", None, 1.5]),
        ("application/json", b"[]", []),
        ("application/x-ndjson", b'{"a": 1}\n\n{"a": 2}\r\n[3]', [{"a": 1}, {"a": 2}, [3]]),
        ("application/msgpack", msgpack.packb({"a": b"\0"}), [{"a": b"\0"}]),
        ("application/msgpack", msgpack.packb([1, [2], "x" * 70_000]), [1, [2], "x" * 70_000]),
        ("application/msgpack", msgpack.packb([]), []),
        (
            "text/csv",
            b'\xef\xbb\xbfid,name\r\n1,"a ""b""\r\nc"\r\n2,\r\n',
            [{"id": "1", "name": 'a "b"\r\nc'}, {"id": "2", "name": ""}],
        ),
    ],
)
def test_every_format_becomes_items(
    shop: Shop, program: TestClient, content_type: str, body: bytes, items: list[object]
) -> None:
    answer = program.post(ORDERS, content=body, headers={"content-type": content_type})
    assert answer.status_code == 201, answer.text
    receipt = answer.json()
    assert (receipt["events"], receipt["items"]) == (1, len(items))
    assert receipt["position"] > 0
    assert len(receipt["hash"]) == 64
    stored = shop.stored(receipt["envelope_id"])
    assert (stored.type_name, stored.items) == ("orders", items)


@pytest.mark.parametrize("path", [ORDERS, "/v1/cloudevents", "/topics/orders"])
def test_a_packed_body_is_refused_by_name(program: TestClient, path: str) -> None:
    packed = gzip.compress(b'{"a": 1}')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = program.post(path, content=packed, headers=headers)
    assert answer.status_code == 415
    assert (answer.json()["code"], "gzip" in answer.json()["detail"]) == ("packed_body", True)
    assert program.post(ORDERS, json=[], headers={"content-encoding": "Identity"}).status_code == 201
    twice = [("content-type", "application/json"), ("content-encoding", "identity"), ("content-encoding", "gzip")]
    answer = program.post(path, content=gzip.compress(b"[]"), headers=twice)
    assert answer.json()["code"] == "packed_body"


def test_keys_and_headers_travel(shop: Shop, program: TestClient) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "X-Xbus-Ordering-Key": "client 7",
        "X-Xbus-Partition-Key": "invoice 9",
        "X-Xbus-Correlation-Id": "c-1",
        "X-Xbus-Shop": "north",
        "traceparent": trace,
    }
    receipt = program.post(ORDERS, json={"a": 1}, headers=headers).json()
    stored = shop.stored(receipt["envelope_id"])
    assert (stored.ordering_key, stored.partition_key) == ("client 7", "invoice 9")
    assert stored.headers == {"correlation_id": "c-1", "shop": "north", "traceparent": trace}


def test_a_name_with_a_slash_is_a_name(shop: Shop, program: TestClient) -> None:
    receipt = program.post("/v1/types/eu/orders/envelopes", json=[1]).json()
    assert shop.stored(receipt["envelope_id"]).type_name == "eu/orders"


def test_under_a_key_an_envelope_is_taken_once(shop: Shop, program: TestClient) -> None:
    keyed = {"Idempotency-Key": '"order 1"'}
    first = program.post(ORDERS, json=[1, 2], headers=keyed)
    assert program.post(ORDERS, json=[1, 2], headers={"Idempotency-Key": "order 1"}).json() == first.json()
    assert shop.stored(first.json()["envelope_id"]).key == "order 1"
    other = program.post(ORDERS, json=[1, 3], headers=keyed)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")


def test_a_body_without_items_leaves_its_key_free(program: TestClient) -> None:
    keyed = {**NDJSON, "Idempotency-Key": "empty at first"}
    empty = program.post(ORDERS, content=b"", headers=keyed)
    assert (empty.status_code, empty.json()["code"]) == (400, "bad_body")
    assert program.post(ORDERS, content=b'{"a":1}\n', headers=keyed).status_code == 201


@pytest.mark.parametrize("path", [ORDERS, "/v1/cloudevents"])
def test_a_blank_behind_a_header_is_no_part_of_it(program: TestClient, path: str) -> None:
    event = {"ce-specversion": "1.0", "ce-type": "orders", "ce-id": "blank"}
    headers = [("Idempotency-Key", "blank"), ("ce-source", "/shop"), *event.items()]
    first = program.post(path, json=[1], headers=headers)
    padded = [(name, f"{value} \t") for name, value in headers]
    assert program.post(path, json=[1], headers=padded).json() == first.json()
    assert first.status_code == 201


def test_the_delimiter_that_was_found_is_told(shop: Shop, program: TestClient) -> None:
    answer = program.post(ORDERS, content=b"id;name\n1;Ada\n", headers={"content-type": "text/csv"})
    assert shop.stored(answer.json()["envelope_id"]).items == [{"id": "1", "name": "Ada"}]
    assert answer.headers["x-xbus-note"] == "its fields are separated by semicolons"


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Xbus-Ordering-Key", "X-Xbus-Shop", "traceparent"])
def test_a_header_of_the_bus_comes_once(program: TestClient, name: str) -> None:
    answer = program.post(ORDERS, json=[1], headers=[(name, "order 1"), (name.upper(), "order 2")])
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_the_type_of_the_body_comes_once(program: TestClient) -> None:
    two = [("Content-Type", "application/json"), ("Content-Type", "text/csv")]
    for path in (ORDERS, "/v1/types/orders/ask", "/v1/cloudevents"):
        answer = program.post(path, content=b"1", headers=two)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), path


def test_one_name_comes_in_one_form(program: TestClient) -> None:
    answer = program.post(ORDERS, json=[1], headers={"X-Xbus-a-b": "1", "X-Xbus-a_b": "2"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_a_trace_state_comes_in_several_lines(shop: Shop, program: TestClient) -> None:
    receipt = program.post(ORDERS, json=[1], headers=[("tracestate", "a=1"), ("tracestate", "b=2")]).json()
    assert shop.stored(receipt["envelope_id"]).headers == {"tracestate": "a=1,b=2"}


def test_a_large_body_is_passed_on_while_it_comes(shop: Shop, program: TestClient) -> None:
    rows = [{"number": number, "text": "x" * 100} for number in range(10_000)]

    def parts() -> Iterator[bytes]:
        for row in rows:
            yield json.dumps(row).encode() + b"\n"

    keyed = {**NDJSON, "Idempotency-Key": "large"}
    first = program.post(ORDERS, content=parts(), headers=keyed)
    assert first.status_code == 201, first.text
    assert shop.stored(first.json()["envelope_id"]).items == rows
    assert program.post(ORDERS, content=parts(), headers=keyed).json() == first.json()


def test_a_fault_late_in_a_large_body_leaves_nothing(program: TestClient) -> None:
    before = program.post(ORDERS, json=[1]).json()["position"]
    body = b'{"text": "%s"}\n' % (b"x" * 1000) * 500 + b"{no json}\n"
    answer = program.post(ORDERS, content=body, headers={**NDJSON, "Idempotency-Key": "broken"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_body")
    assert "line 501" in answer.json()["detail"]
    assert program.post(ORDERS, json=[1]).json()["position"] == before + 1
    # The key is free again.
    mended = program.post(ORDERS, content=b"1\n", headers={**NDJSON, "Idempotency-Key": "broken"})
    assert mended.json()["position"] == before + 2


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("application/json", b"{", 400, "bad_body"),
        ("application/json", b"", 400, "bad_body"),
        ("application/json", b"[NaN]", 400, "bad_body"),
        ("application/json", b"\xff", 400, "bad_body"),
        ("application/json", b"[" * 50_000, 400, "bad_body"),
        ("application/json", b"[18446744073709551616]", 422, "bad_items"),
        ("application/json", b'["\\ud800"]', 422, "bad_items"),
        ("application/json", b'"%s"' % (b"x" * DOCUMENT_BYTES), 413, "body_too_large"),
        ("application/x-ndjson", b"x" * (DOCUMENT_BYTES + 1), 413, "body_too_large"),
        ("application/x-ndjson", b"1\n" * (BODY_BYTES // 2 + 1), 413, "body_too_large"),
        ("application/msgpack", b"", 400, "bad_body"),
        ("application/msgpack", b"\xdd\xff\xff\xff\xff\x01", 400, "bad_body"),
        ("application/msgpack", b"\x93\x01", 400, "bad_body"),
        ("application/msgpack", b"\x01\x02", 400, "bad_body"),
        ("application/msgpack", b"\x91" * 50_000, 400, "bad_body"),
        ("application/msgpack", b"\xc1", 400, "bad_body"),
        ("text/csv", b"a,a\n1,2\n", 400, "bad_body"),
        ("text/csv", b"a,b\n1\n", 400, "bad_body"),
        ("text/csv", b'a,b\n1,"2\n', 400, "bad_body"),
        ("text/csv", b'a\n"' + b"\n" * DOCUMENT_BYTES, 413, "body_too_large"),
        ("text/csv", b"a\n\xff\n", 400, "bad_body"),
        ("text/csv; charset=klingon", b"a\n1\n", 415, "unknown_encoding"),
        ("application/json; charset=latin-1", b"1", 415, "unknown_format"),
        ("application/x-ndjson", b"", 400, "bad_body"),
        ("text/csv", b"a\n", 400, "bad_body"),
        ("text/plain", b"1", 415, "unknown_format"),
        ("", b"1", 415, "unknown_format"),
    ],
)
def test_bad_bodies_are_refused(program: TestClient, content_type: str, body: bytes, status: int, code: str) -> None:
    answer = program.post(ORDERS, content=body, headers={"content-type": content_type} if content_type else {})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"X-Xbus-1": "x"}, 422, "bad_header"),
        ({"traceparent": "x"}, 422, "bad_header"),
        ({"X-Xbus-Partition-Key": "x" * 256}, 422, "bad_partition_key"),
        ({"X-Xbus-Note": "x" * 5000}, 431, "headers_too_large"),
        ({"Idempotency-Key": "x" * 1025}, 422, "wrong_arguments"),
        ({"X-Xbus-Ordering-Key": ""}, 422, "wrong_arguments"),
        ({"Idempotency-Key": ""}, 422, "wrong_arguments"),
        ({"Idempotency-Key": '""'}, 422, "wrong_arguments"),
    ],
)
def test_bad_headers_are_refused(program: TestClient, headers: dict[str, str], status: int, code: str) -> None:
    answer = program.post(ORDERS, json=1, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["next_step"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/types/forbidden_orders/envelopes", 403, "type_not_allowed"),
        ("POST", "/v1/types/nothing/envelopes", 404, "unknown_type"),
        ("POST", "/v1/types/nothing%00/envelopes", 404, "unknown_type"),
        ("GET", ORDERS, 405, "wrong_method"),
        ("GET", "/nowhere", 404, "no_page"),
        ("POST", "/v1/types/orders/ask", 409, "no_reply"),
    ],
)
def test_refusals_have_their_statuses(program: TestClient, method: str, path: str, status: int, code: str) -> None:
    answer = program.request(method, path, json=1)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_token_may_be_the_user_name(shop: Shop, program: TestClient) -> None:
    token = shop.tokens["emitter_2"]
    for written in (f"{token}:", f"{token}:x"):
        basic = {"authorization": f"Basic {b64encode(written.encode()).decode()}"}
        assert program.post(ORDERS, json=1, headers=basic).status_code == 201


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer nobody", "Basic !", "Basic Og==", "Digest x"])
def test_strangers_are_not_let_in(program: TestClient, authorization: str) -> None:
    answer = program.post(ORDERS, json=1, headers={"authorization": authorization})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_counts_until_it_is_revoked(shop: Shop, program: TestClient) -> None:
    with writing(shop.daemon.url) as connection:
        token = add_api_token(connection, "short", emitter="emitter_1", at=SystemClock().now())
    headers = {"authorization": f"Bearer {token}"}

    def status() -> int:
        return program.post(ORDERS, json=1, headers=headers).status_code

    wait_until(lambda: status() == 201, "the token counts")
    with writing(shop.daemon.url) as connection:
        revoke_api_token(connection, "short", SystemClock().now())
    wait_until(lambda: status() == 401, "the token is refused", 4)
    refused = program.post(ORDERS, json=1, headers=headers).json()
    assert refused["code"] == "session_unknown"
    assert "token" in refused["detail"]
    assert "xbus token new" in refused["next_step"]


def test_plain_requests_of_other_machines_are_redirected(visit: Visit) -> None:
    stranger = visit(client=("203.0.113.7", 5))
    answer = stranger.post(f"{ORDERS}?a=b%20c", json=1)
    assert answer.status_code == 308
    assert answer.headers["location"] == f"https://bus.example{ORDERS}?a=b%20c"
    proxy = visit(client=("10.1.2.3", 5), trusted_proxies=("10.1.0.0/16",))
    assert proxy.post(ORDERS, json=1).status_code == 201
    assert proxy.post(ORDERS, json=1, headers={"x-forwarded-proto": "https"}).status_code == 201
    assert proxy.post(ORDERS, json=1, headers={"x-forwarded-proto": "http"}).status_code == 308
    assert visit(client=("10.2.0.1", 5), trusted_proxies=("10.1.0.0/16",)).post(ORDERS, json=1).status_code == 308


def test_the_gateway_says_whether_it_works(program: TestClient) -> None:
    assert program.get("/healthz").json() == {"alive": True}
    assert program.get("/readyz").json()["ready"]


def test_all_that_it_does_is_described(program: TestClient) -> None:
    described = program.get("/v1/openapi.json").json()
    operation = described["paths"]["/v1/types/{type}/envelopes"]["post"]
    assert set(operation["responses"]) >= {"201", "400", "401", "403", "404", "413", "415", "422", "429", "503"}
    assert set(operation["requestBody"]["content"]) >= {"application/json", "text/csv"}
    assert [each["name"] for each in operation["parameters"] if each["in"] == "path"] == ["type"]
    batch = described["paths"]["/v1/readers/{reader}/batch"]["get"]
    assert {each["name"] for each in batch["parameters"] if each["in"] == "query"} >= {"wait", "done", "program"}
    assert set(batch["responses"]["200"]["content"]) == {*BATCH_FORMATS}
    assert "content" not in batch["responses"]["204"]
    assert set(batch["responses"]) >= {"401", "403", "409", "503"}
    # Routemaster's errors are empty.
    assert "content" not in described["paths"]["/topics/{name}"]["post"]["responses"]["403"]
    for path, operations in described["paths"].items():
        for method in operations:
            answer = program.request(method, re.sub(r"\{\w+\}", "orders", path))
            assert answer.status_code != 405
            # What is routed, and not there, says so by its own code.
            found = answer.headers.get("x-xbus-problem")
            assert answer.status_code != 404 or found in ("unknown_type", "not_subscribed")


def test_the_gateway_counts_what_it_does(visit: Visit) -> None:
    program = visit(metrics_from=("127.0.0.0/8",))
    program.post(ORDERS, json={"order": 1})
    program.post(ORDERS, content=b"?", headers={"content-type": "application/json"})
    program.get("/nothing")
    counted = program.get("/metrics")
    assert counted.status_code == 200
    publishing = 'xbus_http_requests_total{operation="POST /v1/types/{type}/envelopes",status="%s"} 1.0'
    lines = counted.text.splitlines()
    assert publishing % 201 in lines
    assert publishing % 400 in lines
    assert 'xbus_http_requests_total{operation="none",status="404"} 1.0' in lines
    assert "xbus_http_followers 0.0" in lines
    assert "xbus_http_kept_bytes 0.0" in lines
    assert float(next(line for line in lines if line.startswith("xbus_http_received_bytes_total")).split()[1]) > 10


def test_nobody_reads_the_counts_unless_it_is_allowed(visit: Visit) -> None:
    assert visit().get("/metrics").status_code == 404
    other = visit(client=("10.1.2.3", 5), metrics_from=("127.0.0.1",), trusted_proxies=("10.1.2.3",))
    assert other.get("/metrics").status_code == 404
