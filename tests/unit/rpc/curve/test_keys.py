"""Key pairs and their files."""

import os
from pathlib import Path

import pytest

from xbus.errors import ConfigurationError
from xbus.rpc.curve import is_public_key, new_pair, read_pair, write_pair

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
"""The public key of the specification's example, https://rfc.zeromq.org/spec/26."""


def test_a_pair_can_be_written_and_read(tmp_path: Path) -> None:
    pair = new_pair()
    write_pair(tmp_path / "own.key", pair)
    assert read_pair(tmp_path / "own.key") == pair
    assert os.stat(tmp_path / "own.key").st_mode & 0o777 == 0o600


def test_public_keys_need_no_quoting_in_addresses_and_commands() -> None:
    for _ in range(300):
        public = new_pair().public
        assert not set(public) & set("%&#+")
        assert not public.startswith("-")


def test_a_secret_key_is_not_shown() -> None:
    pair = new_pair()
    assert pair.secret not in repr(pair)


def test_keys_are_recognised() -> None:
    assert is_public_key(KEY)
    assert is_public_key(new_pair().public)


@pytest.mark.parametrize("text", ["", KEY[:-1], KEY + "0", " " * 40, "é" * 40, "#" * 40, None, 7])
def test_other_texts_are_no_keys(text: object) -> None:
    assert not is_public_key(text)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    write_pair(tmp_path / "own.key", new_pair())
    for mode in (0o640, 0o604, 0o666):
        (tmp_path / "own.key").chmod(mode)
        with pytest.raises(ConfigurationError, match="chmod 600") as refused:
            read_pair(tmp_path / "own.key")
        assert refused.value.code == "key_file_open_to_others"


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    pair = new_pair()
    write_pair(tmp_path / "own.key", pair)
    with pytest.raises(ConfigurationError) as refused:
        write_pair(tmp_path / "own.key", new_pair())
    assert refused.value.code == "key_file_exists"
    assert read_pair(tmp_path / "own.key") == pair


def test_a_missing_file_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no\.key can't be read .* xbus keys new") as refused:
        read_pair(tmp_path / "no.key")
    assert refused.value.code == "key_file_unreadable"


@pytest.mark.parametrize("wrong", ["nothing", "half", "foreign"])
def test_a_file_without_a_pair_is_refused(tmp_path: Path, wrong: str) -> None:
    pair, other = new_pair(), new_pair()
    file = tmp_path / "own.key"
    write_pair(file, pair)
    text = file.read_text()
    file.write_text(
        {
            "nothing": "",
            "half": text.replace(pair.secret, "short"),
            "foreign": text.replace(pair.secret, other.secret),
        }[wrong]
    )
    with pytest.raises(ConfigurationError) as refused:
        read_pair(file)
    assert refused.value.code == "bad_key_file"


def test_certificates_of_pyzmq_are_read(tmp_path: Path) -> None:
    from zmq.auth.certs import create_certificates

    _, secret = create_certificates(tmp_path, "other")
    Path(secret).chmod(0o600)
    assert is_public_key(read_pair(Path(secret)).public)
