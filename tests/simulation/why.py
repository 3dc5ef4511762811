"""Asks ``xbus why`` while the world goes on, and compares its answers with the states that the world is in."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import sqlalchemy as sa

from tests.support.why_states import OF_STATE, read_state
from xbus import model
from xbus.admin.address import Side
from xbus.admin.why.findings import Code, Finding
from xbus.admin.why.inquiry import Inquiry
from xbus.broker.journal.operations.why.envelopes import AskedPart
from xbus.rpc.messages import HealthReport, Insight, RefusedCall, SlowedEmitter
from xbus.states import ConsumerState

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""Virtual seconds between questions."""

PATIENCE_SECONDS = 12.0
"""An answer that names nothing to wait for may be true for so long: a call that is not answered takes 5 s."""

WATCHED = 3
"""So many envelopes of each store are asked about each time: what is in flight beside the first is among them."""

OF_CONSUMER: Mapping[Code, ConsumerState] = {
    Code.ROLE_ABSENT: ConsumerState.ABSENT,
    Code.ROLE_TRIPPED: ConsumerState.TRIPPED,
    Code.ROLE_LEAVING: ConsumerState.LEAVING,
}
"""The codes that name the state of a consumer role in the memory of the back."""


class WorldBroker:
    """The broker of a world, as a command would reach it."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def insight(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight | None:
        broker = self._world.broker
        if broker is None or not broker.serves:
            return None
        return broker.back.insight.tell(role_ids, envelope_id, position)

    def refused(self, envelope_id: UUID) -> RefusedCall | None:
        return None

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        return None

    def health(self, side: Side) -> HealthReport | None:
        return None


class Asker:
    """Asks about some envelopes each second: those that a store lacks longest, and any other.

    Args:
        world: what goes on.
        seed: chooses the others.
        stores: the logins of the roles to ask about.
    """

    def __init__(self, world: "World", seed: int, stores: Sequence[str]) -> None:
        self._world = world
        self._choices = random.Random(f"why {seed}")
        self._stores = stores
        self._broker = WorldBroker(world)
        self._inquiry = Inquiry(self._read, self._broker, world.clock)
        self._vague_since: dict[tuple[str, UUID], float] = {}
        self.answers: dict[Code, int] = {}
        """The number of answers with each code."""

    def _read(self, read: Callable[[sa.Connection], T]) -> T:
        return self._world.database.read(read)

    def ask(self) -> None:
        """Ask, and check each answer; nothing while the database is away, as a question would disturb its faults."""
        if self._world.database.is_uncertain:
            self._vague_since.clear()
            return
        lacking = self._world.undelivered()
        asked = {(store, UUID(name)) for store in self._stores for name in _first_of(lacking, store)}
        known = self._world.database.read(_read_ids)
        if known:
            asked.add((self._choices.choice(self._stores), self._choices.choice(known)))
        for login, envelope_id in sorted(asked):
            self._check(login, envelope_id)
        self._vague_since = {key: since for key, since in self._vague_since.items() if key in asked}

    def ask_all(self) -> None:
        """Ask about every envelope, when all is over."""
        for envelope_id in self._world.database.read(_read_ids):
            for login in self._stores:
                self._check(login, envelope_id)

    def _check(self, login: str, envelope_id: UUID) -> None:
        finding = self._inquiry.envelope(envelope_id, AskedPart(login))[0]
        self.answers[finding.code] = self.answers.get(finding.code, 0) + 1
        state = self._world.database.read(read_state, login, envelope_id)
        told = f"{finding.code} for {envelope_id} at {login}, which is {state}: {finding.cause}"
        if state is not None:
            assert finding.code in OF_STATE[state], told
        self._check_end(finding, login, str(envelope_id), told)
        self._check_memory(finding, login, told)
        self._check_vague(finding, login, envelope_id, told)

    def _check_end(self, finding: Finding, login: str, envelope_id: str, told: str) -> None:
        """The store itself has committed each envelope that is told as delivered."""
        if finding.code is Code.DELIVERED:
            is_dropped = (login, envelope_id) in self._world.operator.done.dropped
            assert envelope_id in self._world.commits(login) or is_dropped, told

    def _check_memory(self, finding: Finding, login: str, told: str) -> None:
        insight = self._broker.insight([self._world.role_id(login)], None, None)
        assert (finding.code is not Code.BACK_UNREACHABLE) or insight is None, told
        assert (finding.code is not Code.BACK_UNAWARE) or insight is None or not insight["roles"], told
        if insight is not None and finding.code in OF_CONSUMER:
            assert insight["roles"][0]["state"] == OF_CONSUMER[finding.code], told
        if finding.code is Code.ROLE_ABSENT:
            assert insight is not None, told
            assert insight["roles"][0]["programs"] == 0, told

    def _check_vague(self, finding: Finding, login: str, envelope_id: UUID, told: str) -> None:
        """An answer by which nothing keeps the envelope does not stay true."""
        key, now = (login, envelope_id), self._world.loop.time()
        if not _is_vague(finding):
            self._vague_since.pop(key, None)
            return
        since = self._vague_since.setdefault(key, now)
        assert now - since < PATIENCE_SECONDS, f"for {now - since:.0f} s {told}"


def _first_of(lacking: Sequence[tuple[str, str]], store: str) -> Sequence[str]:
    """The envelopes that a store lacks longest."""
    return [name for login, name in lacking if login == store][:WATCHED]


def _is_vague(finding: Finding) -> bool:
    proof = finding.proof
    match finding.code:
        case Code.IN_LINE:
            return proof.envelopes == 0
        case Code.RETRY_DUE:
            return proof.until_at is None
        case Code.UNDER_WAY:
            return proof.verb is None
        case _:
            return finding.code in (Code.UNWRITTEN, Code.WORKER_GRACE, Code.ROLE_LEAVING, Code.BACK_UNAWARE)


def _read_ids(connection: sa.Connection) -> Sequence[UUID]:
    return connection.execute(sa.select(model.envelope.c.id).order_by(model.envelope.c.id)).scalars().all()
