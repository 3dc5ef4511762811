"""Subscriptions that programs make for themselves: each emitter has one at most, of its own name, to topics."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, acting_person
from xbus.broker.journal.configuration import BusSpec, Section, SubscriptionSpec, apply, make_plan, read_stored
from xbus.broker.journal.configuration.names import is_name
from xbus.broker.journal.configuration.plan import Plan
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.log.emitters import EmitterEntry
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.readers.people import move
from xbus.broker.journal.readers.settings import bound_spans, forget_left, read_spans
from xbus.broker.journal.readers.status import list_readers
from xbus.broker.journal.readers.subscriptions import call_at_once
from xbus.broker.journal.retention.lagging import WhenBehind
from xbus.broker.journal.topics import check_removal, ensure_topics, read_emitter, refused, remove_topic
from xbus.errors import ConfigurationError

MOST_SUBSCRIBED = 1_000
"""Topics of a subscription. More make each look at the log longer."""

MOST_WITHOUT_PUBLISHER = 1_000

ATTEMPTS = 1_000_000
"""Attempts before a batch is parked: clients of Routemaster are called until they take it. Nobody resumes theirs."""

_TYPE, _RANGE = model.event_type.c, model.reader_range.c


@dataclass(frozen=True, slots=True)
class SubscriptionWish:
    """A subscription as a program wants it.

    Args:
        topics: the names of the event types.
        url: that the gateway calls.
        secret: the user name with which it calls; empty for none.
        timeout: milliseconds that a batch waits for more events.
        max: the most events of a batch.
        max_lag: the most envelopes that it may lack, the oldest of which it does without then; None for any number.
    """

    topics: Sequence[str]
    url: str
    secret: str = field(repr=False)
    timeout: int
    max: int
    max_lag: int | None = None


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscription as programs see it.

    Args:
        name: the login of the emitter that made it.
        spec: its entry.
        sent: events of its topics that the journal has.
        queued: events that it has not got yet, up to a bound.
        oldest_at: when the first of these was sealed; None without any.
        is_own: whether the emitter that asks made it.
    """

    name: str
    spec: SubscriptionSpec
    sent: int
    queued: int
    oldest_at: datetime | None
    is_own: bool


def subscribe(connection: sa.Connection, emitter_id: int, wish: SubscriptionWish, at: datetime) -> None:
    """Subscribe an emitter to topics, and unsubscribe it from all others. A topic need not have a publisher yet.

    A new subscription begins at the end of the log, also one that was removed before. One that is there goes on where
    it stands. Many new topics take long: :func:`make_topics` makes them beforehand, a part at a time.

    Raises:
        ConfigurationError: its profile does not allow a name (``type_not_allowed``), a type is no topic and not in its
            profile (``unknown_type``), an operator has a subscription of its name (``name_taken``), or the wish makes
            no sense (``bad_subscription``).
    """
    emitter = read_emitter(connection, emitter_id)
    check_wish(wish)
    _make_topics(connection, emitter, wish.topics, at)
    stored = read_stored(connection)
    present = stored.in_use.subscriptions.get(emitter.login)
    before = present or stored.removed.subscriptions.get(emitter.login)
    if present is not None and not _is_of_program(connection, emitter, present):
        cause = f'an operator made subscription "{emitter.login}"'
        raise ConfigurationError(cause, "have an operator change it", code="name_taken")
    max_lag, when_behind = _lag_limit(wish, present)
    wished = SubscriptionSpec(
        emitter.login,
        frozenset(wish.topics),
        wish.url,
        format="routemaster",
        secret=wish.secret,
        # That a certificate is not checked is an operator's word about the present URL.
        verify=present.verify if present is not None else True,
        max=wish.max,
        timeout=wish.timeout,
        ranges=before.ranges if before is not None else 1,
        max_lag=max_lag,
        when_behind=when_behind,
        retry=present.retry if present is not None else RetrySettings(attempts=ATTEMPTS),
    )
    plan = make_plan(stored, BusSpec(subscriptions={emitter.login: wished}))
    if plan.problems:
        cause = "; ".join(problem.sentence for problem in plan.problems)
        raise ConfigurationError(cause, "correct it", code="bad_subscription")
    if present is not None:
        _change_topics(connection, emitter.login, plan, at)
    else:
        apply(connection, plan, at, finish=lambda: forget_left(connection, _service_id(connection, emitter.login)))
    if present is None and before is not None:
        decision = RepairDecision(acting_person() or emitter.login, "subscribed anew", at)
        move(connection, wished.reader.name, "head", decision)
    call_at_once(connection, _service_id(connection, emitter.login), ends_the_end=True)


def check_wish(wish: SubscriptionWish) -> None:
    """Let a wish pass that needs no look at the journal to make sense.

    Raises:
        ConfigurationError: it makes none (``bad_subscription``).
    """
    if len(wish.topics) > MOST_SUBSCRIBED:
        cause = f"a subscription has {MOST_SUBSCRIBED:,} topics at most"
        raise ConfigurationError(cause, "name fewer", code="bad_subscription")
    if not wish.url.startswith("https://"):
        raise ConfigurationError("url is no address of https", "give one that is", code="bad_subscription")


def make_topics(connection: sa.Connection, emitter_id: int, names: Sequence[str], at: datetime) -> None:
    """Make topics to which an emitter wants to subscribe, as far as nobody has made them.

    Raises:
        ConfigurationError: as of :func:`subscribe`.
    """
    _make_topics(connection, read_emitter(connection, emitter_id), names, at)


