"""What readers and writers of Spark are asked for."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from spark_worker.sink.options import batch_sink_options, stream_sink_options
from spark_worker.source.columns import COLUMNS, ddl
from spark_worker.source.options import batch_options, chosen_columns, stream_options
from spark_worker.source.places import LogEnd, check_position, parse_place
from spark_worker.source.schema import columns_of
from xbus.errors import ConfigurationError

ALL = tuple(COLUMNS)
DATA = StructType().add("data", BinaryType())


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.ini"
    path.write_text("[database]\nsqlalchemy.dburi = sqlite:///here.db\n")
    return str(path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", LogEnd.EARLIEST),
        ("LATEST", LogEnd.LATEST),
        ("0", 0),
        ("17", 17),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T08:30:00Z", datetime(2026, 11, 21, 8, 30, tzinfo=UTC)),
        ("2026-11-21T08:30+02:00", datetime(2026, 11, 21, 8, 30, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_places(text: str, place: object) -> None:
    assert parse_place("from", text) == place


@pytest.mark.parametrize("text", ["", "-1", "1.5", "soon", "2026-13-01"])
def test_bad_places_are_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option from"):
        parse_place("from", text)


def test_a_day_without_hyphens_is_no_position_beyond_the_end() -> None:
    with pytest.raises(
        ConfigurationError, match="20200101 is read as a position, and the log ends at 5: write 2020-01-01"
    ):
        check_position(20200101, 5)


@pytest.mark.parametrize(("position", "head"), [(20200101, 20200101), (20201301, 5), (99, 5), (2020010112, 5)])
def test_other_positions_may_be_beyond_the_end(position: int, head: int) -> None:
    check_position(position, head)


def test_the_defaults_of_a_reader(config: str) -> None:
    options = batch_options({"config": config, "eventtype": "orders"}, ALL)
    assert (options.begin, options.end, options.partitions) == (LogEnd.EARLIEST, LogEnd.LATEST, 0)
    assert not options.fail_on_data_loss
    assert options.url == f"sqlite:///{Path(config).parent / 'here.db'}"
    assert options.url not in repr(options)


def test_the_defaults_of_a_stream(config: str) -> None:
    options = stream_options({"config": config, "eventType": "orders"}, ALL)
    assert (options.start, options.max_items, options.fail_on_data_loss) == (LogEnd.EARLIEST, 0, True)


def test_the_environment_may_name_the_configuration(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XBUS_CONFIG", config)
    assert batch_options({"eventType": "orders"}, ALL).url.endswith("here.db")


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"eventType": ""}, "option eventType is missing"),
        ({"maxItemsPerTrigger": "many"}, "is not a whole number"),
        ({"maxItemsPerTrigger": "0"}, "is not a whole number from 1 on"),
        ({"failOnDataLoss": "perhaps"}, "is neither true nor false"),
        ({"retrySeconds": "-1"}, "is not a number of seconds"),
        ({"retrySeconds": "nan"}, "is not a number of seconds"),
        ({"formt": "json"}, "there is no option formt"),
    ],
)
def test_bad_options_are_told(config: str, given: dict[str, str], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        stream_options({"config": config, "eventType": "orders", **given}, ALL)


def test_an_option_of_the_other_reader_is_not_passed_over(config: str) -> None:
    given = {"config": config, "eventType": "orders"}
    with pytest.raises(ConfigurationError, match="there is no option startingposition"):
        batch_options({**given, "startingPosition": "7"}, ALL)
    with pytest.raises(ConfigurationError, match="there is no option from"):
        stream_options({**given, "from": "7"}, ALL)


def test_columns_come_as_they_are_named() -> None:
    assert chosen_columns({"columns": "data, position"}) == ("data", "position")
    assert chosen_columns({}) == ALL
    assert ddl(("index", "data")) == "`index` bigint, `data` binary"


@pytest.mark.parametrize("text", ["nix", "data,data", "data,"])
def test_bad_columns_are_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option columns"):
        chosen_columns({"columns": text})


def test_a_schema_may_leave_columns_out_but_not_change_them() -> None:
    assert columns_of(DATA) == ("data",)
    with pytest.raises(ConfigurationError, match="data is of type binary"):
        columns_of(StructType().add("data", StringType()))
    with pytest.raises(ConfigurationError, match="no such column"):
        columns_of(StructType().add("text", StringType()))


SINK = {"front": "tcp://127.0.0.1:1984", "login": "emitter_1", "password": "secret", "eventType": "orders"}


def test_the_front_of_the_configuration_is_where_a_writer_sends_to(config: str) -> None:
    options = batch_sink_options({**SINK, "front": "", "config": config}, DATA, False)
    assert options.url == "tcp://127.0.0.1:1984"


def test_a_password_may_come_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XBUS_PASSWORD", "opensesame")
    options = batch_sink_options({**SINK, "password": ""}, DATA, False)
    assert options.password == "opensesame"
    assert "opensesame" not in repr(options)


@pytest.mark.parametrize(("given", "seconds"), [("", 60), ("0", 0), ("0.5", 0.5)])
def test_no_time_for_a_bus_that_is_away_is_none(given: str, seconds: float) -> None:
    assert batch_sink_options({**SINK, "retrySeconds": given}, DATA, False).retry_seconds == seconds


def test_a_stream_stages_beside_its_checkpoint() -> None:
    for place in ("/data/checkpoint", "file:///data/checkpoint"):
        options = stream_sink_options({**SINK, "checkpointLocation": place}, DATA)
        assert options.staging == "/data/checkpoint/xbus-staging"
    elsewhere = stream_sink_options({**SINK, "checkpointLocation": "s3a://bucket/checkpoint"}, DATA)
    assert "xbus-staging" in elsewhere.staging
    assert stream_sink_options({**SINK, "stagingDir": "s3://bucket/staging"}, DATA).staging == "s3://bucket/staging"


def test_what_a_writer_can_not_do_is_told() -> None:
    with pytest.raises(ConfigurationError, match="can't be overwritten"):
        batch_sink_options(SINK, DATA, True)
    with pytest.raises(ConfigurationError, match="no column data"):
        batch_sink_options(SINK, StructType().add("data", LongType()), False)
    with pytest.raises(ConfigurationError, match="leave option key out"):
        stream_sink_options({**SINK, "key": "day 1"}, DATA)
    with pytest.raises(ConfigurationError, match="option login is missing"):
        batch_sink_options({"front": "tcp://127.0.0.1:1984"}, DATA, False)


def test_a_password_that_nobody_gave_is_told_and_not_sent_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XBUS_PASSWORD", raising=False)
    with pytest.raises(ConfigurationError, match="option password is missing: give it, or set XBUS_PASSWORD"):
        batch_sink_options({**SINK, "password": ""}, DATA, False)


def test_an_option_of_a_writer_that_is_none_is_told() -> None:
    with pytest.raises(ConfigurationError, match="there is no option kye"):
        batch_sink_options({**SINK, "kye": "day 1"}, DATA, False)
    with pytest.raises(ConfigurationError, match="there is no option ordringkey"):
        stream_sink_options({**SINK, "ordringKey": "a"}, DATA)
    stream_sink_options({**SINK, "checkpointLocation": "/here", "queryName": "mine"}, DATA)
