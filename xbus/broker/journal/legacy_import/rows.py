"""The configuration of an xbus.broker 0.2.0 as its database has it: rows that refer to each other by id."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OldService:
    """A service; without a name nobody could ever use it."""

    id: str
    name: str | None
    is_consumer: bool


@dataclass(frozen=True)
class OldEventType:
    """An event type."""

    id: str
    name: str | None
    immediate_reply: bool


@dataclass(frozen=True)
class OldNode:
    """A node of an event type's graph; it has no name.

    Args:
        is_start: whether it gets the items as emitted. Nothing kept that in step with the edges.
        children: the ids of the nodes that get its answers; nothing kept them within the event type.
    """

    id: str
    type_id: str
    service_id: str
    is_start: bool
    children: tuple[str, ...] = ()


@dataclass(frozen=True)
class OldRole:
    """A program that provides a service."""

    login: str
    password: str | None = field(repr=False)
    service_id: str


@dataclass(frozen=True)
class OldProfile:
    """An emitter profile: which event types its emitters may send."""

    id: str
    name: str
    type_ids: frozenset[str]


@dataclass(frozen=True)
class OldEmitter:
    """A program that sends envelopes."""

    login: str
    password: str | None = field(repr=False)
    profile_id: str


@dataclass(frozen=True)
class OldUser:
    """Somebody who operates or administers the bus.

    Args:
        permissions: the names of those that the user's groups have.
    """

    id: str
    login: str | None
    display_name: str | None
    email: str | None
    password: str | None = field(repr=False)
    permissions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OldDescriptor:
    """An input descriptor: how files are read."""

    id: str
    name: str
    content: bytes = field(repr=False)
    mimetype: str | None


@dataclass(frozen=True)
class OldEmissionProfile:
    """A way in which a user emits files."""

    name: str
    owner_id: str | None
    descriptor_id: str | None
    encoding: str


@dataclass(frozen=True)
class OldBus:
    """The rows of the old bus, each kind in the order of names.

    Args:
        without_counterpart: the number of rows without a place here, by the name of their kind.
        undelivered: the number of events that the old broker has not delivered to all of their consumers.
    """

    services: tuple[OldService, ...] = ()
    event_types: tuple[OldEventType, ...] = ()
    nodes: tuple[OldNode, ...] = ()
    roles: tuple[OldRole, ...] = ()
    profiles: tuple[OldProfile, ...] = ()
    emitters: tuple[OldEmitter, ...] = ()
    users: tuple[OldUser, ...] = ()
    descriptors: tuple[OldDescriptor, ...] = ()
    emission_profiles: tuple[OldEmissionProfile, ...] = ()
    without_counterpart: Mapping[str, int] = field(default_factory=dict)
    undelivered: int = 0
