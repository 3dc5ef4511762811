"""The configuration file: read, checked, and explained by its sample."""

import configparser
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.config import (
    OPTIONS,
    SECTIONS,
    UNUSED,
    Config,
    load,
    option_name,
    read,
    sample,
    without_password,
    without_secrets,
    written,
)
from xbus.errors import ConfigurationError

SAMPLE = Path(__file__).parents[2] / "config.ini.sample"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.ini"


def configured(file: Path, text: str) -> Config:
    file.write_text(text)
    return load(file)


def test_an_empty_file_means_the_defaults(file: Path) -> None:
    config = configured(file, "")

    assert config.database.url == f"sqlite:///{file.parent / 'xbus.db'}"
    assert config.zmq.frontsocket == "tcp://127.0.0.1:1984"
    assert config.back.end_event_timeout == 300
    assert config.logging.configfile is None
    assert config.notes == ()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1984", "ipc://bus", "tcp://*:1984"])
def test_front_and_back_need_an_address_each(file: Path, address: str) -> None:
    file.write_text(f"[zmq]\nfrontsocket = {address}\nbacksocket = {address}\n")

    (problem,) = read(file).problems
    assert problem.cause.startswith("[zmq] frontsocket and backsocket are both ")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:0"])
def test_front_and_back_may_both_take_a_free_port(file: Path, address: str) -> None:
    file.write_text(f"[zmq]\nfrontsocket = {address}\nbacksocket = {address}\n")

    assert read(file).problems == ()


def test_the_sample_says_what_the_defaults_are(file: Path) -> None:
    file.write_text(SAMPLE.read_text())

    assert load(file) == configured(file, "")


def test_the_sample_lists_every_option_and_no_other() -> None:
    sample = configparser.ConfigParser(interpolation=None)
    sample.read(SAMPLE)

    listed = {name: set(sample[name]) for name in sample.sections()}
    assert listed == {name: {option_name(field) for field in fields(kind)} for name, kind in SECTIONS.items()}


def test_the_sample_explains_every_option() -> None:
    lines = SAMPLE.read_text().splitlines()

    options = [number for number, line in enumerate(lines) if "=" in line and not line.startswith(";")]
    assert options
    assert [lines[number] for number in options if not lines[number - 1].startswith(";")] == []


def test_every_section_is_a_dataclass() -> None:
    assert SECTIONS.keys() == {field.name for field in fields(Config)} - {"notes", "file"}
    assert all(is_dataclass(kind) for kind in SECTIONS.values())
    assert UNUSED.keys() <= SECTIONS.keys()


def test_a_file_of_the_old_broker(file: Path) -> None:
    config = configured(
        file,
        """
        [database]
        sqlalchemy.dburi = postgres://xbus:100%%25@db.example:5432/xbus
        [redis]
        host = localhost
        port = 6379
        [zmq]
        frontsocket = tcp://*:1984
        backsocket = tcp://*:4891
        b2fsocket = inproc://#f2b
        [logging]
        configfile = logging.ini
        [supervision]
        ; time interval in seconds
        enabled = true
        node.polling.interval = 7
        node.polling.timeout = 2
        node.misses.threshold = 3
        backsocket = inproc://#back2sup
        """,
    )

    assert config.database.url == "postgresql+psycopg2://xbus:100%25@db.example:5432/xbus"
    assert config.zmq.frontsocket == "tcp://*:1984"
    assert config.logging.configfile == file.parent / "logging.ini"
    assert config.supervision.enabled is True
    assert (config.supervision.interval, config.supervision.timeout, config.supervision.misses) == (7.0, 2.0, 3)
    assert [note.removeprefix(f"{file}: ") for note in config.notes] == [
        "[redis] is not needed and has no effect",
        "[supervision] backsocket is not needed and has no effect",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("postgresql://u:p@h/n", "postgresql+psycopg2://u:p@h/n"),
        ("postgresql+psycopg2://u:p%40ss@h/n?sslmode=require", "postgresql+psycopg2://u:p%40ss@h/n?sslmode=require"),
        ("sqlite:////var/lib/xbus.db", "sqlite:////var/lib/xbus.db"),
        ("sqlite:///data/xbus.db", "sqlite:///{folder}/data/xbus.db"),
        ("sqlite:///file:xbus.db?uri=true", "sqlite:///file:xbus.db?uri=true"),
    ],
)
def test_database_addresses(file: Path, written: str, meant: str) -> None:
    config = configured(file, f"[database]\nsqlalchemy.dburi = {written}")

    assert config.database.url == meant.format(folder=file.parent)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ipc:///run/xbus.socket", "ipc:///run/xbus.socket"),
        ("ipc://wake.socket", "ipc://{folder}/wake.socket"),
        ("ipc://@xbus", "ipc://@xbus"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
        ("tcp://[::1]:1984", "tcp://[::1]:1984"),
    ],
)
def test_socket_addresses(file: Path, written: str, meant: str) -> None:
    config = configured(file, f"[zmq]\nb2fsocket = {written}")

    assert config.zmq.b2fsocket == meant.format(folder=file.parent)


