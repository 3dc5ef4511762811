"""Says in the words of the bus what an xbus.broker 0.2.0 was configured to; pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from xbus.broker.journal.configuration.entries import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
)
from xbus.broker.journal.configuration.names import is_name
from xbus.broker.journal.legacy_import.entries import (
    Belongings,
    EmissionProfile,
    LegacyDescriptor,
    LegacyPerson,
    Owner,
    Remark,
)
from xbus.broker.journal.legacy_import.rows import OldBus, OldEventType, OldNode
from xbus.passwords import is_legacy_hash
from xbus.rights import Right

# -- nodes -------------------------------------------------------------------------------------------------------------
# Makes a graph as the bus has it out of the nodes of an event type of xbus.broker 0.2.0; pure.
#
# There a node had no name, and two things defined its items: the edges, and its mark as a start node. The old broker
# went by both, so a graph means here what it did there:
#
# - A node that is not marked and that no marked one leads to got nothing. It is left out.
# - A marked node that others lead to got the items as emitted as well as their answers. It becomes two nodes of its
#   service, one of which is a start node: the bus hands both streams to the same recipient.


@dataclass(frozen=True)
class LegacyGraph:
    """The nodes of an event type.

    Args:
        nodes: by name.
        silent: the names of the nodes that are left out as they got nothing.
        doubled: for each node that became two, its name and that of the start node beside it.
    """

    nodes: Mapping[str, NodeSpec]
    silent: tuple[str, ...] = ()
    doubled: tuple[tuple[str, str], ...] = ()


def translate_nodes(nodes: Sequence[OldNode], services: Mapping[str, str]) -> LegacyGraph:
    """Translate the graph of one event type.

    Args:
        nodes: all nodes of the type, whose children are among them.
        services: the name of each of their services by its id.
    """
    nodes = sorted(nodes, key=lambda node: node.id)
    names = _names(nodes, services)
    reached = _reached(nodes)
    has_parents = {child for node in nodes if node.id in reached for child in node.children}
    taken = set(names.values())
    translated: list[NodeSpec] = []
    doubled: list[tuple[str, str]] = []
    for node in nodes:
        if node.id in reached:
            made = NodeSpec(
                names[node.id], services[node.service_id], tuple(sorted(names[child] for child in node.children))
            )
            translated.append(made)
            if node.is_start and node.id in has_parents:
                start = next(name for name in _numbered(f"{made.name}_start") if name not in taken)
                taken.add(start)
                translated.append(NodeSpec(start, made.service, made.to))
                doubled.append((made.name, start))
    silent = tuple(names[node.id] for node in nodes if node.id not in reached)
    return LegacyGraph({node.name: node for node in translated}, silent, tuple(doubled))


def _names(nodes: Sequence[OldNode], services: Mapping[str, str]) -> dict[str, str]:
    """Name each node after its service, with a number if several nodes are of it.

    The numbers go by the old ids, so that the next import gives the same names.
    """
    uses = Counter(services[node.service_id] for node in nodes)
    taken = {service for service, number in uses.items() if number == 1}
    names: dict[str, str] = {}
    for node in nodes:
        service = services[node.service_id]
        if uses[service] > 1:
            name = next(name for name in _numbered(service, first=1) if name not in taken)
            taken.add(name)
            names[node.id] = name
        else:
            names[node.id] = service
    return names


def _numbered(name: str, first: int | None = None) -> Iterator[str]:
    """Iterate over ``name_1``, ``name_2`` and so on; before them the bare name, unless they begin with a number."""
    if first is None:
        yield name
    number = first or 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _reached(nodes: Iterable[OldNode]) -> set[str]:
    """Collect the ids of the nodes that got items: those marked, and all that these lead to."""
    children = {node.id: node.children for node in nodes}
    reached: set[str] = set()
    ahead = [node.id for node in nodes if node.is_start]
    while ahead:
        node_id = ahead.pop()
        if node_id not in reached:
            reached.add(node_id)
            ahead.extend(children[node_id])
    return reached


RIGHTS = {
    "xbus_manager": Right.MANAGER,
    "xbus_uploader": Right.UPLOADER,
    "xbus_data_clearer": Right.CLEARER,
}
"""The right here for each permission that the old monitor, xbus.monitor, asked for."""

LONGEST_ENCODING = 64
"""Characters; what the database's column takes."""


