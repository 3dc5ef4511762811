"""A batch of a range that this program reads; pure."""

from xbus.errors import Refused
from xbus.reader.batch import EventBatch
from xbus.rpc.codec import Value
from xbus.rpc.messages import ClaimedBatchMap

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
