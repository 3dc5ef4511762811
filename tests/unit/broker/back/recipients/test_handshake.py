"""What a recipient says of itself: read strictly, and only what the journal can keep."""

import hmac
from typing import Any

import pytest

from tests.support.recipients import NEW, OLD, Script, ScriptedClient, metadata
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.recipients.handshake import MOST_BYTES, MOST_LEVELS, Handshake, introduce
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.errors import CallError, Failed, Refused
from xbus.ids import token_hash


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


TOKEN = token_hash("a token")


async def introduction(**answers: Any) -> Handshake:
    return await introduce(ScriptedClient("store", Script(), False, answers), TOKEN, 1)


async def test_who_demands_a_proof_gets_it() -> None:
    script, challenge = Script(), b"c" * 32
    answers: dict[str, Any] = {"xbus.challenge": challenge, "xbus.prove": True, "get_metadata": metadata(NEW)}
    await introduce(ScriptedClient("store", script, False, answers), TOKEN, 1)
    assert [call.verb for call in script.calls] == ["xbus.prove", "get_metadata", "has_clearing", "has_immediate_reply"]
    assert script.calls[0].args == (hmac.digest(TOKEN, challenge, "sha256"),)


@pytest.mark.parametrize("challenge", ["text", None, 4711])
async def test_a_challenge_that_is_none_is_refused(challenge: Any) -> None:
    with pytest.raises(Refused) as refused:
        await introduction(**{"xbus.challenge": challenge})
    assert refused.value.code == "recipient_nonsense"


async def test_a_proof_that_is_not_accepted_ends_the_introduction() -> None:
    no = Refused("this is another broker", "log in anew", code="not_proven")
    with pytest.raises(Refused) as refused:
        await introduction(**{"xbus.challenge": b"c", "xbus.prove": no})
    assert refused.value.code == "recipient_failed"
    assert refused.value.next_step == "log in anew", "no method is missing"


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (Refused("there is no method", code="unknown_method"), "implement get_metadata, has_clearing"),
        (Failed("TypeError: 1"), "see the recipient's log"),
    ],
)
async def test_a_question_that_fails_tells_what_helps(error: CallError, step: str) -> None:
    with pytest.raises(Refused) as refused:
        await introduction(has_clearing=error)
    assert refused.value.next_step.startswith(step)


async def test_an_old_recipient_without_features() -> None:
    said = await introduction(get_metadata=metadata(OLD))
    assert said == Handshake(
        Abilities(), None, metadata(OLD), {"clearing": [False, None], "immediate_reply": [False, None]}
    )


async def test_what_is_announced_is_kept_and_acted_upon() -> None:
    types = ["question", "wish"]
    said = await introduction(
        get_metadata=metadata(NEW), has_clearing=[True, "postgresql://here"], has_immediate_reply=[True, types]
    )
    assert said.abilities == Abilities(batches=True, envelopes=1, immediate_reply=frozenset(types))
    assert said.features == {"clearing": [True, "postgresql://here"], "immediate_reply": [True, types]}


@pytest.mark.parametrize(
    ("details", "kept"), [([], None), ([[]], []), ([["question"]], ["question"]), ([b"\xff"], None), ([None, 1], None)]
)
async def test_details_of_a_feature_that_is_not_there_mean_nothing(details: list[Any], kept: Any) -> None:
    said = await introduction(has_immediate_reply=[False, *details], has_clearing=[False, *details])
    assert said.features == {"clearing": [False, kept], "immediate_reply": [False, kept]}
    assert said.abilities.immediate_reply == frozenset()


@pytest.mark.parametrize(
    "answer", [None, True, [], [True], [1, ["question"]], [True, "question"], [True, ["question", 1]], [True, None]]
)
async def test_immediate_replies_of_another_shape_are_refused(answer: Any) -> None:
    with pytest.raises(Refused) as caught:
        await introduction(has_immediate_reply=answer)
    assert caught.value.code == "recipient_nonsense"


@pytest.mark.parametrize("answer", [None, True, [], [True], [True, ""], [True, None], [True, b"url"], [0, "url"]])
async def test_clearing_of_another_shape_is_refused(answer: Any) -> None:
    with pytest.raises(Refused) as caught:
        await introduction(has_clearing=answer)
    assert caught.value.code == "recipient_nonsense"


def of_kind(kind: Any) -> dict[str, Any]:
    return {**metadata(NEW), "xbus": {"batches": 1, "envelopes": 1, "kind": kind}}


def a_role(kind: str) -> RoleEntry:
    return RoleEntry(1, "store_1", "store", worker=kind == "worker")


@pytest.mark.parametrize("kind", ["worker", "consumer"])
async def test_a_recipient_serves_a_role_of_its_kind(kind: str) -> None:
    said = await introduction(get_metadata=of_kind(kind))
    assert said.kind == kind
    said.check_kind(a_role(kind))


@pytest.mark.parametrize(("kind", "other"), [("worker", "consumer"), ("consumer", "worker")])
async def test_a_recipient_of_the_other_kind_is_refused(kind: str, other: str) -> None:
    said = await introduction(get_metadata=of_kind(kind))
    with pytest.raises(Refused) as caught:
        said.check_kind(a_role(other))
    assert caught.value.code == "wrong_kind"
    assert caught.value.cause == f'the program is a {kind}, and the role "store_1" is of a {other} service, "store"'
    assert caught.value.next_step == f"give the program the login of a {kind} role, or run a {other} with this login"


@pytest.mark.parametrize("announced", [OLD, NEW])
@pytest.mark.parametrize("kind", ["worker", "consumer"])
async def test_a_recipient_that_does_not_tell_its_kind_is_taken_at_its_word(announced: Abilities, kind: str) -> None:
    said = await introduction(get_metadata=metadata(announced))
    assert said.kind is None
    said.check_kind(a_role(kind))


@pytest.mark.parametrize("kind", ["Worker", "reader", "", None, 1, ["worker"]])
async def test_a_kind_that_does_not_exist_is_refused(kind: Any) -> None:
    with pytest.raises(Refused) as caught:
        await introduction(get_metadata=of_kind(kind))
    assert caught.value.code == "recipient_nonsense"


@pytest.mark.parametrize(
    "extra", [b"bytes", [b"bytes"], {1: "a number as key"}, {None: 1}, float("nan"), float("inf"), nested(MOST_LEVELS)]
)
async def test_metadata_that_can_not_be_kept_are_refused(extra: Any) -> None:
    with pytest.raises(Refused) as caught:
        await introduction(get_metadata={**metadata(OLD), "extra": extra})
    assert caught.value.code == "recipient_nonsense"


async def test_metadata_are_kept_up_to_a_size() -> None:
    said = {**metadata(OLD), "extra": "x" * (MOST_BYTES // 2), "deep": nested(MOST_LEVELS - 1)}
    assert (await introduction(get_metadata=said)).metadata == said
    with pytest.raises(Refused):
        await introduction(get_metadata={**said, "more": "x" * (MOST_BYTES // 2)})
    with pytest.raises(Refused):
        await introduction(has_immediate_reply=[True, ["question" * MOST_BYTES]])