@dataclass(frozen=True)
class Translation:
    """The old configuration in the form of this bus.

    Args:
        bus: event types and all their entries. A profile may name event types that are refused.
        refused: why an event type is not in ``bus``, by its name.
        belongings: the entries beside the bus.
        passwords: the hashes as they are.
        rights: of people who have some, by login.
        remarks: about what else is left out, or changed its form.
    """

    bus: BusSpec
    refused: Mapping[str, tuple[str, ...]]
    belongings: Belongings
    passwords: Mapping[Owner, str] = field(repr=False)
    remarks: tuple[Remark, ...]
    rights: Mapping[str, frozenset[Right]] = field(default_factory=dict)


def translate(old: OldBus) -> Translation:
    """Translate ``old``; leave out what has no place here, with all that needs it, and make a remark."""
    return _Translator(old).translate()


class _Translator:
    """Goes through the old rows, those that others refer to first, and collects remarks."""

    def __init__(self, old: OldBus) -> None:
        self._old = old
        self._services: dict[str, str] = {}
        self._type_names: dict[str, str] = {}
        self._profile_names: dict[str, str] = {}
        self._logins: dict[str, str] = {}
        self._descriptor_names: dict[str, str] = {}
        self._passwords: dict[Owner, str] = {}
        self._rights: dict[str, frozenset[Right]] = {}
        self._refused: dict[str, tuple[str, ...]] = {}
        self._remarks: list[Remark] = []

    def translate(self) -> Translation:
        services = {entry.name: entry for entry in self._make_services()}
        event_types = {entry.name: entry for entry in self._make_event_types()}
        bus = BusSpec(
            event_types=event_types,
            services=services,
            roles={entry.login: entry for entry in self._make_roles()},
            profiles={entry.name: entry for entry in self._make_profiles()},
            emitters={entry.login: entry for entry in self._make_emitters()},
        )
        people = {entry.login: entry for entry in self._make_people()}
        descriptors = {entry.name: entry for entry in self._make_descriptors()}
        emission_profiles = {entry.name: entry for entry in self._make_emission_profiles()}
        self._remark_what_stays()
        belongings = Belongings(people, descriptors, emission_profiles)
        return Translation(bus, self._refused, belongings, self._passwords, tuple(self._remarks), self._rights)

    # -- the bus ---------------------------------------------------------------------------------------------------

    def _make_services(self) -> Iterator[ServiceSpec]:
        for row in self._old.services:
            if self._is_named(row.name, "service"):
                self._services[row.id] = row.name
                yield ServiceSpec(row.name, "consumer" if row.is_consumer else "worker")

    def _make_event_types(self) -> Iterator[EventTypeSpec]:
        nodes: dict[str, list[OldNode]] = {}
        for node in self._old.nodes:
            nodes.setdefault(node.type_id, []).append(node)
        for row in self._old.event_types:
            if self._is_named(row.name, "event_type"):
                self._type_names[row.id] = row.name
                if reasons := tuple(self._reasons_against(nodes.get(row.id, []))):
                    self._refused[row.name] = reasons
                else:
                    yield self._make_event_type(row, row.name, nodes.get(row.id, []))

    def _reasons_against(self, nodes: list[OldNode]) -> Iterator[str]:
        if any(node.service_id not in self._services for node in nodes):
            yield "a node is of a service that is left out"
        ids = {node.id for node in nodes}
        if any(child not in ids for node in nodes for child in node.children):
            yield "a node leads to a node of another event type"

    def _make_event_type(self, row: OldEventType, name: str, nodes: list[OldNode]) -> EventTypeSpec:
        graph = translate_nodes(nodes, self._services)
        if graph.silent:
            self._remark(
                f'event_type "{name}" goes without {_quoted("node", graph.silent)}, which got nothing, as no node that '
                "is marked as a start leads there",
                "add by xbus apply what should get events from now on",
            )
        for node, start in graph.doubled:
            self._remark(
                f'event_type "{name}": node "{node}" got items as emitted besides those of other nodes; the start node '
                f'"{start}" of the same service hands them over'
            )
        return EventTypeSpec(name, row.immediate_reply, graph.nodes)

    def _make_roles(self) -> Iterator[RoleSpec]:
        for row in self._old.roles:
            if self._is_named(row.login, "role"):
                if row.service_id in self._services:
                    self._keep_password(("role", row.login), row.password)
                    yield RoleSpec(row.login, self._services[row.service_id])
                else:
                    self._lose(f'role "{row.login}" is left out, as its service is')

    def _make_profiles(self) -> Iterator[ProfileSpec]:
        for row in self._old.profiles:
            if self._is_named(row.name, "emitter_profile"):
                self._profile_names[row.id] = row.name
                allowed = (self._type_names[type_id] for type_id in row.type_ids if type_id in self._type_names)
                yield ProfileSpec(row.name, frozenset(allowed))

    def _make_emitters(self) -> Iterator[EmitterSpec]:
        for row in self._old.emitters:
            if self._is_named(row.login, "emitter"):
                if row.profile_id in self._profile_names:
                    self._keep_password(("emitter", row.login), row.password)
                    yield EmitterSpec(row.login, self._profile_names[row.profile_id])
                else:
                    self._lose(f'emitter "{row.login}" is left out, as its profile is')

    # -- what is beside it -----------------------------------------------------------------------------------------

    def _make_people(self) -> Iterator[LegacyPerson]:
        for row in self._old.users:
            if self._is_named(row.login, "person"):
                self._logins[row.id] = row.login
                self._keep_password(("person", row.login), row.password)
                self._keep_rights(row.login, row.permissions)
                yield LegacyPerson(row.login, row.display_name, row.email)

    def _make_descriptors(self) -> Iterator[LegacyDescriptor]:
        for row in self._old.descriptors:
            if self._is_named(row.name, "input_descriptor"):
                self._descriptor_names[row.id] = row.name
                yield LegacyDescriptor(row.name, row.content, row.mimetype)

    def _make_emission_profiles(self) -> Iterator[EmissionProfile]:
        for row in self._old.emission_profiles:
            if not self._is_named(row.name, "emission_profile"):
                continue
            if row.owner_id is not None and row.owner_id not in self._logins:
                self._lose(f'emission_profile "{row.name}" is left out, as its person is')
            elif row.descriptor_id is not None and row.descriptor_id not in self._descriptor_names:
                self._lose(f'emission_profile "{row.name}" is left out, as its input_descriptor is')
            elif not is_name(row.encoding) or len(row.encoding) > LONGEST_ENCODING:
                self._lose(
                    f'emission_profile "{row.name}" is left out, as its encoding is no name',
                    "correct it in the old bus",
                )
            else:
                yield EmissionProfile(
                    row.name,
                    None if row.owner_id is None else self._logins[row.owner_id],
                    None if row.descriptor_id is None else self._descriptor_names[row.descriptor_id],
                    row.encoding,
                )

    # -- remarks ---------------------------------------------------------------------------------------------------

    def _is_named(self, name: str | None, kind: str) -> TypeGuard[str]:
        if is_name(name):
            return True
        # "!a" shows what people would not see.
        what = f"a {kind} has no name and" if name is None else f"{kind} {name!a}"
        self._lose(
            f"{what} is left out: a name must be of printable characters, without blanks around it",
            "rename it in the old bus, then import again",
        )
        return False

    def _keep_password(self, owner: Owner, password_hash: str | None) -> None:
        if not password_hash:
            return
        if is_legacy_hash(password_hash):
            self._passwords[owner] = password_hash
        else:
            kind, login = owner
            self._remark(f'the password of {kind} "{login}" is left out, as it let nobody in', "set another one")

    def _keep_rights(self, login: str, permissions: frozenset[str]) -> None:
        rights = frozenset(RIGHTS[name] for name in permissions if name in RIGHTS)
        if rights:
            self._rights[login] = rights
        unknown = tuple(name if is_name(name) else ascii(name) for name in sorted(permissions - RIGHTS.keys()))
        if unknown:
            self._remark(f'person "{login}" goes without {_quoted("permission", unknown)}, which mean nothing here')

    def _remark_what_stays(self) -> None:
        counts = [_counted(number, what) for what, number in self._old.without_counterpart.items() if number]
        if counts:
            self._remark(f"left out, as there is no place for it here: {', '.join(counts)}")
        if self._old.undelivered:
            self._remark(
                f"the old broker still has {_counted(self._old.undelivered, 'event')} to deliver, which stay there",
                "let it deliver them before it ends",
            )

    def _remark(self, sentence: str, next_step: str = "") -> None:
        self._remarks.append(Remark(sentence, next_step))

    def _lose(self, sentence: str, next_step: str = "") -> None:
        self._remarks.append(Remark(sentence, next_step, is_loss=True))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"


def _quoted(what: str, names: tuple[str, ...]) -> str:
    """Write ``node "a"``, or ``nodes "a", "b"``."""
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"{what} {quoted}" if len(names) == 1 else f"{what}s {quoted}"