def _lag_limit(wish: SubscriptionWish, present: SubscriptionSpec | None) -> tuple[int | timedelta | None, WhenBehind]:
    """Give the limit that an operator set for the subscription, else that of all which programs make."""
    if present is not None and present.max_lag is not None:
        return present.max_lag, present.when_behind
    return wish.max_lag, "alarm" if wish.max_lag is None else "skip"


def unsubscribe(connection: sa.Connection, emitter_id: int, topic: str | None, at: datetime) -> None:
    """Unsubscribe an emitter from a topic, or from all.

    Raises:
        ConfigurationError: it is not subscribed (``not_subscribed``).
    """
    emitter = read_emitter(connection, emitter_id)
    present = read_stored(connection).in_use.subscriptions.get(emitter.login)
    is_own = present is not None and _is_of_program(connection, emitter, present)
    if present is None or not is_own or (topic is not None and topic not in present.event_types):
        raise ConfigurationError("the client is not subscribed", "subscribe first", code="not_subscribed")
    if topic is not None:
        _leave(connection, present, topic, at)
        return
    stored = read_stored(connection)
    plan = make_plan(stored, stored.in_use.without(Section.SUBSCRIPTION, present.name), prune=True)
    apply(connection, replace(plan, changes=plan.removals, problems=()), at)


def remove_subscribed(connection: sa.Connection, emitter_id: int, topic: str, at: datetime) -> None:
    """Remove a topic, and unsubscribe all programs from it; see :func:`topics.remove_topic`.

    Raises:
        ConfigurationError: as there; the transaction has to be rolled back then.
    """
    check_removal(connection, emitter_id, topic)
    for each in read_stored(connection).in_use.subscriptions.values():
        if each.format == "routemaster" and topic in each.event_types:
            _leave(connection, each, topic, at)
    remove_topic(connection, emitter_id, topic, at)


def list_subscribers(connection: sa.Connection, emitter_id: int, at: datetime) -> list[Subscriber]:
    """List the subscriptions in Routemaster's format, by name.

    Raises:
        ConfigurationError: the emitter may neither make topics nor API tokens (``type_not_allowed``).
    """
    emitter = read_emitter(connection, emitter_id)
    if not (emitter.new_types or emitter.clients):
        raise refused("the emitter's profile does not allow to see subscriptions")
    counts = {each.name: each.events for each in count_types(connection, at).types}
    found = [each for each in read_stored(connection).in_use.subscriptions.values() if each.format == "routemaster"]
    subscribers = []
    for each in found:
        (status,) = list_readers(connection, each.reader.name)
        sent = sum(counts.get(name, 0) for name in each.event_types)
        is_own = each.name == emitter.login
        subscribers.append(Subscriber(each.name, each, sent, status.lag, status.waits_since, is_own))
    return subscribers


def _make_topics(connection: sa.Connection, emitter: EmitterEntry, names: Sequence[str], at: datetime) -> None:
    """Make the topics that a program subscribes to and nobody has made yet, all in one change."""
    wanted = [name for name in dict.fromkeys(names) if name not in emitter.event_types]
    for name in wanted:
        if not (is_name(name) and emitter.may_make(name)):
            raise refused(f"the emitter's profile does not allow to subscribe to {name[:80]!a}")
    of_names = sa.select(_TYPE.name, _TYPE.is_topic).where(_TYPE.name.in_(wanted), _TYPE.removed_at.is_(None))
    present = {row.name: row.is_topic for row in connection.execute(of_names)}
    for name, is_topic in present.items():
        if not is_topic:
            # An operator's type may have items that are no events of Routemaster, and not everybody may see them.
            cause = f'event type "{name}" is no topic'
            raise ConfigurationError(cause, "have an operator subscribe to it", code="unknown_type")
    new = [name for name in wanted if name not in present]
    if new:
        _check_room(connection, len(new))
        ensure_topics(connection, new, at)


def _is_of_program(connection: sa.Connection, emitter: EmitterEntry, entry: SubscriptionSpec) -> bool:
    """Check whether a program may have made a subscription: its topics are those to which it may subscribe."""
    topics = set(connection.execute(sa.select(_TYPE.name).where(_TYPE.is_topic)).scalars())
    return entry.format == "routemaster" and entry.event_types <= topics | emitter.event_types


def _check_room(connection: sa.Connection, new: int) -> None:
    """Refuse topics without a publisher where there are many: subscribers must not use up those of publishers."""
    nobodys = sa.select(sa.func.count()).where(_TYPE.is_topic, _TYPE.publisher_id.is_(None), _TYPE.removed_at.is_(None))
    if connection.execute(nobodys).scalar_one() + new > MOST_WITHOUT_PUBLISHER:
        raise refused(f"at most {MOST_WITHOUT_PUBLISHER:,} topics may have no publisher yet, and these would be more")


def _leave(connection: sa.Connection, present: SubscriptionSpec, topic: str, at: datetime) -> None:
    """Unsubscribe from a topic.

    Earlier events are delivered all the same. Without topics the client stays a subscriber.
    """
    left = replace(present, event_types=present.event_types - {topic}, secret=None)
    plan = make_plan(read_stored(connection), BusSpec(subscriptions={present.name: left}))
    _change_topics(connection, present.name, plan, at)


def _change_topics(connection: sa.Connection, name: str, plan: Plan, at: datetime) -> None:
    """Carry a plan out for a subscription that goes on: it gets new topics from now on, and former ones until now."""
    service_id = _service_id(connection, name)
    former = read_spans(connection, service_id).get(service_id, {})
    head = read_head(connection)
    apply(connection, plan, at, finish=lambda: bound_spans(connection, service_id, former, head))


def _service_id(connection: sa.Connection, name: str) -> int:
    own = sa.select(model.subscription.c.service_id).where(model.subscription.c.name == name)
    return int(connection.execute(own).scalar_one())
