"""Uploading a file: its first items are shown, then its person sends it as an emitter does, through the front."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, File, Form, UploadFile
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from xbus.admin.address import broker_address
from xbus.admin.files.descriptor import Descriptor
from xbus.admin.files.descriptor_file import parse_descriptor
from xbus.admin.files.item_file import ItemFile, SkipBadLines, StopAtBadLine, send_files
from xbus.admin.files.text import Choices, PlainForm
from xbus.admin.repair.payload import showable
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.configuration import read_stored
from xbus.broker.journal.operations.descriptors import list_descriptors, read_descriptor
from xbus.emitter import Emitter, Receipt
from xbus.errors import Refused
from xbus.files import CsvForm, named_delimiter
from xbus.files.text_lines import NO_TEXT
from xbus.monitor.bus import BusAccess, VisitorBus
from xbus.monitor.rendering import TheBus, ThePage, TheVisitor, reserved_for
from xbus.rights import Right

router = APIRouter(prefix="/upload", route_class=reserved_for(Right.UPLOADER))

SHOWN_ITEMS = 10

CHECKED_ENTRIES = 2_000
"""Entries that the preview reads. More find more bad lines and keep the page waiting."""

SHOWN_FAULTS = 20

SEND_SECONDS = 20.0
"""So long the monitor insists while the bus does not answer. Longer keeps one of its few threads."""

CHUNK = 1024 * 1024

MOST_UNPACKED_BYTES = 256 * 1024 * 1024
"""Bytes to which a packed file may unpack, four times as many as a request has. More let a small file keep a thread for
hours, fewer refuse tables that pack well."""

CHOICES = Choices(
    encoding="{} in the field Encoding",
    delimiter="the field Delimiter",
    kind="convert it, or choose a descriptor",
    empty="see whether it is complete",
)
"""The fields of the form."""


class UploadForm(BaseModel):
    """A person's answers beside the file.

    Args:
        descriptor: of the database; empty where the name of the file says its form.
        encoding: of the text; empty for that of its mark or descriptor, or UTF-8.
        delimiter: as ``xbus emit`` takes it; empty for the one in the first row.
        header: ``absent`` where the first row of CSV names no fields.
        type: the event type; empty for that of the descriptor.
        digest: SHA-256 of the file in the preview; empty where the person saw none.
    """

    descriptor: str = ""
    encoding: Annotated[str, Field(max_length=80)] = ""
    delimiter: Annotated[str, Field(max_length=80)] = ""
    header: Literal["", "present", "absent"] = ""
    type: str = ""
    emitter: str = ""
    password: Annotated[str, Field(max_length=1024, repr=False)] = ""
    key: Annotated[str, Field(max_length=1024)] = ""
    skip_bad: bool = False
    digest: str = ""


TheUpload: TypeAlias = Annotated[UploadFile, File()]

TheAnswers: TypeAlias = Annotated[UploadForm, Form()]


@router.get("")
def ask(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Ask for a file, its descriptor and its emitter."""
    stored, descriptors = bus.read(read_stored), bus.read(list_descriptors)
    return page("upload/form.html", descriptors=descriptors, it=stored.in_use)


@router.post("/preview")
def preview(bus: TheBus, page: ThePage, file: TheUpload, asked: TheAnswers) -> HTMLResponse:
    """Show the first items, and lines that are bad; nothing is sent."""
    descriptor, event_type = _form_of(bus, asked)
    found: list[str] = []
    with _received(file, descriptor, asked, found) as (items, digest):
        seen = list(islice(items.entries(lambda _: None), CHECKED_ENTRIES + 1))
        good = [showable(entry.item) for entry in seen if not entry.fault]
        faults = [items.describe(entry, entry.fault) for entry in seen if entry.fault][:SHOWN_FAULTS]
        found.append(_read_as(items))
    if any(NO_TEXT in fault for fault in faults):
        found.append(f"Correct the lines{CHOICES.or_encoding()}.")
    return page(
        "upload/preview.html",
        items=good[:SHOWN_ITEMS],
        faults=faults,
        entries_read=min(len(seen), CHECKED_ENTRIES),
        is_whole=len(seen) <= CHECKED_ENTRIES,
        type=event_type,
        digest=digest,
        found=found,
    )


