"""The ways by which the broker reaches a recipient, and the connection by which it may call.

It comes over the connection that the recipient made to the back, or to an address at which the recipient listens. That
address is encrypted where the recipient knows the key of the broker, whom alone it lets in.
"""

import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Protocol, TypeAlias
from urllib.parse import quote

from xbus.clock import Clock
from xbus.errors import Failed, Refused
from xbus.ids import proof_of
from xbus.rpc.answering import Channels
from xbus.rpc.codec import Value
from xbus.rpc.context import Context
from xbus.rpc.curve import Authenticator, BrokerAddress
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.messages import ServingLimits
from xbus.rpc.server import EncryptedDoor, Server
from xbus.rpc.shapes import AnswerReader

MAX_MESSAGE_BYTES = 134_217_728
"""The largest message that is read; a broker's batches are far below."""

CallBack: TypeAlias = Callable[..., Awaitable[Value]]
"""Calls a verb of the back, with the token of the role."""

CHANNEL_BYTES = 16
"""Bytes of a channel: enough that nobody can guess one."""

_SERVED = AnswerReader("xbus.serve", ServingLimits)

CHALLENGE_BYTES = 32

MOST_CALLERS = 100
"""The most connections of which a challenge or a proof is remembered."""

OPEN_VERBS = frozenset({"ping", "xbus.challenge", "xbus.prove"})
"""The verbs that need no proof: they tell nothing, and change nothing of others."""

DOMAIN = "recipient"
"""Under which libzmq asks who may connect."""

NOBODY = b"nobody"
"""No connection's name: those that libzmq gives begin with a zero."""

MAX_INTRODUCED = 100
"""The most connections to remember that have asked for the metadata and for nothing else."""


class BrokerWay(Protocol):
    """A way by which the broker reaches the recipient."""

    @property
    def name(self) -> str:
        """The way, for the log."""

    @property
    def is_open(self) -> bool:
        """Check whether the broker can still come by it, as far as is known here."""

    @property
    def outlives_connections(self) -> bool:
        """Check whether a session may be registered several times: each connection needs a registration."""

    @property
    def caller(self) -> bytes:
        """The connection of the broker by which the call came that is carried out now."""

    def expect(self, token_hash: bytes) -> None:
        """Let nobody call who does not know the hash of the session's token.

        Args:
            token_hash: of the session by which the next registration is made.
        """

    async def register(self, call: CallBack) -> ServingLimits | None:
        """Register anew. Calls by the registration before are refused from now on.

        Raises:
            CallError: as the back answers.
        """

    def start(self) -> None:
        """Begin to take calls."""

    def close(self) -> None:
        """Take no more calls."""


class OwnConnection:
    """The broker calls over the connection that the recipient has made to the back. No port is opened.

    Args:
        channels: of that connection.
        dispatch: the verbs that the broker calls.
    """

    name = "own connection"
    outlives_connections = True

    def __init__(self, channels: Channels, dispatch: Dispatch) -> None:
        self._channels = channels
        self._dispatch = dispatch
        self.caller = b""

    @property
    def is_open(self) -> bool:
        """Check whether the connection of the registration is still there."""
        return self._channels.is_open(self.caller)

    def expect(self, token_hash: bytes) -> None:
        """Do nothing: the broker alone knows the channel."""

    async def register(self, call: CallBack) -> ServingLimits:
        """Open a new channel, and have the broker call by it."""
        self.close()
        # Only one channel is open: each call that is carried out comes by it.
        self.caller = secrets.token_bytes(CHANNEL_BYTES)
        self._channels.open(self.caller, self._dispatch)
        try:
            return _SERVED.read(await call("xbus.serve", self.caller))
        except Refused as refusal:
            if refusal.code != "unknown_method":
                raise
            raise Refused(
                "the broker is too old to call a recipient over the recipient's own connection",
                "upgrade the broker, or let the recipient listen: bind=, on the command line --bind",
                code=refusal.code,
            ) from refusal

    def start(self) -> None:
        """Do nothing: the broker calls only after the registration."""

    def close(self) -> None:
        """Refuse what the broker still sends."""
        self._channels.close(self.caller)


class BrokerProof:
    """Lets those call who have shown that they know the hash of the recipient's token: the broker alone keeps it.

    Args:
        caller: tells by which connection the call came that is carried out now.
    """

    def __init__(self, caller: Callable[[], bytes]) -> None:
        self._caller = caller
        self._token_hash: bytes | None = None
        self._challenges: deque[tuple[bytes, bytes]] = deque(maxlen=MOST_CALLERS)
        self._proven: deque[bytes] = deque(maxlen=MOST_CALLERS)

    def expect(self, token_hash: bytes) -> None:
        """Demand the proof from now on, for this session."""
        self._token_hash = token_hash

    @verb("xbus.challenge")
    def challenge(self) -> bytes:
        """Give the bytes that the caller's proof is to be made of."""
        made = secrets.token_bytes(CHALLENGE_BYTES)
        self._challenges.append((self._caller(), made))
        return made

    @verb("xbus.prove")
    def prove(self, proof: bytes) -> bool:
        """Take the caller for the broker.

        Raises:
            Refused: not_proven.
        """
        caller = self._caller()
        of_caller = [challenge for whose, challenge in self._challenges if whose == caller]
        if self._token_hash is None or not of_caller:
            raise _not_proven()
        if not compare_digest(proof_of(self._token_hash, of_caller[-1]), proof):
            raise _not_proven()
        self._proven.append(caller)
        return True

    def admit(self, verb_name: str) -> None:
        """Let a call pass.

        Raises:
            Refused: not_proven.
        """
        refusal = None if verb_name in OPEN_VERBS else self.refusal()
        if refusal is not None:
            raise refusal

    def refusal(self) -> Refused | None:
        """Give the refusal of whoever calls now; None if that is the broker, or nobody needs a proof yet."""
        return None if self._token_hash is None or self._caller() in self._proven else _not_proven()


