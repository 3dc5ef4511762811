"""``xbus subscription`` shows whom gateways call, and how that goes. Nothing here shows a secret."""

from collections.abc import Iterator
from datetime import datetime

import click

from xbus.admin.arguments import REASON, SUBSCRIPTION
from xbus.admin.objects import of_subscription, subscription_state
from xbus.admin.output import STATE, Column, Output, Row, age, facts, moment, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import BusAction, CommandBus, argument, command, command_of, shown
from xbus.broker.journal.readers import subscriptions
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.rights import Right


@click.group(cls=CommandGroup)
def subscription() -> None:
    """Show whom gateways call with events, and how that goes."""


@command(subscription)
def list_(bus: CommandBus, output: Output = shown("subscription", watch=True)) -> None:
    """Show each subscription: whether its calls go well, and how far it lags behind.

    LAG counts the events that wait for it, OLDEST is the age of the first of them. FAILURES counts calls that failed
    one after another, PARKED the batches that wait for a person. A failing subscription is called again by itself,
    less and less often: NEXT CALL says when. One that has ended was told by its subscriber that it wants no more:
    xbus subscription resume has it go on.
    """
    with bus.reading() as connection:
        found = subscriptions.list_subscriptions(connection)
        readers = {each.entry.key: each for each in list_readers(connection)}
    rows = (_row(each, readers[each.reader], output.now) for each in found)
    output.listing(found, lambda each: of_subscription(each, readers[each.reader]), rows, "No subscriptions.")


def _row(each: subscriptions.SubscriptionEntry, reader: ReaderStatus, now: datetime) -> Row:
    oldest = None if reader.waits_since is None else age(reader.waits_since, now)
    return {
        name_column("SUBSCRIPTION"): each.name,
        STATE: subscription_state(each, reader),
        "FORMAT": each.format,
        "LAG": reader.lag,
        "OLDEST": oldest,
        "FAILURES": each.failures,
        "PARKED": _parked(reader),
        Column("NEXT CALL", optional=True): _next_call(each, now),
        Column("URL", narrows=12, optional=True): each.url,
    }


def _parked(reader: ReaderStatus) -> int:
    return 0 if reader.subscriber is None else reader.subscriber.parked


def _next_call(each: subscriptions.SubscriptionEntry, now: datetime) -> str | None:
    """Say in how long a failing subscriber is called again; nothing of one that is well, or due."""
    if each.retry_at is None or each.retry_at <= now:
        return None
    return f"in {age(now, each.retry_at)}"


@command(subscription)
def show(bus: CommandBus, name: str = argument(SUBSCRIPTION), output: Output = shown(wide=False)) -> None:
    """Show the subscription NAME: its address, and its last failure."""
    with bus.reading() as connection:
        found = subscriptions.find_subscription(connection, name)
        (reader,) = list_readers(connection, found.reader_name)
    told = {
        "subscription": found.name,
        "state": subscription_state(found, reader),
        "url": found.url,
        "format": found.format,
        "signed": "yes" if found.secret else "no",
        "certificate": "checked" if found.verify else "not checked",
        "event types": ", ".join(reader.event_types),
        "reader": found.reader_name,
        "place": str(reader.place),
        "lag": reader.lag,
        "failures": found.failures or None,
        "parked batches": _parked(reader) or None,
        "failing since": found.failing_since,
        "next call": found.retry_at,
        "error": None if found.code is None else f"[{found.code}] {found.error}",
        "ended": found.ended_at,
    }
    output.detail(of_subscription(found, reader), facts(told))


class ResumeSubscription(BusAction):
    """Have the subscription NAME go on that its subscriber has ended by 410."""

    path = "subscriptions/resume"
    title = "Resume"
    words = "subscription resume"
    right = Right.OPERATOR

    name: str = argument(SUBSCRIPTION)
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        found = bus.read(lambda connection: subscriptions.find_ended(connection, self.name))
        yield f"The subscriber of {self.name} wanted no more, since {moment(found.ended_at)}."
        yield f"Gateways call {found.url} again, with what has come since. What retention has removed is skipped."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            subscriptions.resume_subscription(connection, self.name, bus.decision(self.reason))
        yield f"{self.name} goes on."


command_of(ResumeSubscription, subscription)
