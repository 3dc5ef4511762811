"""The part that serves emitters."""

import math
from collections.abc import Iterator

from xbus.broker.front.envelopes import (
    Checks,
    EnvelopeLimits,
    OpenTimeouts,
    OpenTooLong,
    OperatorCancels,
    ReplyRequests,
)
from xbus.broker.front.front import Front
from xbus.broker.front.groups import GroupIntake
from xbus.broker.front.provisioning import Provisioning
from xbus.broker.front.replay import ArchiveRestore, Replay
from xbus.broker.front.verbs import (
    FrontBatchVerbs,
    FrontVerbs,
    ProvisioningVerbs,
    RefusalNotes,
    Refusals,
    RefusalVerbs,
    RepeatBatchVerbs,
    RepeatVerbs,
    ThrottlingDispatch,
)
from xbus.broker.health_verbs import LeaderVerbs
from xbus.broker.housekeeping.archiving import restore_command
from xbus.broker.housekeeping.damage import DamageKeeper
from xbus.broker.housekeeping.looks import look_regularly
from xbus.broker.housekeeping.outages import answer_overdue
from xbus.broker.housekeeping.space import Space
from xbus.broker.metrics.families import Family
from xbus.broker.metrics.of_front import intake_families
from xbus.broker.metrics.of_process import server_families
from xbus.broker.parts.shared import MESSAGE_OVERHEAD_BYTES, PortAddresses, Shared, bind, sessions
from xbus.broker.sessions import SessionLifetimes
from xbus.config import FrontSettings
from xbus.rpc.bell import Bell
from xbus.rpc.guard import ServerLimits
from xbus.rpc.rests import Rests
from xbus.rpc.server import SHARE_BYTES, Server

LARGEST_UNREAD = 4
"""The answers that one emitter may leave unread, in largest messages: an immediate reply may be as large as a batch.

More would let it wait for longer, and cost memory.
"""


def envelope_limits(config: FrontSettings) -> EnvelopeLimits:
    """Give the limits of envelopes that the configuration says."""
    return EnvelopeLimits(
        config.max_item_bytes,
        config.max_batch_bytes,
        config.max_envelope_items,
        config.max_envelope_bytes,
        config.max_envelope_events,
    )


