"""One event through its graph, with recipients that do as the test says."""

import asyncio
from typing import Any

import pytest

from tests.support.delivering import Around, Envelope, Nodes
from tests.support.recipients import BROKEN, LOST, NEW, OLD, REFUSED, SILENT, Cast, singles
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.recipients.failures import FailureClass, RecipientFailed
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.slots import Absent
from xbus.broker.back.run.pipeline import EventStream, Members
from xbus.broker.back.run.plan import EventPlan
from xbus.rpc.codec import pack_items

BOTH_KINDS = pytest.mark.parametrize("kind", [OLD, NEW], ids=["old", "new"])

STEPS = ["start_event", "xbus.send_items", "xbus.end_event"]
"""What a recipient that takes batches is asked for an event that is too large for one call."""

LARGE = [b"%05d" % number + bytes(1000) for number in range(100)]


class Event:
    """An event, its graph, and who serves it.

    Args:
        nodes: the graph.
        segments: the items, as they are stored.
        recipients: by the services that they serve.
    """

    def __init__(
        self, nodes: Nodes, segments: list[list[bytes]], *recipients: RecipientProxy, window_bytes: int = 8_000_000
    ) -> None:
        self.envelope = Envelope()
        self.event_id = self.envelope.add(nodes, *segments)
        self.dropped: list[tuple[str, str]] = []
        self.released: list[RecipientProxy] = []
        self.leave_with: dict[str, list[RecipientProxy]] = {}
        self._left = sum(not recipient.role.worker for recipient in recipients)
        self._around = Around(self.envelope)
        graph = self.envelope.graphs[1]
        members = Members(
            workers={recipient.role.service: recipient for recipient in recipients if recipient.role.worker},
            consumers={
                service: [recipient for recipient in recipients if recipient.role.service == service]
                for service in graph.consumer_services
            },
        )
        self._stream = EventStream(EventPlan.whole(graph), members, window_bytes, may_commit=False)

    async def run(self) -> None:
        (event,) = self.envelope.in_log.events
        await self._stream.run(self.envelope.id, event, self._around.items(event), self._drop, self.released.append)

    def _drop(self, consumer: RecipientProxy, failure: RecipientFailed | Absent) -> list[RecipientProxy]:
        assert isinstance(failure, RecipientFailed)
        self.dropped.append((consumer.role.login, failure.code))
        leavers = [consumer, *self.leave_with.get(consumer.role.login, [])]
        self._left -= len(leavers)
        if not self._left:
            raise failure
        return leavers


def numbered(items: list[bytes], start: int = 0) -> list[tuple[list[int], bytes]]:
    return [([index], item) for index, item in enumerate(items, start)]


# -- ways through the graph ------------------------------------------------------------------------------------------


@BOTH_KINDS
@pytest.mark.parametrize("items", [[b"a", b"b", b"c"], LARGE, []], ids=["small", "large", "empty"])
async def test_a_consumer_gets_what_was_emitted(kind: Abilities, items: list[bytes]) -> None:
    cast = Cast()
    await Event({"store": []}, [items] if items else [], cast.consumer("store", kind)).run()
    assert cast.script.items("store") == numbered(items)


@BOTH_KINDS
async def test_segments_come_in_index_order(kind: Abilities) -> None:
    cast = Cast()
    await Event({"store": []}, [LARGE[:30], LARGE[30:31], LARGE[31:]], cast.consumer("store", kind)).run()
    assert cast.script.items("store") == numbered(LARGE)


async def test_what_an_old_recipient_is_asked() -> None:
    cast = Cast()
    await Event({"store": []}, [[b"a", b"b"]], cast.consumer("store", OLD)).run()
    assert cast.script.verbs("store") == ["start_event", "send_item", "send_item", "end_event"]


async def test_a_small_event_is_one_call() -> None:
    cast = Cast()
    await Event({"store": []}, [[b"a"], [b"b"]], cast.consumer("store")).run()
    assert cast.script.verbs("store") == ["xbus.take_event"]


