"""Of which items of the event those were made that came to a worker, where a row keeps only the first of them. Pure."""

from collections.abc import Sequence

from xbus.recipient import Item


class Origins:
    """The items that came so far.

    Attributes:
        end: beyond the highest index. With items left out, it exceeds their number.
    """

    def __init__(self) -> None:
        self.end = 0
        self._lists: dict[int, list[int] | None] = {}
        # A byte for each index: an event may have millions.
        self._alone = bytearray()

    @property
    def several(self) -> dict[int, list[int]]:
        """All the indexes behind an index, if it is the first of several.

        An index with different meanings is left out: nobody knows which of the items made a row, and no wrong item must
        be named.
        """
        return {
            first: indices for first, indices in self._lists.items() if indices is not None and not self._alone[first]
        }

    def note_following(self, first: int, items: int) -> None:
        """Note items that are of one each, from an index on."""
        self._reach(first + items - 1)
        self._alone[first : first + items] = b"\x01" * items

    def note(self, items: Sequence[Item]) -> None:
        """Note items that are of any."""
        for item in items:
            self._reach(max(item.indices, default=-1))
            if len(item.indices) > 1:
                same = self._lists.setdefault(item.index, item.indices) == item.indices
                self._lists[item.index] = item.indices if same else None
            elif item.indices:
                self._alone[item.index] = 1

    def _reach(self, index: int) -> None:
        self.end = max(self.end, index + 1)
        self._alone.extend(bytes(self.end - len(self._alone)))
