"""``xbus parked`` shows parked envelopes, items and batches, and carries out what a person decides about them."""

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from xbus.admin.arguments import LIMIT, OPTIONAL_REASON, READER, REASON, ROLE, SERVICE, SHOW_SECRETS, SUBSCRIPTION, TYPE
from xbus.admin.commands.envelope import ENVELOPE
from xbus.admin.objects import of_parked_batch, of_parked_part
from xbus.admin.output import CAUSE, Column, Output, counted, escaped, facts, name_column
from xbus.admin.program import CommandGroup, EnvelopeId, digits
from xbus.admin.repair import moves
from xbus.admin.repair.payload import Kind, Payload
from xbus.admin.repair.view import view
from xbus.admin.signatures import (
    YES,
    BusAction,
    CommandBus,
    argument,
    carry_out,
    command,
    command_of,
    confirm,
    option,
    shown,
)
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.repeats import Past
from xbus.broker.journal.operations.envelopes.details import resolve_envelope, shorten
from xbus.broker.journal.operations.parked import Filters, Parked, ParkedSummary, list_parked
from xbus.broker.journal.readers.parked import (
    ParkedBatch,
    drop_batch,
    find_parked_batch,
    list_parked_batches,
    read_parked_events,
    resume_batch,
)
from xbus.ending import REFUSED
from xbus.errors import Refused
from xbus.ids import Ids
from xbus.rights import Right

MORE = "There may be more: give a larger --limit, or narrow the list"

EVENT = option("The event, if the envelope has several.", longest=64, metavar="NUMBER|ID")
MOST_LETTERS = 64 * 1024 * 1024
"""Characters of a new item. The front bounds items below that."""

NEW_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(cls=CommandGroup)
def parked() -> None:
    """Show and repair what recipients refused for good: resume, correct, drop."""


@command(parked)
def list_(
    bus: CommandBus,
    role: str | None = option("Only envelopes and items parked for this role.", ROLE),
    event_type: str | None = option("Only envelopes with events of this type.", TYPE, "--type"),
    service: str | None = option("Only envelopes and items parked for roles of this service.", SERVICE),
    code: str | None = option("Only envelopes and items parked with this code.", metavar="CODE"),
    limit: int = LIMIT,
    output: Output = shown("envelope and role", watch=True),
) -> None:
    """Show parked envelopes, and items that were parked alone, the newest first."""
    filters = Filters(role=role, service=service, event_type=event_type, code=code)
    with bus.reading() as connection:
        found = list_parked(connection, filters, limit)
        batches = list_parked_batches(connection, limit=limit)
        ids = {} if output.as_json or output.is_wide else shorten(connection, [each.envelope_id for each in found])
    rows = (
        {
            "SINCE": output.when(summary.since),
            name_column("ROLE"): summary.role,
            name_column("WHAT"): _what(summary),
            Column("ATTEMPTS", wide_only=True): summary.attempts,
            name_column("CODE"): summary.code,
            CAUSE: summary.cause,
            "ENVELOPE": ids.get(summary.envelope_id, summary.envelope_id),
        }
        for summary in found
    )
    more = ["Batches of readers are parked, too: xbus parked batch list shows them."] if batches else []
    more += [MORE] if len(found) == limit else []
    output.listing(found, of_parked_part, rows, "Nothing is parked.", "\n".join(more))


def _what(summary: ParkedSummary) -> str:
    """Word the parked part: the types of an envelope, or ``2 items of clients``."""
    types = ", ".join(summary.types)
    return types if summary.parked_items is None else f"{counted(summary.parked_items)} of {types}"


