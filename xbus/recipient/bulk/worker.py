"""The class that the author of a bulk worker subclasses: it makes the output of a large event as a whole.

It is a worker like any other for small events. For an event of at least ``min_bulk_items`` items it is not sent the
items: it reads them from the journal by itself, writes its output beside the log, and reports it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from xbus.errors import Refused
from xbus.headers import HeaderValue, unpack_headers
from xbus.recipient.base import Worker
from xbus.recipient.envelope import packed_headers
from xbus.rpc.codec import Value


@dataclass(frozen=True, slots=True)
class Handover:
    """A request to a bulk worker: the output of a node for an event.

    Args:
        envelope_id: the envelope of the event.
        event_id: the event.
        type_name: its event type.
        attempt_id: the id under which to write the output; nobody reads it before it is ready.
        node: the name of the node in the event's graph.
        source: the id under which the items are: an event's, maybe that of another event which this one repeats, or
            that of the attempt that made the input.
        is_output: whether ``source`` is an attempt.
        items: the number of incoming items.
        headers: those of the event and its envelope, by name, as of ``Event``.
        partition_key: that of the event; None without one.
    """

    envelope_id: UUID
    event_id: UUID
    type_name: str
    attempt_id: UUID
    node: str
    source: UUID
    is_output: bool
    items: int
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    partition_key: str | None = None

    @classmethod
    def of_wire(cls, envelope_id: str, event_id: str, type_name: str, handover: Value) -> "Handover":
        """Read the hand-over in the arguments of ``xbus.take_output``.

        Raises:
            Refused: it has another form (``bad_handover``).
        """
        try:
            match handover:
                case {
                    "attempt_id": str(attempt_id),
                    "node": str(node),
                    "event_id": str(origin),
                    "input": (None | str()) as made,
                    "items": int(items),
                } if isinstance(handover, dict):
                    ids = UUID(envelope_id), UUID(event_id)
                    source = UUID(origin if made is None else made)
                    own, key, of_envelope = packed_headers(handover)
                    about = ({**unpack_headers(of_envelope), **unpack_headers(own)}, key)
                    return cls(*ids, type_name, UUID(attempt_id), node, source, made is not None, items, *about)
        except ValueError:
            pass  # an invalid id
        raise Refused("the hand-over is not a map as in docs/wire.md", code="bad_handover")


@dataclass(frozen=True, slots=True)
class Made:
    """The output that a bulk worker has written, complete and durable.

    Args:
        items: the number of items in its segments.
        data_bytes: the bytes of their data.
        hash: SHA-256 over the hashes of its segments, by part and number; see
            ``xbus.broker.journal.bulk.part_writer.output_hash``.
    """

    items: int
    data_bytes: int
    hash: bytes


class BulkWorker(Worker, ABC):
    """A worker that takes large events by their ids and ranges instead of their items.

    Its other methods are those of a worker, and serve all else: smaller events, those whose emitter waits for a reply,
    and those that are redelivered with corrected items or without some. Both ways must give the same result.

    Attributes:
        min_bulk_items: an event of so many items is handed over; a smaller one takes the ordinary path.
    """

    min_bulk_items: int = 100_000

    @abstractmethod
    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        """Make the output for an event and write it under the id of the attempt.

        It runs on the event loop, which it must not block, and goes on while the broker is away or starts anew. It is
        cancelled when nobody wants the output any more; then the bus discards what it has written.

        Args:
            progress: call it with the progress, from 0 to 1, from any thread and as often as you like.

        Raises:
            Refusal: the event can never be taken; it may name the indices of the bad items.
            Failed: the output can't be made now; another attempt may succeed. JournalUnavailable means the same. Any
                other exception counts as a fault of the program, which would happen again, and refuses the event.
        """
