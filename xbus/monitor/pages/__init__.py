"""The pages, one module for each part of the menu."""

from fastapi import APIRouter

from xbus.monitor.pages import audit, configuration, envelopes, home, log_in, recipients, upload

PAGES: tuple[APIRouter, ...] = (
    *(home.router, envelopes.router, recipients.router, audit.router, upload.router, log_in.router),
    *configuration.ROUTERS,
)
