"""Hands an event over to a bulk worker, which reads the items by itself: those of the event, or an output's."""

import logging

from xbus.broker.back.bulk.attempt import OutputAttempt, WantedOutput
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.log import LogReader, headers_map
from xbus.broker.back.recipients import RecipientProxy
from xbus.broker.journal.bulk.outputs import read_totals
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.graph import Graph
from xbus.rpc.messages import OutputHandover

log = logging.getLogger(__name__)


class BulkJobSender:
    """Asks workers for outputs.

    Args:
        attempts: those that count.
        log: where outputs are looked at.
    """

    def __init__(self, attempts: OutputAttempts, log: LogReader) -> None:
        self._attempts = attempts
        self._log = log

    async def hand_over(
        self, worker: RecipientProxy, envelope: LogEnvelope, event: LogEvent, attempt: OutputAttempt, graph: Graph
    ) -> None:
        """Have a worker begin with an attempt.

        Raises:
            RecipientFailed: it does not take it, or the output that it was to read misses items.
        """
        made = self._input(attempt.output, graph)
        if made is not None and not await self._is_whole(made):
            raise await self._attempts.lost(made.id, f"the output of attempt {made.id} misses items")
        extra = {"action": "output_begun", "envelope_id": envelope.envelope_id, "attempt_id": attempt.id}
        log.info("output asked for", extra={**extra, "role": worker.role.login, "node": attempt.output.node})
        words = self._words(event, attempt, made)
        if worker.abilities.headers:
            words = {**words, **headers_map(event.tags, envelope.head.headers)}
        await worker.take_output(envelope.envelope_id, event, words)

    def _words(self, event: LogEvent, attempt: OutputAttempt, made: OutputAttempt | None) -> OutputHandover:
        """Make the hand-over in the form of the wire."""
        return {
            "attempt_id": str(attempt.id),
            "node": attempt.output.node,
            "event_id": str(event.segments_id),
            "input": None if made is None else str(made.id),
            "items": event.items if made is None else made.items,
            "lease": self._attempts.lease,
        }

    def _input(self, output: WantedOutput, graph: Graph) -> OutputAttempt | None:
        """Give the attempt whose output comes in; None if the event's items do."""
        made = [
            self._attempts.get(WantedOutput(output.event_id, output.graph_id, name))
            for name in graph.parents(output.node)
        ]
        return made[0] if made else None

    async def _is_whole(self, made: OutputAttempt) -> bool:
        """Check whether all of a ready output still exists: a rest must not pass for the whole."""
        return (await self._log.read(read_totals, made.id)).items == made.items
