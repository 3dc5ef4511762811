"""What somebody can do who reaches a port of the bus and has no login: nothing to others."""

import itertools
import resource
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.conftest import shared_broker
from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.forked import ANEW
from tests.support.memory import peak_mib
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.strangers import UNSEEDED, Stranger, made_up_id
from tests.support.waiting import wait_until
from xbus.emitter import Emitter
from xbus.errors import CallError
from xbus.ids import proof_of, token_hash
from xbus.rpc.codec import pack

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker to which each wrong password costs what it costs in production."""
    with shared_broker(tmp_path_factory.mktemp("shared"), ANEW) as daemon:
        yield daemon


CLAIMED = 50
"""More ids than a process has given away here before a stranger comes."""


@pytest.mark.parametrize("place", ["front", "back", "recipient"])
def test_who_claims_the_coming_ids_harms_nobody(place: str, shared: Daemon, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if place == "recipient":
            process, address = stack.enter_context(_recipient(shared, tmp_path))
        else:
            process, address = shared.process, getattr(shared, place)
        for first in UNSEEDED:
            for number in range(first, first + CLAIMED):
                stack.enter_context(Stranger(address, made_up_id(number)))

        for _ in range(CLAIMED // 10):
            with Stranger(address) as honest:
                honest.call("nothing")
                _, error = honest.answer()
                assert isinstance(error, CallError)
        assert process.runs


@contextmanager
def _recipient(daemon: Daemon, folder: Path) -> Iterator[tuple[Process, str]]:
    """A recipient of the SDK in a process of its own, and where it listens."""
    address = f"tcp://127.0.0.1:{free_port()}"
    process = Process(
        *(script("xbus"), "recipient", "run", "consumer:Clients"),
        *("--back", daemon.back, "--login", "c_1", "--bind", address),
        output=folder / "recipient.log",
        cwd=EXAMPLES,
        env={"XBUS_PASSWORD": PASSWORD},
    )
    try:
        wait_until(lambda: "registered" in process.text or not process.runs, "it is registered")
        assert process.runs, process.text
        yield process, address
    finally:
        process.kill()


HEALTH = 1001

GUESSES = 6
"""Wrong passwords of one connection, behind which the login has a pause."""

GUESSERS = 20
"""Connections that guess; so many that the pauses behind their guesses outlast the time of a login."""


@pytest.mark.parametrize("place", ["front", "back"])
def test_a_token_does_not_go_to_who_takes_the_place_of_a_client_that_gave_up(place: str, shared: Daemon) -> None:
    address = getattr(shared, place)
    login = {"front": "emitter_1", "back": "c_1"}[place]
    too_late = shared.log.count("login_too_late")
    with ExitStack() as stack, Stranger(address, b"chosen") as client:
        guesser = stack.enter_context(Stranger(address))
        for _ in range(GUESSES):
            guesser.call("xbus.login", login, "wrong")
            guesser.answer()
        client.call("xbus.login", login, PASSWORD)
        _read_all(client)
        client.close()
        for _ in range(GUESSERS):
            stack.enter_context(Stranger(address)).call("xbus.login", login, "wrong")

        with _in_place_of_the_client(address) as thief:
            wait_until(lambda: shared.log.count("login_too_late") > too_late, "the login comes to its end")
            stolen = _read_all(thief)

    del stolen[HEALTH]
    assert [answer for answer in stolen.values() if not isinstance(answer, CallError)] == []


CROWD = 1000
"""Logins of one connection: more than any machine checks in the time that an honest client waits."""


def test_a_crowd_of_logins_keeps_nobody_out(shared: Daemon) -> None:
    with Stranger(shared.front) as crowd, Stranger(shared.front) as honest:
        for number in range(CROWD):
            crowd.call("login", f"nobody {number}", "wrong", request_id=number)
        _read_all(crowd)
        honest.call("xbus.login", "emitter_2", PASSWORD)
        _, answer = honest.answer()
        assert "token" in answer


def test_who_guesses_passwords_waits_longer_and_longer(shared: Daemon) -> None:
    with Stranger(shared.front) as guesser:
        moments = [time.monotonic()]
        for _ in range(9):
            guesser.call("login", "guessed", "wrong")
            assert guesser.answer()[1] == ""
            moments.append(time.monotonic())
    waits = [after - before for before, after in itertools.pairwise(moments)]
    # Pauses begin behind the third; the last two are of half a second and more.
    assert waits[-1] + waits[-2] > 1.0


def _read_all(peer: Stranger) -> dict[int, Any]:
    """Wait until the broker has read what this peer has sent so far; what it has answered up to then."""
    peer.call("xbus.health", request_id=HEALTH)
    told: dict[int, Any] = {}
    while HEALTH not in told:
        told.update([peer.answer()])
    return told


@contextmanager
def _in_place_of_the_client(address: str) -> Iterator[Stranger]:
    """Somebody with the id ``chosen``; the broker does not hear him before the end of who had it last reaches it."""
    taken: list[Stranger] = []

    def is_heard() -> bool:
        thief = Stranger(address, b"chosen", patience=0.5)
        try:
            _read_all(thief)
        except TimeoutError:
            thief.close()
            return False
        taken.append(thief)
        return True

    wait_until(is_heard, "the id is free")
    with taken[0]:
        yield taken[0]


EMPTY_MAPS = b"\xdd\x00\xe0\x00\x00" + b"\x80" * 0xE00000
"""14 MiB of arguments, of which msgpack would make 1 GB."""

DECLARED = b"\xdc\x3f\xff" * 5000
"""15 kB of arguments that have msgpack reserve 100 MB."""

FLOOD_MIB = 400
"""The growth of the broker that passes: what it reads ahead of such messages, but none of their values."""


@pytest.mark.parametrize("arguments", [EMPTY_MAPS, DECLARED], ids=["empty maps", "declared arrays"])
def test_a_call_of_a_stranger_is_not_looked_into(arguments: bytes, shared: Daemon) -> None:
    before = peak_mib(shared.process.pid)
    with Stranger(shared.front) as stranger:
        for verb in ("send_item", "xbus.send_items", "nothing"):
            for _ in range(3):
                stranger.send(verb, arguments)
                _, answer = stranger.answer()
                if verb == "send_item":
                    assert not answer
                else:
                    assert answer.code == ("unknown_method" if verb == "nothing" else "session_unknown")
    assert peak_mib(shared.process.pid) - before < FLOOD_MIB


def test_who_has_logged_in_may_begin_with_a_large_call_and_take_its_time(shared: Daemon) -> None:
    with Stranger(shared.front) as emitter:
        emitter.call("xbus.login", "emitter_2", PASSWORD)
        _, granted = emitter.answer()
        call = emitter.framed("xbus.put_envelope", pack([granted["token"], "x" * 3_000_000]))
        emitter.send_raw(call[:2_000_000])
        time.sleep(0.5)
        emitter.send_raw(call[2_000_000:])
        assert emitter.answer()[1].code == "wrong_arguments"


def test_an_emitter_that_sends_more_values_than_any_call_has_is_refused(shared: Daemon) -> None:
    before = peak_mib(shared.process.pid)
    with Stranger(shared.front) as emitter:
        granted: dict[str, Any] = {}

        def is_in() -> bool:
            # The crowd of another test may still wait for its turn.
            emitter.call("xbus.login", "emitter_1", PASSWORD)
            _, answer = emitter.answer()
            granted.update({} if isinstance(answer, CallError) else answer)
            return bool(granted)

        wait_until(is_in, "it is logged in")
        for arguments in (EMPTY_MAPS, DECLARED):
            emitter.send("xbus.send_items", b"\x92" + pack(granted["token"]) + arguments)
            _, error = emitter.answer()
            assert (error.code, "has more than 100,000 values" in error.cause) == ("wrong_arguments", True)
    assert peak_mib(shared.process.pid) - before < FLOOD_MIB


def test_the_log_of_a_refused_login_is_short(shared: Daemon) -> None:
    with Stranger(shared.front) as stranger:
        stranger.call("xbus.login", "x" * 1_000_000, "wrong")
        _, error = stranger.answer()
        assert error.code == "session_unknown"
    assert "x" * 2_000 not in shared.log


FEW = 60
"""Descriptors that are left to a broker here."""

SPARE = 3
"""Descriptors that the connections leave: enough to count, and too few for health."""


def test_health_tells_of_connections_that_leave_no_room_for_others(shared: Daemon) -> None:
    limit = _descriptors(shared) + FEW
    _, before = resource.prlimit(shared.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(shared.pid, resource.RLIMIT_NOFILE, (limit, before))
    try:
        with Stranger(shared.front) as asking, ExitStack() as stack:
            assert "descriptors_short" not in _problems(asking)
            # Connections of tests before this one may only now be closed.
            while _descriptors(shared) < limit - SPARE:
                stack.enter_context(Stranger(shared.front))
            wait_until(lambda: "descriptors_short" in _problems(asking), "health tells of it")
            stack.close()
            wait_until(lambda: "descriptors_short" not in _problems(asking), "it is over")
    finally:
        resource.prlimit(shared.pid, resource.RLIMIT_NOFILE, (before, before))


def test_a_broker_takes_as_many_descriptors_as_it_may(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        # Anew, as a fork of the nursery has the limit of the nursery.
        with shared_broker(tmp_path, ANEW) as daemon:
            assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def _connections(daemon: Daemon) -> int:
    found = 0
    for descriptor in Path(f"/proc/{daemon.pid}/fd").iterdir():
        with suppress(OSError):
            found += str(descriptor.readlink()).startswith("socket:")
    return found


def _problems(asking: Stranger) -> list[str]:
    asking.call("xbus.health")
    _, told = asking.answer()
    return [problem["code"] for problem in told["problems"]]


def test_nobody_but_the_broker_is_answered_by_a_recipient_that_listens(shared: Daemon, tmp_path: Path) -> None:
    event = [str(uuid4()), str(uuid4()), "test_event"]
    with _recipient(shared, tmp_path) as (process, address), Stranger(address) as stranger:
        calls: list[tuple[Any, ...]] = [
            ("get_metadata",),
            ("has_clearing",),
            ("has_immediate_reply",),
            ("start_event", *event),
            ("send_item", *event[:2], [0], b"forged"),
            ("end_event", *event[:2]),
            ("end_envelope", event[0]),
            ("xbus.take_event", *event, [[1, None, b"\xc4\x01x"]], True),
            ("xbus.take_envelopes", []),
        ]
        for verb, *arguments in calls:
            stranger.call(verb, *arguments)
            _, error = stranger.answer()
            assert (verb, error.code) == (verb, "not_proven")
        stranger.call("ping", "token")
        assert stranger.answer()[1] == "token"
        stranger.call("xbus.prove", b"x" * 32)
        assert stranger.answer()[1].code == "not_proven"
        stranger.call("xbus.challenge")
        _, challenge = stranger.answer()
        stranger.call("xbus.prove", proof_of(token_hash("guessed"), challenge))
        assert stranger.answer()[1].code == "not_proven"
        stranger.call("get_metadata")
        assert stranger.answer()[1].code == "not_proven"

        before = peak_mib(process.pid)
        with Stranger(address) as greedy:
            with suppress(ConnectionError):
                greedy.send("end_event", EMPTY_MAPS)
        stranger.call("ping", "still there")
        assert stranger.answer()[1] == "still there"
        assert peak_mib(process.pid) - before < FLOOD_MIB / 4

        with Emitter(shared.front, "emitter_1", PASSWORD) as emitter:
            emitter.put("test_event", [{"id": 1, "name": "honest"}])
        wait_until(lambda: "client: honest" in process.text, "the broker has brought it", 20)


PING = b"\x04\x07\x04PING\0\0"
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"

BREACHES = {
    "a frame of 64 MiB": b"\x02" + struct.pack(">Q", 64 * 2**20) + bytes(1000),
    "the longest frame": b"\x03" + b"\xff" * 8,
    "a command without an end": b"\x06" + struct.pack(">Q", 2**40) + bytes(1000),
    "a command that goes on": b"\x05\x04ERRO",
    "frames without an end": b"\x01\x00" * 1000,
    "signs of life without an end": PING * 10_000,
    "a second handshake": READY,
    "an unknown flag": b"\x88\x01x",
}

LEFT_OPEN = {
    "half a header": b"\x02\0\0",
    "a frame that never comes": b"\x00\xff" + bytes(10),
    "a message whose end never comes": b"\x01\x03abc",
    "nothing": b"",
}


@pytest.mark.parametrize("place", ["front", "back"])
def test_who_bends_the_rules_of_zmtp_is_put_out_or_costs_a_connection_at_most(place: str, shared: Daemon) -> None:
    address = getattr(shared, place)
    connections, memory = _connections(shared), peak_mib(shared.pid)
    with Stranger(address) as honest, ExitStack() as stack:
        for told, data in BREACHES.items():
            with Stranger(address) as breaking:
                with suppress(ConnectionError):
                    breaking.send_raw(data)
                assert breaking.is_over(), told
        for data in LEFT_OPEN.values():
            stack.enter_context(Stranger(address)).send_raw(data)
            # Half of a message, and then the connection is reset.
            with Stranger(address) as leaving:
                leaving.send_raw(data)
                leaving.reset()
        honest.call("xbus.health")
        assert isinstance(honest.answer()[1], dict)
    wait_until(lambda: _connections(shared) <= connections, "their connections are given back")
    assert peak_mib(shared.pid) - memory < FLOOD_MIB / 4
