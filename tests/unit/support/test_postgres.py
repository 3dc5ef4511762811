"""Where the tests' PostgreSQL comes from, without starting one."""

from pathlib import Path

import pytest

from tests.support import postgres

CHECKOUT = Path(__file__).parents[3]


def programs(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).touch()
    return folder


def test_the_machine_s_own_programs_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, packaged = programs(tmp_path / "15" / "bin"), programs(tmp_path / "packaged" / "bin")
    monkeypatch.setattr(postgres, "_installed", lambda: [tmp_path / "16" / "bin", installed])
    monkeypatch.setattr(postgres, "_packaged", lambda: [packaged])

    assert postgres.find_programs() == installed


def test_a_machine_without_any_skips_for_the_reason_that_ci_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("_installed", "_on_path", "_packaged"):
        monkeypatch.setattr(postgres, place, list)

    with pytest.raises(postgres.NotFound, match=postgres.NOT_FOUND):
        postgres.find_programs()
    assert f"skipped='{postgres.NOT_FOUND}'" in (CHECKOUT / ".ci" / "run").read_text()


def test_the_package_brings_the_programs() -> None:
    folder = postgres._packaged()[0]

    assert (folder / "initdb").is_file()
    assert (folder / "postgres").is_file()
