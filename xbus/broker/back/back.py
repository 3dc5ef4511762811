"""The back: recipients register here, and what was sealed is brought to them."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import xbus.broker.journal.reading as reading
from xbus.broker.back import fate
from xbus.broker.back.delivery import Deliveries
from xbus.broker.back.introduction import introduce
from xbus.broker.back.lanes import Lanes
from xbus.broker.back.ledger import Ledger
from xbus.broker.back.log import Log
from xbus.broker.back.recipient import Recipient, Timeouts
from xbus.broker.back.registry import Registry
from xbus.broker.back.rows import DueRows
from xbus.broker.back.slots import Slots
from xbus.broker.configuration import Configuration
from xbus.broker.journal.cursor import Cursor
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import Register, Unregister
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable, Refused, XbusError
from xbus.rpc.bell import Listener
from xbus.rpc.client import Client

log = logging.getLogger(__name__)

Connect = Callable[[str, Callable[[], None]], Client]
"""Makes a client: from the address to connect to, and what to call when the connection is lost."""


class Back:
    """Everything between the journal and the recipients.

    Args:
        journal: what is delivered from, and where it is noted.
        configuration: which roles there are.
        listener: rings when something was sealed.
        connect: connects to a recipient.
        clock: for what is stored, and for graces.
        timeouts: for recipients' answers.
        register_timeout: how long the calls of a registration may take together, in seconds.
        window_bytes: how much may be on its way to a recipient.
        behind_after: see ``Pace``.
        worker_grace: see ``Deliveries``.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        listener: Listener,
        connect: Connect,
        clock: Clock,
        *,
        timeouts: Timeouts,
        register_timeout: float,
        window_bytes: int,
        behind_after: float,
        worker_grace: float,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._connect = connect
        self._clock = clock
        self._timeouts = timeouts
        self._register_timeout = register_timeout
        self._window_bytes = window_bytes
        self._behind_after = behind_after
        self._worker_grace = worker_grace
        self._log = Log(journal, listener)
        self._slots: Slots[Recipient] = Slots()
        self._ledger = Ledger(journal, clock, {})
        self._tasks: asyncio.TaskGroup | None = None
        self._lanes: Lanes | None = None
        self._rows: DueRows | None = None
        self._deliveries: Deliveries | None = None
        self._following: list[asyncio.Task[None]] = []
        self.registry = Registry(self._slots, clock)

    def is_registered(self, role_id: int) -> bool:
        """Whether a recipient serves a role now."""
        return self.registry.get(role_id) is not None

    # -- its life --------------------------------------------------------------------------------------------------

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Take up what the last run of the broker left, connect to the recipients that it knew, and begin to deliver.

        Args:
            tasks: where all that goes on runs; what dies there ends the broker.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        self._tasks = tasks
        self._ledger.adopt(await self._journal.read(reading.read_cursors))
        await self._log.refresh()
        keeping = tasks.create_task(self._ledger.keep(), name="ledger")
        await self._recover()
        self._deliveries = Deliveries(
            self._log,
            self._ledger,
            self.registry,
            self._slots,
            tasks,
            window_bytes=self._window_bytes,
            behind_after=self._behind_after,
            worker_grace=self._worker_grace,
            clock=self._clock,
        )
        self._lanes = Lanes(self._log, self._ledger, self._deliveries, tasks)
        self._rows = DueRows(self._log, self._ledger, self.registry, self._deliveries, tasks)
        self._deliveries.on_retry = self._rows.wake
        self._deliveries.muster.on_behind = self._lanes.split
        self.registry.watch(self._lanes)
        self.registry.watch(self._rows)
        self._configuration.on_change(self._configuration_changed)
        self._following = [
            tasks.create_task(self._log.follow(), name="log"),
            keeping,
        ]
        for registration in await self._journal.read(reading.read_registrations):
            tasks.create_task(self._restore(registration), name=f"registration of role {registration.role_id}")

    async def stop(self, seconds: float) -> None:
        """Hand out nothing more, and let the runs under way end for so long; those that don't come again."""
        assert self._lanes is not None
        assert self._rows is not None
        assert self._deliveries is not None
        self._lanes.stop()
        self._rows.stop()
        following, keeping = self._following
        following.cancel()
        await self._deliveries.finish(seconds)
        self._ledger.close(self._deliveries.highest_in_flight())
        keeping.cancel()
        try:
            async with asyncio.timeout(seconds):
                await self._ledger.write()
        except (TimeoutError, JournalError) as error:
            # It only means that what it tells of comes again.
            log.error("the last progress is not written: %r", error, extra={"action": "progress_lost"})
        for recipient in self.registry.all():
            recipient.close()

    async def _recover(self) -> None:
        """What may have been handed over and was not settled when the broker went down comes again on its own."""
        roles = self._configuration.catalog.roles
        for role_id, cursor in (await self._journal.read(reading.read_cursors)).items():
            doubtful = [position for position in cursor.unsettled() if position <= self._log.head]
            if role_id in roles and doubtful:
                await self._set_aside(cursor, roles[role_id].service, doubtful)
        await self._ledger.write()

    async def _set_aside(self, cursor: Cursor, service: str, doubtful: Sequence[int]) -> None:
        for envelope in await self._log.at(doubtful):
            graphs = await self._log.graphs(envelope)
            if cursor.owes(envelope.position) and any(service in graph.consumer_services for graph in graphs):
                delivery = fate.after_crash(cursor.role_id, envelope.envelope_id, envelope.position)
                self._ledger.move(None, delivery)
            else:
                self._ledger.pass_over(cursor.role_id, envelope.position)

    def _configuration_changed(self) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._follow_configuration(), name="configuration change")

    async def _follow_configuration(self) -> None:
        self._ledger.adopt(await self._log.read(reading.read_cursors))
        for recipient in self.registry.all():
            if self._configuration.catalog.roles.get(recipient.role.id) != recipient.role:
                await self.unregister(recipient, "its role was changed or removed")

    # -- registrations ---------------------------------------------------------------------------------------------

    async def register(self, role_id: int, token_hash: bytes, uri: str) -> None:
        """Connect to a recipient and have it serve its role from now on; an older one of the role is told off the list.

        Raises:
            Refused: the address can't be used, or the recipient did not introduce itself properly in time.
            JournalUnavailable: the registration can't be made durable now.
        """
        recipient = await self._introduce(role_id, token_hash, uri)
        try:
            await self._journal.write(Register(role_id, token_hash, uri, self._clock.now()))
        except BaseException:
            recipient.close()
            raise
        if recipient.is_closed:
            raise Refused("the recipient was lost while it registered", "register again", code="recipient_unreachable")
        self.registry.add(recipient)

    async def _introduce(self, role_id: int, token_hash: bytes, uri: str) -> Recipient:
        role = self._configuration.catalog.roles.get(role_id)
        if role is None:
            raise Refused("the role was removed", "name it again with xbus apply", code="session_unknown")
        if not role.worker and self._ledger.cursor(role_id) is None:
            self._ledger.adopt(await self._journal.read(reading.read_cursors))
        known: list[Recipient] = []

        def lost() -> None:
            for recipient in known:
                self._lost(recipient)

        client = self._connect(uri, lost)
        try:
            abilities = await introduce(client, self._register_timeout)
        except BaseException:
            client.close()
            raise
        recipient = Recipient(role, token_hash, uri, client, abilities, self._timeouts)
        known.append(recipient)
        return recipient

    def _lost(self, recipient: Recipient) -> None:
        if self.registry.get(recipient.role.id) is not recipient:
            recipient.close()
            return
        assert self._tasks is not None
        self._tasks.create_task(self.unregister(recipient, "the connection was lost"))

    async def _restore(self, registration: reading.StoredRegistration) -> None:
        try:
            recipient = await self._introduce(registration.role_id, registration.token_hash, registration.uri)
        except XbusError as error:
            log.info(
                "recipient not taken up again: %s",
                error,
                extra={"action": "not_restored", "role_id": registration.role_id},
            )
            return
        if self.is_registered(registration.role_id):
            recipient.close()
        else:
            self.registry.add(recipient)

    async def unregister(self, recipient: Recipient, reason: str) -> None:
        """Have a recipient serve its role no longer; what it leaves undone comes again when its role is served."""
        if self.registry.get(recipient.role.id) is not recipient:
            return
        self.registry.remove(recipient, reason)
        try:
            await self._journal.write(Unregister(recipient.role.id, recipient.token_hash, recipient.uri))
        except JournalUnavailable as error:
            # It only means that a restarted broker looks for it once in vain.
            log.warning("registration not removed: %s", error, extra={"action": "registration_kept"})
