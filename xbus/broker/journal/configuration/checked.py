"""Reads the configuration as far as its tables make sense.

An administrator may edit a table by SQL, and one wrong row must not keep the others from counting. So the tables are
copied into a database in memory, the wrong rows are removed there with all that refers to them, and the rest is read.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from xbus import graph as graphs
from xbus import model
from xbus.broker.journal.configuration.names import is_name, is_path
from xbus.broker.journal.configuration.plan import make_plan
from xbus.broker.journal.configuration.reading import Stored, read_stored
from xbus.broker.journal.database.rows import NamedRow, NamedRows
from xbus.broker.journal.log.bots import BOT_COLUMNS, read_command, read_settings
from xbus.broker.journal.log.catalog import Catalog, name_column, newest_graphs, read_catalog, read_graph, read_version
from xbus.broker.journal.operations.event_types import read_paths
from xbus.broker.journal.writes import LIMIT_NAMES
from xbus.model.base import is_moment

# -- table checks ------------------------------------------------------------------------------------------------------
# Checks the tables of the configuration as they are: an administrator may have edited them by SQL.
#
# ``xbus apply`` refuses what makes no sense before it writes anything; whoever edits a table finds out here.

TABLES = (
    model.emitter_profile,
    model.emitter,
    model.event_type,
    model.profile_event_type,
    model.service,
    model.emitting_service,
    model.role,
    model.graph,
    model.node,
    model.edge,
    model.pause,
    model.bot,
    model.subscription,
    model.sending_limit,
    model.lag_limit,
    model.reader,
    model.reader_event_type,
)

_OF_SECTION: Mapping[str, sa.Table] = {
    "event_type": model.event_type,
    "service": model.service,
    "reader": model.service,
    "role": model.role,
    "emitter_profile": model.emitter_profile,
    "emitter": model.emitter,
    "bot": model.bot,
    "subscription": model.subscription,
}


@dataclass(frozen=True, slots=True)
class TableProblem:
    """A row that makes no sense.

    Args:
        row: its id and its name, as far as it has them.
        cause: the fault, one sentence without a final full stop.
        key: the values of its primary key, as texts.
    """

    table: str
    row: str
    cause: str
    key: Sequence[str]

    @property
    def place(self) -> str:
        """The table and the row."""
        return f"{self.table} {self.row}".rstrip()


def find_table_problems(connection: sa.Connection) -> list[TableProblem]:
    """Find the rows that make no sense.

    The checks of whole graphs, and of rows against each other, are only made of rows that make sense one by one.
    """
    unreadable = find_unreadable(connection)
    rows = {(problem.table, problem.key) for problem in unreadable}
    found = [*unreadable, *_bad_values(connection, rows), *_bad_readers(connection)]
    return found or list(_impossible_graphs(connection)) or list(_broken_rules(connection))


def find_unreadable(connection: sa.Connection) -> list[TableProblem]:
    """Find the rows with values that can't be read, and those that refer to a row that does not exist."""
    return [*_of_another_kind(connection), *_no_json(connection), *_lost_references(connection)]


def _no_json(connection: sa.Connection) -> Iterator[TableProblem]:
    """Find the bots whose JSON is none, or of another form: both databases keep any."""
    columns = {column.name: column for column in BOT_COLUMNS}
    for name, read, wanted in _JSON:
        for row in connection.execute(sa.select(model.bot.c.id, model.bot.c.name, columns[name].label("value"))).all():
            if read(row.value) is None:
                yield _problem(model.bot, row, f"{name} is {row.value:.40}, and has to be {wanted}")


_JSON: Sequence[tuple[str, Callable[[str], object], str]] = (
    ("command", read_command, "a JSON list of texts"),
    ("settings", read_settings, "a JSON map"),
)
"""A column of bots, its reader, and what it has to be."""


def _of_another_kind(connection: sa.Connection) -> Iterator[TableProblem]:
    """Find values that are not of their column's kind: SQLite keeps any."""
    for table in TABLES if connection.dialect.name == "sqlite" else ():
        keys = len(table.primary_key)
        for row in connection.execute(_select_kinds(table)).all():
            for column, kind in zip(_columns(table), row[keys:], strict=True):
                if kind != "null" and not _fits(column, kind):
                    cause = f"{column.name} is no {_WORDS[column.type.python_type]}"
                    yield _keyed(table, row[:keys], cause)


