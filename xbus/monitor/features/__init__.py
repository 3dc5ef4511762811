"""The features of the monitor, a module each: its pages, what programs get of it in JSON, and its actions.

Pages and answers read by the journal's operations. An action that a command carries out, too, is described there; the
``ACTIONS`` of a feature name all that it offers.
"""

from fastapi import APIRouter

from xbus.admin.signatures import BusAction
from xbus.monitor import rest
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

ACTIONS: tuple[type[BusAction], ...] = tuple(
    action
    for feature in (parked, failures, clearing, recipients, readers, bots, people, entries)
    for action in feature.ACTIONS
)
