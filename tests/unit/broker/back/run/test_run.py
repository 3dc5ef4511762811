"""One attempt to deliver an envelope: all events through all nodes, then the commit, or all are told to forget."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.support.delivering import Around, Envelope
from tests.support.journal import NOW
from tests.support.recipients import BROKEN, LOST, NEW, OLD, REFUSED, SILENT, Cast
from xbus.broker.back.log import RunBatch
from xbus.broker.back.recipients.failures import FailureClass, RecipientFailed
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.slots import Absent
from xbus.broker.back.run.run import Run
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.rpc.codec import pack_items

LARGE = [bytes(1000)] * 100

PAUSE = PauseEntry(PauseKind.ROLE, 1, "store", "moving", "ada", NOW, None)

MADE = UUID(int=1)
PAGES = [
    OutputPage(MADE, (-1, -1), (0, 3), segments=4, items=9, data_bytes=100),
    OutputPage(MADE, (0, 3), (2, 0), segments=1, items=1, data_bytes=10_000_000),
]
"""Where an output lies: a small page, and one that is larger than what may be on its way."""

THROUGH_NAMES = {"names": ["store", "audit"], "store": [], "audit": []}


class Attempt:
    """A run, and what came of it.

    Args:
        consumers: those that are to get the envelope.
        workers: those that can be hired.
    """

    def __init__(
        self,
        envelope: Envelope,
        consumers: Sequence[RecipientProxy],
        workers: Sequence[RecipientProxy] = (),
        *,
        again: bool = False,
    ) -> None:
        self.settled: list[str] = []
        self.around = Around(envelope, workers)
        self._envelope = envelope.in_log
        self.run = Run(self._envelope.envelope_id, consumers, self.around, again=again)
        self._names = {consumer.role.id: consumer.role.login for consumer in consumers}

    def _settle(self, consumer: RecipientProxy) -> None:
        self.settled.append(consumer.role.login)

    async def carry_out(self) -> "Attempt":
        await self.run.carry_out(self._envelope, self._settle)
        return self

    @property
    def failed(self) -> dict[str, str]:
        """Who did not get it, and the code of the reason."""
        return {
            self._names[role_id]: failure.code if isinstance(failure, RecipientFailed) else "absent"
            for role_id, failure in self.run.failures.items()
        }


def one_event(nodes: dict[str, list[str]], items: list[bytes] = LARGE) -> Envelope:
    envelope = Envelope()
    envelope.add(nodes, items)
    return envelope


# -- all goes well ---------------------------------------------------------------------------------------------------


async def test_the_commit_comes_after_all_events() -> None:
    cast = Cast()
    envelope = Envelope()
    for _ in range(3):
        envelope.add({"store": []}, LARGE)
    attempt = await Attempt(envelope, [cast.consumer("store")]).carry_out()
    steps = ["start_event", "xbus.send_items", "xbus.end_event"]
    assert cast.script.verbs("store") == [*steps * 3, "end_envelope"]
    assert (attempt.settled, attempt.failed) == (["store"], {})


async def test_a_node_that_emits_gets_places_of_an_output_and_a_program_its_items() -> None:
    cast = Cast()
    nodes = {"names": ["store", "copy"], "store": [], "copy": []}
    attempt = Attempt(one_event(nodes), [cast.consumer("store"), cast.consumer("copy")])
    attempt.around.outputs, attempt.around.appends = {"names": MADE}, {"copy"}
    attempt.around.made[MADE] = [RunBatch(0, 2, pack_items([b"a", b"b"]))]
    attempt.around.pages[MADE] = PAGES
    await attempt.carry_out()
    assert cast.script.items("store") == [([0], b"a"), ([1], b"b")]
    steps = ["start_event", *["xbus.append_output"] * len(PAGES), "xbus.end_event", "end_envelope"]
    assert cast.script.verbs("copy") == steps
    assert [call.args[-1] for call in cast.script.calls if call.verb == "xbus.append_output"] == PAGES
    assert sorted(attempt.settled) == ["copy", "store"]


async def test_nobody_reads_the_items_of_an_output_that_is_emitted() -> None:
    cast = Cast()
    attempt = Attempt(one_event({"names": ["copy"], "copy": []}), [cast.consumer("copy")])
    attempt.around.outputs, attempt.around.appends = {"names": MADE}, {"copy"}
    attempt.around.pages[MADE] = PAGES
    await attempt.carry_out()
    assert (attempt.settled, attempt.failed) == (["copy"], {})
    assert cast.script.items("copy") == []


async def test_workers_commit_before_any_consumer() -> None:
    cast = Cast()
    consumers = [cast.consumer("store", OLD), cast.consumer("audit")]
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names")]).carry_out()
    assert cast.script.order("end_envelope")[0] == "names"
    assert sorted(cast.script.order("end_envelope")) == ["audit", "names", "store"]
    assert sorted(attempt.settled) == ["audit", "store"]
    assert "stop_envelope" not in [call.verb for call in cast.script.calls]


async def test_a_small_envelope_for_one_is_one_call() -> None:
    cast = Cast()
    attempt = await Attempt(one_event({"store": []}, [b"a"]), [cast.consumer("store")]).carry_out()
    assert cast.script.verbs("store") == ["xbus.take_event"]
    assert cast.script.calls[0].args[-1] is True
    assert attempt.settled == ["store"]


async def test_no_call_with_one_of_several_events_commits() -> None:
    """The consumer may have lost the others meanwhile: then the one would pass for all."""
    cast = Cast()
    envelope = one_event({"store": []}, [b"a"])
    envelope.add({"store": []}, [b"b"])
    attempt = await Attempt(envelope, [cast.consumer("store")]).carry_out()
    assert cast.script.verbs("store") == ["xbus.take_event", "xbus.take_event", "end_envelope"]
    assert [call.args[-1] for call in cast.script.calls[:2]] == [False, False]
    assert attempt.settled == ["store"]


@pytest.mark.parametrize("others", ["worker", "consumer"])
async def test_no_call_commits_where_others_take_part(others: str) -> None:
    cast = Cast()
    nodes: dict[str, list[str]] = (
        {"names": ["store"], "store": []} if others == "worker" else {"store": [], "audit": []}
    )
    consumers = [cast.consumer("store")] + ([cast.consumer("audit")] if others == "consumer" else [])
    await Attempt(one_event(nodes, [b"a"]), consumers, [cast.worker("names")]).carry_out()
    takes = [call for call in cast.script.calls if call.verb == "xbus.take_event"]
    assert [call.args[-1] for call in takes] == [False] * len(takes)
    assert "end_envelope" in cast.script.verbs("store")


async def test_only_nodes_on_the_way_to_those_who_get_it_take_part() -> None:
    cast = Cast()
    nodes = {"names": ["store"], "store": [], "prices": ["audit"], "audit": []}
    attempt = Attempt(one_event(nodes), [cast.consumer("audit")], [cast.worker("names"), cast.worker("prices")])
    await attempt.carry_out()
    assert attempt.around.hired == ["prices"]
    assert cast.script.verbs("names") == []


async def test_an_event_that_nobody_here_gets_is_passed_over() -> None:
    cast = Cast()
    envelope = one_event({"elsewhere": []})
    envelope.add({"store": []}, [b"a"])
    attempt = await Attempt(envelope, [cast.consumer("store")]).carry_out()
    assert cast.script.items("store") == [([0], b"a")]
    assert attempt.settled == ["store"]


async def test_an_envelope_without_events_is_committed() -> None:
    cast = Cast()
    attempt = await Attempt(Envelope(), [cast.consumer("store")]).carry_out()
    assert cast.script.verbs("store") == ["end_envelope"]
    assert attempt.settled == ["store"]


async def test_workers_are_given_back_after_each_event() -> None:
    cast = Cast()
    envelope = Envelope()
    for _ in range(2):
        envelope.add({"names": ["store"], "store": []}, LARGE)
    attempt = await Attempt(envelope, [cast.consumer("store")], [cast.worker("names")]).carry_out()
    assert attempt.around.hired == attempt.around.dismissed == ["names", "names"]
    assert cast.script.order("end_envelope") == ["names", "store"]


# -- failures before the commit --------------------------------------------------------------------------------------


async def test_a_refusal_stops_all_who_had_begun() -> None:
    cast = Cast()
    consumers = [cast.consumer("store", answers={"xbus.end_event": REFUSED}), cast.consumer("audit")]
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names")]).carry_out()
    assert attempt.settled == []
    assert attempt.failed == {"store": "refused", "audit": "refused"}
    assert sorted(cast.script.order("stop_envelope")) == ["audit", "names", "store"]
    assert cast.script.order("end_envelope") == []


async def test_who_has_not_begun_is_not_stopped() -> None:
    cast = Cast()
    envelope = one_event({"store": []})
    envelope.add({"audit": []}, LARGE)
    consumers = [cast.consumer("store", answers={"start_event": REFUSED}), cast.consumer("audit")]
    attempt = await Attempt(envelope, consumers).carry_out()
    assert cast.script.order("stop_envelope") == ["store"]
    assert attempt.failed == {"store": "refused", "audit": "refused"}


@pytest.mark.parametrize("answer", [LOST, SILENT, BROKEN])
async def test_a_consumer_in_trouble_leaves_and_is_stopped(answer: Exception) -> None:
    cast = Cast()
    envelope = one_event(THROUGH_NAMES)
    envelope.add(THROUGH_NAMES, LARGE)
    consumers = [cast.consumer("store", answers={"xbus.send_items": answer}), cast.consumer("audit")]
    attempt = await Attempt(envelope, consumers, [cast.worker("names")]).carry_out()
    assert attempt.settled == ["audit"]
    assert list(attempt.failed) == ["store"]
    assert cast.script.order("stop_envelope") == ["store"]
    assert cast.script.verbs("store").count("start_event") == 1


async def test_who_gets_another_event_goes_on_when_all_of_one_event_are_in_trouble() -> None:
    cast = Cast()
    envelope = one_event({"store": []})
    envelope.add({"audit": []}, LARGE)
    consumers = [cast.consumer("store", answers={"start_event": BROKEN}), cast.consumer("audit")]
    attempt = await Attempt(envelope, consumers).carry_out()
    assert (attempt.settled, attempt.failed) == (["audit"], {"store": "error_reply"})


async def test_a_worker_that_is_lost_ends_the_attempt_for_all() -> None:
    cast = Cast()
    worker = cast.worker("names", answers={"xbus.send_items": LOST})
    consumers = [cast.consumer("store"), cast.consumer("audit")]
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [worker]).carry_out()
    assert attempt.settled == []
    assert attempt.failed == {"store": "connection_lost", "audit": "connection_lost"}
    assert attempt.around.dismissed == ["names"]
    failures = [failure for failure in attempt.run.failures.values() if isinstance(failure, RecipientFailed)]
    assert [failure.failure_class for failure in failures] == [FailureClass.TRANSIENT] * 2


async def test_without_a_worker_nobody_gets_it() -> None:
    cast = Cast()
    envelope = one_event({"store": []})
    envelope.add({"names": ["store"], "store": []}, LARGE)
    attempt = await Attempt(envelope, [cast.consumer("store")]).carry_out()
    assert attempt.failed == {"store": "absent"}
    assert isinstance(next(iter(attempt.run.failures.values())), Absent)
    assert cast.script.order("stop_envelope") == ["store"]


async def test_a_consumer_that_is_paused_while_a_worker_works_gets_nothing() -> None:
    cast = Cast()
    store, audit = cast.consumer("store"), cast.consumer("audit")

    def pause(*args: Any) -> list[Any]:
        store.role = replace(store.role, pause=PAUSE)
        return [True, None, args[3]]

    worker = cast.worker("names", answers={"xbus.take_event": pause})
    attempt = await Attempt(one_event(THROUGH_NAMES, [b"a"]), [store, audit], [worker]).carry_out()
    assert (attempt.settled, attempt.failed) == (["audit"], {"store": "absent"})
    assert cast.script.verbs("store") == []


async def test_a_consumer_that_is_paused_between_two_events_gets_both() -> None:
    cast = Cast()
    envelope = Envelope()
    for _ in range(2):
        envelope.add({"names": ["store"], "store": []}, [b"a"])
    store = cast.consumer("store")
    worker = cast.worker("names")
    attempt = Attempt(envelope, [store], [worker])
    release = attempt.around.release

    def pause(worker: RecipientProxy) -> None:
        if cast.script.verbs("store"):
            store.role = replace(store.role, pause=PAUSE)
        release(worker)

    attempt.around.release = pause  # type: ignore[method-assign]
    await attempt.carry_out()
    assert attempt.settled == ["store"]


# -- consumers whose failures are their own --------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["start_event", "xbus.send_items", "xbus.end_event"])
async def test_who_stands_for_itself_goes_on_when_another_refuses(verb: str) -> None:
    cast = Cast()
    envelope = one_event(THROUGH_NAMES | {"names": ["store", "audit", "copy"], "copy": []})
    envelope.add(THROUGH_NAMES | {"names": ["store", "audit", "copy"], "copy": []}, LARGE)
    consumers = [
        cast.consumer("store", answers={verb: REFUSED}),
        cast.consumer("audit"),
        cast.consumer("copy", own=True),
    ]
    attempt = await Attempt(envelope, consumers, [cast.worker("names")]).carry_out()
    assert attempt.failed == {"store": "refused", "audit": "refused"}
    assert attempt.settled == ["copy"]
    assert len(cast.script.items("copy")) == 2 * len(LARGE)
    assert sorted(cast.script.order("stop_envelope")) == ["audit", "store"]
    assert sorted(cast.script.order("end_envelope")) == ["copy", "names"]


@pytest.mark.parametrize("verb", ["start_event", "xbus.send_items", "xbus.end_event", "end_envelope"])
async def test_a_refusal_of_one_that_stands_for_itself_is_nobody_elses_matter(verb: str) -> None:
    cast = Cast()
    consumers = [cast.consumer("store"), cast.consumer("audit", own=True, answers={verb: REFUSED})]
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names")]).carry_out()
    assert attempt.failed == {"audit": "refused"}
    assert attempt.settled == ["store"]
    assert cast.script.order("stop_envelope") == ["audit"]


async def test_a_refusal_reaches_those_who_get_another_event() -> None:
    cast = Cast()
    envelope = one_event({"audit": []})
    envelope.add({"store": [], "copy": []}, LARGE)
    envelope.add({"audit": [], "copy": []}, LARGE)
    consumers = [
        cast.consumer("store", answers={"start_event": REFUSED}),
        cast.consumer("audit"),
        cast.consumer("copy", own=True),
    ]
    attempt = await Attempt(envelope, consumers).carry_out()
    assert (attempt.settled, attempt.failed) == (["copy"], {"store": "refused", "audit": "refused"})
    assert cast.script.verbs("audit").count("start_event") == 1


async def test_a_worker_that_refuses_ends_it_for_those_who_stand_for_themselves_too() -> None:
    cast = Cast()
    consumers = [cast.consumer("store"), cast.consumer("audit", own=True)]
    worker = cast.worker("names", answers={"xbus.send_items": REFUSED})
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [worker]).carry_out()
    assert attempt.failed == {"store": "refused", "audit": "refused"}


# -- failures at the commit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [REFUSED, LOST, SILENT])
async def test_a_worker_that_can_not_commit_ends_the_attempt(answer: Any) -> None:
    cast = Cast()
    consumers = [cast.consumer("store"), cast.consumer("audit")]
    worker = cast.worker("names", answers={"end_envelope": answer})
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [worker]).carry_out()
    assert attempt.settled == []
    assert set(attempt.failed) == {"store", "audit"}
    assert cast.script.order("end_envelope") == ["names"]
    assert sorted(cast.script.order("stop_envelope")) == ["audit", "names", "store"]


@pytest.mark.parametrize("answer", [REFUSED, LOST, SILENT])
async def test_from_the_commit_on_each_stands_for_itself(answer: Any) -> None:
    cast = Cast()
    consumers = [cast.consumer("store", answers={"end_envelope": answer}), cast.consumer("audit")]
    attempt = await Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names")]).carry_out()
    assert attempt.settled == ["audit"]
    assert list(attempt.failed) == ["store"]
    assert cast.script.order("stop_envelope") == ["store"]


async def test_who_has_committed_is_settled_while_another_still_thinks() -> None:
    cast = Cast()
    thinking: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    consumers = [cast.consumer("store", answers={"end_envelope": thinking}), cast.consumer("audit")]
    attempt = Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names")])
    carrying_out = asyncio.ensure_future(attempt.carry_out())
    while not attempt.settled:
        await asyncio.sleep(0)
    assert attempt.settled == ["audit"]
    thinking.set_result([True, None])
    await carrying_out
    assert attempt.settled == ["audit", "store"]


async def test_a_run_that_is_broken_off_stops_those_who_have_not_committed() -> None:
    cast = Cast()
    thinking: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    consumers = [cast.consumer("store", answers={"end_envelope": thinking}), cast.consumer("audit")]
    attempt = Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names")])
    carrying_out = asyncio.ensure_future(attempt.carry_out())
    while not attempt.settled:
        await asyncio.sleep(0)
    carrying_out.cancel()
    with pytest.raises(asyncio.CancelledError):
        await carrying_out
    assert cast.script.order("stop_envelope") == ["store"]
    assert attempt.settled == ["audit"]


# -- once more -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OLD, NEW])
async def test_who_may_have_got_it_before_is_told_to_forget_it_first(kind: Any) -> None:
    cast = Cast()
    consumers = [cast.consumer("store", kind), cast.consumer("audit", kind)]
    attempt = Attempt(one_event(THROUGH_NAMES), consumers, [cast.worker("names", kind)], again=True)
    await attempt.carry_out()
    for name in ("names", "store", "audit"):
        verbs = cast.script.verbs(name)
        assert verbs[0] == "stop_envelope"
        assert verbs.count("stop_envelope") == 1
        assert verbs[-1] == "end_envelope"
    assert sorted(attempt.settled) == ["audit", "store"]


async def test_who_can_not_be_told_to_forget_gets_nothing() -> None:
    cast = Cast()
    consumers = [cast.consumer("store", answers={"stop_envelope": SILENT})]
    attempt = await Attempt(one_event({"store": []}), consumers, again=True).carry_out()
    assert attempt.failed == {"store": "timed_out"}
    assert cast.script.verbs("store") == ["stop_envelope"]


async def test_an_old_worker_that_was_told_to_forget_works_until_it_says_that_it_is_ready() -> None:
    """Its answer to stop_envelope makes it ready, and then it is given the event: so it isn't ready again."""
    cast = Cast()
    worker = cast.worker("names", OLD)
    worker.readiness.begin_work()
    await Attempt(one_event(THROUGH_NAMES, [b"a"]), [cast.consumer("store")], [worker], again=True).carry_out()
    ready = asyncio.ensure_future(worker.readiness.wait())
    await asyncio.sleep(0)
    assert not ready.done()
    worker.readiness.tell()
    await ready


