"""A batch of a range that this program reads; pure."""

from xbus.errors import Refused
from xbus.reader.batch import EventBatch
from xbus.rpc.codec import Value
from xbus.rpc.messages import ClaimedBatchMap


class ReaderBatch(EventBatch):
    """Items of a range. Call ``done`` when all of them are processed: then they never come again.

    Attributes:
        range: the number of the range.
        is_repeated: whether it was handed out before, to this program or another. It holds the same items again.
        is_done: whether ``done`` was called.
        is_lost: whether another program reads the range by now, as far as this one knows. The batch comes there again.
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
        the latest after a third of the lease.

        Raises:
            Refused: the range is another program's by now (``lease_lost``).
        """
        if self.is_lost:
            raise lease_lost(self.range)
        self.is_done = True

    @property
    def lease(self) -> tuple[int, int]:
        """The range, and how often it had changed its owner."""
        return self.range, self._counter

    def settled(self) -> list[Value]:
        """Write what says that it is done: range, counter and place."""
        return [self.range, self._counter, [*self._to]]


def lease_lost(number: int) -> Refused:
    """Make the error of a program that has been silent for longer than its lease."""
    return Refused(
        f"another program reads range {number} by now: this one was silent for longer than its lease",
        "read on: the batch comes to the other program again; if batches keep the whole machine busy for longer than "
        "the lease, raise `lease` of the reader in the bus file",
        code="lease_lost",
    )
