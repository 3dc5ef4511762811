"""Clients that nobody here wrote: emitters, workers and consumers on aiozmq, as they ran with xbus.broker 0.2.0."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import aiozmq.rpc

from tests.support.bus import PASSWORD
from tests.support.waiting import DEADLINE_SECONDS, eventually

CALL_SECONDS = 90.0
TOGETHER_SECONDS = 1.0
METADATA = {
    "name": "old recipient",
    "version": 0.1,
    "api_version": 0.1,
    "host": "here",
    "start_date": "2016-01-01T00:00:00",
    "local_time": "2016-01-01T00:00:00",
}


async def connect(address: str, timeout: float = CALL_SECONDS) -> Any:
    """A client of a broker; calls are ``await client.call.login("a", "b")``."""
    return await aiozmq.rpc.connect_rpc(connect=address, timeout=timeout)


async def close(client: Any) -> None:
    """Close a client or a server."""
    client.close()
    await client.wait_closed()


class OldEmitter:
    """An emitter of the old generation.

    Args:
        address: of the front.
        login: its login; the password is that of all tests.
        timeout: how long it waits for an answer, in seconds.
    """

    def __init__(self, address: str, login: str = "emitter_1", timeout: float = CALL_SECONDS) -> None:
        self._timeout = timeout
        self._address = address
        self._login = login
        self._client: Any = None
        self.token = ""

    async def __aenter__(self) -> "OldEmitter":
        self._client = await connect(self._address, self._timeout)
        self.token = await self.call.login(self._login, PASSWORD)
        assert self.token, "the login was refused"
        return self

    async def __aexit__(self, *_: object) -> None:
        await close(self._client)

    def be_patient_for(self, seconds: float) -> None:
        """Wait so long for an answer from now on; the login may have taken longer."""
        self._client = self._client.with_timeout(seconds)

    @property
    def call(self) -> Any:
        """The verbs as they are, without the token."""
        return self._client.call

    async def start(self, type_name: str = "test_event") -> tuple[str, str]:
        """Begin an envelope with one event; the ids of both."""
        envelope_id = await self.call.start_envelope(self.token)
        return envelope_id, await self.start_event(envelope_id, type_name)

    async def start_event(self, envelope_id: str, type_name: str = "test_event") -> str:
        event_id: str = await self.call.start_event(self.token, envelope_id, type_name, 0)
        assert event_id, f"start_event of {type_name} was refused"
        return event_id

    async def send(self, envelope_id: str, event_id: str, *items: bytes) -> None:
        """Send items one after the other, and have all of them acknowledged."""
        for item in items:
            assert await self.call.send_item(self.token, envelope_id, event_id, item) is True

    async def end_event(self, envelope_id: str, event_id: str) -> None:
        assert await self.call.end_event(self.token, envelope_id, event_id) == (True, None)

    async def end(self, envelope_id: str, *event_ids: str) -> None:
        """End events and their envelope."""
        for event_id in event_ids:
            await self.end_event(envelope_id, event_id)
        assert await self.call.end_envelope(self.token, envelope_id) is True

    async def emit(self, *items: bytes, type_name: str = "test_event") -> str:
        """Send a whole envelope of one event; its id."""
        envelope_id, event_id = await self.start(type_name)
        await self.send(envelope_id, event_id, *items)
        await self.end(envelope_id, event_id)
        return envelope_id


class OldRecipient(aiozmq.rpc.AttrHandler):  # type: ignore[misc]
    """A recipient of the old generation, which notes what it is called.

    Args:
        address: of the back.
        login: its role; the password is that of all tests.
    """

    def __init__(self, address: str, login: str) -> None:
        self._address = address
        self.login = login
        self._client: Any = None
        self._service: Any = None
        self.token = ""
        self.calls: list[tuple[Any, ...]] = []
        self.behave: dict[str, Callable[..., Any]] = {}
        """What is done instead of the usual, by verb; called with the arguments, and may return an awaitable."""

    # -- its life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "OldRecipient":
        await self.serve()
        assert await self.register(), "the registration was refused"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def serve(self) -> None:
        """Log in, and listen."""
        self._service = await aiozmq.rpc.serve_rpc(self, bind="tcp://127.0.0.1:*")
        self._client = await connect(self._address)
        self.token = await self.call.login(self.login, PASSWORD)
        assert self.token, "the login was refused"

    async def register(self) -> bool:
        return bool(await self.call.register_node(self.token, self.uri))

    async def leave(self) -> None:
        """Go without a word."""
        if self._service is not None:
            await close(self._service)
            await close(self._client)
        self._service = None

    @property
    def uri(self) -> str:
        return str(next(iter(self._service.transport.bindings())))

    @property
    def call(self) -> Any:
        """The back's verbs."""
        return self._client.call

    # -- what it got -----------------------------------------------------------------------------------------------

    def got(self, verb: str) -> list[list[Any]]:
        """The arguments of all calls of a verb."""
        return [args for name, *args in self.calls if name == verb]

    def items(self, envelope_id: str | None = None) -> list[bytes]:
        """All items, in order of arrival."""
        return [args[3] for args in self.got("send_item") if envelope_id in (None, args[0])]

    def verbs(self, envelope_id: str) -> list[str]:
        """The calls for one envelope in order."""
        return [call[0] for call in self.calls if call[1:2] == (envelope_id,)]

    @property
    def committed(self) -> list[str]:
        """The ids of the envelopes that it was told the end of, in that order."""
        return [args[0] for args in self.got("end_envelope")]

    async def wait_for(self, envelope_ids: Iterable[str], timeout: float = DEADLINE_SECONDS) -> None:
        """Wait until these envelopes have ended."""
        wanted = set(envelope_ids)
        await eventually(lambda: wanted <= set(self.committed), f"{self.login} gets {len(wanted)} envelopes", timeout)

    # -- what the broker calls -------------------------------------------------------------------------------------

    async def _do(self, verb: str, *args: Any) -> Any:
        self.calls.append((verb, *args))
        usual = getattr(self, f"do_{verb}", lambda *_: (True, None))
        answer = self.behave.get(verb, usual)(*args)
        return await answer if inspect.isawaitable(answer) else answer

    def do_get_metadata(self) -> Any:
        return METADATA

    def do_ping(self, token: str) -> Any:
        return token

    def do_has_clearing(self) -> Any:
        return False, None

    def do_has_immediate_reply(self) -> Any:
        return False, []

    def do_stop_envelope(self, envelope_id: str) -> Any:
        return True

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def get_metadata(self) -> Any:
        return await self._do("get_metadata")

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def ping(self, token: Any) -> Any:
        return await self._do("ping", token)

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def has_clearing(self) -> Any:
        return await self._do("has_clearing")

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def has_immediate_reply(self) -> Any:
        return await self._do("has_immediate_reply")

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def start_event(self, envelope_id: Any, event_id: Any, type_name: Any) -> Any:
        return await self._do("start_event", envelope_id, event_id, type_name)

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def send_item(self, envelope_id: Any, event_id: Any, indices: Any, data: Any) -> Any:
        return await self._do("send_item", envelope_id, event_id, list(indices), data)

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def end_event(self, envelope_id: Any, event_id: Any) -> Any:
        return await self._do("end_event", envelope_id, event_id)

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def end_envelope(self, envelope_id: Any) -> Any:
        return await self._do("end_envelope", envelope_id)

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def stop_envelope(self, envelope_id: Any) -> Any:
        return await self._do("stop_envelope", envelope_id)


