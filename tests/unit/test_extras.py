"""What an installation lacks is told in one line, with the command that brings it."""

import tomllib
from pathlib import Path

import pytest

from xbus import extras
from xbus.errors import MissingExtra
from xbus.extras import Library

MANIFEST = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("extra", ["broker", "http", "inbox", "monitor", "spark"])
def test_the_libraries_of_an_extra_are_those_of_the_manifest(extra: str) -> None:
    project = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["project"]
    wanted = {name: oldest for name, _, oldest in getattr(extras, extra.upper())}
    brought = project["optional-dependencies"]
    lines = [*brought[extra], *(brought["broker"] if f"{project['name']}[broker]" in brought[extra] else [])]
    versions = {name: oldest for line in lines for name, _, oldest in [line.partition(",")[0].partition(">=")]}
    assert wanted.items() <= versions.items()


def test_what_is_installed_passes() -> None:
    extras.require("the broker", "broker", extras.BROKER)
    extras.require("a test", "broker", [Library("of nobody", "json", "1.0")])


@pytest.mark.parametrize(
    ("library", "cause"),
    [
        (Library("nothing", "nothing_of_that_name", "1.0"), "a test needs nothing, which is not installed"),
        (Library("sqlalchemy", "sqlalchemy", "100.0"), "a test needs sqlalchemy 100.0 or newer, and 2."),
    ],
)
def test_what_is_missing_or_too_old_is_told(library: Library, cause: str) -> None:
    with pytest.raises(MissingExtra) as missing:
        extras.require("a test", "broker", [library])
    assert missing.value.cause.startswith(cause)
    assert (missing.value.next_step, missing.value.code) == ("pip install 'xbusd[broker]'", "extra_missing")
    assert isinstance(missing.value, ImportError)


@pytest.mark.parametrize(
    ("older", "newer"), [("1.4.54", "2.0"), ("2.9", "2.10"), ("2.1.0rc1", "2.2"), ("2.1", "2.1.1")]
)
def test_versions_are_compared_by_number(older: str, newer: str) -> None:
    assert extras._numbers(older) < extras._numbers(newer)
