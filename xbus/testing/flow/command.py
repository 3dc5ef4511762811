"""``xbus flow``."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from xbus.admin.arguments import TYPE
from xbus.admin.commands.recipient import load_recipient
from xbus.admin.files.descriptor import Descriptor
from xbus.admin.files.descriptor_file import read_descriptor
from xbus.admin.files.item_file import ItemFile
from xbus.admin.files.text import KINDS, PlainForm
from xbus.admin.output import Output, counted, on_one_line, one_json
from xbus.admin.program import CommandGroup
from xbus.admin.repair.payload import showable
from xbus.admin.signatures import argument, command, option, shown
from xbus.errors import XbusError
from xbus.recipient import Recipient
from xbus.rpc.codec import Value

if TYPE_CHECKING:
    from xbus.testing.flow.hops import Hop
    from xbus.testing.flow.running import FlowResult

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


def _roles(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, type[Recipient]]:
    found: dict[str, type[Recipient]] = {}
    for value in values:
        name, equals, recipient = value.partition("=")
        if not (name and equals and recipient):
            raise click.BadParameter(f"{value} is no service=module:Class", ctx, param)
        found[name] = load_recipient(recipient)
    return found


@click.group(cls=CommandGroup)
def flow() -> None:
    """Try a whole bus, without a broker."""


@command(flow)
def run(
    bus_path: Path = argument(FILE, metavar="BUS"),
    path: Path = option("The items that an emitter sends.", FILE, "--in", required=True, metavar="FILE"),
    type_name: str | None = option(
        "Their event type; by default that of the descriptor, that of the file's name, or the only one that an "
        "emitter of BUS may send.",
        TYPE,
        "--type",
    ),
    roles: dict[str, type[Recipient]] = option(
        "A worker or consumer; once for each. A consumer without one only notes what it gets.",
        None,
        "--role",
        multiple=True,
        callback=_roles,
        metavar="SERVICE=module:Class",
    ),
    out: Path | None = option(
        "Write what each consumer gets into a file of its own, as JSON lines, and print no items.",
        FOLDER,
        metavar="FOLDER",
    ),
    descriptor: Path | None = option("Read the items by an XML input descriptor.", FILE, metavar="FILE"),
    kind: str | None = option("The form of the file, if its name does not say it.", click.Choice(KINDS), "--format"),
    encoding: str | None = option("Its encoding; by default the descriptor's, or utf-8.", metavar="NAME"),
    output: Output = shown("hop", wide=False),
) -> None:
    """Run the items of a file through the graph of a bus file, and show each hop.

    Nothing is needed but the files: the bus is in memory. Chained types are followed, and bots that read run. Workers
    and consumers are classes, as those of xbus recipient run; they are called as by a broker. Nothing is tried twice:
    an exception is shown with its line and its item, and the command ends with 1.
    """
    described = None if descriptor is None else read_descriptor(descriptor)
    event_type = type_name or _type_of(bus_path, path, described)
    items = [*_items(path, described, encoding, PlainForm(kind or ""))]
    # The bus would log each failure as well.
    logging.getLogger("xbus").addHandler(logging.NullHandler())
    # It takes the whole broker with it, which the list of all commands can do without.
    from xbus.testing.flow.running import run_flow

    # What authors print is no part of the answer.
    with redirect_stdout(sys.stderr):
        result = run_flow(bus_path, event_type, items, roles)
    files = {} if out is None else _write(out, result.hops)
    if output.as_json:
        for hop in result.hops:
            click.echo(one_json(_object(hop, files)))
    else:
        click.echo(f"{on_one_line(event_type)}: {counted(len(items))} from {on_one_line(path.name)}")
        _show(event_type, result, files)
    for fault in result.faults:
        for line in fault.splitlines():
            click.echo(on_one_line(line), err=True)
    if result.faults:
        raise XbusError(
            f"{counted(len(result.faults), 'fault')} on the way", "correct the code or the items", code="flow_failed"
        )


def _type_of(bus_path: Path, path: Path, descriptor: Descriptor | None) -> str:
    if descriptor is not None and descriptor.event_type:
        return descriptor.event_type
    from xbus.testing.flow.running import types_of

    sent = types_of(bus_path)
    named = path.name.partition(".")[0]
    if named in sent or len(sent) == 1:
        return named if named in sent else sent[0]
    raise click.UsageError(f"Nothing says the event type: give --type, one of {', '.join(sent) or 'none'}.")


def _items(path: Path, descriptor: Descriptor | None, encoding: str | None, form: PlainForm) -> Iterator[object]:
    with ItemFile(path, descriptor, encoding, form) as file:
        for entry in file.entries(lambda count: None):
            if entry.fault:
                raise XbusError(file.describe(entry, entry.fault), "correct the file", code="bad_line")
            yield entry.item


def _write(folder: Path, hops: Sequence["Hop"]) -> dict[str, str]:
    """Write what consumers got, each into a file of its own; give the files by consumer."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: dict[str, list[object]] = {}
    for hop in hops:
        if hop.kind == "consumer":
            taken.setdefault(hop.name, []).extend(hop.items)
    files = {name: folder / f"{name.replace('/', '_')}.jsonl" for name in taken}
    for name, file in files.items():
        file.write_text("".join(f"{_json(value)}\n" for value in taken[name]), encoding="utf-8")
    return {name: str(file) for name, file in files.items()}


def _show(first: str, result: "FlowResult", files: dict[str, str]) -> None:
    shown = first
    for hop in result.hops:
        if hop.event_type != shown:
            shown = hop.event_type
            click.echo(on_one_line(f"{shown}:"))
        arrow = "->" if hop.node is None else f"{hop.node} ->"
        click.echo("  " + on_one_line(f"{arrow} {_words(hop)}{_file(hop, files)}"))
        for value in hop.items if hop.name not in files else ():
            click.echo("    " + on_one_line(_json(value)))


def _object(hop: "Hop", files: dict[str, str]) -> dict[str, object]:
    return {
        "type": hop.event_type,
        "node": hop.node,
        "kind": hop.kind,
        "name": hop.name,
        "items": hop.items_in,
        "items_out": hop.items_out,
        "values": [*(showable(cast(Value, each)) for each in hop.items)] if hop.kind == "consumer" else None,
        "file": files.get(hop.name) if hop.kind == "consumer" else None,
    }


def _words(hop: "Hop") -> str:
    if hop.kind == "emits":
        return f"{hop.name}: {counted(hop.items_in)}"
    made = "" if hop.items_out is None else f", {hop.items_out:,} out"
    return f"{hop.kind} {hop.name}: {counted(hop.items_in)}{made}"


def _file(hop: "Hop", files: dict[str, str]) -> str:
    return f" in {files[hop.name]}" if hop.kind == "consumer" and hop.name in files else ""


def _json(value: object) -> str:
    """Write a value as JSON; items that are no maps, too."""
    return one_json({"": showable(cast(Value, value))})[len('{"": ') : -1]
