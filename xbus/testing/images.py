"""Databases in memory: each is opened from the bytes of one that was made once, which takes a millisecond."""

import sqlite3
from collections.abc import Callable
from functools import cache
from typing import cast

import sqlalchemy as sa

from xbus.broker.journal.database import schema
from xbus.broker.journal.database.engine import create_engine


def opened(image: bytes) -> sa.Engine:
    """Open a database of its own, with the content of an image."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        _driver_connection(connection).deserialize(image)
    return engine


def make_image(fill: Callable[[sa.Connection], object]) -> bytes:
    """Make the image of a database: the tables of the journal, and what ``fill`` writes."""
    return _written(opened(empty_image()), fill)


@cache
def empty_image() -> bytes:
    """Make the image of a journal with nothing in it, once: its migrations take a second."""
    return _written(create_engine("sqlite://"), schema.upgrade_connection)


def _written(engine: sa.Engine, write: Callable[[sa.Connection], object]) -> bytes:
    with engine.begin() as connection:
        write(connection)
    with engine.connect() as connection:
        image = _driver_connection(connection).serialize()
    engine.dispose()
    return image


def _driver_connection(connection: sa.Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)
