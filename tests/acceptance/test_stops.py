"""To whom ``stop_envelope`` goes, and when: to all who have something open, never to one that has committed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.old_clients import OldConsumer, OldEmitter, OldRecipient, OldWorker, share_runs
from tests.support.showing import become
from tests.support.waiting import eventually


@dataclass
class Graph:
    """A worker, and two consumers behind it."""

    url: str
    emitter: OldEmitter
    worker: OldWorker
    first: OldConsumer
    second: OldConsumer

    @property
    def recipients(self) -> list[OldRecipient]:
        return [self.worker, self.first, self.second]

    def check_stops(self, envelope_id: str) -> None:
        """Nobody is told to forget what it has committed, and nobody is called between a stop and a new start."""
        for recipient in self.recipients:
            verbs = recipient.verbs(envelope_id)
            for verb, following in zip(verbs, [*verbs[1:], None], strict=True):
                if verb == "stop_envelope":
                    assert following in ("start_event", "stop_envelope", None), (recipient.login, verbs)


@pytest.fixture
async def graph(sqlite_url: str, start_daemon: StartDaemon) -> AsyncIterator[Graph]:
    add_bus(sqlite_url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(sqlite_url)
    async with AsyncExitStack() as stack:
        graph = Graph(
            sqlite_url,
            await stack.enter_async_context(OldEmitter(daemon.front)),
            await stack.enter_async_context(OldWorker(daemon.back, "w_1")),
            await stack.enter_async_context(OldConsumer(daemon.back, "c_1")),
            await stack.enter_async_context(OldConsumer(daemon.back, "d_1")),
        )
        await share_runs(graph.emitter, [graph.first, graph.second])
        graph.worker.calls.clear()
        yield graph


def refuses(*_: Any) -> Any:
    return False, [([0], "no")]


async def test_a_refusal_before_the_end_stops_all_and_nobody_commits(graph: Graph) -> None:
    refused = []
    for verb in ("start_event", "send_item", "end_event"):
        graph.first.behave = {verb: refuses}
        envelope_id = await graph.emitter.emit(b"x", b"y")
        refused.append(envelope_id)
        await become(graph.url, envelope_id, c_1="parked", d_1="parked")
        for recipient in graph.recipients:
            await eventually(lambda: [envelope_id] in recipient.got("stop_envelope"), "all are stopped")  # noqa: B023
    graph.first.behave.clear()
    good = await graph.emitter.emit(b"z")
    await graph.first.wait_for([good])
    await graph.second.wait_for([good])

    for recipient in graph.recipients:
        assert recipient.committed == [good]
        assert recipient.got("stop_envelope") == [[envelope_id] for envelope_id in refused]
    for envelope_id in refused:
        graph.check_stops(envelope_id)


async def test_who_has_committed_is_not_stopped_when_another_refuses_the_end(graph: Graph) -> None:
    committed = asyncio.Event()

    def commits(*_: Any) -> Any:
        committed.set()
        return True, None

    async def refuses_later(*_: Any) -> Any:
        await committed.wait()
        return refuses()

    graph.first.behave["end_envelope"] = refuses_later
    graph.second.behave["end_envelope"] = commits
    envelope_id = await graph.emitter.emit(b"x")
    await become(graph.url, envelope_id, c_1="parked", d_1="done")
    await eventually(lambda: graph.first.got("stop_envelope"), "who refused is stopped")
    graph.first.behave.clear()
    good = await graph.emitter.emit(b"y")
    await graph.first.wait_for([good])
    await graph.second.wait_for([good])

    assert graph.first.got("stop_envelope") == [[envelope_id]]
    assert graph.second.got("stop_envelope") == []
    assert graph.second.verbs(envelope_id) == ["start_event", "send_item", "end_event", "end_envelope"]
    graph.check_stops(envelope_id)
    assert graph.worker.verbs(envelope_id)[-1] in ("end_envelope", "stop_envelope")
    assert graph.worker.verbs(envelope_id).count("end_envelope") + len(graph.worker.got("stop_envelope")) == 1
