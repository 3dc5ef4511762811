"""Plans an import from an xbus.broker 0.2.0 before anything is touched; pure."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from shlex import quote
from typing import TypeVar

from sqlalchemy import Connection, select

from xbus.broker.journal.configuration.entries import BusSpec, ProfileSpec, Section
from xbus.broker.journal.configuration.plan import Move, Name, Plan, make_plan
from xbus.broker.journal.configuration.reading import Stored, read_stored
from xbus.broker.journal.legacy_import.entries import (
    Belongings,
    EmissionProfile,
    LegacyDescriptor,
    LegacyPerson,
    Owner,
    Remark,
)
from xbus.broker.journal.legacy_import.translation import Translation
from xbus.broker.journal.people import list_persons
from xbus.model import emission_profile, emitter, input_descriptor, person, role
from xbus.passwords import is_legacy_hash
from xbus.rights import Right, write_rights

# -- fitting -----------------------------------------------------------------------------------------------------------
# Leaves out of a bus from an xbus.broker 0.2.0 what can't be put on top of the present one; pure.

Entry = TypeVar("Entry")


def fit(stored: Stored, bus: BusSpec, refused: Mapping[str, tuple[str, ...]]) -> tuple[BusSpec, tuple[Remark, ...]]:
    """Select the part of ``bus`` that can be applied, and make remarks about the rest.

    Args:
        stored: the present configuration.
        bus: the wished one.
        refused: why some event types are not in it; its profiles may name them.
    """
    reasons = _reasons(stored, bus, refused)
    kept = BusSpec(
        event_types=_without(bus.event_types, Section.EVENT_TYPE, reasons),
        services=_without(bus.services, Section.SERVICE, reasons),
        roles=_without(bus.roles, Section.ROLE, reasons),
        emitters=bus.emitters,
    )
    known = {*kept.event_types, *stored.in_use.event_types}
    profiles = {name: replace(entry, event_types=entry.event_types & known) for name, entry in bus.profiles.items()}
    remarks = (*_left_out(stored, reasons), *_shortened(bus.profiles, profiles))
    return replace(kept, profiles=profiles), remarks


def _reasons(stored: Stored, bus: BusSpec, refused: Mapping[str, tuple[str, ...]]) -> dict[Name, list[str]]:
    """List why entries can't be taken: their own faults, or those of their service."""
    reasons: dict[Name, list[str]] = {(Section.EVENT_TYPE, name): [*why] for name, why in refused.items()}
    # A profile may name a refused event type; that is no problem of its own.
    unreadable = {(Section.EVENT_TYPE, name) for name in refused}
    for problem in make_plan(stored, bus, unreadable=unreadable).problems:
        reasons.setdefault((Section(problem.place[0]), problem.place[1]), []).append(problem.sentence)
    without = {name for section, name in reasons if section is Section.SERVICE}
    for each in bus.roles.values():
        if each.service in without:
            reasons.setdefault((Section.ROLE, each.login), []).append(f'its service "{each.service}" is left out')
    for event_type in bus.event_types.values():
        for service in sorted({node.service for node in event_type.nodes.values()} & without):
            reasons.setdefault((Section.EVENT_TYPE, event_type.name), []).append(f'its service "{service}" is left out')
    return reasons


def _without(entries: Mapping[str, Entry], section: Section, reasons: Mapping[Name, list[str]]) -> dict[str, Entry]:
    return {name: entry for name, entry in entries.items() if (section, name) not in reasons}


def _left_out(stored: Stored, reasons: Mapping[Name, list[str]]) -> Iterator[Remark]:
    for (section, name), sentences in reasons.items():
        why = "; ".join(sentences)
        if section is not Section.EVENT_TYPE:
            yield Remark(f'{section} "{name}" is left out ({why})', is_loss=True)
        elif name in stored.in_use.event_types:
            # Somebody has described it anew, as the remark asks.
            yield Remark(f'event_type "{name}" stays as it is here; the old one can\'t be taken ({why})')
        else:
            yield Remark(
                f'event_type "{name}" is left out ({why})', "describe it anew by xbus apply, then import again", True
            )


