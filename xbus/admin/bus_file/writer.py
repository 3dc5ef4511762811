"""Writes a bus as a file: the same bus always gives the same text, and reading it gives the same bus."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xbus.broker.journal.configuration import Bus


def write(bus: Bus) -> str:
    """The bus in TOML; entries in the order of ``bus``, keys and defaults all written out."""
    return "\n".join(_table(name, values) for name, values in _tables(bus))


def _tables(bus: Bus) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for event_type in bus.event_types.values():
        yield "event_type", {"name": event_type.name, "immediate_reply": event_type.immediate_reply}
        for node in event_type.nodes.values():
            to = {"to": node.to} if node.to else {}
            yield "event_type.node", {"name": node.name, "service": node.service, **to}
    for service in bus.services.values():
        yield "service", {"name": service.name, "kind": service.kind}
    for role in bus.roles.values():
        yield "role", {"login": role.login, "service": role.service}
    for profile in bus.profiles.values():
        yield "emitter_profile", {"name": profile.name, "event_types": sorted(profile.event_types)}
    for emitter in bus.emitters.values():
        yield "emitter", {"login": emitter.login, "profile": emitter.profile}


def _table(name: str, values: Mapping[str, Any]) -> str:
    # JSON's texts, booleans and lists of texts are TOML's too; DEL is the one character that only JSON leaves as it is.
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
    return f"[[{name}]]\n{''.join(lines)}".replace("\x7f", "\\u007f")
