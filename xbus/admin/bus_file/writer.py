"""Writes a bus as a file: the same bus always gives the same text, and reading it gives the same bus."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping

from xbus.admin.bus_file.fields import FAILING, INSTANCES, ISOLATION, KEYS, LIMITS, ORDER, SECRET, WATCH, Fields
from xbus.broker.journal.configuration import BusSpec
from xbus.broker.journal.configuration.entries import Entry
from xbus.broker.journal.writes import SendingLimits


def write(bus: BusSpec) -> str:
    """Write the bus in TOML, entries in the order of ``bus``, without defaults and rare fields."""
    return write_tables(_tables(bus))


def write_tables(tables: Iterable[tuple[str, Mapping[str, object]]]) -> str:
    """Write tables by name, each with a line for its name and one for each key, and an empty line before the next."""
    return "\n".join(_table(name, values) for name, values in tables)


def _tables(bus: BusSpec) -> Iterator[tuple[str, Mapping[str, object]]]:
    for event_type in bus.event_types.values():
        values = {"name": event_type.name, "immediate_reply": event_type.immediate_reply}
        yield "event_type", values | _said(event_type, {**ISOLATION, **SECRET})
        for node in event_type.nodes.values():
            to = {"to": node.to} if node.to else {}
            yield "event_type.node", {"name": node.name, "service": node.service, **to}
    for service in bus.services.values():
        yield "service", {"name": service.name, "kind": service.kind} | _said(service, FAILING)
    for role in bus.roles.values():
        yield (
            "role",
            {"login": role.login, "service": role.service} | _said(role, {**ORDER, **INSTANCES, **WATCH, **KEYS}),
        )
    for profile in bus.profiles.values():
        allowed = {"name": profile.name, "event_types": sorted(profile.event_types)}
        yield "emitter_profile", allowed | _said(profile.limits, LIMITS)
    for emitter in bus.emitters.values():
        said = _said(emitter, KEYS) | _said(emitter.limits, LIMITS)
        yield "emitter", {"login": emitter.login, "profile": emitter.profile} | said


def _said(entry: Entry | SendingLimits, fields: Fields) -> dict[str, object]:
    """Select those of some fields that differ from their defaults."""
    values = {key: getattr(entry, key) for key in fields}
    return {key: value for key, value in values.items() if value != fields[key].default}


def _table(name: str, values: Mapping[str, object]) -> str:
    # JSON's texts, booleans, numbers and lists of texts are TOML's too; DEL is the one character that only JSON leaves
    # as it is.
    # An infinite number of minutes is written as a word.
    plain = {key: "never" if value == math.inf else value for key, value in values.items()}
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in plain.items())
    return f"[[{name}]]\n{''.join(lines)}".replace("\x7f", "\\u007f")
