"""The shape of the control flow: what an object needs it is given when it is made, and that is not much."""

import ast
from collections.abc import Iterator
from pathlib import Path

import spark_worker
import xbus

MOST_PARAMETERS = 7
LONGEST_CONSTRUCTOR = 60


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in (xbus, spark_worker):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def constructors() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                        yield f"{path}:{member.lineno} {node.name}", member


def test_constructors_take_few_arguments() -> None:
    found = {name: made.args for name, made in constructors()}
    counts = {name: len([*args.posonlyargs, *args.args, *args.kwonlyargs]) - 1 for name, args in found.items()}
    assert [name for name, count in counts.items() if count > MOST_PARAMETERS] == []


def test_constructors_are_short() -> None:
    lengths = {name: (made.end_lineno or 0) - made.lineno + 1 for name, made in constructors()}
    assert [name for name, lines in lengths.items() if lines >= LONGEST_CONSTRUCTOR] == []


def test_no_callback_is_set_from_outside() -> None:
    late = [
        f"{path}:{node.lineno} {ast.unparse(target)}"
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr.startswith("on_")
    ]
    assert late == []
