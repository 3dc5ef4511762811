"""Calls of any kind at the front's verbs: each gets one answer, and nobody gets one without the right to it.

The front is the real one, with its verbs, sessions and journal; the database is in memory, and there is no socket. Two
emitters are logged in. A third caller has no token, or the token of a session that has ended.
"""

import asyncio
import struct
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import cast

from argon2 import PasswordHasher

from tests.fuzz.tape import Tape
from tests.fuzz.values import anything, envelope, event, identity, number, options, packed_items, text
from tests.support.clock import StandingClock
from tests.support.journal import add_small_bus
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes import Checks, EnvelopeLimits, ReplyRequests
from xbus.broker.front.front import Front
from xbus.broker.front.groups import GroupIntake
from xbus.broker.front.provisioning import Provisioning
from xbus.broker.front.replay import ArchiveRestore, Replay
from xbus.broker.front.verbs import (
    FrontBatchVerbs,
    FrontVerbs,
    ProvisioningVerbs,
    RefusalNotes,
    Refusals,
    RefusalVerbs,
    RepeatBatchVerbs,
    RepeatVerbs,
)
from xbus.broker.health_verbs import LeaderVerbs
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.configuration import set_password
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.logins import Credentials, Verified
from xbus.broker.sessions import SessionLifetimes, Sessions
from xbus.clock import Clock, SystemClock
from xbus.errors import ProtocolError, Refused
from xbus.ids import Ids
from xbus.passwords import Passwords
from xbus.rpc.answering import Answering, Call
from xbus.rpc.bell import Bell
from xbus.rpc.codec import Value, pack
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.frames import Reply, decode_reply, encode_request
from xbus.supervision.health import Health
from xbus.testing.images import make_image, opened

EMITTERS = ("north", "south")
PASSWORD = "secret"
HASH = "the hash of it"
LIMITS = EnvelopeLimits(
    item_bytes=1_000, batch_bytes=5_000, envelope_items=100, envelope_bytes=20_000, envelope_events=20
)
CALL_BYTES = 64 * 1024
CALLS_OF_A_FRONT = 50_000
"""After so many calls a front with an empty journal takes over, so that memory that grows is a leak. Fewer cost more
time, as each front reads its configuration and checks it."""

CALLS_OF_A_TAPE = 64
"""The most calls in a tape. They are on their way together, and fewer make the front wait more for its journal."""

ANSWER_SECONDS = 20.0
KNOWN_IDS = 32

EXPECTED: Mapping[str, Sequence[str]] = {
    "login": ("text", "text"),
    "logout": ("token",),
    "start_envelope": ("token",),
    "start_event": ("token", "id", "text", "number"),
    "send_item": ("token", "id", "id", "items"),
    "end_event": ("token", "id", "id"),
    "end_envelope": ("token", "id"),
    "cancel_envelope": ("token", "id"),
    "get_consumers": ("token",),
    "retry_event": ("token", "id"),
    "replay_envelope": ("token", "id"),
    "xbus.login": ("text", "text"),
    "xbus.logout": ("token",),
    "xbus.renew": ("token",),
    "xbus.get_limits": ("token",),
    "xbus.start_envelope": ("token", "id", "options"),
    "xbus.start_event": ("token", "id", "id", "text", "number", "options"),
    "xbus.send_items": ("token", "id", "id", "number", "number", "items"),
    "xbus.end_event": ("token", "id", "id", "number"),
    "xbus.end_envelope": ("token", "id", "number"),
    "xbus.cancel_envelope": ("token", "id"),
    "xbus.put_envelope": ("token", "id", "events", "options"),
    "xbus.put_envelopes": ("token", "envelopes"),
    "xbus.get_consumers": ("token",),
    "xbus.retry_event": ("token", "id"),
    "xbus.replay_envelope": ("token", "id", "id"),
    "xbus.claim_topic": ("token", "text"),
    "xbus.remove_topic": ("token", "text"),
    "xbus.list_topics": ("token",),
    "xbus.subscribe": ("token", "options"),
    "xbus.unsubscribe": ("token",),
    "xbus.list_subscribers": ("token",),
    "xbus.count_waiting": ("token", "number"),
    "xbus.new_token": ("token", "text"),
    "xbus.list_tokens": ("token",),
    "xbus.revoke_token": ("token", "text"),
    "xbus.health": (),
    "xbus.leads": (),
    "xbus.refused": ("id",),
    "xbus.slowed": ("number",),
}
"""The verbs, and what they expect."""

READS_TABLES = frozenset(
    {
        "get_consumers",
        "xbus.get_consumers",
        "xbus.list_topics",
        "xbus.claim_topic",
        "xbus.remove_topic",
        "xbus.list_subscribers",
        "xbus.subscribe",
        "xbus.unsubscribe",
        "xbus.count_waiting",
        "xbus.list_tokens",
    }
)
"""The verbs that read tables at each call, which takes ten times as long as others; so they come a quarter as often."""

CHOICES = tuple(verb for verb in EXPECTED for _ in range(1 if verb in READS_TABLES else 4))
"""The verbs, each as often as it is chosen."""

