"""A gateway that says nonsense about a call is refused, and nothing is noted."""

from typing import cast

import pytest

from xbus.broker.back.readers import ReaderDesks, Subscriptions
from xbus.broker.back.verbs.subscriptions import SubscriptionVerbs
from xbus.broker.sessions import Sessions
from xbus.errors import Refused


class LetsAllIn:
    """Sessions and desks to which every token is a gateway's."""

    def owner(self, token: str) -> int:
        return 1

    def gateway(self, role_id: int) -> None:
        pass


@pytest.mark.parametrize("seconds", ["soon", True, float("nan"), None])
async def test_a_pause_that_is_no_number_is_refused(seconds: object) -> None:
    everybody = LetsAllIn()
    nothing = cast(Subscriptions, None)
    verbs = SubscriptionVerbs(nothing, cast(ReaderDesks, everybody), cast(Sessions, everybody))
    with pytest.raises(Refused) as refused:
        await verbs.note_callback("token", "subscription/shop", {"code": "slow", "retry_seconds": seconds})  # type: ignore[dict-item]
    assert refused.value.code == "option_invalid"
