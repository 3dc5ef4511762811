"""The outbox in the place of the front: the calls that make an envelope end in the file."""

import asyncio
import functools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar, cast
from uuid import UUID

from xbus.clock import Clock
from xbus.emitter.outbox.box import Outbox, QueuedPut
from xbus.emitter.puts import VERB, Entry, NewPut
from xbus.emitter.session import FrontLimits
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import Ids, format_uuid
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Frame, Value
from xbus.rpc.messages import EnvelopeOptionsMap, EventOptionsMap
from xbus.rpc.owed_calls import AnswerTaker, pass_on

P = ParamSpec("P")
T = TypeVar("T")

LARGEST_ITEM_BYTES = 512 * 1024 * 1024
"""The largest item of the file. The bus may take less, and says so when the item is sent."""


class OutboxThread:
    """The thread that uses an outbox, so that no event loop waits for the disk; calls run in their order.

    Args:
        outbox: the file.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="xbus outbox")

    def run(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        """Have something done there."""
        return asyncio.get_running_loop().run_in_executor(self._executor, functools.partial(do, *args, **kwargs))

    def close(self) -> None:
        """Finish the waiting calls, and close the file."""
        self._executor.shutdown()
        self.outbox.close()


class QueueSession:
    """Takes the calls of an envelope as a session at the front does, into the outbox.

    Args:
        thread: where the outbox is used.
        clock: tells when an envelope was queued.
        ids: makes keys for envelopes that have none.
        on_queued: called when an envelope has come into the line.
    """

    logins = 1

    def __init__(self, thread: OutboxThread, clock: Clock, ids: Ids, on_queued: Callable[[], None]) -> None:
        self._thread = thread
        self._outbox = thread.outbox
        self._clock = clock
        self._ids = ids
        self._on_queued = on_queued
        self.turn = LoopTurn()
        self._items: dict[str, dict[str, int]] = {}
        self._verbs: dict[str, Callable[..., Value]] = {
            "xbus.start_envelope": self._start_envelope,
            "xbus.start_event": self._start_event,
            "xbus.send_items": self._send_items,
            "xbus.end_event": self._end_event,
            "xbus.end_envelope": self._end_envelope,
            "xbus.cancel_envelope": self._cancel_envelope,
            VERB: self._put_envelopes,
        }

    @property
    def limits(self) -> FrontLimits:
        """The limits of the file."""
        return FrontLimits(math.inf, LARGEST_ITEM_BYTES, LARGEST_ITEM_BYTES + 5, 0.0, headers=True, groups=True)

    def call(self, verb: str, *arguments: object, seconds: float) -> "asyncio.Future[Value]":
        """Carry a call out in the file, as the front would."""
        answer = self._thread.run(self._verbs[verb], *arguments)
        if verb in ("xbus.end_envelope", VERB):
            answer.add_done_callback(self._ended)
        return answer

    def ask(self, verb: str, arguments: tuple[object, ...], taker: AnswerTaker, seconds: float) -> None:
        """Carry a call out as ``call`` does, and give the answer to ``taker``."""
        pass_on(self.call(verb, *arguments, seconds=seconds), taker)

    async def restore(self) -> None:
        """Do nothing: the file exists, or the next call says why not."""

    def _ended(self, answer: "asyncio.Future[Value]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._on_queued()

    def _start_envelope(self, envelope_id: str, options: EnvelopeOptionsMap | None = None) -> str:
        given: EnvelopeOptionsMap = options or {}
        made_id = envelope_id or self._ids.new_text()
        key = given.get("key") or self._ids.new_text()
        _check_text("key", key)
        _check_text("ordering key", given.get("ordering_key"))
        self._outbox.start_envelope(made_id, key, given.get("ordering_key"), given.get("headers"))
        return made_id

    def _start_event(
        self, envelope_id: str, event_id: str, type_name: str, estimate: int, options: EventOptionsMap | None = None
    ) -> str:
        given: EventOptionsMap = options or {}
        tags = EventTags(given.get("headers"), given.get("partition_key"))
        _check_event(type_name, estimate)
        self._outbox.start_event(envelope_id, event_id, type_name, estimate, tags)
        return event_id

    def _send_items(self, envelope_id: str, event_id: str, first_index: int, items: int, data: Frame) -> int:
        self._outbox.append(envelope_id, event_id, first_index, items, bytes(data))
        return first_index + items

    def _end_event(self, envelope_id: str, event_id: str, items: int) -> Value:
        self._items.setdefault(envelope_id, {})[event_id] = items
        return {"items": items, "reply": None, "replied": False}

    def _end_envelope(self, envelope_id: str, events: int) -> Value:
        # Calls come without waiting for those before them, of which one may have failed.
        wanted = (events, sum(self._items.get(envelope_id, {}).values()))
        held, items = self._outbox.end_envelope(envelope_id, self._clock.now(), wanted)
        self._items.pop(envelope_id, None)
        return {
            "envelope_id": envelope_id,
            "position": 0,
            "events": held,
            "items": items,
            "hash": b"",
            "queued": True,
        }

    def _put_envelopes(self, entries: Sequence[Entry]) -> Value:
        try:
            puts = [self._whole(*entry) for entry in entries]
            refusals = self._outbox.queue(puts, self._clock.now())
        except Refused as refusal:
            if len(entries) == 1:
                return [_told(refusal)]
            # One of them can't be stored, and the others can.
            return [told for entry in entries for told in cast("list[Value]", self._put_envelopes([entry]))]
        return [
            [UUID(envelope_id).bytes, 0, b""] if refusal is None else _told(refusal)
            for (envelope_id, *_), refusal in zip(puts, refusals, strict=True)
        ]

    def _whole(
        self,
        envelope_id: bytes | None,
        event_id: bytes | None,
        type_name: str,
        items: int,
        data: bytes,
        head: EnvelopeHead | None,
        tags: EventTags | None,
    ) -> QueuedPut:
        ids = [self._ids.new_text() if each is None else format_uuid(each) for each in (envelope_id, event_id)]
        given = head or PLAIN_HEAD
        _check_event(type_name, items)
        _check_text("key", given.key)
        _check_text("ordering key", given.ordering_key)
        keyed = given._replace(key=given.key or self._ids.new_text())
        return QueuedPut(ids[0], ids[1], NewPut(type_name, items, data, keyed, tags or NO_TAGS))

    def _cancel_envelope(self, envelope_id: str) -> bool:
        self._items.pop(envelope_id, None)
        self._outbox.remove(envelope_id)
        return True


def _check_event(type_name: object, items: object) -> None:
    if type_name is None or not isinstance(items, int):
        cause = "an event has no type, or its number of items is no int"
        raise Refused(cause, "give its type as a str, and its estimate as an int", code="wrong_arguments")
    _check_text("event type", type_name)


def _check_text(name: str, value: object) -> None:
    """Let a text pass, or None. SQLite fails at some other values as at a full disk, and makes texts of others.

    Raises:
        Refused: it is another value (``wrong_arguments``).
    """
    if not isinstance(value, str | None):
        cause = f"the {name} is of the type {type(value).__name__}, and no text"
        raise Refused(cause, "give a str", code="wrong_arguments")


def _told(refusal: Refused) -> Value:
    """Tell a refusal as the front does in its answer to a group."""
    return {"refused": True, "code": refusal.code, "cause": refusal.cause, "next_step": refusal.next_step}