@pytest.mark.parametrize(
    ("section", "key", "value", "because"),
    [
        ("database", "sqlalchemy.dburi", "mysql://localhost/xbus", "is neither an sqlite nor a postgresql address"),
        ("database", "sqlalchemy.dburi", "postgresql://u:p@host:port/xbus", "has 'port' where a port belongs"),
        ("database", "sqlalchemy.dburi", "postgresql://u:p@[::1]:70000/xbus", "has '70000' where a port belongs"),
        ("database", "sqlalchemy.dburi", "postgresql://u:p@host:/xbus", "has '' where a port belongs"),
        ("database", "sqlalchemy.dburi", "postgresql://u:p@[::1/xbus", "has '[::1' where a host belongs"),
        ("database", "sqlalchemy.dburi", "postgresql://u:p@h:1:2/xbus", "has 'h:1:2' where a host belongs"),
        ("database", "sqlalchemy.dburi", "sqlite://", "is a database in memory"),
        ("database", "sqlalchemy.dburi", "sqlite:///:memory:", "is a database in memory"),
        ("database", "sqlalchemy.dburi", "xbus.db", "is not a database address"),
        ("database", "sqlalchemy.dburi", "", "is not a database address"),
        ("zmq", "frontsocket", "127.0.0.1:1984", "is not an address such as"),
        ("zmq", "frontsocket", "http://127.0.0.1:1984", "is not an address such as"),
        ("zmq", "frontsocket", "tcp://127.0.0.1", "has no port"),
        ("zmq", "frontsocket", "tcp://127.0.0.1:65536", "has no port"),
        ("zmq", "backsocket", "inproc://#back", "where nobody else can call"),
        ("zmq", "b2fsocket", "ipc://", "is not an address such as"),
        ("logging", "level", "LOUD", "is not one of DEBUG"),
        ("supervision", "enabled", "perhaps", "is neither true nor false"),
        ("supervision", "node.polling.interval", "0", "above 0"),
        ("front", "max_item_bytes", "1.5", "is not a whole number"),
        ("front", "max_item_bytes", "16 MiB", "is not a whole number"),
        ("front", "max_item_bytes", "0", "is not between 1 and"),
        ("front", "session_seconds", "nan", "above 0"),
        ("front", "session_hours", "0", "is neither a number of hours above 0, up to 876000, nor the word never"),
        ("front", "session_hours", "a day", "is neither a number of hours nor the word never"),
        ("monitor", "idle_minutes", "0", "is neither a number of minutes above 0, up to 52560000, nor the word never"),
        ("monitor", "idle_minutes", "an hour", "is neither a number of minutes nor the word never"),
        ("health", "open_minutes", "-1", "is neither a number of minutes between 0 and 52560000 nor the word never"),
        ("health", "open_minutes", "nan", "is neither a number of minutes between 0 and 52560000 nor the word never"),
        ("health", "open_minutes", "inf", "is neither a number of minutes between 0 and 52560000 nor the word never"),
        ("health", "absent_minutes", "a while", "is neither a number of minutes nor the word never"),
        ("health", "interval", "0", "above 0"),
        ("supervision", "heartbeat", "0..", "is not a number of seconds"),
        ("back", "end_event_timeout", "inf", "above 0"),
        ("back", "end_event_timeout", "-1", "above 0"),
        ("daemon", "stop_timeout", "soon", "is not a number of seconds"),
        ("metrics", "listen", "9180", "is not a host and a port"),
        ("metrics", "listen", ":9180", "is not a host and a port"),
        ("metrics", "listen", "127.0.0.1:", "is not a host and a port"),
        ("metrics", "listen", "127.0.0.1:65536", "is not a host and a port"),
        ("metrics", "listen", "::1:9180", "is not a host and a port"),
        ("metrics", "listen", "http://127.0.0.1:9180", "is not a host and a port"),
        ("alerts", "command", "notify 'the team", "is not a command line (No closing quotation)"),
        ("alerts", "url", "chat.example/hook", "is not an address such as"),
        ("alerts", "url", "ftp://chat.example/hook", "is not an address such as"),
        ("alerts", "url", "https:///hook", "is not an address such as"),
        ("alerts", "url", "https://chat.example:port/hook", "is not an address such as"),
        ("alerts", "url", "https://chat.example/a b", "is not an address such as"),
    ],
)
def test_a_bad_value_is_named_with_its_place(file: Path, section: str, key: str, value: str, because: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(file, f"[{section}]\n{key} = {value}")

    assert caught.value.cause.startswith(f"{file}: [{section}] {key}: ")
    assert because in caught.value.cause
    assert caught.value.next_step


NUMBERS = [
    (name, option_name(field), type(field.default))
    for name, kind in SECTIONS.items()
    for field in fields(kind)
    if type(field.default) in (int, float)
]
MAY_BE_ZERO = {
    *{("supervision", "heartbeat"), ("journal", "max_bytes"), ("journal", "keep_settled_days")},
    *{("journal", "owed_days"), ("health", "absent_minutes"), ("health", "parked_minutes")},
    *{("health", "open_minutes"), ("back", "jitter"), ("front", "autodrop_envelopes")},
}


@pytest.mark.parametrize(("section", "key"), [(section, key) for section, key, _ in NUMBERS])
def test_zero_is_taken_where_it_makes_sense(file: Path, section: str, key: str) -> None:
    text = f"[{section}]\n{key} = 0\n"
    if (section, key) in MAY_BE_ZERO:
        configured(file, text)
    else:
        with pytest.raises(ConfigurationError, match=key):
            configured(file, text)


@given(place=st.sampled_from(NUMBERS), text=st.text(st.characters(blacklist_categories=["C", "Z"])))
def test_a_number_is_taken_in_range_or_refused(tmp_path_factory: Any, place: tuple[str, str, type], text: str) -> None:
    section, key, number = place
    file = tmp_path_factory.getbasetemp() / "number.ini"
    file.write_text(f"[{section}]\n{key} = {text}\n", encoding="utf-8")
    try:
        config = load(file)
    except ConfigurationError as error:
        assert repr(text) in error.cause
    else:
        described = next(field for field in fields(SECTIONS[section]) if option_name(field) == key)
        taken = getattr(getattr(config, section), described.name)
        assert taken == number(text)
        assert 0 < taken <= 2**53 or (taken == 0 and (section, key) in MAY_BE_ZERO)


@given(data=st.binary(max_size=200))
def test_any_file_is_read_or_refused(tmp_path_factory: Any, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.ini"
    file.write_bytes(data)
    try:
        load(file)
    except ConfigurationError as error:
        assert str(file) in error.cause
        assert error.next_step


@pytest.mark.parametrize(("written", "meant"), [("0", 0), ("1.5", 1.5), ("never", math.inf)])
def test_minutes_until_health_tells(file: Path, written: str, meant: float) -> None:
    assert configured(file, f"[health]\nparked_minutes = {written}").health.parked_minutes == meant


@given(
    section=st.sampled_from([*SECTIONS, "frnt", "DEFAULT"]), key=st.from_regex(r"[a-z][a-z._]{0,20}", fullmatch=True)
)
def test_an_unknown_option_is_refused(tmp_path_factory: Any, section: str, key: str) -> None:
    file = tmp_path_factory.getbasetemp() / "option.ini"
    file.write_text(f"[{section}]\nx_{key} = \n")
    with pytest.raises(ConfigurationError) as caught:
        load(file)

    assert section in caught.value.cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[frnt]\n", "'frnt' is no section"),
        ("[front]\nmax_items = 1\n", "'max_items' is no option of [front]"),
        ("[DEFAULT]\nlevel = INFO\n", "'DEFAULT' is no section"),
        ("level = INFO\n", "line 1: there is no section above it"),
        ("[logging]\nlevel\n", "line 2: not an option with a value"),
        ("[logging]\nlevel = INFO\nlevel = DEBUG\n", "line 3: [logging] level is given twice"),
        ("[front]\n[front]\n", "line 2: [front] is given twice"),
    ],
)
def test_a_malformed_file_is_refused(file: Path, text: str, cause: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(file, text)

    assert cause in caught.value.cause
    assert caught.value.next_step


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.ini can't be read \(No such file or directory\): name a"):
        load(tmp_path / "nothing.ini")


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"[front]\nsession_seconds = \xff\n")

    with pytest.raises(ConfigurationError, match="not text in UTF-8"):
        load(file)


