"""Calls the author's methods, in the one thread in which they run, job after job."""

import asyncio
import inspect
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from xbus.errors import Failed, ProtocolError, Refused
from xbus.loop_turn import LoopTurn, ThreadBell
from xbus.recipient.base import Consumer, Recipient, Worker, is_asynchronous
from xbus.recipient.envelope import Batch, Envelope, Event, Item
from xbus.recipient.outputs import made_of_batch, made_of_event
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import pack
from xbus.rpc.deferred import Promise
from xbus.texts import fault

T = TypeVar("T")

CODE_FAILED = "recipient_failed"
"""The code of every failure of the author's code."""


class AuthorThread:
    """Runs jobs off the event loop, so that pings are answered while the author's code works.

    To be made in a running loop.

    Args:
        name: of the thread.
        turn: each outcome is told in a turn of it, so that the answer goes at the end of that.
    """

    def __init__(self, name: str, turn: LoopTurn | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = turn or LoopTurn()
        self._bell = ThreadBell(self._turn)
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Promise[Any]] | None] = queue.SimpleQueue()
        self.steps = 0
        """Grows with each job that begins or ends."""
        # A daemon: author's code that never returns must not keep the program from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def give(self, job: Callable[[], T]) -> Promise[T]:
        """Put a job behind those given before; the promise gets its result or its exception."""
        outcome: Promise[T] = Promise()
        self._jobs.put((job, outcome))
        return outcome

    def finished(self, answer: object) -> object:
        """Give, inside a job, the answer of the author's method; let the loop run an asynchronous one."""
        # Most methods answer nothing, and the question costs more than they do.
        if answer is None or not inspect.isawaitable(answer):
            return answer
        return asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop).result()

    def close(self) -> None:
        """Take no further jobs. While the loop lives, those given before are carried out, and their outcomes told."""
        self._jobs.put(None)
        self._bell.close()

    def _work(self) -> None:
        try:
            while (given := self._jobs.get()) is not None:
                job, outcome = given
                self.steps += 1
                try:
                    done = partial(outcome.set_result, job())
                except Exception as error:
                    done = partial(outcome.set_exception, error)
                except BaseException as error:  # as of sys.exit() in the author's code: an answer is owed all the same
                    failure = Failed(f"the recipient's code raised {fault(error)}", code=CODE_FAILED)
                    done = partial(outcome.set_exception, failure)
                self.steps += 1
                self._turn.told.append(done)
                self._bell.ring()
                if self._loop.is_closed():
                    return
        finally:
            self._bell.end()


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer


logger = logging.getLogger(__name__)

STOPPED = "envelope_stopped"
"""The code of a step of an envelope that was stopped."""


def stopped() -> Failed:
    """Make the answer to a step of an envelope that was stopped."""
    return Failed("the envelope was stopped", code=STOPPED)


_INHERITED = {
    *(Recipient.on_event_start, Recipient.commit, Consumer.on_batch, Consumer.on_event_end),
    *(Worker.on_batch, Worker.on_event_end),
}
"""The methods of the base classes. The first one hands items to ``on_item``; the others do nothing."""