@command(parked)
def show(
    bus: CommandBus,
    envelope_id: str = ENVELOPE,
    role: str | None = option("Only for this role.", ROLE),
    event: str | None = EVENT,
    item: int | None = option("This item, counted from 0.", click.IntRange(0), metavar="INDEX"),
    span: str | None = option("These items, the last one included.", None, "--items", metavar="FROM:TO"),
    raw: Path | None = option("Write the bytes of --item there, as the role would get them.", NEW_FILE, is_local=True),
    show_secrets: bool = SHOW_SECRETS,
    output: Output = shown(),
) -> None:
    """Show the roles and causes of a parked envelope, and its items: first those that failures name.

    Fields that the event type calls secret show as ***.
    """
    if raw is not None and item is None:
        raise click.UsageError("--raw needs --item: whose bytes?")
    if item is not None and span is not None:
        raise click.UsageError("give --item or --items, not both")
    wanted = _span(span) if item is None else (item, item)
    with bus.reading() as connection:
        named = resolve_envelope(connection, envelope_id)
        if raw is not None and item is not None:
            place = moves.find_place(connection, named, role, event, item)
            _write(raw, moves.present_item(connection, place))
            return
        found = view(connection, named, role, event, wanted, show_secrets=show_secrets)
    output.detail(found.plain(), found.lines(output))


