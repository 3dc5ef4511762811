"""Immediate replies: old emitters wait for what old consumers answer to the end of an event."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import Nodes, add_bus
from tests.support.daemon import Daemon, Options
from tests.support.filled import new_sqlite
from tests.support.old_clients import OldConsumer, OldEmitter, OldRecipient, OldWorker
from tests.support.showing import become, shown
from tests.support.waiting import eventually
from xbus.states import ReplyState

PATIENT: Options = {
    "front": {"immediate_reply_timeout": 60},
    "back": {"reply_hold_timeout": 600, "worker_grace": 0.1},
}
HASTY: Options = {**PATIENT, "front": {"immediate_reply_timeout": 5}}
TYPES: dict[str, Nodes] = {
    "question": {"desk": []},
    "note": {"desk": []},
    "passed_on": {"mill": ["desk"], "desk": []},
    "crowded": {"crowd": []},
}
REFUSED = (False, None)
NOBODY_IN_TIME = "reply_timed_out"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker in which emitters wait for replies for as long as it takes."""
    yield from running(tmp_path_factory.mktemp("replies"), PATIENT)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker in which emitters don't wait long for replies."""
    yield from running(tmp_path_factory.mktemp("no-replies"), HASTY)


def running(folder: Path, options: Options) -> Iterator[Daemon]:
    url = new_sqlite(folder / "xbus.db")
    add_replying_bus(url)
    daemon = Daemon(folder / "daemon", url, options)
    daemon.start()
    yield daemon
    daemon.kill()


def add_replying_bus(url: str) -> None:
    add_bus(url, TYPES, {"crowd": 2}, immediate=TYPES.keys() - {"note"})


