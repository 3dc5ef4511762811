"""The pages of the documentation: their blocks of code, and a terminal that does what they show."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).parents[2]
PAGES = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
EXAMPLES = sorted(CHECKOUT.glob("examples/**/*.py"))
DESCRIPTORS = sorted(CHECKOUT.glob("examples/*.xml"))

COMMAND_SECONDS = 180.0

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"`([\w.]+)`:\n\n\Z")

_TERMINAL = """\
exec 3< "$1"
while IFS= read -r line <&3; do
    eval "$line" < /dev/null
    echo "[exit $?]"
done
"""


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: what stands behind the fence.
        text: what is in it.
        file: the file that it shows, where the line before it ends with the name.
    """

    language: str
    text: str
    file: str


def blocks(page: Path, language: str = "") -> Iterator[Block]:
    """The blocks of a page, of one language or of all."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        if language in ("", found[1]):
            named = _FILE_NAME.search(text[: found.start()])
            yield Block(found[1], found[2], named[1] if named else "")


def title(page: Path) -> str:
    """A page's path in the checkout."""
    return str(page.relative_to(CHECKOUT))


LOOK = re.compile(r"xbus (health|find|(\w+ )+(list|show|items|runs|log))\b")
"""Commands that change nothing."""


PORTS = ("1984", "1985", "4891", "4892", "2984", "5891", "8085", "8099", "8484", "9180")
"""The ports that pages name."""


class Terminal:
    """A shell in a folder with the checkout's examples, on ports of its own.

    Args:
        folder: where it works.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        shutil.copytree(
            CHECKOUT / "examples",
            folder / "examples",
            ignore=shutil.ignore_patterns("demo", "node_modules", "__pycache__"),
        )
        shutil.copy(CHECKOUT / "config.ini.sample", folder)
        for path in (folder / "config.ini.sample", *folder.glob("examples/*.py")):
            path.write_text(self.localized(path.read_text(encoding="utf-8")), encoding="utf-8")
        fifo = folder / "commands"
        os.mkfifo(fifo)
        environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self._process = Process(
            "bash", "-c", _TERMINAL, "bash", fifo, output=folder / "output", cwd=folder, env=environment
        )
        self._commands = fifo.open("w", encoding="utf-8")
        self._done = 0

    def localized(self, text: str) -> str:
        """The text with the ports of this terminal."""
        # All at once: a port of one's own may hold the figures of another one.
        return re.sub("|".join(self._ports), lambda found: self._ports[found[0]], text)

    def follow(self, page: Path) -> None:
        """Write the files that a page shows, and give its commands, each with what it must bring about."""
        for block in blocks(page):
            if block.file:
                # Bus files may name addresses to be called.
                text = self.localized(block.text) if block.file.endswith(".toml") else block.text
                (self.folder / block.file).write_text(text, encoding="utf-8")
            if block.language == "console":
                for command, expected in _commands(block.text):
                    self._follow(command, expected)

    def _follow(self, command: str, expected: list[str]) -> None:
        def brought_about() -> bool:
            is_done = self._exits[-1] == "0" and self._shows(expected)
            # What is noted a moment later is seen at the next look.
            if not is_done and LOOK.match(command):
                self._give(command)
            return is_done

        self._give(command)
        if not LOOK.match(command):
            self._check_exit(command)
        wait_until(brought_about, f"{command} brings about {expected}", COMMAND_SECONDS)
        self._check_exit(command)

    def give(self, command: str) -> None:
        """Give one command and wait until it is done, or runs in the background."""
        self._give(command)
        self._check_exit(command)

    def _give(self, command: str) -> None:
        self._commands.write(self.localized(command) + "\n")
        self._commands.flush()
        self._done += 1
        wait_until(lambda: len(self._exits) == self._done, f"{command} is done", COMMAND_SECONDS)

    def _check_exit(self, command: str) -> None:
        assert self._exits[-1] == "0", f"{command}: {self.output}"

    @property
    def output(self) -> str:
        """All that was written so far."""
        return self._process.text

    @property
    def _exits(self) -> list[str]:
        return re.findall(r"^\[exit (\d+)\]$", self.output, re.MULTILINE)

    def _shows(self, expected: list[str]) -> bool:
        return all(re.search(_pattern(self.localized(line)), self.output, re.MULTILINE) for line in expected)

    def close(self) -> None:
        """End everything that was started here."""
        self._commands.close()
        self._process.kill()


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield command, [line for line in lines if line.strip()]


def _pattern(line: str) -> str:
    """A line as shown: … stands for anything, spaces for any number of them."""
    parts = (r"[ \t]+".join(map(re.escape, part.split())) for part in line.split("…"))
    return rf"^[ \t]*{'.*'.join(parts)}[ \t]*$"
