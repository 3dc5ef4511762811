"""README and docs say what is so: their code is quoted from examples that run, their commands do what they show."""

import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.daemon import Daemon
from tests.support.documentation import CHECKOUT, DESCRIPTORS, EXAMPLES, PAGES, Block, Terminal, blocks, title
from tests.support.processes import run, script
from tests.support.waiting import wait_until
from xbus.admin import bus_file
from xbus.broker.back.verbs import (
    BackBatchVerbs,
    BackVerbs,
    BotVerbs,
    InsightVerbs,
    LogVerbs,
    OutputVerbs,
    ReaderVerbs,
    SubscriptionVerbs,
)
from xbus.broker.front.groups import GroupIntake
from xbus.broker.front.verbs.batches import FrontBatchVerbs
from xbus.broker.front.verbs.emitters import FrontVerbs
from xbus.broker.front.verbs.provisioning import ProvisioningVerbs
from xbus.broker.front.verbs.refusals import RefusalVerbs
from xbus.broker.front.verbs.repeats import RepeatBatchVerbs, RepeatVerbs
from xbus.broker.health_verbs import HealthVerbs, LeaderVerbs
from xbus.broker.journal.configuration import BusSpec, Stored, make_plan
from xbus.broker.journal.configuration.writing import add_demo_rows
from xbus.broker.journal.database.connection import writing
from xbus.config import load
from xbus.recipient.api import RecipientApi

LANGUAGES = {"console", "csv", "ini", "json", "python", "sh", "text", "toml", "xml"}
"""text is a drawing; all others are tested here."""

INSTALLING = {
    ". .venv/bin/activate",
    "python3 -m venv .venv",
    "pip install --editable '.[broker]'",
    "pip install --editable '.[spark]'",
    ".ci/run",
}


OF_POSTGRESQL = {"pg_dump", "pg_restore", "createdb", "pg_basebackup"}
"""Programs whose commands are carried out by test_backup.py."""


OF_THE_SERVER = {
    "/opt/xbus/bin/pip",
    "/opt/xbus-build/bin/pip",
    "docker",
    "echo",
    "install",
    "python3",
    "systemctl",
    "useradd",
}
"""Programs that set a server up, as root; test_deploy.py checks the files that they take."""


def all_blocks(language: str) -> list[object]:
    found = [(page, block) for page in PAGES for block in blocks(page, language)]
    return [pytest.param(block, id=f"{title(page)}-{number}") for number, (page, block) in enumerate(found)]


def by_page(faults: Callable[[Path], Collection[str]]) -> dict[str, Collection[str]]:
    """What is wrong with each page, for those that have faults."""
    return {title(page): found for page in PAGES if (found := faults(page))}


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert by_page(lambda page: {block.language for block in blocks(page)} - LANGUAGES) == {}


@pytest.mark.parametrize(("language", "files"), [("python", EXAMPLES), ("xml", DESCRIPTORS)], ids=["python", "xml"])
def test_code_is_quoted_from_an_example(language: str, files: list[Path]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in files]

    def invented(page: Path) -> list[str]:
        return [block.text for block in blocks(page, language) if not any(block.text in text for text in texts)]

    assert by_page(invented) == {}


@pytest.mark.parametrize("block", all_blocks("toml"))
def test_a_bus_file_can_be_applied(block: Block) -> None:
    found = bus_file.read(block.text.encode())
    plan = make_plan(Stored(1, BusSpec(), BusSpec()), found.bus)
    assert (found.problems, plan.problems) == ((), ())


