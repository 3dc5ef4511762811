"""Counts the events that came between two positions of the log, by emitter and event type."""

from collections import defaultdict
from collections.abc import Iterator

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.samples.sample import NOTHING, Count, Traffic

MOST_READ = 4000
"""Envelopes that are read to count their events. More tell more exactly, and read longer."""

WINDOWS = 4
"""If more came, the sampler reads so many windows of them, spread over all."""


def count_traffic(connection: sa.Connection, after: int, upto: int, most: int = MOST_READ) -> Traffic:
    """Count the events of the envelopes above one position and up to another.

    Up to ``most`` envelopes it counts; of more it reads some windows, and makes an estimate of what they hold.
    """
    read = 0
    found: defaultdict[tuple[int, int], Count] = defaultdict(lambda: NOTHING)
    for first, last in _windows(after, upto, most):
        read += last - first
        for emitter_id, type_id, events, items in connection.execute(_TRAFFIC, {"after": first, "upto": last}):
            found[emitter_id, type_id] += Count(events, int(items or 0))
    share = (upto - after) / read if read else 1.0
    return {pair: Count(round(count.events * share), round(count.items * share)) for pair, count in found.items()}


def _windows(after: int, upto: int, most: int) -> Iterator[tuple[int, int]]:
    """Spread windows of positions over a range; a range that is short enough is one window."""
    length = upto - after
    if length <= most:
        yield after, upto
        return
    for number in range(WINDOWS):
        last = upto - number * length // WINDOWS
        yield last - most // WINDOWS, last


_ENVELOPE, _EVENT = model.envelope.c, model.event.c
_TRAFFIC = (
    sa.select(_ENVELOPE.emitter_id, _EVENT.event_type_id, sa.func.count(), sa.func.sum(_EVENT["items"]))
    .join(model.event, _EVENT.envelope_id == _ENVELOPE.id)
    .where(_ENVELOPE.position > sa.bindparam("after"), _ENVELOPE.position <= sa.bindparam("upto"))
    .group_by(_ENVELOPE.emitter_id, _EVENT.event_type_id)
)
