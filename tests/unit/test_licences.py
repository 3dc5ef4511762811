"""A package without a licence, or with one that nobody has weighed, is named."""

from email.message import Message

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
    assert [*problems(sorted(found))] == []
