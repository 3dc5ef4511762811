"""The part that serves recipients, and watches them."""

from collections.abc import Callable

from xbus.broker.back.back import Back
from xbus.broker.back.monitoring import OverdueBacklog, Presence, RecipientSigns, StalledDeliveries
from xbus.broker.back.recipients import RecipientProxy
from xbus.broker.back.runtime import Runtime
from xbus.broker.back.verbs import BackBatchVerbs, BackVerbs, OutputVerbs
from xbus.broker.health_verbs import HealthVerbs
from xbus.broker.housekeeping.contents import ContentsKeeper
from xbus.broker.housekeeping.looks import look_regularly
from xbus.broker.housekeeping.outages import answer_overdue
from xbus.broker.housekeeping.outputs import OutputCleaner
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.parts.shared import MESSAGE_OVERHEAD_BYTES, Shared, sessions
from xbus.rpc.bell import Bell
from xbus.rpc.client import Client, LifeSigns
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.server import Server, ServerLimits
from xbus.supervision.pinger import Pinger

KEEPALIVE_SECONDS = 5
"""Seconds between signs of life of a recipient's connection: a cable that was pulled sends no goodbye."""

MAX_REPORT_BYTES = 1024 * 1024
"""The largest message of a recipient, in bytes: a bulk worker's report about the items that it refuses."""


class BackPart:
    """Serves recipients, and watches them."""

    name = "back"

    def __init__(self, shared: Shared) -> None:
        config = shared.config.back
        self._shared = shared
        self._bell = Bell(shared.context, shared.config.zmq.b2fsocket)
        self._back = Back(
            shared.journal,
            shared.configuration,
            self._bell,
            self._connect,
            shared.health,
            Runtime(shared.clock, shared.tasks),
            config,
        )
        self._pruner = Pruner(
            shared.journal,
            shared.clock,
            keep_days=shared.config.journal.keep_settled_days,
            max_bytes=shared.config.journal.max_bytes,
        )
        self._output_cleaner = OutputCleaner(shared.journal, shared.clock)
        self._contents = ContentsKeeper(shared.journal, shared.clock)
        self._sessions = sessions(shared, "role", config.session_seconds, self._back.needs_session)
        supervision = shared.config.supervision
        self._pinger: Pinger[RecipientProxy] = Pinger(
            self._watched,
            self._give_up,
            shared.ids,
            interval=supervision.interval,
            timeout=supervision.timeout,
            misses=supervision.misses,
        )
        registry = self._back.registry
        self._presence = Presence(
            shared.journal,
            shared.configuration,
            registry,
            shared.health,
            shared.clock,
            RecipientSigns(self._pinger.is_silent, self._back.breakers.is_troubled, self._back.outputs.made_by),
        )
        self._overdue = OverdueBacklog(
            shared.journal, registry, shared.health, shared.clock, shared.config.journal.owed_days
        )
        self._stalled = StalledDeliveries(
            shared.journal, shared.configuration, registry, shared.health, shared.clock, shared.config.health
        )
        self._back.events.arrived.subscribe(self._presence.changed, self._overdue.arrived, self._stalled.arrived)
        self._back.events.left.subscribe(self._presence.changed)
        self._server = self._new_server()

    def _new_server(self) -> Server:
        shared, config = self._shared, self._shared.config
        batch_verbs = BackBatchVerbs(
            self._back,
            self._sessions,
            config.back.session_seconds,
            config.front.max_batch_bytes,
            config.supervision.heartbeat,
        )
        return Server(
            shared.context,
            Dispatch(
                BackVerbs(self._back, self._sessions),
                batch_verbs,
                OutputVerbs(self._back.reports, self._sessions),
                HealthVerbs(shared.health),
            ),
            name="back",
            limits=ServerLimits(max_message_bytes=MAX_REPORT_BYTES),
            clock=shared.clock,
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

    def _connect(self, uri: str, lost: Callable[[], None]) -> Client:
        client = Client(
            self._shared.context,
            name=f"recipient at {uri}",
            clock=self._shared.clock,
            max_message_bytes=self._shared.config.front.max_batch_bytes + MESSAGE_OVERHEAD_BYTES,
            on_lost=lost,
            life_signs=LifeSigns(keepalive_seconds=KEEPALIVE_SECONDS),
        )
        try:
            client.connect(uri)
        except BaseException:
            client.close()
            raise
        return client

    def bind(self) -> str:
        self._bell.bind()
        return self._server.bind(self._shared.config.zmq.backsocket)

    async def recover(self) -> None:
        await self._sessions.restore()
        await self._back.recover()
        await self._presence.restore()

    async def start(self) -> None:
        self._back.start()
        self._shared.tasks.create_task(self._sessions.keep(), name="roles' sessions")
        self._shared.tasks.create_task(self._pruner.watch(), name="pruning")
        self._shared.tasks.create_task(self._output_cleaner.watch(), name="cleaning of outputs")
        self._shared.tasks.create_task(self._contents.watch(), name="table of contents")
        self._shared.tasks.create_task(self._pinger.watch(), name="supervision")
        self._shared.tasks.create_task(self._presence.keep(), name="presence")
        self._shared.tasks.create_task(self._overdue.watch(), name="alarm")
        look = look_regularly(self._stalled.look, self._shared.config.health.interval, "stalled deliveries")
        self._shared.tasks.create_task(look, name="stalled deliveries")
        self._shared.tasks.create_task(answer_overdue(self._shared.journal, self._server), name="answers to recipients")
        self._server.start()

    async def stop(self, seconds: float) -> None:
        await self._back.stop(seconds)
        await self._presence.stop(seconds)
        self._server.pause()
        await self._server.drain(seconds)
        await self._sessions.save()
        self._server.close()
        self._bell.close()
