"""The base of all tables: one metadata, and column types on which SQLite and PostgreSQL agree."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    false,
    text,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

_ColumnType: TypeAlias = TypeEngine[Any] | type[TypeEngine[Any]] | ForeignKey

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
Counter = BigInteger().with_variant(Integer, "sqlite")


def one_of(
    name: str, values: Sequence[str], comment: str, *, primary_key: bool = False, server_default: str | None = None
) -> Column[str]:
    """Make a column that holds one of some words."""
    listed = ", ".join(f"'{value}'" for value in values)
    check = CheckConstraint(f"{name} IN ({listed})", name=name)
    options: dict[str, Any] = {"primary_key": primary_key, "server_default": server_default, "comment": comment}
    return Column(name, String(16), check, nullable=False, **options)


def required(
    name: str, kind: _ColumnType, comment: str | None = None, *, otherwise: str | None = None, **options: Any
) -> Column[object]:
    """Make a column that is never null.

    Args:
        otherwise: its value where a row says nothing, as SQL; None where each row says it.
    """
    if otherwise is not None:
        options["server_default"] = text(otherwise)
    return Column(name, kind, nullable=False, comment=comment, **options)


def optional(name: str, kind: _ColumnType, comment: str, **options: Any) -> Column[object]:
    """Make a column that may be null."""
    return Column(name, kind, comment=comment, **options)


def flag(name: str, comment: str) -> Column[object]:
    """Make a column that holds whether something is so; it is not where nobody says so."""
    return required(name, Boolean(create_constraint=False), comment, server_default=false())


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Index the rows alone for which a condition holds."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


UNREADABLE = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a value that is no moment: long ago, so that what has ended stays so, and no arithmetic overflows."""


class Timestamp(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no time zone, so the zone is removed on the way in and added on the way out.

    A value of SQLite that is no moment is read as ``UNREADABLE``.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        """The type of its values; SQLAlchemy asks no decorator for it."""
        return datetime

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[object], datetime | None] | None:
        """Give what reads a value. SQLite keeps any text, and a row that was edited by hand must stop no reader."""
        return _moment_of if dialect.name == "sqlite" else super().result_processor(dialect, coltype)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment without a time zone can't be stored")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC)


def is_moment(value: object) -> bool:
    """Check whether a value of SQLite is a moment."""
    return _read_moment(value) is not None


def _moment_of(value: object) -> datetime | None:
    return None if value is None else _read_moment(value) or UNREADABLE


def _read_moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)  # type: ignore[arg-type]
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
