"""How a transform is found, and what it is given."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_worker.transform.transforms import References, load_function, load_sql, split_sql
from xbus.errors import ConfigurationError


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("transform_"):
            del sys.modules[name]


def test_a_function_is_found_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "transform_a.py").write_text("def change(items, context):\n    return 'changed'\n")

    function = load_function("transform_a:change", tmp_path)

    made: object = function(None, None)  # type: ignore[arg-type]
    assert made == "changed"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("transform_b", "does not name a function"),
        (":change", "does not name a function"),
        ("transform_missing:change", "can't be imported"),
        ("transform_b:other", "has no function other"),
        ("transform_b:number", "has no function number"),
        ("transform_b:lonely", "can't be called with items and context"),
        ("transform_bad:change", "can't be imported (ZeroDivisionError: division by zero)"),
    ],
)
def test_what_is_wrong_with_the_name_is_said(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "transform_b.py").write_text("number = 1\ndef lonely(items): return items\n")
    (tmp_path / "transform_bad.py").write_text("1 / 0\n")

    with pytest.raises(ConfigurationError) as raised:
        load_function(name, tmp_path)

    assert said in raised.value.cause


@pytest.mark.parametrize(
    ("name", "next_step"),
    [
        ("transform_missing:change", "start the worker where it is found"),
        ("transform_bad:change", "install transform_missing, or mend it"),
        ("transform_raising:change", "mend it; what needs a session"),
    ],
)
def test_a_module_that_raises_is_not_looked_for_elsewhere(tmp_path: Path, name: str, next_step: str) -> None:
    (tmp_path / "transform_bad.py").write_text("import transform_missing\n")
    (tmp_path / "transform_raising.py").write_text("1 / 0\n")

    with pytest.raises(ConfigurationError) as raised:
        load_function(name, tmp_path)

    assert raised.value.next_step.startswith(next_step)


def test_statements_end_with_a_semicolon_at_the_end_of_a_line() -> None:
    text = """
    -- airlines; from a file
    CREATE TEMPORARY VIEW airlines USING csv OPTIONS (path 'a;b.csv');
    SELECT ';' AS mark, * FROM items
      JOIN airlines USING (carrier);
    """

    first, second = split_sql(text)

    assert first == "CREATE TEMPORARY VIEW airlines USING csv OPTIONS (path 'a;b.csv')"
    assert second.startswith("SELECT ';' AS mark")


def test_a_file_without_a_statement_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.sql").write_text("-- nothing\n")

    with pytest.raises(ConfigurationError, match="no statement"):
        load_sql(tmp_path / "empty.sql")
    with pytest.raises(ConfigurationError, match="can't be read"):
        load_sql(tmp_path / "missing.sql")


def test_references_are_made_once() -> None:
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    references = References()

    assert [references.cached("a", make), references.cached("a", make), references.cached("b", make)] == [1, 1, 2]
