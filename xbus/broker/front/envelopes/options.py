"""The options of an envelope, as its emitter gives them at the start: the map of ``wire.md``."""

from dataclasses import dataclass

from xbus.errors import Refused
from xbus.rpc.messages import EnvelopeOptionsMap

LONGEST = {"ordering_key": 255, "key": 1024}
"""How many characters each option may have."""


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """The options of an envelope.

    Args:
        ordering_key: roles that want order get envelopes of one key one after the other; None is a key too.
        key: what its emitter calls the envelope, for good; None for none.
    """

    ordering_key: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, options: EnvelopeOptionsMap | None) -> "EnvelopeOptions":
        """The options that a caller wrote.

        Raises:
            Refused: wrong_arguments, for an option that there is not, or that can't have this value.
        """
        if not options:
            return NO_OPTIONS
        for name, value in options.items():
            _check(name, value)
        return cls(**options)


NO_OPTIONS = EnvelopeOptions()


def _check(name: object, value: object) -> None:
    longest = LONGEST.get(name) if isinstance(name, str) else None
    if longest is None:
        raise _wrong(f"an envelope has no option {str(name)[:64]!r}", f"there are {', '.join(LONGEST)}")
    # PostgreSQL keeps no zero character.
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= longest and "\0" not in value):
        raise _wrong(f"{name} of the envelope can't be used", f"give a text of 1 to {longest} characters without zeros")


def _wrong(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="wrong_arguments")