@cache
def _select_kinds(table: sa.Table) -> NamedRows:
    """Select the keys of a table's rows, and the kind of each of their other values.

    Statements are put together once: that takes longer than to carry them out, and each broker checks at its start.
    """
    keys = [sa.type_coerce(key, sa.String) for key in table.primary_key]
    return sa.select(*keys, *map(_stored_kind, _columns(table)))


def _columns(table: sa.Table) -> list[sa.Column[object]]:
    return [column for column in table.columns if not column.primary_key and not isinstance(column.type, sa.JSON)]


def _stored_kind(column: sa.Column[object]) -> sa.ColumnElement[str]:
    """Give how SQLite stores a value; for a moment its text, as SQLite takes more for one than anybody reads."""
    kind = sa.func.typeof(column)
    if column.type.python_type is not datetime:
        return kind
    return sa.case((kind == "text", sa.type_coerce(column, sa.String)), else_=kind)


def _fits(column: sa.Column[object], kind: object) -> bool:
    """Check what ``_stored_kind`` gave, where the column has a value."""
    of_column = column.type.python_type
    return is_moment(kind) if of_column is datetime else kind in _KINDS.get(of_column, ("text",))


_KINDS: Mapping[type, Sequence[str]] = {
    int: ("integer",),
    bool: ("integer",),
    float: ("real", "integer"),
}
"""The kinds in which SQLite stores what a column is for; texts are stored as such."""

_WORDS = {int: "number", bool: "yes or no", float: "number", datetime: "moment", str: "text"}


def _lost_references(connection: sa.Connection) -> Iterator[TableProblem]:
    """Find references to rows that do not exist: SQLite keeps them unless its user asks it to look."""
    for table in TABLES:
        for reference in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            for row in connection.execute(_select_lost(reference)).all():
                cause = f"{reference.parent.name} is {row[-1]}, and {reference.column.table.name} has no such row"
                yield _keyed(table, row[:-1], cause)


@cache
def _select_lost(reference: sa.ForeignKey) -> NamedRows:
    """Select the keys of rows that refer to nothing, and the value by which they do."""
    other = reference.column.table.alias()
    exists = sa.exists().where(other.c[reference.column.name] == reference.parent)
    lost = sa.select(*reference.parent.table.primary_key, reference.parent)
    return lost.where(reference.parent.is_not(None), ~exists)


def _bad_values(connection: sa.Connection, unreadable: Collection[tuple[str, Sequence[str]]]) -> Iterator[TableProblem]:
    for table, name, is_good, wanted in _VALUES:
        for row in connection.execute(_select_values(table, name)).all():
            if (table.name, (str(row.id),)) not in unreadable and not is_good(row.value):
                yield _problem(table, row, f"{name} is {row.value!r}, and has to be {wanted}")
    limits = model.sending_limit
    for name in LIMIT_NAMES:
        wrong = sa.select(limits.c.kind, limits.c.subject_id, limits.c[name].label("value")).where(limits.c[name] < 1)
        for kind, subject_id, value in connection.execute(wrong).all():
            yield _keyed(limits, (kind, subject_id), f"{name} is {value!r}, and has to be 1 or more")
    lags = model.lag_limit.c
    torn = sa.or_((lags.envelopes.is_(None)) == (lags.seconds.is_(None)), lags.envelopes < 1, lags.seconds < 0)
    for kind, subject_id in connection.execute(sa.select(lags.kind, lags.subject_id).where(torn)).all():
        cause = "either envelopes or seconds has to be set, to 1 or more"
        yield _keyed(model.lag_limit, (kind, subject_id), cause)


@cache
def _select_values(table: sa.Table, name: str) -> NamedRows:
    """Select the values of a column in the rows in use, with id and name of each row."""
    column = table.c[name]
    in_use = sa.true() if "removed_at" not in table.c else table.c.removed_at.is_(None)
    rows = sa.select(table.c.id, name_column(table).label("name"), column.label("value"))
    return rows.where(column.is_not(None), in_use)


