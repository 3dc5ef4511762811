"""Reads the configuration as far as its tables make sense.

An administrator may edit a table by SQL, and one wrong row must not keep the others from counting. So the tables are
copied into a database in memory, the wrong rows are removed there with all that refers to them, and the rest is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.configuration.reading import Stored, read_stored
from xbus.broker.journal.configuration.table_checks import TABLES, TableProblem, find_table_problems, find_unreadable
from xbus.broker.journal.log.catalog import Catalog, newest_graphs, read_catalog, read_version

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
