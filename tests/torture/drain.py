"""Waits until everything that the journal has received is where it belongs."""

import asyncio
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.torture import bus
from tests.torture.history import Routes, owed

STEP_SECONDS = 0.3
PATIENCE_SECONDS = 30.0
"""How long it is waited while nothing arrives any more."""

REST_SECONDS = 1.0
"""How long it is waited at the end for what should not come any more."""


class Lacking:
    """What the consumers still lack, as far as it was looked at.

    Args:
        url: the database.
        routes: the ways of the items.
        chained: the roles that get what nodes make of it.
        logs: the file of each program that serves a consumer role.
    """

    def __init__(self, url: str, routes: Routes, chained: Collection[str], logs: Mapping[str, Path]) -> None:
        self._url = url
        self._routes = routes
        self._chained = chained
        self._made = bus.Made(url)
        self._logs = logs
        self._position = 0
        self._read = dict.fromkeys(logs, 0)
        roles = {bus.role_of(program) for program in logs}
        self._committed: dict[str, set[str]] = {role: set() for role in roles}
        self._open: dict[str, set[str]] = {role: set() for role in roles}

    def look(self) -> int:
        """Look again; how many envelopes are lacking, over all consumers."""
        for envelope_id, envelope in bus.read_received(self._url, above=self._position).items():
            self._position = max(self._position, envelope.position)
            for role in owed(envelope, self._routes, self._chained):
                self._open[role].add(envelope_id)
        for program in self._logs:
            self._note_commits(program)
        self._made.look()
        for role, committed in self._committed.items():
            self._open[role] -= set(map(self._made.origin, committed)) if role in self._chained else committed
        return sum(map(len, self._open.values()))

    def _note_commits(self, program: str) -> None:
        """Look at what a program has committed since the last look."""
        if not self._logs[program].exists():
            return
        with self._logs[program].open("rb") as file:
            file.seek(self._read[program])
            for line in file:
                if line.endswith(b"\n"):
                    self._read[program] += len(line)
                    self._committed[bus.role_of(program)].add(json.loads(line)["id"])


async def drain(lacking: Lacking) -> int:
    """Wait until nothing is lacking, or nothing arrives any more; how much is lacking then."""
    loop = asyncio.get_running_loop()
    left = await asyncio.to_thread(lacking.look)
    deadline = loop.time() + PATIENCE_SECONDS
    while left and loop.time() < deadline:
        await asyncio.sleep(STEP_SECONDS)
        before, left = left, await asyncio.to_thread(lacking.look)
        if left < before:
            deadline = loop.time() + PATIENCE_SECONDS
    await asyncio.sleep(REST_SECONDS)
    return left
