"""The hops of items through a bus: from event type to event type, node by node."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, NodeSpec
from xbus.testing.bus import Bus


@dataclass(frozen=True)
class Hop:
    """A stop of the items of an event type.

    Args:
        event_type: of what came.
        node: the name of the node; None for a bot and a reader.
        kind: ``worker``, ``consumer``, ``emits``, ``bot`` or ``reader``.
        name: of the service, the bot or the reader; for ``emits`` the event type that is made.
        items_in: how many items came.
        items_out: how many it made; None where it makes none.
        items: what a consumer has taken.
    """

    event_type: str
    node: str | None
    kind: str
    name: str
    items_in: int
    items_out: int | None = None
    items: Sequence[object] = ()


def find_hops(bus: Bus, spec: BusSpec, event_type: str) -> Iterator[Hop]:
    """Iterate over the hops of what was sent, type by type from the first one on, as it went."""
    ahead, seen = [event_type], {event_type}
    while ahead:
        name = ahead.pop(0)
        for made in _made_of(spec, name):
            if made not in seen:
                seen.add(made)
                ahead.append(made)
        if name == event_type or bus.sent(name):
            yield from _of_type(bus, spec, spec.event_types[name])


def _made_of(spec: BusSpec, name: str) -> list[str]:
    """List the event types that are made of one."""
    by_nodes = [made for node in spec.event_types[name].nodes.values() for made in node.emits]
    by_bots = [made for bot in spec.bots.values() if name in bot.reads for made in sorted(bot.emits)]
    return by_nodes + by_bots


def _of_type(bus: Bus, spec: BusSpec, event_type: EventTypeSpec) -> Iterator[Hop]:
    name, came = event_type.name, len(bus.sent(event_type.name))
    for node in _in_order(event_type):
        if not node.service:
            for made in node.emits:
                yield Hop(name, node.name, "emits", made, len(bus.sent(made)), len(bus.sent(made)))
            continue
        logins = sorted(role.login for role in spec.roles.values() if role.service == node.service)
        taken = [value for login in logins for value in bus.received(login, name)]
        if spec.services[node.service].kind == "worker":
            made_here = sum(len(bus.answered(login, name)) for login in logins)
            yield Hop(name, node.name, "worker", node.service, len(taken), made_here)
            for made in node.emits:
                yield Hop(name, node.name, "emits", made, len(bus.sent(made)), len(bus.sent(made)))
        else:
            yield Hop(name, node.name, "consumer", node.service, len(taken), items=taken)
    for bot in sorted(spec.bots):
        if name in spec.bots[bot].reads:
            yield Hop(name, None, "bot", bot, came, sum(len(bus.sent(made)) for made in spec.bots[bot].emits))
    for reader in sorted(spec.readers):
        if name in spec.readers[reader].event_types:
            yield Hop(name, None, "reader", reader, came)


def _in_order(event_type: EventTypeSpec) -> list[NodeSpec]:
    """List the nodes, each behind those that lead to it."""
    nodes = event_type.nodes
    behind = {name: {each.name for each in nodes.values() if name in each.to} for name in nodes}
    return [nodes[name] for name in TopologicalSorter(behind).static_order()]
