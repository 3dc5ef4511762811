"""Leaves out of a bus from an xbus.broker 0.2.0 what can't be put on top of the present one; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from xbus.broker.journal.configuration.entries import BusSpec, ProfileSpec, Section
from xbus.broker.journal.configuration.plan import Name, make_plan
from xbus.broker.journal.configuration.reading import Stored
from xbus.broker.journal.legacy_import.entries import Remark

Entry = TypeVar("Entry")


def fit(stored: Stored, bus: BusSpec, refused: Mapping[str, tuple[str, ...]]) -> tuple[BusSpec, tuple[Remark, ...]]:
    """Select the part of ``bus`` that can be applied, and make remarks about the rest.

    Args:
        stored: the present configuration.
        bus: the wished one.
        refused: why some event types are not in it; its profiles may name them.
    """
    reasons = _reasons(stored, bus, refused)
    kept = BusSpec(
        event_types=_without(bus.event_types, Section.EVENT_TYPE, reasons),
        services=_without(bus.services, Section.SERVICE, reasons),
        roles=_without(bus.roles, Section.ROLE, reasons),
        emitters=bus.emitters,
    )
    known = {*kept.event_types, *stored.in_use.event_types}
    profiles = {name: replace(entry, event_types=entry.event_types & known) for name, entry in bus.profiles.items()}
    remarks = (*_left_out(stored, reasons), *_shortened(bus.profiles, profiles))
    return replace(kept, profiles=profiles), remarks


def _reasons(stored: Stored, bus: BusSpec, refused: Mapping[str, tuple[str, ...]]) -> dict[Name, list[str]]:
    """List why entries can't be taken: their own faults, or those of their service."""
    reasons: dict[Name, list[str]] = {(Section.EVENT_TYPE, name): [*why] for name, why in refused.items()}
    # A profile may name a refused event type; that is no problem of its own.
    unreadable = {(Section.EVENT_TYPE, name) for name in refused}
    for problem in make_plan(stored, bus, unreadable=unreadable).problems:
        reasons.setdefault((Section(problem.place[0]), problem.place[1]), []).append(problem.sentence)
    without = {name for section, name in reasons if section is Section.SERVICE}
    for role in bus.roles.values():
        if role.service in without:
            reasons.setdefault((Section.ROLE, role.login), []).append(f'its service "{role.service}" is left out')
    for event_type in bus.event_types.values():
        for service in sorted({node.service for node in event_type.nodes.values()} & without):
            reasons.setdefault((Section.EVENT_TYPE, event_type.name), []).append(f'its service "{service}" is left out')
    return reasons


def _without(entries: Mapping[str, Entry], section: Section, reasons: Mapping[Name, list[str]]) -> dict[str, Entry]:
    return {name: entry for name, entry in entries.items() if (section, name) not in reasons}


def _left_out(stored: Stored, reasons: Mapping[Name, list[str]]) -> Iterator[Remark]:
    for (section, name), sentences in reasons.items():
        why = "; ".join(sentences)
        if section is not Section.EVENT_TYPE:
            yield Remark(f'{section} "{name}" is left out ({why})', is_loss=True)
        elif name in stored.in_use.event_types:
            # Somebody has described it anew, as the remark asks.
            yield Remark(f'event_type "{name}" stays as it is here; the old one can\'t be taken ({why})')
        else:
            yield Remark(
                f'event_type "{name}" is left out ({why})', "describe it anew by xbus apply, then import again", True
            )


def _shortened(before: Mapping[str, ProfileSpec], after: Mapping[str, ProfileSpec]) -> Iterator[Remark]:
    for name, profile in before.items():
        for event_type in sorted(profile.event_types - after[name].event_types):
            yield Remark(f'emitter_profile "{name}" goes without event_type "{event_type}"')
