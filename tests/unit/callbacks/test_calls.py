"""The calls of subscriptions, with a back and subscribers that are doubles: who is called, and for how long."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import pytest

from tests.unit.callbacks.test_bodies_and_addresses import claimed
from xbus.errors import Refused
from xbus.http.callbacks.client import CallbackClient, CallOutcome
from xbus.http.callbacks.service import BACK_SECONDS, GATHER_SECONDS, CallbackService, GatewayBack
from xbus.http.figures import RoutemasterCounters
from xbus.rpc.codec import Value
from xbus.testing.loop import VirtualClock

LEASE = 0.03
"""Seconds: a program looks three times in them whether the range is still its own."""


class BackDouble:
    """A back with one batch for each subscription, which comes again until it is settled."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.owned: dict[str, bool] = dict.fromkeys(names, True)
        self.settled: list[str] = []
        self.noted: list[tuple[str, Mapping[str, Value]]] = []
        self.read_at: list[float] = []
        self.left: list[str] = []
        self.notes_late = False
        self.notes_nothing = False
        self.changes = 1
        self.changed = asyncio.Event()

    async def subscriptions(self, known: int, wait: float) -> Any:
        while known == self.changes:
            await self.changed.wait()
            self.changed.clear()
        facts = {"format": "json", "secret": "", "verify": True, "ranges": 1, "settings": "first"}
        told = [{"name": name, "reader": name, "url": f"https://{name}.example"} | facts for name in self.names]
        return {"subscriptions": told, "changes": self.changes}

    def add(self, name: str) -> None:
        self.names += (name,)
        self.owned[name] = True
        self.changes += 1
        self.changed.set()

    async def read(self, program: str, reader: str, done: list[Value] | None) -> Any:
        self.read_at.append(asyncio.get_running_loop().time())
        if done is not None:
            self.settled.append(reader)
        # What was not taken is handed out again when it is time.
        is_called = not self.notes_nothing and any(name == reader and "code" in each for name, each in self.noted)
        if reader in self.settled or is_called or not self.owned[reader]:
            await asyncio.Event().wait()
        return {"lease": LEASE, "ranges": 1, "batch": claimed({"number": 7})}

    async def renew(self, program: str, reader: str) -> Sequence[Sequence[int]]:
        return [[1, 1]] if self.owned[reader] else []

    async def settle(self, program: str, reader: str, done: list[Value]) -> None:
        assert reader not in self.left, "a range that was given up is another program's"
        self.settled.append(reader)

    async def leave(self, program: str, reader: str) -> None:
        self.left.append(reader)

    async def note(self, reader: str, outcome: Mapping[str, Value]) -> Any:
        self.noted.append((reader, outcome))
        if self.notes_late:
            await asyncio.Event().wait()
        if self.notes_nothing:
            raise Refused("the subscription has other settings", code="settings_changed")
        return {"retry_seconds": 60.0, "parked": False}


class ClientDouble:
    """Answers each call as its subscriber does; an error is raised, and an event is waited for."""

    def __init__(self, answers: Mapping[str, CallOutcome | Exception | asyncio.Event]) -> None:
        self.answers = answers
        self.calls: list[str] = []

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, verify: bool) -> CallOutcome:
        name = url.removeprefix("https://").removesuffix(".example")
        self.calls.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return CallOutcome()
        return answer


