"""Says which workers an envelope needs on its way to a consumer, and which of them are missing."""

import asyncio
from collections.abc import Callable, Sequence

from xbus.broker.back.bulk import OutputRequirements
from xbus.broker.back.log import LogReader
from xbus.broker.back.recipients import BreakerProbes, Registry, ServedRole
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import PauseEntry


class WorkerAvailability:
    """The workers of envelopes.

    Args:
        log: reads graphs.
        registry: knows who is there.
        requirements: know which workers have done their work, or are at it.
        probing: knows who is in trouble, and gets less.
        catalog: says which services are paused.
        grace: for how many seconds an envelope waits in line for an absent worker, before it is set aside.
    """

    def __init__(
        self,
        log: LogReader,
        registry: Registry,
        requirements: OutputRequirements,
        probing: BreakerProbes,
        catalog: Callable[[], Catalog],
        grace: float,
    ) -> None:
        self._log = log
        self._registry = registry
        self._requirements = requirements
        self._probing = probing
        self._catalog = catalog
        self._grace = grace

    def pause_of(self, service: str) -> PauseEntry | None:
        """Give the pause of a worker service; None while it is not paused."""
        return self._catalog().pause_of_service(service)

    async def missing_after_grace(
        self, envelope: LogEnvelope, recipients: Sequence[ServedRole]
    ) -> Sequence[str | None]:
        """Find for each recipient a worker service without which it can't get the envelope; wait for the grace.

        Returns:
            The first service that is paused, in trouble, or absent for longer than the grace; None where none is.
        """
        needed = [await self.workers_for(envelope, recipient) for recipient in recipients]
        if not any(needed):
            return [None] * len(needed)
        # All at once: the grace is for the envelope, not for each of its recipients.
        return await asyncio.gather(*map(self._missing, needed))

    async def _missing(self, services: Sequence[str]) -> str | None:
        for service in services:
            while (absent_for := self._registry.absent_for(service)) < self._grace:
                if self._registry.is_served(service) or self.pause_of(service) is not None:
                    break
                await self._registry.arrival(self._grace - absent_for)
            if not self._probing.admits(service):
                return service
        return None

    async def workers_for(self, envelope: LogEnvelope, recipient: ServedRole) -> list[str]:
        """List the worker services between an envelope's emitter and a recipient.

        Services that have done their work, or are at it, are left out.
        """
        service = recipient.role.service
        known = [event for event in envelope.events if self._requirements.is_known(event)]
        if known:
            # What is brought otherwise than it was sent takes the whole graph, whatever was made of it.
            overlaid = await self._log.overlays(envelope, recipient.role.id)
            known = [event for event in known if event.event_id not in overlaid]
        plain = {event.graph_id for event in envelope.events if event not in known}
        services = {worker for each in plain for worker in (await self._log.graph(each)).workers_towards(service)}
        for event in known:
            part = (await self._log.graph(event.graph_id)).leading_to({service})
            services |= self._requirements.services(event, part)
        return sorted(services)