def _not_proven() -> Refused:
    return Refused(
        "the caller has not shown that it is the broker at which this recipient registered",
        "prove it: xbus.challenge, xbus.prove",
        code="not_proven",
    )


class OwnPort:
    """The recipient listens at an address, and the broker connects there.

    Without encryption everybody gets in, and has to prove that he is the broker. With it nobody else gets in.

    Args:
        api: the verbs that the broker calls.
        login: of the role, for the log.
        context: of the recipient.
        broker: the way to the broker; with its keys the recipient's address is encrypted, too.
        address: where to listen. Nothing is read from there yet.
        advertise: the address for the broker, if it is another one; ``{port}`` becomes the port that was taken.
        clock: stamps the answers.

    Raises:
        ConfigurationError: ``address_in_use`` or ``bad_address``.
    """

    is_open = True
    outlives_connections = False

    def __init__(
        self,
        api: object,
        login: str,
        context: Context,
        broker: BrokerAddress,
        address: str,
        advertise: str,
        clock: Clock,
    ) -> None:
        self._broker = broker
        self._proof = proof = BrokerProof(lambda: self._server.caller)
        self._server = Server(
            context,
            Dispatch(api, proof, admit=proof.admit, refusal=proof.refusal),
            name=f"recipient {login}",
            limits=ServerLimits(max_message_bytes=MAX_MESSAGE_BYTES),
            clock=clock,
        )
        self._authenticator = None if broker.own is None else Authenticator(context, clock)
        try:
            endpoint = self._bind(address)
        except BaseException:
            self.close()
            raise
        self.name = (advertise or endpoint).replace("{port}", endpoint.rpartition(":")[2])
        if broker.own is not None:
            # The key by which the broker knows this recipient.
            self.name += f"?key={quote(broker.own.public, safe='')}"

    def _bind(self, address: str) -> str:
        own = self._broker.own
        if own is None or self._authenticator is None:
            return self._server.bind(address)
        self._authenticator.admit(DOMAIN, self._is_broker)
        return self._server.bind_encrypted(EncryptedDoor(address, own, DOMAIN, self._is_broker))

    def _is_broker(self, key: str) -> bool:
        return key == self._broker.server_key

    @property
    def caller(self) -> bytes:
        """The connection by which the call came."""
        return self._server.caller

    def expect(self, token_hash: bytes) -> None:
        """Demand the proof of each caller."""
        self._proof.expect(token_hash)

    async def register(self, call: CallBack) -> None:
        """Have the broker connect to the address."""
        await call("xbus.register_node", self.name)

    def start(self) -> None:
        """Let the broker in, and read the calls that come to the port."""
        if self._authenticator is not None:
            self._authenticator.start()
        self._server.start()

    def close(self) -> None:
        """Close the port."""
        self._server.close()
        if self._authenticator is not None:
            self._authenticator.close()


class Connections:
    """Lets the newest connection of the broker that was asked for call, and no other.

    Its calls by an earlier one may still be on their way: mixed with the next attempt it would make events begin
    twice, or items come twice. So with its first call about an envelope a connection by which somebody has asked for
    the metadata takes the place of the one before.

    A broker that comes without having been asked is turned away: it may run on a copy of the journal, and would take
    this recipient away from the live one. A live one that was started anew forgets nobody: the next heartbeat tells
    that it has lost the connection, and the recipient registers anew.
    """

    def __init__(self) -> None:
        self.current = b""
        """The one that may call; empty before there is any."""
        self._introduced: deque[bytes] = deque(maxlen=MAX_INTRODUCED)
        self._is_registered = False

    def introduce(self, caller: bytes) -> None:
        """Note that somebody has asked for the metadata by a connection.

        Raises:
            Failed: not_asked_for, as this recipient is registered already.
        """
        if caller == self.current or caller in self._introduced:
            return
        if self._is_registered:
            raise Failed("this recipient is registered already", "it registers anew by itself", code="not_asked_for")
        self._introduced.append(caller)

    def registered(self) -> None:
        """Expect no other broker from now on: the one that was asked has come."""
        self._is_registered = True

    def check(self, caller: bytes) -> bool:
        """Let a call about an envelope pass.

        Returns:
            Whether the connection has just taken the place of another: what that has left open is to be rolled back.

        Raises:
            Failed: connection_superseded.
        """
        if caller in self._introduced:
            while self._introduced.popleft() != caller:
                pass
            self.current = caller
            return True
        if self.current not in (b"", caller):
            raise Failed("the broker has connected anew", "call by the new connection", code="connection_superseded")
        return False

    def close(self) -> None:
        """Turn away what the broker still sends by the connection that it has: a new one is to come."""
        self._is_registered = False
        if self.current:
            self.current = NOBODY
