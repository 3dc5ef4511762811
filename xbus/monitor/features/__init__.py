"""The features of the monitor, a module each: its pages, what programs get of it in JSON, and its actions.

Pages and answers read by the journal's operations. An action is each class with a ``path``; nothing else lists it. One
that a command carries out, too, is described there, and ``ACTIONS`` of a feature names it.
"""

from fastapi import APIRouter

from xbus.monitor import rest
from xbus.monitor.actions import Action, action_of
from xbus.monitor.features import (
    bots,
    clearing,
    entries,
    envelopes,
    failures,
    home,
    parked,
    people,
    readers,
    recipients,
    upload,
)

PAGES: tuple[APIRouter, ...] = (
    *(home.router, envelopes.router, envelopes.item_pages, parked.router, failures.router, clearing.router),
    *(recipients.router, readers.router, parked.batch_pages, bots.router, entries.for_all, entries.router),
    *(entries.entry_pages, people.router, people.audit, upload.router, people.log_in),
)

RESOURCES: tuple[APIRouter, ...] = (
    *(envelopes.api, envelopes.item_api, parked.api, failures.api, clearing.api, readers.api, parked.batch_api),
    *(bots.api, recipients.api, rest.router),
)

ACTIONS: tuple[type[Action], ...] = (
    *(
        kind
        for feature in (parked, clearing, people, entries)
        for kind in vars(feature).values()
        if isinstance(kind, type) and issubclass(kind, Action) and "path" in vars(kind)
    ),
    *(action_of(each) for feature in (failures, recipients, readers, bots, people) for each in feature.ACTIONS),
)
