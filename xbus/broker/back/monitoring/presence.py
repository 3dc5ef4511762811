"""Writes down the state of the recipients for operators, now and then, all in one transaction."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from xbus.broker.back.bulk import OutputAttempt
from xbus.broker.back.recipients import RecipientProxy, Registry
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import RunnerEntry
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.journal.operations.roles import read_presence
from xbus.broker.journal.writes import NotePresence, PresenceInstance, PresenceRow, PresenceWork
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.states import PresenceState
from xbus.supervision.health import Health, Problem

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between looks at the work of recipients."""

GATHER_SECONDS = 0.2
"""Seconds within which arrivals and departures are written down together."""

CALLING_SECONDS = 60.0
"""Seconds after its last call for which a role counts as present whose programs call the bus. A call waits for 30
seconds at the most. Fewer show a slow program as absent, more show one that was killed for longer."""

SEEN_SECONDS = 10.0
"""Seconds after which the last sign of life of a recipient is written down, though nothing else has changed."""


TROUBLED = "role_in_trouble"
"""The problem that health shows."""

UNANSWERED = "call_unanswered"
"""The problem of a role whose recipient keeps a call in hand."""

RESTART = "see by xbus why --role what its code does, and restart it: what it has open is redelivered"

NEXT = "see xbus failure list for what it says; it is tried again now and then"


def _makes_nothing(recipient: RecipientProxy) -> Sequence[OutputAttempt]:
    return ()


@dataclass(frozen=True, slots=True)
class RecipientSigns:
    """Says how a recipient is.

    Args:
        is_silent: whether it misses pings.
        is_troubled: whether one envelope after the other fails at a role.
        makes: the outputs that it makes just now.
        heard: when each role called last whose programs call the bus: readers, runners of bots, and gateways.
        calls_within: for how many seconds such a role may be silent between two calls.
        answer_seconds: so long beyond its time-out it may have a call in hand before health shows it.
    """

    is_silent: Callable[[RecipientProxy], bool]
    is_troubled: Callable[[int], bool]
    makes: Callable[[RecipientProxy], Sequence[OutputAttempt]] = _makes_nothing
    heard: Callable[[], Mapping[int, datetime]] = dict
    calls_within: Callable[[RoleEntry | RunnerEntry], float] = lambda role: CALLING_SECONDS
    answer_seconds: float = 0.0


