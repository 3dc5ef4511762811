"""Who is registered, and who is told of it."""

import asyncio

from tests.support.clock import StandingClock
from tests.support.recipients import Cast
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.served import RoleEvents
from xbus.broker.back.recipients.slots import Slots


class Diary:
    """Notes who comes and goes."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, RecipientProxy]] = []

    def joined(self, recipient: RecipientProxy) -> None:
        self.notes.append(("joined", recipient))

    def parted(self, recipient: RecipientProxy) -> None:
        self.notes.append(("parted", recipient))


class Bench:
    """A registry and what it needs."""

    def __init__(self) -> None:
        self.clock = StandingClock()
        self.slots: Slots[RecipientProxy] = Slots()
        events = RoleEvents()
        self.registry = Registry(self.slots, self.clock, events)
        self.diary = Diary()
        events.joined.subscribe(self.diary.joined)
        events.parted.subscribe(self.diary.parted)
        self.cast = Cast()


async def test_who_comes_and_goes_is_told() -> None:
    bench = Bench()
    store = bench.cast.consumer("store")
    bench.registry.add(store)
    served = bench.registry.get(store.role.id)
    assert served is not None
    assert served.instances == [store]
    assert bench.registry.all() == [served]
    bench.registry.remove(store, "the test said so")
    assert bench.registry.get(store.role.id) is None
    assert bench.cast.clients["store"].closed
    assert bench.diary.notes == [("joined", store), ("parted", store)]


async def test_who_is_not_on_the_list_can_not_leave_it() -> None:
    bench = Bench()
    bench.registry.remove(bench.cast.consumer("store"), "the test said so")
    assert bench.diary.notes == []


async def test_a_newer_recipient_of_a_role_takes_its_place() -> None:
    bench = Bench()
    older = bench.cast.consumer("older")
    newer = bench.cast.consumer("newer")
    newer.role = older.role
    bench.registry.add(older)
    bench.registry.add(newer)
    assert bench.diary.notes == [("joined", older), ("parted", older), ("joined", newer)]
    bench.registry.remove(older, "too late")
    assert bench.registry.connected() == [newer]


async def test_how_long_a_service_is_absent() -> None:
    bench = Bench()
    names = bench.cast.worker("names")
    bench.clock.go_on(10)
    assert bench.registry.absent_for("names") == 10
    bench.registry.add(names)
    assert (bench.registry.is_served("names"), bench.registry.absent_for("names")) == (True, 0)
    bench.clock.go_on(5)
    bench.registry.remove(names, "the test said so")
    bench.clock.go_on(3)
    assert (bench.registry.is_served("names"), bench.registry.absent_for("names")) == (False, 3)


async def test_waiting_for_the_next_to_come() -> None:
    bench = Bench()
    waiting = asyncio.ensure_future(bench.registry.arrival(seconds=60))
    await asyncio.sleep(0)
    bench.registry.add(bench.cast.worker("names"))
    await waiting


async def test_not_waiting_for_ever() -> None:
    await Bench().registry.arrival(seconds=0)
