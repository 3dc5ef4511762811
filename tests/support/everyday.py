"""Tells the everyday suite from what only ``make test-slow`` and CI run, and cuts the latter into parts.

A test is slow if it is marked so, lies in a folder of crashes and schedules, or plays a long page of the documentation.
It also is if it does on another database, or another way, what the everyday suite does already.
"""

import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.ways import PORT

TESTS = Path(__file__).parents[1]

SLOW_FOLDERS = ("fault", "simulation")

SLOW_MODULES = {
    "acceptance": {
        *("accessibility", "live_monitor", "monitor"),  # a browser
        *("client_alone", "demo", "node", "upgrade", "web_server", "wheel", "without_spark"),  # other environments
        *("backup", "changes_while_it_runs", "forks", "instances", "limits_of_emitters", "renaming"),  # many processes
        *("history", "keys", "replay_of_archived", "secrets_of_programs", "what_is_owed"),
        *("http", "subscriptions"),  # a gateway, whose parts the integration tests know
    },
    "contract": {"archive", "fsck", "grants", "relocation"},
    "integration": {"deaths", "pruning", "sink_sending", "terminal"},
    "unit": {"forked"},
}
"""Modules whose tests take ten times as long as their neighbours; whoever changes what they are about runs them."""

REPEATS = {"acceptance": {"postgresql", "postgres_url", PORT}, "integration": {"postgresql"}}
"""Values of a parameter by which a test in a folder does again what it does with the other value.

The contracts stay on both databases: they hold all SQL, so programs and commands are run on one of them.
"""

LONG = "long"
"""The marker of contracts that take seconds on each database: every day they run on one that is not PostgreSQL."""

SHORT_PAGE = "README.md"
"""The page of commands that the everyday suite plays; each of the others starts brokers and dozens of commands."""

PAGES_OF_COMMANDS = "test_the_commands_of_a_page_do_what_it_shows"


EVERYDAY = "not slow"
"""The expression of markers by which make test chooses."""


def is_left_out(path: Path, expression: str) -> bool:
    """Check whether a run takes no test of a file or folder, so that nothing of it needs to be imported.

    Args:
        expression: of the markers that the run takes.
    """
    return expression == EVERYDAY and _is_wholly_slow(path)


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that a rule leaves out of the everyday suite."""
    for item in items:
        if isinstance(item, pytest.Function) and _is_slow(item):
            item.add_marker(pytest.mark.slow)


def part_of(items: list[pytest.Item], part: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Split tests into those of a part and the others; a module belongs to one part.

    Args:
        part: as ``2/3``: the second of three.
    """
    number, count = (int(word) for word in part.split("/"))
    if not 1 <= number <= count:
        raise pytest.UsageError(f"--part {part}: name it as 1/{count} to {count}/{count}")
    chosen = [item for item in items if _module_number(item) % count == number - 1]
    return chosen, [item for item in items if _module_number(item) % count != number - 1]


def _is_slow(item: pytest.Function) -> bool:
    if _is_wholly_slow(item.path):
        return True
    folder = _folder(item.path)
    values = item.callspec.params if hasattr(item, "callspec") else {}
    if item.originalname == PAGES_OF_COMMANDS:
        return values["page"] != TESTS.parent / SHORT_PAGE
    if folder == "contract":
        # A file in place of memory: the same SQL and the same driver.
        is_long = item.get_closest_marker(LONG) is not None
        return values.get("engine") == "sqlite" or (is_long and _has_one_of({"postgresql"}, values))
    return _has_one_of(REPEATS.get(folder, set()), values)


@cache
def _is_wholly_slow(path: Path) -> bool:
    folder = _folder(path)
    return folder in SLOW_FOLDERS or path.stem.removeprefix("test_") in SLOW_MODULES.get(folder, ())


@cache
def _folder(path: Path) -> str:
    """The tier of a file or folder; "" where it is of none."""
    return "".join(path.relative_to(TESTS).parts[:1]) if path.is_relative_to(TESTS) else ""


def _has_one_of(wanted: set[str], values: Mapping[str, object]) -> bool:
    return any(isinstance(value, str) and value in wanted for value in values.values())


def _module_number(item: pytest.Item) -> int:
    return zlib.crc32(item.path.relative_to(TESTS).as_posix().encode())
