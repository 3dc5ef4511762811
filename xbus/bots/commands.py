"""Runs a command for a bot: it reads its batch and prints its output, a line of JSON for each item."""

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import IO

from xbus.bots.job import RunJob
from xbus.bots.output import BotOutput
from xbus.errors import Failed, Refused
from xbus.json_text import parse_json
from xbus.json_views import has_one_name_twice
from xbus.reader import ReadItem
from xbus.rpc.curve import KEY_VARIABLES

LONGEST_LINE = 16 * 1024 * 1024
"""The bytes of an item as JSON; the front takes no larger ones anyway."""

READ_BYTES = 1024 * 1024

END_SECONDS = 0.1
"""Seconds between looks at whether a program that prints nothing has ended while another one keeps its pipe."""


def run_command(job: RunJob, out: BotOutput) -> None:
    """Run the command to its end, and put what it prints.

    Raises:
        Refused: the program can't be started (``command_not_found``), an item of its batch has no JSON
            (``item_not_json``), or it prints what is no item (``bad_output``).
        Failed: it ends with an error (``command_failed``).
    """
    run = job.run
    emits = run["emits"]
    words = {
        "XBUS_BOT": run["bot"],
        "XBUS_SLOT": run["slot"] or "",
        "XBUS_ATTEMPT": str(run["attempt"]),
        "XBUS_SETTINGS": json.dumps(run["settings"]),
    }
    with tempfile.TemporaryFile() as batch:
        # A file, as a program may print before it has read all of it.
        batch.writelines(_lines(job.batch.items, is_typed=len(run["reads"]) > 1))
        batch.seek(0)
        _run(run["command"], words, batch, emits, out)


def _run(command: list[str], words: Mapping[str, str], batch: IO[bytes], emits: list[str], out: BotOutput) -> None:
    # The child itself has the way to the front; a command puts through its output.
    inherited = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}
    try:
        process = subprocess.Popen(
            command,
            env={**inherited, **words},
            stdin=batch,
            stdout=subprocess.PIPE if emits else None,
        )
    except OSError as error:
        raise Refused(
            f"the command can't be started ({error})",
            "see that it is installed at the runner",
            code="command_not_found",
        ) from None
    with process:
        try:
            if process.stdout is not None:
                lines = _until_end(process, process.stdout.fileno())
                for type_name, items in groupby(_items(lines, emits), itemgetter(0)):
                    out.put(type_name, (item for _, item in items))
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if code:
        raise Failed(f"the command ended with {code}", "see xbus bot log", code="command_failed")


def _until_end(process: "subprocess.Popen[bytes]", source: int) -> Iterator[bytes]:
    """Iterate over the lines that a program prints until it ends.

    The pipe may stay open behind its end: a program that it has left behind keeps it.

    Raises:
        Refused: a line is longer than ``LONGEST_LINE`` (``bad_output``).
    """
    os.set_blocking(source, False)
    rest = b""
    while True:
        has_ended = process.poll() is not None
        # Without a sign of the program's end it is looked at now and then; what it prints is read at once.
        select.select([source], [], [], 0 if has_ended else END_SECONDS)
        try:
            data = os.read(source, READ_BYTES)
        except BlockingIOError:
            if has_ended:
                break
            continue
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > LONGEST_LINE:
            raise Refused("a line of what the command printed has no end", "print an item a line", code="bad_output")
        if not data:
            break
    if rest:
        yield rest


def _lines(items: Sequence[ReadItem], *, is_typed: bool) -> Iterator[bytes]:
    """Write each item: alone, or, where the bot reads several types, in a list of its type and itself."""
    for item in items:
        try:
            if has_one_name_twice(item.value):
                raise ValueError("two keys of a map would be the same name")
            line = json.dumps([item.event_type, item.value] if is_typed else item.value)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(
                f'item {item.index} of an event of "{item.event_type}" has no JSON ({error})',
                "use call in the place of command",
                code="item_not_json",
            ) from None
        yield line.encode() + b"\n"


def _items(lines: Iterable[bytes], emits: list[str]) -> Iterator[tuple[str, object]]:
    """Read each line: an item, or, where the bot emits several types, a list of a type and an item."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = parse_json(line)
        except ValueError as error:
            raise Refused(
                f"line {number} of what the command printed is no JSON ({error!s:.160})",
                "print an item a line",
                code="bad_output",
            ) from None
        if len(emits) == 1:
            yield emits[0], found
        elif isinstance(found, list) and len(found) == 2 and isinstance(found[0], str):
            yield found[0], found[1]
        else:
            raise Refused(
                f"line {number} of what the command printed names no type",
                'print ["type", item], as the bot emits several types',
                code="bad_output",
            )
