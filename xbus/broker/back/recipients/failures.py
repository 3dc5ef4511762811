"""The failures of a call to a recipient; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from reprlib import Repr
from uuid import UUID

from xbus.broker.journal.writes import Failure
from xbus.errors import JournalError, Refused, XbusError
from xbus.rpc.client import NOT_LEADING
from xbus.rpc.frames import BAD_ANSWER
from xbus.texts import fault, plain

MESSAGE_CHARACTERS = 1_000
"""The most characters that the journal keeps of a message."""


MAX_ERRORS = 1_000
"""The most errors that the journal keeps of one answer."""

MAX_INDICES = 1_000
"""The most indices that the journal keeps of one error."""

SHOWN_INDICES = 5
"""The most wrong indices that a message names."""

SHOWN_LEVELS = 10
"""The most levels of lists and maps of which a message shows the beginning."""

CODE_CHARACTERS = 64
NODE_CHARACTERS = 255


NONSENSE = "nonsense"
"""The code of an answer that makes no sense."""

OUTPUT = "take_output"
"""The failed step of a bulk worker that did not make an output."""


class _Excerpt(Repr):
    """Shows the beginning of a value, at the cost of that: an answer may have as many bytes as a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = SHOWN_LEVELS
        self.maxlist = self.maxdict = self.maxstring = self.maxlong = self.maxother = MESSAGE_CHARACTERS

    def repr_bytes(self, value: bytes, level: int) -> str:
        """Show the first bytes."""
        return repr(value[:MESSAGE_CHARACTERS])


_EXCERPT = _Excerpt()


class FailureClass(StrEnum):
    """The class of a failure: it says whether another attempt could help."""

    PERMANENT = "permanent"
    """The recipient refused, or answered nonsense: it would do so again."""
    TRANSIENT = "transient"
    """The recipient answered with an error, was too late, or went away. Another attempt may succeed."""
    ABSENT = "absent"
    """It is there no longer for what the broker brings: it is about to stop, or just registering anew."""


SUPERSEDED = "connection_superseded"
"""The answer of a recipient that was called by another connection, or is just registering anew."""

LEAVING_CODES = ("recipient_stopping", SUPERSEDED)
"""Answers of a recipient that takes nothing more by this connection."""

ABSENT_CODES = (*LEAVING_CODES, "envelope_stopped", NOT_LEADING)
"""The last one is of this broker itself: its lease is over, and the next one brings the envelope."""

FORGOTTEN_CODES = ("envelope_unknown", "event_unknown")
"""Codes of a recipient that has lost what it had, as by a restart. They say nothing about the content."""


@dataclass(frozen=True, slots=True)
class ItemError:
    """The message of a recipient about some items."""

    indices: list[int] | None
    message: str

    def among(self, items: int) -> "ItemError":
        """Cut the error to the items of an event with so many items."""
        wrong = [index for index in self.indices or () if index >= items]
        return ItemError(self.indices, self.message + _no_such_items(wrong)) if wrong else self


class RecipientFailed(Exception):
    """A call to a recipient went wrong.

    Args:
        role_id: whose recipient it was; None where the fault lies in the broker.
        verb: what was asked of it.
        event_id: in which event; None at the end of an envelope.
        failure_class: whether another attempt could help.
        code: ``refused``, ``nonsense``, ``timed_out``, ``connection_lost``, ...
        errors: what the recipient said, at least one.
    """

    def __init__(
        self,
        role_id: int | None,
        verb: str,
        event_id: UUID | None,
        failure_class: FailureClass,
        code: str,
        errors: list[ItemError],
    ) -> None:
        super().__init__(f"{verb}: {errors[0].message}")
        code = code[:CODE_CHARACTERS]
        errors = errors[:MAX_ERRORS]
        self.role_id = role_id
        self.verb = verb
        self.event_id = event_id
        self.failure_class = failure_class
        self.code = code
        self.errors = errors
        self.nodes: Sequence[str] = ()
        self.node: str | None = None

    def happened_at(self, nodes: Sequence[str], items: int) -> None:
        """Note where in an event the failure happened.

        Args:
            nodes: of its graph, several where the broker can't tell at which of them.
            items: the number of the event's items; the cause names indices beyond it.
        """
        self.nodes = nodes
        self.node = ", ".join(nodes)[:NODE_CHARACTERS]
        self.errors = [error.among(items) for error in self.errors]

    @property
    def cause(self) -> str:
        """The cause, in a sentence."""
        return f"{self.verb}: {self.errors[0].message}"

    def rows(self, envelope_id: UUID) -> list[Failure]:
        """Make the rows that the journal keeps of the failure."""
        return [
            Failure(
                envelope_id=envelope_id,
                event_id=self.event_id,
                role_id=self.role_id,
                verb=self.verb,
                code=self.code,
                message=error.message,
                indices=error.indices,
                node=self.node,
            )
            for error in self.errors
        ]


def failure_of_call(role_id: int, verb: str, event_id: UUID | None, error: XbusError) -> RecipientFailed:
    """Make a failure from the exception of a call."""
    failure_class = FailureClass.TRANSIENT
    is_refused = isinstance(error, Refused) and error.code not in FORGOTTEN_CODES
    if is_refused or error.code == BAD_ANSWER:
        failure_class = FailureClass.PERMANENT
    elif error.code in ABSENT_CODES:
        failure_class = FailureClass.ABSENT
    return RecipientFailed(role_id, verb, event_id, failure_class, error.code, [ItemError(None, _shown(error.cause))])


