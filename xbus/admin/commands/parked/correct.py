"""``xbus parked correct``."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from xbus.admin.commands.parked.decide import envelope_argument, event_option, role_option
from xbus.admin.program import config_option, database_url, reason_option
from xbus.admin.repair.corrections import CorrectionTarget, Reach, check_size, find_target, read_reach, read_standing
from xbus.admin.repair.corrections import correct as correct_item
from xbus.admin.repair.moves import decision_of, resume_place
from xbus.admin.repair.payload import Kind, Payload
from xbus.admin.repair.sentences import corrected_sentence, reach_sentences, resumed_sentences
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.clock import SystemClock
from xbus.config import load
from xbus.errors import Refused
from xbus.ids import Ids


@click.command()
@config_option
@envelope_argument
@event_option
@click.option("--item", type=click.IntRange(0), required=True, metavar="INDEX", help="The item, counted from 0.")
@click.option("--value", metavar="JSON", help="The new value, packed as the item was: as msgpack or as JSON.")
@click.option("--file", type=click.File("rb"), help="A file with the new bytes.")
@click.option("--edit", is_flag=True, help="Change it in your editor.")
@click.option("--as-sent", is_flag=True, help="Take corrections back: roles get the item as its emitter sent it.")
@role_option("Only for this role, for which it is parked; by default for all roles that lack it and all later ones.")
@reason_option
@click.option("--resume", "resumes", is_flag=True, help="Resume it at once, for all roles for which it is parked.")
def correct(
    config_path: Path | None,
    envelope_id: str,
    event: str | None,
    item: int,
    value: str | None,
    file: BinaryIO | None,
    edit: bool,
    as_sent: bool,
    role: str | None,
    reason: str,
    resumes: bool,
) -> None:
    """Replace an item for all roles that lack it, or for one role.

    You correct the item as its emitter sent it, and it passes the workers again. The log keeps the original item, and
    the history both. If it is parked, the bus delivers it when you resume it. A role that has it keeps the old one.

    Fields that the event type calls secret show as ***1, ***2 in your editor. Leave them, and they stay as they are.
    """
    if [value is not None, file is not None, edit, as_sent].count(True) != 1:
        raise click.UsageError("give one of --value, --file, --edit and --as-sent")
    url = database_url(config_path)
    with reading(url) as connection:
        wanted = resolve_envelope(connection, envelope_id)
        target = find_target(connection, wanted, role, event, item)
        found = read_standing(connection, target)
    after = found.sent if as_sent else _after(found.payload(target.role_id), value, file)
    check_size(after, load(config_path).front.max_item_bytes)
    decision = decision_of(SystemClock(), reason)
    with writing(url) as connection:
        target = find_target(connection, wanted, role, event, item)
        reach = read_reach(connection, target)
        correct_item(connection, target, found, after, decision)
        ids = Ids(SystemClock())
        resumed = [resume_place(connection, place, decision, ids) for place in target.places] if resumes else []
    click.echo("\n".join(_lines(target, reach)))
    for each in resumed:
        click.echo("\n".join(resumed_sentences(each)))
    if target.places and not resumes:
        click.echo(f"Next: xbus parked resume {wanted}")


def _lines(target: CorrectionTarget, reach: Reach) -> Iterator[str]:
    yield corrected_sentence(target, done=True)
    yield from reach_sentences(target, reach)


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
