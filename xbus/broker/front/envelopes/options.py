"""The options of an envelope or an event, as its emitter gives them at the start: the maps of ``wire.md``."""

from dataclasses import dataclass

from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags, check_packed, check_partition_key
from xbus.rpc.messages import EnvelopeOptionsMap

LONGEST = {"ordering_key": 255, "key": 1024}
"""How many characters each option that is a text may have."""


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """The options of an envelope.

    Args:
        ordering_key: roles that want order get envelopes of one key one after the other; None is a key too.
        key: what its emitter calls the envelope, for good; None for none.
        headers: packed; None for none.
    """

    ordering_key: str | None = None
    key: str | None = None
    headers: bytes | None = None

    @classmethod
    def of(cls, options: EnvelopeOptionsMap | None) -> "EnvelopeOptions":
        """The options that a caller wrote.

        Raises:
            Refused: wrong_arguments, for an option that there is not, or that can't have this value; bad_header,
                headers_too_large.
        """
        if not options:
            return NO_OPTIONS
        for name, value in options.items():
            if name != "headers":
                _check(name, value)
        headers = check_packed(options.get("headers"))
        return cls(options.get("ordering_key"), options.get("key"), headers)

    @property
    def kept(self) -> tuple[str | None, str | None, bytes | None]:
        """The values that ``StartEnvelope`` and ``PutEnvelope`` end with, in their order."""
        return self.ordering_key, self.key, self.headers


NO_OPTIONS = EnvelopeOptions()


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
