"""A package without a licence, or with one that nobody has weighed, is named."""

from email.message import Message
from pathlib import Path

import pytest

from tests.licences import WEIGHED, packages, problem, problems


def told(**fields: str) -> Message:
    """Metadata of a package with these fields, in which ``_`` stands for ``-``."""
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"License_Expression": "MIT"}, ""),
        ({"License_Expression": "Apache-2.0 OR GPL-3.0-only"}, ""),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, ""),
        ({"License": "LGPL with exceptions"}, ""),
        ({}, "it names no licence"),
        ({"License": "Proprietary\nAll rights reserved"}, "nobody has weighed Proprietary"),
        ({"License_Expression": "MIT AND AGPL-3.0-only"}, "nobody has weighed AGPL-3.0-only"),
        ({"License_Expression": "GPL-3.0-or-later"}, "nobody has weighed GPL-3.0-or-later"),
    ],
)
def test_a_licence_is_weighed(fields: dict[str, str], cause: str) -> None:
    assert problem("a-package", told(**fields)) == cause


def test_all_that_is_pinned_for_servers_was_weighed() -> None:
    found = packages()
    assert set(WEIGHED) <= set(found), "what is not used any more need not be weighed"
    assert [*problems(found)] == []


def test_a_package_that_is_not_installed_is_a_problem_unless_its_extra_is_left_out() -> None:
    missing = "no-such-package-of-xbus"
    for files, is_wrong in [({"broker"}, True), ({"broker", "pandas"}, True), ({"pandas"}, False)]:
        found = [*problems({missing: files})]
        assert [line.partition(":")[0] for line in found] == ([missing] if is_wrong else [])


def test_a_package_for_other_systems_is_not_missing_here(tmp_path: Path) -> None:
    hashed = " \\\n    --hash=sha256:00\n"
    pins = ["here==1", "there==1 ; sys_platform == 'win32'", "with[extra]==2 ; python_full_version >= '3.11'"]
    (tmp_path / "broker.txt").write_text("".join(pin + hashed for pin in pins))
    assert packages(tmp_path) == {"here": {"broker"}, "with": {"broker"}}
