"""``xbus emit``."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from xbus.admin.address import TIMEOUT, CommandLogin, way_to
from xbus.admin.arguments import TYPE
from xbus.admin.files.descriptor import Descriptor
from xbus.admin.files.descriptor_file import read_descriptor
from xbus.admin.files.item_file import CollectBadLines, ItemFile, SkipBadLines, StopAtBadLine, send_files
from xbus.admin.files.text import KINDS, STANDARD_INPUT, PlainForm
from xbus.admin.output import counted
from xbus.admin.progress import progress, tell
from xbus.admin.signatures import CommandBus, argument, command, option
from xbus.errors import Refused
from xbus.files import CsvForm, named_delimiter
from xbus.headers import Headers, header_of_text, pack_headers, unpack_headers
from xbus.rpc.curve import PASSWORD_VARIABLE

STOP, SKIP, COLLECT = "stop", "skip", "collect"

_POLICY = "--on-bad-line"
_FILE = "--bad-lines"


class _EmitCommand(click.Command):
    """Takes ``--on-bad-line collect FILE``, while an option of click takes the same number of words each time."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if str(STANDARD_INPUT) in args:
            _check_that_nothing_is_asked(ctx, args)
        return super().parse_args(ctx, _named_file(ctx, args))


def _check_that_nothing_is_asked(ctx: click.Context, args: Sequence[str]) -> None:
    """See that login and password are given: a question would take its answer from the file."""
    address = next((word for word in args if word.removeprefix("--url=").startswith("xbus://")), "")
    for named, variable, part in (
        ("--login", "XBUS_LOGIN", "@"),
        ("--password-file", PASSWORD_VARIABLE, "password_file="),
    ):
        is_named = part in address or any(word.partition("=")[0] == named for word in args)
        if not is_named and not os.environ.get(variable):
            raise click.UsageError(f"The standard input is the file to send: give {named}, or set {variable}.", ctx)


def _named_file(ctx: click.Context, args: Sequence[str]) -> list[str]:
    """Complete the arguments with the file's own option for bad lines."""
    named: list[str] = []
    words = iter(args)
    for word in words:
        named.append(word)
        if word == "--":
            named += words
        elif word == _POLICY and (policy := next(words, None)) is not None:
            named.append(policy)
        if named[-2:] == [_POLICY, COLLECT] or word == f"{_POLICY}={COLLECT}":
            file = next(words, "-")
            if file.startswith("-"):
                raise click.UsageError(f"{_POLICY} {COLLECT} needs a FILE behind it for the bad lines.", ctx)
            named += [_FILE, file]
    return named


def _read_descriptor(value: str) -> Descriptor:
    """Read the descriptor that ``FILE`` or ``FILE#NAME`` means; a file's own name may have a #, too."""
    path, _, name = value.rpartition("#")
    return read_descriptor(Path(path), name) if path and not Path(value).exists() else read_descriptor(Path(value))


