"""Carries out an import from an xbus.broker 0.2.0."""

from datetime import datetime

from sqlalchemy import Connection, Table, insert, select, update

from xbus.broker.journal import configuration
from xbus.broker.journal.audit import act_here
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.legacy_import.entries import EmissionProfile, LegacyDescriptor, LegacyPerson, Owner
from xbus.broker.journal.legacy_import.plan import ImportPlan, PasswordChange, RightsChange
from xbus.broker.journal.people import find_person
from xbus.errors import ConfigurationError
from xbus.model import emission_profile, emitter, input_descriptor, person, role
from xbus.rights import write_rights


def carry_out(connection: Connection, plan: ImportPlan, at: datetime) -> None:
    """Make the changes of ``plan`` in the caller's transaction, and keep them in the history.

    Args:
        connection: with a transaction open; it must be rolled back when this raises.
        plan: an empty one changes nothing, not even the version.
        at: the moment of the import.

    Raises:
        ConfigurationError: the configuration or a password was changed since the plan was made.
    """
    configuration.apply(connection, plan.bus, at)
    rest = plan.beside
    if rest:
        expected = None if plan.bus.changes else plan.bus.version
        acts = [act_here(at, "imported", str(change)) for change in rest]
        with new_version(connection, "imported", "; ".join(map(str, rest)), at, acts=acts, expected=expected):
            for change in plan.belongings:
                _write(connection, change.entry, at)
            for password in plan.passwords:
                _set_password(connection, password)
            for given in plan.rights:
                _give_rights(connection, given)


def _write(connection: Connection, entry: LegacyPerson | LegacyDescriptor | EmissionProfile, at: datetime) -> None:
    match entry:
        case LegacyPerson(login, display_name, email):
            if find_person(connection, login) is None:
                connection.execute(insert(person).values(login=login, rights="", created_at=at))
            _put(connection, person, login, display_name=display_name, email=email)
        case LegacyDescriptor(name, content, mimetype):
            _put(connection, input_descriptor, name, content=content, mimetype=mimetype)
        case EmissionProfile(name, owner, descriptor, encoding):
            _put(
                connection,
                emission_profile,
                name,
                person_id=_id(connection, person, owner),
                descriptor_id=_id(connection, input_descriptor, descriptor),
                encoding=encoding,
            )


def _put(connection: Connection, table: Table, name: str, **values: object) -> None:
    key = _key(table)
    found = connection.execute(update(table).where(table.c[key] == name).values(**values))
    if found.rowcount == 0:
        connection.execute(insert(table).values(**{key: name}, **values))


def _id(connection: Connection, table: Table, name: str | None) -> int | None:
    if name is None:
        return None
    row_id: int = connection.execute(select(table.c.id).where(table.c[_key(table)] == name)).scalar_one()
    return row_id


def _key(table: Table) -> str:
    return "login" if "login" in table.c else "name"


def _set_password(connection: Connection, change: PasswordChange) -> None:
    kind, login = change.owner
    table = _logins_of(change.owner)
    # A login of a moment ago has made a hash of our own already, which must not be undone.
    untouched = table.c.password_hash.is_not_distinct_from(change.before)
    found = connection.execute(
        update(table).where(table.c.login == login, untouched).values(password_hash=change.after)
    )
    if found.rowcount == 0:
        raise _stale(f'the password of {kind} "{login}" has been set')


def _give_rights(connection: Connection, change: RightsChange) -> None:
    has_none = (person.c.login == change.login) & (person.c.rights == "")
    given = connection.execute(update(person).where(has_none).values(rights=write_rights(change.rights)))
    if given.rowcount == 0:
        raise _stale(f'person "{change.login}" has been given rights')


def _stale(what: str) -> ConfigurationError:
    return ConfigurationError(f"{what} by someone else in the meantime", "import again", code="stale_plan")


def _logins_of(owner: Owner) -> Table:
    return {"emitter": emitter, "role": role, "person": person}[owner[0]]
