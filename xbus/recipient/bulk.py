"""Bulk workers: recipients that make the output for a large event as a whole, and their jobs.

A bulk worker is a worker like any other for small events. It is not sent the items of a large one, but reads them from
the journal by itself, writes its output beside the log, and reports it. Only the recipient API and programs of bulk
workers import this; it never calls the author's other methods.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from xbus.backoff import Backoff
from xbus.errors import CallError, Failed, JournalUnavailable, Refused
from xbus.headers import HeaderValue, unpack_headers
from xbus.recipient.base import Worker
from xbus.recipient.envelope import packed_headers
from xbus.recipient.refusal import Refusal
from xbus.recipient.ways import CallBack
from xbus.rpc.codec import Value
from xbus.rpc.messages import FailedOutput, MadeOutput, OutputAccepted, OutputWanted, OutputWork
from xbus.rpc.shapes import AnswerReader
from xbus.texts import fault, plain

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handover:
    """A request to a bulk worker: the output of a node for an event.

    Args:
        envelope_id: the envelope of the event.
        event_id: the event.
        type_name: its event type.
        attempt_id: the id under which to write the output; nobody reads it before it is ready.
        node: the name of the node in the event's graph.
        source: the id under which the items are: an event's, maybe that of another event which this one repeats, or
            that of the attempt that made the input.
        is_output: whether ``source`` is an attempt.
        items: the number of incoming items.
        headers: those of the event and its envelope, by name, as of ``Event``.
        partition_key: that of the event; None without one.
    """

    envelope_id: UUID
    event_id: UUID
    type_name: str
    attempt_id: UUID
    node: str
    source: UUID
    is_output: bool
    items: int
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    partition_key: str | None = None

    @classmethod
    def of_wire(cls, envelope_id: str, event_id: str, type_name: str, handover: Value) -> "Handover":
        """Read the hand-over in the arguments of ``xbus.take_output``.

        Raises:
            Refused: it has another form (``bad_handover``).
        """
        try:
            match handover:
                case {
                    "attempt_id": str(attempt_id),
                    "node": str(node),
                    "event_id": str(origin),
                    "input": (None | str()) as made,
                    "items": int(items),
                } if isinstance(handover, dict):
                    ids = UUID(envelope_id), UUID(event_id)
                    source = UUID(origin if made is None else made)
                    own, key, of_envelope = packed_headers(handover)
                    about = ({**unpack_headers(of_envelope), **unpack_headers(own)}, key)
                    return cls(*ids, type_name, UUID(attempt_id), node, source, made is not None, items, *about)
        except ValueError:
            pass  # an invalid id
        raise Refused("the hand-over is not a map as in docs/wire.md", code="bad_handover")


@dataclass(frozen=True, slots=True)
class Made:
    """The output that a bulk worker has written, complete and durable.

    Args:
        items: the number of items in its segments.
        data_bytes: the bytes of their data.
        hash: SHA-256 over the hashes of its segments, by part and number; see
            ``xbus.broker.journal.bulk.part_writer.output_hash``.
    """

    items: int
    data_bytes: int
    hash: bytes


class BulkWorker(Worker, ABC):
    """A worker that takes large events by their ids and ranges instead of their items.

    Its other methods are those of a worker, and serve all else: smaller events, those whose emitter waits for a reply,
    and those that are redelivered with corrected items or without some. Both ways must give the same result.

    Attributes:
        min_bulk_items: an event of so many items is handed over; a smaller one takes the ordinary path.
    """

    min_bulk_items: int = 100_000

    @abstractmethod
    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        """Make the output for an event and write it under the id of the attempt.

        It runs on the event loop, which it must not block, and goes on while the broker is away or starts anew. It is
        cancelled when nobody wants the output any more; then the bus discards what it has written.

        Args:
            progress: call it with the progress, from 0 to 1, from any thread and as often as you like.

        Raises:
            Refusal: the event can never be taken; it may name the indices of the bad items.
            Failed: the output can't be made now; another attempt may succeed. JournalUnavailable means the same. Any
                other exception counts as a fault of the program, which would happen again, and refuses the event.
        """


RENEWALS = 3
"""Renewals within one lease. More survive more failed calls, and cost calls."""

MOST_INDICES = 1_000
MESSAGE_CHARACTERS = 1_000
"""The most characters of a refusal's reason in a report. The broker keeps no more."""

MOST_TOLD = 100_000
"""So many characters and indices all reasons may have together: the broker reads messages up to a megabyte."""

