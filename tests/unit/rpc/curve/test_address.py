"""Addresses of a broker, with keys and without."""

from pathlib import Path

import pytest

from xbus.errors import ConfigurationError
from xbus.rpc.curve import BrokerAddress, KeyPair, complete_login, new_pair, parse_address, shown, write_pair

SERVER = "rq:rM>}U?@Lns47E1?kR.o@n?FcmmsL/@{H8]yf7"


@pytest.fixture
def own() -> KeyPair:
    return new_pair()


@pytest.fixture
def file(tmp_path: Path, own: KeyPair) -> Path:
    write_pair(tmp_path / "own.key", own)
    return tmp_path / "own.key"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1984", "ipc://bus", "tcp://[::1]:1984"])
def test_an_address_of_zeromq_stays_as_it_is(address: str) -> None:
    assert parse_address(address, {}) == BrokerAddress(address)


def test_an_address_names_login_and_keys(file: Path, own: KeyPair) -> None:
    found = parse_address(f"xbus://shop@bus.example:1985?key={SERVER}&client_key={file}&password_file=secret", {})
    assert found == BrokerAddress("tcp://bus.example:1985", "shop", Path("secret"), SERVER, own)


def test_ipv6_keeps_its_brackets(file: Path) -> None:
    assert parse_address(f"xbus://[::1]:1985?key={SERVER}&client_key={file}", {}).endpoint == "tcp://[::1]:1985"


def test_the_environment_names_what_the_address_leaves_out(file: Path, own: KeyPair) -> None:
    environment = {"XBUS_SERVER_KEY": SERVER, "XBUS_CLIENT_KEY": str(file)}
    assert parse_address("xbus://bus.example:1985", environment) == BrokerAddress(
        "tcp://bus.example:1985", server_key=SERVER, own=own
    )


def test_any_key_can_be_written_with_percent_signs(file: Path) -> None:
    key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    found = parse_address(f"xbus://bus.example:1985?key={key.replace('%', '%25')}&client_key={file}", {})
    assert found.server_key == key


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("xbus://bus.example?key=x", "has no host and port"),
        ("xbus://bus.example:port", "has no host and port"),
        ("xbus://bus.example:1985/path", "or more than that"),
        ("xbus://bus.example:1985", "public key is missing"),
        ("xbus://bus.example:1985?key=short", "public key is no key"),
        (f"xbus://bus.example:1985?key={SERVER}", "key file of this program is missing"),
        (f"xbus://bus.example:1985?key={SERVER}&keys=1", "unknown parameter 'keys'"),
        (f"xbus://shop:secret@bus.example:1985?key={SERVER}", "others see a password in it"),
    ],
)
def test_what_makes_no_sense_is_refused(address: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause) as refused:
        parse_address(address, {})
    assert refused.value.code == "bad_address"
    assert "secret" not in str(refused.value)


def test_people_see_host_and_port() -> None:
    assert shown(f"xbus://shop:secret@bus.example:1985?key={SERVER}") == "xbus://bus.example:1985"
    assert shown("tcp://127.0.0.1:1984") == "tcp://127.0.0.1:1984"


def test_a_program_wins_over_the_address(tmp_path: Path) -> None:
    assert complete_login("xbus://nonsense", "shop", "secret", {}) == ("shop", "secret")


def test_a_login_is_completed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\nrest")
    address = f"xbus://shop@bus.example:1985?key={SERVER}&client_key={file}"
    with_file = f"{address}&password_file={tmp_path / 'password'}"
    assert complete_login(with_file, "", "", {"XBUS_PASSWORD": "other"}) == ("shop", "secret")
    assert complete_login(address, "", "", {"XBUS_PASSWORD": "other"}) == ("shop", "other")
    assert complete_login("tcp://127.0.0.1:1", "shop", "", {"XBUS_PASSWORD": "other"}) == ("shop", "other")
    assert complete_login(address, "", "given", {}) == ("shop", "given")


def test_what_is_missing_of_a_login_is_told() -> None:
    with pytest.raises(ConfigurationError, match="nothing says the login") as refused:
        complete_login("tcp://127.0.0.1:1", "", "secret", {})
    assert refused.value.code == "login_missing"
    with pytest.raises(ConfigurationError, match="nothing says the password of shop") as refused:
        complete_login("tcp://127.0.0.1:1", "shop", "", {})
    assert refused.value.code == "password_missing"
