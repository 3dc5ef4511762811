"""The verbs of the back's socket: those of wire.md, and those that our own recipients call beside them.

A verb checks who calls and hands the call on; it decides nothing. Only ``parts`` imports this package.
"""

import functools
from collections.abc import Awaitable, Callable

from xbus.broker.answers import coded_answer, old_answer
from xbus.broker.back.back import Back
from xbus.broker.back.bots import Bots
from xbus.broker.back.bulk import OutputReports
from xbus.broker.back.readers import (
    MOST_WAIT_SECONDS,
    ReaderDesks,
    ReadingProgram,
    Subscriptions,
    read_batch_call,
    read_failed_call,
    read_program,
    read_settings,
    read_settlement,
)
from xbus.broker.back.reading import LogReading, ReaderTypes, read_question
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes.bots import RunFailure
from xbus.broker.sessions import OLD_LOGIN_SECONDS, Sessions
from xbus.errors import CallError, Refused
from xbus.ids import parse_uuid, token_hash
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.messages import (
    MOST_ROLES_TOLD,
    BackLogin,
    BatchAnswer,
    CheckpointAnswer,
    ClaimedBotRun,
    DeliveredSoFar,
    FailedCallAnswer,
    Insight,
    LogAnswer,
    MeasuredSubscriptions,
    OutputAccepted,
    OutputWanted,
    RangesAnswer,
    Registered,
    RunEnded,
    RunsHeld,
    ServingLimits,
    SubscriptionsAnswer,
)
from xbus.rpc.server import Server

LAST_ANSWERS_SECONDS = 1.0
"""Seconds until a logout is answered while calls are under way. The recipient waits about twice as long. Fewer let a
recipient go sooner that closes its connection with the answer, and may lose its last answers."""


class BackVerbs:
    """One method per verb, named as the verb.

    Args:
        back: carries the calls out.
        sessions: the roles'.
        port: gives the server by which these calls come.
    """

    def __init__(self, back: Back, sessions: Sessions, port: Callable[[], Server]) -> None:
        self._port = port
        self._back = back
        self._sessions = sessions

    @verb("login")
    @old_answer("")
    def login(self, login: str, password: str) -> Awaitable[str]:
        return self._sessions.login(login, password, OLD_LOGIN_SECONDS)

    @undoes("login")
    def undo_login(self, token: str) -> None:
        self._sessions.take_back(token)

    @verb("logout")
    @old_answer(False)
    async def logout(self, token: str) -> bool:
        return await log_out(self._back, self._sessions, token)

    @verb("register_node")
    @old_answer(False)
    def register_node(self, token: str, uri: str) -> Awaitable[bool]:
        return register(self._back, self._sessions.owner(token), token, uri, self._port())

    @verb("ready")
    @old_answer(False)
    def ready(self, token: str) -> bool:
        return is_ready(self._back, self._sessions, token)


def register(back: Back, role_id: int, token: str, uri: str, port: Server) -> Awaitable[bool]:
    """Register a recipient that listens at an address; to be called while its call is carried out."""
    # Now, as it is known only during the call from where that came.
    caller = port.caller_address

    async def registered() -> bool:
        await back.register(role_id, token_hash(token), uri, caller)
        return True

    return registered()


async def log_out(back: Back, sessions: Sessions, token: str) -> bool:
    """End a session, and the registration that was made with it; the registration of a newer session remains."""
    role_id = await sessions.logout(token)
    await back.log_out(role_id, token_hash(token), LAST_ANSWERS_SECONDS)
    return True


def is_ready(back: Back, sessions: Sessions, token: str) -> bool:
    """Note that a worker takes another event; false where nobody is registered for its role."""
    # A replaced recipient must not speak for the newer one of its role.
    recipient = back.registry.find(sessions.owner(token), token_hash(token))
    if recipient is None:
        return False
    recipient.readiness.tell()
    return True