class Desk(OldConsumer):
    """A consumer that announces replies to all types that want one, and answers with the items that it got."""

    def __init__(self, address: str, login: str = "desk_1", announced: tuple[str, ...] = (*TYPES,)) -> None:
        super().__init__(address, login)
        self._announced = announced
        self._last: dict[str, list[bytes]] = {}

    def do_has_immediate_reply(self) -> Any:
        return bool(self._announced), list(self._announced)

    def do_send_item(self, envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
        self._last.setdefault(event_id, []).append(data)
        return True, None

    def do_end_event(self, envelope_id: str, event_id: str) -> Any:
        return True, {"items": self._last.pop(event_id, [])}


def replied(*items: bytes) -> tuple[bool, Any]:
    """The answer to an event of these items; aiozmq makes tuples of what were lists."""
    return True, {"items": items}


async def ask(emitter: OldEmitter, *items: bytes, type_name: str = "question") -> tuple[str, str, Any]:
    """Begin an envelope with an event and end that: the ids of both, and what was answered."""
    envelope_id, event_id = await emitter.start(type_name)
    await emitter.send(envelope_id, event_id, *items)
    return envelope_id, event_id, await emitter.call.end_event(emitter.token, envelope_id, event_id)


async def stopped(recipient: OldRecipient, envelope_id: str) -> None:
    """Wait until a recipient was told to forget an envelope."""
    await eventually(lambda: [envelope_id] in recipient.got("stop_envelope"), "the envelope is stopped")


# -- replies ---------------------------------------------------------------------------------------------------------


async def test_the_reply_is_the_answer_to_end_event(daemon: Daemon) -> None:
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        envelope_id, event_id, answer = await ask(emitter, b"1", b"2")
        assert answer == replied(b"1", b"2")
        assert desk.verbs(envelope_id) == ["start_event", "send_item", "send_item", "end_event"]
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == answer
        assert shown(daemon.url, envelope_id).event_list[0].reply is ReplyState.HELD

        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await become(daemon.url, envelope_id, desk_1="done")
        assert desk.verbs(envelope_id) == ["start_event", "send_item", "send_item", "end_event", "end_envelope"]
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == answer


@pytest.mark.parametrize("reply", [None, 0, "text", b"bytes", [{"id": 7}, None], {"a": 2.5, "b": True}], ids=repr)
async def test_any_value_may_be_replied(daemon: Daemon, reply: Any) -> None:
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        desk.behave["end_event"] = lambda *_: (True, reply)
        envelope_id, _, answer = await ask(emitter)
        assert answer == (True, tuple(reply) if isinstance(reply, list) else reply)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True


async def test_through_workers(daemon: Daemon) -> None:
    async with (
        Desk(daemon.back) as desk,
        OldWorker(daemon.back, "mill_1") as mill,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id, _, answer = await ask(emitter, b"1", type_name="passed_on")
        assert answer == replied(b"1 mill_1")
        await emitter.call.end_envelope(emitter.token, envelope_id)
        await become(daemon.url, envelope_id, desk_1="done")
        for recipient in (desk, mill):
            assert recipient.verbs(envelope_id) == ["start_event", "send_item", "end_event", "end_envelope"]


async def test_events_with_and_without_replies_in_one_envelope(daemon: Daemon) -> None:
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        envelope_id, first = await emitter.start("question")
        note = await emitter.start_event(envelope_id, "note")
        second = await emitter.start_event(envelope_id, "question")
        for event_id in (first, note, second):
            await emitter.send(envelope_id, event_id, event_id.encode())
        # The end of the envelope is sent ahead, and waits for the replies.
        answers = await asyncio.gather(
            *(emitter.call.end_event(emitter.token, envelope_id, event_id) for event_id in (second, first, note)),
            emitter.call.end_envelope(emitter.token, envelope_id),
        )
        assert answers == [
            replied(second.encode()),
            replied(first.encode()),
            (True, None),
            True,
        ]
        await become(daemon.url, envelope_id, desk_1="done")
        # Of an earlier test an envelope whose consumer went before its commit may come, too.
        started = [args[1] for args in desk.got("start_event") if args[0] == envelope_id]
        assert sorted(started) == sorted([first, note, second])
        assert desk.verbs(envelope_id).count("end_envelope") == 1
        assert desk.verbs(envelope_id)[-1] == "end_envelope"


async def test_many_ask_at_once(daemon: Daemon) -> None:
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        envelope_ids: list[str] = []

        async def ask_and_end(item: bytes) -> Any:
            envelope_id, _, answer = await ask(emitter, item)
            assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
            envelope_ids.append(envelope_id)
            return answer

        items = [b"%d" % number for number in range(20)]
        assert await asyncio.gather(*map(ask_and_end, items)) == [replied(item) for item in items]
        await desk.wait_for(envelope_ids)
        # Those of consumers that went before their commit may come too.
        assert all(desk.committed.count(envelope_id) == 1 for envelope_id in envelope_ids)


# -- no reply --------------------------------------------------------------------------------------------------------


async def test_more_than_one_consumer_is_refused(daemon: Daemon) -> None:
    async with (
        Desk(daemon.back, "crowd_1") as one,
        Desk(daemon.back, "crowd_2") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id, event_id, answer = await ask(emitter, b"1", type_name="crowded")
        assert answer == REFUSED
        assert one.verbs(envelope_id) == other.verbs(envelope_id) == []
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is False

        await other.call.logout(other.token)
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == replied(b"1")
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True
        await stopped(one, envelope_id)


async def test_a_consumer_that_did_not_announce_the_type_is_not_asked(daemon: Daemon) -> None:
    async with Desk(daemon.back, announced=("passed_on",)) as desk, OldEmitter(daemon.front) as emitter:
        envelope_id, _, answer = await ask(emitter, b"1")
        assert answer == REFUSED
        assert desk.verbs(envelope_id) == []
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True


async def test_an_absent_consumer_is_waited_for_until_the_deadline(hasty: Daemon) -> None:
    async with OldEmitter(hasty.front) as emitter:
        _, _, answer = await ask(emitter, b"1")
        assert answer == REFUSED


async def test_an_absent_consumer_may_come_while_it_is_waited_for(daemon: Daemon) -> None:
    async with OldEmitter(daemon.front) as emitter:
        asked = asyncio.ensure_future(ask(emitter, b"1"))
        async with Desk(daemon.back):
            envelope_id, _, answer = await asked
            assert answer == replied(b"1")
            assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
            await become(daemon.url, envelope_id, desk_1="done")


async def test_a_silent_consumer_is_told_to_forget_it(hasty: Daemon) -> None:
    async with Desk(hasty.back) as desk, OldEmitter(hasty.front) as emitter:
        hush = asyncio.Event()

        async def silent(*_: Any) -> Any:
            await hush.wait()
            return True, "too late"

        desk.behave["end_event"] = silent
        envelope_id, event_id, answer = await ask(emitter, b"1")
        assert answer == REFUSED
        await stopped(desk, envelope_id)
        hush.set()
        desk.behave.clear()
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == replied(b"1", b"1")
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await become(hasty.url, envelope_id, desk_1="done")


@pytest.mark.parametrize("verb", ["start_event", "send_item", "end_event"])
async def test_a_consumer_that_refuses(daemon: Daemon, verb: str) -> None:
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        desk.behave[verb] = lambda *_: (False, [([0], "no such client")])
        envelope_id, event_id, answer = await ask(emitter, b"1")
        assert answer == REFUSED
        await stopped(desk, envelope_id)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is False
        (event,) = shown(daemon.url, envelope_id).event_list
        assert event.reply is ReplyState.FAILED
        assert event.reply_cause
        await eventually(lambda: bool(shown(daemon.url, envelope_id).failures), "the failure is kept")
        (failure,) = shown(daemon.url, envelope_id).failures
        assert (failure.role, failure.verb) == ("desk_1", verb)
        assert failure.message.startswith("no such client")
        assert (failure.indices, str(failure.event_id)) == ([0], event_id)
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True


async def test_a_consumer_that_is_lost_over_the_question(hasty: Daemon) -> None:
    desk = Desk(hasty.back)

    async def vanish(*_: Any) -> Any:
        await desk.leave()

    async with desk, OldEmitter(hasty.front) as emitter:
        desk.behave["end_event"] = vanish
        envelope_id, event_id, answer = await ask(emitter, b"1")
        assert answer == REFUSED
        async with Desk(hasty.back):
            assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == replied(b"1")
            assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True


# -- what is held open -----------------------------------------------------------------------------------------------


async def test_a_cancelled_envelope_is_forgotten(daemon: Daemon) -> None:
    async with (
        Desk(daemon.back) as desk,
        OldWorker(daemon.back, "mill_1") as mill,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id, _, answer = await ask(emitter, b"1", type_name="passed_on")
        assert answer[0] is True
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True
        for recipient in (desk, mill):
            await stopped(recipient, envelope_id)
        following, _, answer = await ask(emitter, b"2")
        assert answer == replied(b"2")
        assert await emitter.call.end_envelope(emitter.token, following) is True
        await become(daemon.url, following, desk_1="done")


async def test_a_cancel_ends_the_wait(daemon: Daemon) -> None:
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start("question")
        asked = asyncio.ensure_future(emitter.call.end_event(emitter.token, envelope_id, event_id))
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True
        assert await asked == REFUSED
        assert NOBODY_IN_TIME not in [line for line in daemon.log.splitlines() if envelope_id in line]


async def test_who_was_lost_after_the_reply_gets_all_of_it_after_the_seal(daemon: Daemon) -> None:
    async with OldEmitter(daemon.front) as emitter:
        async with Desk(daemon.back):
            envelope_id, event_id, answer = await ask(emitter, b"1")
            assert answer == replied(b"1")
        async with Desk(daemon.back) as desk:
            desk.behave["end_event"] = lambda *_: (True, "another reply")
            assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == answer
            assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
            await become(daemon.url, envelope_id, desk_1="done")
            assert desk.items(envelope_id) == [b"1"]
            assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == answer


async def test_a_role_that_is_far_behind_replies_all_the_same(daemon: Daemon) -> None:
    """What is held open has the only slot of the consumer: it must not wait for its turn behind those that wait."""
    async with OldEmitter(daemon.front) as emitter:
        waiting = [await emitter.emit(b"%d" % number, type_name="note") for number in range(30)]
        async with Desk(daemon.back) as desk:
            envelope_id, _, answer = await ask(emitter, b"now")
            assert answer == replied(b"now")
            assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
            await desk.wait_for([*waiting, envelope_id])
            assert all(desk.committed.count(each) == 1 for each in (*waiting, envelope_id))
            assert "stop_envelope" not in [verb for each in (*waiting, envelope_id) for verb in desk.verbs(each)]


async def test_a_consumer_does_not_wait_for_ever_for_the_end(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_replying_bus(sqlite_url)
    daemon = start_daemon(sqlite_url, {"back": {"reply_hold_timeout": 0.3}})
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        envelope_id, _, answer = await ask(emitter, b"1")
        assert answer == replied(b"1")
        await stopped(desk, envelope_id)
        note = await emitter.emit(b"2", type_name="note")
        await become(sqlite_url, note, desk_1="done")
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await become(sqlite_url, envelope_id, desk_1="done")
        assert desk.items(envelope_id) == [b"1", b"1"]


# -- faults ----------------------------------------------------------------------------------------------------------


async def test_a_crash_while_it_is_held_open(database_url: str, start_daemon: StartDaemon) -> None:
    add_replying_bus(database_url)
    daemon = start_daemon(database_url)
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        envelope_id, event_id, answer = await ask(emitter, b"1")
        assert answer == replied(b"1")
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        await stopped(desk, envelope_id)
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == answer
        assert len(desk.got("end_event")) == 1
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await become(database_url, envelope_id, desk_1="done")
        steps = ["start_event", "send_item", "end_event"]
        verbs = [verb for verb in desk.verbs(envelope_id) if verb != "stop_envelope"]
        assert verbs == [*steps, *steps, "end_envelope"]
        assert desk.verbs(envelope_id)[3] == "stop_envelope"


async def test_a_crash_while_it_is_asked(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_replying_bus(sqlite_url)
    daemon = start_daemon(sqlite_url)
    async with Desk(daemon.back) as desk, OldEmitter(daemon.front) as emitter:
        asked, answering = asyncio.Event(), asyncio.Event()

        async def slow(*_: Any) -> Any:
            asked.set()
            await answering.wait()
            return True, "slow"

        desk.behave["end_event"] = slow
        envelope_id, event_id = await emitter.start("question")
        await emitter.send(envelope_id, event_id, b"1")
        lost = asyncio.ensure_future(emitter.call.end_event(emitter.token, envelope_id, event_id))
        await asked.wait()
        daemon.kill()
        desk.behave["end_event"] = lambda *_: (True, "quick")
        await asyncio.to_thread(daemon.start)
        answering.set()
        # Who asked before may be gone, so nobody is answered before they ask again.
        other_id, _, answer = await ask(emitter, b"2")
        assert answer == (True, "quick")
        assert await emitter.call.end_envelope(emitter.token, other_id) is True
        await become(sqlite_url, other_id, desk_1="done")
        assert desk.verbs(envelope_id).count("start_event") == 1
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == (True, "quick")
        lost.cancel()
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await become(sqlite_url, envelope_id, desk_1="done")
        again = desk.verbs(envelope_id)[3:]
        assert again[: again.index("start_event")].count("stop_envelope") >= 1


async def test_front_and_back_in_two_processes(
    postgres_url: str, start_daemon: StartDaemon, tmp_path_factory: pytest.TempPathFactory
) -> None:
    add_replying_bus(postgres_url)
    bell = {"zmq": {"b2fsocket": f"ipc://{tmp_path_factory.mktemp('bell')}/f2b"}}
    back = start_daemon(postgres_url, bell, only="back")
    front = start_daemon(postgres_url, bell, only="front")
    async with Desk(back.back) as desk, OldEmitter(front.front) as emitter:
        for number in range(3):
            envelope_id, _, answer = await ask(emitter, b"%d" % number)
            assert answer == replied(b"%d" % number)
            assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
            await desk.wait_for([envelope_id])
        assert desk.got("stop_envelope") == []
