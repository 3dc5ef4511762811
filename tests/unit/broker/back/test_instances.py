"""Several programs of one role, in a whole back: they share its envelopes, and stand in for each other."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.recipients import BUNDLES, LOST, NEW
from xbus import model
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.journal.journal import Journal
from xbus.errors import Refused

TAKEN: list[Any] = [True, None, []]
PROGRAMS = ("store_a", "store_b", "store_c", "store_d")
ROLE = "store_1"


async def configure(journal: Journal, **values: Any) -> None:
    def carry_out(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.role).where(model.role.c.login == ROLE).values(**values))
        connection.execute(sa.update(model.configuration).values(version=model.configuration.c.version + 1))

    await journal.read(carry_out)


class Desk:
    """Programs of a role whose answers wait until the test gives them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.open: dict[str, dict[str, asyncio.Future[Any]]] = {name: {} for name in PROGRAMS}
        self.taken: list[str] = []

    async def join(self, *names: str) -> None:
        for name in names:

            def take(
                envelope_id: str, event_id: str, type_name: str, batches: Any, commit: bool, who: str = name
            ) -> Any:
                (_, _, data, _), *_ = batches
                answer = asyncio.get_running_loop().create_future()
                self.open[who][bytes(data[2:]).decode()] = answer
                return answer

            await self.broker.join(ROLE, name, NEW, xbus_take_event=take)

    def has(self, **items: str) -> bool:
        """Check what each program has in hand: letters, each an item, of the programs that end with the name."""
        return all("".join(sorted(self.open[f"store_{name}"])) == wanted for name, wanted in items.items())

    def end(self, name: str, item: str) -> None:
        self.taken.append(item)
        self.open[name].pop(item).set_result(TAKEN)

    def fail(self, name: str) -> None:
        for answer in self.open[name].values():
            answer.set_exception(LOST)
        self.open[name].clear()

    async def lose(self, name: str) -> None:
        self.fail(name)
        await self.broker.lose(ROLE, name)

    async def put(self, *items: str) -> None:
        """An envelope with each of these items, whose ordering key is its first letter; none for a dash."""
        for item in items:
            await self.broker.put(item.encode(), ordering_key=None if item[0] == "-" else item[0])


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_each_envelope_goes_whole_to_one_of_them(journal: Journal) -> None:
    await configure(journal, instances=2)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b")
        await desk.put("1", "2", "3")
        await broker.until(lambda: desk.has(a="1", b="2"))
        await settle()
        assert desk.has(a="1", b="2")
        desk.end("store_b", "2")
        await broker.until(lambda: desk.has(a="1", b="3"))
        desk.end("store_a", "1")
        desk.end("store_b", "3")
        await broker.until_rows({})
        while await broker.cursor() != 3:
            await asyncio.sleep(0)