class OldConsumer(OldRecipient):
    """Takes everything."""


class OldWorker(OldRecipient):
    """Marks each item with its login, and says that it is ready again after each event.

    Args:
        make: from the indices and the data of an item the items that it answers.
    """

    def __init__(
        self, address: str, login: str, make: Callable[[list[int], bytes], list[tuple[list[int], bytes]]] | None = None
    ) -> None:
        super().__init__(address, login)
        self._make = make or (lambda indices, data: [(indices, data + b" " + login.encode())])
        self._tasks: set[asyncio.Task[None]] = set()

    def do_send_item(self, envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
        return True, self._make(indices, data)

    def do_end_event(self, envelope_id: str, event_id: str) -> Any:
        task = asyncio.create_task(self.say_ready())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True, None

    async def say_ready(self) -> None:
        assert await self.call.ready(self.token) is True


async def share_runs(emitter: OldEmitter, consumers: Sequence[OldRecipient], type_name: str = "test_event") -> None:
    """Send empty envelopes until consumers get one in the same run, and forget what they were asked so far.

    Who has just come reads the log alone, until it stands where the others stand: what one refuses is no matter of the
    others then.
    """
    first, *others = consumers
    together: list[bool] = []

    async def wait_for_others(envelope_id: str, event_id: str) -> Any:
        def are_in_it() -> bool:
            return all("start_event" in other.verbs(envelope_id) for other in others)

        with contextlib.suppress(AssertionError):  # runs of one envelope come one after another
            await eventually(are_in_it, "the others are in this run too", TOGETHER_SECONDS)
        together.append(are_in_it() and not any(envelope_id in other.committed for other in others))
        return True, None

    first.behave["end_event"] = wait_for_others
    while not any(together):
        envelope_id = await emitter.emit(type_name=type_name)
        for consumer in consumers:
            await consumer.wait_for([envelope_id])
    del first.behave["end_event"]
    for consumer in consumers:
        consumer.calls.clear()