@pytest.mark.parametrize("block", all_blocks("ini"))
def test_a_configuration_can_be_loaded(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "config.ini"
    path.write_text(block.text)
    load(path)


@pytest.mark.parametrize("block", all_blocks("sh"))
def test_a_command_for_the_reader_exists(block: Block) -> None:
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    for line in block.text.splitlines():
        program, *arguments = shlex.split(line)
        if program == "make":
            assert arguments[0] in targets
        elif line not in INSTALLING and program not in OF_POSTGRESQL | OF_THE_SERVER:
            assert_options_exist(program, arguments)


def assert_options_exist(program: str, arguments: list[str]) -> None:
    words = [argument for argument in arguments if re.fullmatch(r"[a-z]+(-[a-z]+)*", argument)]
    commands = words[:2] if program == "xbus" else []
    explained = run(script(program), *commands, "--help").stdout
    for option in arguments:
        assert not option.startswith("-") or re.search(rf"{option}\b", explained), f"{program}: {option}"


def test_every_link_leads_somewhere() -> None:
    assert by_page(broken_links) == {}


def broken_links(page: Path) -> list[str]:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    return [link for link in links if not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE) if target.exists() else []
    return anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_every_path_of_the_checkout_exists() -> None:
    named = re.compile(r"`((?:xbus|spark_worker|tests|docs|alembic|examples|benchmarks)/[\w./-]*)`")
    assert (
        by_page(lambda page: [path for path in named.findall(page.read_text()) if not (CHECKOUT / path).exists()]) == {}
    )


def test_every_module_and_class_that_a_page_names_exists() -> None:
    folders = (CHECKOUT / folder for folder in ("xbus", "spark_worker"))
    source = {path: path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")}
    modules = [path.relative_to(CHECKOUT).as_posix() for path in source]
    words = {word for text in source.values() for word in re.findall(r"\w+", text)}

    def missing(page: Path) -> list[str]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        quoted = re.findall(r"`([^`\n]+)`", prose)
        files = [name for name in quoted if re.fullmatch(r"(\w+/)*\w+\.py", name) and not name.startswith("tests/")]
        files = [name for name in files if name != "conftest.py"]  # the reader's
        ends = [f"/{name}" for name in files if not (CHECKOUT / name).exists() and not (page.parent / name).exists()]
        classes = {name for text in quoted for name in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", text)}
        return [end for end in ends if not any(path.endswith(end) for path in modules)] + sorted(classes - words)

    assert by_page(missing) == {}


# -- the commands ------------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("page", [page for page in PAGES if [*blocks(page, "console")]], ids=title)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, terminal: Terminal) -> None:
    terminal.follow(page)


# -- the examples that are not run by a page ---------------------------------------------------------------------------


@pytest.fixture
def broker(start_daemon: StartDaemon, sqlite_url: str) -> Daemon:
    with writing(sqlite_url) as connection:
        add_demo_rows(connection)
    return start_daemon(sqlite_url)


def example(name: str) -> list[str]:
    return [script("python"), str(CHECKOUT / "examples" / f"{name}.py")]


def test_the_asynchronous_emitter_sends(broker: Daemon) -> None:
    assert run(*example("async_emitter"), broker.front).stdout == "items sent: 3\n"


def test_the_careful_emitter_tells_what_must_be_corrected(broker: Daemon) -> None:
    told = run(*example("careful_emitter"), broker.front).stdout
    assert told.startswith('correct this first: unknown_type - there is no event type "invoice" - ')


def test_values_of_other_types_are_sent(broker: Daemon) -> None:
    assert run(*example("values"), broker.front).stdout == "sent\n"


def test_what_has_a_key_is_sent_once(broker: Daemon) -> None:
    assert [run(*example("once"), broker.front).stdout for _ in range(2)] == ["sealed at position 1\n"] * 2


def test_headers_are_sent_and_told(broker: Daemon, start_process: StartProcess) -> None:
    consumer = start_process(*example("headers_consumer"), broker.back)
    start_process(*example("worker"), broker.back)

    assert run(*example("headers"), broker.front).stdout == "sealed at position 1\n"

    told = "test_event about client 7: correlation_id = import 17, source_time = 2026-05-04 09:30:00+00:00, shard = 7"
    wait_until(lambda: told in consumer.text, "the consumer tells the headers")


def test_totals_makes_one_item_of_all(broker: Daemon, start_process: StartProcess) -> None:
    consumer = start_process(*example("consumer"), broker.back)
    start_process(*example("totals"), broker.back)

    assert run(*example("emitter"), broker.front).returncode == 0

    wait_until(lambda: "client: 3 clients" in consumer.text, "the total arrives")


# -- what pages list ---------------------------------------------------------------------------------------------------


def served(*classes: type) -> set[str]:
    """The verbs that classes mark, as the dispatch table reads them."""
    marked = [method for kind in classes for method in vars(kind).values() if hasattr(method, "__verb__")]
    return {method.__verb__ for method in marked}


def section(page: Path, heading: str) -> str:
    return page.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("headings", "classes"),
    [
        (
            ("Front, as in 0.2.0", "Front, added"),
            (FrontVerbs, FrontBatchVerbs, GroupIntake, RepeatVerbs, RepeatBatchVerbs, ProvisioningVerbs),
        ),
        (("Back, as in 0.2.0", "Back, added"), (BackVerbs, BackBatchVerbs, BotVerbs, OutputVerbs)),
        (("Readers",), (ReaderVerbs, LogVerbs)),
        (("Subscriptions",), (SubscriptionVerbs,)),
        (("Front and back",), (HealthVerbs, LeaderVerbs)),
        (("Why",), (InsightVerbs, RefusalVerbs)),
        (("Recipients",), (RecipientApi,)),
    ],
    ids=["front", "back", "readers", "subscriptions", "both", "why", "recipients"],
)
def test_every_verb_is_described(headings: tuple[str, ...], classes: tuple[type, ...]) -> None:
    described = {
        name
        for heading in headings
        for name in re.findall(r"^\| `([\w.]+)\(", section(CHECKOUT / "docs" / "wire.md", heading), re.MULTILINE)
    }
    assert described == served(*classes)


def test_every_code_is_described() -> None:
    described = set(re.findall(r"`(\w+)`", section(CHECKOUT / "docs" / "wire.md", "Codes")))
    sources = [*CHECKOUT.glob("xbus/broker/front/*.py"), CHECKOUT / "xbus/broker/sessions.py"]
    used = {code for path in sources for code in re.findall(r'code="(\w+)"', path.read_text())}
    assert used - described == set()


def test_the_changelog_begins_with_the_version() -> None:
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(r"^## (\S+?),", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version  # type: ignore[index]


def packages_of(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("folder", ["xbus/broker/journal", "xbus/broker/back"])
def test_architecture_lists_every_package_once(folder: str) -> None:
    page = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition(f"In `{folder}/`:\n\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(packages_of(CHECKOUT / folder))


def test_architecture_names_every_package_of_the_source() -> None:
    page = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {f"{folder}/{name}" for folder in ("xbus", "xbus/broker") for name in packages_of(CHECKOUT / folder)}
    assert {folder for folder in folders if f"`{folder}/" not in page} == set()


def test_the_way_of_an_item_has_fifty_files_at_most() -> None:
    way = section(CHECKOUT / "docs" / "architecture.md", "The way of an item")
    assert 0 < len(re.findall(r"^\| `xbus/", way, re.MULTILINE)) <= 50


def test_every_decision_is_listed() -> None:
    folder = CHECKOUT / "docs" / "decisions"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
