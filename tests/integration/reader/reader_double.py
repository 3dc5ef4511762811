"""A back that serves one reader with one range, over real sockets."""

import asyncio
from typing import Any

from tests.support.doubles import Double
from xbus.errors import Refused
from xbus.rpc.codec import pack_items
from xbus.rpc.context import Context
from xbus.rpc.dispatch import verb

LOGIN = "billing_1"


class ReaderDouble(Double):
    """Serves the verbs of readers; each event of its log has one item.

    Attributes:
        items: its log.
        settled: how far the range is settled, as an index in ``items``.
        lease: seconds.
        owner: the program that has the range; ``None`` for nobody.
        renewals: how often it was asked to renew.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.items: list[bytes] = []
        self.settled = 0
        self.lease = 10.0
        self.counter = 1
        self.owner: str | None = None
        self.renewals = 0
        self.batches: list[dict[str, Any]] = []
        """The options with which it was asked for batches."""
        self._out: int | None = None
        self._logins = 0

    def restart(self) -> None:
        """Go down, forget the sessions and come back."""
        self.stop()
        self.tokens.clear()
        self.start_again()

    def take_over(self) -> None:
        """Give the range to another program, which settles nothing."""
        self.counter += 1
        self.owner = "another"

    @verb("xbus.login")
    def login(self, login: str, password: str) -> dict[str, Any]:
        if (login, password) != (LOGIN, "password"):
            raise Refused("login or password is wrong", code="login_refused")
        self._logins += 1
        self.tokens.add(f"token {self._logins}")
        return {"token": f"token {self._logins}", "session_seconds": 3600, "max_batch_bytes": 5000, "proof": True}

    @verb("xbus.logout")
    def logout(self, token: str) -> bool:
        self.calls.append("logout")
        self.tokens.discard(token)
        return True

    @verb("xbus.read_batch")
    async def read_batch(self, token: str, program: str, options: dict[Any, Any]) -> dict[str, Any]:
        self._begin("read_batch", token)
        self.batches.append(options)
        if "done" in options:
            self._settle(program, *options["done"])
        if self.owner is None:
            self.owner = program
        async with asyncio.timeout(options["wait"] + 60):
            while self.owner == program and self.settled == len(self.items) and options["wait"] > 1:
                await asyncio.sleep(0.001)
        batch = self._batch(options) if self.owner == program and self.settled < len(self.items) else None
        return {"lease": self.lease, "ranges": 1, "batch": batch}

    def _batch(self, options: dict[Any, Any]) -> dict[str, Any]:
        repeated = self._out is not None
        self._out = self._out or min(self.settled + options.get("max_items", 100), len(self.items))
        events = [self._event(index) for index in range(self.settled, self._out)]
        places = {"from": [self.settled + 1, 0, 0], "to": [self._out + 1, 0, 0]}
        return {"range": 7, "id": "msg_7", "counter": self.counter, "repeated": repeated, "events": events, **places}

    def _event(self, index: int) -> dict[str, Any]:
        return {
            "envelope_id": f"envelope {index}",
            "event_id": f"event {index}",
            "type": "orders",
            "position": index + 1,
            "event": 0,
            "emitter": "shop",
            "first_index": 0,
            "items": 1,
            "data": pack_items([self.items[index]]),
            "sealed_at": 1_600_000_000.0 + index,
            "key": None,
            "ordering_key": "k",
            "partition_key": f"client {index % 2}",
            "headers": None,
            "event_headers": None,
        }

    def _settle(self, program: str, number: int, counter: int, place: list[int]) -> None:
        if (program, counter) != (self.owner, self.counter):
            raise Refused("the lease is another program's", code="lease_lost")
        assert number == 7
        self.settled, self._out = place[0] - 1, None

    @verb("xbus.checkpoint")
    async def checkpoint(self, token: str, program: str, number: int, counter: int, place: list[Any]) -> dict[str, Any]:
        self._begin("checkpoint", token)
        self._settle(program, number, counter, place)
        return {"lease": self.lease}

    @verb("xbus.renew_ranges")
    async def renew_ranges(self, token: str, program: str) -> dict[str, Any]:
        self._begin("renew_ranges", token)
        self.renewals += 1
        return {"ranges": [[7, self.counter]] if self.owner == program else [], "give_up": []}

    @verb("xbus.leave_ranges")
    async def leave_ranges(self, token: str, program: str) -> bool:
        self._begin("leave_ranges", token)
        self.owner = None
        return True

    @verb("xbus.read_log")
    async def read_log(self, token: str, options: dict[Any, Any]) -> dict[str, Any]:
        self._begin("read_log", token)
        start = options["from"]
        first = 1 if start == "oldest" else int(start if isinstance(start, str) else start[0])
        last = min(first + options.get("max_items", 100), len(self.items) + 1)
        events = [self._event(position - 1) for position in range(first, last)]
        wanted = [event for event in events if options["key"] in (None, event["partition_key"])]
        return {"from": [first, 0, 0], "to": [last, 0, 0], "events": wanted}

    def _begin(self, name: str, token: str) -> None:
        self.calls.append(name)
        if self.faults[name]:
            raise self.faults[name].popleft()
        if token not in self.tokens:
            raise Refused("nobody has logged in with this token", "log in", code="session_unknown")