class BackBatchVerbs:
    """One method per verb of the namespace ``xbus``, named as the verb.

    Args:
        back: carries the calls out.
        sessions: the roles'.
        port: gives the server by which these calls come.
        session_seconds: part of the answer to a login.
        max_batch_bytes: part of the answer to a login.
        heartbeat_seconds: part of the answer to a login; 0 for no heartbeats.
    """

    def __init__(
        self,
        back: Back,
        sessions: Sessions,
        port: Callable[[], Server],
        session_seconds: float,
        max_batch_bytes: int,
        heartbeat_seconds: float,
    ) -> None:
        self._back = back
        self._sessions = sessions
        self._port = port
        self._session_seconds = session_seconds
        self._max_batch_bytes = max_batch_bytes
        self._heartbeat_seconds = heartbeat_seconds

    @verb("xbus.login")
    @coded_answer
    def login(self, login: str, password: str) -> Awaitable[BackLogin]:
        # Now, as it is known only during the call who makes it.
        return self._logged_in(self._sessions.login(login, password))

    async def _logged_in(self, session: Awaitable[str]) -> BackLogin:
        token = await session
        return {
            "token": token,
            "proof": True,
            "session_seconds": int(self._session_seconds),
            "max_batch_bytes": self._max_batch_bytes,
            "heartbeat": self._heartbeat_seconds,
        }

    @undoes("xbus.login")
    def undo_login(self, answer: BackLogin) -> None:
        self._sessions.take_back(answer["token"])

    @verb("xbus.logout")
    @coded_answer
    async def logout(self, token: str) -> bool:
        return await log_out(self._back, self._sessions, token)

    @verb("xbus.register_node")
    @coded_answer
    def register_node(self, token: str, uri: str) -> Awaitable[bool]:
        return register(self._back, self._sessions.owner(token), token, uri, self._port())

    @verb("xbus.serve")
    @coded_answer
    def serve(self, token: str, channel: bytes) -> Awaitable[ServingLimits]:
        # Now, as it is known only during the call by which connection that came.
        caller = self._port().caller
        self._back.check_in_place(token_hash(token))
        return self._serve(self._sessions.owner(token), token_hash(token), caller, channel)

    async def _serve(self, role_id: int, of_token: bytes, caller: bytes, channel: bytes) -> ServingLimits:
        port = self._port()
        take_up = functools.partial(port.client_of, caller, channel)
        await self._back.serve(role_id, of_token, channel, take_up)
        return {"max_batch_bytes": self._max_batch_bytes, "heartbeat": self._heartbeat_seconds}

    @verb("xbus.ready")
    @coded_answer
    def ready(self, token: str) -> bool:
        return is_ready(self._back, self._sessions, token)

    @verb("xbus.heartbeat")
    @coded_answer
    def heartbeat(self, token: str, work: Value = None) -> Registered:
        # First, as the session of one that was lost has ended.
        self._back.check_in_place(token_hash(token))
        role_id = self._sessions.owner(token)
        is_registered = self._back.heartbeat(role_id, token_hash(token), work, self._port().caller)
        answer: Registered = {"registered": is_registered}
        if self._back.stands_by(role_id, token_hash(token)):
            answer["standby"] = True
        if (pause := self._back.pause_of(role_id)) is not None:
            answer["paused"] = pause.told
        return answer


