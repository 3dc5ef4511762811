"""The configuration in use, kept up to date while the broker runs."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from xbus.broker.journal.configuration.checked import CheckedCatalog, TableProblem, give_empty_graphs, read_checked
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import RunnerEntry
from xbus.broker.journal.log.catalog import Catalog, RoleEntry, read_version
from xbus.broker.journal.log.emitters import EmitterEntry
from xbus.broker.journal.log.sessions import LOGIN_KINDS, LoginKind
from xbus.broker.journal.writes import PauseEntry
from xbus.errors import JournalUnavailable
from xbus.periodic import after_every
from xbus.rpc.messages import HealthPause
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Seconds between looks at the version of the configuration. A look reads one row. An operator's revocation is promised
within 2 seconds: the rest of them is for the reading, on a busy machine, too."""

UNREADABLE = "journal_unreadable"
WRONG = "configuration_wrong"
"""The problems that health shows."""

CORRECT = "correct that row, by SQL or with xbus apply; until then it counts as it was, and after a start not at all"


class Configuration:
    """The newest catalog that was read.

    Args:
        journal: has the configuration.
        health: shows a problem while it can't be read: each look is a sign whether the database answers.
    """

    def __init__(self, journal: Journal, health: Health | None = None) -> None:
        self._journal = journal
        self._health = health
        self._listeners: list[Callable[[], None]] = []
        self._wrong: set[str] = set()
        self._version = -1
        """The version that was read last."""
        self.catalog = Catalog(version=-1, event_types={}, emitters={}, roles={})
        self._keys: Mapping[LoginKind, frozenset[str]] = {}
        self._refreshing = asyncio.Lock()
        self._checked: CheckedCatalog | None = None

    async def refresh(self) -> None:
        """Read the catalog anew if it has changed.

        Rows that make no sense count as they were when they last made sense, or not at all. Of many who call at once
        one reads for all: it takes long, and others wait for the threads that read.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        async with self._refreshing:
            if await self._journal.read(read_version) != self._version:
                await self._read()

    async def _read(self) -> None:
        checked = await self._journal.read(read_checked, self._checked)
        if checked.lacks_graphs:
            await self._journal.run(give_empty_graphs)
            checked = await self._journal.read(read_checked, self._checked)
        self._checked = checked
        self._tell(checked.problems)
        self._version = checked.version
        self.catalog = checked.catalog.after(self.catalog, checked.left_out)
        self._keys = {kind: frozenset().union(*(each.keys for each in self._logins(kind))) for kind in LOGIN_KINDS}
        if self._health is not None:
            self._health.pauses = [_reported(pause) for pause in self.catalog.pauses.values()]
        log.info("configuration read", extra={"action": "configuration_read", "version": self.catalog.version})
        for listener in self._listeners:
            listener()

    def _tell(self, problems: Sequence[TableProblem]) -> None:
        """Report to health what makes no sense."""
        for problem in problems:
            log.error("configuration wrong: %s: %s", problem.place, problem.cause, extra={"action": WRONG})
        if self._health is not None:
            causes: dict[str, list[str]] = {}
            for problem in problems:
                causes.setdefault(problem.place, []).append(problem.cause)
            for place, said in causes.items():
                self._health.trouble(WRONG, f"the row makes no sense: {'; '.join(said)}", CORRECT, about=place)
            for place in self._wrong - causes.keys():
                self._health.over(WRONG, about=place)
            self._wrong = set(causes)

    def has_key(self, kind: LoginKind, key: str) -> bool:
        """Check whether any emitter, or any role, may log in by a public key.

        This is cheap, as it is asked for each message.
        """
        return key in self._keys.get(kind, ())

    def may_use(self, kind: LoginKind, owner_id: int, key: str) -> bool:
        """Check whether an emitter or a role may log in by a public key."""
        return any(key in each.keys for each in self._logins(kind) if each.id == owner_id)

    def _logins(self, kind: LoginKind) -> Collection[EmitterEntry | RoleEntry | RunnerEntry]:
        catalog = self.catalog
        if kind == "emitter":
            return catalog.emitters.values()
        return [*catalog.roles.values(), *catalog.reader_roles.values(), *catalog.runners.values()]

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called after each change."""
        self._listeners.append(listener)

    async def watch(self) -> None:
        """Refresh for ever; an unreachable database only delays it."""
        await after_every(POLL_SECONDS, self._look)

    async def _look(self) -> None:
        try:
            await self.refresh()
        except JournalUnavailable as error:
            log.warning("configuration not read: %s", error, extra={"action": "configuration_unread"})
            if self._health is not None:
                self._health.trouble(UNREADABLE, "the database can't be read now", "see that it runs")
        else:
            if self._health is not None:
                self._health.over(UNREADABLE)


def _reported(pause: PauseEntry) -> HealthPause:
    return {
        "kind": pause.kind.value,
        "name": pause.name,
        "reason": pause.reason,
        "paused_by": pause.paused_by,
        "since": pause.since.isoformat(),
        "until": None if pause.until is None else pause.until.isoformat(),
    }
