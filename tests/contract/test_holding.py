"""One broker at a time has the file of a journal in SQLite; commands go on writing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, looking
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.database.holding import hold
from xbus.broker.journal.journal import Journal
from xbus.errors import JournalError

Name = Callable[[str], str]
"""Gives another name of a file."""


def path_of(url: str) -> Path:
    database = sa.make_url(url).database
    assert database is not None
    return Path(database)


def by_name(url: str) -> str:
    return url


def by_hard_link(url: str) -> str:
    link = path_of(url).with_name("link.db")
    os.link(path_of(url), link)
    return f"sqlite:///{link}"


def by_symbolic_link(url: str) -> str:
    link = path_of(url).with_name("link.db")
    link.symlink_to(path_of(url))
    return f"sqlite:///{link}"


def by_uri(url: str) -> str:
    return f"sqlite:///file:{path_of(url)}?uri=true"


@pytest.mark.parametrize("other", [by_name, by_hard_link, by_symbolic_link, by_uri])
async def test_a_second_broker_on_a_file_is_refused_and_names_the_first(file_url: str, other: Name) -> None:
    async with Journal(create_engine(file_url), "broker") as journal:
        scribe = await Scribe.of(journal)
        with pytest.raises(JournalError, match=rf"\(process {os.getpid()} on .+ since 20") as raised:
            hold(create_engine(other(file_url)), journal._holder, 0.0)
        assert raised.value.code == "journal_in_use"
        assert (await scribe.put([b"x"])).position == 1


async def test_a_journal_refuses_to_open_beside_another_one(file_url: str) -> None:
    async with Journal(create_engine(file_url), "broker") as journal:
        with pytest.raises(JournalError, match="another broker writes"):
            async with Journal(create_engine(file_url), "front"):
                pass
        await journal.run(lambda _: None)


async def test_commands_write_beside_a_broker(file_url: str) -> None:
    async with Journal(create_engine(file_url), "broker") as journal:
        with looking(file_url) as connection:
            remember(connection, NOW, "mark", "mark", "made", "beside it")
        await (await Scribe.of(journal)).put([b"x"])


async def test_a_broker_that_ended_or_could_not_start_leaves_the_file_free(file_url: str) -> None:
    for _ in range(2):
        async with Journal(create_engine(file_url), "broker"):
            pass
    engine = create_engine(file_url)

    def fail(*_: object) -> None:
        raise sa.exc.OperationalError("BEGIN", {}, Exception("the disk is away"))

    sa.event.listen(engine, "begin", fail)
    with pytest.raises(JournalError, match="away"):
        async with Journal(engine, "broker"):
            pass
    async with Journal(create_engine(file_url), "broker"):
        pass