@router.post("")
def send(bus: TheBus, page: ThePage, visitor: TheVisitor, file: TheUpload, asked: TheAnswers) -> HTMLResponse:
    """Send the items of a file as one envelope of an emitter, whose password the person knows."""
    descriptor, event_type = _form_of(bus, asked)
    if not event_type:
        raise Refused("no event type is named", "choose one, or a descriptor that names it", code="no_event_type")
    told: list[str] = []
    with _received(file, descriptor, asked, told) as (items, digest):
        if asked.digest and asked.digest != digest:
            raise Refused(
                "this is another file than you have seen", "look at it again, then send it", code="other_file"
            )
        bad = SkipBadLines(partial(_tell, told)) if asked.skip_bad else StopAtBadLine()
        receipt = _send(bus, asked, event_type, items, bad)
        read_as = _read_as(items)
    name = _name_of(file)
    with VisitorBus(bus, visitor).writing() as connection:
        sent = f"envelope {receipt.envelope_id}, {name}"
        note_acts(connection, [act_here(bus.now(), "uploaded", f'emitter "{asked.emitter}"', after=sent)])
    return page("upload/sent.html", receipt=receipt, bad=bad.count, told=[*told, read_as], asked=asked, name=name)


def _send(bus: BusAccess, asked: UploadForm, event_type: str, items: ItemFile, bad: StopAtBadLine) -> Receipt:
    address = broker_address("front", None, bus.config.file)
    with Emitter(
        address, asked.emitter, asked.password, retry_seconds=SEND_SECONDS, pause_seconds=SEND_SECONDS
    ) as emitter:
        with emitter.envelope(key=asked.key or None) as envelope:
            send_files(envelope, [event_type], [items], bad, lambda _: None)
        return envelope.receipt


def _form_of(bus: BusAccess, asked: UploadForm) -> tuple[Descriptor | None, str]:
    """Find the descriptor, and the type of the items."""
    if not asked.descriptor:
        return None, asked.type
    content = bus.read(lambda connection: read_descriptor(connection, asked.descriptor))
    if content is None:
        raise Refused(f'there is no descriptor "{asked.descriptor[:255]}"', "choose another", code="descriptor_unknown")
    descriptor = parse_descriptor(content, asked.descriptor)
    return descriptor, asked.type or descriptor.event_type


def _csv_of(asked: UploadForm, descriptor: Descriptor | None) -> CsvForm:
    """Read what the person says of CSV.

    Raises:
        Refused: it means nothing, or a descriptor says it already (``unknown_format``).
    """
    try:
        delimiter = named_delimiter(asked.delimiter) if asked.delimiter else ""
    except ValueError as error:
        step = "give one character in the field Delimiter, or tab"
        raise Refused(str(error), step, code="unknown_format") from None
    form = CsvForm(delimiter, has_names=asked.header != "absent")
    if descriptor is not None and form != CsvForm():
        step = "leave the fields Delimiter and Names as they were, or choose no descriptor"
        raise Refused("the descriptor says the form of the file", step, code="unknown_format")
    return form


@contextmanager
def _received(
    file: UploadFile, descriptor: Descriptor | None, asked: UploadForm, told: list[str]
) -> Iterator[tuple[ItemFile, str]]:
    """Give an uploaded file as one of items, with its SHA-256; it is gone at the end."""
    name = _name_of(file)
    form = PlainForm(csv=_csv_of(asked, descriptor))
    if descriptor is None:
        form = form.complete(Path(name), CHOICES)
    digest = hashlib.sha256()
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="xbus-upload-"))
        # Its own name may be anything; only that of a packed file means something to who reads it.
        path = Path(folder) / ("upload.gz" if name.lower().endswith(".gz") else "upload")
        with path.open("wb") as copy:
            while chunk := file.file.read(CHUNK):
                digest.update(chunk)
                copy.write(chunk)
        tell = partial(_tell, told)
        items = ItemFile(
            path, descriptor, asked.encoding.strip() or None, form, tell, name, CHOICES, MOST_UNPACKED_BYTES
        )
        stack.enter_context(items)
        yield items, digest.hexdigest()


def _read_as(items: ItemFile) -> str:
    """Say in which encoding a file was read."""
    return f"Its encoding is {items.reader.encoding.upper()}."


def _tell(told: list[str], sentence: str) -> None:
    """Keep the first sentences, as many as a page shows: a packed file may have bad lines without end."""
    if len(told) < SHOWN_FAULTS:
        told.append(sentence)


def _name_of(file: UploadFile) -> str:
    """Give the name of a file without folders, as far as it can be shown."""
    name = (file.filename or "").replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in name if letter.isprintable())[:255] or "file"
