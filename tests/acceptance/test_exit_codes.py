"""Exit codes of all programs: 1 where a person must mend something, 2 for the command line, 3 for what may pass."""

from pathlib import Path

import pytest

from tests.support.processes import run, script

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

STARTS = {
    "raise ConnectionError('away')": 3,
    "raise OSError('no route')": 3,
    "import no_such_module": 1,
    "from pathlib import no_such_name": 1,
    "no_such_name()": 1,
    "compile('1 +', 'own.py', 'exec')": 1,
    "raise NotImplementedError": 1,
    "import sys; sys.exit('no shop is named')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('postgresql://')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('nosuch://host/name')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('postgresql+nosuch://host/name')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('no address')": 1,
    "import sqlalchemy; sqlalchemy.create_engine('postgresql+psycopg2://127.0.0.1:1/x').connect()": 3,
    "from xbus.errors import ConfigurationError; raise ConfigurationError('no shop', 'set SHOP')": 1,
    "from xbus.errors import MissingExtra; raise MissingExtra('no library', 'install it')": 1,
    "from xbus.errors import JournalUnavailable; raise JournalUnavailable('away')": 3,
}
"""What ``on_start`` of a recipient does, and the exit code of its program."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_tell_what_may_pass_from_what_a_person_must_mend(program: str, tmp_path: Path) -> None:
    words = PROGRAMS[program]
    configured = tmp_path / "config.ini"
    configured.write_text(f"[database]\nsqlalchemy.dburi = {AWAY}\n")
    wrong = tmp_path / "wrong.ini"
    wrong.write_text("[database]\nsqlalchemy.dburi = no database\n")
    codes = {
        "the command line is wrong": run(script(program), *words, "--no-such-option").returncode,
        "the file is missing": run(script(program), *words, "-c", tmp_path / "none.ini").returncode,
        "the configuration is wrong": run(script(program), *words, "-c", wrong).returncode,
        "the database is away": run(script(program), *words, "-c", configured).returncode,
    }
    assert codes == {
        "the command line is wrong": 2,
        "the file is missing": 1,
        "the configuration is wrong": 1,
        "the database is away": 3,
    }


def test_a_broker_that_is_away_may_come_back(tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text("1\n")
    options = ["--type", "t", "--login", "e", "--url", BACK, "--timeout", "0.2"]
    done = run(script("xbus"), "emit", str(items), *options, env={"XBUS_PASSWORD": "p"})
    assert done.returncode == 3, done.stderr


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