async def test_a_worker_that_is_ready_at_the_end_of_the_envelope_only_does_not_hold_its_run_for_ever() -> None:
    cast = Cast()
    envelope = Envelope()
    for _ in range(2):
        envelope.add({"names": ["store"], "store": []}, [b"a"])
    worker, store = cast.worker("names", OLD), cast.consumer("store")
    worker._timeouts = replace(worker._timeouts, end_event=0.01)
    attempt = Attempt(envelope, [store], [worker])

    async def hire_when_ready(
        services: Sequence[str], engaged: Collection[RecipientProxy] = ()
    ) -> list[RecipientProxy]:
        await worker.readiness.wait()
        return [worker]

    attempt.around.acquire = hire_when_ready  # type: ignore[method-assign]
    await attempt.carry_out()
    assert attempt.failed == {"store": "not_ready"}
    for login in ("names", "store"):
        assert cast.script.verbs(login)[-1] == "stop_envelope"


async def test_a_worker_that_works_for_another_run_meanwhile_is_waited_for() -> None:
    """It is given back before the consumer has ended the event, and another run may be quicker to take it."""
    cast = Cast()
    envelope = Envelope()
    for _ in range(2):
        envelope.add({"names": ["store"], "store": []}, [b"a"])
    worker, store = cast.worker("names", OLD), cast.consumer("store")
    worker._timeouts = replace(worker._timeouts, end_event=0.01)
    attempt = Attempt(envelope, [store], [worker])
    is_first = True

    def take_at_once(worker: RecipientProxy) -> None:
        nonlocal is_first
        worker.readiness.end_work()
        worker.readiness.tell()
        if is_first:
            is_first = False
            worker.readiness.begin_work(UUID(int=7))
            # The other run takes longer than a worker may take to say that it is ready.
            asyncio.get_running_loop().call_later(0.1, worker.readiness.tell)

    async def acquire_when_ready(
        services: Sequence[str], engaged: Collection[RecipientProxy] = ()
    ) -> list[RecipientProxy]:
        await worker.readiness.wait()
        return [worker]

    attempt.around.release = take_at_once  # type: ignore[method-assign]
    attempt.around.acquire = acquire_when_ready  # type: ignore[method-assign]
    await attempt.carry_out()
    assert attempt.failed == {}
