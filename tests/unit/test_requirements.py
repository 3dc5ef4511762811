"""The files of requirements/ pin each package that pyproject.toml names, with hashes."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
FOLDER = CHECKOUT / "requirements"
OWN = "xbusd"
NOT_INSTALLED = {"bench", "dev"}
"""Extras that only the work on the bus itself needs."""

EXTRAS = ["broker", "http", "inbox", "monitor", "objects", "otel", "pandas", "sentry", "spark", "dev"]


def pinned(extra: str) -> dict[str, str]:
    """The versions that a file installs, by the package."""
    text = (FOLDER / f"{extra}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)(?:\[[^]]*\])?==(\S+)", text, re.MULTILINE))


def wanted(extra: str | None) -> list[Requirement]:
    """The packages of others that an extra needs."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    named = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    requirements = [Requirement(line) for line in named]
    others = [requirement for requirement in requirements if requirement.name != OWN]
    own = [inner for requirement in requirements if requirement.name == OWN for inner in requirement.extras]
    return [*others, *(requirement for inner in own for requirement in wanted(inner))]


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_package_is_pinned_to_a_version_that_is_admitted(extra: str) -> None:
    versions = pinned(extra)
    for requirement in [*wanted(None), *wanted(extra)]:
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name}: run make lock"
        assert requirement.specifier.contains(versions[name]), f"{requirement} but {versions[name]}: run make lock"


@pytest.mark.parametrize("extra", [*EXTRAS, "server", "build", "sbom"])
def test_each_pin_has_a_hash(extra: str) -> None:
    text = (FOLDER / f"{extra}.txt").read_text().replace("\\\n", " ")
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(pins) >= len(pinned(extra)) > 0
    assert [pin for pin in pins if "--hash=sha256:" not in pin] == []


def test_the_tools_of_the_build_are_pinned() -> None:
    manifest = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    assert (FOLDER / "build.in").read_text().split() == manifest["build-system"]["requires"]
    for requirement in map(Requirement, manifest["build-system"]["requires"]):
        assert requirement.specifier.contains(pinned("build")[requirement.name])


def test_the_makefile_pins_and_lists_each_extra_of_an_installation() -> None:
    manifest = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = manifest["project"]["optional-dependencies"].keys() - NOT_INSTALLED
    named = re.findall(r"^EXTRAS := (.*)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert [sorted(line.split()) for line in named] == [sorted(extras)]
    assert set(EXTRAS) == extras | {"dev"}


@pytest.mark.parametrize("target", ["wheel", "sbom"])
def test_the_makefile_builds_and_lists_by_what_is_pinned(target: str) -> None:
    """``xbusd`` itself comes from ``dist``, which has just been built."""
    text = (CHECKOUT / "Makefile").read_text().replace("\\\n", " ")
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    installs = re.findall(r"pip install [^&\n]*", recipe)
    assert installs
    assert [line for line in installs if "--require-hashes" not in line and "--no-index" not in line] == []


def test_pandas_is_one_that_pyspark_supports() -> None:
    (ours,) = wanted("pandas")
    others = map(Requirement, requires("pyspark") or [])
    theirs = [
        requirement
        for requirement in others
        if requirement.name == "pandas"
        and requirement.marker is not None
        and requirement.marker.evaluate({"extra": "sql"})
    ]
    lowest = [each.version for each in ours.specifier if each.operator == ">="]
    assert len(theirs) == len(lowest) == 1
    assert theirs[0].specifier.contains(lowest[0])
    assert theirs[0].specifier.contains(pinned("pandas")["pandas"])
    # PySpark 4.3 names no upper bound, and knows no pandas 3: a later PySpark is to be looked at.
    assert not ours.specifier.contains("3.0")
    assert pinned("spark")["pyspark"].startswith("4.3.")


def test_a_server_has_what_broker_monitor_and_gateway_need() -> None:
    server = pinned("server")
    for extra in ("broker", "monitor", "http"):
        assert pinned(extra).items() <= server.items()


def test_tests_run_on_the_versions_that_are_installed_on_servers() -> None:
    tested = pinned("dev")
    assert {name: tested.get(name) for name in pinned("broker")} == pinned("broker")
    assert {name: tested.get(name) for name in pinned("spark")} == pinned("spark")
