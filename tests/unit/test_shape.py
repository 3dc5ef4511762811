"""The shape of the source: sizes, names and first sentences that keep it easy to enter.

A name that a limit excepts stands in a list here. Such a list only gets shorter.
"""

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

pytestmark = pytest.mark.no_cover
"""Nothing here runs our code, and parsing is slow where it is traced."""

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("xbus", "spark_worker")

MOST_LINES_OF_A_FILE = 700
MOST_LINES_OF_A_FUNCTION = 60
MOST_PARAMETERS_OF_A_CONSTRUCTOR = 9

NAMES_OF_BOTH_SDKS = {"Envelope", "Event"}
"""Programs import these from ``xbus.emitter`` and from ``xbus.recipient``: the two sides of one thing."""

HEADLESS = re.compile(r"(What|Who|Whoever|Where|How|Which|Whether)\b")


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Each module of the source with its path in the checkout."""
    return [
        (path.relative_to(CHECKOUT).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for package in PACKAGES
        for path in sorted((CHECKOUT / package).rglob("*.py"))
    ]


Examined: TypeAlias = (
    ast.AnnAssign | ast.arg | ast.Assign | ast.AsyncFunctionDef | ast.ClassDef | ast.FunctionDef | ast.ImportFrom
)


@cache
def nodes() -> list[tuple[str, Examined]]:
    """Each node that a test looks at, with the path of its module: one walk through all of them takes a second."""
    return [(path, node) for path, tree in modules() for node in ast.walk(tree) if isinstance(node, Examined)]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function of a module's top level and of its classes, by its qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{member.name}", member


def test_no_file_is_long() -> None:
    lengths = {path: len((CHECKOUT / path).read_text(encoding="utf-8").splitlines()) for path, _ in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_long() -> None:
    found = {
        f"{path} {name}"
        for path, tree in modules()
        for name, function in functions(tree)
        if (function.end_lineno or 0) - function.lineno >= MOST_LINES_OF_A_FUNCTION
    }
    assert found == set()


def test_no_constructor_is_wide() -> None:
    found = {
        f"{path} {name.removesuffix('.__init__')}"
        for path, tree in modules()
        for name, function in functions(tree)
        if name.endswith(".__init__")
        and len(function.args.args) - 1 + len(function.args.kwonlyargs) > MOST_PARAMETERS_OF_A_CONSTRUCTOR
    }
    assert found == set()


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert set(shared) == NAMES_OF_BOTH_SDKS, shared


def test_every_package_and_module_says_what_it_does() -> None:
    silent = [
        path for path, tree in modules() if not ast.get_docstring(tree) and (tree.body or path.endswith("/__init__.py"))
    ]
    assert silent == []


def test_no_module_begins_with_a_headless_sentence() -> None:
    headless = [path for path, tree in modules() if HEADLESS.match(ast.get_docstring(tree) or "")]
    assert headless == []


def test_no_function_or_class_begins_with_a_headless_sentence() -> None:
    headless = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and HEADLESS.match(ast.get_docstring(node) or "")
    ]
    assert headless == []


RELATIVE = re.compile(
    r"(?:\A|[.:]\s+|\n\n)(What|Whoever|Whatever|Those (?:that|who|which|of|with)|All that|How often)\b"
)

MOST_RELATIVE_SENTENCES = 8
"""Sentences of docstrings whose subject is a relative clause, such as "What is left". The number only falls."""

MOST_WORDS = 20
MOST_LONG_BEGINNINGS = 6
"""Docstrings whose first sentence has more words than that. The number only falls."""


@cache
def described() -> list[tuple[str, str]]:
    """The texts of modules, classes, functions and attributes, each with its place."""
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if not isinstance(body, list):
                continue
            for before, text in zip([node, *body], body, strict=False):
                if (
                    isinstance(
                        before,
                        ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign,
                    )
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                    and isinstance(text.value.value, str)
                ):
                    found.append((f"{path}:{text.lineno}", inspect.cleandoc(text.value.value)))
    return found


def test_few_sentences_begin_with_a_relative_clause() -> None:
    found = [place for place, text in described() for _ in RELATIVE.findall(text)]
    assert len(found) <= MOST_RELATIVE_SENTENCES, found


def test_few_docstrings_begin_with_a_long_sentence() -> None:
    found = [
        place
        for place, text in described()
        if len(re.split(r"(?<=[.!?:])\s|\n\n", text, maxsplit=1)[0].split()) > MOST_WORDS
    ]
    assert len(found) <= MOST_LONG_BEGINNINGS, found


def test_no_callback_is_set_from_outside() -> None:
    late = [
        f"{path}:{node.lineno} {ast.unparse(target)}"
        for path, node in nodes()
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr.startswith("on_")
    ]
    assert late == []


UNTYPED = {"xbus/recipient/envelope.py state", "xbus/recipient/envelope.py value"}
"""Only the author of a recipient knows the shape of an item, and of what a recipient keeps."""


def test_no_function_returns_any() -> None:
    found = {
        f"{path} {function.name}"
        for path, function in nodes()
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if function.returns is not None and re.search(r"\bAny\b", ast.unparse(function.returns))
    }
    assert found == UNTYPED


def test_no_select_of_several_columns_is_typed_as_one_of_any() -> None:
    """``Select[Any]`` is a SELECT of one column: mypy would take rows of any length for right."""
    found = {
        f"{path}:{node.lineno}"
        for path, node in nodes()
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None
        if re.search(r"\b(Row|Select)\[Any\]", ast.unparse(node.annotation))
    }
    assert found == set()


MAY_PATCH = re.compile(r"(setattr|delattr|patch|object)\(|\.[A-Z0-9_]+ [+|]?=[^=]")
CONSTANT = re.compile(r"(.*\.)?_?[A-Z][A-Z0-9_]+")


def patched(node: ast.AST) -> Iterator[str]:
    """The constants of modules that a statement of a test sets, by ``monkeypatch``, ``mock`` or plainly."""
    if isinstance(node, ast.Call):
        setter = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if setter in ("setattr", "delattr", "patch", "object"):
            yield from (
                argument.value
                for argument in node.args[:2]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )
    elif isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.attr for target in targets if isinstance(target, ast.Attribute))


def test_no_test_patches_a_constant() -> None:
    """A test hands its size or interval in, as an argument whose default is the constant."""
    found = [
        f"{path.relative_to(CHECKOUT)}:{getattr(node, 'lineno', 0)} {name}"
        for path in sorted((CHECKOUT / "tests").rglob("*.py"))
        if (CHECKOUT / "tests/old/programs") not in path.parents
        for text in [path.read_text(encoding="utf-8")]
        if MAY_PATCH.search(text)
        for node in ast.walk(ast.parse(text))
        for name in patched(node)
        if CONSTANT.fullmatch(name)
    ]
    assert found == []


@pytest.mark.parametrize(
    "statement",
    [
        'monkeypatch.setattr(module, "MOST_ROWS", 4)',
        'patch.setattr("xbus.rpc.server._MOST_ROWS", 4)',
        'mock.patch.object(module, "MOST_ROWS", 4)',
        'mock.patch("xbus.rpc.server.MOST_ROWS")',
        "module.MOST_ROWS = 4",
    ],
)
def test_a_patched_constant_is_seen(statement: str) -> None:
    names = [name for node in ast.walk(ast.parse(statement)) for name in patched(node)]
    assert [bool(CONSTANT.fullmatch(name)) for name in names] == [True]
    assert MAY_PATCH.search(statement)


FACES = ("xbus.broker.back.", "xbus.broker.front.")


def package_of(module: str) -> str:
    """The package of front or back that a module lies in; empty where it lies in none."""
    for part in FACES:
        if module.startswith(part):
            name = module.removeprefix(part).partition(".")[0]
            return part + name if (CHECKOUT / (part + name).replace(".", "/")).is_dir() else ""
    return ""


def test_packages_of_front_and_back_are_entered_by_their_face() -> None:
    past_the_face = [
        f"{path}:{node.lineno} {node.module}"
        for path, node in nodes()
        if isinstance(node, ast.ImportFrom) and node.module
        for package in [package_of(node.module)]
        if package and node.module != package and package_of(path[:-3].replace("/", ".")) != package
    ]
    assert past_the_face == []


FACE_LINE = re.compile(r"^Face: (.*)\.$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"``(\w+)``")


@cache
def shown_modules() -> dict[str, set[str]]:
    """The packages of journal and Spark worker, each with the modules that its docstring calls its face."""
    found = {}
    for path, tree in modules():
        folder, _, name = path.rpartition("/")
        if name == "__init__.py" and folder.startswith(("xbus/broker/journal/", "spark_worker/")):
            face = FACE_LINE.search(ast.get_docstring(tree) or "")
            if face is not None:
                found[folder.replace("/", ".")] = set(NAMED.findall(face[1]))
    return found


def imported() -> Iterator[tuple[str, str]]:
    """Each package with a face that a module outside of it imports from, and what: a module, or empty for the face."""
    for path, node in nodes():
        if not (isinstance(node, ast.ImportFrom) and node.module):
            continue
        own = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for package in shown_modules():
            if own == package or own.startswith(f"{package}."):
                continue
            if node.module.startswith(f"{package}."):
                yield package, node.module.removeprefix(f"{package}.").partition(".")[0]
            elif node.module == package:
                folder = CHECKOUT / package.replace(".", "/")
                for alias in node.names:
                    is_module = any((folder / name).exists() for name in (f"{alias.name}.py", alias.name))
                    yield package, alias.name if is_module else ""


def test_every_package_of_journal_and_spark_worker_names_its_face() -> None:
    folders = [
        folder.relative_to(CHECKOUT).as_posix().replace("/", ".")
        for parent in ("xbus/broker/journal", "spark_worker")
        for folder in (CHECKOUT / parent).iterdir()
        if (folder / "__init__.py").exists()
    ]
    assert sorted(shown_modules()) == sorted(folders)


def test_packages_of_journal_and_spark_worker_are_entered_by_their_face() -> None:
    used = {package: set[str]() for package in shown_modules()}
    for package, name in imported():
        used[package].add(name)
    programs = re.findall(r'= "(\S+?):', (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    for program in programs:
        package, _, name = program.rpartition(".")
        if package in used:
            used[package].add(name)
    assert {package: names - {""} for package, names in used.items()} == shown_modules()


CLIENT = ("xbus.emitter", "xbus.reader", "xbus.recipient", "xbus.rpc")
CLIENT_LIBRARIES = {"msgpack", "zmq"}
OF_AN_EXTRA = {"xbus.recipient.inbox"}
"""Modules of the client that nothing else of it imports, and that need more."""


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules that a module imports, wherever in it."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_the_client_imports_zmq_and_msgpack_and_nothing_else() -> None:
    trees = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree for path, tree in modules()}
    waiting = [name for name in trees if name.startswith(CLIENT) and name not in OF_AN_EXTRA]
    seen: set[str] = set()
    libraries = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        needed = imported_modules(trees[name])
        waiting += [each for each in needed if each in trees and each not in seen]
        libraries |= {top for each in needed for top in [each.partition(".")[0]]} - {"xbus"} - sys.stdlib_module_names
    assert libraries == CLIENT_LIBRARIES
    assert not seen & OF_AN_EXTRA


SHOWN_COMMAND = re.compile(r"\bxbus(?: (?:--)?[a-z][a-z-]*| X)+ $")
"""The text before a value that is a word of a command; ``X`` stands for the values before it."""

NO_NAME = re.compile(
    r"(^|[._])(\w*id|kind|kind\.value|number|right|resent_as|resumed_as|item|archived|wanted|oldest_open|module)$"
)
"""Values that need no quotes: ids, numbers and words of the bus itself."""


def test_names_in_commands_that_people_copy_are_quoted() -> None:
    bare = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.JoinedStr):
                continue
            before = ""
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    value = ast.unparse(part.value)
                    if SHOWN_COMMAND.search(before) and "quote" not in value and not NO_NAME.search(value):
                        bare.append(f"{path}:{node.lineno} {value}")
                    before += "X"
                elif isinstance(part, ast.Constant):
                    before += str(part.value)
    assert bare == []
