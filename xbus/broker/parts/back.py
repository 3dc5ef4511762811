"""The part that serves recipients, and watches them."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace

from xbus.broker.back.back import Back
from xbus.broker.back.bots import Bots
from xbus.broker.back.monitoring import (
    CALLING_SECONDS,
    OverdueBacklog,
    Presence,
    RecipientSigns,
    StalledDeliveries,
)
from xbus.broker.back.readers import AbsentReaders, BehindReaders, Subscriptions
from xbus.broker.back.reading import LogReading, ReaderTypes
from xbus.broker.back.recipients import RecipientHosts, RecipientProxy
from xbus.broker.back.runtime import Runtime
from xbus.broker.back.verbs import (
    BackBatchVerbs,
    BackVerbs,
    BotVerbs,
    InsightVerbs,
    LogVerbs,
    OutputVerbs,
    ReaderVerbs,
    SubscriptionVerbs,
)
from xbus.broker.health_verbs import LeaderVerbs
from xbus.broker.housekeeping.archiving import LOOK_SECONDS, ArchiveKeeper, archive_command, restore_command
from xbus.broker.housekeeping.audit import AuditKeeper
from xbus.broker.housekeeping.contents import ContentsKeeper
from xbus.broker.housekeeping.damage import DamageKeeper
from xbus.broker.housekeeping.lagging import LagKeeper
from xbus.broker.housekeeping.looks import look_regularly
from xbus.broker.housekeeping.objects import ObjectRemover
from xbus.broker.housekeeping.outages import answer_overdue
from xbus.broker.housekeeping.outputs import OutputCleaner
from xbus.broker.housekeeping.pauses import PauseEnder
from xbus.broker.housekeeping.people import remove_ended_sessions
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.housekeeping.returning import ArchiveReturns
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.database.engine import file_of
from xbus.broker.journal.log.bots import RunnerEntry
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.metrics.families import Family
from xbus.broker.metrics.of_back import delivery_families
from xbus.broker.metrics.of_journal import JournalLook, skipped_family
from xbus.broker.metrics.of_process import server_families
from xbus.broker.parts.shared import MESSAGE_OVERHEAD_BYTES, PortAddresses, Shared, bind, sessions
from xbus.broker.sessions import SessionLifetimes
from xbus.errors import Refused
from xbus.rpc.bell import Bell
from xbus.rpc.client import Client
from xbus.rpc.curve import BrokerAddress
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.guard import ServerLimits
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.server import OF_PEERS, Server
from xbus.supervision.health import Health
from xbus.supervision.pinger import Pinger

KEEPALIVE_SECONDS = 5
"""Seconds between signs of life of a recipient's connection: a cable that was pulled sends no goodbye."""

MAX_REPORT_BYTES = 1024 * 1024
"""The largest call of a recipient, in bytes: a bulk worker's report about the items that it refuses."""


HEARTBEATS_LATE = 2
"""So many heartbeats behind its time-out a call without an answer is a problem. Fewer report calls whose answer is just
on its way."""

WINDOWS_UNREAD = 8
"""So many windows may wait for the recipients behind one connection, of which each has one of its own."""


