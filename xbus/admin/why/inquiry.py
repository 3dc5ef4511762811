"""Carries a question out: it reads the facts, asks the broker where only its memory has the rest, and reads again."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

from xbus.admin.why.bots import explain_bot, explain_runner, explain_unknown_bot
from xbus.admin.why.deliveries import Surroundings
from xbus.admin.why.emitters import explain_emitter, explain_slowed, explain_unknown_emitter, explain_unknown_key
from xbus.admin.why.envelopes import explain_envelope, explain_refused, explain_unknown
from xbus.admin.why.findings import Finding
from xbus.admin.why.readers import explain_reader
from xbus.admin.why.roles import explain_role, explain_unknown_role
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.envelopes.short_ids import DIGITS
from xbus.broker.journal.operations.why.bots import list_bots_of, read_bot_facts
from xbus.broker.journal.operations.why.deliveries import KeyedEnvelope, read_keyed
from xbus.broker.journal.operations.why.emitters import find_emitter, read_emitter_facts
from xbus.broker.journal.operations.why.envelopes import AskedPart, EnvelopeFacts, read_envelope_facts
from xbus.broker.journal.operations.why.readers import read_reader_facts
from xbus.broker.journal.operations.why.roles import RoleFacts, read_role_facts
from xbus.broker.journal.operations.why.situations import read_logins
from xbus.broker.journal.operations.why.subjects import find_keyed, find_subject, read_oldest
from xbus.clock import Clock
from xbus.errors import EnvelopeCancelled
from xbus.ids import keyed_envelope_id
from xbus.rpc.messages import HealthReport
from xbus.rpc.messages.insight import Insight, RefusedCall, SlowedEmitter
from xbus.states import EnvelopeState

T = TypeVar("T")

ALL = AskedPart()


class JournalAccess(Protocol):
    """Reads the journal, each time in a transaction of its own."""

    def __call__(self, read: Callable[[Connection], T], /) -> T:
        """Give what ``read`` returns."""


class BrokerAccess(Protocol):
    """The running broker."""

    def insight(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight | None:
        """Ask the back for its memory; None if it can't be reached."""

    def refused(self, envelope_id: UUID) -> RefusedCall | None:
        """Ask the front for the last call about an envelope that it refused; None also if it can't be reached."""

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        """Ask the front how it slows an emitter down; None if it does not, or can't be reached."""

    def front_health(self) -> HealthReport | None:
        """Ask the front how it is; None if it can't be reached."""


