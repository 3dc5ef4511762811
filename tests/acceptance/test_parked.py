"""What a recipient refused is seen, corrected, resumed and dropped by ``xbus parked``, while the broker runs."""

import json
from typing import Any
from uuid import UUID

from tests.conftest import StartDaemon
from tests.support.bus import Nodes, add_bus
from tests.support.old_clients import OldConsumer, OldEmitter, share_runs
from tests.support.operating import Operator, isolate_bad_items
from tests.support.showing import become, shown
from tests.support.waiting import eventually

REFUSED = "the client has no name"


def refuse_bad(envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
    return (False, [(indices, REFUSED)]) if data == b"bad" else (True, None)


class Replying(OldConsumer):
    """Gives an immediate reply to questions."""

    def do_has_immediate_reply(self) -> Any:
        return True, ["question"]

    def do_end_event(self, envelope_id: str, event_id: str) -> Any:
        return True, "reply"


async def test_what_was_refused_is_repaired(sqlite_url: str, start_daemon: StartDaemon) -> None:
    both: Nodes = {"c": [], "d": []}
    types: dict[str, Nodes] = {"test_event": both, "loose": both, "question": {"c": []}}
    add_bus(sqlite_url, types, immediate={"question"})
    isolate_bad_items(sqlite_url, "loose")
    daemon = start_daemon(sqlite_url)
    operator = Operator(daemon)
    async with (
        Replying(daemon.back, "c_1") as consumer,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        await share_runs(emitter, [consumer, other])
        consumer.behave["send_item"] = refuse_bad
        corrected = await emitter.emit(b"a", b"bad", b"c")
        dropped = await emitter.emit(b"bad")
        for envelope_id in (corrected, dropped):
            await become(sqlite_url, envelope_id, c_1="parked", d_1="parked")
        alone = await emitter.emit(b"d", b"bad", b"f", type_name="loose")
        await become(sqlite_url, alone, c_1="done", d_1="done")
        given = [args[2:] for args in consumer.got("send_item") if args[0] == alone]
        assert given[-2:] == [[[0], b"d"], [[2], b"f"]]
        assert other.items(alone)[-3:] == [b"d", b"bad", b"f"]

        listed = [json.loads(line) for line in (await operator.give("list", "--role", "c_1", "--json")).splitlines()]
        assert {(entry["envelope_id"], entry["parked_items"], entry["code"]) for entry in listed} == {
            (corrected, None, "refused"),
            (dropped, None, "refused"),
            (alone, 1, "refused"),
        }
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

        await eventually(lambda: [question] in consumer.got("stop_envelope"), "it is stopped")
        consumer.calls.clear()
        data = daemon.config.with_name("item")
        data.write_bytes(b"good")
        correction = ("--item", "1", "--role", "c_1", "--file", str(data), "--reason", "it has a name now")
        await operator.give("correct", corrected, *correction, "--resume")
        resumed = await operator.give("correct", alone, *correction, "--resume")
        as_envelope = resumed.strip().removesuffix(".").split()[-1]
        assert "item 1 of event 1" not in await operator.give(
            "drop", dropped, "--role", "c_1", "--reason", "x", "--yes"
        )
        await operator.give("resume", question)

        await consumer.wait_for([corrected, question, as_envelope])
        assert consumer.items(corrected) == [b"a", b"good", b"c"]
        assert consumer.items(as_envelope) == [b"good"]
        assert consumer.items(question) == [b"q"]
        # What may have been begun before is forgotten first.
        assert consumer.verbs(corrected)[:2] == ["stop_envelope", "start_event"]
        assert consumer.verbs(dropped) == consumer.verbs(alone) == []

        # Nobody else is touched: the other role gets what was sent.
        states = await become(sqlite_url, corrected, c_1="done", d_1="parked")
        assert states["d_1"].code == "refused"
        await become(sqlite_url, dropped, c_1="dropped", d_1="parked")
        assert other.committed == [alone]
        other.calls.clear()
        await operator.give("resume", "--all", "--role", "d_1", "--yes")
        await other.wait_for([corrected, dropped])
        assert other.items() == [b"a", b"bad", b"c", b"bad"]

    detail = shown(sqlite_url, alone)
    assert {(item.role, item.index, item.state) for item in detail.overlaid} == {
        ("c_1", 1, "corrected"),
        ("c_1", 1, "resumed"),
    }
    assert shown(sqlite_url, as_envelope).summary.origin == UUID(alone)
    assert shown(sqlite_url, as_envelope).summary.only_roles == ("c_1",)
    assert str(shown(sqlite_url, dropped).summary.roles[0].cause).endswith(": x")
