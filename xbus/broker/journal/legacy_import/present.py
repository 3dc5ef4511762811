"""Finds the entries beside the bus that exist already before an import."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from xbus.broker.journal.configuration.reading import Stored, read_stored
from xbus.broker.journal.legacy_import.entries import Belongings, EmissionProfile, LegacyDescriptor, LegacyPerson, Owner
from xbus.broker.journal.people import list_persons
from xbus.model import emission_profile, emitter, input_descriptor, person, role
from xbus.rights import Right


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
        passwords=_passwords(connection),
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


def _passwords(connection: Connection) -> dict[Owner, str | None]:
    passwords: dict[Owner, str | None] = {}
    for login, password_hash in connection.execute(select(emitter.c.login, emitter.c.password_hash)):
        passwords["emitter", login] = password_hash
    for login, password_hash in connection.execute(select(role.c.login, role.c.password_hash)):
        passwords["role", login] = password_hash
    for login, password_hash in connection.execute(select(person.c.login, person.c.password_hash)):
        passwords["person", login] = password_hash
    return passwords
