"""``xbus recipient run`` up to the point where the recipient runs."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from xbus.admin.cli import main
from xbus.admin.commands import recipient as command

MODULE = """\
from xbus.recipient import Consumer

class Store(Consumer):
    pass

class Nothing:
    pass
"""


@pytest.fixture(autouse=True)
def _the_log_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What would have been run."""
    found: list[Any] = []

    def note(kind: type, *arguments: str, **options: str) -> None:
        found.append((kind.__name__, arguments, options))

    monkeypatch.setattr(command, "run", note)
    monkeypatch.setenv("XBUS_LOGIN", "store_1")
    monkeypatch.setenv("XBUS_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "xbus_test_recipients.py").write_text(MODULE)
    (tmp_path / "xbus_test_broken.py").write_text("import xbus_test_not_installed\n")
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["recipient", "run", *arguments], prog_name="xbus")


def test_a_class_in_the_working_directory_is_run(runs: list[Any]) -> None:
    result = run("xbus_test_recipients:Store", "--back", "tcp://here:1")
    assert result.exit_code == 0, result.output
    assert runs == [("Store", ("tcp://here:1", "store_1", "secret"), {})]


def test_the_configuration_file_tells_the_back(runs: list[Any], tmp_path: Path) -> None:
    (tmp_path / "config.ini").write_text("[zmq]\nbacksocket = tcp://*:12\n")
    run("xbus_test_recipients:Store", "-c", "config.ini", "--bind", "tcp://0.0.0.0:9", "--advertise", "tcp://me:9")
    assert runs[0][1] == ("tcp://127.0.0.1:12", "store_1", "secret")
    assert runs[0][2] == {"bind": "tcp://0.0.0.0:9", "advertise": "tcp://me:9"}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("xbus_test_recipients", '"xbus_test_recipients" names no class'),
        (":Store", '":Store" names no class'),
        ("xbus_test_gone:Store", 'there is no module "xbus_test_gone"'),
        ("xbus_test_recipients.inner:Store", 'there is no module "xbus_test_recipients.inner"'),
        ("xbus_test_recipients:Gone", '"Gone" in xbus_test_recipients is no recipient'),
        ("xbus_test_recipients:Nothing", '"Nothing" in xbus_test_recipients is no recipient'),
    ],
)
def test_what_can_not_be_run_is_refused(runs: list[Any], name: str, told: str) -> None:
    result = run(name, "--back", "tcp://here:1")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"xbus: {told}")
    assert runs == []


def test_what_a_module_itself_misses_is_told_by_its_traceback(runs: list[Any]) -> None:
    result = run("xbus_test_broken:Store", "--back", "tcp://here:1")
    assert isinstance(result.exception, ModuleNotFoundError)
    assert result.exception.name == "xbus_test_not_installed"


def test_a_role_is_not_detached_without_a_reason() -> None:
    done = CliRunner().invoke(main, ["recipient", "detach", "store_1", "--reason", " ", "--yes"])
    assert (done.exit_code, "say why" in done.output) == (2, True)
