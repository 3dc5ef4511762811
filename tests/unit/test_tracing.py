"""Spans of envelopes that belong to a trace, and nothing for all others."""

import asyncio
from uuid import UUID, uuid4

import pytest

from tests.support.clock import StandingClock
from xbus import tracing
from xbus.headers import pack_headers
from xbus.tracing import Span, Tracer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = pack_headers({"traceparent": f"00-{TRACE}-{PARENT}-01"})
NOT_SAMPLED = pack_headers({"traceparent": f"00-{TRACE}-{PARENT}-00"})
UNTRACED = pack_headers({"note": "traceparent"})


@pytest.fixture
def ended() -> list[Span]:
    return []


def exporting(ended: list[Span]) -> tracing.Tracer:
    return Tracer(StandingClock(), ended.append)


def tree(ended: list[Span]) -> list[tuple[str, str]]:
    """Each span with its parent, by name, in the order in which they ended."""
    names = {span.context.span_id: span.name for span in ended} | {PARENT: "emitter"}
    return [(span.name, names[span.parent.span_id]) for span in ended]


@pytest.mark.parametrize(("headers", "is_traced"), [(None, False), (UNTRACED, False), (SAMPLED, True)])
def test_the_header_says_which_trace(headers: bytes | None, is_traced: bool) -> None:
    parent = tracing.parent_of(headers)
    assert (parent == tracing.TraceContext(TRACE, PARENT, is_sampled=True)) is is_traced
    assert (parent is not None) is is_traced


async def test_steps_and_calls_are_below_the_work_that_they_are_for(ended: list[Span]) -> None:
    first, second, other = uuid4(), uuid4(), uuid4()

    async def work() -> None:
        with tracing.step("node", first, {"xbus.role": "a"}):
            (call,) = tracing.begin_calls("ping", [first.bytes, other.bytes], "a")
            call.end()

    with tracing.exporting(exporting(ended)):
        with tracing.following("deliver", [(first, SAMPLED), (second, SAMPLED), (other, UNTRACED)], {}):
            # Tasks work for the same envelopes.
            await asyncio.create_task(work())
            for call in tracing.begin_calls("ping", [first.bytes, second.bytes], "a"):
                call.end()
        assert tracing.begin_calls("ping", [first.bytes], "a") == []
    assert tree(ended) == [
        ("call ping", "node"),
        ("node", "deliver"),
        ("call ping", "deliver"),
        ("call ping", "deliver"),
        ("deliver", "emitter"),
        ("deliver", "emitter"),
    ]
    assert {span.context.trace_id for span in ended} == {TRACE}
    assert len({span.context.span_id for span in ended}) == len(ended)
    assert ended[0].attributes == {"xbus.envelope_id": str(first), "xbus.role": "a"}


async def test_a_failure_ends_a_span_with_its_reason(ended: list[Span]) -> None:
    envelope_id = uuid4()
    with tracing.exporting(exporting(ended)):
        with pytest.raises(ValueError, match="no"), tracing.following("deliver", [(envelope_id, SAMPLED)], {}):
            failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            for span in tracing.begin_calls("ping", [envelope_id.bytes], "a"):
                failing.add_done_callback(span.ended_by)
            failing.set_exception(RuntimeError("refused"))
            await asyncio.wait([failing])
            failing.exception()
            raise ValueError("no")
        with tracing.following("deliver", [(envelope_id, SAMPLED)], {}) as spans:
            spans[envelope_id].end("parked")
    assert [(span.name, span.error) for span in ended] == [
        ("call ping", "refused"),
        ("deliver", "no"),
        ("deliver", "parked"),
    ]


def test_nothing_is_measured_that_nobody_keeps(ended: list[Span]) -> None:
    def seen(envelope_id: UUID, headers: bytes | None) -> str | None:
        with tracing.following("deliver", [(envelope_id, headers)], {}), tracing.step("node", envelope_id, {}):
            trace = tracing.trace_of(envelope_id)
            return None if trace is None else trace.trace_id

    with tracing.exporting(exporting(ended)):
        assert seen(uuid4(), NOT_SAMPLED) == TRACE
    # Nobody exports, and the log has the trace all the same.
    assert seen(uuid4(), SAMPLED) == TRACE
    assert seen(uuid4(), UNTRACED) is None
    assert ended == []
