"""The rules that a configuration must keep before it is accepted; pure."""

import base64
import binascii
import json
import math
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlsplit

from xbus import graph as graphs
from xbus.broker.journal.configuration.chaining import find_chain_problems, stored_nodes
from xbus.broker.journal.configuration.entries import (
    BotSpec,
    BusSpec,
    ConfigurationProblem,
    EventTypeSpec,
    Place,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.configuration.reading import Stored
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.errors import ConfigurationError
from xbus.slots import Schedule

FAILURE_FIELDS = ("failures", "attempts", "first_delay", "longest_delay", "jitter")
"""The fields of a service about failures."""


def find_problems(
    stored: Stored, bus: BusSpec, known: Collection[tuple[Section, str]]
) -> Iterator[ConfigurationProblem]:
    """Iterate over every reason why ``bus`` can't be put on top of ``stored``.

    Args:
        stored: the present configuration.
        bus: the wished entries.
        known: section and name of all entries that there will be.
    """
    yield from _unknown_references(bus, known)
    yield from _changed_kinds(stored, bus)
    yield from _changed_services(stored, bus)
    yield from _bad_readers(stored, bus)
    yield from _bad_event_types(stored, bus)
    yield from find_chain_problems(stored.in_use, stored.ever, bus)
    yield from _consumers_matters(stored, bus)
    for service in bus.services.values():
        for field, sentence in _crossed_delays(service):
            yield ConfigurationProblem((Section.SERVICE, service.name, field), sentence)
    yield from _lost_to_the_archive(bus)
    yield from find_bot_problems(stored.ever, bus, known)
    yield from find_subscription_problems(stored.ever, bus)


def _references(bus: BusSpec) -> Iterator[tuple[Place, Section, str]]:
    """Iterate over each mention of another entry: the place, the other's section and name.

    A role may provide a reader, too; a node that asks for a reader gets a sentence of its own.
    """
    for event_type in bus.event_types.values():
        for node in event_type.nodes.values():
            place = (Section.EVENT_TYPE, event_type.name, "node", node.name, "service")
            if node.service:
                yield place, Section.SERVICE, node.service
            for name in node.emits:
                yield (*place[:-1], "emits"), Section.EVENT_TYPE, name
    for role in bus.roles.values():
        yield (Section.ROLE, role.login, "service"), Section.SERVICE, role.service
    for reader in bus.readers.values():
        for name in sorted(reader.event_types):
            yield (Section.READER, reader.name, "event_types"), Section.EVENT_TYPE, name
    for profile in bus.profiles.values():
        for name in sorted(profile.event_types):
            yield (Section.EMITTER_PROFILE, profile.name, "event_types"), Section.EVENT_TYPE, name
        if profile.clients is not None:
            yield (Section.EMITTER_PROFILE, profile.name, "clients"), Section.EMITTER_PROFILE, profile.clients
    for emitter in bus.emitters.values():
        yield (Section.EMITTER, emitter.login, "profile"), Section.EMITTER_PROFILE, emitter.profile
    for bot in bus.bots.values():
        for field, names in (("reads", bot.reads), ("emits", bot.emits)):
            for name in sorted(names):
                yield (Section.BOT, bot.name, field), Section.EVENT_TYPE, name
        if bot.runners is not None:
            yield (Section.BOT, bot.name, "runners"), Section.SERVICE, bot.runners
    for subscription in bus.subscriptions.values():
        for name in sorted(subscription.event_types):
            yield (Section.SUBSCRIPTION, subscription.name, "event_types"), Section.EVENT_TYPE, name


def _unknown_references(bus: BusSpec, known: Collection[tuple[Section, str]]) -> Iterator[ConfigurationProblem]:
    for place, section, name in _references(bus):
        is_reader = section is Section.SERVICE and (Section.READER, name) in known
        if (section, name) not in known and not is_reader:
            yield ConfigurationProblem(place, f'there is no {section} "{name}"')


def _changed_kinds(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find services of another kind; graphs in use and cursors depend on the kind, so it is for ever."""
    for service in bus.services.values():
        present = stored.ever.services.get(service.name)
        if present is not None and present.kind != service.kind:
            sentence = (
                f'service "{service.name}" is a {present.kind} and stays one; take another name for a {service.kind}'
            )
            yield ConfigurationProblem((Section.SERVICE, service.name, "kind"), sentence)


def _bad_readers(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find readers that can't be, and nodes and roles that take a reader for a service."""
    ever = stored.ever.with_all(bus)
    for reader in bus.readers.values():
        place = (Section.READER, reader.name)
        if reader.name in ever.services:
            yield ConfigurationProblem((*place, "name"), f'there is a service "{reader.name}": take another name')
        if not reader.event_types:
            yield ConfigurationProblem((*place, "event_types"), "name at least one event type")
        present = stored.ever.readers.get(reader.name)
        for field, sentence in (*_lacks_max_lag(reader), *_other_ranges(present, reader.ranges)):
            yield ConfigurationProblem((*place, field), sentence)
    for service in bus.services.values():
        if service.name in ever.readers:
            sentence = f'there is a reader "{service.name}": take another name'
            yield ConfigurationProblem((Section.SERVICE, service.name, "name"), sentence)
    for event_type in bus.event_types.values():
        for node in event_type.nodes.values():
            if node.service in ever.readers:
                sentence = f'"{node.service}" is a reader, which reads by itself: no node leads to it'
                yield ConfigurationProblem(
                    (Section.EVENT_TYPE, event_type.name, "node", node.name, "service"), sentence
                )
    for role in bus.roles.values():
        if role.service in ever.readers:
            yield from _not_of_readers(role)


def _not_of_readers(role: RoleSpec) -> Iterator[ConfigurationProblem]:
    """Find settings of a role that its reader has no use for."""
    plain = RoleSpec(role.login, role.service)
    for field in ("ordered", "parked_minutes", "instances", "standby", "start"):
        if getattr(role, field) != getattr(plain, field):
            sentence = f"{field} is of no meaning for a reader, whose programs share its ranges by themselves"
            yield ConfigurationProblem((Section.ROLE, role.login, field), sentence)
    if role.max_lag is not None:
        sentence = f'how far a reader lags is a matter of all its roles: set max_lag of the reader "{role.service}"'
        yield ConfigurationProblem((Section.ROLE, role.login, "max_lag"), sentence)


def _changed_services(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find roles of another service; it defines what a role is owed and its cursor, so it is for ever."""
    for role in bus.roles.values():
        present = stored.ever.roles.get(role.login)
        if present is not None and present.service != role.service:
            sentence = f'role "{role.login}" belongs to service "{present.service}" for good; take another login'
            yield ConfigurationProblem((Section.ROLE, role.login, "service"), sentence)


def _consumers_matters(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find settings that only consumers have: a retry policy of a service, and order of a role."""
    services = stored.ever.with_all(bus).services
    for service in bus.services.values():
        for field in FAILURE_FIELDS:
            if service.kind != "consumer" and getattr(service, field) != getattr(
                ServiceSpec(service.name, service.kind), field
            ):
                sentence = f"{field} is of meaning for consumers only: they are what envelopes are tried again for"
                yield ConfigurationProblem((Section.SERVICE, service.name, field), sentence)
    for role in bus.roles.values():
        plain = RoleSpec(role.login, role.service)
        if role.service in services and services[role.service].kind != "consumer":
            for field, why in OF_CONSUMERS.items():
                if getattr(role, field) != getattr(plain, field):
                    sentence = f"{field} is of meaning for consumers only: {why}"
                    yield ConfigurationProblem((Section.ROLE, role.login, field), sentence)
        for field, sentence in _lacks_max_lag(role):
            yield ConfigurationProblem((Section.ROLE, role.login, field), sentence)


OF_CONSUMERS = {
    "ordered": "a worker gets events as its runs need it",
    "parked_minutes": "nothing is parked for a worker",
    "max_lag": "a worker lacks nothing by itself",
    "start": "a worker gets what others need it for",
}
"""The fields of a role that only one of a consumer service has, and why."""


def _lacks_max_lag(entry: ReaderSpec | RoleSpec | SubscriptionSpec) -> Iterator[tuple[str, str]]:
    if entry.max_lag is None and entry.when_behind != "alarm":
        yield "when_behind", f'when_behind = "{entry.when_behind}" needs max_lag, which says what behind is'


def _crossed_delays(entry: ServiceSpec | RetrySettings) -> Iterator[tuple[str, str]]:
    first, longest = entry.first_delay, entry.longest_delay
    if first is not None and longest is not None and first > longest:
        yield "first_delay", f"first_delay ({first:g} s) is longer than longest_delay ({longest:g} s)"


def _other_ranges(present: ReaderSpec | SubscriptionSpec | None, ranges: int) -> Iterator[tuple[str, str]]:
    if present is not None and present.ranges != ranges:
        sentence = (
            f"it began with {present.ranges} ranges, which ranges tells for good; "
            "xbus reader split and xbus reader merge change those that it has now"
        )
        yield "ranges", sentence


def _bad_event_types(stored: Stored, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    services = stored.ever.with_all(bus).services
    workers = {service.name: service.kind == "worker" for service in services.values()}
    others = {"runner": "it runs bots", "gateway": "it calls subscribers"}
    for event_type in bus.event_types.values():
        place = (Section.EVENT_TYPE, event_type.name)
        for sentence in _graph_problems(event_type, workers):
            yield ConfigurationProblem(place, sentence)
        for node in event_type.nodes.values():
            kind = services[node.service].kind if node.service in services else ""
            if kind in others:
                sentence = f'service "{node.service}" is a {kind}: {others[kind]}, and gets no events'
                yield ConfigurationProblem((*place, "node", node.name, "service"), sentence)


def _lost_to_the_archive(bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find types that are archived, and whose events would be removed before."""
    for event_type in bus.event_types.values():
        limits = {
            "keep": event_type.keep not in (None, math.inf),
            "keep_bytes": event_type.keep_bytes is not None,
            "keep_last_per_key": event_type.keep_last_per_key is not None,
        }
        for field, is_set in limits.items():
            if event_type.archive_after is not None and is_set:
                sentence = f"{field} removes events that archive_after is to move into the archive; set one of the two"
                yield ConfigurationProblem((Section.EVENT_TYPE, event_type.name, field), sentence)


def _graph_problems(event_type: EventTypeSpec, workers: dict[str, bool]) -> list[str]:
    """List the faults of a graph. A missing service counts as one of the right kind, as references report it."""
    nodes = [
        graphs.Node(node.name, node.service, workers.get(node.service, bool(node.to)), node.to)
        for node in stored_nodes(event_type).values()
    ]
    return graphs.problems(graphs.Graph({node.name: node for node in nodes}))


MOST_SETTINGS_BYTES = 65_536
"""The bytes of a bot's settings as JSON: each run gets them."""


def find_bot_problems(
    ever: BusSpec, bus: BusSpec, known: Collection[tuple[Section, str]]
) -> Iterator[ConfigurationProblem]:
    """Iterate over the faults of the bots of ``bus``.

    Args:
        ever: all entries that there are and were.
        bus: the wished entries.
        known: section and name of all entries that there will be.
    """
    kinds = {service.name: service.kind for service in ever.with_all(bus).services.values()}
    runners = [name for name, kind in kinds.items() if kind == "runner" and (Section.SERVICE, name) in known]
    for bot in bus.bots.values():
        place = (Section.BOT, bot.name)
        problems = (*_work_problems(bot), *_reading_problems(bot), *_runner_problems(bot, kinds, runners))
        for key, sentence in problems:
            yield ConfigurationProblem((*place, key), sentence)
        if bot.emitter in ever.with_all(bus).emitters or bot.emitter in ever.with_all(bus).profiles:
            sentence = f'an emitter or a profile is called "{bot.emitter}", as the bot\'s own has to be'
            yield ConfigurationProblem((*place, "name"), sentence)
    own = {bot.emitter for bot in ever.with_all(bus).bots.values() if bot.reads}
    for section in (Section.READER, Section.SERVICE):
        for name in own & bus.section(section).keys():
            sentence = f'"{name}" is the name of the reader that the bus has for a bot: take another name'
            yield ConfigurationProblem((section, name, "name"), sentence)
    for bot in bus.bots.values():
        if bot.reads and (bot.emitter in ever.readers or bot.emitter in ever.services):
            sentence = f'a reader or a service is called "{bot.emitter}", as the bot\'s own has to be'
            yield ConfigurationProblem((Section.BOT, bot.name, "name"), sentence)


def _work_problems(bot: BotSpec) -> Iterator[tuple[str, str]]:
    if bool(bot.call) == bool(bot.command):
        yield "call", "a bot has either call or command"
    module, colon, function = bot.call.partition(":")
    if bot.call and not (colon and _is_dotted(module) and _is_dotted(function)):
        yield "call", f'call must be "module:function", and is "{bot.call}"'
    if bot.cron:
        try:
            Schedule(bot.cron, bot.timezone)
        except ConfigurationError as error:
            yield ("timezone" if error.code == "unknown_timezone" else "cron"), f"{error.cause}: {error.next_step}"
    if len(json.dumps(bot.settings, ensure_ascii=False).encode()) > MOST_SETTINGS_BYTES:
        yield "settings", f"settings are larger than {MOST_SETTINGS_BYTES} bytes of JSON"


def _reading_problems(bot: BotSpec) -> Iterator[tuple[str, str]]:
    if bot.reads and bot.cron:
        yield "reads", "a bot has either cron or reads"
    plain = BotSpec(bot.name)
    for field in ("batch_items", "batch_bytes", "batch_wait"):
        if not bot.reads and getattr(bot, field) != getattr(plain, field):
            yield field, f"{field} is of meaning for bots with reads only"
    if bot.reads and bot.missed != plain.missed:
        yield "missed", "missed is of meaning for bots with cron only: batches are never missed"
    if circle := sorted(bot.reads & bot.emits):
        yield "emits", f'the bot reads "{circle[0]}", and would read without end what it emits'


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _runner_problems(bot: BotSpec, kinds: Mapping[str, str], runners: Collection[str]) -> Iterator[tuple[str, str]]:
    if bot.runners is None and len(runners) != 1:
        there = f"there are {len(runners)}" if runners else "there is none"
        yield "runners", f"runners must name a service of kind runner where there is not exactly one ({there})"
    if bot.runners is not None and kinds.get(bot.runners, "runner") != "runner":
        yield "runners", f'service "{bot.runners}" is a {kinds[bot.runners]}, and no runner'


MOST_ITEMS = 10_000
MOST_MILLISECONDS = 3_600_000
"""The most of a batch, and the longest that it waits for more, for every way in. Clients of Routemaster know them."""

LONGEST_URL = 2048

LONGEST_WORD = 1024
"""The characters of a secret of Routemaster. All secrets are in memory, and go to gateways with each of their looks."""

SECRET_PREFIX = "whsec_"  # noqa: S105  A prefix, which each secret of Standard Webhooks has.
LEAST_SECRET_BYTES = 24
MOST_SECRET_BYTES = 64
"""The bytes of a secret that https://github.com/standard-webhooks/standard-webhooks, "Signature scheme", wants."""


def find_subscription_problems(ever: BusSpec, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Iterate over the faults of the subscriptions of ``bus``.

    Args:
        ever: all entries that there are and were.
        bus: the wished entries.
    """
    own = {each.reader.name for each in ever.with_all(bus).subscriptions.values()}
    for section in (Section.READER, Section.SERVICE):
        for name in own & bus.section(section).keys():
            sentence = f'"{name}" is the name of the reader that the bus has for a subscription: take another name'
            yield ConfigurationProblem((section, name, "name"), sentence)
    for each in bus.subscriptions.values():
        place = (Section.SUBSCRIPTION, each.name)
        for key, sentence in _problems(each, ever.subscriptions.get(each.name)):
            yield ConfigurationProblem((*place, key), sentence)
        if each.reader.name in ever.readers or each.reader.name in ever.services:
            sentence = f'a reader or a service is called "{each.reader.name}", as the subscription\'s own has to be'
            yield ConfigurationProblem((*place, "name"), sentence)


def _problems(each: SubscriptionSpec, present: SubscriptionSpec | None) -> Iterator[tuple[str, str]]:
    # Of a client of Routemaster all topics may be removed, and it is a subscriber all the same.
    if not each.event_types and each.format != "routemaster":
        yield "event_types", "name at least one event type"
    if not is_callback_url(each.url):
        wish = f"an address of http or https without login and password, of at most {LONGEST_URL} characters"
        yield "url", f"url must be {wish}"
    if not 1 <= each.max <= MOST_ITEMS:
        yield "max", f"max must be from 1 to {MOST_ITEMS:,}"
    if not 0 <= each.timeout <= MOST_MILLISECONDS:
        yield "timeout", f"timeout must be from 0 to {MOST_MILLISECONDS:,} milliseconds"
    yield from _lacks_max_lag(each)
    yield from _crossed_delays(each.retry)
    if each.secret and not is_secret(each.secret, each.format):
        key = f"{SECRET_PREFIX} and {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes in Base64"
        word = f"a word without colons of at most {LONGEST_WORD:,} characters"
        yield "secret", f"the secret must be {word if each.format == 'routemaster' else key}"
    yield from _other_ranges(present, each.ranges)


def is_callback_url(url: str) -> bool:
    """Check whether a URL can be called; whether its host may be is known when it is called."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and "@" not in parts.netloc and len(url) <= LONGEST_URL and _is_word(url)


def is_secret(secret: str, format_: str) -> bool:
    """Check a secret: a key of Standard Webhooks, or for Routemaster the word by which it logs in, too."""
    if format_ == "routemaster":
        return len(secret) <= LONGEST_WORD and ":" not in secret and _is_word(secret)
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return secret.startswith(SECRET_PREFIX) and LEAST_SECRET_BYTES <= len(key) <= MOST_SECRET_BYTES


def _is_word(text: str) -> bool:
    """Check for visible ASCII alone: a line break would forge headers of a call, an escape sequence a terminal."""
    return text.isascii() and text.isprintable() and " " not in text
