"""Recovers the deliveries that the broker's last run left in doubt: each is redelivered on its own."""

from collections.abc import Collection, Sequence
from itertools import takewhile

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import transitions
from xbus.broker.back.progress.consumer_role import ConsumerRoles
from xbus.broker.back.progress.ledger import RESERVE_POSITIONS, DeliveryLedger
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors, read_role_services
from xbus.broker.journal.log.reading import read_free_keys, read_key_rows
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState


class Recovery:
    """Carried out once, before anything is delivered.

    Args:
        journal: what the last run noted.
        log: what it delivered.
        ledger: takes note of doubtful deliveries.
        roles: which of them want order.
    """

    def __init__(self, journal: Journal, log: LogReader, ledger: DeliveryLedger, roles: ConsumerRoles) -> None:
        self._journal = journal
        self._log = log
        self._ledger = ledger
        self._roles = roles

    async def carry_out(self, role_ids: Collection[int]) -> None:
        """Have all doubtful deliveries redelivered.

        Args:
            role_ids: all roles.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        await self._doubt_what_was_free([role_id for role_id in role_ids if self._roles[role_id].keys.is_wanted])
        await self._doubt_what_is_unsettled()
        await self._ledger.write()

    async def _doubt_what_was_free(self, ordered: Sequence[int]) -> None:
        """Doubt rows whose block had ended: they may have been handed over before the crash, which no row shows."""
        for key in await self._journal.read(read_free_keys, ordered):
            rows = await self._journal.read(read_key_rows, key.role_id, key.ordering_key, RESERVE_POSITIONS)
            for row in takewhile(lambda row: row.state is DeliveryState.HELD, rows):
                self._ledger.move(row, transitions.in_doubt(row))

    async def _doubt_what_is_unsettled(self) -> None:
        """Doubt envelopes up to the cursor that were handed out in their turn, and not settled."""
        services = await self._journal.read(read_role_services)
        for role_id, cursor in (await self._journal.read(read_cursors)).items():
            doubtful = [position for position in cursor.unsettled() if position <= self._log.head]
            if doubtful:
                await self._set_aside(cursor, services[role_id], doubtful)

    async def _set_aside(self, cursor: Cursor, service: str, doubtful: Sequence[int]) -> None:
        for envelope in await self._log.at(doubtful):
            graphs = await self._log.graphs(envelope)
            is_for_role = cursor.owes(envelope.position) and envelope.is_for(cursor.role_id)
            if is_for_role and any(service in graph.consumer_services for graph in graphs):
                delivery = self._ledger.before_its_turn(envelope, cursor.role_id)
                is_blocked = self._roles[cursor.role_id].keys.blocks(envelope)
                self._ledger.move(None, transitions.after_crash(delivery, is_blocked=is_blocked))
            else:
                self._ledger.pass_over(cursor.role_id, envelope.position, envelope.position)
