"""What heartbeats tell."""

from typing import Any
from uuid import UUID

from tests.support.clock import StandingClock
from xbus.broker.back.recipients.heartbeats import Heartbeats

ENVELOPE = UUID(int=1)


def told(progress: object, **more: object) -> list[dict[str, object]]:
    return [{"envelope_id": str(ENVELOPE), "progress": progress, **more}]


def test_progress_renews_and_its_absence_does_not() -> None:
    clock = StandingClock()
    heartbeats = Heartbeats(clock.monotonic)
    assert heartbeats.renewed([ENVELOPE.bytes]) is None
    renewed = []
    for progress in (1, 1, 2, 2):
        clock.go_on(1)
        heartbeats.heartbeat(told(progress))
        renewed.append(heartbeats.renewed([ENVELOPE.bytes]))
    assert renewed == [1, 1, 3, 3]
    assert heartbeats.heard_at == 4


def test_what_is_no_longer_told_of_is_forgotten() -> None:
    heartbeats = Heartbeats(StandingClock().monotonic)
    heartbeats.heartbeat(told(1, done=3, of=12))
    work = heartbeats.work(ENVELOPE)
    assert work is not None
    assert (work.done, work.of) == (3, 12)
    heartbeats.heartbeat([])
    assert (heartbeats.work(ENVELOPE), heartbeats.renewed([ENVELOPE.bytes])) == (None, None)


def test_nonsense_is_passed_over_and_counts_as_a_sign_of_life() -> None:
    clock = StandingClock()
    heartbeats = Heartbeats(clock.monotonic)
    several: list[Any] = [None, 7, {}, [7], told("much"), [{"envelope_id": "x", "progress": 1}], [{"progress": 1}]]
    for nonsense in several:
        clock.go_on(1)
        heartbeats.heartbeat(nonsense)
        assert heartbeats.heard_at == clock.monotonic()
    heartbeats.heartbeat(told(1, done=-1, of="all"))
    work = heartbeats.work(ENVELOPE)
    assert work is not None
    assert (work.done, work.of) == (None, None)
