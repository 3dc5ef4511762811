"""``xbus outbox``, over a file that an emitter left."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.ports import free_port
from xbus.admin.cli import main
from xbus.emitter.outbox import Outbox, locked

NOW = datetime(2026, 11, 21, 7, 30, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three envelopes, of which the bus has refused two."""
    path = tmp_path / "orders.outbox"
    outbox = Outbox(path)
    for name in ("a", "b", "c"):
        outbox.start_envelope(name, f"order {name}", None)
        outbox.end_envelope(name, NOW)
    outbox.set_aside("a", "unknown_type", 'there is no event type "odrers"')
    outbox.set_aside("b", "key_reused", "other content")
    outbox.note_trouble("timed_out", "no answer", NOW)
    outbox.close()
    return path


def xbus(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["outbox", *map(str, arguments)], prog_name="xbus")


def test_its_status_is_told(path: Path) -> None:
    told = xbus("status", path, "-o", "wide").stdout.splitlines()
    assert told[:5] == [
        "waiting  1",
        "bytes    512",
        "oldest   2026-11-21 07:30:00Z",
        "refused  2",
        "trouble  since 2026-11-21 07:30:00Z: no answer (timed_out)",
    ]
    assert told[6] == "REFUSED BY THE BUS"
    assert told[8].split()[0] == "1"
    assert told[8].endswith('unknown_type  there is no event type "odrers"')


def test_its_status_in_json(path: Path) -> None:
    told = json.loads(xbus("status", path, "--json").stdout)
    assert (told["waiting"], told["bytes"], len(told["refused"])) == (1, 512, 2)
    assert told["trouble"] == {"code": "timed_out", "cause": "no answer", "since": "2026-11-21T07:30:00+00:00"}


def test_what_was_refused_is_put_back_or_dropped(path: Path) -> None:
    assert xbus("retry", path, "1").stdout == "1 envelope put back.\n"
    assert xbus("drop", path).exit_code == 2
    wrong = xbus("drop", path, "1", "2")
    assert (wrong.exit_code, "some of these places have no refused" in wrong.stderr) == (1, True)
    assert xbus("drop", path, "--all").stdout == "1 envelope dropped.\n"
    assert xbus("retry", path).stdout == "0 envelopes put back.\n"
    told = json.loads(xbus("status", path, "--json").stdout)
    assert (told["waiting"], told["refused"]) == (2, [])


def test_a_file_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    result = xbus("status", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "there is no outbox" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_flush_gives_way_to_the_emitter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XBUS_PASSWORD", "secret")
    with locked(path):
        result = xbus("flush", path, "--login", "me", "--url", f"tcp://127.0.0.1:{free_port()}")
    assert result.exit_code == 1
    assert "sends from the outbox" in result.stderr
