"""Nonsense that is asked of readers and bots, or in bus files: each gets a coded error, and changes nothing."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.acceptance.test_bots import BUS, add_bots, bot
from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from tests.support.operating import run_command
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

READER = """
[[reader]]
name = "billing"
event_types = ["orders"]
start = "oldest"
ranges = 2
batch_items = 2

[[role]]
login = "billing_1"
service = "billing"

[[service]]
name = "store"
kind = "consumer"

[[role]]
login = "store_1"
service = "store"
"""
BOTS = bot("nightly", call="reports:nightly", cron="0 3 1 1 *", missed="skip")

NOBODY = str(uuid.UUID(int=7))
UNCHANGED = (
    *(model.reader_range, model.reader_stretch, model.reader_move, model.reader, model.bot, model.bot_run),
    *(model.event_type, model.node, model.role, model.emitter, model.configuration, model.envelope, model.history),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("nonsense")
    url = new_sqlite(folder / "xbus.db")
    add_bots(url, READER + BOTS)
    daemon = Daemon(folder / "daemon", url)
    daemon.start()
    yield daemon
    daemon.kill()


@pytest.fixture(autouse=True)
def nothing_changes(broker: Daemon) -> Iterator[None]:
    def found() -> list[Any]:
        with reading(broker.url) as connection:
            return [
                sorted(tuple(map(repr, row)) for row in connection.execute(sa.select(table))) for table in UNCHANGED
            ]

    before = found()
    yield
    assert found() == before
    assert broker.process.runs
    assert "internal_error" not in broker.log
    assert "Traceback" not in broker.log


async def refusal(broker: Daemon, login: str, verb: str, *arguments: object) -> str:
    """Call a verb; the code of its refusal, or of nothing if it is not refused."""
    context = new_context()
    client = Client(context, name="nonsense", clock=SystemClock())
    client.connect(broker.back)
    try:
        session: Any = await client.call("xbus.login", login, PASSWORD, timeout=30)
        try:
            answer = await client.call(verb, session["token"], *arguments, timeout=30)
        except Refused as refused:
            assert refused.cause
            return refused.code
        return f"answered {answer!r}"
    finally:
        client.close()
        context.destroy(linger=0)


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("xbus.read_log", [{"from": "1000000"}], "place_beyond_end"),
        ("xbus.read_log", [{"from": "oldest", "types": ["nothing"]}], "type_unknown"),
        ("xbus.read_log", [{"from": "oldest", "types": ["returns"]}], "type_not_read"),
        ("xbus.read_log", [{"from": "1:2"}], "place_invalid"),
        ("xbus.read_log", [{"from": "at noon"}], "moment_invalid"),
        ("xbus.read_log", [{"from": "oldest", "max_items": 0}], "option_invalid"),
        ("xbus.read_batch", ["no id", {}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"wait": -1}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"wait": float("nan")}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"wait": 1e9}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"nothing": 1}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"max_items": -1}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"done": "all"}], "option_invalid"),
        ("xbus.read_batch", [NOBODY, {"done": [1, 1, [-1, 0, 0]]}], "place_invalid"),
        ("xbus.read_batch", [NOBODY, {"done": [1, 0, [1, 0, 0]]}], "lease_lost"),
        ("xbus.read_batch", [NOBODY, {"done": [999, 1, [1, 0, 0]]}], "lease_lost"),
        ("xbus.checkpoint", [NOBODY, 1, 0, [1, 0, 0]], "lease_lost"),
        ("xbus.checkpoint", [NOBODY, 2**62, -1, [1, 0, 0]], "lease_lost"),
        ("xbus.checkpoint", [NOBODY, 1, 0, ["a", 0, 0]], "place_invalid"),
        ("xbus.checkpoint", [NOBODY, 1, 0, [2**70 // 2**7, 2**63, 0]], "place_invalid"),
        ("xbus.renew_ranges", [""], "option_invalid"),
        ("xbus.leave_ranges", ["x" * 1000], "option_invalid"),
        ("xbus.claim_run", [NOBODY, {}], "not_a_runner"),
        ("xbus.end_run", [NOBODY, 1, "ticket", {}], "not_a_runner"),
    ],
)
async def test_what_is_asked_of_a_reader(broker: Daemon, verb: str, arguments: list[Any], code: str) -> None:
    assert await refusal(broker, "billing_1", verb, *arguments) == code


@pytest.mark.parametrize(
    ("login", "verb", "arguments", "code"),
    [
        ("runner_1", "xbus.claim_run", ["no id", {}], "wrong_arguments"),
        ("runner_1", "xbus.claim_run", [NOBODY, "soon"], "wrong_arguments"),
        ("runner_1", "xbus.claim_run", [NOBODY, {"wait": -1}], "wrong_arguments"),
        ("runner_1", "xbus.claim_run", [NOBODY, {"wait": float("nan")}], "wrong_arguments"),
        ("runner_1", "xbus.claim_run", [NOBODY, {"wait": True}], "wrong_arguments"),
        ("runner_1", "xbus.renew_runs", ["", [1]], "wrong_arguments"),
        ("runner_1", "xbus.renew_runs", [NOBODY, ["x"]], "wrong_arguments"),
        ("runner_1", "xbus.end_run", [NOBODY, 1, "ticket", []], "wrong_arguments"),
        ("runner_1", "xbus.end_run", [NOBODY, 999, "ticket", {}], "answered {'accepted': False}"),
        ("runner_1", "xbus.end_run", [NOBODY, 2**63, "ticket", {}], "wrong_arguments"),
        ("runner_1", "xbus.end_run", [NOBODY, 1, 2**31, {}], "wrong_arguments"),
        ("runner_1", "xbus.end_run", [NOBODY, -(2**63), "", {}], "wrong_arguments"),
        ("runner_1", "xbus.read_batch", [NOBODY, {}], "not_a_reader"),
        ("store_1", "xbus.read_batch", [NOBODY, {}], "not_a_reader"),
        ("store_1", "xbus.checkpoint", [NOBODY, 1, 1, [1, 0, 0]], "not_a_reader"),
        ("store_1", "xbus.claim_run", [NOBODY, {}], "not_a_runner"),
    ],
)
async def test_what_others_ask(broker: Daemon, login: str, verb: str, arguments: list[Any], code: str) -> None:
    assert await refusal(broker, login, verb, *arguments) == code


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["read", "nothing"], "unknown_type"),
        (["read", "orders", "--from", "1000000"], "place_beyond_end"),
        (["reader", "show", "nobody"], "unknown_name"),
        (["reader", "move", "nobody", "oldest", "--reason", "no", "--yes"], "unknown_name"),
        (["reader", "move", "billing", "1000000", "--reason", "no", "--yes"], "place_beyond_end"),
        (["reader", "move", "billing", "head", "--range", "999", "--reason", "no", "--yes"], "unknown_range"),
        (["reader", "undo", "billing", "--reason", "no", "--yes"], "nothing_to_undo"),
        (["reader", "split", "billing", "999", "--reason", "no"], "unknown_range"),
        (["reader", "merge", "billing", "1", "999", "--reason", "no"], "unknown_range"),
        (["bot", "fire", "nobody", "--reason", "no"], "unknown_name"),
        (["bot", "fire", "nightly", "--run", "999", "--reason", "no"], "unknown_run"),
        (["bot", "log", "nightly"], "unknown_run"),
    ],
)
def test_what_people_ask(broker: Daemon, command: list[str], code: str) -> None:
    done = run_command(*command, "-c", broker.config)
    assert done.returncode != 0
    assert f"[{code}]" in done.stderr


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (bot("b", call="a:b", cron="every day"), "is no cron expression"),
        (bot("b", call="a:b", cron="0 0 30 2 *"), "cron"),
        (bot("b", call="a:b", reads=["nothing"]), 'there is no event_type "nothing"'),
        (bot("b", call="a:b", reads=["orders"], emits=["orders"]), "would read without end"),
        (
            bot("b", call="a:b", reads=["orders"], emits=["reports"])
            + bot("c", call="a:c", reads=["reports"], emits=["orders"]),
            "event types lead back to themselves",
        ),
        ('[[reader]]\nname = "r"\nevent_types = ["nothing"]\n', 'there is no event_type "nothing"'),
        ('[[reader]]\nname = "r"\nevent_types = ["orders"]\nranges = 0\n', "ranges"),
        ('[[reader]]\nname = "r"\nevent_types = ["orders"]\nlease = -1\n', "lease"),
        (
            '[[event_type]]\nname = "a"\n[[event_type.node]]\nname = "x"\nemits = "b"\n'
            '[[event_type]]\nname = "b"\n[[event_type.node]]\nname = "y"\nemits = "a"\n',
            "event types lead back to themselves",
        ),
        (
            '[[event_type]]\nname = "a"\n[[event_type.node]]\nname = "x"\nemits = "nothing"\n',
            'there is no event_type "nothing"',
        ),
    ],
)
def test_what_a_bus_file_says(broker: Daemon, tmp_path: Path, entry: str, sentence: str) -> None:
    path = tmp_path / "bus.toml"
    path.write_text(BUS + READER + BOTS + entry)
    done = run_command("apply", path, "-c", broker.config)
    assert done.returncode != 0
    assert sentence in done.stdout + done.stderr


async def test_nobody_emits_as_a_bot(broker: Daemon) -> None:
    with pytest.raises(Refused) as refused:
        async with AsyncEmitter(broker.front, "bot/nightly", "ticket"):
            pass
    assert refused.value.code == "login_refused"
