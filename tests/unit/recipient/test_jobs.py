"""A bulk worker's jobs: leases are kept, ends told until they are heard, and what nobody wants is broken off."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.waiting import DEADLINE_SECONDS
from xbus.errors import ConnectionLost, Failed, JournalUnavailable, Refused, XbusError
from xbus.recipient import BulkWorker, Handover, Made, Refusal
from xbus.recipient.bulk import BulkJobs, JobWaits

LEASE = 0.03
AT_ONCE = JobWaits(first_delay=0)
MADE = Made(2, 20, b"hash")


class Told(BulkWorker):
    """Makes what the test tells it to make, or raises it."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Made] = asyncio.get_running_loop().create_future()
        self.cancelled = False

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        progress(0.25)
        try:
            return await self.outcome
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class Broker:
    """Answers what the test says, by verb; what is no answer is raised. The last answer stands."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answers: dict[str, list[Any]] = {
            "xbus.renew_output": [{"wanted": True}],
            "xbus.output_ready": [{"accepted": True}],
            "xbus.output_failed": [{"accepted": True}],
        }

    async def call(self, verb: str, attempt_id: str, told: Any) -> Any:
        self.calls.append((verb, told))
        answers = self.answers[verb]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def told(self, verb: str) -> list[Any]:
        return [told for called, told in self.calls if called == verb]


class Case:
    """A bulk worker with one job."""

    def __init__(self, lease: float = 1_000, waits: JobWaits = AT_ONCE) -> None:
        self.worker, self.broker = Told(), Broker()
        self.jobs = BulkJobs(self.worker, self.broker.call, waits)
        ids = [uuid.uuid4() for _ in range(4)]
        self.handover = Handover(ids[0], ids[1], "numbers", ids[2], "w", ids[3], False, 10)
        self.jobs.take(self.handover, lease)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                await asyncio.sleep(0)

    async def over(self) -> None:
        await self.until(lambda: not self.jobs.attempts)


async def test_what_is_made_is_told() -> None:
    case = Case()
    case.jobs.take(case.handover, 1_000)
    await case.until(lambda: case.jobs.work()[0]["done"] == 25)
    assert case.jobs.attempts == [str(case.handover.attempt_id)]
    case.worker.outcome.set_result(MADE)
    await case.over()
    assert case.broker.calls == [("xbus.output_ready", {"items": 2, "bytes": 20, "hash": b"hash"})]
    assert case.jobs.work() == []


async def test_it_is_told_until_it_is_heard() -> None:
    case = Case()
    ignore: list[Any] = [ConnectionLost("away"), Refused("who?", code="session_unknown"), Failed("not now")]
    case.broker.answers["xbus.output_ready"] = [*ignore, {"accepted": True}]
    case.worker.outcome.set_result(MADE)
    await case.over()
    assert len(case.broker.calls) == 4


async def test_what_the_broker_refuses_is_not_told_for_ever() -> None:
    case = Case()
    case.broker.answers["xbus.output_ready"] = [Refused("no such form", code="bad_report")]
    case.worker.outcome.set_result(MADE)
    await case.over()
    assert len(case.broker.calls) == 1


class Damaged(Refusal):
    default_code = "segment_damaged"


@pytest.mark.parametrize(
    ("error", "kind", "code", "errors"),
    [
        (Refusal("too old", [3, 7]), "permanent", "refused", [([3, 7], "too old")]),
        (Damaged("not as sent"), "permanent", "segment_damaged", [([], "not as sent")]),
        (Failed("away", code="cluster_away"), "transient", "cluster_away", []),
        (JournalUnavailable("away"), "transient", "journal_unavailable", []),
        (XbusError("a form", code="bad_schema"), "permanent", "recipient_failed", []),
        (ZeroDivisionError("1/0"), "permanent", "recipient_failed", []),
    ],
    ids=["refusal", "refusal by its code", "failed", "journal", "other", "fault"],
)
async def test_what_is_raised_has_a_class(error: Exception, kind: str, code: str, errors: list[Any]) -> None:
    case = Case()
    case.worker.outcome.set_exception(error)
    await case.over()
    (told,) = case.broker.told("xbus.output_failed")
    assert (told["class"], told["code"], told["errors"]) == (kind, code, errors)


@pytest.mark.parametrize("made", [None, (2, 20, b"hash"), Made(2, 20, "hash")])  # type: ignore[arg-type]
async def test_what_is_no_output_is_a_fault_of_the_program(made: Any) -> None:
    case = Case()
    case.worker.outcome.set_result(made)
    await case.until(lambda: case.broker.told("xbus.output_failed"))
    (told,) = case.broker.told("xbus.output_failed")
    assert (told["class"], told["code"]) == ("permanent", "recipient_failed")
    assert told["message"].startswith("TypeError: make_output returned")
    assert not case.broker.told("xbus.output_ready")


async def test_what_can_not_be_told_is_a_fault_of_the_program() -> None:
    """The broker would wait for the lease, again and again."""
    case = Case()
    case.broker.answers["xbus.output_failed"] = [TypeError("can not serialize 'object' object"), {"accepted": True}]
    case.worker.outcome.set_exception(Refusal("no", [object()]))  # type: ignore[list-item]
    await case.until(lambda: not case.jobs.attempts)
    assert case.broker.told("xbus.output_failed")[-1]["message"].startswith("TypeError: can not serialize")


async def test_a_refusal_of_very_much_is_cut() -> None:
    case = Case()
    refusal = Refusal("x" * 5_000, range(5_000))
    case.worker.outcome.set_exception(refusal)
    await case.over()
    (told,) = case.broker.told("xbus.output_failed")
    assert [(len(indices), len(said)) for indices, said in told["errors"]] == [(1_000, 1_000)]


async def test_a_lease_is_kept_while_the_broker_is_away() -> None:
    case = Case(LEASE)
    away = [ConnectionLost("away")] * 3
    case.broker.answers["xbus.renew_output"] = [{"wanted": True}, *away, {"wanted": True}]
    await case.until(lambda: len(case.broker.told("xbus.renew_output")) > 5)
    assert set(case.broker.told("xbus.renew_output")) == {0.25}
    case.worker.outcome.set_result(MADE)
    await case.over()


async def test_what_is_not_wanted_is_broken_off() -> None:
    case = Case(LEASE)
    case.broker.answers["xbus.renew_output"] = [{"wanted": False}]
    await case.over()
    assert case.worker.cancelled
    assert case.broker.told("xbus.output_failed") == []


async def test_a_stopped_envelope_is_told_of() -> None:
    case = Case()
    await asyncio.sleep(0)
    case.jobs.stop("another")
    case.jobs.stop(str(case.handover.envelope_id))
    await case.over()
    assert case.worker.cancelled
    assert [told["code"] for told in case.broker.told("xbus.output_failed")] == ["envelope_stopped"]


async def test_a_worker_that_stops_gives_back_what_it_has_not_made() -> None:
    case = Case()
    await asyncio.sleep(0)
    await case.jobs.close()
    assert case.worker.cancelled
    assert [told["code"] for told in case.broker.told("xbus.output_failed")] == ["recipient_stopping"]


@pytest.mark.parametrize(
    "wrong", [None, {}, {"attempt_id": "1", "node": "w", "event_id": "2", "input": None, "items": 1}]
)
def test_what_is_no_hand_over_is_refused(wrong: Any) -> None:
    with pytest.raises(Refused, match="not a map"):
        Handover.of_wire(str(uuid.uuid4()), str(uuid.uuid4()), "numbers", wrong)


async def test_who_does_not_heed_being_cancelled_does_not_keep_the_recipient_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(waits=JobWaits(break_off=0.01))
    let_go = asyncio.Event()

    async def deaf(handover: Handover, progress: Callable[[float], None]) -> Made:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return MADE

    monkeypatch.setattr(case.worker, "make_output", deaf)
    await asyncio.sleep(0)

    async with asyncio.timeout(DEADLINE_SECONDS):
        await case.jobs.close()

    (told,) = case.broker.told("xbus.output_failed")
    assert told["code"] == "recipient_stopping"
    let_go.set()


def test_a_bulk_worker_that_makes_no_output_does_not_begin() -> None:
    """It would refuse each large event."""
    with pytest.raises(TypeError, match="make_output"):
        type("Unfinished", (BulkWorker,), {})()
