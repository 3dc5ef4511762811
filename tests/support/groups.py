"""Messages of ``xbus.put_envelopes`` as tests put them: their envelopes, how they are cut, and what came of them."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import Scribe, memory_engine
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes import Checks, EnvelopeLimits, ReplyRequests
from xbus.broker.front.front import Front
from xbus.broker.front.groups import GroupIntake
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.objects.stowing import ObjectPlace
from xbus.broker.sessions import Sessions
from xbus.errors import JournalUnavailable
from xbus.headers import pack_headers
from xbus.rpc.bell import Bell
from xbus.rpc.codec import pack as packed
from xbus.rpc.codec import pack_items, unpack
from xbus.supervision.health import Health

LIMITS = EnvelopeLimits(
    item_bytes=1_000, batch_bytes=5_000, envelope_items=100, envelope_bytes=20_000, envelope_events=1_000
)

Entry: TypeAlias = Any
TOKENS = cast(Sessions, SimpleNamespace(owner=int))
"""Sessions in which the token of each emitter is its id, without a call of Python for each."""


def entry(random: Random, *items: bytes, type_name: str = "notes", head: Any = None, tags: Any = None) -> Entry:
    data = pack_items(items) if items else b""
    ids = [random.randbytes(6) + b"\x70" + random.randbytes(9) for _ in range(2)]
    return [*ids, type_name, len(items), data, head, tags]


def keyed(key: str, *items: bytes, headers: bytes | None = None) -> Entry:
    return [None, None, "notes", len(items), pack_items(items), [None, key, headers], None]


class Message:
    """A call of ``xbus.put_envelopes``.

    Args:
        emitter_id: of its emitter, whose token this is.
        entries: its envelopes.

    Attributes:
        answered: gets the answer.
    """

    def __init__(self, emitter_id: int, entries: Sequence[Entry], *, in_order: bool = False) -> None:
        self.args: list[Any] = [str(emitter_id), on_wire(entries), in_order]
        self.size = len(packed(self.args))
        self.peer = b"peer"
        self.is_followed = True
        self.answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.sent_early: list[Any] = []

    def send_early(self, answer: Any) -> None:
        """Note an answer that may go before the loop has it."""
        self.sent_early.append([*answer])


def give(messages: Sequence[Any], answers: Sequence[Any]) -> None:
    """Answer messages."""
    for message, answer in zip(messages, answers, strict=True):
        if isinstance(answer, Exception):
            message.answered.set_exception(answer)
        else:
            assert message.sent_early in ([], [[*answer]]), "a message has one answer, by whichever thread"
            message.answered.set_result([*answer])


def putting(intake: GroupIntake, *messages: Message) -> "list[asyncio.Future[list[Any]]]":
    """Put the messages of a turn of the loop; their answers come later."""
    intake.put_envelopes(messages, give)
    return [message.answered for message in messages]


async def put_one(
    intake: GroupIntake, emitter_id: int, entries: Sequence[Entry], *, in_order: bool = False
) -> list[Any]:
    """Put a message alone."""
    (answered,) = putting(intake, Message(emitter_id, entries, in_order=in_order))
    return await answered


async def put_patiently(intake: GroupIntake, emitter_id: int, entries: Sequence[Entry]) -> list[Any]:
    """Put a message alone, anew where the fate of an earlier envelope is not known in time, as on a busy machine."""
    return await patiently(intake, emitter_id, entries, await put_one(intake, emitter_id, entries))


async def patiently(intake: GroupIntake, emitter_id: int, entries: Sequence[Entry], answers: list[Any]) -> list[Any]:
    """Give the answers to a message that was put; those of another try where it is to be put again."""
    while (False, JournalUnavailable.default_code) in map(told, answers):
        answers = await put_one(intake, emitter_id, entries)
    return answers


def on_wire(entries: Sequence[Entry]) -> list[Any]:
    found: Any = unpack(packed(entries))
    return list(found)


WRONG: dict[str, Callable[[Random], Any]] = {
    "unknown_type": lambda random: entry(random, b"x", type_name="nothing"),
    "item_too_large": lambda random: entry(random, b"x" * 2000),
    "bad_items": lambda random: [*entry(random, b"x")[:3], 2, pack_items([b"x"]), None, None],
    "headers_too_large": lambda random: entry(random, b"x", tags=[packed({"a": "x" * 5000}), None]),
    "bad_partition_key": lambda random: entry(random, b"x", tags=[None, ""]),
    "wrong_arguments": lambda random: [b"short", *entry(random, b"x")[1:]],
    "wrong_arguments: version": lambda random: [uuid.uuid5(uuid.NAMESPACE_DNS, "a").bytes, *entry(random, b"x")[1:]],
    "wrong_arguments: form": lambda random: "no list",
    "wrong_arguments: head": lambda random: entry(random, b"x", head=["a"]),
    "wrong_arguments: key": lambda random: entry(random, b"x", head=[None, "", None]),
    "wrong_arguments: number": lambda random: [*entry(random, b"x")[:3], -1, b"", None, None],
}


HEADERS = pack_headers({"shop": "Paris"})

OTHERWISE: dict[str, Callable[[Random, Entry], Entry]] = {
    "nothing": lambda _, sent: sent,
    "content": lambda _, sent: [*sent[:3], 1, pack_items([b"other"]), *sent[5:]],
    "more items": lambda _, sent: [*sent[:3], sent[3] + 1, sent[4] + pack_items([b"other"]), *sent[5:]],
    "event": lambda random, sent: [sent[0], sent[1] and entry(random)[1], *sent[2:]],
    "type": lambda _, sent: [*sent[:2], "flights", *sent[3:]],
    "headers": lambda _, sent: [*sent[:5], [None, sent[5] and sent[5][1], HEADERS], sent[6]],
    "ordering key": lambda _, sent: [*sent[:5], ["Ada", *(sent[5] or [None, None, None])[1:]], sent[6]],
    "partition key": lambda _, sent: [*sent[:6], [None, "client 8"]],
    "headers of the event": lambda _, sent: [*sent[:6], [HEADERS, None]],
}
"""The differences of a repeat from its first time."""


def some_calls(random: Random, *, contested: bool = True, earlier: Sequence[Entry] = ()) -> list[Entry]:
    """Calls as a shop, a careless program and an attacker make them.

    Args:
        contested: whether different contents come under one id or key.
        earlier: envelopes that are repeated, too, exactly or otherwise.
    """
    calls: list[Entry] = []
    right: list[Entry] = []
    left = [*earlier]
    for number in range(random.randint(1, 30)):
        items = [b"%d" % number] * random.randint(0, 3)
        kind = random.random()
        if left and random.random() < 0.5:
            before = random.choice(left) if contested else left.pop(random.randrange(len(left)))
            calls.append(random.choice([*OTHERWISE.values()])(random, before))
        elif calls and kind < 0.15:
            calls.append(random.choice(calls))
        elif right and kind < 0.2 and contested:
            twin = random.choice(right)
            calls.append([*twin[:3], 1, pack_items([b"other"]), *twin[5:]])
        elif kind < 0.3:
            calls.append(random.choice([*WRONG.values()])(random))
        elif kind < 0.5:
            key = random.randint(1, 4)
            content = random.randint(1, 2) if contested else key
            calls.append(keyed(f"order {key}", b"%d" % content, headers=HEADERS))
        else:
            head = random.choice([None, None, ["Ada", None, None], [None, None, HEADERS]])
            tags = random.choice([None, None, [HEADERS, None], [None, "client 7"]])
            right.append(entry(random, *items, type_name=random.choice(["notes", "flights"]), head=head, tags=tags))
            calls.append(right[-1])
    return calls


def messages_of(calls: Sequence[Entry], cut: str, random: Random) -> list[list[Entry]]:
    if cut == "together":
        return [[*calls]]
    messages: list[list[Entry]] = []
    for call in calls:
        if not messages or cut == "singly" or random.random() < 0.3:
            messages.append([])
        messages[-1].append(call)
    return messages


@asynccontextmanager
async def a_front(journal: Journal, kind: type[Front] = Front) -> AsyncIterator[Front]:
    """A front that begins over a journal."""
    clock = StandingClock()
    async with asyncio.TaskGroup() as tasks:
        configuration = Configuration(journal)
        await configuration.refresh()
        replies = ReplyRequests(journal, cast(Bell, SimpleNamespace()), clock, 30.0)
        space = Space(journal, 0, Health("front", clock))
        yield kind(journal, Checks(configuration, LIMITS, clock), clock, replies, lambda: None, tasks, space)


Prepare: TypeAlias = Callable[[Journal], Awaitable[None]]
"""Brings into a journal what is there before any message comes."""


@asynccontextmanager
async def an_intake(
    engine: sa.Engine,
    objects: ObjectPlace | None = None,
    *,
    prepare: Prepare | None = None,
    kind: type[Front] = Front,
) -> AsyncIterator[tuple[GroupIntake, Journal, int]]:
    """The intake of a front over a fresh journal, with an emitter."""
    async with Journal(engine, "broker", objects=objects) as journal:
        if prepare is not None:
            await prepare(journal)
        async with a_front(journal, kind) as front:
            yield GroupIntake(front, TOKENS, lambda *_: None), journal, (await Scribe.of(journal)).emitter_id("north")


async def carried_out(
    messages: Sequence[list[Entry]],
    engine: sa.Engine | None = None,
    outage: tuple[int, AbstractContextManager[Event]] | None = None,
    *,
    prepare: Prepare | None = None,
    kind: type[Front] = Front,
) -> tuple[list[Any], list[Any]]:
    """The answers to all calls, and the rows that a fresh journal has then.

    Args:
        engine: of a database with the small bus in it; by default one in memory.
        outage: a message, and the fault by which the database goes away meanwhile. The message is sent again.
        prepare: called with the journal before.
        kind: of the front.
    """
    answers: list[Any] = []
    async with an_intake(engine or memory_engine(), prepare=prepare, kind=kind) as (intake, journal, emitter_id):
        for number, message in enumerate(messages):
            if outage is not None and number == outage[0]:
                with outage[1] as happened, suppress(JournalUnavailable):
                    await put_one(intake, emitter_id, message)
                assert happened.is_set(), "the message committed nothing"
            answers += await put_patiently(intake, emitter_id, message)
        rows = await journal.read(all_rows)
    return answers, rows


def all_rows(connection: sa.Connection) -> list[Any]:
    return [
        [dict(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings()]
        for table in (model.envelope, model.event, model.log_segment, model.head)
    ]


def unplaced(rows: list[Any]) -> list[Any]:
    return [[{name: row[name] for name in row if name != "position"} for row in of_table] for of_table in rows]


def without_position(told: Any) -> object:
    return (told[0], told[2]) if len(told) == 3 else told


def told(answer: Any) -> object:
    return (answer["refused"], answer["code"]) if isinstance(answer, dict) else tuple(answer)


def contest(messages: Sequence[list[Entry]], random: Random) -> list[list[Entry]]:
    """Add other contents to messages, under ids and keys of earlier messages: these are taken, or were refused."""
    contested: list[list[Entry]] = []
    before: list[Entry] = []
    for message in messages:
        added = [*message]
        for _ in range(random.choice((0, 1, 3)) if before else 0):
            added.insert(random.randrange(len(added) + 1), _other_of(random.choice(before), random))
        contested.append(added)
        before += [call for call in message if isinstance(call, list) and call[0] != b"short"]
    return contested


def _other_of(call: Entry, random: Random) -> Entry:
    """Write other content under the ids or the key of a call, or under its event's id alone."""
    other = [*call[:3], 1, pack_items([b"other"]), *call[5:]]
    if call[0] is not None and random.random() < 0.4:
        other[0] = entry(random)[0]
    return other