def _bad_readers(connection: sa.Connection) -> Iterator[TableProblem]:
    """Find settings of readers that they can't work with, and readers without any."""
    settings, service = model.reader.c, model.service
    for name, least in (("ranges", 1), ("lease", 1), ("batch_items", 1), ("batch_bytes", 1), ("batch_wait", 0)):
        wrong = sa.select(settings.service_id, settings[name].label("value")).where(settings[name] < least)
        for row in connection.execute(wrong).all():
            cause = f"{name} is {row.value!r}, and has to be {least} or more"
            yield _keyed(model.reader, (row.service_id,), cause)
    has_settings = sa.exists().where(settings.service_id == service.c.id)
    rows = sa.select(service.c.id, service.c.name).where(service.c.kind == "reader", ~has_settings)
    for row in connection.execute(rows).all():
        yield _problem(service, row, "it has no row in the table reader")


def _is_from(least: float, most: float = math.inf) -> Callable[[float], bool]:
    return lambda value: least <= value <= most


def _are_paths(written: str) -> bool:
    return all(map(is_path, read_paths(written)))


_VALUES: Sequence[tuple[sa.Table, str, Callable[[Any], bool], str]] = (
    *(
        (table, "name", is_name, "a name")
        for table in (model.emitter_profile, model.event_type, model.service, model.bot, model.subscription)
    ),
    *((table, "login", is_name, "a login") for table in (model.emitter, model.role)),
    (model.service, "key", is_name, "the name that the service was made with"),
    (model.service, "attempts", _is_from(1), "1 or more"),
    (model.service, "first_delay", _is_from(0), "0 or more"),
    (model.service, "longest_delay", _is_from(0), "0 or more"),
    (model.service, "jitter", _is_from(0, 1), "from 0 to 1"),
    (model.event_type, "max_isolated", _is_from(0), "0 or more"),
    (model.event_type, "secret", _are_paths, "paths like card.number, each on a line"),
    (model.bot, "instances", _is_from(1), "1 or more"),
    (model.bot, "attempts", _is_from(1), "1 or more"),
    (model.bot, "max_seconds", _is_from(0), "0 or more"),
    (model.event_type, "keep", _is_from(0), "0 or more"),
    (model.emitter_profile, "keep_keys", _is_from(0), "0 or more"),
    (model.event_type, "keep_bytes", _is_from(1), "1 or more"),
    (model.event_type, "keep_last_per_key", _is_from(1), "1 or more"),
    (model.event_type, "archive_after", _is_from(0), "0 or more"),
    (model.event_type, "compress", lambda value: value in ("none", "zstd"), "none or zstd"),
    (model.role, "absent_minutes", _is_from(0), "0 or more"),
    (model.role, "parked_minutes", _is_from(0), "0 or more"),
)
"""A column, which values it may have, and the same in words."""


def _impossible_graphs(connection: sa.Connection) -> Iterator[TableProblem]:
    """Find graphs that make no sense, also former ones that envelopes still take; they change by SQL alone."""
    if not connection.execute(sa.select(model.configuration.c.graph_edits)).scalar_one():
        return
    statement = sa.select(model.graph.c.id, model.graph.c.number, model.event_type.c.name).join(
        model.event_type, model.event_type.c.id == model.graph.c.event_type_id
    )
    for row in connection.execute(statement.order_by(model.graph.c.id)).all():
        for sentence in graphs.problems(read_graph(connection, row.id)):
            yield _keyed(model.graph, (row.id,), f'version {row.number} of event type "{row.name}": {sentence}')


def _broken_rules(connection: sa.Connection) -> Iterator[TableProblem]:
    """Find what ``xbus apply`` would refuse."""
    stored = read_stored(connection)
    for problem in make_plan(stored, stored.in_use).problems:
        table, name = _OF_SECTION[problem.place[0]], problem.place[1]
        row = connection.execute(
            sa.select(table.c.id, name_column(table).label("name")).where(name_column(table) == name)
        ).one()
        yield _problem(table, row, problem.sentence)