def _shortened(before: Mapping[str, ProfileSpec], after: Mapping[str, ProfileSpec]) -> Iterator[Remark]:
    for name, profile in before.items():
        for event_type in sorted(profile.event_types - after[name].event_types):
            yield Remark(f'emitter_profile "{name}" goes without event_type "{event_type}"')


# -- present -----------------------------------------------------------------------------------------------------------
# Finds the entries beside the bus that exist already before an import.


@dataclass(frozen=True)
class Present:
    """The bus before an import.

    Args:
        stored: its configuration.
        belongings: the entries beside it, disabled people too.
        disabled_people: logins of people who may do nothing.
        passwords: the hash of each present or former login; None if it never had a password.
        rights: of each person, by login; none where nobody has given any.
    """

    stored: Stored
    belongings: Belongings
    disabled_people: frozenset[str]
    passwords: Mapping[Owner, str | None] = field(repr=False)
    rights: Mapping[str, frozenset[Right]] = field(default_factory=dict)


def read_present(connection: Connection) -> Present:
    """Read the bus before the import."""
    people = list_persons(connection)
    return Present(
        stored=read_stored(connection),
        belongings=Belongings(_people(connection), _descriptors(connection), _emission_profiles(connection)),
        disabled_people=frozenset(each.name for each in people if each.disabled_at is not None),
        passwords=_present_passwords(connection),
        rights={each.name: each.rights for each in people},
    )


def _people(connection: Connection) -> dict[str, LegacyPerson]:
    rows = connection.execute(select(person).order_by(person.c.login))
    return {row.login: LegacyPerson(row.login, row.display_name, row.email) for row in rows}


def _descriptors(connection: Connection) -> dict[str, LegacyDescriptor]:
    rows = connection.execute(select(input_descriptor).order_by(input_descriptor.c.name))
    return {row.name: LegacyDescriptor(row.name, bytes(row.content), row.mimetype) for row in rows}


def _emission_profiles(connection: Connection) -> dict[str, EmissionProfile]:
    rows = connection.execute(
        select(
            emission_profile.c.name,
            person.c.login,
            input_descriptor.c.name.label("descriptor"),
            emission_profile.c.encoding,
        )
        .outerjoin(person, person.c.id == emission_profile.c.person_id)
        .outerjoin(input_descriptor, input_descriptor.c.id == emission_profile.c.descriptor_id)
        .order_by(emission_profile.c.name)
    )
    return {row.name: EmissionProfile(row.name, row.login, row.descriptor, row.encoding) for row in rows}


def _present_passwords(connection: Connection) -> dict[Owner, str | None]:
    passwords: dict[Owner, str | None] = {}
    for login, password_hash in connection.execute(select(emitter.c.login, emitter.c.password_hash)):
        passwords["emitter", login] = password_hash
    for login, password_hash in connection.execute(select(role.c.login, role.c.password_hash)):
        passwords["role", login] = password_hash
    for login, password_hash in connection.execute(select(person.c.login, person.c.password_hash)):
        passwords["person", login] = password_hash
    return passwords


@dataclass(frozen=True)
class BelongingChange:
    """A change of an entry beside the bus.

    Args:
        move: the kind of the change; never a removal.
        kind: the name of the entry's kind.
        entry: the entry after the change.
        fields: the names of the differing fields, for a change.
    """

    move: Move
    kind: str
    name: str
    entry: LegacyPerson | LegacyDescriptor | EmissionProfile
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = f'{self.move} {self.kind} "{self.name}"'
        return f"{what}: {', '.join(self.fields)}" if self.fields else what


@dataclass(frozen=True)
class PasswordChange:
    """A password that is set to what it was in the old bus.

    Args:
        owner: whose it is.
        before: the hash that must be there still; None for none.
        after: the hash that will be.
    """

    owner: Owner
    before: str | None = field(repr=False)
    after: str = field(repr=False)

    def __str__(self) -> str:
        kind, login = self.owner
        return f'set password of {kind} "{login}"'


@dataclass(frozen=True)
class RightsChange:
    """Rights that a person gets who has none yet."""

    login: str
    rights: frozenset[Right]

    def __str__(self) -> str:
        return f'give person "{self.login}" the rights: {write_rights(self.rights)}'


