"""What the two programs of the broker tell about themselves."""

import click
import pytest
from click.testing import CliRunner

from xbus.broker.cli import setup, start

A_PART_DIED = "with 3 when a part of it died, the journal went back or the database can't be reached, and with 4 when"


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize(("program", "can_die"), [(setup, False), (start, True)])
def test_the_help_tells_the_exit_codes_that_the_program_has(program: click.Command, can_die: bool, option: str) -> None:
    result = CliRunner().invoke(program, [option])
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "with 1 when something must be mended first" in told
    assert (A_PART_DIED in told) == can_die