def _read_headers(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> Headers:
    """Read headers as texts or as JSON; they are checked before anything is asked or sent."""
    headers: dict[str, object] = {}
    try:
        for name, value in map(header_of_text, values):
            if name in headers:
                raise click.BadParameter(f"header {name} is given twice", ctx, param)
            headers[name] = value
        return unpack_headers(pack_headers(headers))
    except Refused as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _read_delimiter(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Read a character, or the name of one that is hard to type."""
    try:
        return "" if value is None else named_delimiter(value)
    except ValueError:
        raise click.BadParameter("give one character that is no letter or digit, or tab", ctx, param) from None


DESCRIPTORS = option(
    "Read the files by an XML input descriptor: the first one in FILE, or the one of that name. "
    "Give it once for all files, or once for each in their order.",
    None,
    "--descriptor",
    callback=lambda ctx, param, values: [*map(_read_descriptor, values)],
    metavar="FILE[#NAME]",
)
HEADERS = option(
    "A header of the envelope; give it once for each.",
    None,
    "--header",
    multiple=True,
    callback=_read_headers,
    metavar="NAME=TEXT|NAME:=JSON",
)
DELIMITER = option(
    "Between two fields of a .csv file, or tab; by default the one in its first line.",
    callback=_read_delimiter,
    metavar="CHARACTER",
)
POLICY = option(
    "Send nothing (stop, the default), leave bad lines out (skip), or also write them into FILE (collect).",
    click.Choice([STOP, SKIP, COLLECT]),
    _POLICY,
    default=STOP,
    metavar="stop|skip|collect FILE",
)


@command(kind=_EmitCommand)
def emit(
    bus: CommandBus,
    paths: tuple[Path, ...] = argument(required=True, metavar="FILE..."),
    type_name: str | None = option("The event type; by default the one in the descriptor.", TYPE, "--type"),
    descriptors: Sequence[Descriptor] = DESCRIPTORS,
    kind: str | None = option("The form of the files, if their names don't say it.", click.Choice(KINDS), "--format"),
    delimiter: str = DELIMITER,
    without_names: bool = option("The first row of a .csv file has no names: each row is a list of texts."),
    allow_empty: bool = option("Send a file without items, too."),
    encoding: str | None = option("The files' encoding; by default the descriptor's, or utf-8.", metavar="NAME"),
    policy: str = POLICY,
    bad_lines: Path | None = option("", None, _FILE, hidden=True),
    ordering_key: str | None = option("Ordered roles get the envelopes of one key in their order."),
    key: str | None = option("Your name for this envelope: under one key the bus takes one envelope."),
    headers: Headers = HEADERS,
    way: CommandLogin = way_to("front", "The emitter's login"),
    timeout: float = TIMEOUT,
) -> None:
    """Send the items of each FILE as one event, and all files as one envelope: all of it, or nothing.

    A row of a .csv or .tsv file becomes a map: its keys are the names in the first line, its values are texts. A line
    of a .jsonl file becomes its value. With --descriptor the command reads files of CSV, of fixed length and of XML. A
    file that gzip has packed is unpacked. - is the standard input, and needs --format or --descriptor.
    """
    kinds = _kinds(len(paths), descriptors)
    event_types = [type_name or (kind.event_type if kind else "") for kind in kinds]
    if not all(event_types):
        raise click.UsageError("No event type is named: give --type, or <eventtype> in the descriptor.")
    if (policy == COLLECT) != (bad_lines is not None):
        raise click.UsageError(f"A file for bad lines goes with {_POLICY} {COLLECT}.")
    if policy == COLLECT and len(paths) > 1:
        raise click.UsageError(f"{_POLICY} {COLLECT} takes one file to send at a time.")
    form = _form(paths, descriptors, kind, CsvForm(delimiter, has_names=not without_names))
    with ExitStack() as opened:
        files = [
            opened.enter_context(ItemFile(path, kind, encoding, form, _tell))
            for path, kind in zip(paths, kinds, strict=True)
        ]
        bad = opened.enter_context(_policy(policy, bad_lines))
        emitter = opened.enter_context(way.emitter(timeout))
        with (
            _progress(files) as on_bytes,
            emitter.envelope(ordering_key=ordering_key, key=key, headers=headers) as envelope,
        ):
            send_files(envelope, event_types, files, bad, on_bytes, allow_empty=allow_empty)
    receipt = envelope.receipt
    click.echo(f"{counted(receipt.items)} sent: envelope {receipt.envelope_id}, position {receipt.position}")
    if bad.count:
        lines = "1 bad line was" if bad.count == 1 else f"{bad.count:,} bad lines were"
        _tell(f"{lines} left out{_to_correct(bad_lines, bad.count)}")


def _kinds(files: int, descriptors: Sequence[Descriptor]) -> Sequence[Descriptor | None]:
    """Give the descriptor of each file."""
    if len(descriptors) == files:
        return descriptors
    if len(descriptors) > 1:
        raise click.UsageError("Give --descriptor once for all files, or once for each in their order.")
    return [descriptors[0] if descriptors else None] * files


def _form(paths: Sequence[Path], descriptors: Sequence[Descriptor], kind: str | None, csv: CsvForm) -> PlainForm:
    """Give what is said of files without a descriptor."""
    if paths.count(STANDARD_INPUT) > 1:
        raise click.UsageError("The standard input can be sent once.")
    if descriptors and (kind or csv != CsvForm()):
        raise click.UsageError(
            "A descriptor says the form of the files: leave out --format, --delimiter and --without-names."
        )
    if STANDARD_INPUT in paths and not (descriptors or kind):
        raise click.UsageError("Nothing says what the standard input is: give --format, or --descriptor.")
    return PlainForm(kind or "", csv)


@contextmanager
def _progress(files: Sequence[ItemFile]) -> Iterator[Callable[[int], object]]:
    """Show how much of the files is read, where that is known."""
    sizes = [file.size for file in files if file.size is not None]
    if len(sizes) < len(files):
        yield lambda count: None
        return
    label = f"Sending {Path(files[0].name).name}" if len(files) == 1 else f"Sending {len(files)} files"
    with progress(sum(sizes), label) as bar:
        yield bar.update


def _policy(policy: str, bad_lines: Path | None) -> StopAtBadLine:
    if policy == COLLECT and bad_lines is not None:
        return CollectBadLines(_tell, bad_lines)
    return SkipBadLines(_tell) if policy == SKIP else StopAtBadLine()


def _tell(sentence: str) -> None:
    tell(f"xbus: {sentence}")


def _to_correct(path: Path | None, count: int) -> str:
    if path is None:
        return ""
    are, them = ("is", "it") if count == 1 else ("are", "them")
    return f" and {are} in {path}: correct {them} there and send that file"
