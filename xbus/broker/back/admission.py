"""Lets recipients in, and out: it introduces them, gives them a place of their role, and strikes them off."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from shlex import quote
from weakref import WeakValueDictionary

from xbus.broker.back.assembly import DeliveryAssembly
from xbus.broker.back.recipients import CallTimeouts, Handshake, RecipientProxy, introduce
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import Unregister
from xbus.config import BackSettings
from xbus.errors import Failed, JournalUnavailable, Refused
from xbus.rpc.owed_calls import Callee

log = logging.getLogger(__name__)

LONGEST_URI = 200
"""Characters that the log shows of an address. An address may be anything."""

Connect = Callable[[str, Callable[[], None]], Awaitable[Callee]]
"""Reaches a recipient at its address. The function is called when the connection is lost."""

TakeUp = Callable[[str, Callable[[], None]], Callee]
"""Reaches a recipient over the connection that it made, given its name for the errors."""

ConnectTo = Callable[[str, str | None, Callable[[], None]], Awaitable[Callee]]
"""Connects to a recipient at its address, given the one from which it registers. None where it was let in before."""


class Admission:
    """Lets recipients in and out.

    Args:
        journal: keeps the registrations.
        configuration: has the roles.
        assembly: has the places of the roles, and their cursors.
        tasks: of the back.
        settings: how long a recipient may take.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        assembly: DeliveryAssembly,
        tasks: asyncio.TaskGroup,
        settings: BackSettings,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._assembly = assembly
        self._tasks = tasks
        self._register_timeout = settings.register_timeout
        self.timeouts = CallTimeouts.of(settings)
        """How long recipients may take to answer."""
        self._is_stopping = False
        self._introducing: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._registry = assembly.registry

    def stop(self) -> None:
        """Let nobody in any more."""
        self._is_stopping = True
        self._registry.stop()

    def one_at_a_time(self, role_id: int, program: str) -> asyncio.Lock:
        """Give the lock that a registration keeps from introduction to end.

        A recipient takes calls only from the connection that was introduced to it last. Where a role has one recipient
        the last that comes is to be the last that is introduced; several need not wait for each other.

        Args:
            program: an address or a session, the same for all registrations of a program.
        """
        role = self._configuration.catalog.roles.get(role_id)
        is_shared = role is not None and role.is_shared
        return self._introducing.setdefault((role_id, program if is_shared else ""), asyncio.Lock())

    async def introduce(
        self, role_id: int, token_hash: bytes, uri: str, connect: Connect
    ) -> tuple[RecipientProxy, Handshake]:
        role = self._configuration.catalog.roles.get(role_id)
        if role_id in self._configuration.catalog.reader_roles:
            raise Refused(
                "the role is a reader's: its programs ask for what they read, and nothing is delivered to them",
                "read with xbus.reader, or register as a role of a worker or consumer",
                code="role_reads",
            )
        if role_id in self._configuration.catalog.runners:
            raise Refused(
                "the role is of a runner of bots: nothing is delivered to it",
                "run bots with xbus bot run, or register as a role of a worker or consumer",
                code="role_runs_bots",
            )
        if role is None:
            raise Refused("the role was removed", "name it again with xbus apply", code="session_unknown")
        if role.detached:
            raise Refused(
                "the role was detached: it is owed nothing any more",
                f"have an operator put it on the bus again with xbus recipient attach {quote(role.login)}",
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

        client = await connect(uri, lost)
        try:
            of_token = token_hash if client.connection is None else None
            introduction = await introduce(client, of_token, self._register_timeout)
            introduction.check_kind(role)
        except BaseException:
            client.close()
            raise
        recipient = RecipientProxy(
            *(role, token_hash, uri, client, introduction.abilities, self.timeouts, self._registry.leave),
            self._journal.leads_until,
        )
        known.append(recipient)
        return recipient, introduction

    def _lost(self, recipient: RecipientProxy) -> None:
        if not self._registry.is_connected(recipient):
            recipient.close()
            return
        self._tasks.create_task(self.unregister(recipient, "the connection was lost"))

    def admit(self, recipient: RecipientProxy, silent: Sequence[RecipientProxy] = ()) -> list[RecipientProxy]:
        """Let a recipient serve its role, unless the broker stops: what began then would be broken off at once.

        Returns:
            The programs that it displaced.

        Raises:
            Failed: broker_stopping.
        """
        if self._is_stopping:
            recipient.close()
            raise Failed("the broker is stopping", "register again when it is back", code="broker_stopping")
        # Its role may have been paused, or resumed, while it introduced itself.
        recipient.role = self._configuration.catalog.roles.get(recipient.role.id, recipient.role)
        return self._registry.add(recipient, silent)

    async def unregister(self, recipient: RecipientProxy, reason: str) -> None:
        """End the service of a recipient for its role; its unfinished work is redelivered when the role is served."""
        if not self._registry.is_connected(recipient):
            return
        self._registry.remove(recipient, reason)
        await self.strike_off(recipient)

    async def strike_off(self, recipient: RecipientProxy) -> None:
        try:
            await self._journal.write(Unregister(recipient.role.id, recipient.token_hash, recipient.uri))
        except JournalUnavailable as error:
            # It only means that a restarted broker looks for it once in vain.
            log.warning("registration not removed: %s", error, extra={"action": "registration_kept"})

    def describe(self, role_id: int, uri: str) -> dict[str, str]:
        """Name the recipient that a line of the log is about."""
        return {"role": self.login_of(role_id), "uri": uri[:LONGEST_URI]}

    def login_of(self, role_id: int) -> str:
        role = self._configuration.catalog.roles.get(role_id)
        return str(role_id) if role is None else role.login
