"""An archived envelope that can't be put back keeps no other one away."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

from tests.support.clock import StandingClock
from tests.support.waiting import answered
from xbus.broker.back.log.reader import ArchiveDemand
from xbus.broker.housekeeping.returning import CODE, ArchiveReturns
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.supervision.health import Health

MISSING, OTHERS = UUID(int=1), [UUID(int=number) for number in range(2, 5)]

RESTORE = """
for id; do
    case $id in *1) echo "its file is missing" >&2; exit 1;; esac
    echo $id >> {restored}
done
"""
"""Restores one after the other, and ends with the first one that fails."""


class ArchiveDouble:
    """A journal that lacks what a command has not put back yet."""

    def __init__(self, restored: Path) -> None:
        self._restored = restored

    async def read(self, statement: object, envelope_ids: Sequence[UUID]) -> dict[UUID, int]:
        back = self._restored.read_text().split() if self._restored.exists() else []
        return {each: 10 for each in sorted(envelope_ids) if str(each) not in back}


class RoomySpace:
    """Has space for all."""

    async def refresh(self) -> None:
        pass

    def check_back(self, data_bytes: int) -> None:
        pass


async def test_others_are_put_back_though_one_can_not_be(tmp_path: Path) -> None:
    archive, demand, health = ArchiveDouble(tmp_path / "restored"), ArchiveDemand(), Health("broker", StandingClock())
    command = ["sh", "-c", RESTORE.format(restored=tmp_path / "restored"), "restore"]
    returns = ArchiveReturns(cast(Journal, archive), demand, cast(Space, RoomySpace()), health, command, 0.01)
    watching = asyncio.create_task(returns.watch())
    # Whoever still misses one asks for it again.
    demand.on_settled(lambda: demand.want([MISSING, *OTHERS]))
    demand.want([MISSING, *OTHERS])

    async def are_back() -> bool:
        return [*await archive.read(None, [MISSING, *OTHERS])] == [MISSING]

    try:
        await answered(are_back, "the others are back")
        assert [problem.code for problem in health.problems] == [CODE]
    finally:
        watching.cancel()
