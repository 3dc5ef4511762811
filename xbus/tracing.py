"""Traces: the work for an envelope whose header ``traceparent`` asks for it becomes spans, and logs name its trace.

It knows no library: whoever exports spans hands a ``Tracer`` over. Without one nothing is measured, and logs still name
the trace. An envelope without the header costs a look at one value. Everyone in the broker may import it.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from xbus.clock import Clock
from xbus.headers import unpack_headers

TRACEPARENT = "traceparent"
IN_BYTES = TRACEPARENT.encode()
"""Packed headers without these bytes have no trace."""

Attributes: TypeAlias = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The place of a span, as in W3C Trace Context: ids in hexadecimal digits.

    Args:
        is_sampled: whether whoever began the trace keeps it.
    """

    trace_id: str
    span_id: str
    is_sampled: bool


@dataclass(slots=True)
class Span:
    """A piece of work for one envelope."""

    name: str
    context: TraceContext
    parent: TraceContext
    began_at: datetime
    attributes: Attributes
    tracer: "Tracer" = field(repr=False)
    ended_at: datetime | None = None
    error: str = ""
    """The reason why the work failed; empty where it did not."""

    def end(self, error: str = "") -> None:
        """End it now, once; a later end changes nothing."""
        if self.ended_at is None:
            self.ended_at = self.tracer.clock.now()
            self.error = error
            self.tracer.export(self)

    def ended_by(self, call: "asyncio.Future[Any]") -> None:
        """End it with a call."""
        error = None if call.cancelled() else call.exception()
        self.end("cancelled" if call.cancelled() else "" if error is None else str(error))


@dataclass(frozen=True, slots=True)
class Tracer:
    """Measures spans.

    Args:
        clock: says when they begin and end.
        export: gets each span when it has ended; it returns at once.
    """

    clock: Clock
    export: Callable[[Span], None]


_tracer: Tracer | None = None
_traced: ContextVar[Mapping[UUID, TraceContext]] = ContextVar("traced_envelopes")
"""The envelopes that the present task works for, and whose headers have a trace."""

_NOTHING: Mapping[UUID, TraceContext] = {}


@contextmanager
def exporting(tracer: Tracer) -> Iterator[None]:
    """Measure all spans of this process within the block."""
    global _tracer
    before, _tracer = _tracer, tracer
    try:
        yield
    finally:
        _tracer = before


def parent_of(headers: bytes | None) -> TraceContext | None:
    """Give the span to which the headers of an envelope say that it belongs.

    Args:
        headers: packed, and checked when they came in.
    """
    if headers is None or IN_BYTES not in headers:
        return None
    told = unpack_headers(headers).get(TRACEPARENT)
    if not isinstance(told, str):
        return None
    _, trace_id, span_id, flags = told.split("-")[:4]
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


def trace_of(envelope_id: UUID) -> TraceContext | None:
    """Give the span of the present work for an envelope; None without a trace."""
    return _traced.get(_NOTHING).get(envelope_id)


def begin(name: str, parent: TraceContext, attributes: Attributes, at: datetime | None = None) -> Span | None:
    """Begin a span; None where nobody exports any, or whoever began the trace does not keep it.

    Args:
        at: its beginning; None for now.
    """
    if _tracer is None or not parent.is_sampled:
        return None
    context = TraceContext(parent.trace_id, secrets.token_hex(8), is_sampled=True)
    return Span(name, context, parent, at or _tracer.clock.now(), attributes, _tracer)


def begin_calls(verb: str, ids: Iterable[bytes], role: str) -> list[Span]:
    """Begin a span of a call for each traced envelope, below the span of its present work.

    Args:
        ids: theirs, of 16 bytes.
    """
    traced = _traced.get(_NOTHING)
    if not traced:
        return []
    parents = {each: traced[each] for each in map(_uuid, ids) if each in traced}
    return list(_begin_each(f"call {verb}", parents, {"xbus.role": role}).values())


def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


@contextmanager
def following(name: str, envelopes: Iterable[tuple[UUID, bytes | None]], attributes: Attributes) -> Iterator["Spans"]:
    """Trace the work in the block for those envelopes whose headers have a trace.

    Args:
        envelopes: ids, with packed headers.
    """
    parents = {each: parent for each, headers in envelopes if (parent := parent_of(headers)) is not None}
    with _within(name, parents, attributes) as spans:
        yield spans


@contextmanager
def step(name: str, envelope_id: UUID, attributes: Attributes) -> Iterator[None]:
    """Trace a part of the present work for an envelope."""
    parent = trace_of(envelope_id)
    with _within(name, {} if parent is None else {envelope_id: parent}, attributes):
        yield


Spans: TypeAlias = dict[UUID, Span]
"""The spans of a block, by envelope."""


@contextmanager
def _within(name: str, parents: Mapping[UUID, TraceContext], attributes: Attributes) -> Iterator[Spans]:
    if not parents:
        yield {}
        return
    spans = _begin_each(name, parents, attributes)
    contexts = {each: spans[each].context if each in spans else parent for each, parent in parents.items()}
    token = _traced.set({**_traced.get(_NOTHING), **contexts})
    error = ""
    try:
        yield spans
    except BaseException as failure:
        error = str(failure) or type(failure).__name__
        raise
    finally:
        _traced.reset(token)
        for span in spans.values():
            span.end(error)


def _begin_each(name: str, parents: Mapping[UUID, TraceContext], attributes: Attributes) -> Spans:
    begun: Spans = {}
    for envelope_id, parent in parents.items():
        span = begin(name, parent, {**attributes, "xbus.envelope_id": str(envelope_id)})
        if span is not None:
            begun[envelope_id] = span
    return begun
