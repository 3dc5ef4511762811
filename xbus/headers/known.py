"""The headers that the bus knows by name, and the rule of each; all others are the user's; pure."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

Rule: TypeAlias = Callable[[object], object]
"""Gives the value of a header as the bus keeps it, or raises ``UnfitValue``."""

LONGEST_CORRELATION_ID = 255
LONGEST_SCHEMA = 1024
MOST_STATES = 32
"""The most members of a ``tracestate``, by W3C Trace Context."""

_LEAP_SECOND = re.compile(r"(.+[T ]\d\d:\d\d:)60(\D.*)?")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # noqa: S105 - of RFC 9110
_MEDIA_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}([ \t]*;[ \t]*{_TOKEN}=({_TOKEN}|"([^"\\]|\\.)*"))*')


class UnfitValue(ValueError):
    """A value that a header can't have.

    Args:
        cause: what is wrong, to be read behind the header's name.
        next_step: what would be right.
    """

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.next_step = next_step


def source_time(value: object) -> datetime:
    """Read when the source made the data: a moment, or its text in ISO 8601."""
    if isinstance(value, str):
        try:
            value = _moment(value)
        except (ValueError, OverflowError):
            raise UnfitValue("is no moment in ISO 8601", "give one such as 2030-01-31T12:00:00+01:00") from None
    if not isinstance(value, datetime):
        raise UnfitValue("is no moment", "give a datetime with its time zone")
    return value


def _moment(text: str) -> datetime:
    """Read a moment of RFC 3339, which allows letters in lower case, and the second 60."""
    text = text.upper()
    if leap := _LEAP_SECOND.fullmatch(text):
        return datetime.fromisoformat(f"{leap[1]}59{leap[2]}") + timedelta(seconds=1)
    return datetime.fromisoformat(text)


def traceparent(value: object) -> str:
    """Check the position of a call in a trace, by W3C Trace Context."""
    form = "00-<32 hex digits>-<16 hex digits>-<2 hex digits> in lower case"
    if not isinstance(value, str) or (parts := _TRACEPARENT.fullmatch(value)) is None:
        raise UnfitValue("is no traceparent of W3C Trace Context", f"give {form}")
    version, trace_id, parent_id, _, more = parts.groups()
    if version == "ff":
        raise UnfitValue("has version ff, which W3C Trace Context forbids", "give version 00")
    if version == "00" and more is not None:
        raise UnfitValue("has more than version 00 allows", f"give {form}")
    if not trace_id.strip("0"):
        raise UnfitValue("has a trace-id of zeros only", "give that of the trace")
    if not parent_id.strip("0"):
        raise UnfitValue("has a parent-id of zeros only", "give that of the calling span")
    return value


def tracestate(value: object) -> str:
    """Check what the vendors of tracing systems add to a trace, by W3C Trace Context."""
    if not isinstance(value, str):
        raise UnfitValue("is no text", "give a tracestate such as vendor=value,other=value")
    members = [member.strip(" \t") for member in value.split(",")]
    members = [member for member in members if member]
    for member in members:
        if not _STATE.fullmatch(member):
            raise UnfitValue(f"has the member {member!r:.40}", "give members such as vendor=value with commas between")
    if len(members) > MOST_STATES:
        raise UnfitValue(f"has {len(members)} members", f"give {MOST_STATES} at the most")
    keys = [member.partition("=")[0] for member in members]
    for key in keys:
        if keys.count(key) > 1:
            raise UnfitValue(f"has the key {key!r:.40} twice", "give each key once")
    return value


def content_type(value: object) -> str:
    """Check the media type of the items."""
    if not isinstance(value, str) or not _MEDIA_TYPE.fullmatch(value):
        raise UnfitValue("is no media type", "give one such as application/json or text/plain; charset=utf-8")
    return value


def _text_up_to(longest: int) -> Rule:
    def rule(value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise UnfitValue(f"is no text of 1 to {longest} characters", "give one")
        return value

    return rule


KNOWN: Mapping[str, Rule] = {
    "source_time": source_time,
    "correlation_id": _text_up_to(LONGEST_CORRELATION_ID),
    "traceparent": traceparent,
    "tracestate": tracestate,
    "content_type": content_type,
    "schema": _text_up_to(LONGEST_SCHEMA),
}
