"""Sends the last events of each type through two buses in thought: as the bus is, and as a plan would leave it."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from xbus.admin.rehearsal.comparing import TypeComparison, compare
from xbus.broker.journal.configuration import BusSpec, Plan, Section
from xbus.broker.journal.configuration.chaining import expanded
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.operations.traffic.recent import SentEvents, read_recent


def rehearse(connection: Connection, plan: Plan, last: int) -> Iterator[TypeComparison]:
    """Compare both buses for each event type of either, by name.

    Args:
        connection: of the journal, without a transaction; each type is read in one, when it is asked for.
        plan: of the change.
        last: so many events of each type are looked at.
    """
    with connection.begin():
        roles = read_catalog(connection).roles.values()
    detached = {plan.name_of(Section.ROLE, role.login) for role in roles if role.detached}
    before, after = (expanded(_without(bus, detached)) for bus in (plan.before, plan.after))
    for name in sorted({*before.event_types, *after.event_types}):
        with connection.begin():
            sent = read_recent(connection, plan.stored_name(Section.EVENT_TYPE, name), last)
            yield compare(name, before, after, (_renamed(plan, each) for each in sent))


def _renamed(plan: Plan, sent: SentEvents) -> SentEvents:
    return replace(sent, emitter=plan.name_of(Section.EMITTER, sent.emitter))


def _without(bus: BusSpec, roles: Collection[str]) -> BusSpec:
    return replace(bus, roles={login: role for login, role in bus.roles.items() if login not in roles})
