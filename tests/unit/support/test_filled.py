"""Databases of tests: one that wants what another one wanted is a copy of it."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.filled import Images
from xbus import model
from xbus.broker.journal.database.connection import reading, writing

NAMES = sa.select(model.service.c.name)


@pytest.fixture
def urls(sqlite_template: Path, tmp_path: Path) -> list[str]:
    """Three databases that hold the same."""
    paths = [tmp_path / f"{number}.db" for number in range(3)]
    for path in paths:
        path.write_bytes(sqlite_template.read_bytes())
    return [f"sqlite:///{path}" for path in paths]


class Filler:
    """Fills databases, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.images = Images()
        self.times = 0

    def fill(self, url: str, name: str) -> list[str]:
        def write() -> None:
            self.times += 1
            with writing(url) as connection:
                connection.execute(sa.insert(model.service).values(name=name, kind="consumer"))

        self.images.fill(url, name, write)
        with reading(url) as connection:
            return [*connection.execute(NAMES).scalars()]


def test_the_same_is_filled_in_once(urls: list[str]) -> None:
    filler = Filler()
    assert [filler.fill(url, "store") for url in urls] == [["store"]] * 3
    assert filler.times == 1


def test_something_else_or_into_something_else_is_filled_in_anew(urls: list[str]) -> None:
    filler = Filler()
    assert filler.fill(urls[0], "store") == ["store"]
    assert filler.fill(urls[1], "names") == ["names"]
    assert sorted(filler.fill(urls[1], "store")) == ["names", "store"]
    assert filler.times == 3


def test_a_file_that_somebody_has_open_is_never_replaced(urls: list[str]) -> None:
    filler = Filler()
    filler.fill(urls[0], "store")
    with reading(urls[1]) as connection:
        connection.execute(NAMES).all()
        assert filler.fill(urls[1], "store") == ["store"]
    assert filler.times == 2
