"""The two parts of the broker, put together from the configuration: each can run in a process of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from xbus.broker.back.alarm import Alarm
from xbus.broker.back.back import Back
from xbus.broker.back.batch_verbs import BackBatchVerbs
from xbus.broker.back.delivering import Settings
from xbus.broker.back.policy import RetryPolicy
from xbus.broker.back.presence import Presence
from xbus.broker.back.recipient import Recipient, Timeouts
from xbus.broker.back.verbs import BackVerbs
from xbus.broker.configuration import Configuration
from xbus.broker.front.batch_verbs import FrontBatchVerbs
from xbus.broker.front.checks import Checks
from xbus.broker.front.envelopes import Limits
from xbus.broker.front.front import Front
from xbus.broker.front.repeat_verbs import RepeatBatchVerbs, RepeatVerbs
from xbus.broker.front.repeating import Repeating
from xbus.broker.front.replies import Replies
from xbus.broker.front.timeouts import OpenTimeouts
from xbus.broker.front.verbs import FrontVerbs
from xbus.broker.health_verbs import HealthVerbs
from xbus.broker.housekeeping.outages import answer_overdue
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.sessions import Sessions
from xbus.clock import Clock
from xbus.config import Config
from xbus.ids import Ids
from xbus.passwords import Passwords
from xbus.rpc.bell import Bell
from xbus.rpc.client import Client
from xbus.rpc.context import Context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.server import Server
from xbus.supervision.health import Health
from xbus.supervision.pinger import Pinger

MESSAGE_OVERHEAD_BYTES = 64 * 1024
"""What a call may hold beside its items."""

KEEPALIVE_SECONDS = 5
"""How often a recipient's connection is asked for a sign of life: a cable that was pulled sends no goodbye."""


@dataclass(frozen=True)
class Shared:
    """What both parts stand on; all that goes on runs in ``tasks``, and what dies there ends the broker."""

    config: Config
    context: Context
    journal: Journal
    configuration: Configuration
    clock: Clock
    ids: Ids
    passwords: Passwords
    health: Health
    tasks: asyncio.TaskGroup


class Part(Protocol):
    """Front or back."""

    name: str

    def bind(self) -> str:
        """Open its ports; nothing is read from them yet. Returns where clients connect to."""

    async def recover(self) -> None:
        """Take up what the last run left in the journal, before any part serves; the back before the front, which calls
        off what the back must know of."""

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self, seconds: float) -> None:
        """Take nothing new, finish what is running within this time, and close."""


