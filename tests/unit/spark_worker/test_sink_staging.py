"""Rows on their way to an envelope."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from spark_worker.sink.staging import Staged, Staging
from xbus.errors import ConfigurationError, Failed, Refused

ITEMS = [b"%d" % number for number in range(2_500)]


def batch(items: Sequence[bytes | str | None], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": pa.array(items, kind or pa.binary()), "other": [1] * len(items)})


def staged_items(staging: Staging, staged: Staged) -> list[bytes]:
    return [item for found in staging.items(staged) for item in found]


@pytest.mark.parametrize("inline", [1, 5_000, 1_000_000])
def test_what_is_staged_comes_back(tmp_path: Path, inline: int) -> None:
    staging = Staging(str(tmp_path))
    staged = staging.stage([batch(ITEMS[:1_700]), batch(ITEMS[1_700:])], ["query", "7"], inline, 3, "query")
    assert (staged.partition, staged.items, staged.query) == (3, 2_500, "query")
    assert bool(staged.path) == (inline < 1_000_000)
    assert staged_items(staging, staged) == ITEMS


def test_a_url_names_a_folder_too(tmp_path: Path) -> None:
    staging = Staging(f"file://{tmp_path}/staging")
    staged = staging.stage([batch(ITEMS)], ["a"], 1, 0, "")
    assert staged.path.startswith(f"{tmp_path}/staging/a/0-")
    assert staged_items(staging, staged) == ITEMS


def test_texts_are_staged_as_utf_8(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    staged = staging.stage([batch(["é", "b"], pa.string())], [], 1_000, 0, "")
    assert staged_items(staging, staged) == ["é".encode(), b"b"]


def test_a_row_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="a row has no data"):
        Staging(str(tmp_path)).stage([batch([b"a", None])], [], 1_000, 0, "")


@pytest.mark.parametrize("place", ["s9://bucket/x", "file://"])
def test_a_url_that_arrow_does_not_know_is_told(place: str) -> None:
    with pytest.raises(ConfigurationError, match="option stagingDir: ") as raised:
        Staging(place)
    assert raised.value.code == "bad_option"


@pytest.mark.parametrize("place", ["/proc/nothing", "{file}/below"])
def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.touch()
    staging = Staging(place.format(file=file))
    with pytest.raises(Failed, match=r"can't be written.*: give option stagingDir a folder") as raised:
        staging.stage([batch(ITEMS)], ["a"], 1, 0, "")
    assert raised.value.code == "staging_failed"
    staging.remove("a")


def test_no_rows_need_no_file(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path / "never made"))
    staged = staging.stage([], ["a"], 1, 0, "")
    assert staged == Staged(0, 0)
    assert staged_items(staging, staged) == []
    assert not (tmp_path / "never made").exists()


@pytest.mark.parametrize("end", [None, 3, 2_000])
def test_a_lost_or_short_file_is_told(tmp_path: Path, end: int | None) -> None:
    staging = Staging(str(tmp_path))
    staged = staging.stage([batch(ITEMS)], ["a"], 1, 0, "")
    path = Path(staged.path)
    if end is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(Failed, match="stagingDir") as raised:
        staged_items(staging, staged)
    assert raised.value.code == "staging_lost"


def test_folders_are_listed_and_removed(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    staged = [staging.stage([batch(ITEMS)], ["query", str(number)], 1, 0, "query") for number in (1, 2)]
    assert sorted(staging.names("query")) == ["1", "2"]
    assert staging.names("other") == []
    staging.remove("query", "1")
    staging.remove("query", "1")
    assert staging.names("query") == ["2"]
    staging.remove_file(staged[1])
    staging.remove_file(staged[1])
    assert not Path(staged[1].path).exists()


def test_only_an_empty_folder_is_removed_as_such(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    staging.stage([batch(ITEMS)], ["query", "1"], 1, 0, "query")

    staging.remove_empty("query")
    assert staging.names("query") == ["1"]
    staging.remove("query", "1")
    staging.remove_empty("query")
    staging.remove_empty("query")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Its owner could replace what a task has staged."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    staging = Staging(str(theirs))
    with pytest.raises(Refused) as raised:
        staging.stage([batch([b"a"])], [], 0, 0, "")
    assert raised.value.code == "staging_not_ours"
