"""Serves the roles of nodes that emit, as the configuration names them."""

import asyncio
import logging
from collections.abc import Callable

from xbus.broker.back.chaining.emitting_consumer import EmittingConsumer
from xbus.broker.back.recipients import Abilities, CallTimeouts, RecipientProxy, Registry
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.log.envelopes import read_open_of_nodes
from xbus.broker.journal.writes import Cancel
from xbus.config import BackSettings

log = logging.getLogger(__name__)

ABILITIES = Abilities(batches=True, bundles=True, prepares=128, prepares_next=True, notes=True, headers=True)
"""One envelope at a time, or one bundle: those of a type are emitted in the order in which they come."""

LEFT_OPEN = "the broker ended before it was sealed"


class EmittingRoles:
    """Serves the roles of nodes that emit.

    Args:
        journal: where their envelopes are written.
        registry: has the roles that are served.
        runtime: the time and the tasks of the back.
        settings: how long calls may take.
        catalog: the configuration as it is now.
    """

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        runtime: Runtime,
        settings: BackSettings,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._runtime = runtime
        self._timeouts = CallTimeouts.of(settings)
        self._catalog = catalog

    async def recover(self) -> None:
        """Cancel what nodes left open when the broker ended: the envelopes behind it are delivered to them again.

        Raises:
            JournalUnavailable: the database can't be read or written now.
        """
        now = self._runtime.clock.now()
        left = await self._journal.read(read_open_of_nodes)
        await asyncio.gather(*(self._journal.write(Cancel(each, now, LEFT_OPEN)) for each in left))

    def serve(self) -> None:
        """Serve each of the roles that is not served yet, and on the bus."""
        for role in self._catalog().roles.values():
            if role.emits is not None and not role.detached and not self._registry.connected(role.id):
                self._registry.add(self._recipient(role))

    def _recipient(self, role: RoleEntry) -> RecipientProxy:
        runtime = self._runtime
        consumer = EmittingConsumer(
            *(role, self._journal, runtime.clock, runtime.tasks, self._catalog),
            *(runtime.intervals.retry, runtime.may_emit),
        )
        name = f"node {role.login}"
        return RecipientProxy(role, name.encode(), name, consumer, ABILITIES, self._timeouts, self._registry.leave)
