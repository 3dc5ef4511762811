"""A broker that registers one recipient and calls it as a test says, over real sockets."""

import asyncio
from collections import defaultdict, deque
from typing import Any

from xbus.errors import ConfigurationError, Refused
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import Context
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.server import Server


class BrokerDouble:
    """Serves the back's verbs, and calls the recipient that registered.

    Attributes:
        calls: the verbs called by the recipient, in order.
        faults: exceptions that the next calls of a verb come to.
        heartbeat_seconds: how often it wants to be told what is under way; 0 for never.
        work: what it was told last.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._server: Server | None = None
        self.address = "tcp://127.0.0.1:*"
        self.tokens: set[str] = set()
        self.registered: set[str] = set()
        self.calls: list[str] = []
        self.uris: list[str] = []
        self.faults: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self.recipient: Client | None = None
        self.heartbeat_seconds = 0.0
        self.work: Any = None

    def start(self) -> "BrokerDouble":
        """Listen, at the address of before."""
        server = Server(self._context, Dispatch(self), name="broker double", max_message_bytes=-1)
        try:
            self.address = server.bind(self.address)
        except ConfigurationError:
            server.close()
            raise
        self._server = server
        server.start()
        return self

    def stop(self) -> None:
        """Vanish, with every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self.recipient is not None:
            self.recipient.close()
            self.recipient = None

    def restart(self) -> None:
        """Go down, forget everything and come back."""
        self.stop()
        self.tokens.clear()
        self.registered.clear()
        self._start_again()

    def _start_again(self) -> None:
        try:
            self.start()
        except ConfigurationError:  # libzmq has not let go of the port yet
            asyncio.get_running_loop().call_later(0.01, self._start_again)

    def call(self, name: str, *arguments: Any) -> "asyncio.Future[Any]":
        """Call a verb of the recipient."""
        assert self.recipient is not None
        return self.recipient.call(name, *arguments, timeout=5)

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
        if password != "password":
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
        self._note("register_node", token)
        self.uris.append(uri)
        if self.recipient is not None:
            self.recipient.close()
        self.recipient = Client(self._context, name=uri)
        self.recipient.connect(uri)
        await self.call("get_metadata")
        self.registered.add(token)
        return True

    @verb("xbus.ready")
    def ready(self, token: str) -> bool:
        self._note("ready", token)
        return True

    @verb("xbus.heartbeat")
    def heartbeat(self, token: str, work: Any = None) -> dict[str, bool]:
        self._note("heartbeat", token)
        self.work = work
        return {"registered": token in self.registered}