def _problem(table: sa.Table, row: NamedRow, cause: str) -> TableProblem:
    return TableProblem(table.name, f'{row.id} "{row.name}"', cause, (str(row.id),))


def _keyed(table: sa.Table, values: Sequence[object], cause: str) -> TableProblem:
    key = tuple(map(str, values))
    return TableProblem(table.name, ", ".join(key), cause, key)


LOOKED_THROUGH = 10_000
"""Acts of the audit among which an edit by SQL is looked for: an open transaction may be that many acts old."""

MOST_ROUNDS = 100
"""The most rounds of removal: each round finds the rows that refer to rows of the round before."""


@dataclass(frozen=True, slots=True)
class CheckedCatalog:
    """The configuration as the tables have it.

    Args:
        version: its number.
        catalog: all that makes sense.
        edit: the newest act of the audit that tells of an edit by SQL; 0 for none of late.
        problems: the rows that make no sense.
        lacks_graphs: whether an event type has no graph yet, see :func:`give_empty_graphs`.
        left_out: the ids of event types, emitters, roles and bots that ``catalog`` lacks for that, by table.
    """

    version: int
    catalog: Catalog
    edit: int
    problems: Sequence[TableProblem] = ()
    lacks_graphs: bool = False
    left_out: Mapping[str, frozenset[int]] = field(default_factory=dict)


def read_checked(connection: sa.Connection, checked: CheckedCatalog | None = None) -> CheckedCatalog:
    """Read the configuration without rows that make no sense.

    The version is read first: where a change slips in between, the next look at the version finds another one. Programs
    check their changes before they write them, so the tables are checked only after an edit by SQL.

    Args:
        checked: what was read last; None for a first look.
    """
    version, edit = read_version(connection), connection.execute(_EDIT).scalar_one()
    is_certain = checked is not None and not checked.problems and edit <= checked.edit
    if is_certain:
        return CheckedCatalog(version, replace(read_catalog(connection), version=version), edit)
    problems = find_table_problems(connection)
    lacks_graphs = connection.execute(_WITHOUT_GRAPH.limit(1)).first() is not None
    catalog, left_out = _read_sound(connection, problems) if problems else (read_catalog(connection), {})
    return CheckedCatalog(version, replace(catalog, version=version), edit, problems, lacks_graphs, left_out)


_ACT = model.audit.c
_EDIT = sa.select(sa.func.coalesce(sa.func.max(_ACT.id), 0)).where(
    _ACT.action == "edited_by_sql",
    _ACT.id > sa.select(sa.func.coalesce(sa.func.max(_ACT.id), 0) - LOOKED_THROUGH).scalar_subquery(),
)

_ENTRIES = (model.event_type, model.emitter, model.role, model.bot)
"""The tables whose rows a process may keep as it knew them, see ``Catalog.keeping``."""


def _read_sound(
    connection: sa.Connection, problems: Sequence[TableProblem]
) -> tuple[Catalog, dict[str, frozenset[int]]]:
    with _copied(connection) as copy:
        before = {table.name: _ids(copy, table) for table in _ENTRIES}
        _clear(copy, problems, find_table_problems)
        left_out = {table.name: before[table.name] - _ids(copy, table) for table in _ENTRIES}
        return read_catalog(copy), left_out


def read_readable(connection: sa.Connection) -> tuple[Stored, Sequence[TableProblem]]:
    """Read the stored configuration without the rows that can't be read, and give the problems of these."""
    problems = find_unreadable(connection)
    if not problems:
        return read_stored(connection), problems
    with _copied(connection) as copy:
        _clear(copy, problems, find_unreadable)
        return read_stored(copy), problems


def _clear(
    copy: sa.Connection,
    problems: Sequence[TableProblem],
    find: Callable[[sa.Connection], Sequence[TableProblem]],
) -> None:
    """Remove the rows that have problems, and then those that ``find`` finds, as they refer to a removed one."""
    for _ in range(MOST_ROUNDS):
        for problem in problems:
            _remove_types_of(copy, problem)
        for problem in problems:
            _remove(copy, problem)
        former, problems = problems, find(copy)
        if not problems or problems == former:
            break


