"""An operator in virtual time: resumes, corrects and drops what is parked, and remembers what."""

import random
from dataclasses import dataclass, field
from uuid import UUID

import sqlalchemy as sa

from tests.simulation.emitters import Plan
from tests.simulation.recipients import MENDED
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.operations.corrections import add_correction
from xbus.broker.journal.operations.parked import drop_delivery, resume_delivery
from xbus.clock import Clock
from xbus.testing.journal import Database

NOTICED_SECONDS = 5.0
"""Runs that were being prepared when an item was corrected may bring it as it was: the broker looks each second, and a
run may have to wait for workers. Larger lets more pass."""


@dataclass(frozen=True)
class Corrected:
    """An item that is handed over otherwise, from a moment on.

    Args:
        login: of the role that gets it so; None for all that lack it.
        certain: the logins of the roles for which its envelope was parked then: they get it so at once.
    """

    at: float
    data: bytes
    login: str | None
    certain: frozenset[str]


@dataclass
class Repaired:
    """What operators did, by the login of the role."""

    resumed: set[str] = field(default_factory=set)
    dropped: set[tuple[str, str]] = field(default_factory=set)
    corrected: dict[tuple[str, int], list[Corrected]] = field(default_factory=dict)
    """By event and index."""

    def versions(self, login: str, event_id: str, index: int, sent: bytes, begun: float, at: float) -> set[bytes]:
        """As what a role may have got an item.

        Args:
            sent: as its emitter sent it.
            begun: when the role began to get its envelope,
            at: and when it committed it.
        """
        versions = {sent}
        for correction in self.corrected.get((event_id, index), ()):
            if correction.at > at or correction.login not in (None, login):
                continue
            if login in correction.certain or correction.at + NOTICED_SECONDS <= begun:
                versions.clear()
            versions.add(correction.data)
        return versions


class Operator:
    """Does something about all that is parked.

    Args:
        database: where it is parked.
        choices: what is done.
        clock: tells the time.
        logins: of the roles, by id.
    """

    def __init__(self, database: Database, choices: random.Random, clock: Clock, logins: dict[int, str]) -> None:
        self._database = database
        self._choices = choices
        self._clock = clock
        self._logins = logins
        self.done = Repaired()

    def repair(self, plans: dict[str, Plan]) -> None:
        """Resume, correct or drop each parked delivery."""
        if self._database.is_uncertain:
            return
        for role_id, envelope_id in self.parked():
            self._repair(role_id, self._logins[role_id], envelope_id, plans[str(envelope_id)])

    def _repair(self, role_id: int, login: str, envelope_id: UUID, plan: Plan) -> None:
        decision = RepairDecision("the world", "mended", self._clock.now())
        what = self._choices.random()
        if what < 0.15:
            self._database.write(drop_delivery, role_id, envelope_id, decision)
            self.done.dropped.add((login, str(envelope_id)))
            return
        if what < 0.4:
            self._correct(role_id, login, plan, decision)
        self._database.write(resume_delivery, role_id, envelope_id, decision)
        self.done.resumed.add(str(envelope_id))

    def _correct(self, role_id: int, login: str, plan: Plan, decision: RepairDecision) -> None:
        correctable = [(event_id, index) for event_id, _, items in plan.events for index in range(len(items))]
        if correctable:
            event_id, index = self._choices.choice(correctable)
            before = next(items[index] for found, _, items in plan.events if found == event_id)
            after = MENDED + b"%d" % self._choices.getrandbits(32)
            for_all = self._choices.random() < 0.5
            parked = {self._logins[each] for each, envelope_id in self.parked() if envelope_id == plan.envelope_id}
            self._database.write(add_correction, None if for_all else role_id, event_id, index, before, after, decision)
            made = self.done.corrected.setdefault((str(event_id), index), [])
            if for_all:
                made.append(Corrected(self._clock.monotonic(), after, None, frozenset(parked)))
            else:
                made.append(Corrected(self._clock.monotonic(), after, login, frozenset({login})))

    def parked(self) -> list[tuple[int, UUID]]:
        """Role and envelope of each parked delivery."""

        def read(connection: sa.Connection) -> list[tuple[int, UUID]]:
            row = model.delivery.c
            wanted = sa.select(row.role_id, row.envelope_id).where(row.state == "parked")
            return [(role_id, envelope_id) for role_id, envelope_id in connection.execute(wanted)]

        return self._database.read(read)

    def isolated(self) -> set[tuple[str, str, int]]:
        """Role, event and index of each item that is parked alone."""

        def read(connection: sa.Connection) -> set[tuple[str, str, int]]:
            item = model.parked_item.c
            wanted = sa.select(item.role_id, item.event_id, item.item_index)
            return {(self._logins[role], str(event), index) for role, event, index in connection.execute(wanted)}

        return self._database.read(read)
