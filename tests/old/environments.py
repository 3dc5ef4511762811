"""The environments that old programs run in: a Python of their time with the packages of their time."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent.parent / ".venv-old"

VERSIONS = ("3.6", "3.8")
"""aiozmq 0.7.1 runs on the first, 1.0.0 on the second."""

FILE_EMITTER = ("xbus.file_emitter==0.1.2", "pyjon.descriptors==1.7.7")


class Missing(Exception):
    """No Python of that version on this machine."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"no Python {version} to test old programs with: install one, or name it in {variable(version)}"
        )


def variable(version: str) -> str:
    """The environment variable that names a Python, if it is in no usual place."""
    return "XBUS_TEST_PYTHON" + version.replace(".", "")


@cache
def environment(version: str) -> Path:
    """The interpreter of an environment, which is made at the first call and kept.

    Args:
        version: one of :data:`VERSIONS`.

    Raises:
        Missing: there is no such Python here.
    """
    base = find_python(version)
    if base is None:
        raise Missing(version)
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Tests run side by side, and the first of them makes it for all.
    with (ENVIRONMENTS / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(ENVIRONMENTS / version, base, HERE / f"requirements-{version}.txt")


def _made(folder: Path, base: Path, requirements: Path) -> Path:
    wanted = hashlib.sha256(f"{base} {FILE_EMITTER}".encode() + requirements.read_bytes()).hexdigest()
    stamp = folder / "made-from"
    python = folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run(base, "-m", "venv", folder)
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements)
    # Without what they ask for: that would put msgpack-python over msgpack, which has the same place.
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *FILE_EMITTER)
    stamp.write_text(wanted)
    return python


def find_python(version: str) -> Path | None:
    """A Python of a version: as the environment names it, on the path, or among those of pyenv."""
    return next((path for path in _candidates(version) if _is_python(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    named = os.environ.get(variable(version))
    if named:
        yield Path(named)
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted((pyenv / "versions").glob(f"{version}*/bin/python"), reverse=True)


def _is_python(path: Path, version: str) -> bool:
    """Whether it really runs: pyenv puts names on the path with nothing behind them."""
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([path, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    return told.returncode == 0 and told.stdout.strip() == version


def _run(*command: str | Path) -> None:
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    told = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=clean, check=False)
    if told.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{told.stdout}{told.stderr}")


if __name__ == "__main__":
    # So that .ci/run can tell whether a test had to be skipped.
    missing = [version for version in VERSIONS if find_python(version) is None]
    for version in missing:
        print(Missing(version), file=sys.stderr)  # noqa: T201
    sys.exit(bool(missing))
