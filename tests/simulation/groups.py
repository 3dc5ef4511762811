"""Emitters in virtual time that put envelopes in groups, cut at random, with repeats and wrong ones among them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.emitters import Plan, Sent
from tests.simulation.timing import WAY_SECONDS
from xbus.broker.front.groups import Answers
from xbus.errors import ConnectionLost, Failed, JournalUnavailable
from xbus.headers import EventTags, pack_headers
from xbus.ids import keyed_ids
from xbus.rpc.codec import pack_items
from xbus.rpc.messages import GroupedError, GroupedReceipt
from xbus.testing.broker import VirtualBroker

MOST_MESSAGES = 3
"""The messages of an emitter that are out at once. More would make smaller groups."""

REPEATED = 0.2
"""The share of the times in which an envelope goes twice, and in which one that was sealed goes again."""

WRONG = 0.3
"""The share of the times in which a wrong envelope is among those that go."""

IN_ORDER = 0.2
"""The share of the messages of which no envelope is to be taken behind one that is not."""

Entry = list[Any]


@dataclass(frozen=True, eq=False)
class Put:
    """An envelope on the wire.

    Args:
        plan: of the envelope; None for one that has to be refused.
        codes: the codes by which it may be refused.
    """

    entry: Entry
    plan: Plan | None
    codes: frozenset[str] = frozenset()


def put_of(plan: Plan) -> Put:
    """Write the only event of an envelope down."""
    ((event_id, type_name, items),) = plan.events
    ids = [None, None] if plan.key else [plan.envelope_id.bytes, event_id.bytes]
    head = [plan.ordering_key, plan.key, pack_headers(plan.headers or None)]
    return Put([*ids, type_name, len(items), pack_items(list(items)), head, None], plan)


class GroupSender:
    """Puts the envelopes of an emitter: those that wait when the messages before are answered go together.

    An envelope goes again, in a group that is cut anew, until it is acknowledged.

    Args:
        emitter_id: of the emitter.
        find_broker: gives the broker that runs now, or None.
        choices: cut the groups, and choose what else is among the envelopes.
        sent: learns what came of them.
        spawn: runs the sender.
    """

    def __init__(
        self,
        emitter_id: int,
        find_broker: Callable[[], VirtualBroker | None],
        choices: random.Random,
        sent: Sent,
        spawn: Callable[[Any], None],
    ) -> None:
        self._emitter_id = emitter_id
        self._find_broker = find_broker
        self._choices = choices
        self._sent = sent
        self._spawn = spawn
        self._waiting: list[Put] = []
        self._sealed: list[Plan] = []
        self.is_busy = False

    def ids_of_key(self, key: str) -> tuple[bytes, bytes]:
        """Give the ids of the envelope with a key, and of its event."""
        (envelope_id,), (event_id,) = keyed_ids([self._emitter_id], [key])
        return envelope_id, event_id

    def put(self, plan: Plan) -> None:
        """Send an envelope of one event until it is acknowledged."""
        self._sent.plans[str(plan.envelope_id)] = plan
        self._waiting.append(put_of(plan))
        if not self.is_busy:
            self.is_busy = True
            self._spawn(self._send())

    async def _send(self) -> None:
        while self._waiting:
            async with asyncio.TaskGroup() as tasks:
                for message in self._messages():
                    tasks.create_task(self._put(message))
        self.is_busy = False

    def _messages(self) -> list[list[Put]]:
        """Cut what waits, and what is to go besides, into messages."""
        choices = self._choices
        puts, self._waiting = self._waiting, []
        if choices.random() < REPEATED:
            puts.append(choices.choice(puts))
        if self._sealed and choices.random() < REPEATED:
            puts.append(put_of(choices.choice(self._sealed)))
        if choices.random() < WRONG:
            puts.insert(choices.randrange(len(puts) + 1), self._wrong())
        number = min(len(puts), choices.randint(1, MOST_MESSAGES))
        cuts = sorted(choices.sample(range(1, len(puts)), number - 1))
        return [puts[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(puts)], strict=True)]

    def _wrong(self) -> Put:
        """Make an envelope that has to be refused: bad by itself, or other than one of the same id or key."""
        choices = self._choices
        new = [choices.randbytes(6) + b"\x70\x00\x80" + choices.randbytes(7) for _ in range(2)]
        if self._sealed and choices.random() < 0.5:
            plan = choices.choice(self._sealed)
            entry = [*put_of(plan).entry]
            entry[3:5] = [1, pack_items([b"other"])]
            codes = {"key_reused"} if plan.key else {"content_differs", "envelope_closed"}
            return Put(entry, None, frozenset(codes))
        data = pack_items([b"x"])
        entry, code = choices.choice(
            (
                ([*new, "nothing", 1, data, None, None], "unknown_type"),
                ([*new, "secrets", 1, data, None, None], "type_not_allowed"),
                ([*new, "notes", 1, pack_items([b"x" * 2000]), None, None], "item_too_large"),
                ([*new, "notes", 2, data, None, None], "bad_items"),
                ([b"short", new[1], "notes", 1, data, None, None], "wrong_arguments"),
                ([*new, "notes", 1, data, ["no head"], None], "wrong_arguments"),
                ([*new, "notes", 1, data, None, EventTags(partition_key="")], "bad_partition_key"),
            )
        )
        return Put(entry, None, frozenset([code]))

    async def _put(self, message: Sequence[Put]) -> None:
        in_order = self._choices.random() < IN_ORDER
        answers: Sequence[GroupedReceipt | GroupedError | None]
        try:
            answers = await self._answered(message, in_order)
        except (ConnectionLost, JournalUnavailable, Failed):
            answers = [None] * len(message)
        again = [put for put, answer in zip(message, answers, strict=True) if not self._is_done(put, answer)]
        if again:
            await asyncio.sleep(self._choices.choice((0.1, 1.0)))
            self._waiting += again

    async def _answered(self, message: Sequence[Put], in_order: bool) -> Answers:
        await asyncio.sleep(self._choices.choice(WAY_SECONDS))
        broker = self._find_broker()
        if broker is None or not broker.serves:
            raise ConnectionLost("no broker is there")
        entries = [put.entry for put in message]
        answers = await broker.unless_dead(broker.put_envelopes(self._emitter_id, entries, in_order=in_order))
        await asyncio.sleep(self._choices.choice(WAY_SECONDS))
        if broker.is_dead.is_set():
            raise ConnectionLost("the broker went down before its answer was on its way")
        return answers

    def _is_done(self, put: Put, answer: GroupedReceipt | GroupedError | None) -> bool:
        """Note an answer; false where the envelope has to go again."""
        if answer is None or (isinstance(answer, dict) and not answer["refused"]):
            return False
        if put.plan is None:
            if not isinstance(answer, dict) or answer["code"] not in put.codes:
                self._sent.wrongs.append(f"{put.entry} was answered by {answer}, and not by one of {set(put.codes)}")
            return True
        name = str(put.plan.envelope_id)
        if isinstance(answer, dict):
            self._sent.refused[name] = answer["code"]
            return True
        receipt = bytes(answer[0]), answer[1], bytes(answer[2])
        if name not in self._sent.acknowledged:
            self._sent.acknowledged.add(name)
            self._sealed.append(put.plan)
        if self._sent.receipts.setdefault(name, receipt) != receipt:
            self._sent.wrongs.append(f"{name} got the receipts {self._sent.receipts[name]} and {receipt}")
        return True