class BotVerbs:
    """One method per verb, named as the verb. None of them needs a registration.

    Args:
        bots: carry the calls out.
        sessions: the roles'.
    """

    def __init__(self, bots: Bots, sessions: Sessions) -> None:
        self._bots = bots
        self._sessions = sessions

    @verb("xbus.claim_run")
    @coded_answer
    async def claim_run(self, token: str, program: str, options: Value) -> ClaimedBotRun:
        wait = options.get("wait", 0) if isinstance(options, dict) else None
        # No number is at least 0 that is none (NaN): it would be waited for ever.
        if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
            raise Refused("the options of a claim make no sense", "give a map with wait, in seconds", code=WRONG)
        owner = self._sessions.owner(token)
        return await self._bots.claim(owner, program, wait, lambda: self._sessions.knows(token))

    @verb("xbus.renew_runs")
    @coded_answer
    async def renew_runs(self, token: str, program: str, runs: list[Value]) -> RunsHeld:
        known = [run for run in runs if isinstance(run, int) and 0 < run <= MOST_RUN]
        if len(known) != len(runs) or len(runs) > MOST_RENEWED:
            step = f"give up to {MOST_RENEWED} numbers of claimed runs"
            raise Refused("there are no such numbers of runs", step, code=WRONG)
        return {"runs": [*await self._bots.renew(self._sessions.owner(token), program, known)]}

    @verb("xbus.end_run")
    @coded_answer
    async def end_run(self, token: str, program: str, run: int, ticket: str, result: Value) -> RunEnded:
        if not isinstance(result, dict):
            raise Refused("the result of a run makes no sense", "give a map, see docs/wire.md", code=WRONG)
        if not 0 < run <= MOST_RUN:
            raise Refused("there are no such numbers of runs", "give that of the claimed run", code=WRONG)
        code, error, said = (str(result.get(key) or "") for key in ("code", "error", "log"))
        failure = RunFailure(code, error) if code else None
        owner = self._sessions.owner(token)
        return {"accepted": await self._bots.end(owner, program, run, ticket, failure, said)}


WRONG = "wrong_arguments"

MOST_RENEWED = 1000
"""Runs whose leases one call extends. More would be a long statement."""

MOST_RUN = 2**63 - 1
"""The greatest number that the journal's column holds: it would fail for greater ones."""


class InsightVerbs:
    """One method per verb, named as the verb.

    Args:
        back: has the memory.
    """

    def __init__(self, back: Back) -> None:
        self._back = back

    @verb("xbus.why")
    def why(self, roles: list[int], envelope_id: str | None, position: int | None) -> Insight:
        wanted = None if envelope_id is None else parse_uuid(envelope_id)
        if wanted is None and envelope_id is not None:
            raise Refused(f"{envelope_id!r:.80} is no id of an envelope", "give a UUID", code="wrong_arguments")
        return self._back.insight.tell(_role_ids(roles), wanted, position)

    @verb("xbus.delivered")
    def delivered(self, roles: list[int]) -> DeliveredSoFar:
        return {"roles": self._back.delivered(_role_ids(roles))}


def _role_ids(roles: list[int]) -> list[int]:
    return [role_id for role_id in roles[:MOST_ROLES_TOLD] if type(role_id) is int]


class OutputVerbs:
    """One method per verb, named as the verb. None of them needs a registration: after a restart of the broker, or with
    a new session, a worker goes on as before.

    Args:
        reports: what carries the calls out.
        sessions: the roles'.
    """

    def __init__(self, reports: OutputReports, sessions: Sessions) -> None:
        self._reports = reports
        self._sessions = sessions

    @verb("xbus.renew_output")
    @coded_answer
    def renew_output(self, token: str, attempt_id: str, progress: Value) -> OutputWanted:
        return {"wanted": self._reports.renew(self._sessions.owner(token), attempt_id, progress)}

    @verb("xbus.output_ready")
    @coded_answer
    async def output_ready(self, token: str, attempt_id: str, told: Value) -> OutputAccepted:
        return {"accepted": await self._reports.ready(self._sessions.owner(token), attempt_id, told)}

    @verb("xbus.output_failed")
    @coded_answer
    async def output_failed(self, token: str, attempt_id: str, told: Value) -> OutputAccepted:
        return {"accepted": await self._reports.failed(self._sessions.owner(token), attempt_id, told)}