class Inquiry:
    """Answers questions; the first finding is the answer, the others stand beside it.

    Args:
        journal: reads the journal.
        broker: the running broker.
        clock: tells the moment of the answer.
    """

    def __init__(self, journal: JournalAccess, broker: BrokerAccess, clock: Clock) -> None:
        self._read = journal
        self._broker = broker
        self._clock = clock

    def by_id(self, digits: str, part: AskedPart = ALL) -> list[Finding]:
        """Explain the envelope or event with an id, or the envelope whose id begins with some digits.

        Raises:
            Refused: several envelopes begin so (``ambiguous_id``).
        """
        found = self._read(lambda connection: find_subject(connection, digits))
        if found is None:
            asked = UUID(digits) if len(digits) == DIGITS else None
            return [*self._refused(asked), explain_unknown(digits, self._read(read_oldest))]
        envelope_id, event = found
        return self.envelope(envelope_id, part if event is None else AskedPart(part.role, event.number, part.item))

    def by_key(self, emitter: str, key: str, part: AskedPart = ALL) -> list[Finding]:
        """Explain the newest envelope to which an emitter gave a key."""
        emitter_id = self._read(lambda connection: find_emitter(connection, emitter))
        if emitter_id is None:
            return [explain_unknown_emitter(emitter)]
        envelope_id = self._read(lambda connection: find_keyed(connection, emitter_id, key))
        # The front notes calls that name a key under the id of its first try, however many were cancelled since.
        first_try = keyed_envelope_id(emitter_id, key)
        if envelope_id is None:
            slowed = explain_slowed(emitter, self._broker.slowed(emitter_id))
            return [*self._refused(first_try), *slowed, explain_unknown_key(emitter, key)]
        return self.envelope(envelope_id, part, first_try)

    def _refused(self, envelope_id: UUID | None, known: str = "") -> list[Finding]:
        """Explain that the front refused an envelope; nothing where it remembers nothing of that kind.

        Args:
            known: the code of a refusal that needs no explanation; empty for none.
        """
        call = None if envelope_id is None else self._broker.refused(envelope_id)
        if call is None or envelope_id is None or call["code"] == known:
            return []
        return [explain_refused(call, envelope_id)]

    def envelope(self, envelope_id: UUID, part: AskedPart = ALL, first_try: UUID | None = None) -> list[Finding]:
        """Explain an envelope, or a part of it.

        Args:
            first_try: the id under which the front notes refused calls by its key; None where no key is asked about.
        """
        facts = self._read(partial(read_envelope_facts, envelope_id=envelope_id, part=part))
        around = Surroundings(None, self._clock.now())
        if facts is not None and facts.asks_the_back:
            insight = self._ask(facts)
            # The journal is read last: it has the end of a delivery that the back still knew as going on.
            facts = self._read(partial(read_envelope_facts, envelope_id=envelope_id, part=part))
            around = Surroundings(insight, self._clock.now(), self._keyed(facts, insight), self._logins(insight))
        if facts is None:
            return [explain_unknown(str(envelope_id), self._read(read_oldest))]
        findings = explain_envelope(facts, around)
        summary = facts.detail.summary
        if summary.position is not None:
            return findings
        if summary.state is EnvelopeState.OPEN:
            findings = [*self._slowed(summary.emitter), *findings]
        ids = dict.fromkeys([envelope_id, first_try])
        # That it was cancelled says already why later calls about it were refused.
        known = EnvelopeCancelled.default_code if summary.state is EnvelopeState.CANCELLED else ""
        return [*findings, *(finding for each in ids for finding in self._refused(each, known))]

    def _slowed(self, login: str) -> list[Finding]:
        """Explain that an emitter is held by its limits; nothing where it is not."""
        emitter_id = self._read(lambda connection: find_emitter(connection, login))
        return [] if emitter_id is None else explain_slowed(login, self._broker.slowed(emitter_id))

    def _ask(self, facts: EnvelopeFacts) -> Insight | None:
        consumers = {delivery.role.id for delivery in facts.deliveries if delivery.role is not None}
        workers = {worker.id for delivery in facts.deliveries for worker in delivery.workers}
        summary = facts.detail.summary
        return self._broker.insight(sorted(consumers | workers), summary.id, summary.position)

    def _keyed(self, facts: EnvelopeFacts | None, insight: Insight | None) -> dict[int, KeyedEnvelope]:
        ordered = {
            delivery.role.id
            for delivery in (() if facts is None else facts.deliveries)
            if delivery.role is not None and delivery.role.ordered
        }
        roles = [] if insight is None else insight["roles"]
        positions = {position for role in roles if role["role"] in ordered for position in role["in_flight"]}
        return self._read(partial(read_keyed, positions=positions)) if positions else {}

    def _logins(self, insight: Insight | None) -> dict[int, str]:
        """Read the logins of the roles that the back names by their ids."""
        if insight is None:
            return {}
        beside = {role_id for role in insight["roles"] for role_id in role["held_up_by"]}
        named = beside | {call["role"] for call in insight["in_hand"]}
        return self._read(partial(read_logins, role_ids=named)) if named else {}

    def role(self, login: str) -> list[Finding]:
        """Explain a role, a reader or a subscription. The role of a reader gives that reader, and a runner its bots."""
        bots = self._read(partial(list_bots_of, login=login))
        if bots is not None:
            return explain_runner(login, [finding for name in bots for finding in self.bot(name)])
        facts = self._read(partial(read_role_facts, login=login))
        reader = login if facts is None or facts.role.removed_at is not None else facts.role.service
        of_reader = self._read(partial(read_reader_facts, name=reader))
        if of_reader is not None:
            return explain_reader(of_reader)
        if facts is None:
            return [explain_unknown_role(login)]
        around = Surroundings(self._broker.insight([facts.role.id], None, None), self._clock.now())
        return explain_role(facts, around, self._oldest(facts))

    def _oldest(self, facts: RoleFacts) -> Finding | None:
        """Explain the oldest envelope that a role lacks."""
        if facts.oldest is None:
            return None
        return self.envelope(facts.oldest, AskedPart(facts.role.login))[0]

    def bot(self, name: str) -> list[Finding]:
        """Explain a bot."""
        facts = self._read(partial(read_bot_facts, name=name, now=self._clock.now()))
        return [explain_unknown_bot(name)] if facts is None else explain_bot(facts, self._clock.now())

    def emitter(self, login: str) -> list[Finding]:
        """Explain an emitter."""
        facts = self._read(partial(read_emitter_facts, login=login, now=self._clock.now()))
        if facts is None:
            return [explain_unknown_emitter(login)]
        return explain_emitter(facts, self._broker.front_health(), self._broker.slowed(facts.id))
