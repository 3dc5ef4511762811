"""The wheel alone is enough: its programs work outside of the checkout, where its migrations are."""

import os
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.processes import run
from xbus.broker.journal.database import schema

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an installation that has the wheel, and the libraries from where the tests run.

    The wheel is found by the name that users give to pip; a package named xbus on the index is somebody else's.
    """
    folder = tmp_path_factory.mktemp("installation")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    from_here = ("--no-deps", "--no-index", "--find-links", wheel.parent)
    result = run(sys.executable, "-m", "pip", "--python", python, "install", *from_here, "xbusd[spark]")
    assert result.returncode == 0, result.stderr
    return python.parent


def test_the_wheel_holds_the_package_and_the_migrations(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    top = {name.partition("/")[0] for name in names if not name.startswith("xbusd-")}
    assert top == {"xbus", "spark_worker", "pyspark_xbus.py"}
    migrations = {path.relative_to(CHECKOUT / "alembic") for path in (CHECKOUT / "alembic").rglob("*.py")}
    assert {f"xbus/broker/journal/migrations/{path}" for path in migrations} <= names
    assert {"xbus/py.typed", "xbus/config/config.ini.sample"} <= names
    assert not [name for name in names if name.startswith("alembic") or "__pycache__" in name]


def test_its_programs_work_outside_of_the_checkout(programs: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'xbus.db'}"
    config = tmp_path / "config.ini"
    assert run(programs / "xbus", "config", "init", config, cwd=tmp_path, env=libraries()).returncode == 0

    result = run(programs / "setup_xbusbroker", "-c", config, "--demo", cwd=tmp_path, env=libraries())

    assert result.returncode == 0, result.stderr
    schema.check(url)
    for name in ("start_xbusbroker", "xbus"):
        assert run(programs / name, "--help", cwd=tmp_path, env=libraries()).returncode == 0, name


def test_its_errors_name_it_as_pip_knows_it(programs: Path, tmp_path: Path) -> None:
    script = "import sys; sys.modules['spark_worker'] = None; from xbus.admin.cli import main; main()"

    result = run(programs / "python", "-c", script, "archive", cwd=tmp_path, env=libraries())

    assert result.returncode == 1
    assert "pip install 'xbusd[spark]'" in result.stderr


def test_it_uses_its_own_code(programs: Path, tmp_path: Path) -> None:
    where = "import xbus.broker.journal.database.schema as schema; print(schema.__file__, schema._migrations())"

    result = run(programs / "python", "-c", where, cwd=tmp_path, env=libraries())

    assert str(CHECKOUT) not in result.stdout
    assert str(programs.parent) in result.stdout, result.stderr


def libraries() -> dict[str, str]:
    """The tests' libraries, but not what their environment adds by .pth files: the checkout itself."""
    return {"PYTHONPATH": os.pathsep.join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})}
