"""Writes a bus as a file: the same bus always gives the same text, and reading it gives the same bus."""

import json
from collections.abc import Iterable, Iterator, Mapping

from xbus.admin.bus_file.fields import (
    BATCHES,
    CALLBACK,
    FAILING,
    INSTANCES,
    ISOLATION,
    KEEPING,
    KEYS,
    LAGGING,
    LIMITS,
    MAKING,
    ORDER,
    READING,
    RETRY,
    RUNS,
    SECRET,
    TIME,
    WATCH,
    WORK,
    Fields,
)
from xbus.broker.journal.configuration import BusSpec, NodeSpec
from xbus.broker.journal.configuration.entries import Entry
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.writes import SendingLimits


def write(bus: BusSpec) -> str:
    """Write the bus in TOML, entries in the order of ``bus``, without defaults and rare fields."""
    return write_tables(_tables(bus))


def write_tables(tables: Iterable[tuple[str, Mapping[str, object]]]) -> str:
    """Write tables by name: a line for the name and one for each key, and an empty line between tables."""
    return "\n".join(_table(name, values) for name, values in tables)


def _tables(bus: BusSpec) -> Iterator[tuple[str, Mapping[str, object]]]:
    for event_type in bus.event_types.values():
        values = {"name": event_type.name, "immediate_reply": event_type.immediate_reply}
        yield "event_type", values | _said(event_type, {**ISOLATION, **SECRET, **KEEPING})
        for node in event_type.nodes.values():
            yield "event_type.node", {"name": node.name} | _of_node(node)
    for service in bus.services.values():
        yield "service", {"name": service.name, "kind": service.kind} | _said(service, FAILING)
    for reader in bus.readers.values():
        yield (
            "reader",
            {"name": reader.name, "event_types": sorted(reader.event_types)} | _said(reader, {**READING, **LAGGING}),
        )
    for role in bus.roles.values():
        said = _said(role, {**ORDER, **INSTANCES, **WATCH, **LAGGING, **KEYS})
        yield "role", {"login": role.login, "service": role.service} | said
    for profile in bus.profiles.values():
        allowed = {"name": profile.name, "event_types": sorted(profile.event_types)}
        yield "emitter_profile", allowed | _said(profile, MAKING) | _said(profile.limits, LIMITS)
    for emitter in bus.emitters.values():
        said = _said(emitter, KEYS) | _said(emitter.limits, LIMITS)
        yield "emitter", {"login": emitter.login, "profile": emitter.profile} | said
    for bot in bus.bots.values():
        reads = {"reads": sorted(bot.reads)} if bot.reads else {}
        emits = {"emits": sorted(bot.emits)} if bot.emits else {}
        runners = {"runners": bot.runners} if bot.runners is not None else {}
        of_runs = _said(bot, {**BATCHES, **RUNS})
        yield "bot", {"name": bot.name} | _said(bot, {**WORK, **TIME}) | reads | emits | runners | of_runs
    for each in bus.subscriptions.values():
        # The secret is written nowhere: a file without it leaves it as it is.
        said = {"event_types": sorted(each.event_types), "url": each.url}
        said |= _said(each, {**CALLBACK, **LAGGING})
        said |= _said(each.retry, RETRY)
        yield "subscription", {"name": each.name} | said


def _of_node(node: NodeSpec) -> dict[str, object]:
    said: dict[str, object] = {"service": node.service, "to": node.to, "emits": node.emits}
    if len(node.emits) == 1:
        said["emits"] = node.emits[0]
    return {key: value for key, value in said.items() if value}


def _said(entry: Entry | SendingLimits | RetrySettings, fields: Fields) -> dict[str, object]:
    """Select those of some fields that differ from their defaults."""
    values = {key: getattr(entry, key) for key in fields}
    return {key: fields[key].write(value) for key, value in values.items() if value != fields[key].default}


def _table(name: str, values: Mapping[str, object]) -> str:
    # JSON's texts, booleans, numbers and lists of texts are TOML's too; DEL is the one character that only JSON leaves
    # as it is.
    lines = (f"{key} = {_written(value)}\n" for key, value in values.items())
    return f"[[{name}]]\n{''.join(lines)}".replace("\x7f", "\\u007f")


def _written(value: object) -> str:
    """Write a value in one line."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key, ensure_ascii=False)} = {_written(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