Told: TypeAlias = MadeOutput | FailedOutput

_WANTED = AnswerReader("xbus.renew_output", OutputWanted)
_ACCEPTED = AnswerReader("xbus.output_ready", OutputAccepted)


@dataclass(eq=False)
class Job:
    """An output that is being made.

    Args:
        lease: for how many seconds the broker waits for a sign of life.
    """

    handover: Handover
    lease: float
    fraction: float = 0.0
    steps: int = 0
    is_stopping: bool = False
    task: "asyncio.Task[None] | None" = None

    def tell(self, fraction: float) -> None:
        """Take note of how far it is; from any thread."""
        self.fraction = min(1.0, max(0.0, float(fraction)))
        self.steps += 1

    def cancel(self) -> None:
        """Break it off."""
        if self.task is not None:
            self.task.cancel()


@dataclass(frozen=True)
class JobWaits:
    """Seconds that a bulk worker waits.

    Args:
        first_delay: until it tells the broker again what that has not answered.
        longest_delay: the same, after many tries.
        break_off: for outputs that were broken off, when the recipient stops.
        farewell: for the answer when it tells that the recipient stops.
    """

    first_delay: float = 0.2
    longest_delay: float = 5.0
    break_off: float = 10.0
    farewell: float = 2.0


JOB_WAITS = JobWaits()


