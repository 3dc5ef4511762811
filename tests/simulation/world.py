"""Everything together: emitters, a broker, recipients, what strikes them, and what must be true in the end."""

import asyncio
import itertools
import math
import random
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any

import sqlalchemy as sa

from tests.simulation import chaining
from tests.simulation.bulk import BulkStamp, ReportLine
from tests.simulation.emitters import Plan, Sent, SimulatedEmitter
from tests.simulation.groups import GroupSender
from tests.simulation.operators import Operator
from tests.simulation.recipients import Commit, Mood, SimulatedRecipient, Stamp, Store, is_one_of
from tests.simulation.settings import SETTINGS
from tests.simulation.timing import many_times
from tests.simulation.variant import Variant, toggle_order
from tests.support.journal import small_bus_image
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.log.catalog import Catalog, read_catalog
from xbus.broker.journal.writes import PauseKind
from xbus.recipient.base import Recipient
from xbus.testing.broker import VirtualBroker
from xbus.testing.journal import Database
from xbus.testing.loop import VirtualClock, VirtualLoop

PATIENCE_SECONDS = 3_600.0
"""In virtual time: what is not delivered so long after the last fault counts as lost."""

STAMPS = {"notes": 0, "flights": 1, "fares": 2, chaining.COPIES: 0}
"""How many workers mark an item of a type on its way to the stores."""

STORES = ("store_1", "store_2")

LEASE_SECONDS = 3.0
RENEWAL_SECONDS = 1.0
"""A broker that wakes up notices within so many seconds that it leads no more."""

KEYED, HEADED = 0.3, 0.3
"""The shares of the envelopes that are put in groups with an idempotency key, and with headers."""


