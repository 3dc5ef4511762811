"""Reads the CSV of requests, while it comes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from xbus.errors import Refused
from xbus.files.csv_items import CsvForm, CsvItems
from xbus.files.entry import Entry, Unreadable
from xbus.files.text_lines import LineDecoder, TextDecoder, TextLine
from xbus.http.bodies.body import UNCOUNTED_BYTES, Body
from xbus.http.bodies.media_types import MediaType
from xbus.rpc.items import item_bytes

MOST_GROWTH = 64
"""Bytes of items at the most for each character of rows: items repeat the names. Fewer refuse sparse rows under long
names, more let small requests fill the journal."""

FREE_BYTES = 1_048_576
"""Bytes of items that no growth bounds."""


def csv_form(media_type: MediaType) -> CsvForm:
    """Read the form that the parameters ``header`` (RFC 4180) and ``delimiter`` say.

    Raises:
        Refused: they say something else (``unknown_format``).
    """
    header = media_type.parameters.get("header", "present").lower()
    delimiter = media_type.parameters.get("delimiter", "")
    delimiter = "\t" if delimiter.lower() in ("tab", "\\t") else delimiter
    if header not in ("present", "absent"):
        raise Refused(f"header={header:.40} means nothing", "give header=present or absent", code="unknown_format")
    if len(delimiter) > 1 or delimiter in ('"', "\r", "\n"):
        raise Refused(
            f"the delimiter {delimiter!r:.40} is no single character",
            'give one, such as delimiter=";", or tab',
            code="unknown_format",
        )
    return CsvForm(delimiter, has_names=header == "present")


async def csv_items(body: Body, media_type: MediaType, tell: Callable[[str], object]) -> AsyncIterator[bytes]:
    """Iterate over the rows, while they come, as maps of texts, or as lists where there are no names.

    Raises:
        Refused: it is no CSV (``bad_body``), or its items are far larger than itself (``body_too_large``).
    """
    decoder = TextDecoder(media_type.parameters.get("charset", ""), tell)
    lines = LineDecoder(decoder, is_universal=True)
    items = CsvItems(csv_form(media_type), decoder, tell)
    most = FREE_BYTES
    async for line in _lines(body, lines, items):
        if line is None:
            entries: Iterable[Entry] = items.finish()
        elif len(line.text) > UNCOUNTED_BYTES:
            body.make(line.text.count('"'))
            entries = await asyncio.to_thread(lambda line: [*_checked(items.take(line))], line)
            body.unmake()
        else:
            entries = items.take(line)
        most += 0 if line is None else MOST_GROWTH * len(line.text)
        for entry in _checked(entries):
            item = item_bytes(entry.item)
            most -= len(item)
            if most < 0:
                raise Refused(
                    f"the items are more than {MOST_GROWTH} times as large as their rows, as each repeats the names",
                    "send shorter names, or items line by line, as application/x-ndjson",
                    code="body_too_large",
                )
            yield item


async def _lines(body: Body, lines: LineDecoder, items: CsvItems) -> AsyncIterator[TextLine | None]:
    """Iterate over the lines, and None at the end; what is kept of them and of rows takes room."""
    try:
        async for part in body.parts():
            for line in lines.take(part):
                yield line
            body.hold(lines.kept + items.kept)
        for line in lines.take(b"", is_last=True):
            yield line
        yield None
    except Unreadable as error:
        raise _bad(error.line, error.reason, error.encoding) from None


def _checked(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Let good entries pass.

    Raises:
        Refused: one is bad (``bad_body``).
    """
    try:
        for entry in entries:
            if entry.fault:
                raise _bad(entry.line, entry.fault)
            yield entry
    except Unreadable as error:
        raise _bad(error.line, error.reason, error.encoding) from None


def _bad(line: int, fault: str, encoding: str = "") -> Refused:
    other = f", or send it as text/csv; charset={encoding}" if encoding else ""
    return Refused(f"the body is no CSV: line {line}: {fault}", f"correct it{other}", code="bad_body")
