"""The calling side: it sends calls over one connection, in the order in which they are made."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial

from zmq import ZMQError

from xbus.backoff import Backoff
from xbus.clock import Clock, SystemClock
from xbus.errors import CallError, ConfigurationError, ConnectionLost, Failed, ProtocolError, Refused
from xbus.loop_turn import LoopTurn
from xbus.rpc.answering import Channels
from xbus.rpc.codec import Frame, Value
from xbus.rpc.context import Context, new_context
from xbus.rpc.curve import BrokerAddress, parse_addresses, shown
from xbus.rpc.dealers import ConnectionRefusal, Dealer, LibzmqDealer, PlainDealer, SendFrames, way_to
from xbus.rpc.frames import CHANNEL_CALL_FRAMES, decode_reply
from xbus.rpc.life_signs import NO_SIGNS, LifeSigns
from xbus.rpc.owed_calls import OwedCalls
from xbus.rpc.zmtp import TCP, watch_of_clients

log = logging.getLogger(__name__)


IPC = "ipc://"
"""The beginning of an address on the same machine."""

NOT_LEADING = "not_leading"
"""The code of a broker that stands by: another one leads."""

LEADS = "xbus.leads"
"""The verb of a broker that leads: it gives the id of its bus. One that stands by fails with ``not_leading``."""

ROUND_SECONDS = 0.1
LONGEST_ROUND_SECONDS = 0.5
"""The pause between two rounds of all addresses doubles up to the second. A shorter one finds the next leader sooner,
and costs brokers that stand by more connections."""

PLAIN_LIFE_SECONDS = 0.75
"""Seconds between signs of life of one server among several: a frozen one is left a little later than its lease ends
(``[broker] lease``, 3 s)."""

LIBZMQ_LIFE_SECONDS = 2.0
"""The same of a server that libzmq calls. That hears a large message only at its end, so a slow line needs the time."""

QUESTION_SECONDS = 3.0
"""Seconds that one server among several has to say whether it leads."""

HANDSHAKE_SECONDS = 1.5
"""Seconds that one server among several has to take a connection: the system takes it for one that is frozen."""


class Client(OwedCalls):
    """Calls the verbs of one server, or of the one that leads among several.

    With several addresses it asks each server first whether it leads: calls wait for the one that does. It turns to the
    next one where a server can't be reached, is lost, is silent, or stands by.

    A client connects anew by itself, but no call outlives the connection that it was made for: when that is lost every
    unanswered call fails, and none of them reaches the next server. The server may call back over the same connection,
    by the ``channels`` that are open here. Without a connection a call waits for one, or for a refusal of one.

    Args:
        context: of the whole process.
        name: whom it calls, for the errors.
        clock: measures how often an unreadable call is logged.
        max_message_bytes: a server that sends a larger frame is disconnected; -1 for no limit.
        on_lost: called once for each lost connection, after its calls have failed.
        life_signs: how soon it notices that nobody is at the other end.
    """

    def __init__(
        self,
        context: Context,
        *,
        name: str,
        clock: Clock | None = None,
        max_message_bytes: int = -1,
        on_lost: Callable[[], None] | None = None,
        life_signs: LifeSigns = NO_SIGNS,
    ) -> None:
        super().__init__(shown(name), _send_nothing)
        self._on_lost = on_lost
        self._context = context
        self._max_message_bytes = max_message_bytes
        self._life_signs = life_signs
        self._dealer: Dealer | None = None
        self._places: Sequence[BrokerAddress] = ()
        self._place = 0
        self._pause = Backoff(ROUND_SECONDS, LONGEST_ROUND_SECONDS)
        self._missed = 0
        """How many servers have been left since one led."""
        self._next: asyncio.TimerHandle | None = None
        self._is_connected = False
        """Whether calls are sent to a server, which leads."""
        self._bus = ""
        """The id of the bus of the first server that led."""
        self._asked: int | None = None
        """The number of the call by which a server is asked whether it leads."""
        self._patience: asyncio.TimerHandle | None = None
        """Ends the wait for its answer."""
        self._is_closed = False
        self._watch = watch_of_clients()
        self.turn = LoopTurn() if self._watch is None else self._watch.turn
        """At its end the calls and the answers of a turn of the loop are sent. An encrypted connection, and one over
        ipc, sends each at once."""
        self.channels = Channels(self.name, clock or SystemClock(), _send_nothing)
        """By them the other side may call us. All of them end with the connection."""

    def connect(self, address: str) -> None:
        """Begin to connect; calls made meanwhile are sent when the connection is there.

        Args:
            address: see :mod:`xbus.rpc.curve`.

        Raises:
            ConfigurationError: ``bad_address``, or the key file that it names can't be used.
        """
        self.connect_to(*parse_addresses(address))

    def connect_to(self, *places: BrokerAddress) -> None:
        """Begin to connect, as ``connect``, where the addresses were read before.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        for place in places[1:]:
            # They are tried later, when nobody is there who could be told.
            if not place.endpoint.startswith(IPC):
                way_to(place.endpoint)
        self._places = places
        self._connect()

    def _connect(self) -> None:
        self.refusal = None
        place = self._places[self._place]
        max_bytes, signs = self._max_message_bytes, self._life_signs
        is_plain = place.own is None and place.endpoint.startswith(TCP)
        if len(self._places) > 1:
            seconds = PLAIN_LIFE_SECONDS if is_plain else LIBZMQ_LIFE_SECONDS
            signs = replace(signs, heartbeat_seconds=seconds, handshake_seconds=HANDSHAKE_SECONDS)
        if is_plain:
            self._dealer = PlainDealer(self, place.endpoint, max_bytes, signs, self.turn, self._watch)
        else:
            self._dealer = LibzmqDealer(self, self._context, place, max_bytes, signs)
        self._dealer.connect()

    def _turn_to_next(self) -> None:
        """Leave this server for the next one, where there is one: at once, or after a pause where none leads."""
        if len(self._places) == 1 or self._next is not None or self._is_closed:
            return
        self._missed += 1
        pause = 0.0 if self._missed < len(self._places) else self._pause.next() * (0.5 + secrets.randbelow(100) / 100)
        self._next = self._loop.call_later(pause, self._connect_next)

    def _connect_next(self) -> None:
        if self._dealer is not None:
            self._dealer.close()
            self._dealer = None
        self.lost()
        self._next = None
        if self._is_closed:
            return
        self._place = (self._place + 1) % len(self._places)
        try:
            self._connect()
        except (ConfigurationError, OSError, ZMQError) as error:
            log.warning("%s: %s", self.name, error, extra={"action": "connection_impossible"})
            self._turn_to_next()

    def close(self) -> None:
        """Close the connection; unanswered calls fail with ``ConnectionLost``."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._next is not None:
            self._next.cancel()
        self._ask_no_more()
        # The answer of a handler that closes the client reaches nobody.
        self._sends_by(_send_nothing)
        if self._dealer is not None:
            self._dealer.close()
        self.channels.lose()
        super().close()

    def _why_refused(self, refusal: ConnectionRefusal) -> Failed:
        if refusal is ConnectionRefusal.KEY:
            return Failed(f"{self.name}: our key is not allowed there", "allow it: xbus keys allow", code="key_refused")
        if self._dealer is not None and self._dealer.is_encrypted:
            cause, next_step = "has another key than the address says", "see that port and key are those of the broker"
        else:
            cause, next_step = "speaks another protocol, or only with encryption", "see that the address is right"
        return Failed(f"{self.name}: the other side {cause}", next_step, code="handshake_failed")

    def _sends_by(self, send: SendFrames) -> None:
        """Send calls and answers so from now on."""
        self.send = self.channels.send = send

    # -- what the dealer tells -------------------------------------------------------------------------------------

    def tries(self) -> None:
        """Have calls wait for a connection again."""
        if not self._is_closed:
            self.refusal = None

    def connected(self, send: SendFrames) -> None:
        """Send the calls that waited for a connection, and those that are made until it is lost."""
        if self._next is not None and not self._is_connected:
            # It was to be left, and is there now.
            self._next.cancel()
            self._next = None
        if len(self._places) > 1 and not self._is_connected:
            self._asked = self.ask_first(send, LEADS, partial(self._answers, send))
            self._patience = self._loop.call_later(QUESTION_SECONDS, self._turn_to_next)
        else:
            self._begin(send)

    def _begin(self, send: SendFrames) -> None:
        self._is_connected = True
        self.stands_by = None
        self._missed = 0
        self._pause.reset()
        self._sends_by(send)
        self.send_unsent()

    def _answers(self, send: SendFrames, bus: Value, error: CallError | None) -> None:
        """Call the server that has answered, if it leads and is of the same bus. An older one knows no such verb."""
        self._ask_no_more()
        if isinstance(error, Failed):
            self.stands_by = error
            self._turn_to_next()
            return
        if isinstance(bus, str) and bus:
            self._bus = self._bus or bus
            if bus != self._bus:
                self._refuse(self._other_bus())
                return
        self._begin(send)

    def _ask_no_more(self) -> None:
        self._asked = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _other_bus(self) -> Refused:
        place = self._places[self._place].endpoint
        return Refused(f"the broker at {place} is of another bus", "give addresses of one bus", code="other_bus")

    def refused(self, refusal: ConnectionRefusal) -> None:
        """Fail the calls that wait for a connection, and those that are made until there is one."""
        error = self._why_refused(refusal)
        is_encrypted = self._dealer is not None and self._dealer.is_encrypted
        if len(self._places) > 1 and is_encrypted and refusal is ConnectionRefusal.PROTOCOL:
            # A handshake that takes too long looks the same, as where a broker is frozen, or begins to lead.
            self.stands_by = error
            self._turn_to_next()
        else:
            self._refuse(error)

    def _refuse(self, error: CallError) -> None:
        log.info("%s: no connection was made", self.name, extra={"action": "connection_refused", "code": error.code})
        if not self._is_closed:
            self.refusal = error
            self.fail_all(error)
            self._turn_to_next()

    def missed(self) -> None:
        """Turn to the next server, as this one can't be reached."""
        self._turn_to_next()

    def lost(self) -> None:
        """Fail all calls without an answer; those that wait for a server that leads wait on."""
        if self._asked is not None:
            self.forget(self._asked)
        self._ask_no_more()
        if not self._is_connected:
            self._turn_to_next()
            return
        self._is_connected = False
        self._sends_by(_send_nothing)
        # Calls of the other side that were read ahead are carried out no more: nobody would get the answers.
        self.channels.lose()
        # What was answered before the end counts as answered.
        if self._dealer is not None:
            self._dealer.read_all()
        log.info("%s: connection lost", self.name, extra={"action": "connection_lost", "unanswered": self.owed})
        self.fail_all(ConnectionLost(f"{self.name}: the connection was lost", "see whether the other side runs"))
        if self._on_lost is not None:
            self._on_lost()
        self._turn_to_next()

    def take(self, frames: list[bytes]) -> bool:
        """Take an answer, or a call of the other side; always."""
        if len(frames) == CHANNEL_CALL_FRAMES:
            self.channels.take(frames)
            return True
        try:
            reply = decode_reply(frames)
        except (ProtocolError, RecursionError) as error:
            extra = {"action": "unreadable_reply", "cause": str(error)}
            log.warning("%s: the server sends what is no reply", self.name, extra=extra)
            return True
        self.answered(reply)
        if reply.error is not None and reply.error.code == NOT_LEADING:
            self._turn_to_next()
        return True


def open_client(
    exit_stack: ExitStack | AsyncExitStack, address: str, clock: Clock, signs: LifeSigns, max_message_bytes: int = -1
) -> Client:
    """Connect over a new context; other arguments and the errors are those of ``Client``.

    Args:
        exit_stack: closes client and context. Where it is dropped unclosed, as in a forked process, nothing is closed.

    Raises:
        ConfigurationError: the address makes no sense, or names a key file that can't be used.
    """
    context = new_context()
    exit_stack.callback(context.destroy)
    client = Client(context, name=address, clock=clock, max_message_bytes=max_message_bytes, life_signs=signs)
    exit_stack.callback(client.close)
    client.connect(address)
    return client


def _send_nothing(frames: Sequence[Frame]) -> bool:
    """Send nothing, as there is no connection."""
    return False
