"""``xbus trace``: what was made of what."""

import json
from pathlib import Path
from uuid import UUID, uuid4
from xml.etree import ElementTree

import pytest

from tests.integration.admin.chained_bus import make_chain
from tests.integration.admin.conftest import Xbus


@pytest.fixture
def chain(database_url: str) -> dict[str, UUID]:
    return make_chain(database_url)


def traced(xbus: Xbus, *arguments: object) -> dict[str, tuple[str | None, str]]:
    found = xbus("trace", *map(str, arguments), "-o", "json")
    assert found.exit_code == 0, found.output
    links = [json.loads(line) for line in found.stdout.splitlines()]
    return {link["envelope_id"]: (link["parent_id"], link["way"]) for link in links}


def test_up_leads_to_what_was_sent(xbus: Xbus, chain: dict[str, UUID]) -> None:
    assert traced(xbus, chain["bill"], "--up") == {
        str(chain["order"]): (None, "sent"),
        str(chain["priced"]): (str(chain["order"]), "node"),
        str(chain["bill"]): (str(chain["priced"]), "node"),
    }


def test_down_leads_to_all_that_was_made_of_it(xbus: Xbus, chain: dict[str, UUID]) -> None:
    order = str(chain["order"])
    assert traced(xbus, order[:13], "--down") == {
        order: (None, "sent"),
        str(chain["priced"]): (order, "node"),
        str(chain["counted"]): (order, "node"),
        str(chain["repeat"]): (order, "repeat"),
        str(chain["bill"]): (str(chain["priced"]), "node"),
        str(chain["repriced"]): (str(chain["repeat"]), "node"),
    }


def test_a_tree_shows_both_ways(xbus: Xbus, chain: dict[str, UUID]) -> None:
    lines = xbus("trace", str(chain["priced"])).stdout.splitlines()

    assert [line.split()[0] for line in lines[1:]] == [
        str(chain["order"])[:8],
        "*",
        str(chain["bill"])[:8],
    ]
    assert "orders/priced" in lines[2]


def test_a_picture_has_a_box_for_each(xbus: Xbus, chain: dict[str, UUID]) -> None:
    drawn = xbus("trace", str(chain["order"]), "--svg")

    root = ElementTree.fromstring(drawn.stdout)
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(map(str, titles)) == sorted(str(chain[name]) for name in chain if name != "stranger")


def test_an_unknown_envelope_is_refused(xbus: Xbus, chain: dict[str, UUID], tmp_path: Path) -> None:
    refused = xbus("trace", str(uuid4()))

    assert refused.exit_code == 1
    assert "envelope_unknown" in refused.output + refused.stderr
