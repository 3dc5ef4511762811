"""The configuration in the browser: its entries, forms for each, and the plan before anything is applied.

The bus file stays the one description of the bus: every form makes a bus file, which is planned and applied as by
``xbus apply``.
"""

from fastapi import APIRouter

from xbus.monitor.pages.configuration import editing, entries

ROUTERS: tuple[APIRouter, ...] = (editing.for_all, editing.router, entries.router)