@contextmanager
def _copied(connection: sa.Connection) -> Iterator[sa.Connection]:
    """Copy the tables of the configuration, also values that are none of their column's type."""
    tables = (model.configuration, *TABLES)
    engine = sa.create_engine("sqlite://")
    with engine.connect() as copy:
        model.metadata.create_all(copy, tables=tables)
        for table in tables:
            _copy(connection, copy, table)
        yield copy
    engine.dispose()


def _copy(connection: sa.Connection, copy: sa.Connection, table: sa.Table) -> None:
    if connection.dialect.name == "postgresql":
        # JSON goes as its text: the JSON value null would become a null of SQL.
        texts = {column.name for column in table.columns if isinstance(column.type, sa.JSON)}
        read = [sa.cast(each, sa.Text).label(each.name) if each.name in texts else each for each in table.columns]
        rows: list[Any] = [dict(row) for row in connection.execute(sa.select(*read)).mappings()]
        if rows:
            written = {
                each.name: sa.bindparam(each.name, type_=sa.Text() if each.name in texts else each.type)
                for each in table.columns
            }
            copy.execute(sa.insert(table).values(written), rows)
        return
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    values = connection.exec_driver_sql(f'SELECT {names} FROM "{table.name}"').all()
    if values:
        places = ", ".join("?" * len(table.columns))
        # A row that breaks a constraint is none that the database has taken.
        copy.exec_driver_sql(
            f'INSERT OR IGNORE INTO "{table.name}" ({names}) VALUES ({places})', [tuple(row) for row in values]
        )


def _remove(copy: sa.Connection, problem: TableProblem) -> None:
    table = model.metadata.tables[problem.table]
    is_it = [sa.cast(column, sa.String) == key for column, key in zip(table.primary_key, problem.key, strict=True)]
    copy.execute(sa.delete(table).where(*is_it))


def _remove_types_of(copy: sa.Connection, problem: TableProblem) -> None:
    """Remove the event types whose present graph lacks what is wrong: their events would miss a part of their way."""
    if problem.table not in _GRAPHS_WITH:
        return
    graph = model.graph.c
    newest = sa.select(graph.event_type_id).join(
        newest_graphs,
        (newest_graphs.c.event_type_id == graph.event_type_id) & (newest_graphs.c.number == graph.number),
    )
    wrong = newest.where(graph.id.in_(_GRAPHS_WITH[problem.table]([int(key) for key in problem.key])))
    copy.execute(sa.delete(model.event_type).where(model.event_type.c.id.in_(wrong)))


_NODE = model.node.c
_GRAPHS_WITH: Mapping[str, Callable[[Sequence[int]], sa.Select[int]]] = {
    model.graph.name: lambda key: sa.select(model.graph.c.id).where(model.graph.c.id.in_(key)),
    model.node.name: lambda key: sa.select(_NODE.graph_id).where(_NODE.id.in_(key)),
    model.edge.name: lambda key: sa.select(_NODE.graph_id).where(_NODE.id.in_(key)),
    model.emitting_service.name: lambda key: sa.select(_NODE.graph_id).where(_NODE.service_id.in_(key)),
}
"""By the table of a row, the graphs that it is a part of."""


def _ids(copy: sa.Connection, table: sa.Table) -> frozenset[int]:
    return frozenset(copy.execute(sa.select(table.c.id)).scalars())


def give_empty_graphs(connection: sa.Connection) -> None:
    """Give each event type without a graph an empty one: who inserts a type by SQL need not know of graphs."""
    # The row is locked from here on: another process that does the same finds nothing to do.
    connection.execute(sa.update(model.configuration).values(changing=True))
    without = connection.execute(_WITHOUT_GRAPH).scalars().all()
    if without:
        connection.execute(sa.insert(model.graph), [{"event_type_id": type_id} for type_id in without])
        connection.execute(sa.update(model.configuration).values(version=model.configuration.c.version + 1))
    connection.execute(sa.update(model.configuration).values(changing=False))


_WITHOUT_GRAPH = sa.select(model.event_type.c.id).where(
    ~sa.exists().where(model.graph.c.event_type_id == model.event_type.c.id)
)
