"""Emitters: what they may send, how much, and what they may make."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from xbus.broker.journal.database.rows import grouped, value_of
from xbus.broker.journal.log.sessions import read_keys
from xbus.broker.journal.writes import PauseEntry, PauseKind, Pauses, SendingLimits
from xbus.model import emitter, emitter_profile, event_type, profile_event_type, sending_limit

# -- emitters ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmitterEntry:
    """An emitter and the names of the event types that its profile allows.

    Args:
        pause: why it may begin no envelope; None while it may.
        limits: its own, and those of its profile; None where it has none.
        keys: the public keys by which it may log in over encrypted connections.
        kind: ``program``, or ``node`` or ``bot`` for one by which the bus itself writes.
        new_types: the beginning of the names, and a star, of the event types that it may make; empty for none.
        clients: the name of the profile of the emitters for which it may make API tokens; None if it may not.
    """

    id: int
    login: str
    event_types: frozenset[str]
    pause: PauseEntry | None = None
    limits: SendingLimits | None = None
    keys: frozenset[str] = frozenset()
    kind: str = "program"
    new_types: str = ""
    clients: str | None = None

    def also_sending(self, kept: Collection[str], former: "EmitterEntry | None") -> "EmitterEntry":
        """Let it send those of some event types that it might send before."""
        more = former.event_types.intersection(kept) if former is not None else frozenset()
        return replace(self, event_types=self.event_types | more)

    def may_make(self, type_name: str) -> bool:
        """Check whether it may make an event type of this name."""
        return self.new_types.endswith("*") and type_name.startswith(self.new_types[:-1])


def read_limits(connection: Connection) -> dict[tuple[str, int], SendingLimits]:
    """Read the limits of emitters and profiles, by the name of their table and their id."""
    return {(kind, key): SendingLimits(*limits) for kind, key, *limits in connection.execute(_LIMITS)}


_LIMITS = select(sending_limit)


def read_emitters(connection: Connection, pauses: Pauses) -> list[EmitterEntry]:
    """Read the emitters in use by login."""
    of_profiles = (
        select(profile_event_type.c.profile_id, event_type.c.name)
        .join(event_type, event_type.c.id == profile_event_type.c.event_type_id)
        .join(emitter_profile, emitter_profile.c.id == profile_event_type.c.profile_id)
        .where(event_type.c.removed_at.is_(None), emitter_profile.c.removed_at.is_(None))
    )
    allowed = grouped(connection.execute(of_profiles))
    limits = read_limits(connection)
    of_clients = emitter_profile.alias("of_clients")
    rows = connection.execute(
        select(
            *(emitter.c[name] for name in ("id", "login", "profile_id", "public_keys", "kind")),
            emitter_profile.c.new_types,
            of_clients.c.name.label("clients"),
        )
        .join(emitter_profile, emitter_profile.c.id == emitter.c.profile_id)
        .outerjoin(of_clients, of_clients.c.id == emitter_profile.c.clients_id)
        .where(emitter.c.removed_at.is_(None))
        .order_by(emitter.c.login)
    )
    return [
        value_of(
            EmitterEntry,
            row,
            event_types=frozenset(allowed[row.profile_id]),
            pause=pauses.get((PauseKind.EMITTER, row.id)),
            limits=SendingLimits.first_of(
                limits.get(("emitter", row.id)), limits.get(("emitter_profile", row.profile_id))
            ),
            keys=frozenset(read_keys(row.public_keys)),
        )
        for row in rows
    ]
