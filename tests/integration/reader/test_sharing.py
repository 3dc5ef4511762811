"""Programs of a reader that share its ranges, in the real broker."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

LEASE = 2.0
COUNT = 60


class Program:
    """A program that calls the verbs by itself, and says what it has done when it is told to."""

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._token = token
        self.id = str(uuid.uuid4())

    async def call(self, verb: str, *arguments: object) -> Any:
        return await self._client.call(verb, self._token, self.id, *arguments, timeout=60)

    async def log_out(self) -> None:
        await self._client.call("xbus.logout", self._token, timeout=60)

    async def batch(self, wait: float = 0.0, done: Any = None, **options: Any) -> Any:
        settled = {} if done is None else {"done": [done["range"], done["counter"], done["to"]]}
        return (await self.call("xbus.read_batch", {"wait": wait, **settled, **options}))["batch"]

    async def drain(self, done: Any = None) -> list[Any]:
        """Read and settle until nothing is left."""
        found = []
        while (done := await self.batch(done=done)) is not None:
            found.append(done)
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("sharing")
    url = new_sqlite(folder / "xbus.db")
    names = ("alone", "equal", "silent", "waking", "wrong")
    add_bus(url, {name: {"store": []} for name in names})
    for name in names:
        add_reader(url, f"of_{name}", name, ranges=4, lease=LEASE, batch_items=10)
    daemon = Daemon(folder / "daemon", url)
    daemon.start()
    yield daemon
    daemon.kill()


class Programs:
    """Programs of the readers of one broker."""

    def __init__(self, broker: Daemon) -> None:
        self._context = new_context()
        self._client = Client(self._context, name="programs", clock=SystemClock())
        self._client.connect(broker.back)
        self.emitter = AsyncEmitter(broker.front, "emitter_1", PASSWORD)

    async def __aenter__(self) -> "Programs":
        await self.emitter.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.emitter.__aexit__(None, None, None)
        self._client.close()
        self._context.destroy(linger=0)

    async def begin(self, reader: str) -> Program:
        answer: Any = await self._client.call("xbus.login", f"{reader}_1", PASSWORD, timeout=60)
        return Program(self._client, answer["token"])

    async def send(self, type_name: str, count: int = COUNT) -> None:
        for number in range(count):
            await self.emitter.put(type_name, [number], partition_key=f"client {number % 17}")


def keys_of(*batches: Any) -> list[tuple[str, int]]:
    return [(event["partition_key"], event["position"]) for batch in batches for event in batch["events"]]


async def test_one_program_reads_all_in_the_order_of_each_key(broker: Daemon) -> None:
    async with Programs(broker) as programs:
        await programs.send("alone")
        program = await programs.begin("of_alone")
        found = keys_of(*await program.drain())
        assert len(found) == len(set(found)) == COUNT
        for key in {key for key, _ in found}:
            positions = [position for each, position in found if each == key]
            assert positions == sorted(positions)
        assert len((await program.call("xbus.renew_ranges"))["ranges"]) == 4


async def test_the_same_batch_comes_until_it_is_settled(broker: Daemon) -> None:
    async with Programs(broker) as programs:
        await programs.send("equal")
        first = await programs.begin("of_equal")
        batch = await first.batch()
        again = await first.batch()
        assert again == {**batch, "repeated": True}
        second = await programs.begin("of_equal")
        other = await second.batch()
        assert other["range"] != batch["range"], "a range is stolen of which no batch is out"
        assert len((await first.call("xbus.renew_ranges"))["ranges"]) == 2
        assert len((await second.call("xbus.renew_ranges"))["ranges"]) == 2
        await first.call("xbus.leave_ranges")
        taken = [await second.batch(done=other)]
        while len(taken) < 40 and taken[-1] is not None and taken[-1]["range"] != batch["range"]:
            taken.append(await second.batch(done=taken[-1]))
        repeat = taken[-1]
        assert (repeat["from"], repeat["to"], repeat["events"]) == (batch["from"], batch["to"], batch["events"])
        assert repeat["repeated"]
        with pytest.raises(Refused) as late:
            await first.call("xbus.checkpoint", batch["range"], batch["counter"], batch["to"])
        assert late.value.code == "lease_lost"


async def test_a_silent_program_loses_its_ranges_to_one_that_waits(broker: Daemon) -> None:
    async with Programs(broker) as programs:
        await programs.send("silent", 5)
        first = await programs.begin("of_silent")
        batch = await first.batch()
        second = await programs.begin("of_silent")
        found = [await second.batch()]
        begun = asyncio.get_running_loop().time()
        while found[-1] is None or found[-1]["range"] != batch["range"]:
            found.append(await second.batch(wait=20, done=found[-1]))
        # The machine may be busy; the lease and a second are the promise.
        assert asyncio.get_running_loop().time() - begun < 10 * (LEASE + 1)
        assert found[-1]["events"] == batch["events"]
        with pytest.raises(Refused) as late:
            await first.batch(done=batch)
        assert late.value.code == "lease_lost"


async def test_who_waits_is_woken_by_a_seal(broker: Daemon) -> None:
    async with Programs(broker) as programs:
        program = await programs.begin("of_waking")
        assert await program.batch() is None

        async def next_batch() -> Any:
            while (found := await program.batch(wait=30)) is None:
                pass  # A call waits for a part of the lease.
            return found

        waiting = asyncio.create_task(next_batch())
        await asyncio.sleep(0)
        await programs.send("waking", 1)
        async with asyncio.timeout(20):
            batch = await waiting
        assert [event["first_index"] for event in batch["events"]] == [0]
        to = [batch["range"], batch["counter"], batch["to"]]
        assert (await program.call("xbus.checkpoint", *to))["lease"] == LEASE
        assert (await program.call("xbus.checkpoint", *to))["lease"] == LEASE, "a repeat is answered as before"


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("xbus.read_batch", [{"wait": 31}], "option_invalid"),
        ("xbus.read_batch", [{"waits": 1}], "option_invalid"),
        ("xbus.read_batch", [{"done": [1, 2]}], "option_invalid"),
        ("xbus.read_batch", [{"done": [1, 2, "x"]}], "place_invalid"),
        ("xbus.read_batch", [{"done": [10**6, 2, [1]]}], "lease_lost"),
        ("xbus.checkpoint", [10**6, 1, [1]], "lease_lost"),
    ],
)
async def test_nonsense_is_refused(broker: Daemon, verb: str, arguments: list[Any], code: str) -> None:
    async with Programs(broker) as programs:
        program = await programs.begin("of_wrong")
        with pytest.raises(Refused) as refusal:
            await program.call(verb, *arguments)
        assert refusal.value.code == code


async def test_a_place_beyond_the_batch_is_refused(broker: Daemon) -> None:
    async with Programs(broker) as programs:
        await programs.send("wrong", 3)
        program = await programs.begin("of_wrong")
        batch = await program.batch()
        with pytest.raises(Refused) as refusal:
            await program.call("xbus.checkpoint", batch["range"], batch["counter"], [10**9, 0, 0])
        assert refusal.value.code == "place_not_in_batch"
        program.id = "me"
        with pytest.raises(Refused) as refusal:
            await program.batch()
        assert refusal.value.code == "option_invalid"
