"""Slots of recipients: a run acquires all that it needs at once or none, first come first served; no sockets.

A run holds nothing while it waits here, so two runs never wait for each other. One that can't be served yet keeps its
place: those behind it don't take the places that it waits for, so nobody starves.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

Member = TypeVar("Member", bound=Hashable)


@dataclass(frozen=True, slots=True)
class This:
    """A certain member is wanted, or any member of a certain group."""

    member: Any


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Any one member of a service is wanted.

    Args:
        fits: which members do; None for all.
        engaged: the members with which the work has begun: it goes on with them though they are paused.
    """

    service: str
    fits: Callable[[Any], bool] | None = None
    engaged: Collection[Any] = ()


Want: TypeAlias = This | AnyOf


class Absent(Exception):
    """Nobody is there who could ever serve a want.

    Args:
        want: which one.
    """

    def __init__(self, want: Want) -> None:
        super().__init__(f"nobody is there for {want}")
        self.want = want


@dataclass(slots=True)
class _Place(Generic[Member]):
    member: Member
    service: str
    capacity: int
    group: Hashable = None
    taken: int = 0
    last_taken: int = 0
    """Counts up over all places: the lowest was idle for the longest time."""
    is_paused: bool = False
    """Whether only work that has begun with it takes a slot of it."""


@dataclass(slots=True)
class _Waiter(Generic[Member]):
    wants: Sequence[Want]
    granted: "asyncio.Future[list[Member]]"


