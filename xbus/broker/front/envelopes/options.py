"""The options of an envelope or an event, as its emitter gives them: the maps and arrays of ``wire.md``."""

from typing import cast

from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags, check_packed, check_partition_key
from xbus.rpc.codec import Value
from xbus.rpc.messages import EnvelopeOptionsMap

LONGEST = {"ordering_key": 255, "key": 1024}
"""How many characters each option that is a text may have."""


def head_of(options: EnvelopeOptionsMap | None) -> EnvelopeHead:
    """Read the options of an envelope that a caller wrote.

    Raises:
        Refused: wrong_arguments, for an option that there is not, or that can't have this value; bad_header,
            headers_too_large.
    """
    if not options:
        return PLAIN_HEAD
    for name, value in options.items():
        if name != "headers":
            _check(name, value)
    return EnvelopeHead(options.get("ordering_key"), options.get("key"), check_packed(options.get("headers")))


def head_of_array(value: Value) -> EnvelopeHead:
    """Read the head of an envelope in a group, as ``head_of`` does."""
    match value:
        case None:
            return PLAIN_HEAD
        case [ordering_key, key, headers]:
            _check("ordering_key", ordering_key)
            _check("key", key)
            return EnvelopeHead(cast("str | None", ordering_key), cast("str | None", key), check_packed(headers))
    raise _wrong("the head of an envelope is no array", "write it as [ordering_key, key, headers], or nil without any")


def tags_of_array(value: Value) -> EventTags:
    """Read the head of an event in a group, as ``tags_of`` does."""
    match value:
        case None:
            return NO_TAGS
        case [headers, partition_key]:
            return EventTags(check_packed(headers), check_partition_key(partition_key))
    raise _wrong("the head of an event is no array", "write it as [headers, partition_key], or nil without any")


def tags_of(options: object) -> EventTags:
    """Read the options of an event that a caller wrote.

    Raises:
        Refused: wrong_arguments, for an option that there is not; bad_header, headers_too_large, bad_partition_key.
    """
    if not options:
        return NO_TAGS
    if not isinstance(options, dict):
        raise _wrong("the options of an event are no map", "write them as a map")
    for name in options:
        if name not in EventTags._fields:
            raise _wrong(f"an event has no option {str(name)[:64]!r}", f"there are {', '.join(EventTags._fields)}")
    return EventTags(check_packed(options.get("headers")), check_partition_key(options.get("partition_key")))


def _check(name: object, value: object) -> None:
    longest = LONGEST.get(name) if isinstance(name, str) else None
    if longest is None:
        raise _wrong(f"an envelope has no option {str(name)[:64]!r}", f"there are {', '.join(LONGEST)}, headers")
    # PostgreSQL keeps no zero character.
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= longest and "\0" not in value):
        raise _wrong(f"{name} of the envelope can't be used", f"give a text of 1 to {longest} characters without zeros")


def _wrong(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="wrong_arguments")
