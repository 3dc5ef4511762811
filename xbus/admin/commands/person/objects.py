"""The objects of people that commands write as JSON, by names of ``docs/json.md``; pure."""

from collections.abc import Collection

from xbus.admin.objects import JsonObject
from xbus.broker.journal.people import Person, PersonToken, Right, write_rights


def of_person(person: Person, sessions: int) -> JsonObject:
    return {
        "person": person.name,
        "rights": _of_rights(person.rights),
        "sessions": sessions,
        "created_at": person.created_at,
        "last_seen_at": person.last_seen_at,
        "disabled_at": person.disabled_at,
    }


def of_person_token(person: Person, token: PersonToken) -> JsonObject:
    return {
        "person": person.name,
        "token": token.name,
        "rights": _of_rights(token.rights),
        "created_at": token.created_at,
        "last_used_at": token.used_at,
        "expires_at": token.expires_at,
    }


def _of_rights(rights: Collection[Right]) -> list[str]:
    return write_rights(rights).split()
