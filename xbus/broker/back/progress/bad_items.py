"""Chooses the items to park alone, where a recipient refuses some of an event and names them; pure."""

from collections.abc import Iterable

from xbus.broker.back.recipients import FailureClass, RecipientFailed
from xbus.broker.journal.log.catalog import EventType
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes import IsolatedItem
from xbus.graph import Graph

SHOWN_INDICES = 5
"""The most items that a cause names."""


def refused_items(
    failure: RecipientFailed, event: LogEvent, event_type: EventType | None, isolated: frozenset[int]
) -> list[IsolatedItem]:
    """Choose the items that a role does without, so that it gets the rest of an event.

    Args:
        failure: the failure of the event at the role.
        event_type: the settings of the event's type; None if the type was removed.
        isolated: the indices of the items that the role does without already.

    Returns:
        The items in index order. None of them if the whole envelope is to be parked: the type wants that, a cause names
        no items or items that the role did not get, or too many items are bad.
    """
    if event_type is None or event_type.bad_items == "envelope":
        return []
    if failure.failure_class is not FailureClass.PERMANENT or failure.event_id != event.event_id:
        return []
    causes: dict[int, str] = {}
    for error in failure.errors:
        if not error.indices:
            return []
        for index in error.indices:
            causes.setdefault(index, error.message)
    was_given_all = all(0 <= index < event.items and index not in isolated for index in causes)
    if not was_given_all or len(isolated) + len(causes) > event_type.max_isolated:
        return []
    return [IsolatedItem(event.event_id, index, failure.code, causes[index]) for index in sorted(causes)]


def concerned_services(failure: RecipientFailed, graph: Graph) -> frozenset[str]:
    """Collect the consumer services that do without refused items: the one that refused them, or all behind that
    worker.

    Args:
        graph: of the event in which it happened.
    """
    ahead = [name for name in failure.nodes if name in graph.nodes]
    reached = set(ahead)
    while ahead:
        for child in graph.nodes[ahead.pop()].children:
            if child not in reached:
                reached.add(child)
                ahead.append(child)
    return frozenset(graph.nodes[name].service for name in reached if not graph.nodes[name].worker)


def in_words(items: Iterable[IsolatedItem]) -> str:
    """Describe the isolated items and the causes, in a sentence."""
    listed = list(items)
    if not listed:
        return "stopped, as another recipient refused items that are parked alone"
    shown = ", ".join(str(item.index) for item in listed[:SHOWN_INDICES])
    more = ", ..." if len(listed) > SHOWN_INDICES else ""
    return f"goes on without item {shown}{more}: {listed[0].cause}"
