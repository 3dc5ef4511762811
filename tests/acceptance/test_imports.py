"""How much a command imports before it does anything: probes start one each second."""

import json
import sys

import pytest

from tests.support.processes import run

STARTED = """\
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from xbus.programs import run_xbus

with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    try:
        run_xbus()
    except SystemExit:
        pass
print(json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str) -> set[str]:
    """Modules that ``xbus`` has imported at its end, but for those of Python itself."""
    ended = run(sys.executable, "-c", STARTED, *arguments)
    assert ended.returncode == 0, ended.stderr
    return {name for name in json.loads(ended.stdout) if name.partition(".")[0] not in sys.stdlib_module_names}


@pytest.mark.parametrize(
    ("arguments", "most"),
    [(("health", "--url", "tcp://127.0.0.1:1"), 165), (("completion", "bash"), 45)],
    ids=["health", "completion"],
)
def test_a_command_that_needs_no_journal_imports_none(arguments: tuple[str, ...], most: int) -> None:
    names = imported(*arguments)

    assert {"xbus.admin.signatures", f"xbus.admin.commands.{arguments[0]}"} <= names
    assert {name for name in names if name.startswith(("sqlalchemy", "xbus.broker", "xbus.model"))} == set()
    assert len(names) <= most


def test_the_list_of_all_commands_imports_no_broker() -> None:
    names = imported("--help")

    assert "xbus.admin.commands.why" in names
    assert {name for name in names if name.startswith(("xbus.broker.back", "xbus.broker.front"))} == set()
    assert len(names) <= 815
