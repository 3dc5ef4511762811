"""The back: recipients register here, and it brings sealed envelopes to them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from xbus.backoff import Backoff
from xbus.broker.back.assembly import DeliveryAssembly
from xbus.broker.back.recipients import (
    CallTimeouts,
    Handshake,
    OwnRegistrations,
    RecipientProxy,
    introduce,
)
from xbus.broker.back.runtime import Runtime
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import StoredRegistration
from xbus.broker.journal.writes import Introduce, Register, Unregister
from xbus.config import BackSettings
from xbus.errors import Failed, JournalUnavailable, Refused, XbusError
from xbus.rpc.bell import Bell
from xbus.rpc.client import Client
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

LONGEST_URI = 200
"""Characters that the log shows of an address. An address may be anything."""

FIRST_CALL_SECONDS = 1.0
LONGEST_CALL_SECONDS = 15.0
"""Seconds between calls to a recipient that has not answered since a restart. Fewer find it sooner, and keep one that
registers by itself waiting more often."""

MAY_PASS = ("recipient_unreachable", "journal_unavailable")
"""Codes of failures after which a recipient is called again that knows nothing of a restart."""

Connect = Callable[[str, Callable[[], None]], Client]
"""Makes a client: from the address to connect to, and what to call when the connection is lost."""


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
        connect: Connect,
        health: Health,
        runtime: Runtime,
        settings: BackSettings,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._connect = connect
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._register_timeout = settings.register_timeout
        self._timeouts = CallTimeouts.of(settings)
        self._is_stopping = False
        self._registrations = OwnRegistrations(journal, health)
        self._introducing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._own: Sequence[StoredRegistration] = ()
        self._restoring: dict[int, bytes] = {}
        self._awaited: set[int] = set()
        self._assembly = DeliveryAssembly(journal, bell, runtime, settings, lambda: configuration.catalog)
        self.registry = self._assembly.registry
        self.events = self._assembly.events
        """The events of roles."""
        self.breakers = self._assembly.breakers
        """The circuit breakers of the roles."""
        self.outputs = self._assembly.outputs
        """The outputs that bulk workers make."""
        self.reports = self._assembly.reports
        """The reports of bulk workers about the outputs that they make."""

    def is_registered(self, role_id: int) -> bool:
        """Check whether a recipient is registered for a role."""
        return self.registry.connected_for(role_id) is not None

    def needs_session(self, role_id: int) -> bool:
        """Check whether a role has a recipient, or one that may be called again: then its sessions must not expire."""
        return self.is_registered(role_id) or role_id in self._awaited or self._registrations.is_foreign(role_id)

    def check_in_place(self, token_hash: bytes) -> None:
        """Let a recipient pass whose place nobody else has taken.

        Raises:
            Refused: another one has registered for its role since (``displaced``).
        """
        if self.registry.is_displaced(token_hash):
            raise Refused(
                "another recipient has registered for the same role",
                "run one recipient for each role; give a second one a role of its own",
                code="displaced",
            )

    def heartbeat(self, role_id: int, token_hash: bytes, work: Any) -> bool:
        """Note a recipient's sign of life and its report about its work; return whether it is registered."""
        recipient = self.registry.connected_for(role_id)
        if recipient is None or recipient.token_hash != token_hash:
            # After a restart we come to it by ourselves: registering anew would break off what has just begun.
            return self._restoring.get(role_id) == token_hash
        if recipient.is_superseded:
            # 1. Another broker calls the recipient. 2. It turns our calls away for those. 3. It says here that it is
            # well, as it knows of nothing: only a new registration, and so a new connection, brings it back.
            return False
        recipient.heartbeats.heartbeat(work)
        return True

    async def recover(self) -> None:
        """Take up what the last run of the broker left, and learn which recipients it knew.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        await self._assembly.recover()
        registrations = await self._registrations.read()
        # A recipient of before counts as present only after it has answered.
        await asyncio.gather(*(self._note_introduction(registration, None) for registration in registrations))
        self._own = self._registrations.own(registrations)
        self._restoring = {registration.role_id: registration.token_hash for registration in self._own}

    def start(self) -> None:
        """Begin to deliver, and connect to the recipients that registered with this journal before, where it is now."""
        self._assembly.start()
        self._configuration.on_change(self._configuration_changed)
        self._resume(self._own)
        self._tasks.create_task(self._registrations.watch(self._resume), name="foreign registrations")

    def _resume(self, registrations: Sequence[StoredRegistration]) -> None:
        self._restoring |= {registration.role_id: registration.token_hash for registration in registrations}
        self._awaited |= {registration.role_id for registration in registrations}
        for registration in registrations:
            self._tasks.create_task(self._restore(registration), name=f"registration of role {registration.role_id}")

    async def stop(self, seconds: float) -> None:
        """Deliver nothing more, see ``DeliveryAssembly.stop``, and call nobody any more."""
        self._is_stopping = True
        await self._assembly.stop(seconds)
        for recipient in self.registry.connected():
            recipient.close()

    def _configuration_changed(self) -> None:
        self._tasks.create_task(self._follow_configuration(), name="configuration change")

    async def _follow_configuration(self) -> None:
        await self._assembly.follow_configuration()
        roles = self._configuration.catalog.roles.values()
        self._assembly.probing.retain([role.id for role in roles if not role.detached])
        for recipient in self.registry.connected():
            role = self._configuration.catalog.roles.get(recipient.role.id)
            if role is not None and role.is_served_like(recipient.role):
                recipient.role = role
            else:
                await self.unregister(recipient, "its role was changed or removed")

    # -- registrations ---------------------------------------------------------------------------------------------

    async def register(self, role_id: int, token_hash: bytes, uri: str) -> None:
        """Connect to a recipient and let it serve its role from now on, in place of an older one.

        Raises:
            Refused: the address is invalid, or the recipient did not introduce itself properly in time.
            Failed: the broker is stopping.
            JournalUnavailable: the registration can't be made durable now.
        """
        async with self._one_at_a_time(role_id):
            await self._register(role_id, token_hash, uri)

    def _one_at_a_time(self, role_id: int) -> asyncio.Lock:
        """Give the lock that a registration keeps from introduction to end.

        A recipient takes calls only from the connection that was introduced to it last.
        """
        return self._introducing.setdefault(role_id, asyncio.Lock())

    async def _register(self, role_id: int, token_hash: bytes, uri: str) -> None:
        try:
            recipient, said = await self._introduce(role_id, token_hash, uri)
        except Refused as error:
            log.warning(
                "recipient not registered: %s",
                error,
                extra={"action": "not_registered", "code": error.code, **self._who(role_id, uri)},
            )
            raise
        try:
            await self._journal.write(
                Register(
                    role_id, token_hash, uri, self._registrations.place, self._clock.now(), said.metadata, said.features
                )
            )
        except BaseException:
            recipient.close()
            raise
        if recipient.is_closed:
            raise Refused(
                "the broker lost the recipient while it registered", "register again", code="recipient_unreachable"
            )
        self._admit(recipient)

    def _admit(self, recipient: RecipientProxy) -> None:
        """Let a recipient serve its role, unless the broker stops: what began then would be broken off at once.

        Raises:
            Failed: broker_stopping.
        """
        if self._is_stopping:
            recipient.close()
            raise Failed("the broker is stopping", "register again when it is back", code="broker_stopping")
        self.registry.add(recipient)

    def _who(self, role_id: int, uri: str) -> dict[str, str]:
        """Name the recipient that a line of the log is about."""
        role = self._configuration.catalog.roles.get(role_id)
        return {"role": str(role_id) if role is None else role.login, "uri": uri[:LONGEST_URI]}

    async def _introduce(self, role_id: int, token_hash: bytes, uri: str) -> tuple[RecipientProxy, Handshake]:
        role = self._configuration.catalog.roles.get(role_id)
        if role is None:
            raise Refused("the role was removed", "name it again with xbus apply", code="session_unknown")
        if role.detached:
            raise Refused(
                "the role was detached: it is owed nothing any more",
                f"have an operator put it on the bus again with xbus recipient attach {role.login}",
                code="role_detached",
            )
        cursor = self._assembly.ledger.cursor(role_id)
        if not role.worker and (cursor is None or cursor.until_position is not None):
            # A new role, or one that was put on the bus again just now.
            await self._assembly.read_cursors()
        known: list[RecipientProxy] = []

        def lost() -> None:
            for recipient in known:
                self._lost(recipient)

        client = self._connect(uri, lost)
        try:
            introduction = await introduce(client, self._register_timeout)
            introduction.check_kind(role)
        except BaseException:
            client.close()
            raise
        recipient = RecipientProxy(
            role, token_hash, uri, client, introduction.abilities, self._timeouts, self.registry.leave
        )
        known.append(recipient)
        return recipient, introduction

    def _lost(self, recipient: RecipientProxy) -> None:
        if self.registry.connected_for(recipient.role.id) is not recipient:
            recipient.close()
            return
        self._tasks.create_task(self.unregister(recipient, "the connection was lost"))

    async def _restore(self, registration: StoredRegistration) -> None:
        """Call a recipient again after a restart, for as long as one call may keep it busy."""
        backoff = Backoff(FIRST_CALL_SECONDS, LONGEST_CALL_SECONDS)
        until = self._clock.monotonic() + self._timeouts.longest
        try:
            may_be_busy = await self._call_again(registration)
            # From here on the answer to a heartbeat makes a recipient register by itself.
            del self._restoring[registration.role_id]
            while may_be_busy and self._clock.monotonic() < until:
                await asyncio.sleep(backoff.next())
                may_be_busy = await self._call_again(registration)
        finally:
            self._awaited.discard(registration.role_id)

    async def _call_again(self, registration: StoredRegistration) -> bool:
        """Take a recipient up again, unless its role has another one; whether it gave no answer and may be busy."""
        async with self._one_at_a_time(registration.role_id):
            if self.is_registered(registration.role_id) or not await self._registrations.holds(registration):
                return False
            return await self._take_up_again(registration)

    async def _take_up_again(self, registration: StoredRegistration) -> bool:
        try:
            recipient, said = await self._introduce(registration.role_id, registration.token_hash, registration.uri)
            self._admit(recipient)
        except XbusError as error:
            log.info(
                "recipient not taken up again: %s",
                error,
                extra={"action": "not_restored", **self._who(registration.role_id, registration.uri)},
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
        if self.registry.connected_for(recipient.role.id) is not recipient:
            return
        self.registry.remove(recipient, reason)
        try:
            await self._journal.write(Unregister(recipient.role.id, recipient.token_hash, recipient.uri))
        except JournalUnavailable as error:
            # It only means that a restarted broker looks for it once in vain.
            log.warning("registration not removed: %s", error, extra={"action": "registration_kept"})
