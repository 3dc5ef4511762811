"""A broker that registers one recipient and calls it as a test says, over real sockets."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from tests.support.doubles import Double
from xbus.errors import Refused
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import Context
from xbus.rpc.dispatch import verb
from xbus.rpc.owed_calls import Callee

SECONDS = 60.0
"""How long an answer is waited for that comes at once on an idle machine."""


LOGIN = "consumer_role"
"""The role that may log in, as the classic demo rows have it; its password is ``password``."""


class BrokerDouble(Double):
    """Serves the back's verbs, and calls the recipient that registered; ``test_broker_contract.py`` holds it to the
    answers of the real broker.

    Attributes:
        heartbeat_seconds: how often it wants to be told what is under way; 0 for never.
        work: what it was told last.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.registered: set[str] = set()
        self._displaced: set[str] = set()
        self.uris: list[str] = []
        self.recipient: Callee | None = None
        self.heartbeat_seconds = 0.0
        self.work: Any = None

    def stop(self) -> None:
        super().stop()
        if self.recipient is not None:
            self.recipient.close()
            self.recipient = None

    def restart(self) -> None:
        """Go down, forget everything and come back."""
        self.stop()
        self.tokens.clear()
        self.registered.clear()
        self._displaced.clear()
        self.start_again()

    def call(self, name: str, *arguments: Any) -> "asyncio.Future[Any]":
        """Call a verb of the recipient."""
        assert self.recipient is not None
        return self.recipient.call(name, *arguments, timeout=SECONDS)

    def start_event(self, envelope_id: str, event_id: str, type_name: str = "test_event") -> "asyncio.Future[Any]":
        """Begin an event there."""
        return self.call("start_event", envelope_id, event_id, type_name)

    def send(
        self, envelope_id: str, event_id: str, first_index: int, *items: bytes, indices: list[list[int]] | None = None
    ) -> "asyncio.Future[Any]":
        """Send a batch there."""
        data = pack_items(items)
        return self.call("xbus.send_items", envelope_id, event_id, first_index, len(items), data, indices)

    def end_event(self, envelope_id: str, event_id: str) -> "asyncio.Future[Any]":
        """End an event there."""
        return self.call("xbus.end_event", envelope_id, event_id)

    def _note(self, name: str, token: str | None = None) -> None:
        self.calls.append(name)
        if self.faults[name]:
            raise self.faults[name].popleft()
        if token is not None and token not in self.tokens:
            raise Refused("the session is unknown", code="session_unknown")

    @verb("xbus.login")
    def login(self, login: str, password: str) -> dict[str, Any]:
        self._note("login")
        if (login, password) != (LOGIN, "password"):
            raise Refused("login or password are wrong", "see the role's password", code="login_refused")
        token = f"token {self.calls.count('login')}"
        self.tokens.add(token)
        return {"token": token, "session_seconds": 3600, "max_batch_bytes": 1000, "heartbeat": self.heartbeat_seconds}

    @verb("xbus.logout")
    def logout(self, token: str) -> bool:
        self._note("logout", token)
        self.tokens.discard(token)
        self.registered.discard(token)
        return True

    @verb("xbus.register_node")
    async def register_node(self, token: str, uri: str) -> bool:
        self._note("register", token)
        self.uris.append(uri)
        client = Client(self._context, name=uri)
        client.connect(uri)
        await self._register(token, client)
        return True

    @verb("xbus.serve")
    def serve(self, token: str, channel: bytes) -> Awaitable[dict[str, Any]]:
        self._note("register", token)
        assert self._server is not None
        return self._serve(token, self._server.client_of(self._server.caller, channel, "recipient", lambda: None))

    async def _serve(self, token: str, recipient: Callee) -> dict[str, Any]:
        await self._register(token, recipient)
        return {"max_batch_bytes": 1000, "heartbeat": self.heartbeat_seconds}

    async def _register(self, token: str, recipient: Callee) -> None:
        if self.recipient is not None:
            self.recipient.close()
        self.recipient = recipient
        for question in ("get_metadata", "has_clearing", "has_immediate_reply"):
            await self.call(question)
        # The newest serves the role.
        self._displaced = (self._displaced | self.registered) - {token}
        self.registered = {token}

    @verb("xbus.ready")
    def ready(self, token: str) -> bool:
        self._note("ready", token)
        return token in self.registered

    @verb("xbus.heartbeat")
    def heartbeat(self, token: str, work: Any = None) -> dict[str, bool]:
        self._note("heartbeat", token)
        if token in self._displaced:
            raise Refused("another recipient has the role", code="displaced")
        self.work = work
        return {"registered": token in self.registered}
