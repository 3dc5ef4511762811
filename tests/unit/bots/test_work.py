"""The author's part of a run: its errors come out whole enough, whatever they are."""

import pytest

from xbus.bots.work import failed
from xbus.errors import Refused


@pytest.mark.parametrize(
    "error",
    [
        ValueError("é" * 11_000),
        OSError("no file \udcff"),
        Refused("é" * 11_000, "look", code="x"),
        Refused("no", code="é" * 11_000),
    ],
    ids=["long", "no text", "long refusal", "long code"],
)
def test_an_error_fits_into_a_line_for_the_runner(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(error)
    assert len(told.line()) < 64 * 1024
    assert told.error.encode()
    assert told.code.encode()
    capsys.readouterr()