def _span(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise click.UsageError(f"--items {text}: write the first and the last index, as in 0:9")
    return int(first), int(last)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise Refused(
            f"{path} can't be written ({error.strerror})", "name another file", code="file_unwritable"
        ) from error
    click.echo(f"{len(data)} bytes are in {path}.")


class ParkedAction(BusAction, ABC):
    """The parked parts that an action is about."""

    right = Right.OPERATOR

    envelope_id: Sequence[str] = argument(EnvelopeId(), required=True, longest=64, metavar="ENVELOPE...")
    role: str | None = option("Only for this role.", ROLE, longest=255)
    event: str | None = EVENT
    item: int | None = option(
        "Only this item, counted from 0, that is parked alone.", click.IntRange(0), metavar="INDEX"
    )

    def check(self) -> None:
        if self.item is not None and len(self.envelope_id) != 1:
            raise ValueError("an item is one of one envelope")
        if self.event is not None and self.item is None:
            raise ValueError("an event goes with an item: an envelope is resumed or dropped as a whole")

    def find(self, connection: Connection) -> list[tuple[Past, Parked]]:
        """Find them.

        Raises:
            Refused: one of the envelopes is not parked (``not_parked``).
        """
        found = []
        for envelope_id in dict.fromkeys(resolve_envelope(connection, digits(each)) for each in self.envelope_id):
            past, parts = moves.find_meant(connection, envelope_id, self.role, self.event, self.item)
            found += [(past, parked) for parked in parts]
        return found


class ResumeParked(ParkedAction):
    """Deliver parked envelopes or items again, and count their attempts anew: all that are named, or none."""

    path = "parked/resume"
    title = "Resume"
    words = "parked resume"

    reason: str = OPTIONAL_REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        return (f"{parked.role} gets {moves.parts_of(parked)} again." for _, parked in bus.read(self.find))

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        ids = Ids(bus.clock)
        with bus.writing() as connection:
            decision = bus.decision(self.reason)
            done = [moves.resume(connection, past, parked, decision, ids) for past, parked in self.find(connection)]
        return (sentence for each in done for sentence in moves.resumed_sentences(each))


@command(parked)
def resume(
    bus: CommandBus,
    envelope_ids: tuple[str, ...] = argument(EnvelopeId(), metavar="[ENVELOPE]..."),
    role: str | None = ResumeParked.role,
    event: str | None = ResumeParked.event,
    item: int | None = ResumeParked.item,
    all_: bool = option("Everything that is parked and matches the options; asks first."),
    code: str | None = option("With --all: only envelopes and items parked with this code.", metavar="CODE"),
    event_type: str | None = option("With --all: only envelopes with events of this type.", TYPE, "--type"),
    service: str | None = option("With --all: only for roles of this service.", SERVICE),
    reason: str = OPTIONAL_REASON,
    yes: bool = YES,
) -> None:
    """Deliver parked envelopes or items again, and count their attempts anew.

    The bus redelivers items that are parked alone as an envelope of their own. It resumes all named envelopes or none.
    """
    if bool(envelope_ids) == all_:
        raise click.UsageError("name envelopes, or give --all")
    if not all_ and (code, event_type, service) != (None, None, None):
        raise click.UsageError("--code, --type and --service go with --all")
    if all_:
        filters = Filters(role=role, service=service, event_type=event_type, code=code)
        _resume_all(bus, filters, bus.decision(reason), yes)
        return
    carry_out(bus, ResumeParked, envelope_id=envelope_ids, role=role, event=event, item=item, reason=reason)


def _resume_all(bus: CommandBus, filters: Filters, decision: RepairDecision, yes: bool) -> None:
    newest = bus.read(lambda connection: list_parked(connection, filters, 1))
    if not newest:
        click.echo("Nothing parked matches the options.")
        return
    confirm("Resume everything parked that matches the options?", unless=yes)
    # What is parked again from now on is not resumed once more.
    filters = replace(filters, until=newest[0].since)
    done = moves.resume_all(bus.url, filters, decision, Ids(bus.clock))
    click.echo(f"Resumed: envelopes: {done.envelopes:,}, items that were parked alone: {done.items:,}.")
    for refusal in done.refusals:
        click.echo(f"xbus: {refusal}", err=True)
    if done.refusals:
        click.get_current_context().exit(REFUSED)


class DropParked(ParkedAction):
    """Drop everything parked of envelopes for good: their roles go without it. It drops all named ones or none."""

    path = "parked/drop"
    title = "Drop for good"
    words = "parked drop"
    question = "Drop that for good?"
    is_final = True

    reason: str = REASON

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._shown: Sequence[Parked] | None = None

    def preview(self, bus: CommandBus) -> Iterator[str]:
        return (f"{parked.role} goes without {moves.parts_of(parked)}, for good." for _, parked in bus.read(self.find))

    def plan(self, bus: CommandBus) -> Iterator[str]:
        self._shown = [parked for _, parked in bus.read(self.find)]
        return (f"{parked.role} goes without {moves.parts_of(parked)}" for parked in self._shown)

    def answer(self, done: Sequence[str]) -> Iterable[str]:
        return ["Dropped."]

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            decision = bus.decision(self.reason)
            # As it was shown: parts that were parked since then stay.
            found = [parked for _, parked in self.find(connection)] if self._shown is None else self._shown
            for parked in found:
                moves.drop(connection, parked, decision)
        return (f"{parked.role} goes without {moves.parts_of(parked)}." for parked in found)


command_of(DropParked, parked)


class CorrectItem(BusAction):
    """Replace an item for all roles that lack it, or for one role for which it is parked.

    The value is JSON, and is packed as the item was; where the item is a text, it is the new text.
    """

    path = "parked/correct"
    title = "Correct"
    words = "parked correct"
    right = Right.OPERATOR

    envelope_id: str = argument(EnvelopeId(), longest=64, metavar="ENVELOPE")
    event: str | None = EVENT
    item: int = option("The item, counted from 0.", click.IntRange(0), required=True, metavar="INDEX")
    value: str = option(
        "The new item: as JSON, or as the text that it is.",
        required=True,
        title="Value",
        asked="text",
        longest=MOST_LETTERS,
    )
    role: str | None = option(
        "Only for this role, for which it is parked; by default for all roles that lack it and all later ones.",
        ROLE,
        longest=255,
    )
    reason: str = REASON
    resume: bool = option("Resume it at once, for all roles for which it is parked.", title="Resume it at once")

    def find(self, connection: Connection) -> tuple[moves.CorrectionTarget, moves.Standing]:
        """Find the item, and its present form."""
        wanted = resolve_envelope(connection, digits(self.envelope_id))
        target = moves.find_target(connection, wanted, self.role, self.event, self.item)
        return target, moves.read_standing(connection, target)

    def typed(self, bus: CommandBus) -> Mapping[str, str]:
        target, standing = bus.read(self.find)
        payload = standing.payload(target.role_id)
        value = payload.editable()
        # Marks of direction would show the value otherwise than it is.
        return {"value": value if payload.kind is Kind.TEXT else escaped(value)}

    def preview(self, bus: CommandBus) -> Iterator[str]:
        with bus.reading() as connection:
            target, _ = self.find(connection)
            reach = moves.read_reach(connection, target)
        yield moves.corrected_sentence(target, done=False)
        yield from moves.reach_sentences(target, reach)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        target, standing = bus.read(self.find)
        return self.correct(bus, standing, standing.payload(target.role_id).rewritten(self.value))

    def correct(self, bus: CommandBus, standing: moves.Standing, after: bytes) -> Iterator[str]:
        """Put bytes in the place of the item.

        Args:
            standing: the item as the person saw it.

        Raises:
            Refused: somebody has corrected it meanwhile, or the bytes are too many.
        """
        moves.check_size(after, bus.config.front.max_item_bytes)
        decision, ids = bus.decision(self.reason), Ids(bus.clock)
        with bus.writing() as connection:
            target, _ = self.find(connection)
            reach = moves.read_reach(connection, target)
            moves.correct(connection, target, standing, after, decision)
            resumed = [moves.resume_place(connection, place, decision, ids) for place in target.places if self.resume]
        yield moves.corrected_sentence(target, done=True)
        yield from moves.reach_sentences(target, reach)
        yield from (sentence for each in resumed for sentence in moves.resumed_sentences(each))
        if target.places and not self.resume:
            yield f"Next: xbus parked resume {target.past.envelope_id}"


@command(parked)
def correct(
    bus: CommandBus,
    envelope_id: str = CorrectItem.envelope_id,
    event: str | None = CorrectItem.event,
    item: int = CorrectItem.item,
    value: str | None = option("The new value, packed as the item was: as msgpack or as JSON.", metavar="JSON"),
    file: BinaryIO | None = option("A file with the new bytes."),
    edit: bool = option("Change it in your editor."),
    as_sent: bool = option("Take corrections back: roles get the item as its emitter sent it."),
    role: str | None = CorrectItem.role,
    reason: str = CorrectItem.reason,
    resume: bool = CorrectItem.resume,
) -> None:
    """Replace an item for all roles that lack it, or for one role.

    You correct the item as its emitter sent it, and it passes the workers again. The log keeps the original item, and
    the history both. If it is parked, the bus delivers it when you resume it. A role that has it keeps the old one.

    Fields that the event type calls secret show as ***1, ***2 in your editor. Leave them, and they stay as they are.
    """
    if [value is not None, file is not None, edit, as_sent].count(True) != 1:
        raise click.UsageError("give one of --value, --file, --edit and --as-sent")
    act = CorrectItem(envelope_id=envelope_id, event=event, item=item, role=role, reason=reason, resume=resume)
    target, found = bus.read(act.find)
    after = found.sent if as_sent else _after(found.payload(target.role_id), value, file)
    click.echo("\n".join(act.correct(bus, found, after)))


def _after(present: Payload, value: str | None, file: BinaryIO | None) -> bytes:
    if file is not None:
        return file.read()
    return _edited(present) if value is None else present.replaced(value)


def _edited(payload: Payload) -> bytes:
    before = payload.editable()
    after = click.edit(before, extension=".txt" if payload.kind is Kind.TEXT else ".json")
    if after is None:
        raise Refused("nothing was changed in the editor", code="unchanged")
    # Editors end a file with a new line.
    return payload.rewritten(after if before.endswith("\n") else after.removesuffix("\n"))


SHORT_ID = 12
"""Characters of an id in a list, its prefix with them: enough digits that two of them rarely begin alike."""


@parked.group(cls=CommandGroup)
def batch() -> None:
    """Show and repair batches that a subscriber did not take, and those with damaged items: resume, drop.

    BATCH is the id, which a subscriber has seen as webhook-id, or as many characters of it as only one batch has.
    """


@command(batch, "list")
def list_batches(
    bus: CommandBus,
    subscription: str | None = option("Only those of this subscription.", SUBSCRIPTION),
    reader: str | None = option("Only those of this reader.", READER),
    limit: int = LIMIT,
    output: Output = shown("batch", watch=True),
) -> None:
    """Show parked batches, the newest first."""
    found = bus.read(lambda connection: list_parked_batches(connection, subscription, limit, reader=reader))
    rows = [
        {
            "SINCE": output.when(each.since),
            name_column("READER"): each.whose,
            Column("ATTEMPTS", wide_only=True): each.attempts,
            name_column("CODE"): each.code,
            CAUSE: each.cause,
            "BATCH": each.id if output.is_wide else each.id[:SHORT_ID],
        }
        for each in found
    ]
    more = MORE if len(found) == limit else None
    output.listing(found, of_parked_batch, rows, "No batch is parked.", more)


@command(batch, "show")
def show_batch(bus: CommandBus, batch: str = argument(), output: Output = shown(wide=False)) -> None:
    """Show a parked batch: why it is parked, and the envelopes in it."""
    with bus.reading() as connection:
        found = find_parked_batch(connection, batch)
        events = read_parked_events(connection, found)
    told = {
        "batch": found.id,
        "subscription": found.subscription,
        "reader": found.reader if found.subscription is None else None,
        "parked since": found.since,
        "attempts": found.attempts,
        "error": f"[{found.code}] {found.cause}",
        "places": f"{found.range.batch_begin} to {found.range.batch_end}",
    }
    lines = [*facts(told), *(f"event of {event.type_name} in envelope {event.envelope_id}" for event in events)]
    output.detail({**of_parked_batch(found), "envelope_ids": [event.envelope_id for event in events]}, lines)


class BatchAction(BusAction, ABC):
    """The parked batches that an action is about, by their ids, or the beginnings of some."""

    right = Right.OPERATOR

    batch: Sequence[str] = argument(required=True, longest=255, metavar="BATCH...")

    def find(self, connection: Connection) -> list[ParkedBatch]:
        """Find them.

        Raises:
            Refused: one of them is not parked (``batch_not_parked``), or several begin so (``ambiguous_id``).
        """
        found = [find_parked_batch(connection, each) for each in self.batch]
        return [*{each.id: each for each in found}.values()]


class ResumeBatches(BatchAction):
    """Have parked batches handed out again, and count their attempts anew. It resumes all named ones or none."""

    path = "batches/resume"
    title = "Resume"
    words = "parked batch resume"

    reason: str = OPTIONAL_REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        return (f"{each.whose} gets {each.id} again." for each in bus.read(self.find))

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            found = self.find(connection)
            for each in found:
                resume_batch(connection, each, bus.decision(self.reason))
        return (f"{each.whose} gets {each.id} again." for each in found)


class DropBatches(BatchAction):
    """Drop parked batches for good: their readers go without them. It drops all named ones or none."""

    path = "batches/drop"
    title = "Drop for good"
    words = "parked batch drop"
    question = "Drop that for good?"
    is_final = True

    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        return (f"{each.whose} goes without {each.id}, for good." for each in bus.read(self.find))

    def plan(self, bus: CommandBus) -> Iterator[str]:
        return (f"{each.whose} goes without {each.id}" for each in bus.read(self.find))

    def answer(self, done: Sequence[str]) -> Iterable[str]:
        return ["Dropped."]

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            found = self.find(connection)
            for each in found:
                drop_batch(connection, each, bus.decision(self.reason))
        return (f"{each.whose} goes without {each.id}." for each in found)


command_of(ResumeBatches, batch)
command_of(DropBatches, batch)
