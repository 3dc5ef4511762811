"""Subscriptions in the back: gateways ask for them and tell how calls went; health hears of those that fail."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from shlex import quote

from xbus.broker.back.readers.calls import FailedCall
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.readers.parked import ParkedBatch, list_parked_batches
from xbus.broker.journal.readers.status import ReaderStatus, SubscriberStatus, list_readers
from xbus.broker.journal.readers.subscriptions import CallFailure, SubscriptionEntry, list_subscriptions, note_call
from xbus.clock import Clock
from xbus.rpc.messages import SubscriptionHealthMap, SubscriptionMap
from xbus.supervision.health import Health, Problem

SUBSCRIPTION_FAILING = "subscription_failing"
SUBSCRIPTION_ENDED = "subscription_ended"
BATCHES_PARKED = "batches_parked"

LEAST_FAILURES = 3
"""So many calls fail one after another before health tells of it. Fewer would tell of each restart of a subscriber."""


class Subscriptions:
    """The subscriptions of the bus.

    Args:
        journal: keeps them.
        health: shows those that fail.
        clock: dates calls.
        skipped: how many envelopes readers were made to do without, by their names.
    """

    def __init__(self, journal: Journal, health: Health, clock: Clock, skipped: Mapping[str, int]) -> None:
        self._journal = journal
        self._health = health
        self._clock = clock
        self._skipped = skipped
        self._told: Counter[str] = Counter()

    async def measure(self, *, notes_dropped: bool) -> list[SubscriptionHealthMap]:
        """Tell how all subscriptions are.

        Args:
            notes_dropped: whether the caller counts what they were made to do without: nobody else is told of it then.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        found = await self._journal.read(list_readers)
        told = [self._told_of(each, each.subscriber) for each in found if each.subscriber is not None]
        if notes_dropped:
            self._told = Counter(self._skipped)
        return told

    def _told_of(self, reader: ReaderStatus, subscriber: SubscriberStatus) -> SubscriptionHealthMap:
        name = reader.entry.name
        dropped = self._skipped.get(name, 0) - self._told[name]
        return {
            "name": subscriber.name,
            "state": reader.state.value if subscriber.ended_at is None and reader.is_paused else subscriber.state,
            "events": reader.lag,
            "waits_since": _seconds(reader.waits_since),
            "batch_events": reader.entry.batch_items,
            "failures": subscriber.failures,
            "failing_since": _seconds(subscriber.failing_since),
            "retry_at": _seconds(subscriber.retry_at),
            "code": subscriber.code or "",
            "error": subscriber.error or "",
            "parked": subscriber.parked,
            "dropped": dropped,
        }

    async def of_gateways(self) -> list[SubscriptionMap]:
        """List the subscriptions that gateways are to serve, with their secrets.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        found = await self._journal.read(list_subscriptions)
        return [
            {
                "name": each.name,
                "reader": each.reader,
                "url": each.url,
                "format": each.format,
                "secret": each.secret,
                "verify": each.verify,
                "ranges": each.ranges,
                "settings": each.settings,
            }
            for each in found
            if each.ended_at is None
        ]

    async def note(
        self, reader: str, failed: FailedCall | None, settings: str | None, retry_at: datetime | None
    ) -> None:
        """Note how a call went.

        Args:
            reader: the key of the subscription's reader.
            failed: None where all went well.
            settings: the id of the settings that the call was made with; None for a gateway that does not say.
            retry_at: the moment of the next call with the same batch; None for none.

        Raises:
            Refused: other settings are in force by now (``settings_changed``).
            JournalUnavailable: the database can't be written now.
        """
        failure = None
        if failed is not None:
            failure = CallFailure(failed.failure.code, failed.failure.cause, retry_at, failed.is_end)
        await self._journal.run(note_call, reader, failure, settings, self._clock.now())

    def seconds_until(self, moment: datetime | None) -> float | None:
        """Say how many seconds are left until a moment; None for no moment."""
        return None if moment is None else max(0.0, (moment - self._clock.now()).total_seconds())

    async def look(self) -> None:
        """Report to health the subscriptions that fail or have ended, and no others.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        found = await self._journal.read(list_subscriptions)
        told = [problem for each in found if (problem := _problem(each)) is not None]
        told += _parked_problems(await self._journal.read(list_parked_batches))
        self._health.replace([SUBSCRIPTION_FAILING, SUBSCRIPTION_ENDED, BATCHES_PARKED], told)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _parked_problems(parked: list[ParkedBatch]) -> Iterator[Problem]:
    """Tell once of each reader with parked batches, the oldest of which is the last of the list."""
    oldest = {each.whose: each for each in parked}
    for name, each in oldest.items():
        count = sum(other.whose == name for other in parked)
        yield Problem(
            BATCHES_PARKED,
            name,
            f"{count} batches of {name} are parked, the first of them as [{each.code}] {each.cause}",
            each.since,
            "see xbus parked batch list, and resume or drop them",
        )


def _problem(each: SubscriptionEntry) -> Problem | None:
    if each.ended_at is not None:
        return Problem(
            SUBSCRIPTION_ENDED,
            each.name,
            f"the subscriber of {each.name} answered that it wants no more (410)",
            each.ended_at,
            f"remove the subscription from the bus file, or have it go on: xbus subscription resume {quote(each.name)}",
        )
    if each.failing_since is None or each.failures < LEAST_FAILURES:
        return None
    return Problem(
        SUBSCRIPTION_FAILING,
        each.name,
        f"{each.failures} calls of the subscriber of {each.name} failed one after another: [{each.code}] {each.error}",
        each.failing_since,
        f"see to the subscriber; it is called again. xbus subscription show {quote(each.name)} tells more",
    )