class FrontPart:
    """Serves emitters."""

    name = "front"

    def __init__(self, shared: Shared) -> None:
        config = shared.config.front
        limits = Limits(
            config.max_item_bytes, config.max_batch_bytes, config.max_envelope_items, config.max_envelope_bytes
        )
        self._shared = shared
        self._bell = Bell(shared.context, shared.config.zmq.b2fsocket)
        self._stopping = False
        self._replies = Replies(shared.journal, self._bell, shared.clock, config.immediate_reply_timeout)
        self._space = Space(shared.journal, shared.config.journal.max_bytes, shared.health)
        self._front = Front(
            shared.journal,
            shared.configuration,
            shared.clock,
            limits,
            self._replies,
            self._bell.ring,
            shared.tasks,
            self._space,
        )
        self._timeouts = OpenTimeouts(shared.journal, self._front, shared.clock, config.open_envelope_timeout)
        repeating = Repeating(
            shared.journal,
            Checks(shared.configuration, limits),
            shared.clock,
            shared.ids,
            self._bell.ring,
            shared.configuration.refresh,
        )
        self._sessions = _sessions(shared, "emitter", config.session_seconds, self._front.has_open_envelope)
        self._server = Server(
            shared.context,
            Dispatch(
                FrontVerbs(self._front, self._sessions, shared.ids),
                FrontBatchVerbs(
                    self._front, self._sessions, limits, config.session_seconds, config.immediate_reply_timeout
                ),
                RepeatVerbs(repeating, self._sessions),
                RepeatBatchVerbs(repeating, self._sessions),
                HealthVerbs(shared.health),
            ),
            name="front",
            max_message_bytes=max(config.max_batch_bytes, config.max_item_bytes) + MESSAGE_OVERHEAD_BYTES,
            may_read=self._may_read,
            max_unanswered_bytes=shared.config.journal.max_pending_bytes,
            clock=shared.clock,
        )

    def _may_read(self) -> bool:
        # A silent database must not keep callers waiting: they are refused while there is no room.
        has_room = self._shared.journal.has_room or self._shared.journal.overdue is not None
        return has_room and not self._stopping

    def bind(self) -> str:
        return self._server.bind(self._shared.config.zmq.frontsocket)

    async def recover(self) -> None:
        await self._sessions.restore()
        await self._replies.recover()
        await self._space.refresh()

    async def start(self) -> None:
        self._bell.connect()
        self._shared.tasks.create_task(self._sessions.keep(), name="emitters' sessions")
        self._shared.tasks.create_task(self._replies.watch(), name="replies to emitters")
        self._shared.tasks.create_task(self._space.watch(), name="space")
        self._shared.tasks.create_task(self._timeouts.watch(), name="open envelopes")
        self._shared.tasks.create_task(answer_overdue(self._shared.journal, self._server), name="answers to emitters")
        self._shared.journal.on_room(self._server.resume)
        self._server.start()

    async def stop(self, seconds: float) -> None:
        self._stopping = True
        self._server.pause()
        self._replies.give_up()
        await self._server.drain(seconds)
        await self._sessions.save()
        self._server.close()
        self._bell.close()


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
            shared.clock,
            tasks=shared.tasks,
            timeouts=Timeouts(
                config.start_event_timeout,
                config.send_item_timeout,
                config.end_event_timeout,
                config.end_envelope_timeout,
                config.stop_envelope_timeout,
            ),
            register_timeout=config.register_timeout,
            settings=Settings(
                config.window_bytes,
                config.behind_after,
                config.worker_grace,
                config.reply_hold_timeout,
                RetryPolicy(config.attempts, config.first_delay, config.longest_delay, config.jitter),
                config.trouble_after,
                config.probe_interval,
            ),
        )
        self._pruner = Pruner(
            shared.journal,
            shared.clock,
            keep_days=shared.config.journal.keep_settled_days,
            max_bytes=shared.config.journal.max_bytes,
        )
        self._sessions = _sessions(shared, "role", config.session_seconds, self._back.is_registered)
        max_batch_bytes = shared.config.front.max_batch_bytes
        supervision = shared.config.supervision
        self._pinger: Pinger[Recipient] = Pinger(
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
            is_silent=self._pinger.is_silent,
            is_troubled=self._back.troubles.is_troubled,
        )
        self._alarm = Alarm(shared.journal, registry, shared.health, shared.clock, shared.config.journal.owed_days)
        self._server = Server(
            shared.context,
            Dispatch(
                BackVerbs(self._back, self._sessions),
                BackBatchVerbs(
                    self._back,
                    self._sessions,
                    config.session_seconds,
                    max_batch_bytes,
                    shared.config.supervision.heartbeat,
                ),
                HealthVerbs(shared.health),
            ),
            name="back",
            max_message_bytes=MESSAGE_OVERHEAD_BYTES,
            clock=shared.clock,
        )

    def _watched(self) -> list[Recipient]:
        """Those that send heartbeats always; the others, which an outage of supervision's making can't bring back by
        themselves, where it is wanted."""
        supervision = self._shared.config.supervision
        return [
            recipient
            for recipient in self._back.registry.connected()
            if supervision.enabled or (supervision.heartbeat and recipient.abilities.heartbeats)
        ]

    async def _give_up(self, recipient: Recipient, reason: str) -> None:
        """Log a lost recipient out: what it was brought comes again, and it has to log in anew."""
        await self._back.unregister(recipient, reason)
        await self._sessions.end(recipient.token_hash)

    def _connect(self, uri: str, lost: Callable[[], None]) -> Client:
        client = Client(
            self._shared.context,
            name=f"recipient at {uri}",
            clock=self._shared.clock,
            max_message_bytes=self._shared.config.front.max_batch_bytes + MESSAGE_OVERHEAD_BYTES,
            on_lost=lost,
            keepalive_seconds=KEEPALIVE_SECONDS,
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

    async def start(self) -> None:
        await self._back.start()
        self._shared.tasks.create_task(self._sessions.keep(), name="roles' sessions")
        self._shared.tasks.create_task(self._pruner.watch(), name="pruning")
        await self._presence.restore()
        self._shared.tasks.create_task(self._pinger.watch(), name="supervision")
        self._shared.tasks.create_task(self._presence.keep(), name="presence")
        self._shared.tasks.create_task(self._alarm.watch(), name="alarm")
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


PARTS: dict[str, Callable[[Shared], Part]] = {"back": BackPart, "front": FrontPart}
"""In the order in which they start; they stop the other way round."""


def _sessions(
    shared: Shared, kind: Literal["emitter", "role"], lifetime_seconds: float, in_use: Callable[[int], bool]
) -> Sessions:
    return Sessions(
        shared.journal,
        kind,
        clock=shared.clock,
        ids=shared.ids,
        passwords=shared.passwords,
        lifetime_seconds=lifetime_seconds,
        in_use=in_use,
        catch_up=shared.configuration.refresh,
    )
