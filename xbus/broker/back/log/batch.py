"""Items on their way through a run; pure."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from xbus.broker.journal.bulk.outputs import OutputSegment
from xbus.broker.journal.log.segments import Segment
from xbus.errors import ProtocolError
from xbus.rpc.codec import pack_items, unpack_items


class RunBatch(NamedTuple):
    """A run of items between two recipients.

    Args:
        first_index: the index of the first item, where ``indices`` is None.
        items: how many there are.
        data: each as a msgpack bin, one after the other.
        indices: for each item the indices of the emitted items that it was made of; None where they just count up.
        event_type: the name of the type as which its worker has it go on; None where it names none.
    """

    first_index: int
    items: int
    data: bytes
    indices: list[list[int]] | None = None
    event_type: str | None = None

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return len(self.data) + 64 + (0 if self.indices is None else 64 * self.items)

    def singly(self) -> Iterator[tuple[list[int], bytes]]:
        """Each item with its indices."""
        for place, item in enumerate(unpack_items(self.data, self.items)):
            yield (self.indices[place] if self.indices is not None else [self.first_index + place]), item

    def on_wire(self) -> tuple[int, int, bytes, list[list[int]] | None]:
        return (self.first_index, self.items, self.data, self.indices)

    @classmethod
    def of_segment(cls, segment: Segment) -> "RunBatch":
        return cls(segment.first_index, segment.items, segment.data, segment.indices)

    @classmethod
    def of_output(cls, segment: OutputSegment) -> "RunBatch":
        if segment.sources is None:
            return cls(segment.first_index, segment.items, segment.data)
        sources = struct.unpack(f"<{segment.items}q", segment.sources)
        return cls(0, segment.items, segment.data, [[] if source < 0 else [source] for source in sources])

    @classmethod
    def of_single(cls, singles: Iterable[tuple[list[int], bytes]]) -> "RunBatch":
        """The batch of items that came one by one."""
        singles = list(singles)
        indices = [item_indices for item_indices, _ in singles]
        first_index = indices[0][0] if indices and indices[0] else 0
        counting_up = indices == [[index] for index in range(first_index, first_index + len(indices))]
        data = pack_items([item for _, item in singles])
        return cls(first_index, len(singles), data, None if counting_up else indices)

    @classmethod
    def of_wire(cls, value: Any, known: int) -> "RunBatch":
        """A batch that a worker answered.

        Args:
            value: what came.
            known: how many items the worker was given so far: their indices are the only ones that it may use.

        Raises:
            ProtocolError: it is no batch, or names other indices.
        """
        match value:
            case [int(first_index), int(items), bytes(data), indices] if items >= 0:
                unpack_items(data, items)
                batch = cls(first_index, items, data, indices)
                batch.check_indices(known)
                return batch
            case [int(first_index), int(items), bytes(data), indices, str(event_type)] if items >= 0:
                return cls.of_wire(value[:4], known)._replace(event_type=event_type)
        raise ProtocolError("an answer is not a list of first index, number of items, data and indices")

    def check_indices(self, known: int) -> None:
        """Let indices of items that were given pass.

        Raises:
            ProtocolError: there are other indices, or not one list of them for each item.
        """
        if self.indices is None:
            if not 0 <= self.first_index <= self.first_index + self.items <= known:
                raise ProtocolError(
                    f"an answer has indices {self.first_index} to {self.first_index + self.items - 1} of {known} items"
                )
            return
        if not isinstance(self.indices, list) or len(self.indices) != self.items:
            raise ProtocolError("an answer does not have indices for each of its items")
        for of_item in self.indices:
            check_given(of_item, known)


def check_given(indices: Any, known: int) -> None:
    """Let the indices of one item pass.

    Args:
        indices: what a worker answered.
        known: how many items it was given so far.

    Raises:
        ProtocolError: there are other indices among them.
    """
    if not isinstance(indices, list) or not all(type(index) is int and 0 <= index < known for index in indices):
        raise ProtocolError(f"an answer has the indices {indices!r:.100} where {known} items were given")


JOIN_BYTES = 256 * 1024
"""The bytes up to which neighbours are joined, and that a call brings at once. More have a worker and the consumers
behind it wait for each other."""


def join_small(segments: Iterable[Segment]) -> Iterator[RunBatch]:
    """Batches of segments, small neighbours joined, so that what came item by item does not go on so."""
    held: list[Segment] = []
    size = 0
    for segment in segments:
        if held and (segment.indices is not None or size + len(segment.data) > JOIN_BYTES):
            yield _joined(held)
            held, size = [], 0
        held.append(segment)
        size += len(segment.data)
        if segment.indices is not None:
            yield _joined(held)
            held, size = [], 0
    if held:
        yield _joined(held)


def _joined(segments: list[Segment]) -> RunBatch:
    if len(segments) == 1:
        return RunBatch.of_segment(segments[0])
    items = sum(segment.items for segment in segments)
    return RunBatch(segments[0].first_index, items, b"".join(segment.data for segment in segments))
