"""The pages, one module for each part of the menu."""

from fastapi import APIRouter

from xbus.monitor.pages import (
    audit,
    batches,
    bots,
    clearing,
    configuration,
    envelopes,
    failures,
    home,
    items,
    log_in,
    parked,
    people,
    readers,
    recipients,
    upload,
)

PAGES: tuple[APIRouter, ...] = (
    home.router,
    envelopes.router,
    items.router,
    parked.router,
    failures.router,
    clearing.router,
    recipients.router,
    readers.router,
    batches.router,
    bots.router,
    *configuration.ROUTERS,
    people.router,
    audit.router,
    upload.router,
    log_in.router,
)
