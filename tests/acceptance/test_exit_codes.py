"""Exit codes of all programs: 1 where a person must mend something, 2 for the command line, 3 for what may pass."""

import socket
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.daemon import write_config
from tests.support.gateway import serving_http
from tests.support.postgres import Server
from tests.support.processes import Process, run, script

AWAY = "postgresql://xbus:none@127.0.0.1:1/xbus"
"""A database at a port where nothing listens."""

PROGRAMS: dict[str, list[str]] = {
    "setup_xbusbroker": [],
    "start_xbusbroker": ["--start-timeout", "0"],
    "start_xbusmonitor": [],
    "xbus": ["type", "list"],
}
"""Each program with its database, and the words by which it asks this at once."""

BACK = "tcp://127.0.0.1:1"

WAITING: dict[str, list[str]] = {
    "start_xbushttp": [],
    "xbus bot run": ["--allow", "bots", "--login", "runner_1"],
    "xbus-spark-worker": ["--login", "worker_1", "--sql", "query.sql", "--schema", "id INT"],
}
"""Each program that asks no database at its start and waits for a broker that is away, with its words."""

STARTS = {
    "raise ConnectionError('away')": 3,
    "raise OSError('no route')": 3,
    "raise TimeoutError": 3,
    "raise ValueError('no answer')": 3,
    "import socket; socket.socket(socket.AF_UNIX).connect('no.sock')": 3,
    "import os; os.environ['NO_SHOP']": 1,
    "len(5)": 1,
    "None.connect()": 1,
    "assert False": 1,
    "open('none.json')": 1,
    "open('own.py/none')": 1,
    "open('.')": 1,
    "raise PermissionError('no right')": 1,
    "import no_such_module": 1,
    "from pathlib import no_such_name": 1,
    "no_such_name()": 1,
    "compile('1 +', 'own.py', 'exec')": 1,
    "raise NotImplementedError": 1,
    "import sys; sys.exit('no shop is named')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('mysql://')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('nosuch://host/name')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('postgresql+nosuch://host/name')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('no address')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('postgresql+psycopg2://127.0.0.1:1/x').connect()": 3,
    "from xbus.errors import ConfigurationError; raise ConfigurationError('no shop', 'set SHOP')": 1,
    "from xbus.errors import MissingExtra; raise MissingExtra('no library', 'install it')": 1,
    "from xbus.errors import JournalUnavailable; raise JournalUnavailable('away')": 3,
}
"""What ``on_start`` of a recipient does, and the exit code of its program."""


def started(program: str) -> list[str]:
    name, *commands = program.split()
    return [script(name), *commands, *PROGRAMS.get(program, WAITING.get(program, []))]


