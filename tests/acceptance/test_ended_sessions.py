"""Who is thrown out by an administrator is out within seconds, whatever it has open."""

import json
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.operating import run_command
from tests.support.processes import Process, script
from tests.support.strangers import Stranger
from tests.support.waiting import wait_until
from xbus.errors import CallError

EXAMPLES = Path(__file__).parents[2] / "examples"

NEW = "another password\n"


@pytest.fixture
def daemon(database_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(database_url, {"test_event": {"c": []}})
    return start_daemon(database_url)


def xbus(daemon: Daemon, *arguments: str, stdin: str = "") -> str:
    done = run_command(*arguments, "-c", daemon.config, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def renews(emitter: Stranger, token: str) -> bool:
    emitter.call("xbus.renew", token)
    _, answer = emitter.answer()
    assert not isinstance(answer, CallError) or answer.code == "session_unknown"
    return not isinstance(answer, CallError)


def logged_in(emitter: Stranger, login: str) -> str:
    emitter.call("xbus.login", login, PASSWORD)
    _, answer = emitter.answer()
    token: str = answer["token"]
    return token


def test_a_new_password_ends_the_sessions_of_the_login_alone(daemon: Daemon) -> None:
    with Stranger(daemon.front) as emitter, Stranger(daemon.front) as other:
        token, others = logged_in(emitter, "emitter_1"), logged_in(other, "emitter_2")
        assert renews(emitter, token)
        xbus(daemon, "password", "emitter", "emitter_1", "--stdin", stdin=NEW)
        wait_until(lambda: not renews(emitter, token), "the session is ended")
        assert renews(other, others)
        xbus(daemon, "password", "emitter", "emitter_2", "--stdin", "--keep-sessions", stdin=NEW)
        wait_until(lambda: daemon.log.count("configuration read") > 2, "the broker has read the configuration")
        assert renews(other, others)


def test_an_administrator_sees_and_ends_sessions(daemon: Daemon) -> None:
    with Stranger(daemon.front) as emitter, Stranger(daemon.front) as other:
        token, others = logged_in(emitter, "emitter_1"), logged_in(other, "emitter_2")
        told = [json.loads(line) for line in xbus(daemon, "session", "list", "-o", "json").splitlines()]
        assert [(each["kind"], each["login"], each["sessions"]) for each in told] == [
            ("emitter", "emitter_1", 1),
            ("emitter", "emitter_2", 1),
        ]
        assert xbus(daemon, "session", "end", "emitter", "emitter_1") == "1 session of emitter emitter_1 ended.\n"
        wait_until(lambda: not renews(emitter, token), "the session is ended")
        assert renews(other, others)
        assert "emitter_1" not in xbus(daemon, "session", "list")
        assert xbus(daemon, "session", "end", "emitter", "emitter_1") == "0 sessions of emitter emitter_1 ended.\n"
        assert "there is no role" in run_command("session", "end", "role", "nobody", "-c", daemon.config).stderr


def test_a_removed_emitter_is_out(daemon: Daemon, tmp_path: Path) -> None:
    with Stranger(daemon.front) as emitter:
        token = logged_in(emitter, "emitter_2")
        rest = xbus(daemon, "export").replace('login = "emitter_2"', 'login = "emitter_4"')
        (tmp_path / "rest.toml").write_text(rest)
        xbus(daemon, "apply", str(tmp_path / "rest.toml"), "--prune", "--yes")
        wait_until(lambda: not renews(emitter, token), "the session is ended")


def test_a_recipient_whose_password_was_changed_ends(daemon: Daemon, tmp_path: Path) -> None:
    recipient = Process(
        *(script("xbus"), "recipient", "run", "consumer:Clients", "--back", daemon.back, "--login", "c_1"),
        output=tmp_path / "recipient.log",
        cwd=EXAMPLES,
        env={"XBUS_PASSWORD": PASSWORD},
    )
    try:
        wait_until(lambda: "registered" in recipient.text, "it is registered")
        xbus(daemon, "password", "role", "c_1", "--stdin", stdin=NEW)
        assert recipient.wait() == 1
        assert "login_refused" in recipient.text
        wait_until(lambda: "an administrator has ended its session" in daemon.log, "the broker has let it go")
    finally:
        recipient.kill()
