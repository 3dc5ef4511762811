"""Parks bad items alone if their event type wants that, and has the rest of the event redelivered without them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress.bad_items import concerned_services, refused_items
from xbus.broker.back.recipients import Absent, FailureClass, RecipientFailed
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import IsolatedItem


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
