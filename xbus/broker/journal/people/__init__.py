"""People who operate the bus, their rights, their sessions, and the tokens by which programs act for them.

Passwords come as hashes of ``xbus.passwords``. The caller checks them outside of any transaction, as that takes
milliseconds on purpose. Tokens are shown once, and kept as hashes. Each change notes an act in the audit, in the
transaction of the change. The monitor and commands import it, and the broker, which removes expired sessions.

A writer of rows of a person and of its sessions or tokens begins with the person: two writers then never wait for each
other.

Face: the names below.
"""

from xbus.broker.journal.people.changing import (
    add_person,
    disable_person,
    enable_person,
    set_password,
    set_rights,
)
from xbus.broker.journal.people.reading import find_person, known_person, list_persons, read_password_hash
from xbus.broker.journal.people.sessions import (
    USE_NOTED,
    PersonSession,
    count_sessions_of,
    end_session,
    end_sessions,
    find_session,
    open_session,
    remove_expired,
    renew_session,
    replace_hash,
)
from xbus.broker.journal.people.tokens import (
    PersonToken,
    add_token,
    find_token,
    list_tokens,
    mark_token_used,
    remove_token,
)
from xbus.rights import Person, Right, write_rights

__all__ = [
    "USE_NOTED",
    "Person",
    "PersonSession",
    "PersonToken",
    "Right",
    "add_person",
    "add_token",
    "count_sessions_of",
    "disable_person",
    "enable_person",
    "end_session",
    "end_sessions",
    "find_person",
    "find_session",
    "find_token",
    "known_person",
    "list_persons",
    "list_tokens",
    "mark_token_used",
    "open_session",
    "read_password_hash",
    "remove_expired",
    "remove_token",
    "renew_session",
    "replace_hash",
    "set_password",
    "set_rights",
    "write_rights",
]
