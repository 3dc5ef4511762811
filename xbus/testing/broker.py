"""A broker in virtual time: the real front and back over a journal and a network without threads and sockets.

It may be killed at any moment, and another one started over the same database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar, cast

from xbus.broker.answers import on_wire
from xbus.broker.back.back import Back
from xbus.broker.back.bots import Bots
from xbus.broker.back.runtime import Runtime
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes import Checks, EnvelopeLimits, ReplyRequests
from xbus.broker.front.front import Front
from xbus.broker.front.groups import Answers, GroupIntake
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes.bots import FireSlots
from xbus.broker.sessions import Sessions
from xbus.clock import Clock
from xbus.config import BackSettings
from xbus.errors import ConnectionLost, Fenced, JournalUnavailable, Refused, XbusError
from xbus.ids import Ids
from xbus.rpc.bell import Bell
from xbus.rpc.codec import Value, pack, unpack
from xbus.rpc.dispatch import SharedCall
from xbus.rpc.owed_calls import Callee
from xbus.rpc.rests import Rests
from xbus.supervision.health import Health
from xbus.testing.journal import Database, VirtualJournal
from xbus.testing.loop import context_of
from xbus.testing.network import VirtualConnection, VirtualProcess
from xbus.testing.pull.verbs import ReadingVerbs
from xbus.testing.timing import Timing

T = TypeVar("T")

STOP_SECONDS = 2.0
"""Seconds that deliveries may take to end when the broker stops in order."""


@dataclass(frozen=True)
class VirtualSettings:
    """The settings of a broker in virtual time.

    Args:
        back: its retries and time-outs.
        limits: of the front, for items and envelopes.
        reply_seconds: how long an emitter waits for an immediate reply.
        segment_bytes: items that come one by one are gathered into segments of this size at the most.
    """

    back: BackSettings
    limits: EnvelopeLimits
    reply_seconds: float
    segment_bytes: int


class _Bell:
    """Stands in for both ends of ``rpc.bell.Bell``."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._rung = asyncio.Event()

    def ring(self) -> None:
        if not self._timing.loses_ring():
            self._rung.set()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


def token_of(emitter_id: int) -> str:
    """Give the token of the one session that an emitter has."""
    return str(emitter_id)


class _Tokens:
    """Stands in for ``sessions.Sessions``."""

    def owner(self, token: str) -> int:
        return int(token)


@dataclass(eq=False)
class _Message:
    """A call of ``xbus.put_envelopes``, and the future of its answer."""

    args: list[Value]
    size: int
    peer = b""
    is_followed = False
    answered: "asyncio.Future[Answers]" = field(default_factory=asyncio.Future)

    def send_early(self, answer: object) -> None:
        """Send nothing: no thread writes the journal here."""


def _give(messages: Sequence[SharedCall], outcomes: Sequence[object]) -> None:
    """Answer messages; nobody waits any longer for those that are done."""
    for message, outcome in zip(cast("Sequence[_Message]", messages), outcomes, strict=True):
        if message.answered.done():
            continue
        if isinstance(outcome, BaseException):
            message.answered.set_exception(on_wire(outcome) if isinstance(outcome, XbusError) else outcome)
        else:
            message.answered.set_result(cast(Answers, unpack(pack(outcome))))


