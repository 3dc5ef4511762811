"""The configuration as a whole: administrators read it, plan a change to it, and apply the change, all or nothing.

``entries`` has the entries by name, ``checks`` the rules, ``plan`` the difference from what is stored, ``writing`` the
transaction; callers open it, and roll it back after an error. A change never deletes a row that the journal refers to.
It notes what shall become of owed envelopes, and never does it: the back carries that out. Commands import it; the
broker reads the result as ``log.catalog``, and has edits by SQL checked by ``checked``.

Face: the names below, ``chaining``, ``checked``, ``decisions``, ``detaching``, ``entries``, ``history``, ``logins``,
``names``, ``pausing``, ``plan`` and ``reading``.
"""

from xbus.broker.journal.configuration.checks import MOST_ITEMS, MOST_MILLISECONDS
from xbus.broker.journal.configuration.entries import (
    BotSpec,
    BusSpec,
    ConfigurationProblem,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    Place,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.configuration.logins import (
    allow_key,
    check_login,
    end_login,
    list_keys,
    logins_without_password,
    revoke_key,
    set_password,
)
from xbus.broker.journal.configuration.plan import Change, Move, Plan, make_plan
from xbus.broker.journal.configuration.reading import Stored, read_stored
from xbus.broker.journal.configuration.writing import add_demo_rows, apply

__all__ = [
    "MOST_ITEMS",
    "MOST_MILLISECONDS",
    "BotSpec",
    "BusSpec",
    "Change",
    "ConfigurationProblem",
    "EmitterSpec",
    "EventTypeSpec",
    "Move",
    "NodeSpec",
    "Place",
    "Plan",
    "ProfileSpec",
    "ReaderSpec",
    "RoleSpec",
    "Section",
    "ServiceSpec",
    "Stored",
    "SubscriptionSpec",
    "add_demo_rows",
    "allow_key",
    "apply",
    "check_login",
    "end_login",
    "list_keys",
    "logins_without_password",
    "make_plan",
    "read_stored",
    "revoke_key",
    "set_password",
]
