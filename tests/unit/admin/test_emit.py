"""``xbus emit`` with an emitter that only notes what is asked of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from xbus.admin import address
from xbus.admin.cli import main
from xbus.emitter import Receipt
from xbus.errors import ConnectionLost, Refused, XbusError


class NotedEmitter:
    """Stands in for the emitter: what was sent, and whether the envelope was sealed or cancelled."""

    notes: ClassVar[list[Any]]
    refusal: ClassVar[XbusError | None]
    """What sending the item 1 leads to."""
    broken: ClassVar[XbusError | None]
    """What became of an earlier batch."""
    options: ClassVar[dict[str, Any]]
    """What was said of the envelope."""

    def __init__(self, url: str, login: str, password: str, **_: Any) -> None:
        self.notes.append(("login", url, login, password))
        self.sent = 0

    def __enter__(self) -> "NotedEmitter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def envelope(self, **options: Any) -> Iterator[Any]:
        self.options.update(options)
        envelope = SimpleNamespace(event=self._event)
        try:
            yield envelope
        except BaseException:
            self.notes.append("cancelled")
            raise
        self.notes.append("sealed")
        envelope.receipt = Receipt("e1", 1234, 1, self.sent, b"")

    @contextmanager
    def _event(self, type_name: str) -> Iterator[Any]:
        self.notes.append(("event", type_name))
        yield SimpleNamespace(send=self._send, flush=self._flush)

    def _send(self, item: object) -> None:
        if self.refusal is not None and item in ({"id": "1"}, 1):
            raise self.refusal
        self.notes.append(item)
        self.sent += 1

    def _flush(self) -> None:
        if self.broken is not None:
            raise self.broken


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> type[NotedEmitter]:
    class Fresh(NotedEmitter):
        notes: ClassVar[list[Any]] = []
        refusal: ClassVar[XbusError | None] = None
        broken: ClassVar[XbusError | None] = None
        options: ClassVar[dict[str, Any]] = {}

    monkeypatch.setattr(address, "Emitter", Fresh)
    for variable in ("XBUS_CONFIG", "XBUS_LOGIN", "XBUS_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)
    return Fresh


def run(*arguments: str, stdin: str = "", **environment: str) -> Result:
    return CliRunner().invoke(
        main, ["emit", "--url", "tcp://here:1", *arguments], input=stdin, env=environment, prog_name="xbus"
    )


def emit(path: Path, content: str, *options: str, stdin: str = "", **environment: str) -> Result:
    path.write_text(content)
    return run(str(path), "--type", "flights", *options, stdin=stdin, **environment)


def test_a_file_is_one_envelope(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.csv", "id,name\n1,x\n2,y\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 0
    assert noted.notes == [
        ("login", "tcp://here:1", "me", "secret"),
        ("event", "flights"),
        {"id": "1", "name": "x"},
        {"id": "2", "name": "y"},
        "sealed",
    ]
    assert result.stdout == "2 items sent: envelope e1, position 1234\n"


def test_what_is_said_of_the_envelope_goes_with_it(noted: type[NotedEmitter], tmp_path: Path) -> None:
    emit(
        tmp_path / "a.jsonl", "1", "--login", "me", "--ordering-key", "client 7", "--key", "17", XBUS_PASSWORD="secret"
    )
    assert noted.options == {"ordering_key": "client 7", "key": "17", "headers": {}}


def test_headers_are_texts_or_json(noted: type[NotedEmitter], tmp_path: Path) -> None:
    options = ("--header", "schema=orders/3", "--header", "mine=7", "--header", "shard:=7", "--header", "at=a=b")
    assert emit(tmp_path / "a.jsonl", "1", "--login", "me", *options, XBUS_PASSWORD="secret").exit_code == 0
    assert noted.options["headers"] == {"schema": "orders/3", "mine": "7", "shard": 7, "at": "a=b"}


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["mine"], "'mine' is no header: give it as name=text or name:=JSON"),
        (["mine:=x"], "header mine is no JSON: 'x': give a number"),
        (["mine:=null"], "header mine is of the type NoneType"),
        (["traceparent=1"], "header traceparent is no traceparent of W3C Trace Context: give 00-"),
        (["1st=x"], "a header can't be called '1st'"),
        (["mine=1", "mine=2"], "header mine is given twice"),
        (["mine=" + "x" * 4096], "4096 are allowed in all"),
    ],
)
def test_bad_headers_are_refused_before_anything_is_asked(
    noted: type[NotedEmitter], tmp_path: Path, options: list[str], cause: str
) -> None:
    result = emit(tmp_path / "a.jsonl", "1", *(word for option in options for word in ("--header", option)))
    assert result.exit_code == 2
    assert cause in " ".join(result.stderr.split())
    assert noted.notes == []


def test_login_and_password_come_from_where_they_are_said(noted: type[NotedEmitter], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("filed\n")
    emit(tmp_path / "a.jsonl", "1", "--password-file", str(secret), XBUS_LOGIN="you", XBUS_PASSWORD="unused")
    assert noted.notes[0] == ("login", "tcp://here:1", "you", "filed")


def test_without_a_person_to_ask_it_says_how_to_give_the_password(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.jsonl", "1", "--login", "me")
    assert result.exit_code == 1
    assert "nobody can be asked: set XBUS_PASSWORD, or give --password-file" in result.stderr
    assert noted.notes == []


def test_login_and_password_are_asked_for(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.jsonl", "1", stdin="me\nsecret\n")
    assert noted.notes[0] == ("login", "tcp://here:1", "me", "secret")
    assert "secret" not in result.output


def test_a_bad_line_is_told_and_cancels_the_envelope(noted: type[NotedEmitter], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    result = emit(path, "1\n{\n3\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 1
    assert noted.notes[-2:] == [1, "cancelled"]
    assert f"xbus: {path}:2: this is not JSON" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("code", ["bad_items", "item_too_large"])
def test_an_item_that_the_bus_can_not_take_is_told_with_its_line(
    noted: type[NotedEmitter], tmp_path: Path, code: str
) -> None:
    noted.refusal = Refused("an item of 99 bytes is too large", code=code)
    path = tmp_path / "a.csv"
    result = emit(path, "id\n1\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 1
    assert f"xbus: {path}:2: an item of 99 bytes is too large" in result.stderr
    assert noted.notes[-1] == "cancelled"


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(Refused("no such type", "see xbus export"), 1), (ConnectionLost("the front went away", "try again"), 3)],
)
def test_other_errors_are_told_as_they_are(
    noted: type[NotedEmitter], tmp_path: Path, error: XbusError, exit_code: int
) -> None:
    noted.refusal = error
    result = emit(tmp_path / "a.csv", "id\n1\n", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == exit_code
    assert result.stderr.splitlines()[-1] == f"xbus: {error} [{error.code}]"


def test_a_file_of_another_kind_is_refused_before_anyone_is_called(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.xlsx", "", "--login", "me", XBUS_PASSWORD="secret")
    assert result.exit_code == 1
    assert noted.notes == []


def test_a_password_file_without_a_password_is_refused(noted: type[NotedEmitter], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("")
    result = emit(tmp_path / "a.csv", "", "--login", "me", "--password-file", str(secret))
    assert result.exit_code == 1
    assert "has no password in its first line" in result.stderr


# -- bad lines ---------------------------------------------------------------------------------------------------------

KNOWN = ("--login", "me")
SECRET = {"XBUS_PASSWORD": "secret"}


@pytest.mark.parametrize("option", [("--on-bad-line", "skip"), ("--on-bad-line=skip",)])
def test_skip_leaves_bad_lines_out_and_tells_them(
    noted: type[NotedEmitter], tmp_path: Path, option: tuple[str, ...]
) -> None:
    path = tmp_path / "a.jsonl"
    result = emit(path, "0\n{\n3\n[\n", *KNOWN, *option, **SECRET)
    assert result.exit_code == 0
    assert noted.notes[-3:] == [0, 3, "sealed"]
    told = [line for line in result.stderr.splitlines() if line.startswith("xbus: ")]
    assert [line.partition(": this")[0] for line in told[:2]] == [f"xbus: {path}:2", f"xbus: {path}:4"]
    assert told[2:] == ["xbus: 2 bad lines were left out"]


@pytest.mark.parametrize("place", ["before", "behind", "joined"])
def test_collect_also_writes_them(noted: type[NotedEmitter], tmp_path: Path, place: str) -> None:
    path, to = tmp_path / "a.csv", tmp_path / "bad.csv"
    path.write_text("id\n0\n2,x\n")
    option = ["--on-bad-line=collect", str(to)] if place == "joined" else ["--on-bad-line", "collect", str(to)]
    words = [str(path), *option] if place == "behind" else [*option, str(path)]
    result = run(*KNOWN, "--type", "flights", *words, **SECRET)
    assert result.exit_code == 0, result.output
    assert noted.notes[-2:] == [{"id": "0"}, "sealed"]
    assert result.stdout == "1 item sent: envelope e1, position 1234\n"
    fault = f"{path}:3: 2 fields, but the first line names 1"
    assert to.read_text() == (
        f"#xbus# bad lines of {path}: correct them below the remarks, and send this file\nid\n#xbus# {fault}\n2,x\n"
    )
    assert result.stderr.splitlines()[-2:] == [
        f"xbus: {fault}",
        f"xbus: 1 bad line was left out and is in {to}: correct it there and send that file",
    ]


def test_several_collected_lines_are_counted(noted: type[NotedEmitter], tmp_path: Path) -> None:
    to = tmp_path / "bad.csv"
    result = emit(tmp_path / "a.csv", "id\n0\n2,x\n3,y\n", *KNOWN, "--on-bad-line", "collect", str(to), **SECRET)
    told = f"xbus: 2 bad lines were left out and are in {to}: correct them there and send that file"
    assert result.stderr.splitlines()[-1] == told


@pytest.mark.parametrize(
    "words",
    [
        ("a.csv", "--on-bad-line", "collect"),
        ("a.csv", "--on-bad-line=collect"),
        ("--on-bad-line", "collect", "--type", "flights", "a.csv"),
        ("--on-bad-line", "collect", "a.csv"),
        ("a.csv", "b.csv", "--on-bad-line", "collect", "c.csv"),
        ("a.csv", "--on-bad-line", "ignore"),
        ("a.csv", "--on-bad-line", "collect", "b.csv", "--on-bad-line", "skip"),
        ("a.csv", "--on-bad-line"),
    ],
)
def test_a_policy_that_is_not_clear_is_a_wrong_command_line(noted: type[NotedEmitter], words: tuple[str, ...]) -> None:
    result = run(*KNOWN, "--type", "flights", *words, **SECRET)
    assert result.exit_code == 2
    assert noted.notes == []


def test_a_file_of_bad_lines_that_is_there_is_refused_before_anyone_is_called(
    noted: type[NotedEmitter], tmp_path: Path
) -> None:
    other = tmp_path / "b.csv"
    other.write_text("id\n1\n")
    result = emit(tmp_path / "a.csv", "id\n1\n", *KNOWN, "--on-bad-line", "collect", str(other), **SECRET)
    assert result.exit_code == 1
    assert f"xbus: {other} exists already" in result.stderr
    assert noted.notes == []


def test_an_item_that_the_bus_can_not_take_is_a_bad_line(noted: type[NotedEmitter], tmp_path: Path) -> None:
    noted.refusal = Refused("an item of 99 bytes is too large", code="item_too_large")
    to = tmp_path / "bad.jsonl"
    result = emit(tmp_path / "a.jsonl", "0\n1\n2\n", *KNOWN, "--on-bad-line", "collect", str(to), **SECRET)
    assert result.exit_code == 0
    assert noted.notes[-3:] == [0, 2, "sealed"]
    assert to.read_text().endswith(":2: an item of 99 bytes is too large\n1\n")


def test_what_is_wrong_with_an_earlier_batch_is_no_bad_line(noted: type[NotedEmitter], tmp_path: Path) -> None:
    noted.refusal = noted.broken = Refused("a batch was wrong", code="bad_items")
    to = tmp_path / "bad.jsonl"
    result = emit(tmp_path / "a.jsonl", "{\n1\n", *KNOWN, "--on-bad-line", "collect", str(to), **SECRET)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "xbus: a batch was wrong [bad_items]"
    assert noted.notes[-1] == "cancelled"
    assert not to.exists(), "all lines have to be sent again"


def test_no_policy_goes_on_where_lines_can_not_be_told_apart(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.csv", "id,id\n1,2\n", *KNOWN, "--on-bad-line", "skip", **SECRET)
    assert result.exit_code == 1
    assert noted.notes[-1] == "cancelled"


# -- descriptors and several files -------------------------------------------------------------------------------------

DESCRIPTORS = """\
<all>
  <descriptor>
    <header>
      <name>first</name><eventtype>boats</eventtype><format name="fixedlength"><startline>1</startline></format>
    </header>
    <fields><field name="n" mandatory="1"><source>1</source><type>int</type><length>3</length></field></fields>
  </descriptor>
  <descriptor>
    <header><name>other</name><format name="xml"/><datanode>a/b</datanode></header>
    <fields><field name="n" mandatory="true"><source>n</source><type>int</type></field></fields>
  </descriptor>