FOR_ALL = frozenset({"login", "xbus.login", "xbus.health", "xbus.leads", "xbus.refused", "xbus.slowed"})
"""The verbs that need no token."""

OLD_REFUSALS: Sequence[Value] = ("", False, [], [False, None])
"""The answers of old verbs that refuse."""


class FuzzedFront:
    """A front that gets calls made of bytes; enter it, and judge as many tapes as you like."""

    def __init__(self) -> None:
        self._image = make_image(add_small_bus)
        self._runner = asyncio.Runner()
        self._bench: _Bench | None = None
        self._calls_before = 0

    @property
    def calls(self) -> int:
        """The calls that were made."""
        return self._calls_before + (self._bench.calls if self._bench is not None else 0)

    def __enter__(self) -> "FuzzedFront":
        return self

    def __exit__(self, *_: object) -> None:
        self._renew(None)
        self._runner.close()

    def judge(self, data: bytes) -> None:
        """Make the calls that a tape says.

        Raises:
            AssertionError: a call got no answer, two of them, or one that it had no right to.
        """
        if self._bench is None or self._bench.calls > CALLS_OF_A_FRONT:
            self._renew(_Bench(self._image))
        assert self._bench is not None
        self._runner.run(self._bench.play(Tape(data)))

    def _renew(self, bench: "_Bench | None") -> None:
        if self._bench is not None:
            self._calls_before += self._bench.calls
            self._runner.run(self._bench.close())
        self._bench = bench
        if bench is not None:
            self._runner.run(bench.open())


@dataclass(frozen=True)
class _Asked:
    """A call: its verb, the emitter whose token it has, and its arguments."""

    method: str
    login: str | None
    args: Sequence[object]

    @property
    def envelope_id(self) -> object:
        """The envelope that it is about, where it names one by its id."""
        has_key = len(self.args) > 2 and isinstance(options := self.args[-1], dict) and "key" in options
        is_about = EXPECTED.get(self.method, ())[1:2] == ("id",) and not self.method.endswith("retry_event")
        return self.args[1] if is_about and not has_key and len(self.args) > 1 else None


