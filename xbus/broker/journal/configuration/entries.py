"""The bus as an administrator names it: entries that refer to each other by name, without ids and without secrets.

``renamed_from`` of an entry is its name until now. Nothing keeps it, so it makes no difference between entries. A place
says where a fault is: the reader of the source, a file or a form, finds the line by it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.writes import NO_LIMITS, SendingLimits
from xbus.slots import Missed

MAX_ISOLATED = 100
"""The most items of an event that are parked alone, unless its type sets a number."""

BOT_SECONDS = 3600.0
"""The seconds of a run of a bot, unless the bot sets a number."""

BOT_ATTEMPTS = 3
"""The attempts of a run of a bot, unless the bot sets a number."""

BOT_BATCH_ITEMS = 10_000
BOT_BATCH_BYTES = 4 * 1024 * 1024
"""The items and the bytes of a batch of a bot, unless the bot sets numbers."""

Start: TypeAlias = Literal["head", "oldest"] | int | datetime
"""The begin of a role or reader: the end of the log, the oldest existing envelope, a position, or a moment."""


@dataclass(frozen=True)
class NodeSpec:
    """A node of an event type's graph.

    Args:
        name: unique within the event type.
        service: the service that it asks for; empty for a node by which the bus itself emits what comes.
        to: the nodes that get its answers, sorted, so that their order makes no difference.
        emits: the event types as which the bus emits what comes to it; of a worker's node those that the worker may
            name for an item. Sorted.
    """

    name: str
    service: str
    to: tuple[str, ...] = ()
    emits: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventTypeSpec:
    """An event type with the current version of its graph.

    Args:
        name: of the type.
        immediate_reply: whether ``end_event`` waits for what a consumer replies.
        nodes: the graph's nodes by name.
        bad_items: what is parked where a recipient refuses items by their indices: the whole envelope, or those alone.
        max_isolated: with more items than this refused in one event the whole envelope is parked all the same.
        secret: paths of the fields in its items that people do not see, sorted.
        keep: seconds for which its settled events stay, infinite for ever; None with the next two for what the
            configuration file says. An event may go as soon as it is beyond one of the three.
        keep_bytes: bytes of its newest events that stay; None for no such limit.
        keep_last_per_key: how many of the newest events of each partition key stay; None for no such limit.
        archive_after: seconds after which the broker moves its settled events into the archive; None for never.
        compress: how its items are compressed in the journal.
    """

    name: str
    immediate_reply: bool
    nodes: Mapping[str, NodeSpec]
    bad_items: Literal["envelope", "isolate"] = "envelope"
    max_isolated: int = MAX_ISOLATED
    secret: tuple[str, ...] = ()
    keep: float | None = None
    keep_bytes: int | None = None
    keep_last_per_key: int | None = None
    archive_after: float | None = None
    compress: Literal["none", "zstd"] = "none"
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ServiceSpec:
    """A service, which nodes ask for and roles provide; the last five fields are for consumers.

    Args:
        name: of the service.
        kind: for good.
        failures: whether a refusal by one of its consumers stops the envelope for all who lack it, or is its own.
        attempts: how often an envelope is tried before it is parked; None for what ``[back]`` says, as below.
        first_delay: seconds before the second attempt; doubled each time.
        longest_delay: the most that a delay grows to, in seconds.
        jitter: by which part a delay is made longer or shorter at random, 0 to 1.
    """

    name: str
    kind: Literal["worker", "consumer", "runner", "gateway"]
    failures: Literal["shared", "own"] = "shared"
    attempts: int | None = None
    first_delay: float | None = None
    longest_delay: float | None = None
    jitter: float | None = None
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ReaderSpec:
    """A reader of the log, whose programs log in by the roles that name it as their service.

    Args:
        name: no service has the same one.
        event_types: the names of the types that it reads.
        ranges: with how many ranges of the ring of hashes it begins; for good, as people split and merge them.
        lease: seconds after which the ranges of a silent program are given away.
        batch_items: the most items of a batch.
        batch_bytes: the bytes of items at which a batch ends.
        batch_wait: seconds that a batch waits for more items; 0 for none.
        keeps: whether retention waits for it.
        max_lag: the most envelopes that it may lack, or the age that the oldest of them may have.
        when_behind: what the bus does beyond that: it tells people, has retention wait no longer, or has it do without.
        start: where it begins when it is new, None for the end of the log; nothing that is kept of it.
    """

    name: str
    event_types: frozenset[str]
    ranges: int = 8
    lease: float = 10.0
    batch_items: int = 10_000
    batch_bytes: int = 4 * 1024 * 1024
    batch_wait: float = 0.0
    keeps: bool = True
    max_lag: int | timedelta | None = None
    when_behind: Literal["alarm", "detach", "skip"] = "alarm"
    start: Start | None = field(default=None, compare=False)
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RoleSpec:
    """A role that provides a service, by one program or by several side by side.

    Args:
        login: the login of its recipients.
        service: a service, or a reader; for good.
        ordered: whether a consumer gets one envelope at a time, those of one ordering key in position order.
        start: where a consumer begins, when it is new; nothing that is kept of it, and so no difference to others. None
            for all that waits for its service, where it is the first role of that, else the end of the log.
        absent_minutes: how long it may be away while something waits for it before health tells of it; infinite for
            never, None for what ``[health]`` says, as below.
        parked_minutes: how long something may be parked for a consumer before health tells of it.
        instances: so many programs may serve it side by side.
        standby: whether further programs wait until one of those is lost.
        keys: the public keys by which its programs may log in over encrypted connections, sorted.
        max_lag: the most envelopes that a consumer may lack, or the age that the oldest of them may have.
        when_behind: what the bus does beyond that: it tells people, takes the role off the bus, or has it do without.
    """

    login: str
    service: str
    ordered: bool = False
    start: Start | None = field(default=None, compare=False)
    absent_minutes: float | None = None
    parked_minutes: float | None = None
    instances: int = 1
    standby: bool = False
    keys: tuple[str, ...] = ()
    max_lag: int | timedelta | None = None
    when_behind: Literal["alarm", "detach", "skip"] = "alarm"
    renamed_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ProfileSpec:
    """A set of event types that its emitters may send, and the limits of each of them.

    Args:
        new_types: the beginning of the names, and a star, of the types that they may make; empty for none.
        clients: the profile of the emitters for which they may make API tokens; None if they may not.
        keep_keys: seconds for which the keys of their removed envelopes are kept; None for ever.
    """

    name: str
    event_types: frozenset[str]
    renamed_from: str | None = field(default=None, compare=False)
    limits: SendingLimits = NO_LIMITS
    new_types: str = ""
    clients: str | None = None
    keep_keys: float | None = None


@dataclass(frozen=True)
class EmitterSpec:
    """A program that sends envelopes; ``keys`` as those of a role. Its limits come before those of its profile."""

    login: str
    profile: str
    keys: tuple[str, ...] = ()
    renamed_from: str | None = field(default=None, compare=False)
    limits: SendingLimits = NO_LIMITS


@dataclass(frozen=True)
class BotSpec:
    """A program that the bus starts, by time or when a person asks for it.

    Args:
        name: of the bot.
        call: ``module:function`` that a run calls; empty where it runs a command.
        command: a program and its arguments; empty where it calls a function.
        cron: when it runs, as crontab(5); empty for never by itself.
        timezone: the zone of ``cron``.
        missed: what becomes of slots at which nobody could look.
        reads: the event types of which it gets batches, in the place of ``cron``.
        batch_items: the most items of a batch.
        batch_bytes: the bytes of items at which a batch ends.
        batch_wait: seconds that a batch waits for more items; 0 for none.
        emits: the event types that its runs may put.
        instances: so many of its runs may be under way at once.
        max_seconds: after which a run is ended.
        attempts: how often a run is tried before it has failed.
        settings: what each run gets; values as JSON has them.
        runners: the service whose programs run it; None for the only one of kind runner.
        description: what it is for.
    """

    name: str
    call: str = ""
    command: tuple[str, ...] = ()
    cron: str = ""
    timezone: str = "UTC"
    missed: Missed = Missed.ONCE
    reads: frozenset[str] = frozenset()
    batch_items: int = BOT_BATCH_ITEMS
    batch_bytes: int = BOT_BATCH_BYTES
    batch_wait: float = 0.0
    emits: frozenset[str] = frozenset()
    instances: int = 1
    max_seconds: float = BOT_SECONDS
    attempts: int = BOT_ATTEMPTS
    settings: Mapping[str, object] = field(default_factory=dict)
    runners: str | None = None
    description: str = ""
    renamed_from: str | None = field(default=None, compare=False)

    @property
    def emitter(self) -> str:
        """The login as which it writes, and the name of the profile of that."""
        return f"bot/{self.name}"

    @property
    def reader(self) -> ReaderSpec:
        """The reader that the bus has of its own for a bot that reads. Each of its instances begins with a range."""
        sizes = (self.batch_items, self.batch_bytes, self.batch_wait)
        return ReaderSpec(self.emitter, self.reads, self.instances, ReaderSpec.lease, *sizes)


@dataclass(frozen=True)
class SubscriptionSpec:
    """A reader with a URL: gateways call it back with batches, each signed by the secret.

    Args:
        name: of the subscription.
        event_types: the names of the types that it gets.
        url: of the subscriber, http or https, without login and password.
        format: of the bodies of calls.
        secret: signs the calls, see docs/subscriptions.md; empty for none. None where nobody says it: it stays as it
            is. Nothing shows it, so it makes no difference by ``==``.
        verify: whether the certificate of the subscriber is checked.
        max: the most items of a batch.
        timeout: milliseconds that a batch waits for more items; 0 for none.
        ranges: with how many ranges of the ring of hashes it begins; with one, all comes in the order of the log.
        retry: when a batch that was not taken is called again, and when it is parked.
        keeps, max_lag, when_behind, start: as of a reader.
    """

    name: str
    event_types: frozenset[str]
    url: str
    format: Literal["json", "cloudevents", "routemaster"] = "json"
    secret: str | None = field(default=None, compare=False, repr=False)
    verify: bool = True
    max: int = 100
    timeout: int = 500
    ranges: int = 1
    keeps: bool = True
    max_lag: int | timedelta | None = None
    when_behind: Literal["alarm", "detach", "skip"] = "alarm"
    retry: RetrySettings = field(default_factory=RetrySettings)
    start: Start | None = field(default=None, compare=False)
    renamed_from: str | None = field(default=None, compare=False)

    @property
    def reader(self) -> ReaderSpec:
        """The reader that the bus has of its own for it."""
        return ReaderSpec(
            f"subscription/{self.name}",
            self.event_types,
            ranges=self.ranges,
            batch_items=self.max,
            batch_wait=self.timeout / 1000,
            keeps=self.keeps,
            max_lag=self.max_lag,
            when_behind=self.when_behind,
            start=self.start,
        )


Entry: TypeAlias = (
    EventTypeSpec | ServiceSpec | ReaderSpec | RoleSpec | ProfileSpec | EmitterSpec | BotSpec | SubscriptionSpec
)


Place: TypeAlias = tuple[str, ...]
"""A place in a bus: section, name of the entry, then field, or ``node``, name of the node, field."""


@dataclass(frozen=True)
class ConfigurationProblem:
    """The reason why a configuration is refused.

    Args:
        place: where; whoever knows the source can find the line by it.
        sentence: the fault, with names, without a final full stop.
    """

    place: Place
    sentence: str


class Section(StrEnum):
    """The kinds of entries, in the order in which they are shown; each may refer to others by name."""

    EVENT_TYPE = "event_type"
    SERVICE = "service"
    READER = "reader"
    ROLE = "role"
    EMITTER_PROFILE = "emitter_profile"
    EMITTER = "emitter"
    BOT = "bot"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True)
class BusSpec:
    """Entries of all sections, each by its name or login."""

    event_types: Mapping[str, EventTypeSpec] = field(default_factory=dict)
    services: Mapping[str, ServiceSpec] = field(default_factory=dict)
    roles: Mapping[str, RoleSpec] = field(default_factory=dict)
    profiles: Mapping[str, ProfileSpec] = field(default_factory=dict)
    emitters: Mapping[str, EmitterSpec] = field(default_factory=dict)
    readers: Mapping[str, ReaderSpec] = field(default_factory=dict)
    bots: Mapping[str, BotSpec] = field(default_factory=dict)
    subscriptions: Mapping[str, SubscriptionSpec] = field(default_factory=dict)

    def section(self, section: Section) -> Mapping[str, Entry]:
        """Give the entries of one section by name."""
        found: Mapping[str, Entry] = getattr(self, _FIELDS[section])
        return found

    @classmethod
    def holding(cls, section: Section, name: str, entry: Entry) -> "BusSpec":
        """Make a bus of one entry."""
        return cls()._with(section, {name: entry})

    def without(self, section: Section, name: str) -> "BusSpec":
        """Give this bus without one entry."""
        kept = {each: entry for each, entry in self.section(section).items() if each != name}
        return self._with(section, kept)

    def _with(self, section: Section, entries: Mapping[str, Any]) -> "BusSpec":
        return replace(self, **{_FIELDS[section]: entries})

    def names(self) -> Iterator[tuple[Section, str]]:
        """Iterate over every entry's section and name."""
        return ((section, name) for section in Section for name in self.section(section))

    def with_all(self, other: "BusSpec") -> "BusSpec":
        """Add the entries of ``other`` to this bus; if both have an entry, that of ``other`` wins."""
        both = self
        for section in Section:
            both = both._with(section, {**self.section(section), **other.section(section)})
        return both


_FIELDS: Mapping[Section, str] = {
    Section.EVENT_TYPE: "event_types",
    Section.SERVICE: "services",
    Section.READER: "readers",
    Section.ROLE: "roles",
    Section.EMITTER_PROFILE: "profiles",
    Section.EMITTER: "emitters",
    Section.BOT: "bots",
    Section.SUBSCRIPTION: "subscriptions",
}
