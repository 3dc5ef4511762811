"""Serves the pages of a process, without whose library one starts that serves none."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from xbus.broker.metrics.families import Family
from xbus.broker.metrics.of_process import ProcessReadiness
from xbus.supervision.health import Health

if TYPE_CHECKING:
    from xbus.broker.metrics.service import FigureSource


@asynccontextmanager
async def pages(
    listen: str,
    health: Health,
    readiness: ProcessReadiness,
    families: Callable[[], Iterable[Family]] = tuple,
    sources: "Sequence[FigureSource]" = (),
) -> AsyncIterator[dict[str, str]]:
    """Serve the pages within the block if the configuration wants them, and give their address by its name.

    Args:
        listen: where; empty for nowhere.
        families: makes those of the process beyond its health.
        sources: its parts.

    Raises:
        ConfigurationError: ``address_in_use`` or ``bad_address``.
    """
    if not listen:
        yield {}
        return
    from xbus.broker.metrics.service import MetricsService  # here, as its library takes time and memory

    service = MetricsService(health, readiness, families, sources)
    address = await service.start(listen)
    try:
        yield {"metrics": address}
    finally:
        service.close()