class Calls:
    """Calls an author's methods from their thread, plain or asynchronous ones alike.

    Args:
        recipient: the author's.
        author_thread: where the jobs that use this run.

    Attributes:
        is_worker: whether the author's is a worker.
        take_item: the author's ``on_item``, where nothing but it takes an event of one item; None otherwise.
        has_commit: whether the author has a ``commit``.
        steps: grows with the work on envelopes of which nothing is kept any more; for the author's thread alone.
    """

    take_item: Callable[[Event, Item], object] | None = None
    steps = 0

    def __init__(self, recipient: Recipient, author_thread: AuthorThread) -> None:
        self._recipient: Any = recipient
        self._finished = author_thread.finished
        self.is_worker = isinstance(recipient, Worker)
        self._is_started = False
        # Asked once. A method that the author leaves as it is need not be called.
        self._has_event_start = self._is_own("on_event_start")
        self._has_event_end = self._is_own("on_event_end")
        self.has_commit = self._is_own("commit")
        has_others = self._has_event_start or self._has_event_end or self._is_own("on_batch")
        if isinstance(recipient, Consumer) and not has_others and not is_asynchronous(recipient.on_item):
            self.take_item = recipient.on_item

    def _is_own(self, name: str) -> bool:
        return getattr(getattr(self._recipient, name), "__func__", None) not in _INHERITED

    def start(self) -> None:
        """Run ``on_start``, before everything else; once more if it raised."""
        self._finished(self._recipient.on_start())
        self._is_started = True

    def stop(self) -> None:
        """Run ``on_stop``, after everything else, unless ``on_start`` never went well."""
        if self._is_started:
            self._finished(self._recipient.on_stop())

    def start_event(self, event: Event) -> None:
        """Begin an event."""
        if self._has_event_start:
            self._finished(self._recipient.on_event_start(event))

    def batch(self, event: Event, batch: Batch) -> list[Item] | None:
        """Take items; give what a worker made of them, None for a consumer."""
        taken = event.taken + len(batch.data)
        if event.file is not None:
            with _refusing():
                event.file.write(batch.data)
            event.taken = taken
            return list(batch) if self.is_worker else None
        answer = self._recipient.on_batch(event, batch)
        if answer is not None:
            answer = self._finished(answer)
        event.taken = taken
        return made_of_batch(batch, answer) if self.is_worker else None

    def end_event(self, event: Event) -> tuple[object, list[Item]]:
        """End an event; give the immediate reply of a consumer, and the items that a worker adds.

        Raises:
            Refusal: the reply can't be sent.
        """
        if event.file is not None:
            with _refusing():
                event.file.complete()
        answer = self._finished(self._recipient.on_event_end(event)) if self._has_event_end else None
        if self.is_worker:
            return None, made_of_event(answer)
        if event.type_name not in self._recipient.immediate_reply:
            return None, []
        _check_reply(event, answer)
        return answer, []

    def whole_event(self, event: Event, batches: Iterable[Batch]) -> tuple[object, list[Item]]:
        """Bring an event with all of its items; give what ``end_event`` gives, with all that a worker made.

        Raises:
            Refusal: as ``end_event``.
        """
        self.start_event(event)
        made: list[Item] = []
        for batch in batches:
            if (out := self.batch(event, batch)) is not None:
                made += out
        reply, last = self.end_event(event)
        return reply, made + last if last else made

    def commit(self, envelope: Envelope) -> None:
        """Make it last.

        Raises:
            Failed: it was stopped while the author's code was at it: nobody would learn of a commit, and it comes again
                (``envelope_stopped``).
        """
        if envelope.is_stopped:
            raise stopped()
        for file in envelope.files:
            file.publish()
        if self.has_commit:
            answer = self._recipient.commit(envelope)
            if answer is not None:
                self._finished(answer)

    def rollback(self, envelope: Envelope) -> None:
        """Forget it."""
        for file in envelope.files:
            file.discard()
        self._finished(self._recipient.rollback(envelope))


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a file for good that is none, or not what its sender sent.

    Raises:
        Refusal: it is so.
    """
    try:
        yield
    except Refused as error:
        raise Refusal(error.cause) from error


def _check_reply(event: Event, reply: object) -> None:
    """Let a reply pass that can be sent. Asked again the author's code would answer the same, so it refuses for good.

    Raises:
        Refusal: msgpack has no way to write it.
    """
    try:
        pack(reply)
    except ProtocolError as error:
        extra = {"action": "bad_reply", "event_id": event.id, "event_type": event.type_name, "cause": error.cause}
        logger.error("on_event_end returned a reply that msgpack can't pack", extra=extra)
        raise Refusal(f"the consumer's reply, of type {type(reply).__name__}, can't be packed by msgpack") from error
