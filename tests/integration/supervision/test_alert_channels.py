"""Alerts go to programs and webhooks of every kind."""

import asyncio
import contextlib
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from xbus.config import AlertSettings
from xbus.supervision.alert_channels import CommandChannel, WebhookChannel, alert_channels
from xbus.supervision.alerts import Alert, AlertNotSent, AlertRefused

ALERT: Alert = {
    "state": "trouble",
    "code": "parked",
    "about": "$(touch pwned); `id`",
    "cause": 'say "hi"\n' + "é" * 1000,
    "next_step": "xbus parked list",
    "since": "2020-02-29T12:00:00+00:00",
    "at": "2020-02-29T12:00:00+00:00",
    "process": "broker",
    "host": "machine",
    "text": "text",
}

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def test_the_configuration_names_the_ways() -> None:
    assert alert_channels(AlertSettings()) == []
    both = alert_channels(AlertSettings(command="notify --to 'the team'", url="https://chat.example/x"))
    assert [channel.name for channel in both] == ["command", "url"]


# -- programs ----------------------------------------------------------------------------------------------------------


async def test_a_program_gets_the_alert_on_its_standard_input_and_nothing_in_its_arguments(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]) + sys.stdin.read())"
    await CommandChannel([sys.executable, "-c", code, str(tmp_path / "got"), "$HOME; *"]).send(ALERT)
    got = (tmp_path / "got").read_text()
    assert got.startswith("['$HOME; *']")
    assert json.loads(got.partition("]")[2]) == ALERT


async def test_a_program_does_not_get_the_secrets_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XBUS_DATABASE__SQLALCHEMY_DBURI", "postgresql://u:hidden-1@host/db")
    monkeypatch.setenv("XBUS_ALERTS__URL", "https://chat.example/hidden-2")
    monkeypatch.setenv("XBUS_CONFIG", "kept")
    code = "import os, sys; open(sys.argv[1], 'w').write(repr(dict(os.environ)))"
    await CommandChannel([sys.executable, "-c", code, str(tmp_path / "got")]).send(ALERT)
    got = (tmp_path / "got").read_text()
    assert "hidden-" not in got
    assert "kept" in got


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["/no/such/program"], r"/no/such/program can't be started \(No such file or directory\)"),
        (["/etc/passwd"], r"/etc/passwd can't be started \(Permission denied\)"),
        (["false"], "false ended with 1$"),
        (["sh", "-c", "echo no such person >&2; exit 7"], "sh ended with 7: no such person$"),
        (["sh", "-c", "yes | head -c 1000000 >&2; exit 1"], "sh ended with 1: y y y"),
        (["sh", "-c", "kill -9 $$"], "sh ended with -9"),
    ],
)
async def test_a_program_that_fails_says_why(words: list[str], cause: str) -> None:
    with pytest.raises(AlertNotSent, match=cause):
        await CommandChannel(words).send(ALERT)


async def test_a_program_that_reads_nothing_and_leaves_another_behind_has_done_its_work() -> None:
    async with asyncio.timeout(30):
        await CommandChannel(["sh", "-c", "exec <&-; sleep 60 & exit 0"]).send(ALERT)


async def test_a_program_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = CommandChannel(["sh", "-c", f"sleep 600 & echo $$ $! > {pids}; wait"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await command.send(ALERT)
    for pid in pids.read_text().split():
        await eventually(functools.partial(is_over, pid), f"{pid} is killed")


def is_over(pid: str) -> bool:
    """Whether a process is gone, or only waits for its parent to notice."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


# -- webhooks ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def webhook(answer: Answer) -> AsyncIterator[str]:
    """A server that answers as the test says; gives its address."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def saying(text: str) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(text.encode())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    return answer


async def test_a_webhook_gets_the_alert_as_its_body() -> None:
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        got.extend([head, await reader.readexactly(length)])
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with webhook(answer) as address:
        await WebhookChannel(f"http://user:p%40ss@{address}/hooks/a?b=c").send(ALERT)
    head, body = got
    assert head.startswith(b"POST /hooks/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Authorization: Basic dXNlcjpwQHNz\r\n" in head
    assert b"Content-Type: application/json\r\n" in head
    assert json.loads(body) == ALERT


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("HTTP/1.1 500 Oops\r\n\r\n", "127.0.0.1 answered with the status 500"),
        ("HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "127.0.0.1 answered with the status 302"),
        ("SSH-2.0-OpenSSH\r\n", "127.0.0.1 can't be reached .its answer is not HTTP"),
        ("x" * 100_000, "127.0.0.1 can't be reached .its answer is not HTTP"),
        ("", "127.0.0.1 can't be reached .it closed the connection without an answer"),
    ],
)
async def test_an_answer_that_is_no_yes(said: str, cause: str) -> None:
    async with webhook(saying(said)) as address:
        with pytest.raises(AlertNotSent, match=cause) as failed:
            await WebhookChannel(f"http://user:secret@{address}/secret").send(ALERT)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_an_alert_that_will_never_be_taken(status: int) -> None:
    async with webhook(saying(f"HTTP/1.1 {status} No\r\n\r\n")) as address:
        with pytest.raises(AlertRefused, match=f"answered with the status {status}"):
            await WebhookChannel(f"http://{address}/").send(ALERT)


async def test_a_webhook_that_is_not_there_and_one_that_speaks_no_tls() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Speak TLS\r\n\r\n")
        writer.close()

    async with webhook(answer) as address:
        with pytest.raises(AlertNotSent, match="can't be reached"):
            await WebhookChannel(f"https://{address}/secret").send(ALERT)
    with pytest.raises(AlertNotSent, match="can't be reached"):
        await WebhookChannel(f"http://{address}/secret").send(ALERT)