class FrontPart:
    """Serves emitters."""

    name = "front"

    def __init__(self, shared: Shared) -> None:
        config = shared.config.front
        largest = max(config.max_batch_bytes, config.max_item_bytes) + MESSAGE_OVERHEAD_BYTES
        checks = Checks(shared.configuration, envelope_limits(config), shared.clock)
        self._shared = shared
        self._bell = Bell(shared.context, shared.config.zmq.b2fsocket, shared.encryption.bell_pair)
        self._stopping = False
        self._replies = ReplyRequests(shared.journal, self._bell, shared.clock, config.immediate_reply_timeout)
        keep_seconds = shared.config.journal.keep_settled_days * 24 * 3600 or math.inf
        self._space = Space(shared.journal, shared.config.journal.max_bytes, shared.health, keep_seconds)
        self._front = Front(
            shared.journal,
            checks,
            shared.clock,
            self._replies,
            self._bell.ring,
            shared.tasks,
            self._space,
        )
        self._timeouts = OpenTimeouts(shared.journal, self._front, shared.clock, config.open_envelope_timeout)
        self._cancels = OperatorCancels(self._front)
        self._open_too_long = OpenTooLong(
            shared.journal, shared.health, shared.clock, shared.config.health.open_minutes
        )
        self._restoring = ArchiveRestore(shared.journal, self._space, restore_command(shared.config.file))
        repeating = Replay(
            shared.journal,
            checks,
            shared.clock,
            shared.ids,
            self._bell.ring,
            shared.configuration.refresh,
            self._restoring,
        )
        lifetimes = SessionLifetimes(config.session_seconds, config.session_hours * 3600)
        self._sessions = sessions(shared, "emitter", lifetimes, self._front.has_open_envelope, lambda: self._server)
        self._rests = Rests()
        self._server = Server(
            shared.context,
            self._dispatch(checks, repeating),
            name="front",
            limits=ServerLimits(
                max_message_bytes=largest,
                max_unanswered_bytes=shared.config.journal.max_pending_bytes,
                max_unsent_bytes=LARGEST_UNREAD * largest,
                share_bytes=SHARE_BYTES,
            ),
            may_read=self._may_read,
            clock=shared.clock,
            turn=shared.journal.turn,
            rests=self._rests,
        )

    def _dispatch(self, checks: Checks, repeating: Replay) -> ThrottlingDispatch:
        """Make the table of the verbs."""
        shared, config = self._shared, self._shared.config.front
        refusals = Refusals(shared.clock)
        provisioning = Provisioning(
            shared.journal, shared.configuration, self._sessions, shared.clock, config.autodrop_envelopes
        )
        batches = FrontBatchVerbs(
            self._front,
            self._sessions,
            envelope_limits(config),
            config.session_seconds,
            config.immediate_reply_timeout,
        )
        groups = GroupIntake(self._front, self._sessions, refusals.note_grouped, self._rests)
        return ThrottlingDispatch(
            FrontVerbs(self._front, self._sessions, shared.ids),
            batches,
            groups,
            RepeatVerbs(repeating, self._sessions),
            RepeatBatchVerbs(repeating, self._sessions),
            ProvisioningVerbs(provisioning, self._sessions),
            LeaderVerbs(shared.health, lambda: shared.configuration.catalog.bus),
            RefusalVerbs(refusals),
            sessions=self._sessions,
            throttle=checks.throttle,
            note_error=RefusalNotes(self._sessions, refusals).note,
        )

    def _may_read(self) -> bool:
        # A silent database must not keep callers waiting: the front refuses them while it has no room.
        return not self._stopping and (self._shared.journal.has_room or self._shared.journal.overdue is not None)

    def bind(self) -> dict[str, str]:
        zmq = self._shared.config.zmq
        return bind(self._shared, "emitter", self._server, PortAddresses(zmq.frontsocket, zmq.encrypted_front))

    async def recover(self) -> None:
        await self._sessions.restore()
        await self._replies.recover()
        await self._space.refresh()

    async def start(self) -> None:
        self._bell.connect()
        if not self._shared.has_back:
            # A back in this process hears of it from the journal.
            self._shared.journal.on_sealed(lambda sealed: self._bell.ring())
            # It reads items back for repeats, and the back of another process hears nothing of that.
            damage = DamageKeeper(self._shared.journal, self._shared.clock, self._shared.health)
            self._shared.journal.on_damage(damage.met)
            self._shared.tasks.create_task(damage.forget(), name="damage of items")
        self._shared.configuration.on_change(self._sessions.configuration_changed)
        self._shared.configuration.on_change(self._cancels.configuration_changed)
        self._shared.tasks.create_task(self._cancels.watch(), name="envelopes cancelled by operators")
        self._shared.tasks.create_task(self._sessions.keep(), name="emitters' sessions")
        self._shared.tasks.create_task(self._sessions.watch(), name="emitters' ended sessions")
        self._shared.tasks.create_task(self._sessions.watch_runs(), name="sessions of runs of bots")
        self._shared.tasks.create_task(self._replies.watch(), name="replies to emitters")
        self._shared.tasks.create_task(self._space.watch(), name="space")
        self._shared.tasks.create_task(self._timeouts.watch(), name="open envelopes")
        look = look_regularly(self._open_too_long.look, self._shared.config.health.interval, "open envelopes")
        self._shared.tasks.create_task(look, name="envelopes open too long")
        self._shared.tasks.create_task(answer_overdue(self._shared.journal, self._server), name="answers to emitters")
        self._shared.journal.on_room(self._server.resume)
        self._server.start()

    async def refresh_figures(self) -> None:
        """Do nothing: the front has its figures in memory."""

    def families(self) -> Iterator[Family]:
        yield from server_families(self._server)
        yield from intake_families(self._front, self._shared.configuration.catalog)

    async def stop(self, seconds: float) -> None:
        self._stopping = True
        self._server.pause()
        self._replies.give_up()
        self._restoring.give_up()
        await self._server.drain(seconds)
        await self._sessions.save(is_last=True)
        self.close()

    def close(self) -> None:
        self._server.close()
        self._bell.close()
