"""What a recipient refused is seen, corrected, resumed and dropped by ``xbus parked``, while the broker runs."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.processes import run, script
from tests.support.showing import become, shown
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.connection import writing

REFUSED = "the client has no name"


def refuse_bad(envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
    return (False, [(indices, REFUSED)]) if data == b"bad" else (True, None)


class Replying(OldConsumer):
    """Gives an immediate reply to questions."""

    def do_has_immediate_reply(self) -> Any:
        return True, ["question"]

    def do_end_event(self, envelope_id: str, event_id: str) -> Any:
        return True, "reply"


class Operator:
    """Gives commands of ``xbus parked`` in a terminal."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def give(self, *arguments: str) -> str:
        """What a command says that goes well; the test's clients go on meanwhile."""
        done = await asyncio.to_thread(run, script("xbus"), "parked", *arguments, "-c", self._daemon.config)
        assert done.returncode == 0, done.stderr
        return done.stdout


def isolate(url: str, envelope_id: str, login: str, index: int) -> None:
    """Park an item alone."""
    with writing(url) as connection:
        of_login = sa.select(model.role.c.id).where(model.role.c.login == login)
        of_envelope = sa.select(model.event.c.id).where(model.event.c.envelope_id == UUID(envelope_id))
        row = {"item_index": index, "state": "parked", "code": "refused", "cause": REFUSED}
        connection.execute(
            sa.insert(model.parked_item).values(
                **row,
                role_id=connection.execute(of_login).scalar_one(),
                event_id=connection.execute(of_envelope).scalar_one(),
                envelope_id=UUID(envelope_id),
                changed_at=datetime.now(UTC),
            )
        )


async def test_what_was_refused_is_repaired(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": [], "d": []}, "question": {"c": []}}, immediate={"question"})
    daemon = start_daemon(sqlite_url)
    operator = Operator(daemon)
    async with (
        Replying(daemon.back, "c_1") as consumer,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        consumer.behave["send_item"] = refuse_bad
        corrected = await emitter.emit(b"a", b"bad", b"c")
        alone = await emitter.emit(b"d", b"bad", b"f")
        dropped = await emitter.emit(b"bad")
        for envelope_id in (corrected, alone, dropped):
            await become(sqlite_url, envelope_id, c_1="parked", d_1="parked")

        listed = [json.loads(line) for line in (await operator.give("list", "--role", "c_1", "--json")).splitlines()]
        assert {entry["envelope_id"] for entry in listed} == {corrected, alone, dropped}
        assert {(entry["code"], entry["types"][0]) for entry in listed} == {("refused", "test_event")}
        told = await operator.give("show", corrected, "--role", "c_1")
        assert REFUSED in told
        assert "event 1, item 1, text, 3 bytes, named as bad\n    bad\n" in told

        # An envelope with an immediate reply that was refused at its end is resumed like any other.
        consumer.behave["end_envelope"] = lambda *_: (False, [([], "closed")])
        question, event_id = await emitter.start("question")
        await emitter.send(question, event_id, b"q")
        assert await emitter.call.end_event(emitter.token, question, event_id) == (True, "reply")
        assert await emitter.call.end_envelope(emitter.token, question) is True
        await become(sqlite_url, question, c_1="parked")
        consumer.behave.pop("end_envelope")

        await eventually(lambda: len(consumer.got("stop_envelope")) == 4, "all are stopped")
        consumer.calls.clear()
        isolate(sqlite_url, alone, "c_1", 1)
        data = daemon.config.with_name("item")
        data.write_bytes(b"good")
        correction = ("--item", "1", "--role", "c_1", "--file", str(data), "--reason", "it has a name now")
        await operator.give("correct", corrected, *correction, "--resume")
        await operator.give("correct", alone, *correction)
        assert "item 1 of event 1" not in await operator.give(
            "drop", dropped, "--role", "c_1", "--reason", "x", "--yes"
        )
        resumed = (await operator.give("resume", alone, question, "--role", "c_1")).splitlines()
        as_envelope = resumed[1].removesuffix(".").split()[-1]

        await consumer.wait_for([corrected, alone, question, as_envelope])
        assert consumer.items(corrected) == [b"a", b"good", b"c"]
        assert [args[2:] for args in consumer.got("send_item") if args[0] == alone] == [[[0], b"d"], [[2], b"f"]]
        assert consumer.items(as_envelope) == [b"good"]
        assert consumer.items(question) == [b"q"]
        # What may have been begun before is forgotten first.
        assert consumer.verbs(corrected)[:2] == ["stop_envelope", "start_event"]
        assert consumer.verbs(dropped) == []

        # Nobody else is touched: the other role gets what was sent.
        states = await become(sqlite_url, corrected, c_1="done", d_1="parked")
        assert states["d_1"].code == "refused"
        await become(sqlite_url, dropped, c_1="dropped", d_1="parked")
        assert other.committed == []
        other.calls.clear()
        await operator.give("resume", "--all", "--role", "d_1", "--yes")
        await other.wait_for([corrected, alone, dropped])
        assert other.items(corrected) == [b"a", b"bad", b"c"]
        assert other.items(alone) == [b"d", b"bad", b"f"]
        assert as_envelope not in other.committed

    detail = shown(sqlite_url, alone)
    assert {(item.role, item.index, item.state) for item in detail.overlaid} == {
        ("c_1", 1, "corrected"),
        ("c_1", 1, "resumed"),
    }
    assert shown(sqlite_url, as_envelope).summary.origin == UUID(alone)
    assert shown(sqlite_url, as_envelope).summary.only_roles == ("c_1",)
    assert str(shown(sqlite_url, dropped).summary.roles[0].cause).endswith(": x")
