"""Exports spans by OTLP over HTTP; the only place that knows OpenTelemetry.

Its thread sends ended spans in batches. If that takes too long it drops spans, and the log says so: a trace is worth
nobody's wait.
"""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from xbus.extras import installed_version
from xbus.tracing import Span, TraceContext

SEND_SECONDS = 3
"""Seconds that a batch may take, also the last one, for which a stopping broker waits."""

KINDS = {"receive": SpanKind.SERVER, "call": SpanKind.CLIENT}
"""The kinds of spans by the first word of their names; all others are internal."""


class OtlpExport:
    """Takes spans that have ended, and sends them.

    Args:
        endpoint: the address that takes traces, such as ``http://127.0.0.1:4318/v1/traces``.
        process: the part of the broker that this process is.
    """

    def __init__(self, endpoint: str, process: str) -> None:
        version = installed_version()
        self._resource = Resource.create({"service.name": "xbus", "service.version": version, "xbus.process": process})
        self._scope = InstrumentationScope("xbus", version)
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=SEND_SECONDS))

    def __call__(self, span: Span) -> None:
        """Have a span sent."""
        assert span.ended_at is not None, "it has ended"
        self._processor.on_end(
            ReadableSpan(
                span.name,
                context=_context(span.context, is_remote=False),
                parent=_context(span.parent, is_remote=True),
                resource=self._resource,
                attributes=span.attributes,
                kind=KINDS.get(span.name.partition(" ")[0], SpanKind.INTERNAL),
                status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
                start_time=int(span.began_at.timestamp() * 1e9),
                end_time=int(span.ended_at.timestamp() * 1e9),
                instrumentation_scope=self._scope,
            )
        )

    def close(self) -> None:
        """Send what has ended, and end the thread."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _context(context: TraceContext, *, is_remote: bool) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote, flags)
