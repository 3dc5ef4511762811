"""Publishers of Routemaster push as they always did."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.integration.http.conftest import Shop
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes.listing import list_envelopes

EVENT = {"type": "create", "url": "https://shop.example/orders/1", "timestamp": 1_900_000_000_123}


def push(program: TestClient, shop: Shop, topic: str, event: Any) -> Any:
    return program.post(f"/topics/{topic}", json=event, auth=(shop.tokens["emitter_1"], "x"))


@pytest.mark.parametrize("extra", [{}, {"data": {"a": [1]}}, {"timestamp": None}])
def test_an_event_is_pushed(shop: Shop, program: TestClient, extra: dict[str, Any]) -> None:
    answer = push(program, shop, "orders", EVENT | extra)
    assert (answer.status_code, answer.content) == (204, b"")
    with reading(shop.daemon.url) as connection:
        newest = list_envelopes(connection, limit=1)[0]
    (item,) = shop.stored(str(newest.id)).items
    assert item["timestamp"] > 10**12
    assert item == EVENT | extra | {"timestamp": item["timestamp"]}


@pytest.mark.parametrize(
    ("topic", "changes"),
    [
        ("Orders", {}),
        ("x" * 65, {}),
        ("orders", {"type": "change"}),
        ("orders", {"type": ["create"]}),
        ("orders", {"url": "http://shop.example/orders/1"}),
        ("orders", {"url": "https://" + "x" * 1017}),
        ("orders", {"timestamp": "now"}),
        ("orders", {"timestamp": -1}),
        ("orders", {"timestamp": 10**18}),
        ("orders", {"more": 1}),
        ("orders", {"data": "x" * 64}),
    ],
)
def test_a_bad_event_is_400(shop: Shop, program: TestClient, topic: str, changes: dict[str, Any]) -> None:
    answer = push(program, shop, topic, EVENT | changes)
    assert (answer.status_code, answer.content, answer.headers["x-xbus-problem"]) == (400, b"", "bad_event")


def test_who_may_not_publish_is_403(shop: Shop, program: TestClient) -> None:
    assert push(program, shop, "forbidden_orders", EVENT).status_code == 403
    assert push(program, shop, "nothing", EVENT).status_code == 403


def test_strangers_are_401(program: TestClient) -> None:
    assert program.post("/topics/orders", json=EVENT, auth=("nobody", "x")).status_code == 401
    assert program.get("/pulse", auth=("nobody", "")).status_code == 401


def test_the_pulse_is_felt(shop: Shop, program: TestClient) -> None:
    answer = program.get("/pulse", auth=(shop.tokens["emitter_1"], ""))
    assert (answer.status_code, answer.content) == (204, b"")
