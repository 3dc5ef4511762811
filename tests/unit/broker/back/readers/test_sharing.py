"""Which program gets which range: against a model, and by example."""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from xbus.broker.back.readers import RangeLease, RangeSharing

LEASE = 10.0
PROGRAMS = [UUID(int=number) for number in range(1, 5)]


def sharing_of(ranges: int) -> RangeSharing:
    sharing = RangeSharing(LEASE)
    sharing.follow([(number, 0, None, False) for number in range(ranges)], 0.0)
    return sharing


def take_all(sharing: RangeSharing, program: UUID, now: float = 0.0) -> None:
    sharing.renew(program, now)
    while (lease := sharing.next_for(program)) is not None:
        sharing.took(lease, program, lease.counter + 1, now)


def counts(sharing: RangeSharing, *programs: UUID) -> list[int]:
    return [len(sharing.of(program)) for program in programs]


def test_who_comes_gets_an_even_share_and_who_leaves_gives_it_back() -> None:
    first, second, third, _ = PROGRAMS
    sharing = sharing_of(8)
    take_all(sharing, first)
    assert counts(sharing, first) == [8]
    take_all(sharing, second)
    assert counts(sharing, first, second) == [4, 4]
    take_all(sharing, third)
    assert sorted(counts(sharing, first, second, third)) == [2, 3, 3]
    assert len(sharing.leave(first)) in (2, 3)
    for program in (second, third):
        take_all(sharing, program)
    assert counts(sharing, second, third) == [4, 4]


def test_a_range_with_a_batch_out_is_given_up_when_that_is_settled() -> None:
    first, second, *_ = PROGRAMS
    sharing = sharing_of(2)
    take_all(sharing, first)
    for lease in sharing.leases.values():
        lease.is_out = True
    take_all(sharing, second)
    assert counts(sharing, first, second) == [2, 0]
    (given_up,) = [lease for lease in sharing.of(first) if lease.heir is not None]
    given_up.is_out, given_up.owner = False, None
    take_all(sharing, first)
    assert counts(sharing, first) == [1], "it is the heir's"
    take_all(sharing, second)
    assert counts(sharing, second) == [1]


def test_an_owner_of_before_has_a_lease_to_come_back() -> None:
    first, second, *_ = PROGRAMS
    sharing = RangeSharing(LEASE)
    sharing.follow([(1, 7, first, True)], 100.0)
    take_all(sharing, second, 100.0)
    assert counts(sharing, first, second) == [1, 0]
    assert not sharing.expire(109.9)
    sharing.renew(second, 109.9)
    assert sharing.expire(110.0)
    take_all(sharing, second, 110.0)
    assert counts(sharing, first, second) == [0, 1]
    assert sharing.leases[1].counter == 8


def test_what_was_freed_stays_free_though_the_journal_knows_its_owner() -> None:
    first, second, *_ = PROGRAMS
    sharing = sharing_of(1)
    take_all(sharing, first)
    sharing.leave(first)
    sharing.follow([(0, 1, first, True)], 0.0)
    assert not list(sharing.programs)
    take_all(sharing, second)
    assert counts(sharing, first, second) == [0, 1]


class Sharing(RuleBasedStateMachine):
    """The model: who has which range under which counter, and until when each program lives."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ranges = 7
        self.sharing = sharing_of(self.ranges)
        self.owners: dict[int, UUID | None] = dict.fromkeys(range(self.ranges))
        self.counters = dict.fromkeys(range(self.ranges), 0)
        self.alive: dict[UUID, float] = {}

    @rule(program=st.sampled_from(PROGRAMS))
    def ask(self, program: UUID) -> None:
        """It gets one range, and has a batch of each that it has."""
        self.sharing.renew(program, self.now)
        self.alive[program] = self.now + LEASE
        lease = self.sharing.next_for(program)
        if lease is not None:
            assert not (lease.owner is not None and lease.is_out), "nobody loses a batch to one that only asks"
            assert lease.owner != program
            self.sharing.took(lease, program, lease.counter + 1, self.now)
            self.owners[lease.range_id] = program
            self.counters[lease.range_id] += 1

    @rule(number=st.integers(0, 6))
    def hand_out(self, number: int) -> None:
        lease = self.sharing.leases[number]
        if lease.owner is not None and lease.heir is None:
            lease.is_out = True

    @rule(number=st.integers(0, 6))
    def settle(self, number: int) -> None:
        lease = self.sharing.leases[number]
        if lease.owner is None:
            return
        self.sharing.renew(lease.owner, self.now)
        self.alive[lease.owner] = self.now + LEASE
        lease.is_out = False
        if lease.heir is not None:
            lease.owner = self.owners[number] = None

    @rule(program=st.sampled_from(PROGRAMS))
    def leave(self, program: UUID) -> None:
        left = {lease.range_id for lease in self.sharing.leave(program)}
        assert left == {number for number, owner in self.owners.items() if owner == program}
        self._gone(program)

    @rule(seconds=st.sampled_from([1.0, 4.0, LEASE]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.sharing.expire(self.now)
        for program in [each for each, until in self.alive.items() if until <= self.now]:
            self._gone(program)

    @rule()
    def restart(self) -> None:
        """All that is not in the journal is lost: whose lease it is stays, and he has a lease to come back."""
        rows = [(each.range_id, each.counter, each.owner, each.is_out) for each in self.sharing.leases.values()]
        self.sharing = RangeSharing(LEASE)
        self.sharing.follow(rows, self.now)
        self.alive = {owner: self.now + LEASE for owner in self.owners.values() if owner is not None}

    @precondition(lambda self: self.alive)
    @rule()
    def settle_down(self) -> None:
        """Once all ask and settle, everybody has an even share and nothing is free."""
        for _ in range(3 * self.ranges):
            for number in range(self.ranges):
                self.settle(number)
            for program in sorted(self.alive):
                self.ask(program)
        shares = [len(self.sharing.of(program)) for program in self.alive]
        assert sum(shares) == self.ranges
        assert max(shares) - min(shares) <= 1

    def _gone(self, program: UUID) -> None:
        self.alive.pop(program, None)
        self.owners = {number: None if owner == program else owner for number, owner in self.owners.items()}

    @invariant()
    def agrees(self) -> None:
        leases: list[RangeLease] = [*self.sharing.leases.values()]
        assert {lease.range_id: lease.owner for lease in leases} == self.owners
        assert {lease.range_id: lease.counter for lease in leases} == self.counters
        assert set(self.sharing.programs) == set(self.alive)
        heirs = {lease.heir for lease in leases} - {None}
        assert heirs <= set(self.alive), "nobody waits for a program that is gone"


Sharing.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSharing = Sharing.TestCase
