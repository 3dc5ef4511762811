"""The families of readers, subscriptions and bots, from what the journal says of them; pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from xbus.broker.journal.operations.figures import BotFigures
from xbus.broker.journal.readers.status import RangeStatus, ReaderStatus
from xbus.broker.metrics.families import Family, Labels, age, counter, gauge
from xbus.states import BotRunState, RangeState

RANGE_STATES = (RangeState.FREE, RangeState.LEASED, RangeState.OUT)
"""The states of ranges in use: others have gone on as other ranges."""


def reader_families(readers: Sequence[ReaderStatus], now: datetime) -> Iterator[Family]:
    """Show how far readers are, and how the calls of subscriptions go."""
    yield gauge(
        "xbus_reader_lag_seconds",
        "Age of the oldest event that a reader has not settled, since its seal; 0 without any",
        [(_of(each), age(each.waits_since, now)) for each in readers],
    )
    yield gauge(
        "xbus_reader_lag_events",
        "Events from the place of the range that is furthest behind on; 10,000 stands for more, too",
        [(_of(each), each.lag) for each in readers],
    )
    yield gauge(
        "xbus_reader_ranges",
        "Ranges of a reader by state; no program has those that are free",
        [sample for each in readers for sample in _ranges(_of(each), each.ranges)],
    )
    yield gauge("xbus_reader_paused", "1 while a reader is paused", [(_of(each), each.is_paused) for each in readers])
    yield gauge(
        "xbus_reader_detached",
        "1 while a reader lags further than it may, and retention waits for it no longer",
        [(_of(each), each.entry.is_detached) for each in readers],
    )
    subscribers = [each.subscriber for each in readers if each.subscriber is not None]
    yield gauge(
        "xbus_subscription_failures",
        "Calls of a subscription that failed one after another",
        [({"subscription": each.name}, each.failures) for each in subscribers],
    )
    yield gauge(
        "xbus_subscription_retry_seconds",
        "Seconds until a subscriber is called again that did not take a batch; 0 for one that is well",
        [({"subscription": each.name}, _seconds_to(each.retry_at, now)) for each in subscribers],
    )
    yield gauge(
        "xbus_subscription_parked_batches",
        "Batches of a subscription that wait for a person",
        [({"subscription": each.name}, each.parked) for each in subscribers],
    )


def skipped_family(skipped: Mapping[str, int]) -> Family:
    """Show what readers were made to do without.

    Args:
        skipped: how many envelopes, by the name of the reader.
    """
    samples: list[tuple[Labels, float]] = [({"reader": name}, number) for name, number in sorted(skipped.items())]
    return counter("xbus_reader_skipped_envelopes", "Envelopes that a reader with a limit did without", samples)


def bot_families(bots: Sequence[BotFigures]) -> Iterator[Family]:
    """Show the runs of bots that wait or are under way, and the bots that fail."""
    yield gauge(
        "xbus_bot_runs",
        "Runs of a bot that wait for a runner, or are under way",
        [
            ({"bot": each.name, "state": state.value}, number)
            for each in bots
            for state, number in ((BotRunState.DUE, each.due), (BotRunState.RUNNING, each.running))
        ],
    )
    yield gauge(
        "xbus_bot_failures",
        "Attempts of a bot that failed one after another",
        [({"bot": each.name}, each.failures) for each in bots],
    )
    yield gauge(
        "xbus_bot_slowed",
        "1 while a bot is tried once in a while only, as too many attempts failed",
        [({"bot": each.name}, each.is_slowed) for each in bots],
    )


def _seconds_to(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (moment - now).total_seconds())


def _of(reader: ReaderStatus) -> Labels:
    return {"reader": reader.entry.name}


def _ranges(reader: Labels, ranges: Iterable[RangeStatus]) -> list[tuple[Labels, float]]:
    """Count ranges by state; a state without any has a 0, so that a graph of it ends."""
    counts = Counter(each.range.state for each in ranges)
    return [({**reader, "state": state.value}, counts[state]) for state in RANGE_STATES]