class VirtualBroker:
    """One life of a broker; to be made in a running loop.

    Args:
        database: what it finds and leaves behind.
        processes: who may be reached, by address.
        timing: chooses the times that things take.
        clock: tells the time.
        settings: of front and back.

    Attributes:
        front: carries out the calls of emitters, but for ``put_envelopes``.
        back: delivers.
        bots: gives out the runs of bots.
        reading: answers reading programs.
        is_up: set when it has recovered and serves.
        is_dead: set when it was killed or has stopped.
    """

    front: Front
    back: Back
    bots: Bots
    _configuration: Configuration
    reading: ReadingVerbs
    _groups: GroupIntake

    def __init__(
        self,
        database: Database,
        processes: Mapping[str, VirtualProcess],
        timing: Timing,
        clock: Clock,
        settings: VirtualSettings,
    ) -> None:
        self.context = context_of(self)
        """That of all its code, so that its loop can freeze it."""
        self._journal = self.context.run(VirtualJournal, database, timing, settings.segment_bytes)
        self._processes = processes
        self._timing = timing
        self._clock = clock
        self._settings = settings
        self._connections: list[VirtualConnection] = []
        self._messages: list[_Message] = []
        """The messages of this turn of the loop."""
        self.is_up = asyncio.Event()
        self.is_dead = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="broker", context=self.context)

    async def _run(self) -> None:
        while True:
            try:
                self._journal.open()
                break
            except JournalUnavailable:
                await asyncio.sleep(1)
        journal = cast(Journal, self._journal)
        settings = self._settings
        configuration = self._configuration = Configuration(journal)
        async with asyncio.TaskGroup() as tasks:
            bell = cast(Bell, _Bell(self._timing))
            replies = ReplyRequests(journal, bell, self._clock, settings.reply_seconds)
            self.back = Back(
                journal,
                configuration,
                bell,
                self._connect,
                Health("broker", self._clock),
                Runtime(self._clock, tasks, Random(self._timing.random.random())),
                settings.back,
            )
            self.reading = ReadingVerbs(journal, configuration, self.back)
            ids = Ids(self._clock, Random(0).randbytes)
            self.bots = Bots(
                journal, configuration, self._clock, ids, self.back.readers.desk, Health("bots", self._clock)
            )
            space = Space(journal, 0, Health("broker", self._clock))
            checks = Checks(configuration, settings.limits, self._clock)
            self.front = Front(journal, checks, self._clock, replies, bell.ring, tasks, space)
            self._groups = GroupIntake(
                self.front, cast(Sessions, _Tokens()), lambda *_: None, Rests(self._clock.monotonic)
            )
            await self._patiently(configuration.refresh)
            await self._patiently(self.back.recover)
            await self._patiently(replies.recover)
            self.back.start()
            self._start_bots(tasks)
            tasks.create_task(replies.watch())
            tasks.create_task(configuration.watch())
            self.is_up.set()
            try:
                await self._journal.ended()
            finally:
                self._hang_up()

    def _start_bots(self, tasks: asyncio.TaskGroup) -> None:
        """Fire and give out once the bus has bots: without any, the looks at them would only cost."""
        configuration, begun = self._configuration, asyncio.Event()

        def start() -> None:
            if configuration.catalog.bots and not begun.is_set():
                begun.set()
                self.bots.start(tasks)

        configuration.on_change(start)
        start()

    @staticmethod
    async def _patiently(step: Callable[[], Awaitable[object]]) -> None:
        """Repeat a step until the database is there, as whoever starts the broker does."""
        while True:
            try:
                await step()
                return
            except JournalUnavailable:
                await asyncio.sleep(1)

    async def _connect(self, uri: str, caller: str | None, lost: Callable[[], None]) -> Callee:
        process = self._processes.get(uri)
        if process is None or process.served is None:
            raise Refused("nobody listens there", code="recipient_unreachable")
        connection = VirtualConnection(process, self._timing, lost)
        self._connections.append(connection)
        return connection

    async def serve(self, role_id: int, token_hash: bytes, process: VirtualProcess, channel: bytes) -> None:
        """Call a process for a role over the connection that it made, as after its ``xbus.serve``."""

        def take_up(name: str, lost: Callable[[], None]) -> Callee:
            connection = VirtualConnection(process, self._timing, lost, channel)
            self._connections.append(connection)
            return connection

        await self.unless_dead(self.back.serve(role_id, token_hash, channel, take_up))

    def put_envelopes(
        self, emitter_id: int, entries: Sequence[object], *, in_order: bool = False
    ) -> "asyncio.Future[Answers]":
        """Take a message of envelopes, together with all others of this turn of the loop.

        Args:
            entries: the envelopes as ``GroupIntake.put_envelopes`` gets them.
            in_order: whether none is taken behind one that is not taken.

        Returns:
            A future of the answers. They have passed through the codec, as the message has.
        """
        packed = pack([token_of(emitter_id), entries, in_order])
        message = _Message(cast("list[Value]", unpack(packed)), len(packed))
        if not self._messages:
            asyncio.get_running_loop().call_soon(self._take_messages, context=self.context)
        self._messages.append(message)
        return message.answered

    def _take_messages(self) -> None:
        messages, self._messages = self._messages, []
        if messages:
            self._groups.put_envelopes(messages, _give)

    async def answer_reader(self, name: str, args: object) -> Value:
        """Answer the call of a reading program.

        Raises:
            ConnectionLost: it went down.
        """
        return await self.unless_dead(self.reading.answer(name, args))

    async def fire(self, slots: FireSlots) -> bool:
        """Make runs of slots; whether that took place."""
        return await self.unless_dead(self._journal.write(slots))

    def emitter_id(self, login: str) -> int:
        """Find an emitter by its login."""
        return next(each.id for each in self._configuration.catalog.emitters.values() if each.login == login)

    @property
    def serves(self) -> bool:
        """Check whether it answers calls now."""
        return self.is_up.is_set() and not self.is_dead.is_set()

    async def refresh(self) -> None:
        """Take the configuration up now, instead of at the next look."""
        await self._configuration.refresh()

    def check_alive(self) -> None:
        """Raise what the broker died of, which must never happen by itself."""
        if self._task.done() and not self.is_dead.is_set():
            self._task.result()
            raise AssertionError("the broker has ended by itself")

    async def unless_dead(self, outcome: Awaitable[T]) -> T:
        """Wait for an answer of this broker, as long as it lives.

        Raises:
            ConnectionLost: it went down.
        """

        async def answer() -> T:
            return await outcome

        answering = asyncio.get_running_loop().create_task(answer(), context=self.context)
        dying = asyncio.ensure_future(self.is_dead.wait())
        try:
            await asyncio.wait([answering, dying], return_when=asyncio.FIRST_COMPLETED)
            if self.is_dead.is_set():
                raise ConnectionLost("the broker went down")
            return answering.result()
        finally:
            for task in (answering, dying):
                task.cancel()
            await asyncio.gather(answering, dying, return_exceptions=True)

    def lead_until(self, moment: float) -> None:
        """Hand nothing out behind a moment on the loop's clock."""
        self._journal.lease_until = moment

    @property
    def handed_out(self) -> int:
        """The number of its calls to recipients, but for those that ask for life."""
        return sum(connection.made for connection in self._connections)

    async def stop(self) -> bool:
        """Stop in order, so that work under way may end; false if the broker is killed meanwhile."""
        if self.is_up.is_set():
            await self.back.stop(STOP_SECONDS)
        if self.is_dead.is_set():
            return False
        await self.kill()
        return True

    async def kill(self) -> None:
        """End as by SIGKILL: nothing more is written, sent or answered."""
        self.is_dead.set()
        self._messages.clear()
        self._journal.kill()
        self._hang_up()
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None and not _is_fenced(error):
            raise error

    def _hang_up(self) -> None:
        for connection in self._connections:
            connection.kill()


def _is_fenced(error: BaseException) -> bool:
    """Check whether a broker died because another one had taken over."""
    return isinstance(error, BaseExceptionGroup) and error.split(Fenced)[1] is None