async def test_a_large_event_is_handed_over_step_by_step() -> None:
    cast = Cast()
    await Event({"store": []}, [LARGE], cast.consumer("store")).run()
    assert cast.script.verbs("store") == STEPS


@BOTH_KINDS
@pytest.mark.parametrize("items", [[b"a", b"b"], LARGE], ids=["small", "large"])
async def test_a_consumer_behind_a_worker_gets_what_that_answered(kind: Abilities, items: list[bytes]) -> None:
    cast = Cast()
    recipients = cast.worker("names", kind), cast.consumer("store", kind)
    await Event({"names": ["store"], "store": []}, [items], *recipients).run()
    assert cast.script.items("names") == cast.script.items("store") == numbered(items)


@BOTH_KINDS
async def test_a_chain_of_workers(kind: Abilities) -> None:
    cast = Cast()
    nodes = {"one": ["two"], "two": ["three"], "three": ["store"], "store": []}
    workers = [cast.worker(name, kind) for name in ("one", "two", "three")]
    await Event(nodes, [LARGE], *workers, cast.consumer("store", kind)).run()
    assert cast.script.items("store") == numbered(LARGE)


@BOTH_KINDS
async def test_everyone_behind_a_worker_gets_everything(kind: Abilities) -> None:
    cast = Cast()
    nodes = {"names": ["store", "audit"], "store": [], "audit": []}
    roles = [cast.consumer("store_1", kind, service="store"), cast.consumer("store_2", kind, service="store")]
    await Event(nodes, [LARGE], cast.worker("names", kind), *roles, cast.consumer("audit", kind)).run()
    for name in ("store_1", "store_2", "audit"):
        assert cast.script.items(name) == numbered(LARGE)


@BOTH_KINDS
async def test_a_role_in_several_nodes_is_told_of_an_event_once(kind: Abilities) -> None:
    """As in the demo of old: the consumer gets the items as emitted, and again from the worker, in one event."""
    cast = Cast()
    nodes = {"direct:store": [], "names": ["behind"], "behind:store": []}
    await Event(nodes, [LARGE], cast.worker("names", kind), cast.consumer("store", kind)).run()
    verbs = cast.script.verbs("store")
    assert verbs.count("start_event") == 1
    assert sum(verb.endswith("end_event") for verb in verbs) == 1
    assert verbs[0] == "start_event"
    assert verbs[-1].endswith("end_event")
    assert sorted(cast.script.items("store")) == sorted(numbered(LARGE) * 2)


async def test_a_worker_in_several_nodes_is_told_once_and_answers_go_the_way_of_their_node() -> None:
    cast = Cast()
    nodes = {"a": ["n"], "n:names": ["store"], "m:names": ["audit"], "store": [], "audit": []}
    recipients = cast.worker("a"), cast.worker("names"), cast.consumer("store"), cast.consumer("audit")
    await Event(nodes, [LARGE], *recipients).run()
    assert cast.script.verbs("names").count("start_event") == 1
    assert cast.script.items("store") == numbered(LARGE)
    assert cast.script.items("audit") == numbered(LARGE)


# -- what workers make of items --------------------------------------------------------------------------------------


async def test_an_old_worker_filters_splits_and_merges() -> None:
    def change(indices: list[int], data: bytes) -> list[list[Any]]:
        return [] if data == b"drop" else [[indices, data], [[0, *indices], data.upper()]]

    cast = Cast()
    recipients = cast.worker("names", OLD, answers=singles(change)), cast.consumer("store")
    await Event({"names": ["store"], "store": []}, [[b"a", b"drop", b"b"]], *recipients).run()
    assert cast.script.items("store") == [([0], b"a"), ([0, 0], b"A"), ([2], b"b"), ([0, 2], b"B")]


async def test_an_old_worker_that_drops_everything() -> None:
    cast = Cast()
    recipients = cast.worker("names", OLD, answers=singles(lambda indices, data: [])), cast.consumer("store", OLD)
    await Event({"names": ["store"], "store": []}, [[b"a", b"b"]], *recipients).run()
    assert cast.script.verbs("store") == ["start_event", "end_event"]


