"""The command line of the Spark worker; what it starts is tested on a real bus."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_worker import cli
from spark_worker.transform.transforms import SqlTransform
from spark_worker.worker.serving import WorkerOptions
from tests.support.daemon import write_config
from xbus.errors import ConfigurationError, Refused


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """What was to be served; nothing is."""
    seen: list[WorkerOptions] = []

    async def note(options: WorkerOptions) -> None:
        seen.append(options)

    monkeypatch.setattr(cli, "serve_for_ever", note)
    monkeypatch.setattr("xbus.logs.set_up", lambda _: None)
    return seen


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "query.sql").write_text("SELECT * FROM items")
    config = write_config(tmp_path / "config.ini", f"sqlite:///{tmp_path}/xbus.db")
    wanted = ["-c", str(config), "--login", "spark_1", "--back", "tcp://127.0.0.1:4891"]
    return [*wanted, "--sql", str(tmp_path / "query.sql"), "--schema", "id INT"]


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.main, arguments, env={"XBUS_PASSWORD": "secret"})
    return result.exit_code, result.stderr


def test_options_are_handed_on(started: list[WorkerOptions], arguments: list[str]) -> None:
    more = ["--conf", "spark.a=b", "--option", "year=2013", "--min-items", "7", "--order-by", "day", "--keep-corrupt"]

    assert invoke(*arguments, *more) == (0, "")

    (options,) = started
    assert options.items_format == "msgpack"
    assert (options.login, options.password, options.master) == ("spark_1", "secret", "local[*]")
    assert isinstance(options.transform, SqlTransform)
    assert (options.settings, options.options) == ({"spark.a": "b"}, {"year": "2013"})
    assert (options.min_items, options.order_by, options.keep_corrupt) == (7, "day", True)
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--transform", "module:function"], "there must be one transform: give either --transform or --sql"),
        (["--conf", "spark.a"], "--conf spark.a is not key=value"),
        (["--option", "=b"], "--option =b is not key=value"),
        (["--schema", ""], "items in the format msgpack need a schema"),
        (["--format", "bytes"], "items in the format bytes have no columns"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    started: list[WorkerOptions], arguments: list[str], more: list[str], said: str
) -> None:
    code, text = invoke(*arguments, *more)

    assert code == 1
    assert text.startswith(f"xbus-spark-worker: {said}")
    assert started == []


def test_a_format_that_is_none_is_told(arguments: list[str]) -> None:
    assert invoke(*arguments, "--format", "xml")[0] == 2


def test_a_role_that_is_refused_ends_the_program(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: WorkerOptions) -> None:
        raise Refused("login or password are wrong", code="login_refused")

    monkeypatch.setattr(cli, "serve_for_ever", refuse)
    monkeypatch.setattr("xbus.logs.set_up", lambda _: None)

    assert invoke(*arguments) == (1, "xbus-spark-worker: login or password are wrong [login_refused]\n")


def test_neither_transform_nor_sql_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="there must be one transform"):
        cli.chosen_transform(None, None)