class ReaderVerbs:
    """One method per verb, named as the verb. None of them needs a registration.

    Args:
        desks: carry the calls out.
        sessions: the roles'.
    """

    def __init__(self, desks: ReaderDesks, sessions: Sessions) -> None:
        self._desks = desks
        self._sessions = sessions

    @verb("xbus.read_batch")
    @coded_answer
    async def read_batch(self, token: str, program: str, options: dict[str, Value]) -> BatchAnswer:
        call = read_batch_call(options)
        answer = await self._desks.read(self._caller(token, program, call.reader), call)
        try:
            # The token may have been revoked while the call waited.
            self._caller(token, program, call.reader)
        except CallError:
            self.undo_read_batch(answer)
            raise
        return answer

    @undoes("xbus.read_batch")
    def undo_read_batch(self, answer: BatchAnswer) -> None:
        if answer["batch"] is not None:
            self._desks.unheard(answer["batch"])

    @verb("xbus.checkpoint")
    @coded_answer
    async def checkpoint(
        self, token: str, program: str, range_id: int, counter: int, place: Value, reader: str = ""
    ) -> CheckpointAnswer:
        done = read_settlement([range_id, counter, place])
        return {"lease": await self._desks.settle(self._caller(token, program, reader), done)}

    @verb("xbus.renew_ranges")
    @coded_answer
    def renew_ranges(self, token: str, program: str, reader: str = "") -> RangesAnswer:
        return self._desks.renew(self._caller(token, program, reader))

    @verb("xbus.leave_ranges")
    @coded_answer
    async def leave_ranges(self, token: str, program: str, reader: str = "") -> bool:
        await self._desks.leave(self._caller(token, program, reader))
        return True

    def _caller(self, token: str, program: str, reader: str) -> ReadingProgram:
        return self._desks.program(self._sessions.owner(token), read_program(program), reader)


class LogVerbs:
    """One method per verb, named as the verb.

    Args:
        reading: carries the calls out.
        types: knows what each reader reads.
        sessions: the roles'.
        catalog: the configuration as it is now.
    """

    def __init__(
        self, reading: LogReading, types: ReaderTypes, sessions: Sessions, catalog: Callable[[], Catalog]
    ) -> None:
        self._reading = reading
        self._types = types
        self._sessions = sessions
        self._catalog = catalog

    @verb("xbus.read_log")
    @coded_answer
    async def read_log(self, token: str, options: dict[str, Value]) -> LogAnswer:
        catalog = self._catalog()
        own = await self._types.of_role(catalog, self._sessions.owner(token))
        known = {event_type.name: event_type.id for event_type in catalog.event_types.values()}
        return await self._reading.answer(read_question(options, known, own))


class SubscriptionVerbs:
    """One method per verb, named as the verb. None of them needs a registration.

    Args:
        subscriptions: carry the calls out.
        desks: know the roles of gateways.
        sessions: the roles'.
    """

    def __init__(self, subscriptions: Subscriptions, desks: ReaderDesks, sessions: Sessions) -> None:
        self._subscriptions = subscriptions
        self._desks = desks
        self._sessions = sessions

    @verb("xbus.list_subscriptions")
    @coded_answer
    async def list_subscriptions(self, token: str, known: int = -1, wait: float = 0) -> SubscriptionsAnswer:
        self._desks.gateway(self._sessions.owner(token))
        await self._desks.beyond(known, min(max(wait, 0), MOST_WAIT_SECONDS))
        # What changes while they are read is told by the next call.
        changes = self._desks.changes
        return {"subscriptions": await self._subscriptions.of_gateways(), "changes": changes}

    @verb("xbus.measure_subscriptions")
    @coded_answer
    async def measure_subscriptions(self, token: str, notes_dropped: bool = False) -> MeasuredSubscriptions:
        self._desks.gateway(self._sessions.owner(token))
        return {"subscriptions": await self._subscriptions.measure(notes_dropped=notes_dropped)}

    @verb("xbus.note_callback")
    @coded_answer
    async def note_callback(self, token: str, reader: str, outcome: dict[str, Value]) -> FailedCallAnswer:
        role_id = self._sessions.owner(token)
        self._desks.gateway(role_id)
        settings, failed = read_settings(outcome), read_failed_call(outcome)
        decided = None
        if failed is not None and failed.batch is not None and not failed.is_end:
            program = self._desks.program(role_id, failed.program, reader)
            decided = await self._desks.fail(program, failed.batch, failed.failure)
        await self._subscriptions.note(reader, failed, settings, None if decided is None else decided.retry_at)
        return {
            "retry_seconds": None if decided is None else self._subscriptions.seconds_until(decided.retry_at),
            "parked": decided is not None and decided.retry_at is None,
        }
