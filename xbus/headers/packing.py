"""Headers as bytes: a msgpack map from names to values, the names in rising order, so that equal headers have equal
bytes. The journal keeps these bytes, its hash covers them, and recipients get them; pure."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, NoReturn, TypeAlias, cast

import msgpack  # type: ignore[import-untyped]

from xbus.errors import Refused
from xbus.headers.known import KNOWN, UnfitValue

HeaderValue: TypeAlias = str | int | float | bool | datetime
Headers: TypeAlias = Mapping[str, HeaderValue]

MAX_BYTES = 4096
"""The most bytes of the headers of one envelope, or of one event. More would make small events large."""

KEPT_HEADERS = 128
"""So many packed headers are not checked again. Programs send the same ones again and again."""

LONGEST_PARTITION_KEY = 255

BAD_HEADER = "bad_header"
TOO_LARGE = "headers_too_large"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,63}")
# It makes no buffer for each. Without moments and derived types, it calls no code of Python amid a value: so several
# threads may use it.
_pack_exactly: Callable[[object], bytes] = msgpack.Packer(use_bin_type=True, strict_types=True).pack

_AS_DATETIME = 3
"""msgpack gives its timestamps as moments in UTC."""


class EventTags(NamedTuple):
    """The facts that an emitter gives to an event beside its items.

    Args:
        headers: packed; None without any.
        partition_key: names what the event is about, as a client's number; None without one.
    """

    headers: bytes | None = None
    partition_key: str | None = None

    @property
    def size(self) -> int:
        """The bytes of its headers."""
        return len(self.headers or b"")


NO_TAGS = EventTags()


def event_tags(headers: Headers | None, partition_key: str | None) -> EventTags:
    """Check and pack what an author tells of an event.

    Raises:
        Refused: as of ``pack_headers`` and ``check_partition_key``.
    """
    if not headers and partition_key is None:
        return NO_TAGS
    return EventTags(pack_headers(headers), check_partition_key(partition_key))


def pack_headers(headers: Mapping[str, object] | None) -> bytes | None:
    """Check headers and pack them; None where there are none.

    Raises:
        Refused: a name or a value can't be used (``bad_header``), or they are too large (``headers_too_large``).
    """
    if not headers:
        return None
    if type(headers) is dict:
        try:
            return _checked_exactly(_pack_exactly(dict(sorted(headers.items()))))
        except (TypeError, ValueError, OverflowError, Refused):
            pass  # it is found below what is wrong, or of a type of its own
    if not isinstance(headers, Mapping):
        raise _bad(f"the headers are of the type {type(headers).__name__}", "give a map from names to values")
    return _packed_each(headers)


@lru_cache(KEPT_HEADERS)
def _checked_exactly(data: bytes) -> bytes:
    # It packs no moments. A timestamp in it is an object of msgpack, and stays one, so that it is refused.
    return _packed_each(msgpack.unpackb(data))


def _packed_each(headers: Mapping[str, object]) -> bytes:
    return _packed({_name(name): _value(name, value) for name, value in headers.items()})


def unpack_headers(data: bytes | None) -> dict[str, HeaderValue]:
    """Read packed headers that were checked before; moments are in UTC.

    Raises:
        Refused: they are no headers (``bad_header``).
    """
    return {} if data is None else cast(dict[str, HeaderValue], _unpacked(data))


def check_packed(data: object) -> bytes | None:
    """Check headers that came packed, and give their bytes as the bus keeps them; None where there are none.

    Raises:
        Refused: as of ``pack_headers``.
    """
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise _bad(f"the headers are of the type {type(data).__name__}", "send a msgpack map as bytes")
    if len(data) > MAX_BYTES:
        raise _too_large(len(data))
    return _checked(data)


@lru_cache(KEPT_HEADERS)
def _checked(data: bytes) -> bytes | None:
    found = cast(dict[str, object], _unpacked(data))
    counting = msgpack.Unpacker()
    counting.feed(data)
    if len(found) < counting.read_map_header():
        raise _bad("a header comes twice", "send it once")
    return _packed_each(found) if found else None


def check_partition_key(key: object) -> str | None:
    """Let a partition key pass.

    Raises:
        Refused: it can't be used (``bad_partition_key``).
    """
    # PostgreSQL keeps no zero character.
    is_usable = isinstance(key, str) and 0 < len(key) <= LONGEST_PARTITION_KEY and "\0" not in key and _is_text(key)
    if key is not None and not is_usable:
        raise Refused(
            f"the partition key {key!r:.40} can't be used",
            f"give a text of 1 to {LONGEST_PARTITION_KEY} characters without zeros",
            code="bad_partition_key",
        )
    return cast("str | None", key)


def _unpacked(data: bytes) -> dict[object, object]:
    try:
        found = msgpack.unpackb(data, timestamp=_AS_DATETIME, ext_hook=_refuse_extension)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _bad(f"the headers are no msgpack ({error!r:.80})", "send a msgpack map from names to values") from error
    if not isinstance(found, dict):
        raise _bad(f"the headers are of the type {type(found).__name__}", "send a msgpack map from names to values")
    return found


def _refuse_extension(extension: int, _: bytes) -> NoReturn:
    raise _bad(f"the headers contain msgpack extension type {extension}", "send moments as msgpack's timestamp, -1")


def _packed(headers: Mapping[str, HeaderValue]) -> bytes:
    data: bytes = msgpack.packb(dict(sorted(headers.items())), datetime=True, use_bin_type=True)
    if len(data) > MAX_BYTES:
        raise _too_large(len(data))
    return data


def _name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _bad(
            f"a header can't be called {name!r:.80}",
            "give a name of up to 64 letters, digits, '_', '-' and '.' that begins with a letter or '_'",
        )
    if name not in KNOWN and name.lower() in KNOWN:
        raise _bad(f"header {name} differs from {name.lower()} only in its case", f"call it {name.lower()}")
    return name


def _value(name: str, value: object) -> HeaderValue:
    rule = KNOWN.get(name)
    try:
        return _plain(value if rule is None else rule(value))
    except UnfitValue as error:
        raise _bad(f"header {name} {error.cause}", error.next_step) from error


def _plain(value: object) -> HeaderValue:
    """Let a value pass that the bus keeps; what is derived from a plain type becomes it."""
    match value:
        case bool():
            return value
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case int():
            raise UnfitValue("is an integer of more than 64 bits", "give it as text")
        case float() if math.isfinite(value):
            return float(value)
        case float():
            raise UnfitValue(f"is {value}", "give a number that is finite")
        case str() if _is_text(value):
            return str.__str__(value)
        case str():
            raise UnfitValue("has characters that UTF-8 does not have", "give other text")
        case datetime():
            return _moment(value)
    kind = type(value).__name__
    raise UnfitValue(f"is of the type {kind}", "give a text, an integer, a float, a boolean or a moment (datetime)")


def _moment(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise UnfitValue("is a moment without a time zone", "give one with it, such as datetime.now(UTC)")
    try:
        utc = value.astimezone(UTC)
        # A plain one: msgpack does not know what is derived from it.
        return datetime(*utc.timetuple()[:6], utc.microsecond, tzinfo=UTC)
    except OverflowError:
        raise UnfitValue("is a moment outside the years 1 to 9999 in UTC", "give one inside") from None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code=BAD_HEADER)


def _too_large(size: int) -> Refused:
    cause = f"the headers take {size} bytes, and {MAX_BYTES} are allowed in all"
    return Refused(cause, "send large values as items, or a reference to them", code=TOO_LARGE)
