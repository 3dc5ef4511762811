"""No two programs of tests get the same port, whatever runs beside them."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.ports import Claims, free_port

CLAIM = """
import sys
from pathlib import Path
from tests.support.ports import Claims
claims = Claims(Path(sys.argv[1]))
print(claims.claim(20_001), claims.claim(20_002), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ports"


@pytest.fixture
def claims(path: Path) -> Iterator[Claims]:
    with closing(Claims(path)) as claims:
        yield claims


def test_a_port_is_claimed_once(claims: Claims) -> None:
    assert claims.claim(20_001)
    assert not claims.claim(20_001)
    assert claims.claim(20_002)


def test_what_another_process_claims_is_its_own_until_it_ends(claims: Claims, path: Path) -> None:
    assert claims.claim(20_001)
    command = [sys.executable, "-c", CLAIM, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "False True\n"
        assert not claims.claim(20_002)
        other.kill()
    assert claims.claim(20_002)


def test_none_is_given_twice() -> None:
    given = [free_port() for _ in range(100)]
    assert len(set(given)) == len(given)


def test_where_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        chosen = iter(range(port, port + 100))
        monkeypatch.setattr("random.randint", lambda *_: next(chosen))
        assert free_port() > port