class Slots(Generic[Member]):
    """The slots of all members that are present: recipients, each with the service that it provides."""

    def __init__(self) -> None:
        self._places: dict[Member, _Place[Member]] = {}
        self._groups: dict[Hashable, list[_Place[Member]]] = {}
        self._waiters: list[_Waiter[Member]] = []
        self._takes = 0
        self._change: asyncio.Event | None = None
        """Set at the next change; None while nobody waits for one."""

    def add(
        self, member: Member, service: str, capacity: int, group: Hashable = None, *, is_paused: bool = False
    ) -> None:
        """Let a recipient have up to ``capacity`` pieces of work at once, those counted that it has already.

        Args:
            group: the group of which it is a member; None for none.
            is_paused: whether nothing begins with it yet.
        """
        place = self._places.setdefault(member, _Place(member, service, 0))
        place.capacity = capacity
        place.is_paused = is_paused
        self._regroup(place, group)
        self._serve()

    def pause(self, member: Member) -> None:
        """Begin nothing with a recipient, as if it were not there; the slots that are taken stay so."""
        if member in self._places:
            self._places[member].is_paused = True
            self._serve()

    def resume(self, member: Member) -> None:
        """Begin work with a paused recipient again."""
        if member in self._places:
            self._places[member].is_paused = False
            self._serve()

    def remove(self, member: Member) -> None:
        """Take no more slots of a recipient, and wake those who wait for it alone."""
        place = self._places.pop(member, None)
        if place is not None:
            self._regroup(place, None)
        self._serve()

    def suspend(self, member: Member) -> None:
        """Take no more slots of a recipient until it is added again, and go on counting what it has."""
        place = self._places[member]
        place.capacity = 0
        self._regroup(place, None)
        self._serve()

    def _regroup(self, place: _Place[Member], group: Hashable) -> None:
        if place.group is not None:
            self._groups[place.group].remove(place)
            if not self._groups[place.group]:
                del self._groups[place.group]
        place.group = group
        if group is not None:
            self._groups.setdefault(group, []).append(place)

    def limit(self, member: Member, capacity: int) -> None:
        """Change how much work a recipient may have at once; with 0 it is as if it were not there."""
        if member in self._places:
            self._places[member].capacity = capacity
            self._serve()

    async def idle(self, member: Member) -> None:
        """Wait until a recipient has no work any more, or is gone."""
        while member in self._places and self._places[member].taken:
            await self.changed()

    def is_present(self, want: Want) -> bool:
        """Check whether a recipient is registered that could serve a want, free or not."""
        return bool(self._candidates(want))

    def is_free(self, member: Hashable) -> bool:
        """Check whether a recipient, or one of a group, has a slot that nobody took."""
        return any(place.taken < place.capacity for place in self._those(member))

    def may_go_on(self, member: Member) -> bool:
        """Check whether a member may have further work in slots that it has: it is here, and nobody waits for any."""
        place = self._places.get(member)
        if place is None or self._waiters or self._change is not None:
            return False
        return not place.is_paused and place.taken <= place.capacity

    async def any_free(self, members: Sequence[Hashable]) -> None:
        """Wait until one of some recipients or groups has a free slot, or one of them is gone or paused."""
        while all(self._those(member) and not self.is_free(member) for member in members):
            await self.changed()

    async def changed(self) -> None:
        """Wait until a slot is given back, or somebody comes, goes, is paused or resumed."""
        if self._change is None:
            self._change = asyncio.Event()
        await self._change.wait()

    def take_at_once(self, wanted: Hashable) -> Member | None:
        """Take a slot of a member, or of one of a group, if nobody stands in line."""
        chosen: _Place[Member] | None = None
        for place in () if self._waiters else self._groups.get(wanted) or self._those(wanted):
            if place.taken < place.capacity and not place.is_paused:
                chosen = place if chosen is None else min(chosen, place, key=_idleness)
        if chosen is None:
            return None
        self._takes += 1
        chosen.taken += 1
        chosen.last_taken = self._takes
        return chosen.member

    async def take(self, wants: Sequence[Want]) -> list[Member]:
        """Wait until all wants can be served at once.

        Returns:
            The member that serves each want; give each back with ``free``.

        Raises:
            Absent: one of them can't be served by anyone present.
        """
        candidates = [self._candidates(want) for want in wants]
        if not self._waiters and all(candidates) and (chosen := self._choose(candidates, set())) is not None:
            # Mostly somebody is free, and nobody stands in line.
            return [place.member for place in chosen]
        waiter: _Waiter[Member] = _Waiter(wants, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._serve()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: _Waiter[Member]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
            for member in waiter.granted.result():
                self.free(member)
        self._serve()

    def take_further(self, member: Member, most: int) -> int:
        """Take more slots of a member of which one is taken, at once and as many as are free.

        Returns:
            How many were taken; give each back.
        """
        further = min(most, self.spare(member))
        if further > 0:
            self._places[member].taken += further
        return max(0, further)

    def spare(self, member: Member) -> int:
        """Count the slots of a member that nobody took."""
        place = self._places.get(member)
        return 0 if place is None else max(0, place.capacity - place.taken)

    def free(self, member: Member, number: int = 1) -> bool:
        """Give slots back; those of a recipient that has gone meanwhile are nobody's.

        Returns:
            Whether anybody waits for a slot, or for any change.
        """
        if (place := self._places.get(member)) is not None:
            place.taken = max(0, place.taken - number)
        if self._change is None and not self._waiters:
            return False
        self._serve()
        return True

    def _those(self, wanted: Hashable) -> Sequence[_Place[Member]]:
        """Give the place of a member, or those of a group; none while it is paused."""
        places = self._groups.get(wanted)
        if places is None:
            place = self._places.get(cast("Member", wanted))
            places = [] if place is None else [place]
        return [place for place in places if not place.is_paused]

    def _candidates(self, want: Want) -> list[_Place[Member]]:
        if isinstance(want, This):
            return [place for place in self._those(want.member) if place.capacity]
        places = [
            place
            for place in self._places.values()
            if place.service == want.service
            and place.capacity
            and (not place.is_paused or place.member in want.engaged)
        ]
        return places if want.fits is None else [place for place in places if want.fits(place.member)]

    def _serve(self) -> None:
        """Grant what can be granted, in order of arrival."""
        if self._change is not None:
            self._change.set()
            self._change = None
        if not self._waiters:
            return
        spoken_for: set[Member] = set()
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
                spoken_for.update(place.member for found in candidates for place in found)
            else:
                self._waiters.remove(waiter)
                waiter.granted.set_result([place.member for place in chosen])

    def _choose(self, candidates: list[list[_Place[Member]]], spoken_for: set[Member]) -> list[_Place[Member]] | None:
        """Take the least busy place for each want; None, with nothing taken, if one has none."""
        chosen: list[_Place[Member]] = []
        for found in candidates:
            free = [place for place in found if place.taken < place.capacity and place.member not in spoken_for]
            if not free:
                for place in chosen:
                    place.taken -= 1
                return None
            place = min(free, key=_idleness)
            self._takes += 1
            place.taken += 1
            place.last_taken = self._takes
            chosen.append(place)
        return chosen


def _idleness(place: _Place[Any]) -> tuple[int, int]:
    return place.taken, place.last_taken
