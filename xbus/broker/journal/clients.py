"""API tokens that a program makes for others: each client is an emitter of the profile that its own profile names.

A program whose profile has ``clients`` is called a registrar here. It sees and revokes the tokens of that profile's
emitters alone.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import count

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.api_tokens import add_api_token, revoke_api_token
from xbus.broker.journal.configuration import EmitterSpec, Section, apply
from xbus.broker.journal.configuration.names import is_name
from xbus.broker.journal.configuration.plan import Change, Move, Plan
from xbus.broker.journal.log.catalog import read_version
from xbus.errors import ConfigurationError
from xbus.ids import token_hash

_emitter, _profile, _token = model.emitter.c, model.emitter_profile.c, model.api_token.c


@dataclass(frozen=True, slots=True)
class ClientToken:
    """An API token of a client.

    Args:
        client: the login of its emitter.
        token_hash: SHA-256 of the token, which is kept nowhere.
    """

    client: str
    token_hash: bytes


def add_client_token(
    connection: sa.Connection, registrar_id: int, client: str, chosen: str | None, at: datetime
) -> str:
    """Make an API token for a client, and its emitter at its first one.

    Args:
        registrar_id: the emitter that asks for it.
        client: the name of the client, which is the login of its emitter.
        chosen: the token, where the client has one already; None for a new one.
        at: the moment of the change.

    Returns:
        The token.

    Raises:
        ConfigurationError: the emitter may not make any (``clients_not_allowed``), the name is invalid (``bad_name``)
            or that of another emitter (``name_taken``), or those of :func:`add_api_token`.
    """
    profile_id = _clients_of(connection, registrar_id)
    if not is_name(client):
        step = "take 1 to 255 printable characters, without blanks around them"
        raise ConfigurationError(f"{client[:40]!a} is no name", step, code="bad_name")
    found = connection.execute(sa.select(model.emitter).where(_emitter.login == client)).one_or_none()
    if found is not None and (found.profile_id != profile_id or found.kind != "program"):
        # Whoever makes tokens must not reach, or bring back, an emitter with other rights.
        cause = f'"{client}" is the login of an emitter with other rights'
        raise ConfigurationError(cause, "choose another name", code="name_taken")
    if found is None or found.removed_at is not None:
        move = Move.ADD if found is None else Move.RESTORE
        profile = connection.execute(sa.select(_profile.name).where(_profile.id == profile_id)).scalar_one()
        change = Change(move, Section.EMITTER, client, EmitterSpec(client, profile))
        apply(connection, Plan(read_version(connection), (change,), ()), at)
        # A password that it had once must not let anybody in again.
        connection.execute(sa.update(model.emitter).where(_emitter.login == client).values(password_hash=None))
    names = set(connection.execute(sa.select(_token.name)).scalars())
    numbered = (client if number == 1 else f"{client[:240]} {number}" for number in count(1))
    name = next(name for name in numbered if name not in names)
    return add_api_token(connection, name, emitter=client, chosen=chosen, at=at)


def list_client_tokens(connection: sa.Connection, registrar_id: int) -> list[ClientToken]:
    """List the API tokens of a registrar's clients by name.

    Raises:
        ConfigurationError: the emitter has none (``clients_not_allowed``).
    """
    rows = sa.select(_emitter.login, _token.token_hash).select_from(model.api_token).join(model.emitter)
    of_clients = rows.where(_emitter.profile_id == _clients_of(connection, registrar_id))
    return [ClientToken(*row) for row in connection.execute(of_clients.order_by(_emitter.login, _token.id))]


def revoke_client_token(connection: sa.Connection, registrar_id: int, wanted: str, at: datetime) -> bool:
    """Revoke an API token of a registrar's client.

    Args:
        wanted: the token, or its hash in hexadecimal.

    Returns:
        Whether there was one.

    Raises:
        ConfigurationError: the emitter has no clients (``clients_not_allowed``).
    """
    hashes = {token_hash(wanted).hex(), wanted}
    clients = {each.token_hash for each in list_client_tokens(connection, registrar_id)}
    found = next((each for each in clients if each.hex() in hashes), None)
    if found is None:
        return False
    name = connection.execute(sa.select(_token.name).where(_token.token_hash == found)).scalar_one()
    revoke_api_token(connection, name, at)
    return True


def _clients_of(connection: sa.Connection, registrar_id: int) -> int:
    """Give the id of the profile whose emitters are a registrar's clients."""
    of_clients = model.emitter_profile.alias()
    found: int | None = connection.execute(
        sa.select(of_clients.c.id)
        .select_from(model.emitter)
        .join(model.emitter_profile, _profile.id == _emitter.profile_id)
        .join(of_clients, of_clients.c.id == _profile.clients_id)
        .where(_emitter.id == registrar_id, _emitter.removed_at.is_(None), of_clients.c.removed_at.is_(None))
    ).scalar_one_or_none()
    if found is None:
        raise ConfigurationError(
            "the emitter may make no API tokens",
            "use the token of an emitter whose profile has clients; see xbus export",
            code="clients_not_allowed",
        )
    return found
