"""Subscriptions in the back: gateways ask for them and tell how calls went; health hears of those that fail."""

from datetime import timedelta

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.readers.subscriptions import CallFailure, SubscriptionEntry, list_subscriptions, note_call
from xbus.clock import Clock
from xbus.rpc.messages.subscriptions import SubscriptionMap
from xbus.supervision.health import Health, Problem

SUBSCRIPTION_FAILING = "subscription_failing"
SUBSCRIPTION_ENDED = "subscription_ended"

LEAST_FAILURES = 3
"""So many calls fail one after another before health tells of it. Fewer would tell of each restart of a subscriber."""

MOST_CODE_LETTERS = 64
MOST_ERROR_LETTERS = 1_000


class Subscriptions:
    """The subscriptions of the bus.

    Args:
        journal: keeps them.
        health: shows those that fail.
        clock: dates calls.
    """

    def __init__(self, journal: Journal, health: Health, clock: Clock) -> None:
        self._journal = journal
        self._health = health
        self._clock = clock

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
            }
            for each in found
            if each.ended_at is None
        ]

    async def note(self, reader: str, code: str, error: str, seconds: float, ended_url: str) -> None:
        """Note how a call went.

        Args:
            reader: the key of the subscription's reader.
            code: of the failure; empty where all went well.
            error: the failure in words.
            seconds: until the next call.
            ended_url: the URL of the subscriber if it wants no more, else empty.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        now = self._clock.now()
        failure = None
        if code:
            retry_at = None if ended_url else now + timedelta(seconds=min(max(seconds, 0.0), 86_400.0))
            said = error.replace("\0", "")[:MOST_ERROR_LETTERS]
            failure = CallFailure(code.replace("\0", "")[:MOST_CODE_LETTERS], said, retry_at, ended_url)
        await self._journal.run(note_call, reader, failure, now)

    async def look(self) -> None:
        """Report to health the subscriptions that fail or have ended, and no others.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        found = await self._journal.read(list_subscriptions)
        told = [problem for each in found if (problem := _problem(each)) is not None]
        self._health.replace([SUBSCRIPTION_FAILING, SUBSCRIPTION_ENDED], told)


def _problem(each: SubscriptionEntry) -> Problem | None:
    if each.ended_at is not None:
        return Problem(
            SUBSCRIPTION_ENDED,
            each.name,
            f"the subscriber of {each.name} answered that it wants no more (410)",
            each.ended_at,
            f"remove the subscription from the bus file, or have it go on: xbus subscription resume {each.name}",
        )
    if each.failing_since is None or each.failures < LEAST_FAILURES:
        return None
    return Problem(
        SUBSCRIPTION_FAILING,
        each.name,
        f"{each.failures} calls of the subscriber of {each.name} failed one after another: [{each.code}] {each.error}",
        each.failing_since,
        f"see to the subscriber; the same batch is sent again. xbus subscription show {each.name} tells more",
    )