async def test_what_a_lost_one_had_goes_to_another_at_once(journal: Journal) -> None:
    await configure(journal, instances=2)
    async with running(journal, retry=RetryPolicy(attempts=3, first_delay=1000), clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b")
        await desk.put("1", "2", "3")
        await broker.until(lambda: desk.has(a="1", b="2"))
        await desk.lose("store_a")
        desk.end("store_b", "2")
        await broker.until(lambda: desk.has(b="1") or desk.has(b="3"))
        (first,) = desk.open["store_b"]
        desk.end("store_b", first)
        await broker.until(lambda: desk.has(b="1") or desk.has(b="3"))
        assert {first, *desk.open["store_b"]} == {"1", "3"}


async def test_a_newer_one_displaces_the_one_that_came_first(journal: Journal) -> None:
    await configure(journal, instances=2)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b", "store_c")
        role_id = broker.scribe.role_id(ROLE)
        assert [each.token_hash for each in broker.back.registry.connected(role_id)] == [b"store_b", b"store_c"]
        with pytest.raises(Refused, match="another recipient has registered for the same role"):
            broker.back.check_in_place(b"store_a")
        broker.back.check_in_place(b"store_b")
        await desk.lose("store_c")
        broker.back.check_in_place(b"store_a")


async def test_a_newer_one_displaces_one_that_does_not_answer(journal: Journal) -> None:
    await configure(journal, instances=3)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b", "store_c")
        broker.clients["tcp://store_b"].answers["ping"] = LOST
        await desk.join("store_d")
        assert [each.token_hash for each in _serving(broker)] == [b"store_a", b"store_c", b"store_d"]


async def test_one_that_registers_anew_displaces_nobody(journal: Journal) -> None:
    await configure(journal, instances=2)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b", "store_a")
        role_id = broker.scribe.role_id(ROLE)
        assert {each.token_hash for each in broker.back.registry.connected(role_id)} == {b"store_a", b"store_b"}


async def test_one_that_stands_by_takes_over(journal: Journal) -> None:
    await configure(journal, standby=True)
    async with running(journal, retry=RetryPolicy(attempts=3, first_delay=1000), clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b", "store_c")
        role_id = broker.scribe.role_id(ROLE)
        assert [broker.back.stands_by(role_id, name) for name in (b"store_a", b"store_b", b"store_c")] == [0, 1, 1]
        assert broker.back.heartbeat(role_id, b"store_b", [])
        await desk.put("1", "2")
        await broker.until(lambda: desk.has(a="1"))
        await settle()
        assert desk.has(a="1", b="", c="")
        await desk.lose("store_a")
        await broker.until(lambda: desk.open["store_b"])
        assert [broker.back.stands_by(role_id, name) for name in (b"store_b", b"store_c")] == [0, 1]
        for _ in range(2):
            await broker.until(lambda: desk.open["store_b"])
            desk.end("store_b", *desk.open["store_b"])
        await broker.until_rows({})
        # One that was lost comes back behind those that wait.
        broker.back.check_in_place(b"store_a")
        await desk.join("store_a")
        assert broker.back.stands_by(role_id, b"store_a")


async def test_keys_are_shared_and_none_is_in_two_hands(journal: Journal) -> None:
    await configure(journal, instances=3, ordered=True)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b", "store_c")
        await desk.put("a1", "b1", "a2", "b2")
        await broker.until(lambda: desk.has(a="a1", b="b1"))
        await settle()
        assert desk.has(a="a1", b="b1", c="")
        desk.end("store_a", "a1")
        await broker.until(lambda: "a2" in {item for held in desk.open.values() for item in held})
        await settle()
        assert "b2" not in {item for held in desk.open.values() for item in held}


@pytest.mark.parametrize("others", [0, 1])
async def test_a_key_stays_in_order_when_the_one_that_has_it_is_lost(journal: Journal, others: int) -> None:
    await configure(journal, instances=2, ordered=True)
    async with running(journal, retry=RetryPolicy(attempts=3, first_delay=1000), clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b")
        await desk.put("a1", "a2", "-1", "-2")
        await broker.until(lambda: desk.has(a="a1", b="-1") or desk.has(a="a1", b=""))
        if others:
            await desk.join("store_c")
            desk.fail("store_a")
        else:
            await desk.lose("store_a")
        while len(desk.taken) < 4:
            await broker.until(lambda: any(desk.open.values()))
            name = next(name for name, held in desk.open.items() if held)
            desk.end(name, next(iter(desk.open[name])))
            await settle()
        assert [item for item in desk.taken if item[0] == "a"] == ["a1", "a2"]
        assert [item for item in desk.taken if item[0] == "-"] == ["-1", "-2"]


async def test_bundles_go_to_all_and_share_no_key(journal: Journal) -> None:
    await configure(journal, instances=2, ordered=True)
    async with running(journal, clean=False) as broker:
        held: list[tuple[str, list[Any], asyncio.Future[Any]]] = []

        async def join(name: str) -> None:
            def take(bundle: list[Any]) -> Any:
                answer = asyncio.get_running_loop().create_future()
                held.append((name, bundle, answer))
                return answer

            await broker.join(ROLE, name, BUNDLES, xbus_take_envelopes=take)

        await join("store_a")
        await join("store_b")
        for item in ("a1", "a2", "b1", "a3", "b2", "c1"):
            await broker.put(item.encode(), ordering_key=item[0])
        order: list[str] = []
        while len(order) < 6:
            await broker.until(lambda: held)
            await settle()
            keys = [item[0] for _, bundle, _ in held for item in _items(bundle)]
            assert len(keys) == len(set(keys))
            _, bundle, answer = held.pop(0)
            order += _items(bundle)
            answer.set_result([[True]] * len(bundle))
        assert [item for item in order if item[0] == "a"] == ["a1", "a2", "a3"]
        assert [item for item in order if item[0] == "b"] == ["b1", "b2"]
        assert {name for name in ("store_a", "store_b") if broker.items(name)} == {"store_a", "store_b"}


def _items(bundle: list[Any]) -> list[str]:
    return [bytes(batch[2][2:]).decode() for _, events, *_ in bundle for _, _, batches in events for batch in batches]


async def test_surplus_ones_finish_what_they_have(journal: Journal) -> None:
    await configure(journal, instances=3)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b", "store_c")
        await desk.put("1", "2", "3")
        await broker.until(lambda: desk.has(a="1", b="2", c="3"))
        await configure(journal, instances=1)
        await broker.refresh_configuration()
        await desk.put("4", "5")
        role_id = broker.scribe.role_id(ROLE)
        await broker.until(lambda: [each.token_hash for each in _serving(broker)] == [b"store_c"])
        desk.end("store_a", "1")
        await broker.until(lambda: broker.back.registry.find(role_id, b"store_a") is None)
        await settle()
        assert desk.has(a="", b="2", c="3")
        desk.end("store_b", "2")
        await broker.until(lambda: broker.back.registry.find(role_id, b"store_b") is None)
        desk.end("store_c", "3")
        await broker.until(lambda: desk.has(c="4"))
        desk.end("store_c", "4")
        await broker.until(lambda: desk.has(c="5"))
        assert await broker.rows() == {}


async def test_surplus_ones_stand_by_where_they_may(journal: Journal) -> None:
    await configure(journal, instances=2, standby=True)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b")
        await desk.put("1", "2")
        await broker.until(lambda: desk.has(a="1", b="2"))
        await configure(journal, instances=1)
        await broker.refresh_configuration()
        role_id = broker.scribe.role_id(ROLE)
        await broker.until(lambda: broker.back.stands_by(role_id, b"store_a"))
        await desk.put("3")
        desk.end("store_a", "1")
        await settle()
        assert desk.has(a="", b="2")
        desk.end("store_b", "2")
        await broker.until(lambda: desk.has(b="3"))
        await configure(journal, instances=2)
        await broker.refresh_configuration()
        await desk.put("4")
        await broker.until(lambda: desk.has(a="4", b="3"))


def _serving(broker: Broker) -> list[Any]:
    served = broker.back.registry.get(broker.scribe.role_id(ROLE))
    return [] if served is None else served.instances


async def test_all_of_them_are_called_again_after_a_restart(journal: Journal) -> None:
    await configure(journal, instances=2)
    async with running(journal, clean=False) as broker:
        desk = Desk(broker)
        await desk.join("store_a", "store_b")
        await desk.put("1", "2")
        await broker.until(lambda: desk.has(a="1", b="2"))

    def prepare(broker: Broker) -> None:
        broker.prepare("store_a")
        broker.prepare("store_b")

    async with running(journal, prepared=prepare) as broker:
        role_id = broker.scribe.role_id(ROLE)
        assert broker.back.heartbeat(role_id, b"store_a", []), "we come to it by ourselves"
        await broker.until(lambda: len(_serving(broker)) == 2)
        await broker.until(lambda: sorted(broker.items("store_a") + broker.items("store_b")) == [b"1", b"2"])
        await broker.until_rows({})