@dataclass(frozen=True)
class ImportPlan:
    """The changes that an import would make.

    Args:
        bus: to the bus; without problems and removals.
        belongings: to entries beside the bus, those that others refer to first.
        passwords: to passwords.
        rights: to people's rights.
        remarks: about what is left out, or changed its form.
    """

    bus: Plan
    belongings: tuple[BelongingChange, ...]
    passwords: tuple[PasswordChange, ...]
    rights: tuple[RightsChange, ...]
    remarks: tuple[Remark, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """The acts of the import, a line each."""
        return tuple(map(str, (*self.bus.changes, *self.beside)))

    @property
    def beside(self) -> tuple[BelongingChange | PasswordChange | RightsChange, ...]:
        """All changes that are not to the bus."""
        return (*self.belongings, *self.passwords, *self.rights)


def plan_import(present: Present, wished: Translation) -> ImportPlan:
    """Compare the old bus with the present one. An import never removes anything.

    Somebody here has disabled people, and given them rights: that stays as it is.
    """
    bus, misfits = fit(present.stored, wished.bus, wished.refused)
    wanted = {
        owner: password_hash
        for owner, password_hash in wished.passwords.items()
        if owner[0] == "person" or owner[1] in (bus.emitters if owner[0] == "emitter" else bus.roles)
    }
    return ImportPlan(
        bus=make_plan(present.stored, _as_it_is_here(present.stored.ever, bus)),
        belongings=tuple(_belongings(present, wished.belongings)),
        passwords=tuple(_passwords(present.passwords, wanted)),
        rights=tuple(
            RightsChange(login, rights) for login, rights in wished.rights.items() if not present.rights.get(login)
        ),
        remarks=(
            *misfits,
            *wished.remarks,
            *_disabled(present.disabled_people & wished.belongings.people.keys()),
            *_kept(present.passwords, wanted),
        ),
    )


def _as_it_is_here(ever: BusSpec, bus: BusSpec) -> BusSpec:
    """Keep the settings that xbus.broker 0.2.0 did not know as they are here."""
    return replace(
        bus,
        event_types={
            name: replace(ever.event_types.get(name, entry), immediate_reply=entry.immediate_reply, nodes=entry.nodes)
            for name, entry in bus.event_types.items()
        },
        services={name: ever.services.get(name, entry) for name, entry in bus.services.items()},
        roles={login: ever.roles.get(login, entry) for login, entry in bus.roles.items()},
    )


def _belongings(present: Present, wished: Belongings) -> Iterator[BelongingChange]:
    there = present.belongings.kinds()
    for kind, entries in wished.kinds().items():
        for name, entry in entries.items():
            before = there[kind].get(name)
            if before is None:
                yield BelongingChange(Move.ADD, kind, name, entry)
            elif before != entry:
                differing = (field.name for field in fields(entry))
                changed = tuple(name for name in differing if getattr(before, name) != getattr(entry, name))
                yield BelongingChange(Move.CHANGE, kind, name, entry, changed)


def _passwords(present: Mapping[Owner, str | None], wanted: Mapping[Owner, str]) -> Iterator[PasswordChange]:
    for owner, password_hash in wanted.items():
        before = present.get(owner)
        if before != password_hash and not _is_our_own(before):
            yield PasswordChange(owner, before, password_hash)


def _kept(present: Mapping[Owner, str | None], wanted: Mapping[Owner, str]) -> Iterator[Remark]:
    kept = [f'{owner[0]} "{owner[1]}"' for owner in wanted if _is_our_own(present.get(owner))]
    if kept:
        yield Remark(f"these have logged in here already or got another password, and keep it: {', '.join(kept)}")


def _disabled(people: Set[str]) -> Iterator[Remark]:
    for login in sorted(people):
        next_step = f"xbus person enable {quote(login)} changes that"
        yield Remark(f'person "{login}" is disabled here, and stays so', next_step)


def _is_our_own(password_hash: str | None) -> bool:
    """Check whether a password was set or hashed anew here, and not brought by an earlier import."""
    return password_hash is not None and not is_legacy_hash(password_hash)