async def test_a_worker_answers_batches_of_its_own_making() -> None:
    made = [[0, 1, pack_items([b"first"]), None], [0, 2, pack_items([b"x", b"y"]), [[1, 2], [2]]]]
    cast = Cast()
    worker = cast.worker("names", answers={"xbus.take_event": [True, None, made]})
    await Event({"names": ["store"], "store": []}, [[b"a", b"b", b"c"]], worker, cast.consumer("store")).run()
    assert cast.script.items("store") == [([0], b"first"), ([1, 2], b"x"), ([2], b"y")]


async def test_what_a_worker_keeps_until_the_end_of_the_event() -> None:
    total = [[0, 1, pack_items([b"total"]), [list(range(100))]]]
    cast = Cast()
    answers = {"xbus.send_items": [True, []], "xbus.end_event": [True, None, total]}
    await Event(
        {"names": ["store"], "store": []}, [LARGE], cast.worker("names", answers=answers), cast.consumer("store")
    ).run()
    assert cast.script.items("store") == [(list(range(100)), b"total")]


@pytest.mark.parametrize("items", [[b"a", b"b", b"drop"], [*LARGE, b"drop"]], ids=["in one call", "in steps"])
@pytest.mark.parametrize(("beyond", "is_one"), [(0, True), (1, False)])
async def test_at_the_end_any_item_of_the_event_may_be_named(items: list[bytes], beyond: int, is_one: bool) -> None:
    """Also one that the worker above left out, so that nothing after it came; but none that the event does not have."""
    last = len(items) - 1
    kept = [True, [[0, last, pack_items(items[:last]), None]]]
    named = [True, None, [[0, 1, pack_items([b"x"]), [[last + beyond]]]]]
    cast = Cast()
    recipients = [
        cast.worker("first", answers={"xbus.take_event": [True, None, kept[1]], "xbus.send_items": kept}),
        cast.worker(
            "second", answers={"xbus.take_event": named, "xbus.send_items": [True, []], "xbus.end_event": named}
        ),
        cast.consumer("store"),
    ]
    event = Event({"first": ["second"], "second": ["store"], "store": []}, [items], *recipients)
    if is_one:
        await event.run()
        assert cast.script.items("store") == [([last], b"x")]
        return
    with pytest.raises(RecipientFailed) as caught:
        await event.run()
    assert caught.value.code == "nonsense"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        [],
        [None, []],
        [1, []],
        [True, 7],
        [True, [7]],
        [True, [[0, 1, b"junk", None]]],
        [True, [[0, 101, pack_items(LARGE) + pack_items([b"x"]), None]]],
        [True, [[0, 1, pack_items([b"x"]), [[100]]]]],
    ],
)
async def test_a_worker_that_answers_nonsense(answer: Any) -> None:
    cast = Cast()
    worker = cast.worker("names", answers={"xbus.send_items": answer})
    with pytest.raises(RecipientFailed) as caught:
        await Event({"names": ["store"], "store": []}, [LARGE], worker, cast.consumer("store")).run()
    assert (caught.value.code, caught.value.failure_class) == ("nonsense", FailureClass.PERMANENT)


@pytest.mark.parametrize(
    "answer",
    [None, [True, 7], [True, [[[], b"x"]]], [True, [[["0"], b"x"]]], [True, [[[0], "x"]]], [True, [[[5], b"x"]]]],
)
async def test_an_old_worker_that_answers_nonsense(answer: Any) -> None:
    cast = Cast()
    worker = cast.worker("names", OLD, answers={"send_item": answer})
    with pytest.raises(RecipientFailed) as caught:
        await Event({"names": ["store"], "store": []}, [[b"a"]], worker, cast.consumer("store")).run()
    assert caught.value.code == "nonsense"


# -- order and bounds ------------------------------------------------------------------------------------------------


