"""The output of a run: one envelope for all of it, under a key of the bot and of what the run is for.

The bus has an envelope of a key once, so it does not matter how often a run is tried, by whom, or what dies meanwhile:

1. An attempt that is broken off leaves an envelope open, which nobody sees. The next one cancels it and begins anew.
2. An attempt dies when its envelope is sealed, before it could say so. The broker finds the envelope under the key,
   and counts the run as done.
3. An attempt that was thought to be dead goes on. It is refused, as another session has the envelope; or it is the
   first to seal, and the other one is refused, as the key is taken. Then the broker goes on as in 2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

from xbus.emitter import Emitter
from xbus.emitter.synchronous import Envelope
from xbus.errors import Refused
from xbus.reader import ReadEvent, ReadItem


@dataclass(frozen=True)
class BotBatch:
    """The occasion of a call of the author's function.

    Attributes:
        bot: the name of the bot.
        slot: the moment of its cron for which this is, in UTC; None for a run that a person fired.
        due_at: since when it was due, in UTC.
        attempt: from 1 on.
        settings: those of the bot in the bus file.
        items: those of the batch, in the order of the log; none for a bot that runs by time. Each is a ``ReadItem``:
            ``value`` is what the emitter sent, ``event_type`` its type.
        events: the same, in their events.
    """

    bot: str
    slot: datetime | None
    due_at: datetime
    attempt: int
    settings: Mapping[str, object] = field(default_factory=dict)
    items: Sequence[ReadItem] = ()
    events: Sequence[ReadEvent] = ()


class _Discarded(Exception):
    """Cancels what an attempt of before has left open."""


class BotOutput:
    """Puts events, to be used in ``with``: leaving the block seals all of them, an exception cancels them.

    Args:
        key: what the run is for.
        emits: the event types that it may put.
        is_repeated: whether there was an attempt before.
        connect: makes the emitter; called at the first put.
    """

    def __init__(self, key: str, emits: Iterable[str], is_repeated: bool, connect: Callable[[], Emitter]) -> None:
        self._key = key
        self._emits = frozenset(emits)
        self._is_repeated = is_repeated
        self._connect = connect
        self._open = ExitStack()
        self._envelope: Envelope | None = None

    def put(self, type_name: str, items: Iterable[object]) -> None:
        """Put an event. It reaches the bus with all others of the run, when the function has returned.

        Args:
            type_name: an event type that the bot emits.
            items: whatever msgpack packs; an iterator takes no memory for all of them.

        Raises:
            Refused: the bot does not emit the type (``not_emitted``); otherwise as ``Emitter.put``.
        """
        self._check(type_name)
        if self._envelope is None:
            self._envelope = self._begin()
        with self._envelope.event(type_name) as event:
            event.send_all(items)

    def _check(self, type_name: str) -> None:
        if type_name not in self._emits:
            raise Refused(
                f'the bot does not emit "{type_name}"', "name the type in emits of the bot", code="not_emitted"
            )

    def _begin(self) -> Envelope:
        emitter = self._open.enter_context(self._connect())
        if self._is_repeated:
            with suppress(_Discarded), emitter.envelope(key=self._key):
                raise _Discarded
        return self._open.enter_context(emitter.envelope(key=self._key))

    def __enter__(self) -> "BotOutput":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
