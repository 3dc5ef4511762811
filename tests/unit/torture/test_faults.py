"""The faults of the torture come from the seed and from nothing else."""

import pytest

from tests.torture.faults import LONGEST_SECONDS, RARE, chosen, plan

TARGETS = {"broker-kill": ["broker"], "consumer-kill": ["audit", "ledger"], "cut-front": ["small"]}


def test_a_seed_means_the_same_faults_each_time() -> None:
    assert list(plan(7, 50, TARGETS)) == list(plan(7, 50, dict(reversed(TARGETS.items()))))
    assert list(plan(7, 50, TARGETS)) != list(plan(8, 50, TARGETS))
    assert list(plan(7, 100, TARGETS))[:50] == list(plan(7, 50, TARGETS))


def test_every_cycle_strikes_once_or_twice_and_all_kinds_come() -> None:
    cycles = list(plan(1, 200, TARGETS))
    strikes = [strike for cycle in cycles for strike in cycle.strikes]
    assert {len(cycle.strikes) for cycle in cycles} == {1, 2}
    assert {(strike.kind, strike.target) for strike in strikes} == {
        (kind, target) for kind, targets in TARGETS.items() for target in targets
    }
    assert all(cycle.seconds <= LONGEST_SECONDS for cycle in cycles)


@pytest.mark.parametrize(
    "able",
    [
        ("two_brokers", "disk_full"),
        ("two_brokers", "read_only", "failover_sync", "failover_async"),
        RARE,
    ],
    ids=["sqlite", "postgresql without a disk", "postgresql"],
)
def test_a_run_of_four_cycles_has_each_rare_kind_that_its_database_can_carry_out(able: tuple[str, ...]) -> None:
    targets = TARGETS | {kind: ["database"] for kind in able}
    for seed in range(50):
        struck = [strike.kind for cycle in plan(seed, 4, targets) for strike in cycle.strikes]
        assert set(able) <= set(struck)
        # The others come too.
        assert len(struck) > len(able), "chance has a cycle, too"


def test_kinds_are_chosen_by_name() -> None:
    assert chosen("all", TARGETS) == list(TARGETS)
    assert chosen("cut-front, broker-kill", TARGETS) == ["cut-front", "broker-kill"]
    with pytest.raises(ValueError, match="there is no fault flood: choose from broker-kill, consumer-kill, cut-front"):
        chosen("flood", TARGETS)
