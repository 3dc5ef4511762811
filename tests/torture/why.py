"""Asks ``xbus why`` of a broker that is being struck, and compares its answers with the journal and the consumers."""

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import sqlalchemy as sa

from tests.support.why_states import OF_STATE, read_state
from tests.torture import bus
from tests.torture.history import Received, Routes
from xbus.admin.why.findings import Code, Finding
from xbus.admin.why.inquiry import Inquiry, RunningBroker
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.why.envelopes import AskedPart
from xbus.clock import SystemClock
from xbus.errors import JournalUnavailable

T = TypeVar("T")

ASKED_AT_ONCE = 3
ASKED_AT_THE_END = 200


class Asker:
    """Asks about some envelopes; each answer that the journal does not permit is a problem.

    Args:
        url: the database.
        config_path: the configuration of the broker.
        routes: the ways of the items.
        seed: chooses the envelopes.
    """

    def __init__(self, url: str, config_path: Path, routes: Routes, seed: int) -> None:
        self._url = url
        self._routes = routes
        self._choices = random.Random(seed)
        self._inquiry = Inquiry(self._read, RunningBroker(config_path), SystemClock())
        self._position = 0
        self.problems: list[str] = []
        self.answers: dict[Code, int] = {}
        """How often each code was the answer."""

    def _read(self, read: Callable[[sa.Connection], T]) -> T:
        with reading(self._url) as connection:
            return read(connection)

    async def ask(self) -> None:
        """Ask about some of the envelopes that were received since it was asked last; nothing without a database."""
        await asyncio.to_thread(self._ask_some)

    def _ask_some(self) -> None:
        try:
            received = bus.read_received(self._url, above=self._position)
            self._position = max([self._position, *(envelope.position for envelope in received.values())])
            for role, envelope_id in self._chosen(received, ASKED_AT_ONCE):
                self._check(role, UUID(envelope_id))
        except JournalUnavailable:
            return

    async def ask_at_the_end(self, committed: Mapping[str, Collection[str]]) -> None:
        """Ask when all is delivered: then the consumers themselves say whether an answer is right.

        Args:
            committed: the ids of the envelopes that each role has committed.
        """
        received = await asyncio.to_thread(bus.read_received, self._url)
        for role, envelope_id in self._chosen(received, ASKED_AT_THE_END):
            finding = await asyncio.to_thread(self._check, role, UUID(envelope_id))
            is_delivered = finding.code is Code.DELIVERED
            if is_delivered is not (envelope_id in committed[role]):
                self.problems.append(f"why says {finding.code} of {envelope_id} at {role}, the role says otherwise")

    def _chosen(self, received: Mapping[str, Received], most: int) -> Iterator[tuple[str, str]]:
        """Choose envelopes, and for each a role that it is for."""
        for envelope_id in self._choices.sample(sorted(received), min(most, len(received))):
            roles = {role for type_name, _ in received[envelope_id].events for role in self._routes[type_name]}
            if roles:
                yield self._choices.choice(sorted(roles)), envelope_id

    def _check(self, role: str, envelope_id: UUID) -> Finding:
        def state(connection: sa.Connection) -> str | None:
            return read_state(connection, role, envelope_id)

        before = self._read(state)
        finding = self._inquiry.envelope(envelope_id, AskedPart(role))[0]
        self.answers[finding.code] = self.answers.get(finding.code, 0) + 1
        # What has moved on meanwhile may be told as it was, or as it is.
        permitted = {code for each in (before, self._read(state)) if each is not None for code in OF_STATE[each]}
        if permitted and finding.code not in permitted:
            self.problems.append(f"why says {finding.code} of {envelope_id} at {role}, which is {before}")
        return finding
