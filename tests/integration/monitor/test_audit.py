"""The audit in the browser: who did what, found by object, person, action and time."""

import pytest
from fastapi.testclient import TestClient

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.rights import Right


def test_a_change_is_found_from_its_entry(monitor: Monitor, operator: TestClient, parked: ParkedBus) -> None:
    operator.post("/do/pause", data={"kind": "role", "name": "store_1", "reason": "because <i>so</i>"})
    link = operator.get("/recipients/store_1").text.partition('href="/audit?')[2].partition('"')[0]
    page = operator.get(f"/audit?{link}").text
    assert "because &lt;i&gt;so" in page
    assert 'href="/recipients/store_1"' in page
    assert "ada" in page


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ({"who": "ada"}, True),
        ({"who": "eve"}, False),
        ({"action": "paused"}, True),
        ({"action": "resumed"}, False),
        ({"object": "store_1"}, True),
        ({"object": "counter"}, False),
        ({"since": "1h"}, True),
        ({"since": "2999-01-01"}, False),
        ({"before": ""}, True),
    ],
)
def test_filters(operator: TestClient, parked: ParkedBus, query: dict[str, str], is_found: bool) -> None:
    operator.post("/do/pause", data={"kind": "role", "name": "store_1", "reason": "tired of it"})
    page = operator.get("/audit", params=query)
    assert page.status_code == 200
    assert ("tired of it" in page.text) == is_found


def test_filters_that_make_no_sense_are_refused(viewer: TestClient) -> None:
    assert viewer.get("/audit", params={"since": "yesterday-ish"}).status_code == 422
    assert viewer.get("/audit", params={"before": "x"}).status_code == 422


def test_texts_of_strangers_are_only_texts(viewer: TestClient, parked: ParkedBus) -> None:
    hostile = "<script>alert(1)</script>\u202e" + "x" * 1000
    with writing(parked.url) as connection:
        acts = [act_here(SystemClock().now(), "changed", hostile, who=hostile, before=hostile, reason=hostile)]
        note_acts(connection, acts)
    page = viewer.get("/audit")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text


def test_everybody_who_is_a_person_may_look(monitor: Monitor, parked: ParkedBus) -> None:
    monitor.add("cleo", Right.CLEARER)
    assert monitor.enter("cleo").get("/audit").status_code == 200
    assert monitor.visit().get("/audit", follow_redirects=False).status_code == 303
