"""The home page."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from xbus.monitor.requests import ThePage

router = APIRouter()


@router.get("/")
def home(page: ThePage) -> HTMLResponse:
    """Show what happens on the bus."""
    return page("home.html")
