"""Plans an import from an xbus.broker 0.2.0 before anything is touched; pure."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from shlex import quote

from xbus.broker.journal.configuration.entries import BusSpec
from xbus.broker.journal.configuration.plan import Move, Plan, make_plan
from xbus.broker.journal.legacy_import.entries import (
    Belongings,
    EmissionProfile,
    LegacyDescriptor,
    LegacyPerson,
    Owner,
    Remark,
)
from xbus.broker.journal.legacy_import.fitting import fit
from xbus.broker.journal.legacy_import.present import Present
from xbus.broker.journal.legacy_import.translation import Translation
from xbus.passwords import is_legacy_hash
from xbus.rights import Right, write_rights


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
