"""The items are those of the original, byte for byte.

``recorded/recorded.json`` holds what xbus.file_emitter 0.1.2 sends for the files beside it, packed there by msgpack 1.1
after pyjon.descriptors 1.7.7 on Python 3.8 had read them: run once, with ``open(file, newline="")`` for text.
"""

import json
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from xbus.admin.files.descriptor_file import read_descriptor
from xbus.admin.files.item_file import ItemFile
from xbus.rpc.items import item_bytes

FOLDER = Path(__file__).parent / "recorded"
RECORDED: list[dict[str, Any]] = json.loads((FOLDER / "recorded.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["file"])
def test_the_items_are_those_of_the_original(recorded: dict[str, Any]) -> None:
    descriptor = read_descriptor(FOLDER / recorded["descriptor"], recorded["name"])

    with ItemFile(FOLDER / recorded["file"], descriptor, recorded["encoding"]) as file:
        entries = [*file.entries(lambda _: None)]

    assert [entry.fault for entry in entries] == [""] * len(recorded["items"])
    assert descriptor.event_type == recorded["event_type"]
    assert [entry.item for entry in entries] == recorded["items"]
    packed = [msgpack.packb(item, use_bin_type=True) for item in recorded["items"]]
    assert [item_bytes(entry.item) for entry in entries] == packed
