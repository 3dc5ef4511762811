"""Parks bad items alone if their event type wants that, and has the rest of the event redelivered without them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from xbus.broker.back.log import LogReader
from xbus.broker.back.recipients import Absent, FailureClass, RecipientFailed
from xbus.broker.journal.log.catalog import Catalog, EventType, RoleEntry
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
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


class Serving(Protocol):
    """A consumer: its recipient, or a stand-in while that is away."""

    @property
    def role(self) -> RoleEntry:
        """The role that it serves."""


class BadItems:
    """Finds out which items were refused that others can do without.

    Args:
        log: has the items that were isolated before.
        catalog: the configuration as it is now.
    """

    def __init__(self, log: LogReader, catalog: Callable[[], Catalog]) -> None:
        self._log = log
        self._catalog = catalog

    async def bad_items(
        self,
        envelope: LogEnvelope,
        recipients: Sequence[Serving],
        failures: Mapping[int, RecipientFailed | Absent],
    ) -> dict[int, Sequence[IsolatedItem]]:
        """Find the items to be parked alone after a run, by the role that goes on without them.

        Args:
            recipients: all consumers of the run.
            failures: by role id, why a role has not committed.

        Returns:
            No items for a role that was only stopped because another one refused items: it gets all of them again.
        """
        found: dict[int, Sequence[IsolatedItem]] = {}
        for failure in dict.fromkeys(failures.values()):
            if isinstance(failure, RecipientFailed) and failure.failure_class is FailureClass.PERMANENT:
                stopped = [recipient for recipient in recipients if failures.get(recipient.role.id) is failure]
                found |= await self._after(envelope, failure, stopped)
        return found

    async def _after(
        self, envelope: LogEnvelope, failure: RecipientFailed, stopped: Sequence[Serving]
    ) -> dict[int, Sequence[IsolatedItem]]:
        event = next((event for event in envelope.events if event.event_id == failure.event_id), None)
        if event is None or not self._may_isolate(event):
            return {}
        found: dict[int, Sequence[IsolatedItem]] = {recipient.role.id: () for recipient in stopped}
        for role_id in await self._concerned(event, failure, stopped):
            items = await self._refused(envelope, event, failure, role_id)
            if not items:
                return {}
            found[role_id] = items
        return found

    def _may_isolate(self, event: LogEvent) -> bool:
        event_type = self._catalog().event_type(event.type_name)
        return event_type is not None and event_type.bad_items == "isolate"

    async def _concerned(self, event: LogEvent, failure: RecipientFailed, stopped: Sequence[Serving]) -> list[int]:
        """List the roles that do without refused items: the consumer that refused them, or all behind the worker."""
        by_themselves = [recipient.role.id for recipient in stopped if recipient.role.id == failure.role_id]
        if by_themselves:
            return by_themselves
        services = concerned_services(failure, await self._log.graph(event.graph_id))
        return [recipient.role.id for recipient in stopped if recipient.role.service in services]

    async def _refused(
        self, envelope: LogEnvelope, event: LogEvent, failure: RecipientFailed, role_id: int
    ) -> list[IsolatedItem]:
        overlays = await self._log.read(read_overlays, role_id, envelope.envelope_id)
        isolated = overlays[event.event_id].left_out if event.event_id in overlays else frozenset()
        return refused_items(failure, event, self._catalog().event_type(event.type_name), isolated)
