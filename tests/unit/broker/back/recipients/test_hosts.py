"""The hosts at which recipients may listen."""

import asyncio
import threading
from urllib.parse import quote

import pytest

from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.back.recipients.hosts import RecipientHosts, RecipientPlace
from xbus.errors import Refused
from xbus.rpc.curve import new_pair

KNOWN = {"localhost": "127.0.0.1", "shop": "10.0.0.7", "other": "10.0.0.8"}


def look_up(name: str) -> str:
    try:
        return KNOWN[name]
    except KeyError:
        raise OSError("nobody knows it") from None


async def refusal(allowed: list[str], uri: str, caller: str | None = "10.0.0.7") -> str:
    """The code with which an address is refused; empty if it is not."""
    try:
        await RecipientHosts(allowed, look_up).find(uri, caller)
    except Refused as error:
        return error.code
    return ""


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://10.0.0.7:1", "tcp://shop:1"])
async def test_a_recipient_may_listen_beside_the_broker_and_where_it_is(uri: str) -> None:
    assert await refusal([], uri) == ""


async def test_the_address_has_a_number_for_the_name() -> None:
    for allowed, uri, endpoint in (
        ([], "tcp://shop:4000", "tcp://10.0.0.7:4000"),
        (["*"], "tcp://[2001:db8::1]:4000", "tcp://[2001:db8::1]:4000"),
    ):
        assert await RecipientHosts(allowed, look_up).find(uri, "10.0.0.7") == RecipientPlace(endpoint, "")


async def test_the_address_may_have_the_key_of_the_recipient() -> None:
    key = new_pair().public
    found = await RecipientHosts([], look_up).find(f"tcp://shop:4000?key={quote(key, safe='')}", "10.0.0.7")
    assert found == RecipientPlace("tcp://10.0.0.7:4000", key)


@pytest.mark.parametrize("uri", ["tcp://10.0.0.8:1", "tcp://other:1", "tcp://169.254.169.254:80"])
async def test_no_recipient_may_listen_elsewhere(uri: str) -> None:
    assert await refusal([], uri) == "host_not_allowed"
    assert await refusal([], uri, caller="") == "host_not_allowed"


@pytest.mark.parametrize("entry", ["other", "OTHER", "10.0.0.8", "10.0.0.0/24", "*"])
async def test_an_operator_allows_further_hosts(entry: str) -> None:
    assert await refusal([entry], "tcp://other:1") == ""


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "inproc://#f2b",
            "ipc:///run/x",
            "tcp://127.0.0.1",
            "tcp://127.0.0.1:0",
            "tcp://127.0.0.1:65536",
            "tcp://*:1",
        ),
        *("tcp://10.0.0.7:1?key=", "tcp://10.0.0.7:1?key=short", "tcp://10.0.0.7:1?name=x", "tcp://10.0.0.7:1?"),
        *(
            "tcp://10.0.0.7:1;10.0.0.7:1",
            "tcp://a b:1",
            "tcp://:1",
            "",
            "nonsense",
            "tcp://127.0.0.1:1\0",
            "tcp://127.0.0.1:\u0661",
        ),
    ],
)
async def test_other_forms_of_addresses_are_refused(uri: str) -> None:
    assert await refusal(["10.0.0.0/8"], uri) in ("bad_address", "recipient_unreachable")
    assert await refusal(["10.0.0.0/8"], uri, None) in ("bad_address", "recipient_unreachable")


async def test_who_was_let_in_before_is_found_again() -> None:
    assert await refusal([], "tcp://other:1", None) == ""


async def test_an_unknown_name_and_a_silent_name_server_end_the_registration() -> None:
    assert await refusal([], "tcp://nowhere:1") == "recipient_unreachable"
    gate = threading.Event()

    def wait(name: str) -> str:
        gate.wait(DEADLINE_SECONDS)
        return KNOWN[name]

    slow = RecipientHosts([], wait, seconds=0.01)
    with pytest.raises(Refused) as caught:
        await slow.find("tcp://shop:1", "10.0.0.7")
    assert caught.value.code == "recipient_unreachable"
    # A number needs no name server.
    assert await asyncio.wait_for(slow.find("tcp://10.0.0.7:1", "10.0.0.7"), DEADLINE_SECONDS)
    gate.set()