@pytest.mark.parametrize("listen", ["", "127.0.0.1:9180", "[::1]:9180", "*:0", "bus.example:65535"])
def test_an_address_for_metrics(file: Path, listen: str) -> None:
    assert configured(file, f"[metrics]\nlisten = {listen}").metrics.listen == listen


def test_passwords_are_not_shown(file: Path) -> None:
    config = configured(file, "[database]\nsqlalchemy.dburi = postgresql://xbus:secret@db/xbus\n")
    assert "secret" not in repr(config)

    for text in (
        "[database]\nsqlalchemy.dburi = mysql://xbus:secret@db/xbus",
        "[database]\npostgresql://xbus:secret@db",
    ):
        with pytest.raises(ConfigurationError) as caught:
            configured(file, text)
        assert "secret" not in str(caught.value)


# -- the environment ---------------------------------------------------------------------------------------------------


def test_a_variable_of_the_environment_wins_over_the_file(file: Path) -> None:
    file.write_text("[zmq]\nfrontsocket = tcp://*:1\nbacksocket = tcp://*:2\n")

    config = load(file, {"XBUS_ZMQ__FRONTSOCKET": "tcp://*:3", "XBUS_SUPERVISION__NODE_POLLING_INTERVAL": "7"})

    assert config.zmq.frontsocket == "tcp://*:3"
    assert config.zmq.backsocket == "tcp://*:2"
    assert config.supervision.interval == 7


