"""Finds the functions of the source that name stored items, so that a test can ask each for its guard.

A name counts wherever it lies: in a function, or in a statement of the module that a function refers to.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

TABLES = frozenset({"segment", "log_segment", "bulk_segment", "event"})
"""The tables and views with items in their column ``data``."""

_OF_ALL = frozenset({"data", "values", "items", "get"})
"""The attributes of columns that give the items; ``items`` is a method there."""

_TAKE_TABLE = frozenset(
    {
        *("insert", "insert_rows", "update", "update_rows", "delete"),
        *("select_from", "join", "outerjoin", "exists", "alias", "count"),
    }
)
"""The calls that take a table and read none of its columns."""

_COLUMNS = frozenset({"column", "literal_column"})
"""The calls that make a column of a text."""

_NAMED_TABLE = rf"\s+(?:\w+\.)?\"?(?:{'|'.join(sorted(TABLES))})(?!\w)"
_OF_ANY_TABLE = r"\b(?:FROM|JOIN)\s+\"?\{\}"
_OF_TABLE = re.compile(
    rf"\b(?:FROM|JOIN|TABLE|COPY){_NAMED_TABLE}|\bselect\s[^\n]*\b(?:from|join){_NAMED_TABLE}|{_OF_ANY_TABLE}"
)
"""SQL is written in capitals here; in small letters it is told from prose by its first word."""
_ITEMS = re.compile(r"\bdata\b|\*|\{\}", re.IGNORECASE)
_MAY_NAME = re.compile(r"\bmodel\b|\bsorted_tables\b|column\(|\b(?:SELECT|COPY|TABLE)\b", re.IGNORECASE)
"""A module without any of these is not parsed."""
_NO_ITEMS = re.compile(
    rf"length\((?:\w+\.)?data\)|\bdata\s+IS\s+(?:NOT\s+)?NULL|count\(\*\)|{_OF_ANY_TABLE}", re.IGNORECASE
)


@dataclass
class _Scope:
    """The names that stand for a table or for its columns."""

    models: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)

    def inner(self) -> "_Scope":
        return _Scope({*self.models}, {*self.tables}, {*self.columns})

    def is_table(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name):
                return name in self.tables
            case ast.Attribute(ast.Name(module), name):
                return module in self.models and name in TABLES
            case ast.Attribute(ast.Attribute(ast.Name("xbus"), "model"), name):
                return name in TABLES
            case ast.Call(ast.Attribute(table, "alias"), arguments):
                return self.is_table(table) or any(map(self.is_table, arguments))
        return False

    def is_columns(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name):
                return name in self.columns
            case ast.Attribute(table, "c" | "columns"):
                return self.is_table(table)
        return False

    def learn(self, nodes: Iterable[ast.AST]) -> None:
        """Note the names that a part of the source gives to tables and columns."""
        for each in nodes:
            for target, value in _bound(each):
                if isinstance(target, ast.Name):
                    if self.is_table(value):
                        self.tables.add(target.id)
                    elif self.is_columns(value):
                        self.columns.add(target.id)


def _bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The names that a node binds, each with its value; a loop binds its name to each of a tuple."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                yield from _paired(target, value)
        case ast.AnnAssign(target, _, ast.expr() as value) | ast.NamedExpr(target, value):
            yield target, value
        case ast.For(target, ast.Tuple(values) | ast.List(values)) | ast.comprehension(
            target, ast.Tuple(values) | ast.List(values)
        ):
            for value in values:
                yield from _paired(target, value)
        case ast.arguments():
            positional = [*node.posonlyargs, *node.args]
            defaults = [*zip(positional[::-1], node.defaults[::-1], strict=False)]
            for argument, default in [*defaults, *zip(node.kwonlyargs, node.kw_defaults, strict=True)]:
                if default is not None:
                    yield ast.Name(argument.arg), default


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value


@dataclass
class _Unit:
    """A function with all inside it, or a statement of a module or of a class."""

    name: str
    node: ast.stmt
    is_function: bool
    binds: frozenset[str]

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST | None]:
        """Each node with the one above it: one walk for all questions, as a walk takes long."""
        parents: dict[ast.AST, ast.AST | None] = {self.node: None}
        left: list[ast.AST] = [self.node]
        while left:
            parent = left.pop()
            for child in ast.iter_child_nodes(parent):
                parents[child] = parent
                left.append(child)
        return parents


def _units(body: list[ast.stmt], prefix: str = "") -> Iterator[_Unit]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _Unit(f"{prefix}{node.name}", node, True, frozenset({node.name}))
        elif isinstance(node, ast.ClassDef):
            yield from _units(node.body, f"{prefix}{node.name}.")
        else:
            names = frozenset(_stored(node))
            yield _Unit(f"{prefix}{' '.join(names)}", node, False, names)


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds for those behind it; a comprehension keeps its own."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if not isinstance(node, ast.comprehension | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _stored(child)


def _names_items(parents: Mapping[ast.AST, ast.AST | None], scope: _Scope) -> bool:
    """Whether a part of the source names items, apart from their size and whether they are there."""
    texts = "\n".join(_texts(parents))
    if _OF_TABLE.search(texts) and _ITEMS.search(_NO_ITEMS.sub("", texts)):
        return True
    return any(_names(node, parent, parents, scope) for node, parent in parents.items())


def _names(node: ast.AST, parent: ast.AST | None, parents: Mapping[ast.AST, ast.AST | None], scope: _Scope) -> bool:
    match node:
        case ast.Name(name) if name in scope.models:
            return isinstance(node.ctx, ast.Load) and not isinstance(parent, ast.Attribute)
        case ast.Attribute(_, "sorted_tables"):
            return True
        case ast.Attribute(ast.Attribute(ast.Name(), "metadata" | "views"), "tables"):
            return True
        case ast.Call(ast.Attribute(ast.Name("sa"), name) | ast.Name(name), [first, *_]) if name in _COLUMNS:
            return isinstance(first, ast.Constant) and _ITEMS.search(str(first.value)) is not None
        case ast.Attribute(columns, name) if scope.is_columns(columns) and name in _OF_ALL:
            return not _is_harmless(node, parent)
        case ast.Subscript(columns, index) if scope.is_columns(columns):
            is_other = isinstance(index, ast.Constant) and index.value != "data"
            return not is_other and not _is_harmless(node, parent)
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or not isinstance(parent, ast.AST):
        return False
    if scope.is_columns(node):
        return not isinstance(parent, ast.Attribute | ast.Subscript) and not _is_renaming(node, parent, parents)
    return scope.is_table(node) and not _is_taken(node, parent) and not _is_renaming(node, parent, parents)


def _is_harmless(node: ast.AST, parent: ast.AST | None) -> bool:
    match parent:
        case ast.Call(ast.Attribute(_, "length"), [only]):
            return only is node
        case ast.Attribute(_, "is_" | "is_not"):
            return True
    return False


def _is_taken(node: ast.AST, parent: ast.AST) -> bool:
    match parent:
        case ast.Attribute(_, name):
            return name != "select"
        case ast.Call(ast.Attribute(_, name) | ast.Name(name)):
            return name in _TAKE_TABLE
    return False


def _is_renaming(node: ast.AST, parent: ast.AST, parents: Mapping[ast.AST, ast.AST | None]) -> bool:
    """Whether a node is only given a name, by which it is found."""
    above = parents.get(parent) if isinstance(parent, ast.Tuple | ast.List) else parent
    return above is not None and any(value is node for _, value in _bound(above))


def _texts(parents: Mapping[ast.AST, ast.AST | None]) -> Iterator[str]:
    """The texts of the source but for docstrings; ``{}`` is a part that is put in."""
    for each, parent in parents.items():
        if isinstance(each, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in each.values)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and _is_said(parent):
            yield each.value


def _is_said(parent: ast.AST | None) -> bool:
    return not isinstance(parent, ast.Expr | ast.JoinedStr)


_MODULES = frozenset({"journal", "bulk"})
"""The modules of the model with these tables."""


class _Module:
    """The units of a module, what it imports, and its names of tables."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self.units = [*_units(tree.body)]
        self.imports = [
            (node.module or "", alias.name, alias.asname or alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]
        self.scope = _Scope()
        self.scope.models.update(
            alias.asname
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "xbus.model" and alias.asname is not None
        )
        for module, name, here in self.imports:
            if module.startswith("xbus.model") and name in TABLES:
                self.scope.tables.add(here)
            elif (module, name) == ("xbus", "model") or (module == "xbus.model" and name in _MODULES):
                self.scope.models.add(here)
        for unit in self.units:
            if not unit.is_function:
                self.scope.learn(unit.parents)


class _Finder:
    def __init__(self, sources: Mapping[str, str], handing_on: Collection[str]) -> None:
        self._sources = sources
        self._handing_on = handing_on
        self._module = cache(lambda path: _Module(sources[path]))
        self._named: set[tuple[str, str]] = set()
        """The names that bring items to those who refer to them, each with its module's path."""
        self.found: dict[str, ast.stmt] = {}

    def find(self) -> None:
        for path, source in self._sources.items():
            if _MAY_NAME.search(source):
                module = self._module(path)
                for unit in module.units:
                    scope = module.scope.inner()
                    scope.learn(unit.parents)
                    if _names_items(unit.parents, scope):
                        self._note(path, unit)
        before = -1
        while before != len(self.found) + len(self._named):
            before = len(self.found) + len(self._named)
            for path in self._sources:
                self._follow(path)

    def _follow(self, path: str) -> None:
        """Note all of a module that refers to a name which is noted."""
        # Most modules have none of the names in their text: they are not parsed.
        if not any(name in self._sources[path] for _, name in self._named):
            return
        module = self._module(path)
        here = {name for of_path, name in self._named if of_path == path}
        for source, name, new in module.imports:
            file = source.replace(".", "/")
            if {(f"{file}.py", name), (f"{file}/__init__.py", name)} & self._named:
                here.add(new)
        for unit in module.units if here else ():
            if _refers(unit, here):
                self._note(path, unit)

    def _note(self, path: str, unit: _Unit) -> None:
        place = f"{path}:{unit.name}"
        if unit.is_function:
            self.found[place] = unit.node
        if not unit.is_function or place in self._handing_on:
            self._named.update((path, name) for name in unit.binds)


def _refers(unit: _Unit, names: set[str]) -> bool:
    own = unit.binds if unit.is_function else frozenset()
    for node in unit.parents:
        match node:
            case ast.Name(name, ast.Load()) if name in names - own:
                return True
            case ast.Attribute(ast.Name("self" | "cls"), name) if name in names - own:
                return True
    return False


def places_with_items(sources: Mapping[str, str], handing_on: Collection[str] = ()) -> Mapping[str, ast.stmt]:
    """Find all functions that name items.

    Args:
        sources: the text of each module by its path in the checkout.
        handing_on: functions that give what they read before it is compared: whoever calls them names items too.

    Returns:
        The functions by path and qualified name, as in ``xbus/a.py:Class.method``.
    """
    finder = _Finder(sources, handing_on)
    finder.find()
    return finder.found
