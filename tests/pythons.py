"""``python -m tests.pythons``: runs tests of the client and the commands on each newer Python that this machine has.

Each gets an environment of its own, without Spark. The whole suite runs on the Python of the ordinary environment.
"""

import subprocess
import sys
from pathlib import Path

from tests.old.environments import find_python

CHECKOUT = Path(__file__).parent.parent
ENVIRONMENTS = CHECKOUT / ".venv-python"

VERSIONS = ("3.12", "3.13")
"""Those that ``pyproject.toml`` names beside the oldest one."""

PACKAGES = (
    ".[broker,http,inbox]",
    "hypothesis>=6.100",
    "pytest>=8.3",
    "pytest-asyncio>=1.0",
    "pytest-cov>=7",
    "pytest-xdist>=3.6",
)

TESTS = (
    *(f"tests/unit/{package}" for package in ("emitter", "rpc", "recipient", "admin")),
    "tests/acceptance/test_sdk.py",
    "--ignore=tests/unit/admin/test_help.py",  # which shows commands of Spark, too
)


def main() -> int:
    """Run the tests on each Python; give 1 if any failed on one of them."""
    failed = [version for version in VERSIONS if (base := find_python(version)) and not passes(version, base)]
    missing = [version for version in VERSIONS if find_python(version) is None]
    for words, versions in (("not on this machine", missing), ("FAILED", failed)):
        for version in versions:
            print(f"Python {version}: {words}", file=sys.stderr)  # noqa: T201
    return bool(failed)


def passes(version: str, base: Path) -> bool:
    """Run the tests on one Python."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([base, "-m", "venv", folder], check=True)
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", *PACKAGES)
    subprocess.run(install, cwd=CHECKOUT, check=True)
    return subprocess.run([python, "-m", "pytest", "-q", "-n", "2", *TESTS], cwd=CHECKOUT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