async def test_an_old_recipient_is_asked_one_thing_at_a_time() -> None:
    cast = Cast()
    pending: list[asyncio.Future[Any]] = []

    def held(*_: Any) -> "asyncio.Future[Any]":
        pending.append(asyncio.get_running_loop().create_future())
        return pending[-1]

    answers = {"start_event": held, "send_item": held, "end_event": held}
    run = asyncio.ensure_future(
        Event({"store": []}, [[b"a", b"b"]], cast.consumer("store", OLD, answers=answers)).run()
    )
    for asked in range(1, 5):
        await _settle()
        assert len(cast.script.calls) == asked
        pending[-1].set_result([True, None])
    await run


async def test_calls_to_a_recipient_of_batches_go_out_behind_each_other() -> None:
    cast = Cast()
    pending: list[asyncio.Future[Any]] = []

    def held(*_: Any) -> "asyncio.Future[Any]":
        pending.append(asyncio.get_running_loop().create_future())
        return pending[-1]

    store = cast.consumer("store", answers={"start_event": held, "xbus.send_items": held, "xbus.end_event": held})
    segments = [[bytes(70_000)] for _ in range(5)]
    run = asyncio.ensure_future(Event({"store": []}, segments, store).run())
    await _settle()
    assert cast.script.verbs("store") == ["start_event", *["xbus.send_items"] * 5, "xbus.end_event"]
    for answer in pending:
        answer.set_result([True, None])
    await run


async def test_a_slow_branch_of_a_diamond_does_not_stop_the_other_nor_itself() -> None:
    """The merge waits for nobody in particular, and what a slow branch has not taken yet is bounded."""
    cast = Cast()
    slow = asyncio.Event()

    async def late(batch: list[Any]) -> Any:
        await slow.wait()
        return [True, [batch]]

    def answer_late(_: str, __: str, *batch: Any) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(late(list(batch)))

    nodes = {"split": ["fast", "slow"], "fast": ["store"], "slow": ["store"], "store": []}
    recipients = [
        cast.worker("split"),
        cast.worker("fast"),
        cast.worker("slow", answers={"xbus.send_items": answer_late}),
        cast.consumer("store"),
    ]
    event = Event(nodes, [[item] for item in LARGE * 3], *recipients, window_bytes=200_000)
    run = asyncio.ensure_future(event.run())
    await _settle(300)
    assert not run.done()
    slow.set()
    await run
    assert sorted(cast.script.items("store")) == sorted(numbered(LARGE * 3) * 2)


@BOTH_KINDS
async def test_a_small_window_does_not_stand_still(kind: Abilities) -> None:
    cast = Cast()
    recipients = cast.worker("names", kind), cast.consumer("store", kind)
    event = Event({"names": ["store"], "store": []}, [[b"x" * 200] for _ in range(20)], *recipients, window_bytes=300)
    await event.run()
    assert len(cast.script.items("store")) == 20


# -- failures --------------------------------------------------------------------------------------------------------

TRANSIENT = pytest.mark.parametrize(
    ("answer", "code"), [(LOST, "connection_lost"), (SILENT, "timed_out"), (BROKEN, "error_reply")]
)
AT_ANY_POINT = pytest.mark.parametrize(
    ("verb", "items"),
    [("start_event", LARGE), ("xbus.send_items", LARGE), ("xbus.end_event", LARGE), ("xbus.take_event", [b"a"])],
)


@TRANSIENT
@AT_ANY_POINT
async def test_a_consumer_in_trouble_leaves_and_the_others_go_on(
    answer: Exception, code: str, verb: str, items: list[bytes]
) -> None:
    cast = Cast()
    recipients = cast.worker("names"), cast.consumer("store", answers={verb: answer}), cast.consumer("audit")
    event = Event({"names": ["store", "audit"], "store": [], "audit": []}, [items], *recipients)
    await event.run()
    assert event.dropped == [("store", code)]
    assert cast.script.items("audit") == numbered(items)


