"""Notes acts in the transaction in which they are done."""

from collections.abc import Iterable

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit.acts import MOST_LETTERS, Act

_INSERT = sa.insert(model.audit)


def note_acts(connection: sa.Connection, acts: Iterable[Act]) -> None:
    """Note acts in the caller's transaction. That locks nothing, and keeps nobody waiting."""
    rows = [
        {
            "at": act.at,
            "who": _storable(act.who)[:MOST_LETTERS],
            "origin": _storable(act.origin)[:MOST_LETTERS],
            "action": act.action,
            "object": _storable(act.object),
            "before": _storable(act.before),
            "after": _storable(act.after),
            "reason": _storable(act.reason),
        }
        for act in acts
    ]
    if rows:
        connection.execute(_INSERT, rows)


def _storable(text: str) -> str:
    """Write what a database may refuse, or a terminal obey, as escapes: a stranger may have written it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
