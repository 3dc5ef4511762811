"""The back: recipients register here, and it brings sealed envelopes to them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xbus.backoff import Backoff
from xbus.broker.back.admission import Admission, Connect, ConnectTo, TakeUp
from xbus.broker.back.assembly import DeliveryAssembly
from xbus.broker.back.chaining import EmittingRoles
from xbus.broker.back.monitoring import DeliveryFigures
from xbus.broker.back.readers import ReaderDesks
from xbus.broker.back.recipients import (
    Handshake,
    OwnRegistrations,
    RecipientProxy,
)
from xbus.broker.back.runtime import Runtime
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import StoredRegistration
from xbus.broker.journal.writes import Introduce, PauseEntry, Register, Unregister, is_served, served_uri
from xbus.config import BackSettings
from xbus.errors import Failed, JournalUnavailable, Refused, XbusError
from xbus.rpc.bell import Bell
from xbus.rpc.messages import DeliveredToRole
from xbus.rpc.owed_calls import Callee
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

FIRST_CALL_SECONDS = 1.0
LONGEST_CALL_SECONDS = 15.0
"""Seconds between calls to a recipient that has not answered since a restart. Fewer find it sooner, and keep one that
registers by itself waiting more often."""

MAY_PASS = ("recipient_unreachable", "journal_unavailable")
"""Codes of failures after which a recipient is called again that knows nothing of a restart."""


class Back:
    """The facade between the journal and the recipients.

    Args:
        journal: has the envelopes to deliver, and takes note of their deliveries.
        configuration: has the roles.
        bell: rings when an envelope was sealed.
        connect: connects to a recipient.
        health: shows a problem while registrations are those of another journal.
        runtime: its time, tasks and chance.
        settings: the settings of deliveries.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        bell: Bell,
        connect: ConnectTo,
        health: Health,
        runtime: Runtime,
        settings: BackSettings,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._connect = connect
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._registrations = OwnRegistrations(journal, health)
        self._own: Sequence[StoredRegistration] = ()
        self._restoring: set[tuple[int, bytes]] = set()
        self._awaited: set[tuple[int, bytes]] = set()
        self._assembly = DeliveryAssembly(journal, bell, runtime, settings, lambda: configuration.catalog)
        self._admission = Admission(journal, configuration, self._assembly, runtime.tasks, settings)
        self.readers = ReaderDesks(journal, self._assembly.slices, runtime, settings, lambda: configuration.catalog)
        """The readers, whose programs ask for what they read."""
        self.registry = self._assembly.registry
        self._emitting = EmittingRoles(journal, self.registry, runtime, settings, lambda: configuration.catalog)
        self.events = self._assembly.events
        """The events of roles."""
        self.breakers = self._assembly.breakers
        """The circuit breakers of the roles."""
        self.outputs = self._assembly.outputs
        """The outputs that bulk workers make."""
        self.insight = self._assembly.insight
        """The memory of the back, for operators."""
        self.slices = self._assembly.slices
        self.archived = self._assembly.archived
        """The log, for those who read it at their own pace."""
        self.reports = self._assembly.reports
        """The reports of bulk workers about the outputs that they make."""

    @property
    def figures(self) -> DeliveryFigures:
        """The figures of deliveries, as metrics show them."""
        return self._assembly.figures

    def delivered(self, role_ids: Iterable[int]) -> list[DeliveredToRole]:
        """Tell how much was delivered to roles since this process began; those not in use are left out."""
        known = self._configuration.catalog.roles
        return [*self.figures.delivered(known[role_id] for role_id in role_ids if role_id in known)]

    def is_registered(self, role_id: int) -> bool:
        """Check whether a recipient is registered for a role."""
        return bool(self.registry.connected(role_id))

    def needs_session(self, role_id: int) -> bool:
        """Check whether a role has a recipient, or one that may be called again: then its sessions must not expire."""
        is_awaited = any(role_id == of_role for of_role, _ in self._awaited)
        return self.is_registered(role_id) or is_awaited or self._registrations.is_foreign(role_id)

    def check_in_place(self, token_hash: bytes) -> None:
        """Let a recipient pass whose place nobody else has taken.

        Raises:
            Refused: another one has registered for its role since (``displaced``).
        """
        if self.registry.is_displaced(token_hash):
            raise Refused(
                "another recipient has registered for the same role",
                "run as many recipients of a role as it has instances in the bus file, 1 by default; for another one "
                "raise that number, or give it a role of its own",
                code="displaced",
            )

    def heartbeat(self, role_id: int, token_hash: bytes, work: Any, connection: bytes = b"") -> bool:
        """Note a recipient's sign of life and its report about its work; return whether it is registered.

        Args:
            connection: by which the heartbeat came.
        """
        recipient = self.registry.find(role_id, token_hash)
        if recipient is None:
            # After a restart we come to it by ourselves: registering anew would break off what has just begun.
            return (role_id, token_hash) in self._restoring
        if recipient.is_superseded or not recipient.may_speak_over(connection):
            # 1. Another broker calls the recipient. 2. It turns our calls away for those. 3. It says here that it is
            # well, as it knows of nothing: only a new registration, and so a new connection, brings it back. The same
            # goes for one that has lost the connection over which it is called, before this side has noticed.
            return False
        recipient.heartbeats.heartbeat(work)
        return True

    def stands_by(self, role_id: int, token_hash: bytes) -> bool:
        """Check whether a recipient is registered and waits for a place of its role."""
        recipient = self.registry.find(role_id, token_hash)
        return recipient is not None and self.registry.is_standing_by(recipient)

    def pause_of(self, role_id: int) -> PauseEntry | None:
        """Give the pause of a role; None for one that is not paused."""
        role = self._configuration.catalog.roles.get(role_id)
        return None if role is None else role.pause

    async def recover(self) -> None:
        """Take up what the last run of the broker left, and learn which recipients it knew.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        await self._emitting.recover()
        await self._assembly.recover()
        await self.readers.follow()
        registrations = await self._registrations.read()
        for ended in [registration for registration in registrations if is_served(registration.uri)]:
            # Its connection ended with the last run of the broker; it comes again by itself.
            await self._journal.write(Unregister(ended.role_id, ended.token_hash, ended.uri))
            registrations.remove(ended)
        # A recipient of before counts as present only after it has answered.
        await asyncio.gather(*(self._note_introduction(registration, None) for registration in registrations))
        self._own = self._registrations.own(registrations)
        self._restoring = {_key(registration) for registration in self._own}

    def start(self) -> None:
        """Begin to deliver, and connect to the recipients that registered with this journal before, where it is now."""
        self._assembly.start()
        self._tasks.create_task(self.readers.watch(), name="leases of readers")
        self._emitting.serve()
        self._configuration.on_change(self._configuration_changed)
        self._resume(self._own)
        self._tasks.create_task(self._registrations.watch(self._resume), name="foreign registrations")

    def _resume(self, registrations: Sequence[StoredRegistration]) -> None:
        self._restoring |= {_key(registration) for registration in registrations}
        self._awaited |= {_key(registration) for registration in registrations}
        for registration in registrations:
            self._tasks.create_task(self._restore(registration), name=f"registration of role {registration.role_id}")

    async def stop(self, seconds: float) -> None:
        """Deliver nothing more, see ``DeliveryAssembly.stop``, and call nobody any more."""
        self._admission.stop()
        await self._assembly.stop(seconds)
        for recipient in self.registry.connected():
            recipient.close()

    def _configuration_changed(self) -> None:
        # At once, while the rest may wait for the journal.
        for role in self._configuration.catalog.roles.values():
            self.registry.follow_pause(role)
        self._tasks.create_task(self._follow_configuration(), name="configuration change")
        self._tasks.create_task(self.readers.follow_when_possible(), name="readers of the configuration")

    def decided(self) -> None:
        """Carry out a decision about owed envelopes that was just noted."""
        self._assembly.decided()

    async def _follow_configuration(self) -> None:
        await self._assembly.follow_configuration()
        roles = self._configuration.catalog.roles.values()
        self._assembly.probing.retain([role.id for role in roles if not role.detached])
        for recipient in self.registry.connected():
            role = self._configuration.catalog.roles.get(recipient.role.id)
            if role is None or not role.is_served_like(recipient.role):
                await self._admission.unregister(recipient, "its role was changed or removed")
        for role in roles:
            for recipient in self.registry.follow(role):
                self._dismiss(recipient, "its role has fewer instances now")
        self._emitting.serve()

    async def log_out(self, role_id: int, token_hash: bytes, seconds: float) -> None:
        """Give the recipient of a session nothing more, and unregister it when it has finished its work.

        1. The broker has a commit called, and the recipient carries it out. 2. The recipient logs out, by another
        connection than that of its answers. 3. Its answer arrives, however late. Until then the recipient is registered
        as one that is leaving: if its connection was closed at 2., the broker would redeliver what is committed.

        Args:
            seconds: how long to wait here for the end of the work; it goes on behind that.
        """
        recipient = self.registry.find(role_id, token_hash)
        if recipient is not None:
            # A worker of the old kind will not say any more that it takes another event.
            recipient.readiness.tell()
            ending = self._dismiss(recipient, "it logged out")
            # A restarted broker must not call it.
            await self._admission.strike_off(recipient)
            await asyncio.wait([ending], timeout=seconds)

    def _dismiss(self, recipient: RecipientProxy, reason: str) -> "asyncio.Task[None]":
        """Begin nothing more with a program, and unregister it when it has finished what it has."""
        self.registry.leave(recipient)
        return self._tasks.create_task(self._unregister_finished(recipient, reason), name=f"end of {recipient.uri}")

    async def _unregister_finished(self, recipient: RecipientProxy, reason: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._admission.timeouts.longest):
                await self._assembly.finished(recipient)
        await self._admission.unregister(recipient, reason)

    # -- registrations ---------------------------------------------------------------------------------------------

    async def register(self, role_id: int, token_hash: bytes, uri: str, caller: str = "") -> None:
        """Connect to a recipient and let it serve its role from now on, in place of an older one.

        Args:
            uri: where it listens.
            caller: the address from which it registers.

        Raises:
            Refused: the address is invalid or not allowed, or the recipient did not introduce itself properly in time.
            Failed: the broker is stopping.
            JournalUnavailable: the registration can't be made durable now.
        """
        async with self._admission.one_at_a_time(role_id, uri):
            await self._register(role_id, token_hash, uri, lambda at, lost: self._connect(at, caller, lost))

    async def serve(self, role_id: int, token_hash: bytes, channel: bytes, take_up: TakeUp) -> None:
        """Let a recipient serve its role over the connection that it made; otherwise as ``register``.

        Args:
            channel: made by the recipient for this registration.
            take_up: takes the connection up.

        Raises:
            Refused: the channel is invalid, or the recipient did not introduce itself properly in time.
            Failed: the broker is stopping.
            JournalUnavailable: the registration can't be made durable now.
        """
        name = f"recipient {self._admission.login_of(role_id)}"

        async def connect(_: str, lost: Callable[[], None]) -> Callee:
            return take_up(name, lost)

        async with self._admission.one_at_a_time(role_id, token_hash.hex()):
            await self._register(role_id, token_hash, served_uri(channel), connect)

    async def _register(self, role_id: int, token_hash: bytes, uri: str, connect: Connect) -> None:
        try:
            recipient, said = await self._admission.introduce(role_id, token_hash, uri, connect)
        except Refused as error:
            log.warning(
                "recipient not registered: %s",
                error,
                extra={"action": "not_registered", "code": error.code, **self._admission.describe(role_id, uri)},
            )
            raise
        try:
            await self._journal.write(
                Register(
                    role_id,
                    token_hash,
                    uri,
                    self._registrations.place,
                    self._clock.now(),
                    said.metadata,
                    said.features,
                    self._beside(recipient),
                )
            )
        except BaseException:
            recipient.close()
            raise
        if recipient.is_closed:
            raise Refused(
                "the broker lost the recipient while it registered", "register again", code="recipient_unreachable"
            )
        try:
            displaced = self._admission.admit(recipient, await self.registry.silent_beside(recipient))
        except Failed:
            # It comes by itself when the broker is back. Taken up at the same time it would lose what it was given.
            await self._admission.strike_off(recipient)
            raise
        for each in displaced:
            await self._admission.strike_off(each)

    def _beside(self, recipient: RecipientProxy) -> list[bytes]:
        """List the sessions of the other programs of a role that are registered, or may be called again."""
        role_id = recipient.role.id
        if not recipient.role.is_shared:
            return []
        others = [each for each in self.registry.connected(role_id) if not each.is_same_program(recipient)]
        awaited = {token_hash for of_role, token_hash in self._awaited if of_role == role_id}
        return sorted(({each.token_hash for each in others} | awaited) - {recipient.token_hash})

    async def _restore(self, registration: StoredRegistration) -> None:
        """Call a recipient again after a restart, for as long as one call may keep it busy."""
        backoff = Backoff(FIRST_CALL_SECONDS, LONGEST_CALL_SECONDS)
        until = self._clock.monotonic() + self._admission.timeouts.longest
        try:
            may_be_busy = await self._call_again(registration)
            # From here on the answer to a heartbeat makes a recipient register by itself.
            self._restoring.discard(_key(registration))
            while may_be_busy and self._clock.monotonic() < until:
                await asyncio.sleep(backoff.next())
                may_be_busy = await self._call_again(registration)
        finally:
            self._awaited.discard(_key(registration))

    async def _call_again(self, registration: StoredRegistration) -> bool:
        """Take a recipient up again, unless its role has no place for it. True if it gave no answer and may be busy."""
        async with self._admission.one_at_a_time(registration.role_id, registration.uri):
            if not self._is_missed(registration) or not await self._registrations.holds(registration):
                return False
            return await self._take_up_again(registration)

    def _is_missed(self, registration: StoredRegistration) -> bool:
        """Check whether a recipient has not come by itself, and would displace no other."""
        role = self._configuration.catalog.roles.get(registration.role_id)
        has_come = self.registry.find(registration.role_id, registration.token_hash) is not None
        return not has_come and (role is None or self.registry.has_place(role))

    async def _take_up_again(self, registration: StoredRegistration) -> bool:
        try:
            recipient, said = await self._admission.introduce(
                registration.role_id,
                registration.token_hash,
                registration.uri,
                lambda at, lost: self._connect(at, None, lost),
            )
            if not self._is_missed(registration):
                recipient.close()
                return False
            self._admission.admit(recipient)
        except XbusError as error:
            log.info(
                "recipient not taken up again: %s",
                error,
                extra={"action": "not_restored", **self._admission.describe(registration.role_id, registration.uri)},
            )
            return error.code in MAY_PASS
        try:
            await self._note_introduction(registration, said)
        except JournalUnavailable as error:
            # The loss only means that emitters don't hear of it.
            log.warning("introduction not kept: %s", error, extra={"action": "introduction_not_kept"})
        return False

    def _note_introduction(self, registration: StoredRegistration, said: Handshake | None) -> "asyncio.Future[None]":
        metadata, features = (None, None) if said is None else (said.metadata, said.features)
        return self._journal.write(
            Introduce(registration.role_id, registration.token_hash, registration.uri, metadata, features)
        )

    async def unregister(self, recipient: RecipientProxy, reason: str) -> None:
        """End the service of a recipient for its role; its unfinished work is redelivered when the role is served."""
        await self._admission.unregister(recipient, reason)


def _key(registration: StoredRegistration) -> tuple[int, bytes]:
    """Identify the program that made a registration."""
    return registration.role_id, registration.token_hash