</all>
"""


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    path = tmp_path / "all.xml"
    path.write_text(DESCRIPTORS)
    return str(path)


def test_a_descriptor_says_how_to_read_and_what_to_send(
    noted: type[NotedEmitter], tmp_path: Path, descriptors: str
) -> None:
    (tmp_path / "a.txt").write_text("  1\n 22\n")
    result = run(*KNOWN, str(tmp_path / "a.txt"), "--descriptor", descriptors, **SECRET)
    assert result.exit_code == 0, result.output
    assert noted.notes[1:] == [("event", "boats"), {"n": 1}, {"n": 22}, "sealed"]


def test_a_descriptor_may_be_named_and_the_type_given(
    noted: type[NotedEmitter], tmp_path: Path, descriptors: str
) -> None:
    (tmp_path / "a.xml").write_text("<a><b><n>7</n></b></a>")
    words = (*KNOWN, str(tmp_path / "a.xml"), "--descriptor", f"{descriptors}#other")
    assert run(*words, **SECRET).exit_code == 2, "no event type is known"
    assert run(*words, "--type", "cars", **SECRET).exit_code == 0
    assert noted.notes[1:] == [("event", "cars"), {"n": 7}, "sealed"]


def test_the_name_of_a_descriptor_file_may_hold_a_hash(noted: type[NotedEmitter], tmp_path: Path) -> None:
    (tmp_path / "a#b.xml").write_text(DESCRIPTORS)
    (tmp_path / "a.txt").write_text("  1\n")
    for name in ("a#b.xml", "a#b.xml#first"):
        assert run(*KNOWN, str(tmp_path / "a.txt"), "--descriptor", str(tmp_path / name), **SECRET).exit_code == 0


@pytest.mark.parametrize("name", ["all.xml#none", "none.xml"])
def test_a_descriptor_that_is_not_there_is_refused(
    noted: type[NotedEmitter], tmp_path: Path, descriptors: str, name: str
) -> None:
    result = run(*KNOWN, "a.txt", "--descriptor", str(tmp_path / name), **SECRET)
    assert (result.exit_code, noted.notes) == (1, [])


def test_several_files_are_events_of_one_envelope(noted: type[NotedEmitter], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n0\n")
    (tmp_path / "b.jsonl").write_bytes('2\n"é"\n'.encode("latin-1"))
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl")]
    result = run(*KNOWN, *files, "--type", "flights", "--encoding", "latin-1", **SECRET)
    assert result.exit_code == 0, result.output
    assert noted.notes[1:] == [("event", "flights"), {"id": "0"}, ("event", "flights"), 2, "é", "sealed"]


def test_each_of_several_files_may_have_its_descriptor(
    noted: type[NotedEmitter], tmp_path: Path, descriptors: str
) -> None:
    (tmp_path / "a.xml").write_text("<a><b><n>7</n></b></a>")
    (tmp_path / "a.txt").write_text("  8\n")
    (tmp_path / "other.xml").write_text(DESCRIPTORS.replace("<name>other<", "<eventtype>cars</eventtype><name>other<"))
    files = [str(tmp_path / "a.xml"), str(tmp_path / "a.txt")]
    kinds = ["--descriptor", f"{tmp_path / 'other.xml'}#other", "--descriptor", descriptors]
    result = run(*KNOWN, *files, *kinds, **SECRET)
    assert result.exit_code == 0, result.output
    assert noted.notes[1:] == [("event", "cars"), {"n": 7}, ("event", "boats"), {"n": 8}, "sealed"]
    assert run(*KNOWN, files[1], files[1], "--descriptor", descriptors, **SECRET).exit_code == 0, "once for all"
    assert run(*KNOWN, *files, *files, *kinds, **SECRET).exit_code == 2, "too few"
    assert run(*KNOWN, files[0], *kinds, **SECRET).exit_code == 2, "too many"


# -- what a file looks like --------------------------------------------------------------------------------------------


def test_semicolons_are_found_and_told(noted: type[NotedEmitter], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    result = emit(path, "id;name\n1;x\n", *KNOWN, **SECRET)
    assert noted.notes[2] == {"id": "1", "name": "x"}
    assert f"xbus: {path}: its fields are separated by semicolons; --delimiter says otherwise" in result.stderr


@pytest.mark.parametrize("said", ["tab", "\\t", "\t"])
def test_a_delimiter_may_be_said(noted: type[NotedEmitter], tmp_path: Path, said: str) -> None:
    result = emit(tmp_path / "a.csv", "a;b\tc;d\n1\t2\n", *KNOWN, "--delimiter", said, **SECRET)
    assert noted.notes[2] == {"a;b": "1", "c;d": "2"}
    assert "--delimiter" not in result.stderr


@pytest.mark.parametrize("said", ["", ";;", '"', "\n"])
def test_what_is_no_delimiter_is_refused(noted: type[NotedEmitter], tmp_path: Path, said: str) -> None:
    result = emit(tmp_path / "a.csv", "id\n", *KNOWN, "--delimiter", said, **SECRET)
    assert (result.exit_code, noted.notes) == (2, [])
    assert "one character" in result.stderr


@pytest.mark.parametrize(("name", "content"), [("a.csv", ""), ("a.csv", "id,name\n"), ("a.jsonl", "\n\n")])
def test_a_file_without_items_is_refused(noted: type[NotedEmitter], tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    result = emit(path, content, *KNOWN, **SECRET)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"xbus: {path} has no items: see whether it is complete, or send it with --allow-empty [empty_file]"
    )
    assert noted.notes[-1] == "cancelled"
    noted.notes.clear()
    assert emit(path, content, *KNOWN, "--allow-empty", **SECRET).exit_code == 0
    assert noted.notes[-1] == "sealed"


def test_a_file_whose_lines_are_all_bad_is_not_empty(noted: type[NotedEmitter], tmp_path: Path) -> None:
    result = emit(tmp_path / "a.jsonl", "{\n", *KNOWN, "--on-bad-line", "skip", **SECRET)
    assert (result.exit_code, noted.notes[-1]) == (0, "sealed")


def test_the_standard_input_is_a_file(noted: type[NotedEmitter]) -> None:
    result = run("-", *KNOWN, "--type", "flights", "--format", "csv", stdin="id\n1\n2\n", **SECRET)
    assert result.exit_code == 0, result.output
    assert noted.notes[2:] == [{"id": "1"}, {"id": "2"}, "sealed"]


def test_its_lines_are_named(noted: type[NotedEmitter]) -> None:
    result = run("-", *KNOWN, "--type", "flights", "--format", "jsonl", stdin="1\n{\n", **SECRET)
    assert "xbus: standard input:2: this is not JSON" in result.stderr
    assert noted.notes[-1] == "cancelled"


@pytest.mark.parametrize(
    ("words", "secret", "why"),
    [
        (["-", *KNOWN], SECRET, "give --format, or --descriptor"),
        (["-", "-", *KNOWN, "--format", "csv"], SECRET, "can be sent once"),
        (["-", "--format", "csv"], SECRET, "give --login, or set XBUS_LOGIN"),
        (["-", "--format", "csv", *KNOWN], {}, "give --password-file, or set XBUS_PASSWORD"),
    ],
)
def test_what_the_standard_input_lacks_is_told(
    noted: type[NotedEmitter], words: list[str], secret: dict[str, str], why: str
) -> None:
    result = run(*words, "--type", "flights", stdin="id\n1\n", **secret)
    assert (result.exit_code, noted.notes) == (2, [])
    assert why in result.stderr


@pytest.mark.parametrize("option", [("--format", "csv"), ("--delimiter", ";")])
def test_a_descriptor_says_the_form_itself(
    noted: type[NotedEmitter], tmp_path: Path, descriptors: str, option: tuple[str, str]
) -> None:
    result = emit(tmp_path / "a.txt", "x\n", *KNOWN, "--descriptor", descriptors, *option, **SECRET)
    assert result.exit_code == 2
    assert "A descriptor says the form" in result.stderr
