"""What was made of what, on the page of an envelope and for programs."""

from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from tests.integration.admin.chained_bus import make_chain
from tests.integration.monitor.conftest import Monitor
from xbus.rights import Right


@pytest.fixture
def chain(database_url: str) -> dict[str, UUID]:
    return make_chain(database_url)


def test_an_envelope_shows_what_it_was_made_of_and_what_was_made_of_it(
    viewer: TestClient, chain: dict[str, UUID]
) -> None:
    page = viewer.get(f"/envelopes/{chain['priced']}").text
    _, told = page.split('id="chain"')
    for name in ("order", "bill"):
        # In the drawing and in the table.
        assert told.count(f'href="/envelopes/{chain[name]}"') == 2
    assert "counted" not in told
    assert "box wanted" in told
    assert f"xbus trace {chain['priced']}" in told


def test_an_envelope_by_itself_shows_no_chain(viewer: TestClient, chain: dict[str, UUID]) -> None:
    assert 'id="chain"' not in viewer.get(f"/envelopes/{chain['stranger']}").text


def test_a_program_traces_an_envelope(monitor: Monitor, chain: dict[str, UUID]) -> None:
    program = monitor.program("nightly", Right.VIEWER)
    found = program.get(f"/api/envelopes/{chain['priced']}/trace").json()["found"]
    ways = [(each["envelope_id"], each["parent_id"], each["way"]) for each in found]
    order, priced, bill = (str(chain[name]) for name in ("order", "priced", "bill"))
    assert ways == [(order, None, "sent"), (priced, order, "node"), (bill, priced, "node")]
    assert program.get(f"/api/envelopes/{UUID(int=9)}/trace").status_code == 404
