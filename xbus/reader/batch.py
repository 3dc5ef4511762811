"""Events and items as the author of a reading program sees them; pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import cast

from xbus.errors import ProtocolError, Refused
from xbus.headers import HeaderValue, unpack_headers
from xbus.recipient.envelope import Item
from xbus.rpc.codec import Value, unpack_items
from xbus.rpc.messages import ClaimedBatchMap, ReadEventMap
from xbus.rpc.shapes import AnswerReader

_EVENT = AnswerReader("xbus.read_batch", ReadEventMap)


class ReadItem(Item):
    """One item, with the event that it belongs to.

    Attributes:
        event: the event, with its envelope's facts.
    """

    __slots__ = ("event",)

    def __init__(self, data: bytes, index: int, event: "ReadEvent") -> None:
        super().__init__(data, index)
        self.event = event

    @property
    def event_type(self) -> str:
        """The name of its event type."""
        return self.event.type_name


class ReadEvent:
    """An event, or some of its items, and the facts of its envelope.

    Attributes:
        id: its UUID as text.
        type_name: its event type.
        index: which event of its envelope it is, from 0.
        envelope_id: the envelope's UUID as text.
        position: the envelope's place in the log.
        sealed_at: when the envelope was sealed, in UTC.
        emitter: the login of its emitter.
        key: the emitter's name for the envelope, None without one.
        ordering_key: as the emitter gave it, None without one.
        partition_key: the same.
        first_index: the index of the first item that is here.
        size: how many items are here.
    """

    def __init__(self, told: ReadEventMap) -> None:
        self.id = told["event_id"]
        self.type_name = told["type"]
        self.index = told["event"]
        self.envelope_id = told["envelope_id"]
        self.position = told["position"]
        self.sealed_at = datetime.fromtimestamp(told["sealed_at"], UTC)
        self.emitter = told["emitter"]
        self.key = told["key"]
        self.ordering_key = told["ordering_key"]
        self.partition_key = told["partition_key"]
        self.first_index = told["first_index"]
        self.size = told["items"]
        self._data = told["data"]
        self._headers = told["headers"]
        self._event_headers = told["event_headers"]

    @cached_property
    def data(self) -> Sequence[bytes]:
        """The bytes of each item, the fastest way to them.

        Raises:
            Refused: the broker's answer is damaged (``bad_items``).
        """
        try:
            return unpack_items(self._data, self.size)
        except ProtocolError as error:
            raise Refused(error.cause, error.next_step, code="bad_items") from error

    @cached_property
    def envelope_headers(self) -> Mapping[str, HeaderValue]:
        """The headers of the envelope, by name."""
        return unpack_headers(self._headers)

    @cached_property
    def headers(self) -> Mapping[str, HeaderValue]:
        """The headers of the event and of its envelope, by name; the event's own count where both have a name."""
        return {**self.envelope_headers, **unpack_headers(self._event_headers)}

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[ReadItem]:
        return (ReadItem(data, index, self) for index, data in enumerate(self.data, self.first_index))


def read_event(told: ReadEventMap) -> ReadEvent:
    """Read an event of a list of them: the shape of an answer says nothing of the elements of its lists."""
    return ReadEvent(_EVENT.read(cast(Value, told)))


class EventBatch:
    """Items that were read together; iterating over it gives each as a ``ReadItem``.

    Attributes:
        events: the events that they belong to, in the order of the log.
        place: where it begins, as commands write it: ``1234`` or ``1234:0:500``.
        end: where it ends, which is where the next one begins.
    """

    def __init__(self, events: Sequence[ReadEventMap], place: list[int], end: list[int]) -> None:
        self.events = [read_event(event) for event in events]
        self.place = _place_text(place)
        self.end = _place_text(end)

    def __len__(self) -> int:
        return sum([event.size for event in self.events])

    def __iter__(self) -> Iterator[ReadItem]:
        return chain.from_iterable(self.events)


def _place_text(place: list[int]) -> str:
    return ":".join(map(str, place)) if any(place[1:]) else str(place[0])


LEASE_LOST = "lease_lost"


class ReaderBatch(EventBatch):
    """Items of a range. Call ``done`` when all of them are processed: then they are not read again.

    Attributes:
        range: the number of the range.
        is_repeated: whether it was handed out before, to this program or another. It holds the same items again.
        is_done: whether ``done`` was called.
        is_lost: whether this program has lost the range, as far as it knows: another program reads it, or somebody
            moved, split or merged it. The items of the batch are handed out again, and ``done`` has no effect.
    """

    def __init__(self, told: ClaimedBatchMap) -> None:
        super().__init__(told["events"], told["from"], told["to"])
        self.range = told["range"]
        self.is_repeated = told["repeated"]
        self.is_done = False
        self.is_lost = False
        self._counter = told["counter"]
        self._to = told["to"]

    def done(self) -> None:
        """Say that all items are processed.

        The bus notes it with the next batch that the program asks for, or when the program leaves the reader, and at
        the latest after a third of the lease. If the range was lost meanwhile (``is_lost``), this has no effect.
        """
        self.is_done = True

    @property
    def lease(self) -> tuple[int, int]:
        """The range, and how often it had changed its owner."""
        return self.range, self._counter

    def settled(self) -> list[Value]:
        """Write what says that it is done: range, counter and place."""
        return [self.range, self._counter, [*self._to]]


def lease_lost(number: int) -> Refused:
    """Make the error of a program that has lost a range, as a renewal of its leases shows."""
    return Refused(
        f"range {number} is read by another program now, or was moved, split or merged",
        "read on: its batch is handed out again; if programs lose ranges that nobody changes, raise `lease` of the "
        "reader in the bus file",
        code=LEASE_LOST,
    )