class _Bench:
    def __init__(self, image: bytes) -> None:
        self.calls = 0
        self._image = image
        self._stack = AsyncExitStack()
        self._tokens: dict[str, str] = {}
        self._ended_token = ""
        self._known: list[str] = []
        self._owners: dict[str, str] = {}
        self._answers: dict[int, Reply] = {}
        self._answered = asyncio.Event()

    async def open(self) -> None:
        """Open the journal, the front and the sessions."""
        clock = StandingClock()
        engine = opened(self._image)
        with engine.begin() as connection:
            for login in EMITTERS:
                set_password(connection, "emitter", login, HASH, clock.now())
        journal = await self._stack.enter_async_context(Journal(engine, "broker"))
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        configuration = Configuration(journal)
        await configuration.refresh()
        bell = cast(Bell, _NoBell())
        health = Health("front", clock)
        space = Space(journal, 0, health)
        checks = Checks(configuration, LIMITS, clock)
        replies = ReplyRequests(journal, bell, clock, 0.01)
        watching = tasks.create_task(replies.watch())
        self._stack.callback(watching.cancel)
        front = Front(journal, checks, clock, replies, bell.ring, tasks, space)
        ids = Ids(SystemClock())
        restoring = ArchiveRestore(journal, space, ())
        repeating = Replay(journal, checks, clock, ids, bell.ring, configuration.refresh, restoring)
        catalog = await journal.read(read_catalog)
        door = _Door(journal, clock, {entry.login: entry.id for entry in catalog.emitters.values()})
        sessions = Sessions(journal, door, clock=clock, ids=ids, lifetimes=SessionLifetimes(3600))
        refusals = Refusals(clock)
        dispatch = Dispatch(
            FrontVerbs(front, sessions, ids),
            FrontBatchVerbs(front, sessions, LIMITS, 3600, 0.01),
            GroupIntake(front, sessions, lambda *_: None),
            RepeatVerbs(repeating, sessions),
            RepeatBatchVerbs(repeating, sessions),
            ProvisioningVerbs(Provisioning(journal, configuration, sessions, clock), sessions),
            LeaderVerbs(health, lambda: configuration.catalog.bus),
            RefusalVerbs(refusals),
            knows=sessions.knows,
            note_error=RefusalNotes(sessions, refusals).note,
        )
        assert dispatch.verbs == set(EXPECTED), dispatch.verbs ^ set(EXPECTED)
        self._sessions = sessions
        self._unreadable: list[Call] = []
        self._answering = Answering(
            dispatch,
            name="front",
            send=self._take_answer,
            unreadable=lambda call, _: self._unreadable.append(call),
            max_call_bytes=CALL_BYTES,
        )
        self._ended_token = await sessions.login("north", PASSWORD)
        await sessions.logout(self._ended_token)
        for login in EMITTERS:
            await self._log_in(login)

    async def close(self) -> None:
        """End all of it."""
        self._answering.cancel()
        await asyncio.sleep(0)
        await self._stack.aclose()

    async def play(self, tape: Tape) -> None:
        """Make some calls one behind the other, then wait for the answers."""
        asked: dict[int, _Asked] = {}
        for _ in range(1 + tape.number(CALLS_OF_A_TAPE)):
            self.calls += 1
            request_id = self.calls
            call, frames = self._call(tape, request_id)
            self._answering.take_all([Call(b"peer", [b"peer", *frames], sum(map(len, frames)))])
            if self._unreadable:
                self._unreadable.clear()
                continue
            asked[request_id] = call
            if not tape.left:
                break
        await self._wait_for(asked)
        for request_id, call in asked.items():
            self._check(call, self._answers.pop(request_id))
        for login, token in self._tokens.items():
            if not self._sessions.knows(token):
                await self._log_in(login)

    async def _wait_for(self, asked: "Mapping[int, _Asked]") -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while not asked.keys() <= self._answers.keys():
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            silent = [call for request_id, call in asked.items() if request_id not in self._answers]
            raise AssertionError(f"no answer: {silent}") from None

    def _call(self, tape: Tape, request_id: int) -> "tuple[_Asked, list[bytes]]":
        method = tape.one_of(CHOICES) if not tape.rarely(64) else tape.text(20)
        args = [self._argument(tape, kind) for kind in EXPECTED.get(method, ("text",))]
        if tape.rarely():
            args = args[: tape.number(7)] + [anything(tape) for _ in range(tape.number(3))]
        try:
            frames = [*map(bytes, encode_request(b"\0" * 4, request_id, 0.0, method, tuple(args)))]
        except (ProtocolError, UnicodeEncodeError, struct.error):
            frames = [*map(bytes, encode_request(b"\0" * 4, request_id, 0.0, "xbus.health", ()))]
            method, args = "xbus.health", []
        if tape.rarely(16):
            frames[2], args = tape.bytes(tape.left), []
        elif tape.rarely(16):
            names = ("token", "envelope_id", "login", "password", "events", "data")
            frames[3] = pack({tape.one_of(names): anything(tape) for _ in range(tape.number(3))})
        return _Asked(method, self._caller(args), args), frames

    def _caller(self, args: Sequence[object]) -> str | None:
        """Give the login whose token opens the arguments."""
        return next((login for login, token in self._tokens.items() if args and args[0] == token), None)

    def _argument(self, tape: Tape, kind: str) -> object:
        if tape.rarely(32):
            return anything(tape)
        match kind:
            case "token":
                tokens = (*self._tokens.values(), *self._tokens.values(), self._ended_token, "", "0" * 64)
                return tape.one_of(tokens) if not tape.rarely(16) else text(tape)
            case "id":
                return identity(tape, self._known)
            case "number":
                return number(tape)
            case "items":
                return packed_items(tape)
            case "events":
                return [event(tape, self._known) for _ in range(tape.number(4))]
            case "envelopes":
                return [envelope(tape, self._known) for _ in range(tape.number(4))]
            case "options":
                return options(tape)
        return text(tape)

    def _take_answer(self, call: Call, frames: list[bytes]) -> bool:
        reply = decode_reply(frames)
        assert reply.id not in self._answers, "a call got two answers"
        self._answers[reply.id] = reply
        self._answered.set()
        return True

    def _check(self, call: "_Asked", reply: Reply) -> None:
        assert reply.error is None or reply.error.code != "internal_error", f"{call.method} failed: {reply.error}"
        if reply.error is not None or call.method in FOR_ALL or reply.answer in OLD_REFUSALS:
            return
        assert call.login is not None, f"{call.method} answered {reply.answer!r:.100} to somebody who is not logged in"
        if isinstance(reply.answer, str):
            self._known = [*self._known[1 - KNOWN_IDS :], reply.answer]
        envelope_id = reply.answer if call.method.endswith("start_envelope") else call.envelope_id
        if isinstance(envelope_id, str):
            owner = self._owners.setdefault(str(uuid.UUID(envelope_id)), call.login)
            assert owner == call.login, f"{call.method} of {call.login} touched an envelope of {owner}"

    async def _log_in(self, login: str) -> None:
        self._tokens[login] = await self._sessions.login(login, PASSWORD)


class _Door(Credentials):
    """Lets those in who know the password, at once: tests of their own look at hashes, turns and pauses."""

    def __init__(self, journal: Journal, clock: Clock, ids_of_logins: Mapping[str, int]) -> None:
        cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        super().__init__(journal, "emitter", Passwords(cheap), clock)
        self._ids_of_logins = ids_of_logins

    async def check(self, login: str, password: str, deadline: float) -> Verified:
        """Check a password."""
        if login not in self._ids_of_logins or password != PASSWORD:
            raise Refused("login and password don't match", code="login_refused")
        return Verified(self._ids_of_logins[login], HASH, "", "")


class _NoBell:
    def ring(self) -> None:
        """Wake nobody, as no back is there."""

    async def wait(self, timeout: float) -> bool:
        """Hear nothing."""
        await asyncio.sleep(timeout)
        return False
