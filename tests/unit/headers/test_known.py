"""The headers that the bus knows by name, each with its rule."""

from datetime import UTC, datetime
from typing import Any

import pytest

from xbus.errors import Refused
from xbus.headers import pack_headers, unpack_headers

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source_time", datetime(2030, 1, 31, 12, 0, tzinfo=UTC)),
        ("correlation_id", "17"),
        ("correlation_id", "é" * 255),
        ("traceparent", f"00-{TRACE}-{SPAN}-01"),
        ("traceparent", f"cc-{TRACE}-{SPAN}-01-what-comes-later"),
        ("tracestate", "vendor=value"),
        ("tracestate", "rojo=00f067aa0ba902b7, tenant@system=t61rcWkgMzE , ,1a=b c!~"),
        ("tracestate", ""),
        ("tracestate", ",".join(f"k{number}=v" for number in range(32))),
        ("content_type", "application/json"),
        ("content_type", 'text/csv; charset=utf-8;header="present, \\"yes\\""'),
        ("schema", "orders/3"),
        ("schema", "https://example.com/schemas/orders.json#/3"),
    ],
)
def test_good_values_stay_as_they_are(name: str, value: Any) -> None:
    assert unpack_headers(pack_headers({name: value})) == {name: value}


@pytest.mark.parametrize("text", ["2030-01-31T13:00:00+01:00", "2030-01-31T12:00:00Z", "20300131T120000Z"])
def test_a_source_time_may_be_text(text: str) -> None:
    assert unpack_headers(pack_headers({"source_time": text})) == {
        "source_time": datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
    }


@pytest.mark.parametrize(
    ("name", "value", "cause", "step"),
    [
        ("source_time", "yesterday", "is no moment in ISO 8601", "give one such as 2030-01-31T12:00:00"),
        ("source_time", "2030-01-31T12:00:00", "is a moment without a time zone", "give one with it"),
        ("source_time", 1_900_000_000, "is no moment", "give a datetime"),
        ("correlation_id", "", "is no text of 1 to 255 characters", "give one"),
        ("correlation_id", "x" * 256, "is no text of 1 to 255 characters", "give one"),
        ("correlation_id", 17, "is no text of 1 to 255 characters", "give one"),
        ("traceparent", "", "is no traceparent of W3C Trace Context", "give 00-"),
        ("traceparent", 1, "is no traceparent", "give 00-"),
        ("traceparent", f"00-{TRACE.upper()}-{SPAN}-01", "is no traceparent", "in lower case"),
        ("traceparent", f"00-{TRACE[1:]}-{SPAN}-01", "is no traceparent", "give 00-"),
        ("traceparent", f"00-{TRACE}-{SPAN}", "is no traceparent", "give 00-"),
        ("traceparent", f"00-{TRACE}-{SPAN}-01\n", "is no traceparent", "give 00-"),
        ("traceparent", f"ff-{TRACE}-{SPAN}-01", "has version ff", "give version 00"),
        ("traceparent", f"00-{TRACE}-{SPAN}-01-more", "has more than version 00 allows", "give 00-"),
        ("traceparent", f"cc-{TRACE}-{SPAN}-01.more", "is no traceparent", "give 00-"),
        ("traceparent", f"00-{'0' * 32}-{SPAN}-01", "has a trace-id of zeros only", "give that of the trace"),
        ("traceparent", f"00-{TRACE}-{'0' * 16}-01", "has a parent-id of zeros only", "give that of the calling span"),
        ("tracestate", 7, "is no text", "give a tracestate"),
        ("tracestate", "vendor", "has the member 'vendor'", "give members such as vendor=value"),
        ("tracestate", "Vendor=1", "has the member 'Vendor=1'", "give members such as"),
        ("tracestate", "a=1=2", "has the member 'a=1=2'", "give members"),
        ("tracestate", "a=ü", "has the member 'a=ü'", "give members"),
        ("tracestate", "a=", "has the member 'a='", "give members"),
        ("tracestate", "a=" + "x" * 257, "has the member 'a=xxx", "give members"),
        ("tracestate", "a=1,b=2,a=3", "has the key 'a' twice", "give each key once"),
        ("tracestate", ",".join(f"k{n}=v" for n in range(33)), "has 33 members", "give 32 at the most"),
        ("content_type", "json", "is no media type", "give one such as application/json"),
        ("content_type", "text/plain; charset", "is no media type", "give one such as"),
        ("content_type", "text/plain\n", "is no media type", "give one such as"),
        ("content_type", True, "is no media type", "give one such as"),
        ("schema", "", "is no text of 1 to 1024 characters", "give one"),
        ("schema", "x" * 1025, "is no text of 1 to 1024 characters", "give one"),
        ("schema", 3, "is no text of 1 to 1024 characters", "give one"),
    ],
)
def test_bad_values_are_refused_with_their_cause(name: str, value: Any, cause: str, step: str) -> None:
    with pytest.raises(Refused) as refusal:
        pack_headers({"mine": 1, name: value})
    assert refusal.value.code == "bad_header"
    assert refusal.value.cause.startswith(f"header {name} {cause}")
    assert refusal.value.next_step.startswith(step) or step in refusal.value.next_step
