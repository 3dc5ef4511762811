"""A request waits for the immediate reply of a consumer."""

import asyncio
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from starlette.testclient import TestClient

from tests.integration.http.conftest import Shop
from tests.support.serving import serving
from xbus.recipient import Consumer, Event, Item, Refusal

ASK = "/v1/types/question/ask"


class Desk(Consumer):
    """Replies with twice the question; words are too hard."""

    immediate_reply = ("question",)

    def on_item(self, event: Event, item: Item) -> None:
        if isinstance(item.value, str):
            raise Refusal("words are too hard")
        event.state["asked"] = item.value

    def on_event_end(self, event: Event) -> object:
        asked: Any = event.state["asked"]
        return asked * 2 if asked else b"\0"


async def test_the_reply_is_the_answer(shop: Shop, program: TestClient) -> None:
    def ask(question: object, **headers: str) -> Any:
        return program.post(ASK, json=question, headers=headers)

    async with serving(shop.daemon, "desk_1", Desk()):
        answer = await asyncio.to_thread(ask, 21)
        assert (answer.status_code, answer.json()) == (200, 42), answer.text
        assert shop.stored(answer.headers["x-xbus-envelope-id"]).items == [21]
        packed = await asyncio.to_thread(lambda: ask(0, accept="application/msgpack"))
        assert msgpack.unpackb(packed.content) == b"\0"
        for question, status, code in ((0, 422, "reply_not_json"), ("why", 502, "reply_refused")):
            refused = await asyncio.to_thread(ask, question)
            assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.parametrize("path", ["/v1/types/question/envelopes"])
def test_who_does_not_wait_is_refused(program: TestClient, path: str) -> None:
    answer = program.post(path, json=1)
    assert (answer.status_code, answer.json()["code"]) == (409, "reply_wanted")
