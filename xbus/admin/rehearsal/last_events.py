"""Sends the last events of each type through two buses in thought: as the bus is, and as a plan would leave it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from xbus.admin.rehearsal.comparing import TypeComparison, compare
from xbus.admin.rehearsal.routing import with_own
from xbus.broker.journal.configuration import BusSpec, NodeSpec, Plan, Section
from xbus.broker.journal.configuration.chaining import emitting_nodes
from xbus.broker.journal.configuration.entries import BotSpec
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.operations.traffic.recent import SentEvents, read_recent


def rehearse(connection: Connection, plan: Plan, last: int, tell: Callable[[int], None]) -> Iterator[TypeComparison]:
    """Compare both buses for each event type of either, by name.

    Args:
        connection: of the journal, without a transaction; each type is read in one, when it is asked for.
        plan: of the change.
        last: so many events of each type are looked at.
        tell: gets the numbers of events, ``last`` for each of :func:`types_of`, however few the type has.
    """
    with connection.begin():
        roles = read_catalog(connection).roles.values()
    detached = {plan.name_of(Section.ROLE, role.login) for role in roles if role.detached}
    before, after = (with_own(_without(bus, detached)) for bus in (plan.before, plan.after))
    own = own_logins(plan)
    for name in types_of(plan):
        with connection.begin():
            sent = counted(read_recent(connection, plan.stored_name(Section.EVENT_TYPE, name), last), last, tell)
            yield compare(name, before, after, (_renamed(plan, own, each) for each in sent))


def types_of(plan: Plan) -> list[str]:
    """List the event types of both buses by name."""
    return sorted({*plan.before.event_types, *plan.after.event_types})


def counted(sent: Iterable[SentEvents], last: int, tell: Callable[[int], None]) -> Iterator[SentEvents]:
    """Hand events on, and tell how many there were, and at the end how many the type lacks."""
    for each in sent:
        yield each
        last -= each.events
        tell(each.events)
    tell(max(0, last))


def own_logins(plan: Plan) -> Mapping[str, str]:
    """Map the logins by which the bus itself writes now, for nodes and bots, to those after the plan."""
    logins: dict[str, str] = {}
    for event_type in plan.before.event_types.values():
        former = replace(
            event_type,
            name=plan.stored_name(Section.EVENT_TYPE, event_type.name),
            nodes={node.name: _with_stored_types(plan, node) for node in event_type.nodes.values()},
        )
        owners = zip(emitting_nodes(former), emitting_nodes(event_type), strict=True)
        logins |= {before.owner: after.owner for before, after in owners}
    for bot in plan.before.bots.values():
        logins[BotSpec(plan.stored_name(Section.BOT, bot.name)).emitter] = bot.emitter
    return logins


def _with_stored_types(plan: Plan, node: NodeSpec) -> NodeSpec:
    return replace(node, emits=tuple(plan.stored_name(Section.EVENT_TYPE, name) for name in node.emits))


def _renamed(plan: Plan, own: Mapping[str, str], sent: SentEvents) -> SentEvents:
    return replace(sent, emitter=own.get(sent.emitter) or plan.name_of(Section.EMITTER, sent.emitter))


def _without(bus: BusSpec, roles: Collection[str]) -> BusSpec:
    return replace(bus, roles={login: role for login, role in bus.roles.items() if login not in roles})