@TRANSIENT
async def test_the_last_consumer_in_trouble_ends_the_run(answer: Exception, code: str) -> None:
    cast = Cast()
    event = Event({"store": []}, [LARGE], cast.consumer("store", answers={"xbus.send_items": answer}))
    with pytest.raises(RecipientFailed) as caught:
        await event.run()
    assert caught.value.code == code
    assert event.dropped == [("store", code)]


@AT_ANY_POINT
async def test_who_leaves_with_another_gets_nothing_more_and_holds_nobody_up(verb: str, items: list[bytes]) -> None:
    cast = Cast()
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    hangs = cast.consumer("ledger", answers={"xbus.take_event": never, "xbus.send_items": never})
    recipients = cast.consumer("store", answers={verb: REFUSED}), hangs, cast.consumer("audit")
    event = Event({"store": [], "ledger": [], "audit": []}, [items] * 3, *recipients, window_bytes=100_000)
    event.leave_with = {"store": [hangs]}
    await event.run()
    assert event.dropped == [("store", "refused")]
    assert cast.script.items("audit") == numbered(items * 3)
    assert "xbus.end_event" not in cast.script.verbs("ledger")


@AT_ANY_POINT
async def test_the_failure_of_the_last_that_leaves_ends_the_run(verb: str, items: list[bytes]) -> None:
    cast = Cast()
    recipients = cast.consumer("store", answers={verb: REFUSED}), cast.consumer("audit")
    event = Event({"store": [], "audit": []}, [items], *recipients)
    event.leave_with = {"store": [recipients[1]]}
    with pytest.raises(RecipientFailed) as caught:
        await event.run()
    assert caught.value.failure_class is FailureClass.PERMANENT
    assert caught.value.errors[0].indices == [0]


@TRANSIENT
@AT_ANY_POINT
async def test_a_worker_in_trouble_ends_the_run(answer: Exception, code: str, verb: str, items: list[bytes]) -> None:
    cast = Cast()
    recipients = cast.worker("names", answers={verb: answer}), cast.consumer("store"), cast.consumer("audit")
    event = Event({"names": ["store", "audit"], "store": [], "audit": []}, [items], *recipients)
    with pytest.raises(RecipientFailed) as caught:
        await event.run()
    assert (caught.value.code, caught.value.role_id) == (code, recipients[0].role.id)
    assert event.dropped == []


@pytest.mark.parametrize(
    ("verb", "node"),
    [("start_event", "plain, fancy"), ("xbus.send_items", "plain"), ("xbus.end_event", "plain, fancy")],
)
async def test_a_failure_names_the_node_or_all_nodes_of_the_role(verb: str, node: str) -> None:
    cast = Cast()
    graph = {"names": ["fancy:store"], "plain:store": [], "fancy:store": []}
    silent = {"xbus.take_event": [True, None, []], "xbus.send_items": [True, []]}
    recipients = cast.worker("names", answers=silent), cast.consumer("store", answers={verb: REFUSED})
    event = Event(graph, [LARGE], *recipients)
    with pytest.raises(RecipientFailed) as caught:
        await event.run()
    assert caught.value.node == node


async def test_a_failure_at_a_whole_event_names_the_node() -> None:
    cast = Cast()
    event = Event({"shop:store": []}, [[b"a"]], cast.consumer("store", answers={"xbus.take_event": REFUSED}))
    with pytest.raises(RecipientFailed) as caught:
        await event.run()
    assert caught.value.node == "shop"


async def test_a_dropped_consumer_holds_nobody_up() -> None:
    """What it does not take any more is thrown away, also where it is far more than its inbox would hold."""
    cast = Cast()
    recipients = cast.consumer("store", answers={"start_event": LOST}), cast.consumer("audit")
    event = Event({"store": [], "audit": []}, [[item] for item in LARGE * 3], *recipients, window_bytes=100_000)
    await event.run()
    assert cast.script.items("audit") == numbered(LARGE * 3)


async def _settle(steps: int = 30) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
