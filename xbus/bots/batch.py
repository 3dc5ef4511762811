"""The run as the author's function sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

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