class BackPart:
    """Serves recipients, and watches them."""

    name = "back"

    def __init__(self, shared: Shared) -> None:
        config = shared.config.back
        self._shared = shared
        self._bell = Bell(shared.context, shared.config.zmq.b2fsocket, shared.encryption.bell_pair)
        self._hosts = RecipientHosts(config.recipient_hosts)
        # Of its own: the front tells people of a full journal.
        self._space = Space(shared.journal, shared.config.journal.max_bytes, Health("space", shared.clock))
        self._back = Back(
            shared.journal,
            shared.configuration,
            self._bell,
            self._connect,
            shared.health,
            Runtime(shared.clock, shared.tasks, may_emit=self._space.may_grow),
            config,
        )
        self._bots = Bots(
            shared.journal,
            shared.configuration,
            shared.clock,
            shared.ids,
            self._back.readers.desk,
            shared.health,
        )
        self._behind = BehindReaders(shared.journal, self._back.readers, shared.health, shared.clock)
        skipped = self._behind.skipped
        self._subscriptions = Subscriptions(shared.journal, shared.health, shared.clock, skipped)
        self._pruner = Pruner(
            shared.journal,
            shared.clock,
            keep_days=shared.config.journal.keep_settled_days,
            max_bytes=shared.config.journal.max_bytes,
        )
        self._pause_ender = PauseEnder(shared.journal, lambda: shared.configuration.catalog, shared.clock)
        self._output_cleaner = OutputCleaner(shared.journal, shared.clock)
        self._journal_look = JournalLook(
            shared.journal, shared.clock, file_of(shared.config.database.url), shared.config.journal.max_bytes
        )
        self._sessions = sessions(
            shared, "role", SessionLifetimes(config.session_seconds), self._back.needs_session, lambda: self._server
        )
        self._pinger = self._new_pinger()
        registry = self._back.registry
        self._presence = self._new_presence()
        self._overdue = OverdueBacklog(
            shared.journal, registry, shared.health, shared.clock, shared.config.journal.owed_days
        )
        self._stalled = StalledDeliveries(
            shared.journal, shared.configuration, registry, shared.health, shared.clock, shared.config.health
        )
        self._absent_readers = AbsentReaders(
            shared.journal,
            self._back.readers,
            lambda: shared.configuration.catalog,
            shared.health,
            shared.clock,
            shared.config.health,
        )
        self._subscribe()
        self._server = self._new_server()

    def _new_presence(self) -> Presence:
        shared = self._shared
        return Presence(
            shared.journal,
            shared.configuration,
            self._back.registry,
            shared.health,
            shared.clock,
            RecipientSigns(
                self._pinger.is_silent,
                self._back.breakers.is_troubled,
                self._back.outputs.made_by,
                self._sessions.heard,
                self._calls_within,
                HEARTBEATS_LATE * shared.config.supervision.heartbeat,
            ),
        )

    def _calls_within(self, role: RoleEntry | RunnerEntry) -> float:
        """Give for how long a role may be silent: the program of a reader renews its leases within each of them."""
        desk = self._back.readers.desk(role.service) if isinstance(role, RoleEntry) else None
        return CALLING_SECONDS if desk is None else max(CALLING_SECONDS, desk.entry.lease)

    def _subscribe(self) -> None:
        events = self._back.events
        events.arrived.subscribe(self._overdue.arrived, self._stalled.arrived)
        events.joined.subscribe(self._presence.changed)
        events.parted.subscribe(self._presence.changed)
        events.paused.subscribe(self._presence.changed)
        events.resumed.subscribe(self._presence.changed)

    def _new_pinger(self) -> Pinger[RecipientProxy]:
        supervision = self._shared.config.supervision
        return Pinger(
            self._watched,
            self._give_up,
            self._shared.ids,
            interval=supervision.interval,
            timeout=supervision.timeout,
            misses=supervision.misses,
        )

    def _new_server(self) -> Server:
        shared, config = self._shared, self._shared.config
        batch_verbs = BackBatchVerbs(
            self._back,
            self._sessions,
            lambda: self._server,
            config.back.session_seconds,
            config.front.max_batch_bytes,
            config.supervision.heartbeat,
        )
        return Server(
            shared.context,
            Dispatch(
                BackVerbs(self._back, self._sessions, lambda: self._server),
                batch_verbs,
                OutputVerbs(self._back.reports, self._sessions),
                BotVerbs(self._bots, self._sessions),
                LogVerbs(
                    LogReading(shared.journal, self._back.slices),
                    ReaderTypes(shared.journal),
                    self._sessions,
                    lambda: shared.configuration.catalog,
                ),
                ReaderVerbs(self._back.readers, self._sessions),
                SubscriptionVerbs(self._subscriptions, self._back.readers, self._sessions),
                LeaderVerbs(shared.health, lambda: shared.configuration.catalog.bus),
                InsightVerbs(self._back),
                knows=self._sessions.knows,
            ),
            name="back",
            # Recipients that made the connection themselves answer over it, too: a worker with whole batches.
            limits=ServerLimits(
                max_message_bytes=config.front.max_batch_bytes + MESSAGE_OVERHEAD_BYTES,
                max_call_bytes=MAX_REPORT_BYTES,
                max_unsent_bytes=WINDOWS_UNREAD * max(config.back.window_bytes, config.front.max_batch_bytes),
            ),
            clock=shared.clock,
            turn=shared.journal.turn,
            # By TCP alone, as libzmq before 4.2 of an old recipient takes ZMTP's question for a call.
            life_signs=replace(OF_PEERS, keepalive_seconds=KEEPALIVE_SECONDS),
        )

    def _watched(self) -> list[RecipientProxy]:
        """List the recipients to watch: all with heartbeats, and the others if the operator wants supervision.

        The others can't come back by themselves after an outage of supervision's making.
        """
        supervision = self._shared.config.supervision
        return [
            recipient
            for recipient in self._back.registry.connected()
            if supervision.enabled or (supervision.heartbeat and recipient.abilities.heartbeats)
        ]

    async def _give_up(self, recipient: RecipientProxy, reason: str) -> None:
        """Log a lost recipient out: its envelopes are redelivered, and it has to log in anew."""
        await self._back.unregister(recipient, reason)
        await self._sessions.end(recipient.token_hash)

    async def _sessions_ended(self, token_hashes: set[bytes]) -> None:
        for recipient in self._back.registry.connected():
            if recipient.token_hash in token_hashes:
                await self._back.unregister(recipient, "an administrator has ended its session")

    async def _connect(self, uri: str, caller: str | None, lost: Callable[[], None]) -> Client:
        place = await self._hosts.find(uri, caller)
        own = self._shared.encryption.pair if place.key else None
        if place.key and own is None:
            raise Refused(
                "the recipient demands the broker's key, and the broker has none",
                "make one: xbus keys new; or have the recipient use a plain address",
                code="key_missing",
            )
        client = Client(
            self._shared.context,
            name=f"recipient at {uri.partition('?')[0]}",
            clock=self._shared.clock,
            max_message_bytes=self._shared.config.front.max_batch_bytes + MESSAGE_OVERHEAD_BYTES,
            on_lost=lost,
            life_signs=LifeSigns(keepalive_seconds=KEEPALIVE_SECONDS),
        )
        try:
            client.connect_to(BrokerAddress(place.endpoint, server_key=place.key, own=own))
        except BaseException:
            client.close()
            raise
        return client

    def bind(self) -> dict[str, str]:
        zmq = self._shared.config.zmq
        self._bell.bind()
        return bind(self._shared, "role", self._server, PortAddresses(zmq.backsocket, zmq.encrypted_back))

    async def recover(self) -> None:
        await self._sessions.restore()
        await self._space.refresh()
        await self._back.recover()
        await self._presence.restore()

    async def start(self) -> None:
        self._back.start()
        self._bots.start(self._shared.tasks)
        self._shared.configuration.on_change(self._sessions.configuration_changed)
        for name, work in self._background():
            self._shared.tasks.create_task(work, name=name)
        self._server.start()

    def _background(self) -> Iterator[tuple[str, Coroutine[object, object, None]]]:
        """Give the work that goes on beside the calls, each with the name of its task."""
        journal, clock, health = self._shared.journal, self._shared.clock, self._shared.health
        config = self._shared.config
        yield "roles' sessions", self._sessions.keep()
        yield "roles' ended sessions", self._sessions.watch(self._sessions_ended)
        yield "space for nodes that emit", self._space.watch()
        yield "pruning", self._pruner.watch()
        yield "cleaning of outputs", self._output_cleaner.watch()
        yield "table of contents", ContentsKeeper(journal, clock).watch()
        yield "audit", AuditKeeper(journal).watch()
        damage = DamageKeeper(journal, clock, health)
        journal.on_damage(damage.met)
        yield "damage of items", damage.watch()
        yield "ended sessions of people", remove_ended_sessions(journal, clock)
        yield "ends of pauses", self._pause_ender.watch()
        yield "supervision", self._pinger.watch()
        yield "presence", self._presence.keep()
        yield "alarm", self._overdue.watch()
        for name, look in (
            ("stalled deliveries", self._stalled.look),
            ("absent readers", self._absent_readers.look),
            ("lag of readers", self._behind.look),
            ("failing subscriptions", self._subscriptions.look),
            ("lag of roles", LagKeeper(journal, clock, health, self._back.decided).look),
        ):
            yield name, look_regularly(look, config.health.interval, name)
        archive = ArchiveKeeper(journal, clock, health, config.journal.archive, archive_command(config.file))
        yield "archive", look_regularly(archive.look, LOOK_SECONDS, "events to archive")
        yield "objects", ObjectRemover(journal, clock, health).watch()
        returns = ArchiveReturns(journal, self._back.archived, self._space, health, restore_command(config.file))
        yield "archived envelopes that are wanted", returns.watch()
        yield "answers to recipients", answer_overdue(journal, self._server)

    async def refresh_figures(self) -> None:
        await self._journal_look.refresh()

    def families(self) -> Iterator[Family]:
        yield from server_families(self._server)
        yield from delivery_families(self._back, self._shared.configuration.catalog)
        yield skipped_family(self._behind.skipped)
        yield from self._journal_look.families()

    async def stop(self, seconds: float) -> None:
        await self._back.stop(seconds)
        await self._presence.stop(seconds)
        self._server.pause()
        await self._server.drain(seconds)
        await self._sessions.save(is_last=True)
        self.close()

    def close(self) -> None:
        self._server.close()
        self._bell.close()
