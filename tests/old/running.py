"""Old programs beside the test, and what they have told so far."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import Process
from tests.support.waiting import wait_until

PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_SECONDS = 180.0


class Program:
    """An old program that runs.

    Args:
        process: it.
        name: for messages.
    """

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self._told: list[dict[str, Any]] = []
        self._read = 0

    @property
    def told(self) -> list[dict[str, Any]]:
        """What it has told so far: each whole line of its output that is a map."""
        with self.process.output.open("rb") as output:
            output.seek(self._read)
            *lines, rest = output.read().split(b"\n")
            self._read = output.tell() - len(rest)
        self._told += [json.loads(line) for line in lines if line.startswith(b"{")]
        return self._told

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = DEADLINE_SECONDS) -> None:
        """Wait for what it does, while it runs."""

        def is_so() -> object:
            if condition():
                return True
            assert self.process.runs, f"{self.name} ended with {self.process.wait()}:\n{self.process.text}"
            return False

        wait_until(is_so, f"{self.name}: {what}", timeout)

    def ended(self, timeout: float = DEADLINE_SECONDS) -> list[dict[str, Any]]:
        """Wait for its end, which must be a good one; what it told."""
        assert self.process.wait(timeout) == 0, f"{self.name} failed:\n{self.process.text}"
        return self.told


class Recipient(Program):
    """A worker or consumer."""

    def registered(self) -> "Recipient":
        """Wait until the broker has taken it."""
        self.wait_for(lambda: any("registered" in line for line in self.told), "registers")
        assert {"registered": True} in self.told, f"{self.name} was refused"
        return self

    def got(self, verb: str) -> list[list[Any]]:
        """The arguments of all calls of a verb."""
        return [line["args"] for line in self.told if line.get("verb") == verb]

    def verbs(self, envelope_id: str) -> list[str]:
        """The calls for one envelope in order."""
        return [line["verb"] for line in self.told if line.get("args", [])[:1] == [envelope_id]]

    def items(self, envelope_id: str | None = None) -> list[str]:
        """All items, in order of arrival."""
        return [args[3] for args in self.got("send_item") if envelope_id in (None, args[0])]

    @property
    def committed(self) -> list[str]:
        return [args[0] for args in self.got("end_envelope")]

    def wait_for_envelopes(self, envelope_ids: Sequence[str], timeout: float = DEADLINE_SECONDS) -> None:
        """Wait until these envelopes have ended."""
        wanted = set(envelope_ids)
        self.wait_for(lambda: wanted <= set(self.committed), f"gets {len(wanted)} envelopes", timeout)

    def kept(self) -> dict[str, list[str]]:
        """What a consumer has in the end that keeps nothing before an envelope's end, and nothing of a stopped one.

        Raises:
            AssertionError: an envelope came again after its end.
        """
        held: dict[str, list[str]] = {}
        kept: dict[str, list[str]] = {}
        for line in self.told:
            verb, (envelope_id, *rest) = line.get("verb"), line.get("args") or [None]
            if verb == "start_event":
                assert envelope_id not in kept, f"{envelope_id} came to {self.name} again"
                held.setdefault(envelope_id, [])
            elif verb == "send_item":
                held[envelope_id].append(rest[-1])
            elif verb == "stop_envelope":
                held.pop(envelope_id, None)
            elif verb == "end_envelope":
                kept[envelope_id] = held.pop(envelope_id)
        return kept


def arguments(options: Mapping[str, object]) -> list[str]:
    """Options as a command line takes them: ``die_at=3`` is ``--die-at=3``, ``cancel=True`` is ``--cancel``."""
    return [
        f"--{name.replace('_', '-')}" if value is True else f"--{name.replace('_', '-')}={value}"
        for name, value in options.items()
    ]