class BulkJobs:
    """All outputs that a bulk worker makes just now.

    Registering anew does not touch them, nor does a restart of the broker: they end by themselves, or when the broker
    says that an output is not wanted.

    Args:
        worker: the author's.
        call: calls the back.
        waits: how long it waits for the broker, and for the author's code.
    """

    def __init__(self, worker: BulkWorker, call: CallBack, waits: JobWaits = JOB_WAITS) -> None:
        self._worker = worker
        self._call = call
        self._waits = waits
        self._jobs: dict[UUID, Job] = {}

    @property
    def attempts(self) -> list[str]:
        """The ids of the attempts that go on."""
        return [str(attempt_id) for attempt_id in self._jobs]

    def work(self) -> list[OutputWork]:
        """Describe the jobs for a heartbeat."""
        return [
            {
                "attempt_id": str(attempt_id),
                "event_id": str(job.handover.event_id),
                "progress": job.steps,
                "done": int(100 * job.fraction),
                "of": 100,
            }
            for attempt_id, job in self._jobs.items()
        ]

    def take(self, handover: Handover, lease: float) -> None:
        """Begin to make an output; one that is being made already goes on."""
        if handover.attempt_id in self._jobs:
            return
        job = self._jobs[handover.attempt_id] = Job(handover, lease)
        job.task = asyncio.get_running_loop().create_task(self._carry_out(job), name=f"output {handover.attempt_id}")

    def stop(self, envelope_id: str) -> None:
        """Cancel the jobs for an envelope, and report it to the broker."""
        for job in self._jobs.values():
            if str(job.handover.envelope_id) == envelope_id:
                job.is_stopping = True
                job.cancel()

    def forget(self, attempt_id: str) -> bool:
        """Break off what nobody wants any more; false where it is not known."""
        found = [job for job in self._jobs.values() if str(job.handover.attempt_id) == attempt_id]
        for job in found:
            job.cancel()
        return bool(found)

    async def close(self) -> None:
        """Break off everything, and tell the broker that others may make it."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        tasks = [job.task for job in jobs if job.task is not None]
        if tasks and (await asyncio.wait(tasks, timeout=self._waits.break_off))[1]:
            logger.error("make_output does not end when it is cancelled", extra={"action": "recipient_hangs"})
        self._jobs.clear()  # what hangs is waited for once
        gone = _failure("transient", "recipient_stopping", "the recipient is about to stop")
        farewells = [
            asyncio.ensure_future(self._call("xbus.output_failed", str(job.handover.attempt_id), gone)) for job in jobs
        ]
        if farewells:
            _, late = await asyncio.wait(farewells, timeout=self._waits.farewell)
            for farewell in late:
                farewell.cancel()
            # What was not heard is noticed by the lease.
            await asyncio.gather(*farewells, return_exceptions=True)

    async def _carry_out(self, job: Job) -> None:
        keeping = asyncio.get_running_loop().create_task(self._keep(job), name="lease of an output")
        try:
            verb, told = await self._outcome(job)
            await self._tell(job, verb, told)
        except asyncio.CancelledError:
            _log("output_cancelled", "an output is not made", job)
            if job.is_stopping:
                stopped = _failure("transient", "envelope_stopped", "the envelope was stopped")
                await self._tell(job, "xbus.output_failed", stopped)
        except Exception as error:
            # The report itself is invalid, as with an index that is no number. Without any report the broker would wait
            # for the end of the lease.
            logger.exception("what came of an output can't be told", extra=_extra("recipient_failed", job))
            await self._tell(job, "xbus.output_failed", _fault(error))
        finally:
            keeping.cancel()
            self._jobs.pop(job.handover.attempt_id, None)

    async def _outcome(self, job: Job) -> tuple[str, Told]:
        """Give the verb that reports the result, and the report."""
        try:
            told = _told(await self._worker.make_output(job.handover, job.tell))
        except Refusal as refusal:
            _log("output_refused", "the recipient refused an event", job, refusal)
            return "xbus.output_failed", _failure("permanent", refusal.code, refusal.cause, refusal.errors)
        except (Failed, JournalUnavailable) as error:
            _log("output_failed", "an output can't be made now", job, error)
            return "xbus.output_failed", _failure("transient", error.code, str(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return "xbus.output_failed", _failure("transient", "cancelled", "something else broke it off")
        except Exception as error:
            logger.exception("the recipient's code failed", extra=_extra("recipient_failed", job))
            return "xbus.output_failed", _fault(error)
        job.tell(1.0)
        return "xbus.output_ready", told

    async def _keep(self, job: Job) -> None:
        """Renew the lease until it is broken off, as soon as the broker says that nobody wants it."""
        seconds = job.lease / RENEWALS
        while True:
            await asyncio.sleep(seconds)
            try:
                answer = _WANTED.read(await self._call("xbus.renew_output", str(job.handover.attempt_id), job.fraction))
            except CallError as error:
                # The broker is away, or does not know our new token yet: it is for it to say when the lease is over.
                logger.info("lease not renewed: %s", error, extra=_extra("lease_not_renewed", job))
                seconds = min(1.0, job.lease / RENEWALS)
                continue
            seconds = job.lease / RENEWALS
            if not answer["wanted"]:
                _log("output_unwanted", "nobody wants an output any more", job)
                job.cancel()
                return

    async def _tell(self, job: Job, verb: str, told: Told) -> None:
        """Repeat the report until the broker has answered."""
        backoff = Backoff(self._waits.first_delay, self._waits.longest_delay)
        while True:
            try:
                answer = _ACCEPTED.read(await self._call(verb, str(job.handover.attempt_id), told))
            except CallError as error:
                if isinstance(error, Refused) and error.code != "session_unknown":
                    logger.error("the broker refuses what is told: %s", error, extra=_extra("output_untold", job))
                    return
                logger.info("the broker has not answered: %s", error, extra=_extra("output_untold", job))
                await asyncio.sleep(backoff.next())
                continue
            if not answer["accepted"]:
                _log("output_unwanted", "nobody waits for what is told of an output", job)
            return


def _told(made: object) -> MadeOutput:
    """Make the report to the broker about a finished output.

    Raises:
        TypeError: the author's code returned something else.
    """
    match made:
        case Made(items=int(items), data_bytes=int(data_bytes), hash=bytes(digest)):
            return {"items": items, "bytes": data_bytes, "hash": digest}
    raise TypeError(f"make_output returned {made!r:.200}, not a Made of two numbers and bytes")


def _fault(error: Exception) -> FailedOutput:
    return _failure("permanent", "recipient_failed", fault(error))


def _failure(kind: str, code: str, message: str, errors: Sequence[tuple[list[int], str]] = ()) -> FailedOutput:
    told: list[tuple[list[int], str]] = []
    room = MOST_TOLD
    for indices, said in errors:
        told.append((indices[:MOST_INDICES], plain(said, MESSAGE_CHARACTERS)))
        room -= len(told[-1][0]) + len(told[-1][1])
        if room < 0:
            break
    code, message = plain(code, MESSAGE_CHARACTERS), plain(message, MESSAGE_CHARACTERS)
    return {"class": kind, "code": code, "message": message, "errors": told}


def _extra(action: str, job: Job) -> dict[str, str]:
    ids = job.handover
    return {"action": action, "envelope_id": str(ids.envelope_id), "attempt_id": str(ids.attempt_id)}


def _log(action: str, message: str, job: Job, error: Exception | None = None) -> None:
    if error is None:
        logger.info(message, extra=_extra(action, job))
    else:
        logger.warning("%s: %s", message, error, extra=_extra(action, job))