class Presence:
    """Keeps the table ``presence`` up to date.

    Args:
        journal: keeps the table.
        configuration: has the roles.
        registry: knows who is registered.
        health: shows roles in trouble.
        clock: dates the rows.
        signs: say how recipients are.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        registry: Registry,
        health: Health,
        clock: Clock,
        signs: RecipientSigns,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._registry = registry
        self._health = health
        self._clock = clock
        self._signs = signs
        self._written: dict[int, PresenceRow] = {}
        self._troubled: set[str] = set()
        self._change = asyncio.Event()

    def changed(self, _: object) -> None:
        """Look soon: somebody has come or gone, or a role is paused or resumed."""
        self._change.set()

    async def restore(self) -> None:
        """Take up what the last run wrote: who does not come back turns absent.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        self._written = await self._journal.read(read_presence)

    async def keep(self) -> None:
        """Write down changes, for ever; a database that is away only delays them."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._change.wait()
            except TimeoutError:
                pass  # nobody came or went, but their work has changed
            else:
                await asyncio.sleep(GATHER_SECONDS)
            self._change.clear()
            await self.note()

    async def stop(self, seconds: float) -> None:
        """Write down that nobody is served any more, within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self.note(stopping=True)
        except TimeoutError:
            log.info("presence not written in time", extra={"action": "presence_unwritten"})

    async def note(self, *, stopping: bool = False) -> None:
        """Write down what has changed since the last time.

        Args:
            stopping: whether nobody is served any more.
        """
        self._tell_health()
        now = self._clock.now()
        rows = [row for row in self._rows(now, stopping) if self._is_news(row)]
        if not rows:
            return
        try:
            await self._journal.write(NotePresence(rows, now))
        except JournalUnavailable as error:
            log.info("presence not written: %s", error, extra={"action": "presence_unwritten"})
        except JournalError as error:
            # What operators see is not worth an end; what delivers is.
            log.error("presence not written: %s", error, extra={"action": "presence_unwritten"})
        else:
            self._written |= {row.role_id: row for row in rows}

    def _rows(self, now: datetime, stopping: bool) -> Iterable[PresenceRow]:
        catalog = self._configuration.catalog
        yield from self._calling_rows(now, stopping)
        roles = catalog.roles
        for role_id in {*roles, *self._written} - catalog.reader_roles.keys() - catalog.runners.keys():
            role = roles.get(role_id)
            known = self._written.get(role_id)
            serving = [] if stopping else self._registry.serving(role_id)
            state = self._state(role, serving)
            since = known.since if known is not None and known.state is state else now
            instances = None if stopping or role is None or not role.is_shared else self._instances(role, known, now)
            if serving:
                seen_at: datetime | None = max(_seen_at(each, now) for each in serving)
                work = [work for each in serving for work in self._work(each, now)]
                yield PresenceRow(role_id, state, since, seen_at, work or None, instances)
            elif known is not None or instances or state is not PresenceState.ABSENT:
                yield PresenceRow(role_id, state, since, None if known is None else known.seen_at, None, instances)

    def _calling_rows(self, now: datetime, stopping: bool) -> Iterable[PresenceRow]:
        """Describe the roles whose programs call the bus."""
        heard = {} if stopping else self._signs.heard()
        catalog = self._configuration.catalog
        callers: list[RoleEntry | RunnerEntry] = [*catalog.reader_roles.values(), *catalog.runners.values()]
        for role in callers:
            known, heard_at = self._written.get(role.id), heard.get(role.id)
            state = PresenceState.ABSENT
            if heard_at is not None and now - heard_at <= timedelta(seconds=self._signs.calls_within(role)):
                state = PresenceState.PRESENT if role.pause is None else PresenceState.PAUSED
            since = known.since if known is not None and known.state is state else now
            if known is not None or heard_at is not None:
                yield PresenceRow(role.id, state, since, heard_at or (None if known is None else known.seen_at))

    def _instances(self, role: RoleEntry, known: PresenceRow | None, now: datetime) -> list[PresenceInstance] | None:
        """Describe each program that is registered for a role that may have several."""
        before = {each["uri"]: each for each in (known.instances if known is not None else None) or ()}
        instances: list[PresenceInstance] = []
        for recipient in self._registry.connected(role.id):
            state = self._state_of_one(recipient)
            former = before.get(recipient.uri)
            since = former["since"] if former is not None and former["state"] == state else _moment(now)
            instances.append(
                {
                    "uri": recipient.uri,
                    "state": state.value,
                    "since": since,
                    "seen_at": _moment(_seen_at(recipient, now)),
                    "work": self._work(recipient, now),
                }
            )
        return instances or None

    def _work(self, recipient: RecipientProxy, now: datetime) -> list[PresenceWork]:
        return [*_work(recipient, now), *_made(recipient, self._signs.makes(recipient))]

    def _tell_health(self) -> None:
        roles = self._configuration.catalog.roles.values()
        troubled = {role.login for role in roles if self._signs.is_troubled(role.id)}
        for login in troubled:
            self._health.trouble(TROUBLED, f"one envelope after the other fails at {login}", NEXT, about=login)
        for login in self._troubled - troubled:
            self._health.over(TROUBLED, about=login)
        self._troubled = troubled
        self._health.replace([UNANSWERED], self._unanswered())

    def _unanswered(self) -> Iterator[Problem]:
        """Find the recipients that keep a call in hand: their slot is not free, so the role may stand still."""
        now = self._clock.now()
        for recipient in self._registry.connected():
            overdue = recipient.overdue_seconds()
            if overdue is not None and overdue[1] > self._signs.answer_seconds:
                verb, seconds = overdue
                since = now - timedelta(seconds=seconds)
                cause = (
                    f"a recipient of {recipient.role.login} has not answered {verb}, which timed out at "
                    f"{since:%Y-%m-%d %H:%M:%SZ}; until it does the place of that call gets nothing"
                )
                yield Problem(UNANSWERED, recipient.role.login, cause, since, RESTART)

    def _state(self, role: RoleEntry | None, serving: Sequence[RecipientProxy]) -> PresenceState:
        if role is not None and role.detached:
            return PresenceState.DETACHED
        if role is not None and role.pause is not None and self._registry.get(role.id) is None:
            return PresenceState.PAUSED
        if not serving:
            return PresenceState.ABSENT
        if all(self._signs.is_silent(recipient) for recipient in serving):
            return PresenceState.SILENT
        return PresenceState.TROUBLED if self._signs.is_troubled(serving[0].role.id) else PresenceState.PRESENT

    def _state_of_one(self, recipient: RecipientProxy) -> PresenceState:
        if self._signs.is_silent(recipient):
            return PresenceState.SILENT
        if self._registry.is_standing_by(recipient):
            return PresenceState.STANDBY
        if recipient not in self._registry.serving(recipient.role.id):
            return PresenceState.LEAVING
        if recipient.role.pause is not None:
            return PresenceState.PAUSED
        return PresenceState.TROUBLED if self._signs.is_troubled(recipient.role.id) else PresenceState.PRESENT

    def _is_news(self, row: PresenceRow) -> bool:
        known = self._written.get(row.role_id)
        if known is None or (known.state, _without_positions(known.work)) != (row.state, row.work):
            return True
        if _without_moments(known.instances) != _without_moments(row.instances):
            return True
        if row.seen_at is None or known.seen_at is None:
            return row.seen_at is not known.seen_at
        return row.seen_at - known.seen_at >= timedelta(seconds=SEEN_SECONDS)


