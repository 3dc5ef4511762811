"""The libraries that an installation may lack: only those of the client always come with the bus."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from xbus.errors import MissingExtra

DISTRIBUTION = "xbusd"
"""The name by which pip installs the bus; on the package index, xbus is somebody else's."""


class Library(NamedTuple):
    """A library: the name for pip, that of its module, and the oldest version that will do."""

    name: str
    module: str
    oldest: str


SQLALCHEMY = Library("sqlalchemy", "sqlalchemy", "2.1")

BROKER = (
    Library("alembic", "alembic", "1.14"),
    Library("argon2-cffi", "argon2", "23.1"),
    Library("click", "click", "8.1"),
    Library("cronsim", "cronsim", "2.6"),
    Library("prometheus-client", "prometheus_client", "0.22"),
    SQLALCHEMY,
    Library("zstandard", "zstandard", "0.23"),
)
MONITOR = (
    *BROKER,
    Library("fastapi", "fastapi", "0.120"),
    Library("httptools", "httptools", "0.6.4"),
    Library("jinja2", "jinja2", "3.1"),
    Library("python-multipart", "python_multipart", "0.0.20"),
    Library("uvicorn", "uvicorn", "0.34"),
)
HTTP = (
    Library("anyio", "anyio", "4"),
    Library("click", "click", "8.1"),
    Library("httpcore2", "httpcore2", "2"),
    Library("httptools", "httptools", "0.6.4"),
    Library("prometheus-client", "prometheus_client", "0.22"),
    Library("starlette", "starlette", "0.50"),
    Library("uvicorn", "uvicorn", "0.34"),
)
INBOX = (SQLALCHEMY._replace(oldest="2.0"),)
SPARK = (*BROKER, Library("pyarrow", "pyarrow", "18"), Library("pyspark", "pyspark", "4.3"))
"""The libraries of each extra, as in ``pyproject.toml``; a driver or a Java is missed where it is used."""


def install(extra: str, distribution: str = DISTRIBUTION) -> str:
    """Give the command that installs an extra."""
    return f"pip install '{distribution}[{extra}]'"


def installed_version(distribution: str = DISTRIBUTION) -> str:
    """Give the version of an installed distribution; empty if it did not come by pip."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def require(who: str, extra: str, libraries: Sequence[Library]) -> None:
    """Let a program or a module pass whose libraries are installed.

    Args:
        who: the program or the module, for the error.
        extra: the extra that brings them.
        libraries: what it needs.

    Raises:
        MissingExtra: one of them is missing or too old.
    """
    for name, module, oldest in libraries:
        if find_spec(module) is None:
            raise MissingExtra(f"{who} needs {name}, which is not installed", install(extra))
        try:
            found = version(name)
        except PackageNotFoundError:
            continue  # it did not come by pip, and nothing tells its version
        if _numbers(found) < _numbers(oldest):
            raise MissingExtra(f"{who} needs {name} {oldest} or newer, and {found} is installed", install(extra))


@contextmanager
def needing(option: str, extra: str) -> Iterator[None]:
    """Import within the block what an option of the configuration needs.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{option} needs {error.name}, which is not installed", install(extra)) from error


def _numbers(text: str) -> list[int]:
    """Read the numbers at the beginning of a version; ``2.1.0rc1`` counts as 2.1.0."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits or 0))
        if digits != part:
            break
    return numbers
