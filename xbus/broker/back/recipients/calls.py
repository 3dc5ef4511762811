"""Calls to recipients about envelopes: how long each may take, and what they bring just now."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from xbus import tracing
from xbus.broker.back.log import NOTHING_SAID, FirstWords
from xbus.broker.back.recipients.heartbeats import Heartbeats
from xbus.broker.back.recipients.readiness import BusyTime
from xbus.config import BackSettings
from xbus.errors import CallError
from xbus.rpc.codec import Value
from xbus.rpc.exchange import AnswerTaker, Callee


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """The seconds that a recipient has for each kind of answer."""

    start_event: float
    send_item: float
    end_event: float
    end_envelope: float
    stop_envelope: float

    @classmethod
    def of(cls, settings: BackSettings) -> "CallTimeouts":
        """Take them from the configuration."""
        return cls(
            settings.start_event_timeout,
            settings.send_item_timeout,
            settings.end_event_timeout,
            settings.end_envelope_timeout,
            settings.stop_envelope_timeout,
        )

    @property
    def longest(self) -> float:
        """For how long a recipient may be busy with one call."""
        return max(self.start_event, self.send_item, self.end_event, self.end_envelope, self.stop_envelope)


@dataclass(slots=True)
class Bringing:
    """An envelope that is being brought to a recipient.

    Args:
        since: when that began, on the loop's clock.
        verb: the last call about it.
    """

    since: float
    verb: str


class EnvelopeCalls:
    """The calls to one recipient about envelopes: each is timed, traced, and noted beside what it brings.

    Args:
        client: calls the recipient.
        login: of the recipient's role, for traces.
        heartbeats: tells of its progress; None for a recipient that sends no heartbeats.
        now: the loop's clock.
    """

    def __init__(self, client: Callee, login: str, heartbeats: Heartbeats | None, now: Callable[[], float]) -> None:
        self._client = client
        self._login = login
        self._heartbeats = heartbeats
        self._now = now
        self._open: dict[bytes, Bringing] = {}
        self._first_words: dict[UUID, FirstWords] = {}
        self._busy = BusyTime(now)

    @property
    def bringing(self) -> Mapping[bytes, Bringing]:
        """The envelopes that are being brought just now, by their ids of 16 bytes."""
        return self._open

    @property
    def busy_seconds(self) -> float:
        """For how long the recipient has had such calls to answer."""
        return self._busy.seconds

    def accompany(self, envelope_id: UUID, words: FirstWords) -> None:
        """Let the first call about an envelope bring its note and its headers."""
        self._first_words[envelope_id] = words

    def begin(self, envelope_id: UUID) -> FirstWords:
        """Note that an envelope is being brought; give what its first call tells of it."""
        self._open.setdefault(envelope_id.bytes, Bringing(self._now(), ""))
        return self._first_words.pop(envelope_id, NOTHING_SAID)

    def begin_all(self, ids: Iterable[bytes]) -> None:
        """Note that envelopes are being brought; the call tells by itself what is to be told of them.

        Args:
            ids: of 16 bytes.
        """
        self._open = {**dict.fromkeys(ids, Bringing(self._now(), "")), **self._open}

    def ask_about(
        self, ids: Sequence[bytes], verb: str, name: str, seconds: float, argument: object, taker: AnswerTaker
    ) -> None:
        """Make a call about untraced envelopes.

        Args:
            ids: theirs, of 16 bytes.
            verb: the call, as operators see it.
            name: the same as the recipient knows it.
            seconds: its time-out.
            argument: of the call.
            taker: gets the answer.
        """
        renewed = self._begin_call(ids, verb)

        def answered(answer: Value, error: CallError | None) -> None:
            self._busy.end(None)
            taker(answer, error)

        self._client.ask(name, (argument,), answered, seconds, renewed)

    def ended_all(self, ids: Iterable[bytes]) -> None:
        """Note that the recipient has envelopes open no more."""
        for each in ids:
            self._open.pop(each, None)

    def ended(self, envelope_id: UUID) -> None:
        """Note that the recipient has an envelope open no more."""
        self._open.pop(envelope_id.bytes, None)

    def stopped(self, envelope_id: UUID) -> None:
        """Note that the recipient forgets an envelope, also one that it has not got yet."""
        self._open.pop(envelope_id.bytes, None)
        self._first_words.pop(envelope_id, None)

    def call(self, verb: str, name: str, seconds: float, envelope_id: UUID, *args: object) -> "asyncio.Future[Value]":
        """Call about an envelope; the time-out of a recipient that sends heartbeats is one of time without progress.

        Args:
            verb: the call, as operators see it.
            name: the same as the recipient knows it.
        """
        return self.call_about([envelope_id.bytes], verb, name, seconds, str(envelope_id), *args)

    def call_about(
        self, ids: Sequence[bytes], verb: str, name: str, seconds: float, *args: object
    ) -> "asyncio.Future[Value]":
        """Call about several envelopes at once.

        Args:
            ids: theirs, of 16 bytes.
        """
        renewed = self._begin_call(ids, verb)
        spans = tracing.begin_calls(verb, ids, self._login)
        call = self._client.call(name, *args, timeout=seconds, renewed=renewed)
        call.add_done_callback(self._busy.end)
        for span in spans:
            call.add_done_callback(span.ended_by)
        return call

    def _begin_call(self, ids: Sequence[bytes], verb: str) -> Callable[[], float | None] | None:
        for bringing in map(self._open.get, ids):
            if bringing is not None:
                bringing.verb = verb
        self._busy.begin()
        return None if self._heartbeats is None else partial(self._heartbeats.renewed, ids)