class World:
    """A bus in which everything is decided by a seed.

    Args:
        seed: of all choices that the world itself makes.
        variant: how the bus is set.
    """

    def __init__(self, seed: int, variant: Variant | None = None) -> None:
        self.variant = variant or Variant()
        self.choices = random.Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.database = Database(small_bus_image())
        self.sent = Sent()
        self.parkable: set[str] = set()
        """The envelopes that recipients refuse for good, whole or in part."""
        self.fault_times: list[float] = []
        self.pauses: list[tuple[str, float, float]] = []
        """The login of each role that was paused, since when and until when."""
        self._paused: set[tuple[PauseKind, str]] = set()
        self.problems: list[str] = []
        self.broker: VirtualBroker | None = None
        self.database.write(self.variant.write)
        self._catalog: Catalog = self.database.read(read_catalog)
        logins = {role.id: role.login for role in self._catalog.roles.values()}
        self.operator = Operator(self.database, self.choices, self.clock, logins)
        self._tasks: set[asyncio.Task[None]] = set()
        self._senders = {
            login: GroupSender(self._emitter_id(login), lambda: self.broker, self.choices, self.sent, self._spawn)
            for login in ("north", "south")
        }
        self._commits: dict[str, list[Commit]] = {login: [] for login in STORES}
        self._recipients = {
            name: self._recipient(login, name)
            for login in ("names_1", "prices_1", *STORES)
            for name in self.variant.programs(login)
        }
        self._by_address = {process.address: process for process in self._recipients.values()}
        self.loop.set_exception_handler(self._note_problem)

    def _note_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _recipient(self, login: str, name: str) -> SimulatedRecipient:
        def author(mood: Mood) -> Recipient:
            if login in STORES:
                return Store(self.choices, mood, self._commits[login], self.loop.time, self.variant.envelopes)
            return BulkStamp(self.choices, mood, self.database) if self.variant.bulk else Stamp(self.choices, mood)

        role_id = self.role_id(login)
        line = ReportLine(role_id, lambda: self.broker, self.choices, lambda: self._recipients[name].is_stopped)
        listens = login in self.variant.listening
        return SimulatedRecipient(login, author, self.choices, self.clock, line.call, name, listens=listens)

    @property
    def programs(self) -> Sequence[str]:
        """The names of all programs that serve roles, or stand by."""
        return list(self._recipients)

    def role_id(self, login: str) -> int:
        """The id of a role."""
        return next(role.id for role in self._catalog.roles.values() if role.login == login)

    # -- what goes on ----------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something happen, and all else with it."""
        self.loop.run_until_complete(work)
        if self.broker is not None:
            self.broker.check_alive()
        assert not self.problems, self.problems

    async def begin(self) -> None:
        """Everything starts."""
        self._start_broker()
        for recipient in self._recipients.values():
            recipient.start()
            role_id = self.role_id(recipient.login)
            self._spawn(recipient.keep_registered(role_id, lambda: self.broker))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start_broker(self) -> None:
        self.broker = VirtualBroker(self.database, self._by_address, many_times(self.choices), self.clock, SETTINGS)

    def emit(
        self, event_types: Sequence[str], items: int, *, in_one_call: bool, cancel: bool = False, key: str = ""
    ) -> Plan:
        """An emitter begins to send an envelope; it puts one of one event with those that wait by then."""
        if in_one_call and not cancel and len(event_types) == 1:
            return self.put("north", event_types[0], items, key=key)
        envelope_id = self._new_id()
        events = tuple((self._new_id(), name, _items(number, items)) for number, name in enumerate(event_types))
        plan = Plan(envelope_id, events, key or None, in_one_call and not cancel, cancel, headers={})
        emitter = SimulatedEmitter(self._emitter_id("north"), lambda: self.broker, self.choices, self.sent)
        self._spawn(emitter.send(plan))
        return plan

    def put(self, login: str, type_name: str, items: int, *, key: str = "") -> Plan:
        """An emitter puts an envelope of one event, some under an idempotency key, and some with headers."""
        sender, own_key = self._senders[login], None
        envelope_id, event_id = self._new_id(), self._new_id()
        headers = {"shop": "Paris"} if self.choices.random() < HEADED else {}
        if self.choices.random() < KEYED:
            own_key = f"order {len(self.sent.plans)}"
            envelope_id, event_id = (uuid.UUID(bytes=each) for each in sender.ids_of_key(own_key))
        events = ((event_id, type_name, _items(0, items)),)
        plan = Plan(envelope_id, events, key or None, in_one_call=True, key=own_key, headers=headers)
        sender.put(plan)
        return plan

    def _emitter_id(self, login: str) -> int:
        return next(entry.id for entry in self._catalog.emitters.values() if entry.login == login)

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.choices.getrandbits(128), version=4)

    # -- what strikes ----------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        self.fault_times.append(self.loop.time())

    async def kill_broker(self, seconds: float) -> None:
        """It is killed, and starts again after a while."""
        self._strike()
        assert self.broker is not None
        await self.broker.kill()
        await asyncio.sleep(seconds)
        self._start_broker()
        self._strike()

    async def restart_broker(self, seconds: float) -> None:
        """It is stopped in order, and starts again after a while."""
        self._strike()
        assert self.broker is not None
        if not await self.broker.stop():
            return
        await asyncio.sleep(seconds)
        self._start_broker()
        self._strike()

    async def freeze_broker(self, seconds: float) -> None:
        """It is frozen. Where its lease ends meanwhile another one leads; it hands nothing out any more, and ends."""
        frozen = self.broker
        if frozen is None or frozen.is_dead.is_set():
            return
        self._strike()
        self.broker = None
        frozen.lead_until(self.loop.time() + LEASE_SECONDS)
        self.loop.freeze(frozen)
        await asyncio.sleep(min(seconds, LEASE_SECONDS))
        if seconds < LEASE_SECONDS:
            self.loop.thaw(frozen)
            frozen.lead_until(math.inf)
            self.broker = frozen
        else:
            frozen.is_dead.set()  # to its programs, which hear nothing of it
            self._start_broker()
            await asyncio.sleep(seconds - LEASE_SECONDS)
            handed_out = frozen.handed_out
            self.loop.thaw(frozen)
            await asyncio.sleep(RENEWAL_SECONDS)
            assert frozen.handed_out == handed_out, "a broker that led no more has handed something out"
            await frozen.kill()
        self._strike()

    async def restart_recipient(self, login: str, seconds: float) -> None:
        """The same with a recipient: it ends what is open, and says farewell."""
        recipient = self._recipients[login]
        if recipient.served is None:
            return
        self._strike()
        role_id = self.role_id(recipient.login)
        await recipient.stop(role_id, self.broker)
        await asyncio.sleep(seconds)
        recipient.start()
        self._strike()

    async def kill_recipient(self, login: str, seconds: float) -> None:
        """The same with a recipient."""
        self._strike()
        self._recipients[login].kill()
        await asyncio.sleep(seconds)
        self._recipients[login].start()
        self._strike()

    async def stop_recipient(self, login: str, seconds: float) -> None:
        """It does nothing for a while."""
        self._strike()
        self._recipients[login].is_stopped = True
        await asyncio.sleep(seconds)
        self._recipients[login].is_stopped = False
        self._strike()

    async def cut(self, login: str) -> None:
        """Its connections break, while it lives on."""
        self._strike()
        for connection in list(self._recipients[login].connections):
            connection.lose()

    async def fail_for_a_while(self, login: str, share: float, seconds: float) -> None:
        """The author's code raises now and then."""
        self._strike()
        self._recipients[login].mood.failing = share
        await asyncio.sleep(seconds)
        self._recipients[login].mood.failing = 0.0
        self._strike()

    def refuse(self, login: str, plan: Plan) -> None:
        """A recipient never takes an envelope."""
        self._recipients[login].mood.refuses.add(str(plan.envelope_id))
        self.parkable.add(str(plan.envelope_id))

    def refuse_items(self, login: str, plan: Plan) -> None:
        """A recipient never takes some items of an envelope."""
        most = max((len(items) for _, _, items in plan.events), default=0)
        indices = self.choices.sample(range(most), min(most, self.choices.choice((1, 1, 3))))
        self._recipients[login].mood.bad_items.update((str(plan.envelope_id), index) for index in indices)
        self.parkable.add(str(plan.envelope_id))

    def repair(self) -> None:
        """An operator does something about what is parked."""
        self.operator.repair(self.sent.plans)

    def toggle_order(self) -> None:
        """An administrator has a store want order, or want it no longer; what it promises then is checked of others."""
        for login in set(STORES) - set(self.variant.ordered):
            if not self.database.is_uncertain:
                self._strike()
                self.database.write(toggle_order, login)

    async def pause(self, kind: PauseKind, login: str, type_name: str, seconds: float) -> None:
        """An operator pauses something for a while, which is no fault: nothing may come twice for that.

        Args:
            login: the role, or one of the service, if one of them is paused.
            type_name: the event type, if one is paused.
        """
        login = login.partition(" ")[0]  # a role is paused with all its programs
        service = next(role.service for role in self._catalog.roles.values() if role.login == login)
        names = {PauseKind.SERVICE: service, PauseKind.TYPE: type_name, PauseKind.EMITTER: "north"}
        name = names.get(kind, login)
        if self.database.is_uncertain or (kind, name) in self._paused:
            return
        self._paused.add((kind, name))
        began = self.loop.time()
        self.database.write(pausing.pause, kind, name, self._decision(), None)
        await asyncio.sleep(seconds)
        await self._database_there()
        self.database.write(pausing.resume, kind, name, self._decision())
        self._paused.remove((kind, name))
        if kind in (PauseKind.ROLE, PauseKind.SERVICE):
            self.pauses.append((login, began, self.loop.time()))

    async def _database_there(self) -> None:
        while self.database.is_uncertain:
            await asyncio.sleep(0.5)

    def _decision(self) -> RepairDecision:
        return RepairDecision("the world", "moving house", self.clock.now())

    async def lose_database(self, seconds: float) -> None:
        """It is away for a while."""
        self._strike()
        self.database.is_away = True
        await asyncio.sleep(seconds)
        self.database.is_away = False
        self._strike()

    async def lose_commit(self, commits: int, seconds: float) -> None:
        """A COMMIT takes place and its answer is lost."""
        self._strike()
        self.database.commits_until_lost = commits
        await asyncio.sleep(seconds)
        self.database.commits_until_lost = None
        self.database.is_away = False
        self._strike()

    # -- what must be true -----------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until everything is sent and delivered; what is parked an operator resumes, having mended its cause."""
        began = self.loop.time()
        while self.loop.time() - began < PATIENCE_SECONDS:
            busy = set(self.sent.plans) - self.sent.acknowledged - self.sent.cancelled - set(self.sent.refused)
            is_sending = any(sender.is_busy for sender in self._senders.values())
            if not busy and not is_sending and not self.undelivered():
                return
            await asyncio.sleep(5)
            for recipient in self._recipients.values():
                recipient.mood.refuses.clear()
                recipient.mood.bad_items.clear()
            self.repair()

    def received(self) -> list[str]:
        """The envelopes that the journal holds sealed, in position order."""

        def read(connection: sa.Connection) -> list[str]:
            wanted = sa.select(model.envelope.c.id).where(model.envelope.c.position.is_not(None))
            return [str(found) for found in connection.execute(wanted.order_by(model.envelope.c.position)).scalars()]

        return self.database.read(read)

    def _receipts(self) -> dict[str, tuple[bytes, int, bytes]]:
        """The receipts that the journal has for what was put in groups."""

        def read(connection: sa.Connection) -> dict[str, tuple[bytes, int, bytes]]:
            row = model.envelope.c
            found = connection.execute(sa.select(row.id, row.position, row.hash).where(row.position.is_not(None))).all()
            return {str(each.id): (each.id.bytes, each.position, each.hash) for each in found}

        return {name: receipt for name, receipt in self.database.read(read).items() if name in self.sent.receipts}

    def commits(self, login: str) -> dict[str, list[float]]:
        """When a store committed each envelope."""
        times: dict[str, list[float]] = {}
        for commit in self._commits[login]:
            times.setdefault(commit.envelope_id, []).append(commit.at)
        return times

    def undelivered(self) -> list[tuple[str, str]]:
        """Store and envelope of all that was received and is neither committed nor dropped."""
        plans, received = self.plans(), self.received()
        owed = [name for name in received if plans[name].events]
        over = {(login, name) for login in STORES for name in self.commits(login)} | self.operator.done.dropped
        lacking = [(login, name) for login in STORES for name in owed if (login, name) not in over]
        return lacking + (
            self.database.read(chaining.lacking, plans, owed, self.operator.done) if self.variant.chained else []
        )

    def plans(self) -> dict[str, Plan]:
        """What emitters send, and what a node that emits made of it."""
        made = (
            self.database.read(chaining.made_once, self.sent.plans, self.operator.done) if self.variant.chained else {}
        )
        return self.sent.plans | {str(plan.envelope_id): plan for plan in made.values()}

    def check(self) -> None:
        """The promises of the bus, each by itself."""
        received = self.received()
        assert self.sent.acknowledged <= set(received), "acknowledged and not in the journal"
        assert self.sent.cancelled.isdisjoint(received), "cancelled and sealed"
        assert not self.sent.refused, self.sent.refused
        assert not self.sent.wrongs, self.sent.wrongs
        assert self.sent.receipts == self._receipts(), "a receipt says other than the journal"
        assert set(self.sent.plans) == self.sent.acknowledged | self.sent.cancelled, "an emitter was never answered"
        assert not self.undelivered(), f"lost: {self.undelivered()}"
        if not self.fault_times:
            assert self.operator.done.resumed <= self.parkable, "parked without a cause"
        for login in STORES:
            self._check_contents(login, set(received))
            self._check_repeats(login)
        for login in self.variant.ordered:
            self._check_order(login, received)
        for login, began, ended in self.pauses:
            self._check_pause(login, began, ended)

    def _check_pause(self, login: str, began: float, ended: float) -> None:
        """Nothing begins at a paused store as soon as the broker can know of it."""
        if login not in STORES or any(began - 30 <= at <= ended for at in self.fault_times):
            return
        begun = [commit.begun for commit in self._commits[login] if began + 2 <= commit.begun <= ended]
        assert not begun, f"{login} was paused from {began} to {ended}, and began at {begun}"

    def _check_order(self, login: str, received: Sequence[str]) -> None:
        """For each ordering key the envelopes come, for the first time, in the order of their positions."""
        first: dict[str | None, list[int]] = {}
        plans = self.plans()
        for name in self.commits(login):
            first.setdefault(plans[name].ordering_key, []).append(received.index(name))
        assert all(each == sorted(each) for each in first.values()), f"reordered: {first}"

    def _check_contents(self, login: str, received: set[str]) -> None:
        isolated, plans = self.operator.isolated(), self.plans()
        for commit in self._commits[login]:
            assert commit.envelope_id in received, "invented"
            expected = {
                str(event_id): [
                    ([index], self._versions(login, str(event_id), index, item, commit, b"*" * STAMPS[name]))
                    for index, item in enumerate(items)
                    if (login, str(event_id), index) not in isolated
                ]
                for event_id, name, items in plans[commit.envelope_id].events
            }
            headers = plans[commit.envelope_id].headers
            assert headers is None or all(each == headers for each in commit.headers.values()), f"headers: {commit}"
            assert is_one_of(commit.events, expected), f"torn at {login}: {commit.events} in the place of {expected}"

    def _versions(
        self, login: str, event_id: str, index: int, item: bytes, commit: Commit, stamps: bytes
    ) -> set[bytes]:
        versions = self.operator.done.versions(login, event_id, index, item, commit.begun, commit.at)
        return {version + stamps for version in versions}

    def _check_repeats(self, login: str) -> None:
        """Only what was under way when something struck may come twice."""
        for name, times in self.commits(login).items():
            for first, second in itertools.pairwise(times):
                struck = any(first - 30 <= at <= second for at in self.fault_times)
                assert struck, f"{login} got {name} twice, at {first} and {second}, and nothing had struck"

    def close(self) -> None:
        """End everything."""

        async def end() -> None:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for recipient in self._recipients.values():
                recipient.kill()
            if self.broker is not None and not self.broker.is_dead.is_set():
                await self.broker.kill()

        self.loop.run_until_complete(end())
        self.loop.close()
        self.database.close()


def _items(number: int, items: int) -> tuple[bytes, ...]:
    """The items of the event of this number."""
    return tuple(b"%d/%d" % (number, index) for index in range(items))
