"""The features of the monitor, a module each: its pages, what programs get of it in JSON, and its actions.

Pages and answers read by the journal's operations. An action is each class with a ``path``; nothing else lists it.
"""

from fastapi import APIRouter

from xbus.monitor import rest
from xbus.monitor.actions import Action
from xbus.monitor.features import (
    batches,
    bots,
    clearing,
    editing,
    entries,
    envelopes,
    failures,
    home,
    log_in,
    parked,
    people,
    readers,
    recipients,
    upload,
)

PAGES: tuple[APIRouter, ...] = (
    *(home.router, envelopes.router, envelopes.item_pages, parked.router, failures.router, clearing.router),
    *(recipients.router, readers.router, batches.router, bots.router, editing.for_all, editing.router, entries.router),
    *(people.router, people.audit, upload.router, log_in.router),
)

RESOURCES: tuple[APIRouter, ...] = (
    *(envelopes.api, envelopes.item_api, parked.api, failures.api, clearing.api, readers.api, batches.api, bots.api),
    *(recipients.api, rest.router),
)

ACTIONS: tuple[type[Action], ...] = tuple(
    kind
    for feature in (parked, failures, clearing, recipients, readers, batches, bots, people, editing)
    for kind in vars(feature).values()
    if isinstance(kind, type) and issubclass(kind, Action) and "path" in vars(kind)
)