def test_the_environment_alone_is_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    config = load(None, {"XBUS_DATABASE__SQLALCHEMY_DBURI": "sqlite:///here.db", "XBUS_LOGIN": "shop_1"})

    assert config.database.url == f"sqlite:///{tmp_path}/here.db"
    assert config.file is None


@pytest.mark.parametrize("environment", [{}, {"XBUS_LOGIN": "shop_1", "XBUS_CONFIG": "x.ini", "PATH": "/bin"}])
def test_neither_file_nor_environment_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"no configuration file is named: .*XBUS_DATABASE__SQLALCHEMY_DBURI"):
        load(None, environment)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("XBUS_FRONT__MAX_ITEM_BYTES", "lots", "XBUS_FRONT__MAX_ITEM_BYTES: 'lots' is not a whole number: correct it"),
        ("XBUS_DATABASE__SQLALCHEMY_DBURI", "mysql://u:secret@h/n", "SQLALCHEMY_DBURI: the value is neither an sqlite"),
        (
            "XBUS_ZMQ__FRONTSOKET",
            "tcp://*:3",
            "XBUS_ZMQ__FRONTSOKET belongs to no option: you may mean XBUS_ZMQ__FRONT",
        ),
        ("XBUS_ALERTS__URL", "chat.example/secret", "XBUS_ALERTS__URL: the value is not an address"),
        ("XBUS_Q__W", "1", "XBUS_Q__W belongs to no option: unset it"),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(None, {variable: value})

    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_each_option_has_a_variable_of_its_own() -> None:
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)
    everything = {option.variable: written(_default(option.section, option.field)) for option in OPTIONS}

    found = read(None, everything)

    assert found.problems == ()
    assert found.config == load(None, {"XBUS_DAEMON__STOP_TIMEOUT": "10"})
    assert {option: option.variable for option in OPTIONS} == found.sources


