"""The REST interface: what pages show, as JSON with the names of ``docs/json.md``; ``actions`` add what may be done."""

from fastapi import APIRouter

from xbus.monitor.api import (
    batches,
    bots,
    clearing,
    description,
    envelopes,
    failures,
    items,
    parked,
    readers,
    state,
)

RESOURCES: tuple[APIRouter, ...] = (
    envelopes.router,
    items.router,
    parked.router,
    failures.router,
    clearing.router,
    readers.router,
    batches.router,
    bots.router,
    state.router,
    description.router,
)
