"""Bundles: whole small envelopes that come in one call, and are carried out one after the other in the author's thread.

Each envelope has an answer of its own. Behind an envelope that failed none is begun: the author's database may be away,
and all would fail alike. A refusal leaves the others alone.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from operator import sub
from types import NoneType
from typing import TypeAlias, cast

from xbus.errors import CallError, ProtocolError, Refused
from xbus.recipient.base import Recipient, Worker, kind_of
from xbus.recipient.bulk import BulkWorker
from xbus.recipient.calls import Calls, stopped
from xbus.recipient.deliveries import EnvelopeDelivery, OpenDeliveries, log_rollback_failure
from xbus.recipient.envelope import Event, Note, read_notes
from xbus.recipient.item import WIRE_FIELDS, Batch
from xbus.recipient.outputs import WireBatch, wire_batches
from xbus.rpc.codec import BIN_HEADERS, Key, Value, pack, unpack_items
from xbus.texts import MOST_CHARACTERS, fault, plain

MOST_PREPARED = 128
"""The most envelopes that a consumer without anything to commit leaves open for a decision. More takes more memory."""

OUTPUT_BYTES = 1024 * 1024
"""A worker begins no further envelope of a bundle once it has made so much. More takes more memory on both sides."""

BundleAnswer: TypeAlias = tuple[object, ...]
"""``(True,)`` where all went well, from a worker with the batches that it made of each event; ``(False, errors,
event_id)`` of a refusal; ``(None, (code, cause), event_id)`` of a failure; ``()`` of an envelope that was not begun."""

TAKEN: BundleAnswer = (True,)

_TOO_LARGE: BundleAnswer = (None, ("output_too_large", "what was made of the envelope is too large for a bundle"), None)

WireEvent: TypeAlias = tuple[str, str, Sequence[Value], dict[Key, Value] | None]
"""An event as it came: its id, its type, its batches, and its headers."""

_EnvelopeColumns: TypeAlias = tuple[Sequence[str], Sequence[list[list[Value]]], Sequence[Note | None]]
_EventColumns: TypeAlias = tuple[
    Sequence[str], Sequence[str], Sequence[list[list[Value]]], Sequence[dict[Key, Value] | None]
]
_ENVELOPE_KINDS: Sequence[set[type]] = ({str}, {list}, {list, NoneType})
_EVENT_KINDS: Sequence[set[type]] = ({str}, {str}, {list}, {dict, NoneType})
"""The types that the fields of an envelope and of an event may have."""


def takes_bundles(recipient: Recipient) -> bool:
    """Check whether each envelope can be ended before the next one begins, whatever becomes of it elsewhere.

    A worker commits before it is known whether the consumers take what it made. It must have nothing to take back.
    """
    is_plain_worker = isinstance(recipient, Worker) and not isinstance(recipient, BulkWorker)
    return (is_plain_worker and _keeps_nothing(recipient)) or kind_of(recipient) == "consumer"


def prepared_at_once(recipient: Recipient) -> int:
    """Count the envelopes that may be open here for a decision by several consumers, each taken as a whole.

    A consumer with a commit or a rollback of its own has as many transactions as its author says by ``envelopes``.
    """
    if kind_of(recipient) != "consumer":
        return 0
    return max(MOST_PREPARED, recipient.envelopes) if _keeps_nothing(recipient) else recipient.envelopes


def _keeps_nothing(recipient: Recipient) -> bool:
    cls = type(recipient)
    return cls.commit is Recipient.commit and cls.rollback is Recipient.rollback


class WholeEnvelope(EnvelopeDelivery):
    """An envelope of a bundle: its state here, and its events with their items.

    Attributes:
        is_prepared: whether it stays open for a decision.
        made_bytes: the bytes of the items that a worker has made of it.
        item: the bytes of its item, where it is one event of one item.
    """

    is_prepared: bool = False
    made_bytes: int = 0
    item: bytes | None = None
    _contents: list[tuple[Event, list[Batch]]] | None = None

    def read_events(self, events: Iterable[WireEvent]) -> None:
        """Take up the events.

        Raises:
            Refused: one of them comes twice (``event_open``), or its items do not fit together (``bad_items``).
        """
        self._contents = [
            (self.add_event(event_id, type_name, headers), [Batch.of_wire(batch) for batch in batches])
            for event_id, type_name, batches, headers in events
        ]

    def let_go(self) -> None:  # of each envelope of a bundle, so it calls no other method
        """Keep neither the item nor what refers back to the envelope."""
        self.events = {}
        self.at = self.item = self._contents = None

    def take(self, calls: Calls) -> list[list[WireBatch]]:
        """Bring the envelope to the author's code; give what a worker made of each event.

        Raises:
            Exception: as the author's code; or it was let go (``envelope_stopped``).
        """
        contents = self._contents
        if contents is None:
            if self.item is None:  # it was let go: without its content it must not be committed
                raise stopped()
            contents = [(event, [Batch([self.item], 0)]) for event in self.events.values()]
        made: list[list[WireBatch]] = []
        for event, batches in contents:
            self.at = event
            _, items = calls.whole_event(event, batches)
            if calls.is_worker:
                self.made_bytes += sum([len(item.data) for item in items])
                made.append(wire_batches(items, OUTPUT_BYTES))
        return made


def read_bundle(envelopes: list[Value]) -> list[WholeEnvelope]:
    """Read a bundle by its columns: few functions of Python are called for each envelope.

    Args:
        envelopes: each ``[envelope_id, [[event_id, type_name, batches], ...]]``, with or without a note behind. Behind
            the batches of an event there may be its headers.

    Raises:
        Refused: an envelope has not that form (``wrong_arguments``), or its items do not fit together (``bad_items``).
    """
    ids, entries, notes = cast("_EnvelopeColumns", _columns(envelopes, 2, _ENVELOPE_KINDS))
    events = list(chain.from_iterable(entries))
    event_columns = event_ids, names, batches, headers = cast("_EventColumns", _columns(events, 3, _EVENT_KINDS))
    read_notes([note for note in notes if note is not None] if None in notes else notes)
    bundle = list(map(WholeEnvelope, ids, notes))
    items = _single_items(list(chain.from_iterable(batches))) if {1} == {*map(len, entries), *map(len, batches)} else []
    if items:
        for whole, item, event_id, name, told in zip(bundle, items, event_ids, names, headers, strict=True):
            whole.item = item
            whole.events[event_id] = event = Event(event_id, name, whole)
            if told:
                event.read_headers(told)
        return bundle
    rest = zip(*event_columns, strict=True)
    for whole, entry in zip(bundle, entries, strict=True):
        of_envelope = list(islice(rest, len(entry)))
        if len({event_id for event_id, *_ in of_envelope}) < len(entry):
            raise _wrong_form()
        whole.read_events(of_envelope)
    return bundle


def _columns(rows: Sequence[Value], least: int, kinds: Sequence[set[type]]) -> list[Sequence[Value]]:
    """Give the columns of rows; a row that is shorter has None in the columns that it lacks.

    Args:
        rows: lists.
        least: the fields that each row has.
        kinds: the types that the values of each column may have.

    Raises:
        Refused: one of the rows is no such list (``wrong_arguments``).
    """
    if not {*map(type, rows)} <= {list}:
        raise _wrong_form()
    lists: Sequence[list[Value]] = rows  # type: ignore[assignment]  # a cast would be a call for each bundle
    lengths = {*map(len, lists)}
    if not lengths <= {*range(least, len(kinds) + 1)}:
        raise _wrong_form()
    if len(lengths) > 1:
        lists = [[*row, *[None] * (len(kinds) - len(row))] for row in lists]
    columns: list[Sequence[Value]] = list(zip(*lists, strict=True))
    columns += [(None,) * len(rows)] * (len(kinds) - len(columns))
    for column, kind in zip(columns, kinds, strict=True):
        if not {*map(type, column)} <= kind:
            raise _wrong_form()
    return columns


def _single_items(batches: Sequence[list[Value]]) -> Sequence[bytes]:
    """Read batches of one original item each, all in one go; empty where one of them is of another kind."""
    if {*map(type, batches)} != {list} or {*map(len, batches)} != {WIRE_FIELDS}:
        return []
    first_indices, counts, data, indices = zip(*batches, strict=True)
    number = len(batches)
    are_single = first_indices.count(0) == counts.count(1) == indices.count(None) == number
    if not are_single or {*map(type, data)} != {bytes} or not all(data):
        return []
    try:
        items = unpack_items(b"".join(data), number)
    except ProtocolError:
        return []
    # Each item fills its batch: read as one, the next begins where the next batch does.
    headers = [BIN_HEADERS.get(batch[0]) for batch in data]
    return items if [*map(sub, map(len, data), map(len, items))] == headers else []


def take_all(
    calls: Calls, bundle: Sequence[WholeEnvelope], deliveries: OpenDeliveries, *, commits: bool = True
) -> list[BundleAnswer]:
    """Bring a bundle to the author's code, in their thread: one envelope after the other.

    Args:
        calls: the author's methods.
        bundle: the envelopes.
        deliveries: say whether the recipient is about to stop; then no other envelope is begun.
        commits: whether each is committed before the next one begins; otherwise it stays open for a decision. One that
            fails is rolled back.
    """
    answers: list[BundleAnswer] = []
    room = OUTPUT_BYTES
    for whole in bundle:
        answer = TAKEN
        try:
            if whole.is_stopped:
                raise stopped()
            # Nearly all envelopes are of one item, and nearly all consumers take each by itself.
            if calls.takes_single_items and whole.item is not None:
                (whole.at,) = whole.events.values()
                calls.whole_item(whole.at, whole.item)
            else:
                made = whole.take(calls)
                if whole.made_bytes > OUTPUT_BYTES:
                    answer = _TOO_LARGE
                elif calls.is_worker:
                    answer = (True, made)
            if answer is _TOO_LARGE:
                pass
            elif not commits:
                whole.is_prepared = True
            elif calls.has_commit or whole.files or whole.is_stopped:
                calls.commit(whole)
        except BaseException as error:
            answer = _answer_to(whole, error)
        if answer[0] is not True and not whole.is_stopped:
            _roll_back(calls, whole)
        answers.append(answer)
        room -= whole.made_bytes
        if answer[0] is None or room < 0 or deliveries.is_closing:
            break
    return answers + [()] * (len(bundle) - len(answers))


def commit_all(calls: Calls, deliveries: Sequence[EnvelopeDelivery]) -> list[BundleAnswer]:
    """Commit prepared envelopes, in the author's thread.

    One that can't be committed stays open until it is stopped. Behind it none is committed.
    """
    answers: list[BundleAnswer] = []
    for delivery in deliveries:
        try:
            delivery.check()
            calls.commit(delivery)
            answers.append(TAKEN)
        except BaseException as error:
            answers.append(_answer_to(delivery, error))
            if answers[-1][0] is None:
                break
    return answers + [()] * (len(deliveries) - len(answers))


def _roll_back(calls: Calls, whole: WholeEnvelope) -> None:
    try:
        calls.rollback(whole)
    except Exception as error:
        # The broker has it rolled back once more before it comes again.
        log_rollback_failure(whole.id, error)


def _answer_to(delivery: EnvelopeDelivery, error: BaseException) -> BundleAnswer:
    """Make the answer for the broker to what the author's code has raised."""
    try:
        errors = delivery.errors_of(error)
        # What the wire has no form for would hide from the broker what was committed before it.
        pack(errors)
    except (CallError, ProtocolError) as failure:
        code, cause = failure.code, failure.cause
    except BaseException as failure:  # as of sys.exit() in the author's code: the others have answers of their own
        code, cause = "recipient_failed", f"the recipient's code raised {fault(failure)}"
    else:
        return (False, errors, _event_id(delivery))
    return (None, (plain(code, MOST_CHARACTERS), plain(cause, MOST_CHARACTERS)), _event_id(delivery))


def _event_id(delivery: EnvelopeDelivery) -> str | None:
    return None if delivery.at is None else delivery.at.id


def _wrong_form() -> Refused:
    return Refused(
        "an envelope of a bundle is not [envelope_id, [[event_id, type_name, batches], ...]], each event once",
        code="wrong_arguments",
    )
