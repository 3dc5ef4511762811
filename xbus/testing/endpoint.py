"""A recipient in virtual time: the SDK's real API, reached by a virtual network."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable

from xbus.clock import Clock
from xbus.errors import ConnectionLost, Failed, XbusError
from xbus.recipient.api import RecipientApi
from xbus.recipient.base import Recipient
from xbus.recipient.bulk import BulkJobs
from xbus.recipient.calls import AuthorThread, Calls
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import Dispatch
from xbus.testing.broker import VirtualBroker
from xbus.testing.network import VirtualProcess

LOST = b"lost"
"""The channel of a process that has noticed that its connection is gone: nobody calls by it."""

LOOK_SECONDS = 2.0
"""Seconds between looks whether the broker still knows a recipient, as by heartbeats."""

WAIT_SECONDS = 0.5
"""Seconds between looks for a broker that is up."""

END_SECONDS = 2.0
"""Seconds that open envelopes may take to end when a recipient stops."""

LAST_ANSWERS_SECONDS = 0.5
"""Seconds that the last answers may take to the broker before a recipient logs out."""


class RecipientEndpoint:
    """Serves one recipient, from its start to its end.

    Args:
        author: the author's.
        calls: the author's methods.
        desk: where they run.
        clock: tells the time.
        jobs: what a bulk worker is at; without it a bulk worker is served like any other worker.

    Attributes:
        api: the verbs that the broker calls.
        caller: the connection of the call that is carried out now.
        channel: by which alone the broker may call; None where the process is called at its address.
        started: done when the author's ``on_start`` has returned.
    """

    def __init__(
        self, author: Recipient, calls: Calls, desk: AuthorThread, clock: Clock, jobs: BulkJobs | None = None
    ) -> None:
        self.caller = b""
        self.channel: bytes | None = None
        self._calls = calls
        self._jobs = jobs
        self._desk = desk
        self.api = RecipientApi(author, calls, desk, clock, lambda: None, jobs)
        self.api.deliveries.way = self
        self._dispatch = Dispatch(self.api)
        self.started = desk.give(calls.start)

    def handle(self, caller: bytes, verb: str, args: list[Value]) -> object:
        """Answer a verb of the broker.

        Raises:
            Failed: it comes by the connection of an earlier registration (``connection_superseded``).
        """
        if self.channel not in (None, caller):
            raise Failed("the recipient has registered anew", code="connection_superseded")
        self.caller = caller
        return self._dispatch.call(verb, args, {})

    async def end(self) -> None:
        """Roll back what is open, and run the author's ``on_stop``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.api.roll_back_all()
                await self._desk.give(self._calls.stop)

    def kill(self) -> None:
        """End as a process does that is killed."""
        for attempt_id in self._jobs.attempts if self._jobs is not None else ():
            assert self._jobs is not None
            self._jobs.forget(attempt_id)
        self._desk.close()


class VirtualRecipient(VirtualProcess):
    """A program that provides a role.

    Args:
        login: of the role.
        serve: makes what it serves, anew each time that it starts.
        name: tells it from other programs of the role.
        listens: whether the broker calls it at an address, and not over the connection that it makes.
    """

    def __init__(
        self, login: str, serve: Callable[[], RecipientEndpoint], name: str = "", *, listens: bool = False
    ) -> None:
        super().__init__(serve)
        self.login = login
        self.name = name or login
        self._listens = listens
        self._registrations = itertools.count()

    @property
    def address(self) -> str:
        """Give the address at which the broker reaches it."""
        return f"virtual://{self.name}"

    @property
    def _endpoint(self) -> RecipientEndpoint:
        assert isinstance(self.served, RecipientEndpoint)
        return self.served

    @property
    def api(self) -> RecipientApi:
        """The verbs of the process that runs now."""
        return self._endpoint.api

    def miss(self, channel: bytes) -> None:
        """Notice that the connection of a registration is gone."""
        if isinstance(self.served, RecipientEndpoint) and self.served.channel == channel:
            self.served.channel = LOST

    async def stop(self, role_id: int, broker: VirtualBroker | None) -> None:
        """Stop in order: end what is open, log out at the broker, and go down."""
        self.api.deliveries.is_closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.api.deliveries.idle()
        registered = None
        if broker is not None and broker.serves:
            registered = broker.back.registry.find(role_id, self.name.encode())
        if broker is not None and registered is not None:
            await asyncio.sleep(LAST_ANSWERS_SECONDS)
            with contextlib.suppress(ConnectionLost):
                await broker.unless_dead(broker.back.unregister(registered, "it logged out"))
        if isinstance(self.served, RecipientEndpoint):
            await self.served.end()
        self.kill()

    async def keep_registered(self, role_id: int, find_broker: Callable[[], VirtualBroker | None]) -> None:
        """Register, and again whenever the broker does not know us, as ``recipient.registration`` does.

        Args:
            role_id: of the role.
            find_broker: gives the broker that runs now, or None.
        """
        while True:
            broker = find_broker()
            if broker is None or not broker.serves or self.served is None:
                await asyncio.sleep(WAIT_SECONDS)
            elif self.is_stopped or self.api.deliveries.is_closing or self._is_registered(role_id, broker):
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await self._register(role_id, broker)

    def _is_registered(self, role_id: int, broker: VirtualBroker) -> bool:
        """Ask as by a heartbeat, unless the connection is known to be gone."""
        recipient = broker.back.registry.find(role_id, self.name.encode())
        return recipient is not None and recipient.may_speak_over(self._endpoint.channel or b"")

    async def _register(self, role_id: int, broker: VirtualBroker) -> None:
        endpoint, token_hash = self._endpoint, self.name.encode()
        try:
            await endpoint.api.roll_back_all()
            if self._listens:
                await broker.unless_dead(broker.back.register(role_id, token_hash, self.address))
            else:
                endpoint.channel = b"%s %d" % (token_hash, next(self._registrations))
                await broker.serve(role_id, token_hash, self, endpoint.channel)
            endpoint.api.registered()
        except XbusError:
            await asyncio.sleep(1)