def refusal(role_id: int, verb: str, event_id: UUID | None, errors: object) -> RecipientFailed:
    """Make a failure from ``(False, errors)``; errors should be ``[([indices], message), ...]``, and may be anything.

    Args:
        errors: what came; what has another shape is kept, and called malformed.
    """
    match errors:
        case None:
            said = []
        case list() | tuple():
            said = [_item_error(error) for error in errors[:MAX_ERRORS]]
        case _:
            said = [_malformed(errors)]
    said = said or [ItemError(None, "refused without a reason")]
    return RecipientFailed(role_id, verb, event_id, FailureClass.PERMANENT, "refused", said)


def failure_of_report(role_id: int, event_id: UUID, told: object) -> RecipientFailed:
    """Make a failure from the report of a bulk worker about an output that it did not make."""
    match told:
        case {"class": ("permanent" | "transient") as kind, "code": str(code), "message": str(message), **more}:
            failure_class = FailureClass(kind)
            if kind == "transient" and code in ABSENT_CODES:
                failure_class = FailureClass.ABSENT
            errors = more.get("errors")
            said = refusal(role_id, OUTPUT, event_id, errors).errors if errors else [ItemError(None, _shown(message))]
            return RecipientFailed(role_id, OUTPUT, event_id, failure_class, _shown(code) or "failed", said)
    return nonsense(role_id, OUTPUT, event_id, told)


def no_output(role_id: int | None, event_id: UUID | None, code: str, cause: str) -> RecipientFailed:
    """Make the failure of a missing output, which may come if it is requested again."""
    return RecipientFailed(role_id, OUTPUT, event_id, FailureClass.TRANSIENT, code, [ItemError(None, cause)])


def no_way(role_id: int, event_id: UUID, indices: list[list[int]] | None, cause: str) -> RecipientFailed:
    """Make the failure of a worker whose items have no way: it would have them go there again.

    Args:
        indices: for each of these items those of the items that it was made of, where they are known.
    """
    made_of = sorted({index for of_item in indices or () for index in of_item})[:MAX_INDICES]
    error = ItemError(made_of or None, cause)
    return RecipientFailed(role_id, "send_item", event_id, FailureClass.PERMANENT, "no_way", [error])


def _item_error(error: object) -> ItemError:
    match error:
        case [list(indices), message] if all(type(index) is int for index in indices):
            text = _shown(message) if isinstance(message, str) else _malformed(message).message
            text += _no_such_items([index for index in indices if index < 0])
            if len(indices) > MAX_INDICES:
                text += f" ({len(indices)} items, the first {MAX_INDICES} are kept)"
            return ItemError(indices[:MAX_INDICES], text)
    return _malformed(error)


def _malformed(said: object) -> ItemError:
    return ItemError(None, f"malformed error: {_shown(said)}")


def _no_such_items(wrong: Sequence[int]) -> str:
    """Word the remark about indices that no item of the event has."""
    if not wrong:
        return ""
    named = ", ".join(map(str, wrong[:SHOWN_INDICES])) + (", ..." if len(wrong) > SHOWN_INDICES else "")
    return f" (there is no item {named})"


def nonsense(role_id: int, verb: str, event_id: UUID | None, what: object) -> RecipientFailed:
    """Make a failure from an answer that the recipient API doesn't know."""
    error = ItemError(None, f"the answer makes no sense: {_shown(what)}")
    return RecipientFailed(role_id, verb, event_id, FailureClass.PERMANENT, NONSENSE, [error])


def is_nonsense(result: object) -> bool:
    """Check whether the recipient answered what its API doesn't know: nobody can tell then what it has done."""
    return isinstance(result, RecipientFailed) and result.code == NONSENSE


def _shown(value: object) -> str:
    """Turn a value of a recipient into a text that any database can keep."""
    return plain(value if isinstance(value, str) else _EXCERPT.repr(value), MESSAGE_CHARACTERS)


def own_fault(error: Exception) -> RecipientFailed:
    """Make the failure of a fault in the broker: it would happen again, and must not stop the other deliveries.

    An error of the journal, such as a missing object, keeps its code, its cause and its next step.
    """
    first = _first(error)
    if isinstance(first, JournalError):
        code, told = first.code, str(first)
    else:
        code, told = "internal_error", f"a fault in the broker, see its log: {fault(error, MESSAGE_CHARACTERS)}"
    return RecipientFailed(None, "deliver", None, FailureClass.PERMANENT, code, [ItemError(None, _shown(told))])


def _first(error: BaseException) -> BaseException:
    """Give the first error of those that the parts of a run raised together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def fault_among_many(error: Exception) -> RecipientFailed:
    """The same with one of several envelopes that went together: each may go well alone."""
    said = ItemError(None, f"a fault in the broker, see its log: {fault(error, MESSAGE_CHARACTERS)}")
    return RecipientFailed(None, "deliver", None, FailureClass.TRANSIENT, "internal_error", [said])
