"""Writes about the log's table of contents."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from xbus.broker.journal.writes.write import Write


@dataclass(frozen=True, slots=True)
class ListedGraph:
    """A graph whose events lie in a block of the log: see ``model.contents``.

    Args:
        positions: a bitmap of those of the block whose envelopes hold such events.
    """

    graph_id: int
    block: int
    positions: bytes
    events: int
    items: int
    oldest_at: datetime
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class ListBlock(Write[None]):
    """The table of contents reaches on to the end of another block, all or nothing.

    Args:
        after: where it ends until now.
        until: where it ends then.
        graphs: all whose events lie in between.
    """

    after: int
    until: int
    graphs: Sequence[ListedGraph]