def _default(section: str, field: str) -> object:
    return getattr(getattr(Config(), section), field)


def test_everything_wrong_is_found(file: Path) -> None:
    file.write_text("[zmq]\nfrontsocket = x\nbacksocket = y\n[frnt]\n[front]\nmax_items = 1\n")

    found = read(file, {"XBUS_LOGGING__LEVEL": "LOUD"})

    assert [problem.cause.replace(f"{file}: ", "").split(" is")[0] for problem in found.problems] == [
        "[zmq] frontsocket: 'x'",
        "[zmq] backsocket: 'y'",
        "'max_items'",
        "'frnt'",
        "XBUS_LOGGING__LEVEL: 'LOUD'",
    ]
    assert found.config.zmq.frontsocket == "tcp://127.0.0.1:1984"


def test_the_sample_is_found() -> None:
    assert sample() == SAMPLE.read_text()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:////var/lib/xbus.db", "sqlite:////var/lib/xbus.db"),
        ("postgresql://xbus@h/n", "postgresql://xbus@h/n"),
        ("postgresql://h:5432/n?sslmode=require", "postgresql://h:5432/n?sslmode=require"),
        ("postgresql+psycopg2://xbus:secret@h:5432/n", "postgresql+psycopg2://xbus:***@h:5432/n"),
        ("postgresql://:secret@h/n", "postgresql://:***@h/n"),
        (
            "postgresql:///n?user=u&password=secret&sslpass%77ord=secret",
            "postgresql:///n?user=u&password=***&sslpass%77ord=***",
        ),
        ("postgresql://xbus:se/c?ret@h/n", "postgresql://xbus:***@h/n"),
        ("postgresql://xb/us:secret@h/n", "postgresql://***"),
        ("postgresql://xbus:secret@secret@h/n", "postgresql://***"),
        ("xbus_api_secret", "***"),
        ("https://user:secret@chat.example/services/secret?token=secret", "https://chat.example/***"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


@given(st.text(), st.text())
def test_no_password_is_ever_shown(before: str, after: str) -> None:
    assert "5ecret" not in without_secrets(f"postgresql://{before}:5ecret@{after}".replace("5ecret5ecret", ""))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://clerk:5ecret@here:5432/clearing", "postgresql://clerk@here:5432/clearing"),
        ("postgresql://here/clearing?password=5ecret&sslmode=require", "postgresql://here/clearing?sslmode=require"),
        ("postgresql://here/clearing", "postgresql://here/clearing"),
        ("sqlite:////var/lib/clearing.db", "sqlite:////var/lib/clearing.db"),
        ("/var/lib/clearing.db", "/var/lib/clearing.db"),
        ("host=here password=5ecret", "***"),
        ("postgresql://clerk:5e/cret@x@here/clearing", "***"),
    ],
)
def test_an_address_without_its_password_still_leads_there(address: str, shown: str) -> None:
    assert without_password(address) == shown


@pytest.mark.parametrize("option", ["objects", "archive"])
@pytest.mark.parametrize("address", ["s3://key:5ecret@bucket/objects", "s3://bucket/objects?secret_key=5ecret"])
def test_a_place_with_a_key_is_refused_and_not_shown(file: Path, option: str, address: str) -> None:
    file.write_text(f"[journal]\n{option} = {address}\n")

    (problem,) = read(file).problems
    assert "AWS_SECRET_ACCESS_KEY" in str(problem)
    assert "5ecret" not in str(problem)


@pytest.mark.parametrize("address", ["s3://bucket/objects?region=eu-west-3", "hdfs://clerk@here/objects", "objects"])
def test_a_place_without_a_key_is_taken(file: Path, address: str) -> None:
    assert configured(file, f"[journal]\nobjects = {address}\n").journal.objects.endswith(address)
