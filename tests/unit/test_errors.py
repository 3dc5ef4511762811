"""What an error says of itself where nobody catches it."""

import pickle
import traceback

from xbus.errors import Failed, Refused


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))


def test_a_traceback_ends_with_the_code_to_look_up() -> None:
    error = Refused("there is no such type", "see xbus export", code="type_unknown")

    assert told(error) == "xbus.errors.Refused: there is no such type: see xbus export\n[type_unknown]\n"
    assert str(error) == "there is no such type: see xbus export"


def test_so_it_does_when_it_came_from_another_process() -> None:
    error = Failed("the disk is full", code="disk_full")

    assert (
        told(pickle.loads(pickle.dumps(error))) == told(error) == "xbus.errors.Failed: the disk is full\n[disk_full]\n"
    )
