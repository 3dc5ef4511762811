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
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        schema.upgrade_connection(connection)
        fill(connection)
    with engine.connect() as connection:
        image = _driver_connection(connection).serialize()
    engine.dispose()
    return image


@cache
def empty_image() -> bytes:
    """Make the image of a journal with nothing in it, once."""
    return make_image(lambda connection: None)


def _driver_connection(connection: sa.Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)
