"""Limits of emitters, as values: how fast each may send, and how much it may keep open."""

from dataclasses import asdict, dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class SendingLimits:
    """The limits of an emitter or of a profile, with the names and the order of the table's columns. None for no limit.

    Args:
        items_per_second: items that the front takes.
        bytes_per_second: bytes of items that the front takes.
        open_envelopes: envelopes that are begun and not ended.
        envelope_events: events of an envelope; the front's ``max_envelope_events`` holds, too.
        calls_in_flight: calls that wait for their answers.
        bytes_in_flight: the bytes of these calls.
    """

    items_per_second: int | None = None
    bytes_per_second: int | None = None
    open_envelopes: int | None = None
    envelope_events: int | None = None
    calls_in_flight: int | None = None
    bytes_in_flight: int | None = None

    @classmethod
    def first_of(cls, own: "SendingLimits | None", profile: "SendingLimits | None") -> "SendingLimits | None":
        """Give the limits of an emitter: its own come before those of its profile."""
        if own is None or profile is None:
            return own or profile
        return replace(profile, **{name: value for name, value in asdict(own).items() if value is not None})


LIMIT_NAMES = tuple(field.name for field in fields(SendingLimits))

NO_LIMITS = SendingLimits()
