"""``xbus edit``: what a person changes in an editor is in force after a yes, and nothing else ever is."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.integration.admin.conftest import Xbus, version

REPLACES = """
import pathlib, sys
pairs = sys.argv[1:-1]
path = pathlib.Path(sys.argv[-1])
text = path.read_text()
for old, new in zip(pairs[::2], pairs[1::2]):
    assert old in text, text
    text = text.replace(old, new)
path.write_text(text)
"""

ROLE = '[[role]]\nlogin = "flight_store_1"\nservice = "flight_store"\n'


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Editor":
    return Editor(tmp_path, monkeypatch)


class Editor:
    """Stands for a person at an editor."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._script = folder / "editor.py"
        self._script.write_text(REPLACES)
        self._monkeypatch = monkeypatch

    def replaces(self, *pairs: str) -> None:
        """Replace these texts of the file by others: the first by the second, and so on."""
        self._monkeypatch.setenv("VISUAL", shlex.join([sys.executable, str(self._script), *pairs]))

    def runs(self, *command: str) -> None:
        self._monkeypatch.setenv("VISUAL", shlex.join(command))


def test_what_was_edited_is_shown_and_applied_after_a_yes(
    xbus: Xbus, bus: Path, editor: Editor, database_url: str
) -> None:
    xbus("apply", bus)
    editor.replaces('"flight_store_1"', '"flight_store_2"')
    told = xbus("edit", stdin="y\n")
    assert told.exit_code == 0, told.stderr
    assert 'add role "flight_store_2"' in told.stdout
    assert 'remove role "flight_store_1"' in told.stdout
    assert f"Applied: the configuration is at version {version(database_url)}." in told.stdout
    assert '"flight_store_2"' in xbus("export").stdout


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_without_a_yes_nothing_is_changed(
    xbus: Xbus, bus: Path, editor: Editor, database_url: str, answer: str
) -> None:
    xbus("apply", bus)
    before = version(database_url)
    editor.replaces(ROLE, "")
    told = xbus("edit", stdin=answer)
    assert told.exit_code != 0
    assert version(database_url) == before
    kept = kept_text(told.stderr)
    assert "flight_store_1" not in kept
    assert "airline_names_1" in kept


def test_who_changes_nothing_is_asked_nothing(xbus: Xbus, bus: Path, editor: Editor, database_url: str) -> None:
    xbus("apply", bus)
    before = version(database_url)
    for change in ((), ("[[role]]", "# a remark\n[[role]]")):
        editor.replaces(*change)
        assert xbus("edit").stdout == "Nothing was changed.\n"
    assert version(database_url) == before


def test_a_mistake_is_told_with_its_line_and_may_be_corrected(xbus: Xbus, bus: Path, editor: Editor) -> None:
    xbus("apply", bus)
    editor.replaces('service = "flight_store"', 'service = "nowhere"')
    told = xbus("edit", stdin="n\n")
    assert told.exit_code == 1
    assert re.search(r"^/.*/xbus-edit-\w+\.toml:\d+: ", told.stderr, re.MULTILINE)
    assert 'service = "nowhere"' in kept_text(told.stderr)
    assert 'there is no service "nowhere"' in told.stderr
    assert "Edit it again?" in told.output
    assert '"nowhere"' not in xbus("export").stdout


def test_who_was_overtaken_by_another_changes_nothing(
    xbus: Xbus, bus: Path, editor: Editor, config_path: Path, tmp_path: Path
) -> None:
    xbus("apply", bus)
    other = tmp_path / "other.toml"
    other.write_text('[[service]]\nname = "late"\nkind = "consumer"\n')
    program = str(Path(sys.executable).with_name("xbus"))
    apply = f"{shlex.join([program, 'apply', '-c', str(config_path), str(other)])} && echo '# mine' >>"
    editor.runs("sh", "-c", f'{apply} "$1" && sed -i s/flight_store_1/flight_store_9/ "$1"', "sh")
    told = xbus("edit", stdin="y\n")
    assert told.exit_code == 1
    assert "somebody else has changed the bus meanwhile" in told.stderr
    assert "changed_meanwhile" in told.stderr
    assert "flight_store_9" in kept_text(told.stderr)
    exported = xbus("export").stdout
    assert '"late"' in exported
    assert "flight_store_9" not in exported


def test_an_editor_that_leaves_no_file_is_told(xbus: Xbus, bus: Path, editor: Editor, database_url: str) -> None:
    xbus("apply", bus)
    before = version(database_url)
    editor.runs("rm", "-f")
    told = xbus("edit")
    assert told.exit_code == 1
    assert "[unreadable_file]" in told.stderr
    assert "Your text" not in told.stderr
    assert version(database_url) == before


def test_an_editor_that_is_not_there_is_told(xbus: Xbus, bus: Path, editor: Editor) -> None:
    xbus("apply", bus)
    editor.runs("no-such-editor")
    told = xbus("edit")
    assert told.exit_code == 1
    assert "no-such-editor" in told.stderr
    assert "Your text" not in told.stderr


def kept_text(told: str) -> str:
    """The text that the command has kept, and the file is gone afterwards."""
    found = re.search(r"^Your text is in (.*)$", told, re.MULTILINE)
    assert found, told
    path = Path(found[1])
    assert path.stat().st_mode & 0o077 == 0
    text = path.read_text()
    path.unlink()
    return text
