"""The probe in a recipient: it notes what the author's code took, and makes it fail or crash on demand."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xbus.errors import ProtocolError
from xbus.recipient.base import Consumer, Recipient, Worker
from xbus.recipient.calls import AuthorThread, Calls
from xbus.recipient.envelope import Batch, Envelope, Event, Item
from xbus.rpc.codec import unpack

CrashPoint: TypeAlias = Literal["items", "before_commit", "after_commit"]
"""The next moment at which a recipient crashes: as items come, or just before or after the author's ``commit``."""


class Crash(BaseException):
    """The recipient has crashed: no code of the SDK handles this, or keeps it in a log with all that it refers to."""


@dataclass(frozen=True)
class Mishap:
    """An exception of the author's code.

    Args:
        name: the login of the role, or the bot.
        event_type: of the item; empty where no event was at hand.
        item: at which it was raised; None where that is not known.
        error: what was raised.
    """

    name: str
    event_type: str
    item: Item | None
    error: BaseException


@dataclass
class RoleLog:
    """Notes what happened at a role, in all lives of its recipient, and what is to happen.

    Args:
        taken: event type and value of each item that was committed, in that order.
        commits: the ids of the envelopes that were committed, in that order; one that came twice stands here twice.
        failures: what the next batches of items come to instead of the author's code.
        answered: event type and value of each item that a worker answered to an envelope that was committed.
        mishaps: what the author's code has raised.
        crash: where the recipient crashes next; None for nowhere.
        crashes: how often it did.
    """

    taken: list[tuple[str, object]] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    failures: deque[Exception] = field(default_factory=deque)
    answered: list[tuple[str, object]] = field(default_factory=list)
    mishaps: list[Mishap] = field(default_factory=list)
    crash: CrashPoint | None = None
    crashes: int = 0


class ProbedCalls(Calls):
    """Calls the author's methods, as ``recipient.calls.Calls`` does, with a probe.

    Args:
        recipient: the author's.
        desk: where the jobs that use this run.
        log: of the role.
        login: of the role.

    Attributes:
        has_crashed: whether this life of the recipient has ended; then the author's code is called no more.
    """

    def __init__(self, recipient: Recipient, desk: AuthorThread, log: RoleLog, login: str = "") -> None:
        super().__init__(recipient, desk)
        # Each item passes ``batch``, and each envelope ``commit``, whatever methods the author has.
        self.take_item = None
        self.has_commit = True
        self._log = log
        self._login = login
        self._open: dict[str, list[tuple[str, object]]] = {}
        self._answers: dict[str, list[tuple[str, object]]] = {}
        self.has_crashed = False

    def start_event(self, event: Event) -> None:
        """Begin an event."""
        self._check_alive()
        self._open.setdefault(event.envelope.id, [])
        super().start_event(event)

    def batch(self, event: Event, batch: Batch) -> list[Item] | None:
        """Take items, unless they are to fail."""
        self._check_alive()
        self._reach("items")
        if self._log.failures:
            raise self._log.failures.popleft()
        taken = event.taken
        try:
            answer = super().batch(event, batch)
        except Exception as error:
            self._log.mishaps.append(Mishap(self._login, event.type_name, self._item(event, taken, batch), error))
            raise
        self._note_answers(event, answer or [])
        self._open[event.envelope.id] += [(event.type_name, _value(data)) for data in batch.data]
        return answer

    def end_event(self, event: Event) -> tuple[object, list[Item]]:
        """End an event."""
        self._check_alive()
        try:
            reply, answer = super().end_event(event)
        except Exception as error:
            self._log.mishaps.append(Mishap(self._login, event.type_name, None, error))
            raise
        self._note_answers(event, answer)
        return reply, answer

    def _item(self, event: Event, taken: int, batch: Batch) -> Item | None:
        """Find the item at which the author's code was; one that takes whole batches does not say."""
        is_of_author = type(self._recipient).on_batch not in (Consumer.on_batch, Worker.on_batch)
        number = event.taken - taken
        return None if is_of_author or number >= len(batch) else [*batch][number]

    def _note_answers(self, event: Event, answer: Iterable[Item]) -> None:
        self._answers.setdefault(event.envelope.id, []).extend((event.type_name, _value(item.data)) for item in answer)

    def commit(self, envelope: Envelope) -> None:
        """Make it last, and note it."""
        self._check_alive()
        self._reach("before_commit")
        super().commit(envelope)
        self._log.taken += self._open.pop(envelope.id, [])
        self._log.answered += self._answers.pop(envelope.id, [])
        self._log.commits.append(envelope.id)
        self._reach("after_commit")

    def rollback(self, envelope: Envelope) -> None:
        """Forget it."""
        self._check_alive()
        self._open.pop(envelope.id, None)
        self._answers.pop(envelope.id, None)
        super().rollback(envelope)

    def _reach(self, point: CrashPoint) -> None:
        if self._log.crash == point:
            self._log.crash = None
            self._log.crashes += 1
            self.has_crashed = True
            self._check_alive()

    def _check_alive(self) -> None:
        if self.has_crashed:
            raise Crash


def _value(data: bytes) -> object:
    """Read an item; one that is no msgpack is given as it is."""
    try:
        return unpack(data)
    except ProtocolError:
        return data


def values_of_type(taken: Sequence[tuple[str, object]], event_type: str | None) -> list[object]:
    """Choose the values of one event type, or of all."""
    return [value for name, value in taken if event_type in (None, name)]
