"""Where archives lie."""

from pathlib import Path

import pytest

from spark_worker.archive.storage import absolute, below
from xbus.errors import ConfigurationError


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("/srv/archive", "/srv/archive"),
        ("archive", f"{Path.cwd()}/archive"),
        ("file:/srv/archive", "/srv/archive"),
        ("file:///srv/archive", "file:///srv/archive"),
        ("s3://bucket/archive", "s3://bucket/archive"),
    ],
)
def test_a_place_has_a_whole_address(place: str, address: str) -> None:
    assert absolute(place) == address


@pytest.mark.parametrize("place", ["s3://", "s3:///", "file://"])
def test_a_place_that_is_none_is_told(place: str) -> None:
    with pytest.raises(ConfigurationError, match="names no place"):
        absolute(place)


def test_what_a_uri_says_stays_at_its_end() -> None:
    assert below("s3://bucket/archive/?region=eu", "a/b") == "s3://bucket/archive/a/b?region=eu"
    assert below("/srv/archive", "a/b") == "/srv/archive/a/b"


def test_a_place_bears_no_password() -> None:
    with pytest.raises(ConfigurationError, match="password") as caught:
        absolute("s3://key:secret@bucket/archive")
    assert "secret" not in str(caught.value)