@pytest.fixture
async def tasks() -> AsyncIterator[list["asyncio.Task[None]"]]:
    started: list[asyncio.Task[None]] = []
    yield started
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def until_soon(condition: Any) -> None:
    """Wait as ``until`` does, and see each turn of the loop."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def serve(back: BackDouble, client: ClientDouble) -> "asyncio.Task[None]":
    clock = VirtualClock(asyncio.get_running_loop())
    service = CallbackService(cast(GatewayBack, back), cast(CallbackClient, client), clock, RoutemasterCounters())
    return asyncio.create_task(service.run())


async def test_a_fault_in_one_subscription_leaves_the_others_alone(tasks: list["asyncio.Task[None]"]) -> None:
    back = BackDouble("faulty", "well")
    client = ClientDouble({"faulty": RuntimeError("nobody thought of this"), "well": CallOutcome()})
    tasks.append(serve(back, client))
    await until(lambda: "well" in back.settled and back.noted)
    (noted,) = [outcome for reader, outcome in back.noted if reader == "faulty"]
    assert noted["code"] == "callback_failed"
    assert not tasks[0].done()


async def test_a_subscription_is_served_as_soon_as_the_back_tells_of_it(tasks: list["asyncio.Task[None]"]) -> None:
    back = BackDouble("old")
    client = ClientDouble({"old": CallOutcome(), "new": CallOutcome()})
    tasks.append(serve(back, client))
    await until(lambda: back.settled == ["old"])
    back.add("new")
    await until(lambda: back.settled == ["old", "new"])


async def test_few_events_are_called_at_once_and_those_behind_them_gather(tasks: list["asyncio.Task[None]"]) -> None:
    back, called = BackDouble("shop"), asyncio.Event()
    tasks.append(serve(back, ClientDouble({"shop": called})))
    await until(lambda: back.read_at)
    called.set()
    await until(lambda: back.settled)
    first, second = back.read_at
    assert second - first >= GATHER_SECONDS


@pytest.mark.parametrize("notes_late", [False, True], ids=["while events gather", "while the success is noted"])
async def test_a_gateway_that_stops_settles_the_batch_that_was_taken(
    tasks: list["asyncio.Task[None]"], notes_late: bool
) -> None:
    back = BackDouble("shop")
    back.notes_late = notes_late
    tasks.append(serve(back, ClientDouble({"shop": CallOutcome()})))
    await until_soon(lambda: back.noted)
    assert back.settled == []
    tasks[0].cancel()
    await until(lambda: back.left)
    assert (back.settled, len(back.read_at)) == (["shop"], 1), "else another gateway would call with it again"


async def test_a_gateway_that_stops_settles_no_batch_that_was_not_taken(tasks: list["asyncio.Task[None]"]) -> None:
    back = BackDouble("shop")
    tasks.append(serve(back, ClientDouble({"shop": CallOutcome("callback_refused", "the subscriber answered 500")})))
    await until_soon(lambda: back.noted)
    tasks[0].cancel()
    await until(lambda: back.left)
    assert back.settled == []


async def test_a_batch_that_is_not_taken_is_left_to_the_back(tasks: list["asyncio.Task[None]"]) -> None:
    back = BackDouble("shop")
    client = ClientDouble({"shop": CallOutcome("callback_refused", "the subscriber answered 500")})
    tasks.append(serve(back, client))
    await until(lambda: len(back.read_at) == 2)
    assert client.calls == ["shop"]
    assert back.settled == []
    (noted,) = [outcome for _, outcome in back.noted]
    assert (noted["code"], noted["batch"]) == ("callback_refused", [1, 1, [8, 0, 0]])


async def test_a_call_is_broken_off_once_its_range_is_lost(tasks: list["asyncio.Task[None]"]) -> None:
    back, client = BackDouble("shop"), ClientDouble({"shop": asyncio.Event()})
    tasks.append(serve(back, client))
    await until(lambda: client.calls)
    back.owned["shop"] = False
    await until(lambda: len(back.read_at) == 2)
    assert (client.calls, back.noted, back.settled) == (["shop"], [], [])


async def test_a_failure_that_is_not_noted_is_no_reason_to_call_without_a_pause(
    tasks: list["asyncio.Task[None]"],
) -> None:
    """The back hands the batch out at once: it knows of no failure."""
    back = BackDouble("shop")
    back.notes_nothing = True
    tasks.append(serve(back, ClientDouble({"shop": CallOutcome("callback_refused", "the subscriber answered 500")})))
    await until(lambda: len(back.read_at) == 3)
    first, second, third = back.read_at
    assert second - first >= BACK_SECONDS
    assert third - second >= BACK_SECONDS


async def test_a_call_is_noted_with_the_settings_that_it_was_made_with(tasks: list["asyncio.Task[None]"]) -> None:
    back = BackDouble("shop", "other")
    client = ClientDouble({"shop": CallOutcome("callback_refused", "it answered 500"), "other": CallOutcome()})
    tasks.append(serve(back, client))
    await until(lambda: len(back.noted) == 2)
    assert {outcome["settings"] for _, outcome in back.noted} == {"first"}
    assert dict(back.noted)["other"] == {"settings": "first"}


async def test_the_end_of_a_subscription_is_told(
    tasks: list["asyncio.Task[None]"], caplog: pytest.LogCaptureFixture
) -> None:
    back = BackDouble("shop")
    client = ClientDouble({"shop": CallOutcome("callback_gone", "it wants no more", is_end=True)})
    tasks.append(serve(back, client))
    await until(lambda: back.noted)
    (noted,) = [outcome for _, outcome in back.noted]
    assert noted["ended"] is True
    await until(lambda: "the subscriber of shop" in caplog.text)
    assert "failed, the subscription ends: it wants no more" in caplog.text
