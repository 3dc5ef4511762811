"""Numbers that no database keeps, or that no bound keeps out, are refused as a wrong command line."""

import pytest

from tests.integration.admin.conftest import Xbus

TOO_LARGE = str(2**63)
REPLAY = ("replay", "--type", "t", "--role", "r", "--from", "oldest", "--yes", "--rate")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.mark.parametrize(
    "command",
    [
        *((*REPLAY, number) for number in ("nan", "inf", "-inf", "0")),
        *(("emit", "x.jsonl", "--type", "t", "--login", "e", "--timeout", number) for number in ("nan", "inf")),
        *((*named, TOO_LARGE) for named in (("clearing", "show"), ("failure", "show"), ("bot", "log", "b", "--run"))),
        ("clearing", "clear", TOO_LARGE, "a=1"),
        ("reader", "split", "r", TOO_LARGE, "--reason", "x"),
        ("reader", "merge", "r", "1", TOO_LARGE, "--reason", "x"),
    ],
)
def test_a_number_out_of_bounds_is_a_wrong_command_line(xbus: Xbus, command: tuple[str, ...]) -> None:
    refused = xbus(*command)
    assert refused.exit_code == 2, refused.output
    assert "Invalid value for" in refused.stderr
