"""The contract of the back: the double gives recipients the same answers as the real broker, and asks them the same."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.integration.recipient.broker_double import LOGIN, SECONDS, BrokerDouble
from xbus.errors import Refused
from xbus.rpc.client import Client
from xbus.rpc.context import Context, new_context
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.messages import BackLogin, Registered, ServingLimits
from xbus.rpc.server import Server
from xbus.rpc.shapes import AnswerReader

_LOGIN = AnswerReader("xbus.login", BackLogin)
_SERVED = AnswerReader("xbus.serve", ServingLimits)
_HEARTBEAT = AnswerReader("xbus.heartbeat", Registered)


class Introduced:
    """The verbs by which a broker asks a recipient who it is; notes the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @verb("get_metadata")
    def get_metadata(self) -> dict[str, Any]:
        self.calls.append("get_metadata")
        texts = dict.fromkeys(("name", "host", "start_date", "local_time"), "here")
        return {**texts, "version": 0.1, "api_version": 0.1}

    @verb("has_clearing")
    def has_clearing(self) -> tuple[bool, None]:
        self.calls.append("has_clearing")
        return False, None

    @verb("has_immediate_reply")
    def has_immediate_reply(self) -> tuple[bool, None]:
        self.calls.append("has_immediate_reply")
        return False, None


class Role:
    """A recipient that calls the back's verbs as they are, with the token of a session of its own.

    Args:
        serves: whether it is called over its connection to the back, and not at an address.
    """

    def __init__(self, context: Context, address: str, closing: ExitStack, serves: bool) -> None:
        self._serves = serves
        self._client = Client(context, name=address)
        closing.callback(self._client.close)
        self._client.connect(address)
        self.asked = Introduced()
        server = Server(context, Dispatch(self.asked), name="recipient", limits=ServerLimits(-1))
        closing.callback(server.close)
        self.uri = server.bind("tcp://127.0.0.1:0")
        server.start()
        self.token = ""

    async def log_in(self, login: str = LOGIN, password: str = "password") -> BackLogin:
        """Begin a session; the calls after it are made with that."""
        answer = _LOGIN.read(await self._client.call("xbus.login", login, password, timeout=SECONDS))
        self.token = answer["token"]
        return answer

    async def register(self) -> Any:
        """Register in its way; true for a registration."""
        if not self._serves:
            return await self.call("register_node", self.uri)
        channel = secrets.token_bytes(16)
        self._client.channels.open(channel, Dispatch(self.asked))
        answer = await self.call("serve", channel)
        return _SERVED.read(answer)["max_batch_bytes"] > 0

    async def call(self, name: str, *arguments: Any) -> Any:
        return await self._client.call(f"xbus.{name}", self.token, *arguments, timeout=SECONDS)

    async def is_registered(self) -> bool:
        return _HEARTBEAT.read(await self.call("heartbeat"))["registered"]

    async def refused(self, code: str, name: str, *arguments: Any) -> None:
        """See that a call is refused with a code."""
        with pytest.raises(Refused) as refusal:
            await self.call(name, *arguments)
        assert refusal.value.code == code


NewRole = Callable[[], Role]


@pytest.fixture(params=[True, False], ids=["own connection", "port"])
def serves(request: pytest.FixtureRequest) -> bool:
    """Whether recipients are called over the connections that they make."""
    return bool(request.param)


@pytest.fixture(params=["double", "real"])
async def new_role(request: pytest.FixtureRequest, serves: bool) -> AsyncIterator[NewRole]:
    """Makes recipients of the role, for the double and then for the back of a broker."""
    context = new_context()
    with ExitStack() as closing:
        closing.callback(context.destroy, linger=0)
        if request.param == "double":
            double = BrokerDouble(context).start()
            closing.callback(double.stop)
            address = double.address
        else:
            address = request.getfixturevalue("demo_broker").back
        yield lambda: Role(context, address, closing, serves)


@pytest.fixture
async def role(new_role: NewRole) -> Role:
    """A recipient that is logged in."""
    made = new_role()
    await made.log_in()
    return made


async def test_a_login_tells_what_a_recipient_must_know(role: Role) -> None:
    answer = await role.log_in()
    assert answer["session_seconds"] == 3600
    assert answer["max_batch_bytes"] > 0
    assert answer["heartbeat"] >= 0


@pytest.mark.parametrize(("login", "password"), [(LOGIN, "wrong"), ("nobody", "password"), ("", "")])
async def test_a_wrong_login_is_refused(role: Role, login: str, password: str) -> None:
    with pytest.raises(Refused) as refusal:
        await role.log_in(login, password)
    assert refusal.value.code == "login_refused"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("logout", ()),
        ("register_node", ("tcp://127.0.0.1:1",)),
        ("serve", (b"a channel",)),
        ("ready", ()),
        ("heartbeat", ()),
        ("heartbeat", ([],)),
    ],
)
async def test_an_unknown_session_is_refused_everywhere(role: Role, name: str, arguments: tuple[Any, ...]) -> None:
    role.token = "nothing"
    await role.refused("session_unknown", name, *arguments)


async def test_a_session_is_no_registration(role: Role) -> None:
    assert await role.call("ready") is False
    assert await role.is_registered() is False


async def test_who_registers_is_asked_who_it_is(role: Role) -> None:
    assert await role.register() is True
    assert role.asked.calls == ["get_metadata", "has_clearing", "has_immediate_reply"]
    assert await role.is_registered() is True
    assert _HEARTBEAT.read(await role.call("heartbeat", [])) == {"registered": True}
    assert await role.call("ready") is True


async def test_a_registration_may_be_repeated(role: Role) -> None:
    for _ in range(2):
        assert await role.register() is True
        assert await role.is_registered() is True


async def test_a_logout_ends_session_and_registration(role: Role) -> None:
    await role.register()
    assert await role.call("logout") is True
    await role.refused("session_unknown", "heartbeat")
    await role.refused("session_unknown", "logout")
    await role.log_in()
    assert await role.is_registered() is False


async def test_the_newest_serves_the_role_and_the_older_one_is_told(role: Role, new_role: NewRole) -> None:
    await role.register()
    newer = new_role()
    await newer.log_in()
    assert await newer.register() is True
    assert await newer.is_registered() is True
    assert await role.call("ready") is False
    await role.refused("displaced", "heartbeat")
    # That the older one goes changes nothing for the newer.
    assert await role.call("logout") is True
    assert await newer.is_registered() is True
