"""Calls of reading programs, checked; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.parked import BatchFailure
from xbus.errors import Refused
from xbus.ids import parse_uuid
from xbus.rpc.codec import Value

MOST_WAIT_SECONDS = 30.0
"""Seconds that a call may wait. More would keep calls open to programs that are gone."""

MOST_CODE_LETTERS = 64
MOST_ERROR_LETTERS = 1_000

_KNOWN = frozenset({"wait", "max_items", "max_bytes", "done", "reader"})


@dataclass(frozen=True, slots=True)
class ReadingProgram:
    """A program of a reader.

    Args:
        id: that it gave itself.
        role_id: by which it logged in; None for one of the broker's own.
        login: of that role, or of the bot for which it reads.
        reader: the key of the reader that a gateway reads; empty for the reader of the role.
    """

    id: UUID
    role_id: int | None
    login: str
    reader: str = ""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A place up to which a program has processed a batch."""

    range_id: int
    counter: int
    place: Place


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A call for the next batch.

    Args:
        wait: seconds to wait while nothing is there.
        max_items: the most items, with those of the reader's settings; None for these alone.
        max_bytes: the bytes at which the batch ends, in the same way.
        done: what is settled first.
        reader: the name of the reader that the caller means; empty for that of its role.
    """

    wait: float
    max_items: int | None
    max_bytes: int | None
    done: Settlement | None
    reader: str = ""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call of a subscriber that failed.

    Args:
        program: that made the call.
        batch: that the subscriber did not take; None for a gateway that does not say.
        is_end: whether the subscriber wants no more.
    """

    program: UUID
    failure: BatchFailure
    batch: Settlement | None
    is_end: bool


def read_program(value: Value) -> UUID:
    """Read the id of a program.

    Raises:
        Refused: the value is no UUID (``option_invalid``).
    """
    found = parse_uuid(value) if isinstance(value, str) else None
    if found is None:
        raise _invalid(f"{value!r:.60} is no id of a program", "have the program make a UUID when it starts")
    return found


def read_settlement(value: Value) -> Settlement:
    """Read range, counter and place.

    Raises:
        Refused: they are something else (``option_invalid``).
        BadPlace: the place is none (``place_invalid``).
    """
    if not isinstance(value, list) or len(value) != 3 or type(value[0]) is not int or type(value[1]) is not int:
        raise _invalid(f"{value!r:.60} settles nothing", "give range, counter and place of a batch")
    return Settlement(value[0], value[1], Place.of(value[2]))


def read_batch_call(options: Mapping[str, Value]) -> BatchCall:
    """Read the options of ``xbus.read_batch``.

    Raises:
        Refused: an option is unknown or has a wrong value (``option_invalid``).
        BadPlace: the place that is settled is none (``place_invalid``).
    """
    if unknown := options.keys() - _KNOWN:
        raise _invalid(f"there is no option {min(map(str, unknown))!r:.60}", f"know {', '.join(sorted(_KNOWN))}")
    wait = options.get("wait", 0)
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MOST_WAIT_SECONDS:
        raise _invalid(f"wait is {wait!r:.60}", f"give seconds from 0 to {MOST_WAIT_SECONDS:g}")
    done, reader = options.get("done"), options.get("reader", "")
    if not isinstance(reader, str):
        raise _invalid(f"reader is {reader!r:.60}", "give the name of the reader, or leave it out")
    return BatchCall(
        wait,
        _count(options, "max_items"),
        _count(options, "max_bytes"),
        None if done is None else read_settlement(done),
        reader,
    )


def read_settings(outcome: Mapping[str, Value]) -> str | None:
    """Read with which settings a call was made, of the outcome of ``xbus.note_callback``; None where it does not say.

    Raises:
        Refused: the value is no text (``option_invalid``).
    """
    settings = outcome.get("settings")
    if settings is not None and not isinstance(settings, str):
        raise _invalid(f"settings is {settings!r:.60}", "give the settings of xbus.list_subscriptions")
    return settings


def read_failed_call(outcome: Mapping[str, Value]) -> FailedCall | None:
    """Read the outcome of ``xbus.note_callback``; None for a call that went well, which has no code.

    Raises:
        Refused: a field has a wrong value (``option_invalid``).
        BadPlace: the end of the batch is none (``place_invalid``).
    """
    code, error = (str(outcome.get(name) or "").replace("\0", "") for name in ("code", "error"))
    if not code:
        return None
    failure = BatchFailure(code[:MOST_CODE_LETTERS], error[:MOST_ERROR_LETTERS], read_settings(outcome))
    batch = outcome.get("batch")
    program = uuid4() if batch is None else read_program(outcome.get("program"))
    settlement = None if batch is None else read_settlement(batch)
    return FailedCall(program, failure, settlement, outcome.get("ended") is True)


def _count(options: Mapping[str, Value], name: str) -> int | None:
    value = options.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise _invalid(f"{name} is {value!r:.60}", "give a whole number from 1 on")
    return value


def _invalid(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="option_invalid")