@pytest.mark.parametrize("program", [*PROGRAMS, *WAITING])
def test_programs_tell_what_may_pass_from_what_a_person_must_mend(program: str, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT * FROM items")
    (tmp_path / "wrong.ini").write_text("[database]\nsqlalchemy.dburi = no database\n")
    (tmp_path / "config.ini").write_text(f"[database]\nsqlalchemy.dburi = {AWAY}\n")

    def code(*words: str) -> int:
        return run(*started(program), *words, cwd=tmp_path, env={"XBUS_PASSWORD": "p"}).returncode

    assert code("--no-such-option") == 2, "the command line is wrong"
    assert code("-c", "none.ini") == 1, "the file is missing"
    assert code("-c", "wrong.ini") == 1, "the configuration is wrong"
    if program in PROGRAMS:
        assert code("-c", "config.ini") == 3, "the database is away"


def test_a_gateway_and_a_runner_wait_for_a_broker_until_they_are_told_to_stop(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        back = f"tcp://127.0.0.1:{broker.getsockname()[1]}"
        http = {"listen": "127.0.0.1:0", "front": BACK, "back": back}
        config = write_config(tmp_path / "config.ini", AWAY, {"http": http})
        output, password = tmp_path / "runner.log", {"XBUS_PASSWORD": "p"}
        words = ["--back", back, "--front", BACK]
        runner = Process(*started("xbus bot run"), *words, "-c", config, output=output, env=password)
        try:
            broker.accept()[0].close()
            with serving_http(config):
                pass
            assert runner.runs
            assert runner.stop() == 0, runner.text
        finally:
            runner.kill()


def test_a_broker_that_is_away_may_come_back(tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text("1\n")
    options = ["--type", "t", "--login", "e", "--url", BACK, "--timeout", "0.2"]
    done = run(script("xbus"), "emit", str(items), *options, env={"XBUS_PASSWORD": "p"})
    assert done.returncode == 3, done.stderr


CONSTRUCTORS = {
    "shop": ("pass", 1, "can't be made without arguments (missing a required argument: 'shop')"),
    "shop=None": ("len(5)", 1, "the class Own failed: TypeError: object of type 'int' has no len() (own.py, line 5)"),
    "*shop": ("raise ConnectionError('away')", 3, "the class Own failed: ConnectionError: away (own.py, line 5)"),
}
"""By its arguments: the body of a recipient's ``__init__``, the exit code, and a part of the line."""


@pytest.mark.parametrize("arguments", CONSTRUCTORS)
def test_a_recipient_that_can_not_be_made_ends_with_one_line(arguments: str, tmp_path: Path) -> None:
    statement, code, said = CONSTRUCTORS[arguments]
    (tmp_path / "own.py").write_text(
        "from xbus.recipient import Consumer\n\nclass Own(Consumer):\n"
        f"    def __init__(self, {arguments}):\n        {statement}\n"
    )
    words = ["recipient", "run", "own:Own", "--back", BACK, "--login", "c", "--start-timeout", "0"]
    done = run(script("xbus"), *words, cwd=tmp_path, env={"XBUS_PASSWORD": "p"})
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (code, 1), done.stderr
    assert said in done.stderr
    assert "[recipient_not_started]" in done.stderr


@pytest.mark.parametrize("statement", STARTS)
def test_a_recipient_is_started_again_only_where_that_may_help(statement: str, tmp_path: Path) -> None:
    source = (
        f"from xbus.recipient import Consumer\n\nclass Own(Consumer):\n    def on_start(self):\n        {statement}\n"
    )
    (tmp_path / "own.py").write_text(source)
    words = ["recipient", "run", "own:Own", "--back", BACK, "--login", "c", "--start-timeout", "0"]
    done = run(script("xbus"), *words, cwd=tmp_path, env={"XBUS_PASSWORD": "p"})
    assert done.returncode == STARTS[statement], done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


REFUSED = {
    "{folder}/text.db": "file is not a database",
    "{folder}": "is a folder, and no database: name a file",
    "{folder}/none/xbus.db": "there is no folder",
}
"""Addresses of SQLite that only a person can correct, and what is said."""


@pytest.mark.parametrize("place", REFUSED)
@pytest.mark.parametrize("program", ["setup_xbusbroker", "start_xbusbroker", "xbus"])
def test_a_file_that_is_no_database_is_for_a_person(program: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all\n" * 1000)
    done = run_with(f"sqlite:///{place.format(folder=tmp_path)}", program, tmp_path)
    assert done.returncode == 1, done.stderr
    # A program that makes no file says of a missing one that there is no schema.
    assert REFUSED[place] in done.stderr or (place.endswith("xbus.db") and program != "setup_xbusbroker"), done.stderr


@pytest.mark.parametrize("program", ["setup_xbusbroker", "start_xbusbroker", "xbus"])
def test_a_login_that_the_server_refuses_is_for_a_person(program: str, postgres_server: Server, tmp_path: Path) -> None:
    right = sa.make_url(postgres_server.create_empty())
    for wrong in (right.set(database="no_such_database"), right.set(username="nobody", password="wrong")):
        done = run_with(wrong.render_as_string(hide_password=False), program, tmp_path)
        assert done.returncode == 1, done.stderr
        assert "the server refuses the connection" in done.stderr
        assert "correct login and database in sqlalchemy.dburi" in done.stderr


def run_with(url: str, program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program with a database, without a ``--start-timeout``: it must not wait."""
    configured = folder / "config.ini"
    configured.write_text(f"[database]\nsqlalchemy.dburi = {url}\n")
    words = ["type", "list"] if program == "xbus" else []
    return run(script(program), *words, "-c", configured, timeout=60)
