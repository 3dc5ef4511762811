"""The class that the author of a bulk worker subclasses: it makes the output of a large event as a whole.

It is a worker like any other for small events. For an event of at least ``min_bulk_items`` items it is not sent the
items: it reads them from the journal by itself, writes what it makes of them beside the log, and says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from xbus.errors import Refused
from xbus.recipient.base import Worker
from xbus.rpc.codec import Value


@dataclass(frozen=True, slots=True)
class Handover:
    """What a bulk worker is asked for: the output of a node for an event.

    Args:
        envelope_id: the envelope of the event.
        event_id: the event.
        type_name: its event type.
        attempt_id: under which the output is to be written, to be read by nobody before it is said to be made.
        node: the name of the node in the event's graph.
        source: where the items lie: an event's id, which may be another event's that this one repeats, or that of the
            attempt that made what comes in.
        is_output: whether ``source`` is an attempt.
        items: how many come in.
    """

    envelope_id: UUID
    event_id: UUID
    type_name: str
    attempt_id: UUID
    node: str
    source: UUID
    is_output: bool
    items: int

    @classmethod
    def of_wire(cls, envelope_id: str, event_id: str, type_name: str, handover: Value) -> "Handover":
        """The hand-over in the arguments of ``xbus.take_output``.

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
                }:
                    ids = UUID(envelope_id), UUID(event_id)
                    source = UUID(origin if made is None else made)
                    return cls(*ids, type_name, UUID(attempt_id), node, source, made is not None, items)
        except ValueError:
            pass  # an id that is none
        raise Refused("what is handed over is not a map as of docs/wire.md", code="bad_handover")


@dataclass(frozen=True, slots=True)
class Made:
    """What a bulk worker has written, all of it and durably.

    Args:
        items: how many items its segments hold.
        data_bytes: how many bytes their data take.
        hash: SHA-256 over the hashes of its segments, in the order of part and number; see
            ``xbus.broker.journal.bulk.part_writer.output_hash``.
    """

    items: int
    data_bytes: int
    hash: bytes


class BulkWorker(Worker):
    """A worker that takes large events by their ids and ranges instead of their items.

    Its other methods are those of a worker, and serve all else: events of fewer items, those whose emitter waits for a
    reply, and those that come again with corrected items or without some. The same event must come to the same either
    way.

    Attributes:
        min_bulk_items: an event of so many items is handed over; one of fewer takes the ordinary path.
    """

    min_bulk_items: int = 100_000

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        """Make the output for an event and write it under the id of the attempt.

        It runs on the event loop, which it must not block, and goes on while the broker is away or starts anew. It is
        cancelled when nobody wants the output any more; what it has written counts for nothing then.

        Args:
            progress: to be told how far it is, from 0 to 1, from any thread and as often as you like.

        Raises:
            Refusal: the event can't be taken and never will; the indices of the items that are to blame may be named.
            Failed: it can't be made now; another attempt may go well. So does JournalUnavailable. Any other exception
                is taken for a fault of the program, which would happen again, and refuses the event.
        """
        raise NotImplementedError