def _seen_at(recipient: RecipientProxy, now: datetime) -> datetime:
    return now - timedelta(seconds=recipient.silent_for())


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _work(recipient: RecipientProxy, now: datetime) -> list[PresenceWork]:
    """Describe the runs of a recipient, and its own reports about them."""
    works: list[PresenceWork] = []
    for id_bytes, bringing in recipient.bringing.items():
        envelope_id = UUID(bytes=id_bytes)
        work: PresenceWork = {
            "envelope_id": str(envelope_id),
            "verb": bringing.verb,
            "since": (now - timedelta(seconds=recipient.seconds_since(bringing.since))).isoformat(timespec="seconds"),
        }
        told = recipient.heartbeats.work(envelope_id)
        if told is not None:
            work |= {"progress": told.progress, "done": told.done, "of": told.of}
        works.append(work)
    return works


def _made(recipient: RecipientProxy, attempts: Iterable[OutputAttempt]) -> Iterator[PresenceWork]:
    """Describe the outputs that a recipient makes, and their progress."""
    for attempt in attempts:
        told = recipient.heartbeats.work(attempt.id)
        done = int(100 * attempt.progress) if told is None else told.done
        steps = 0 if told is None else told.progress
        yield {
            "envelope_id": str(attempt.envelope_id),
            "event_id": str(attempt.output.event_id),
            "verb": "take_output",
            "since": attempt.started_at.isoformat(timespec="seconds"),
            "progress": steps,
            "done": done,
            "of": 100,
        }


def _without_positions(works: Sequence[PresenceWork] | None) -> list[dict[str, object]] | None:
    if works is None:
        return None
    return [{name: value for name, value in work.items() if name != "position"} for work in works]


def _without_moments(instances: Sequence[PresenceInstance] | None) -> list[object] | None:
    """Give what of some programs is worth a row: a sign of life alone is not."""
    if instances is None:
        return None
    return [(each["uri"], each["state"], _without_positions(each["work"])) for each in instances]
