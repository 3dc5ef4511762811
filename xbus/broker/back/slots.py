"""Who is free to work: several recipients are taken all at once or not at all, first come first served; no sockets.

A run holds nothing while it waits here, so two runs never wait for each other. One that can't be served yet keeps its
place: those behind it don't take what it waits for, so nobody starves.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class OfRole:
    """One certain role is wanted."""

    role_id: int


@dataclass(frozen=True, slots=True)
class OfService:
    """Any one role of a service is wanted."""

    service: str


Want: TypeAlias = OfRole | OfService


class Absent(Exception):
    """Nobody is there who could ever serve a want.

    Args:
        want: which one.
    """

    def __init__(self, want: Want) -> None:
        super().__init__(f"nobody is there for {want}")
        self.want = want


@dataclass(slots=True)
class _Place:
    role_id: int
    service: str
    capacity: int
    taken: int = 0
    last_taken: int = 0
    """Counts up over all places: the lowest was idle for the longest time."""


@dataclass(slots=True)
class _Waiter:
    wants: Sequence[Want]
    granted: "asyncio.Future[list[int]]"


class Slots:
    """The slots of all recipients that are present."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._waiters: list[_Waiter] = []
        self._takes = 0
        self._change = asyncio.Event()

    def add(self, role_id: int, service: str, capacity: int) -> None:
        """Let a recipient have up to ``capacity`` pieces of work at once."""
        self._places[role_id] = _Place(role_id, service, capacity)
        self._serve()

    def remove(self, role_id: int) -> None:
        """Take no more of a recipient; those who wait for it alone are told."""
        self._places.pop(role_id, None)
        self._serve()

    def is_present(self, want: Want) -> bool:
        """Whether somebody is there who could serve a want, free or not."""
        return bool(self._candidates(want))

    def is_free(self, role_id: int) -> bool:
        """Whether a recipient has a slot that is not taken."""
        place = self._places.get(role_id)
        return place is not None and place.taken < place.capacity

    async def any_free(self, role_ids: Sequence[int]) -> None:
        """Wait until one of some recipients has a free slot, or one of them is gone."""
        while all(role_id in self._places and not self.is_free(role_id) for role_id in role_ids):
            await self._change.wait()

    async def take(self, wants: Sequence[Want]) -> list[int]:
        """Wait until all wants can be served at once.

        Returns:
            The role that serves each want; give each back with ``free``.

        Raises:
            Absent: one of them can't be served by anyone present.
        """
        waiter = _Waiter(wants, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._serve()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
            for role_id in waiter.granted.result():
                self.free(role_id)
        self._serve()

    def free(self, role_id: int) -> None:
        """Give a slot back; one of a recipient that has gone meanwhile is nobody's."""
        place = self._places.get(role_id)
        if place is not None and place.taken:
            place.taken -= 1
            self._serve()

    def _candidates(self, want: Want) -> list[_Place]:
        if isinstance(want, OfRole):
            place = self._places.get(want.role_id)
            return [] if place is None else [place]
        return [place for place in self._places.values() if place.service == want.service]

    def _serve(self) -> None:
        """Grant what can be granted, in order of arrival."""
        self._change.set()
        self._change = asyncio.Event()
        spoken_for: set[int] = set()
        for waiter in list(self._waiters):
            if waiter.granted.done():
                self._waiters.remove(waiter)
                continue
            candidates = [self._candidates(want) for want in waiter.wants]
            if not all(candidates):
                absent = waiter.wants[[bool(found) for found in candidates].index(False)]
                waiter.granted.set_exception(Absent(absent))
                self._waiters.remove(waiter)
                continue
            chosen = self._choose(candidates, spoken_for)
            if chosen is None:
                spoken_for.update(place.role_id for found in candidates for place in found)
            else:
                self._waiters.remove(waiter)
                waiter.granted.set_result([place.role_id for place in chosen])

    def _choose(self, candidates: list[list[_Place]], spoken_for: set[int]) -> list[_Place] | None:
        """The least busy place for each want, taken; None, and nothing taken, where one has none."""
        chosen: list[_Place] = []
        for found in candidates:
            free = [place for place in found if place.taken < place.capacity and place.role_id not in spoken_for]
            if not free:
                for place in chosen:
                    place.taken -= 1
                return None
            place = min(free, key=lambda place: (place.taken, place.last_taken))
            self._takes += 1
            place.taken += 1
            place.last_taken = self._takes
            chosen.append(place)
        return chosen
