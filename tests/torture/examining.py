"""Examines the journal by ``xbus fsck``: while the broker is down by a kill, and behind each cycle."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from tests.support.daemon import write_config
from tests.support.processes import script
from tests.support.waiting import answered
from tests.torture.program import Program
from xbus.broker.journal.fsck.faults import FaultCode

EACH_CYCLE = 50
THEN_EVERY = 25
"""So many cycles are examined each; behind them one of so many is. It reads all of the journal, which grows by 3 MB a
cycle: to examine each of 500 cycles would take hours."""

EXAMINATION_SECONDS = 600.0
AGAIN_SECONDS = 60.0
"""How long a database may not be there when nothing strikes it any more."""

RIGHT, FOUND, UNREACHABLE = 0, 1, 3
"""Exit codes of ``xbus fsck``."""

OF_SERVER = FaultCode.NO_CHECKSUMS
"""The note about how the private server was made."""


class Examiner:
    """Examines a journal; each fault and each note is a problem.

    Args:
        url: the database, past everything that is struck.
        folder: for its files.

    Attributes:
        problems: what it found.
        examined: how often it came to an end.
    """

    def __init__(self, url: str, folder: Path) -> None:
        config = write_config(folder / "fsck.ini", url)
        # So that it takes no time from those that are judged by their times.
        self._command = ["/usr/bin/env", "nice", "-n", "19", script("xbus"), "fsck", "-c", str(config), "--json"]
        self._folder = folder
        self._runs = 0
        self._cycle = 0
        self.problems: list[str] = []
        self.examined = 0

    def begin(self, cycle: int) -> None:
        """Note which cycle begins, from 1."""
        self._cycle = cycle

    @property
    def is_due(self) -> bool:
        """Whether the journal is examined in this cycle."""
        return self._cycle <= EACH_CYCLE or self._cycle % THEN_EVERY == 0

    async def examine(self, when: str) -> bool:
        """Examine the journal as it is now; false if the database can't be reached.

        Args:
            when: the moment, for what is found.
        """
        self._runs += 1
        program = Program(f"fsck-{self._runs}", self._command, self._folder)
        try:
            await program.start()
            code = await program.ended(EXAMINATION_SECONDS)
        finally:
            program.kill()
        if code == UNREACHABLE:
            return False
        self.examined += 1
        found = [*_found(self._folder / f"{program.name}.log")]
        if code not in (RIGHT, FOUND) or (code == FOUND and not found):
            found.append(f"ended with {code}")
        for each in found:
            self.problems.append(f"fsck in cycle {self._cycle}, {when}: {each}")
            click.echo(self.problems[-1], err=True)
        return True

    async def examine_at_rest(self, when: str) -> None:
        """Examine the journal while nothing strikes the database."""

        async def is_examined() -> bool:
            return await self.examine(when)

        await answered(is_examined, "the database is there to be examined", AGAIN_SECONDS)


def _found(log: Path) -> Iterator[str]:
    for line in log.read_text().splitlines():
        # All else is what it says about its work.
        if line.startswith("{") and (fault := json.loads(line))["code"] != OF_SERVER:
            yield f"{fault['code']} at {fault['table']} {fault['row_key']}: {fault['cause']}"
