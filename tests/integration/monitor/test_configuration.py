"""The configuration in the browser: pages of entries, forms, the plan, and edits of two people at once."""

import html

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from httpx2 import Response

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from tests.support.forms import form_in
from xbus import model
from xbus.admin.bus_file import write
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.configuration import BusSpec, Section, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.rights import Right

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"

EDIT, PLAN, APPLY, WHOLE = (f"/configuration/{each}" for each in ("edit", "plan", "apply", "file"))


@pytest.fixture
def manager(monitor: Monitor, parked: ParkedBus) -> TestClient:
    monitor.add("root", Right.MANAGER)
    return monitor.enter("root")


def in_use(url: str) -> BusSpec:
    with reading(url) as connection:
        return read_stored(connection).in_use


def opened(browser: TestClient, section: str, name: str = "") -> dict[str, list[str]]:
    """The form of an entry, as it is filled at first."""
    page = browser.get(EDIT, params={"section": section, "name": name})
    assert page.status_code == 200, page.text
    return form_in(page.text, EDIT)


def planned(browser: TestClient, form: dict[str, list[str]], **changed: str | list[str]) -> Response:
    """Send a form with some values changed."""
    values = {name.replace("__", "."): [each] if isinstance(each, str) else each for name, each in changed.items()}
    return browser.post(EDIT, data={**form, **values})


def applied(browser: TestClient, plan: Response, **decided: str) -> Response:
    assert plan.status_code == 200, plan.text
    return browser.post(APPLY, data={**form_in(plan.text, APPLY), **decided})


def test_every_entry_has_a_page(viewer: TestClient, parked: ParkedBus) -> None:
    overview = viewer.get("/configuration").text
    for path in (*("/types/clients", "/services/store", "/recipients/store_1", "/profiles/shop", "/emitters/shop_1"),):
        assert f'href="{path}"' in overview
        page = viewer.get(path)
        assert page.status_code == 200
        assert "/configuration/edit" not in page.text
    assert "<svg" in viewer.get("/types/clients").text
    assert viewer.get(WHOLE).status_code == 200


@pytest.mark.parametrize("place", ["types", "services", "profiles", "emitters"])
@pytest.mark.parametrize("name", ["nobody", "%2e%2e%2f", "x" * 1000, "%E2%80%AE"])
def test_an_unknown_entry_has_no_page(viewer: TestClient, parked: ParkedBus, place: str, name: str) -> None:
    assert viewer.get(f"/{place}/{name}").status_code == 404


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("event_type", "clients"),
        ("service", "store"),
        ("role", "store_1"),
        ("emitter_profile", "shop"),
        ("emitter", "shop_1"),
    ],
)
def test_a_form_that_is_sent_as_it_is_changes_nothing(manager: TestClient, section: str, name: str) -> None:
    plan = planned(manager, opened(manager, section, name))
    assert plan.status_code == 200
    assert "Nothing would change" in plan.text
    assert APPLY not in plan.text


def test_a_field_is_changed_after_its_plan(manager: TestClient, parked: ParkedBus) -> None:
    plan = planned(manager, opened(manager, "service", "store"), attempts="7", jitter="0.5")
    assert "change service &#34;store&#34;: attempts, jitter" in plan.text
    assert "+ attempts = 7" in plan.text
    assert in_use(parked.url).services["store"].attempts is None
    assert applied(manager, plan).status_code == 200
    assert in_use(parked.url).services["store"].attempts == 7
    with reading(parked.url) as connection:
        act = list_acts(connection, AuditFilters(action="changed"), 1)[0].act
    assert (act.who, act.object) == ("root", 'service "store"')


def test_problems_stand_at_their_fields(manager: TestClient) -> None:
    form = opened(manager, "service", "store")
    page = planned(manager, form, attempts="often", name=" store")
    assert page.status_code == 422
    for field, sentence in (("attempts", "a whole number"), ("name", "without blanks around it")):
        assert sentence in page.text.partition(f'id="problem-{field}"')[2].partition("</span>")[0]
    live = manager.post("/configuration/check", data={**form, "attempts": "often"}, headers={"hx-request": "true"})
    assert "a whole number" in live.text.partition('id="problem-attempts"')[2].partition("</span>")[0]


def test_a_new_entry_says_what_is_missing(manager: TestClient) -> None:
    page = planned(manager, opened(manager, "role"))
    assert page.status_code == 422
    assert "login is missing" in page.text.partition('id="problem-login"')[2].partition("</span>")[0]
    assert "service is missing" in page.text.partition('id="problem-service"')[2].partition("</span>")[0]


def test_a_new_role_is_told_to_need_a_password(manager: TestClient, parked: ParkedBus) -> None:
    done = applied(manager, planned(manager, opened(manager, "role"), login="store_2", service="store"))
    assert "store_2 can&#39;t log in yet" in done.text
    assert in_use(parked.url).roles["store_2"].service == "store"


def test_a_new_name_renames(manager: TestClient, parked: ParkedBus) -> None:
    plan = planned(manager, opened(manager, "event_type", "notes"), name="remarks")
    assert "rename event_type &#34;notes&#34; to &#34;remarks&#34;" in plan.text
    assert applied(manager, plan).status_code == 200
    assert set(in_use(parked.url).event_types) == {"clients", "remarks"}
    assert in_use(parked.url).profiles["shop"].event_types == {"clients", "remarks"}


def test_a_graph_is_made_node_by_node(manager: TestClient, parked: ParkedBus) -> None:
    assert (
        applied(manager, planned(manager, opened(manager, "service"), name="enrich", kind="worker")).status_code == 200
    )
    form = form_in(planned(manager, opened(manager, "event_type"), name="orders", do="add").text, EDIT)
    form = form_in(planned(manager, form, do="add").text, EDIT)
    form |= {
        "node.0.name": ["first"],
        "node.0.service": ["enrich"],
        "node.1.name": ["last"],
        "node.1.service": ["store"],
    }
    wrong = planned(manager, form)
    assert wrong.status_code == 422
    assert "leads to no node" in wrong.text
    live = manager.post("/configuration/check", data={**form, "node.1.from": ["0"]}, headers={"hx-request": "true"})
    assert "first leads to last" in live.text
    assert applied(manager, planned(manager, form, node__1__from="0")).status_code == 200
    nodes = in_use(parked.url).event_types["orders"].nodes
    assert nodes["first"].to == ("last",)
    again = opened(manager, "event_type", "orders")
    shorter = form_in(planned(manager, again, do="remove:0").text, EDIT)
    assert shorter["row"] == ["1"]


def test_a_circle_is_drawn_and_refused(manager: TestClient) -> None:
    form = opened(manager, "event_type", "clients")
    page = planned(manager, form, node__0__from="1", node__1__from="0")
    assert page.status_code == 422
    assert "<svg" in page.text


def test_removal_asks_what_becomes_of_the_owed(manager: TestClient, parked: ParkedBus) -> None:
    plan = manager.get("/configuration/remove", params={"section": "role", "name": "store_1"})
    assert "has not got" in plan.text
    undecided = applied(manager, plan)
    assert undecided.status_code == 409
    assert "keep, drop or reroute" in undecided.text
    nobody = applied(manager, plan, owed="reroute")
    assert nobody.status_code == 409
    assert "store_1" in in_use(parked.url).roles
    assert applied(manager, plan, owed="drop").status_code == 200
    assert "store_1" not in in_use(parked.url).roles


def test_an_entry_in_use_can_not_be_removed(manager: TestClient, parked: ParkedBus) -> None:
    plan = manager.get("/configuration/remove", params={"section": "service", "name": "store"})
    assert "there is no service" in plan.text
    assert APPLY not in plan.text


def test_two_edits_of_one_entry_do_not_overwrite_each_other(manager: TestClient, parked: ParkedBus) -> None:
    mine = opened(manager, "service", "store")
    ready = planned(manager, mine, attempts="3")
    assert applied(manager, planned(manager, mine, attempts="9")).status_code == 200
    late = applied(manager, ready)
    assert late.status_code == 409
    assert "+ attempts = 9" in late.text
    stale = planned(manager, mine, attempts="3")
    assert "Somebody else has changed this" in stale.text
    assert APPLY not in stale.text
    assert in_use(parked.url).services["store"].attempts == 9
    mended = manager.post(PLAN, data=form_in(stale.text, PLAN))
    assert "- attempts = 9" in mended.text
    assert applied(manager, mended).status_code == 200
    assert in_use(parked.url).services["store"].attempts == 3


def test_a_plan_is_of_a_version(manager: TestClient, parked: ParkedBus) -> None:
    ready = planned(manager, opened(manager, "service", "store"), attempts="3")
    assert applied(manager, planned(manager, opened(manager, "service", "counter"), attempts="9")).status_code == 200
    late = applied(manager, ready)
    assert late.status_code == 409
    assert "changed since you looked" in late.text
    assert in_use(parked.url).services["store"].attempts is None
    assert applied(manager, Response(200, text=late.text)).status_code == 200
    assert in_use(parked.url).services["store"].attempts == 3


def test_a_removal_keeps_what_others_added_meanwhile(manager: TestClient, parked: ParkedBus) -> None:
    ready = manager.get("/configuration/remove", params={"section": "emitter", "name": "shop_1"})
    assert (
        applied(manager, planned(manager, opened(manager, "emitter"), login="shop_2", profile="shop")).status_code
        == 200
    )
    late = applied(manager, ready)
    assert late.status_code == 409
    assert applied(manager, Response(200, text=late.text)).status_code == 200
    assert set(in_use(parked.url).emitters) == {"shop_2"}


def test_the_whole_file_is_edited(manager: TestClient, parked: ParkedBus) -> None:
    form = form_in(manager.get(WHOLE).text, PLAN)
    text = form["file"][0].replace('name = "notes"', 'name = "notes"\r\nmax_isolated = 5')
    live = manager.post(f"{WHOLE}/check", data={**form, "file": text}, headers={"hx-request": "true"})
    assert "change event_type &#34;notes&#34;: max_isolated" in live.text
    wrong = manager.post(PLAN, data={**form, "file": text + "\r\nnonsense"})
    assert wrong.status_code == 422
    assert "this is not TOML" in wrong.text
    assert html.escape("nonsense") in wrong.text
    assert applied(manager, manager.post(PLAN, data={**form, "file": text})).status_code == 200
    assert in_use(parked.url).event_types["notes"].max_isolated == 5
    stale = manager.post(PLAN, data={**form, "file": text})
    assert "Somebody else has changed this" in stale.text


def test_the_whole_file_prunes(manager: TestClient, parked: ParkedBus) -> None:
    form = form_in(manager.get(WHOLE).text, PLAN)
    kept = write(in_use(parked.url).without(Section.EMITTER, "shop_1"))
    plan = manager.post(PLAN, data={**form, "file": kept})
    assert "remove emitter &#34;shop_1&#34;" in plan.text
    assert applied(manager, plan).status_code == 200
    assert not in_use(parked.url).emitters


def test_a_program_applies_a_file(monitor: Monitor, parked: ParkedBus) -> None:
    text = '[[service]]\nname = "audit"\nkind = "consumer"\n'
    program = monitor.program("deploy", Right.MANAGER)
    done = program.post("/api/configuration/apply", json={"file": text})
    assert done.status_code == 200, done.text
    assert done.json()["command"] == "xbus apply FILE"
    assert "audit" in in_use(parked.url).services
    wrong = program.post("/api/configuration/apply", json={"file": "[[service]]\n"}).json()
    assert wrong["code"] == "bad_bus_file"
    assert "line 1: name is missing" in wrong["detail"]
    stale = program.post("/api/configuration/apply", json={"file": text, "version": 0})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_plan")


BOT = """\
[[service]]
name = "runners"
kind = "runner"

[[bot]]
name = "report"
%s
"""


def test_only_a_programmer_says_what_a_bot_runs(monitor: Monitor, parked: ParkedBus) -> None:
    manager = monitor.program("ada", Right.MANAGER)
    programmer = monitor.program("grace", Right.MANAGER, Right.PROGRAMMER)

    def apply(person: TestClient, text: str) -> int:
        return person.post("/api/configuration/apply", json={"file": text}).status_code

    call = BOT % 'call = "reports:nightly"'
    assert apply(manager, call) == 403
    assert "report" not in in_use(parked.url).bots
    assert apply(programmer, call) == 200
    assert apply(manager, call + 'cron = "0 3 * * *"') == 200
    for other in ('call = "os:system"', 'command = ["sh"]'):
        assert apply(manager, BOT % other) == 403
    assert in_use(parked.url).bots["report"].call == "reports:nightly"
    assert apply(manager, call.replace('"report"', '"nightly"\nrenamed_from = "report"')) == 200
    answer = manager.post("/api/configuration/apply", json={"file": BOT.partition("[[bot]]")[0], "prune": True})
    assert answer.json()["code"] != "forbidden", "a manager may remove a bot"


def test_only_managers_edit(operator: TestClient, parked: ParkedBus) -> None:
    for method, path in (
        ("GET", f"{EDIT}?section=service&name=store"),
        ("GET", "/configuration/remove?section=service&name=store"),
        ("POST", EDIT),
        ("POST", "/configuration/check"),
        ("POST", PLAN),
        ("POST", APPLY),
        ("POST", WHOLE),
        ("POST", f"{WHOLE}/check"),
    ):
        data = {"file": "", "section": "service", "stored": "store"} if method == "POST" else None
        assert operator.request(method, path, data=data).status_code == 403, path
    assert "<textarea" not in operator.get(WHOLE).text


def test_hostile_names_are_only_names(manager: TestClient, parked: ParkedBus) -> None:
    done = applied(manager, planned(manager, opened(manager, "event_type"), name=HOSTILE))
    assert done.status_code == 200
    assert HOSTILE in in_use(parked.url).event_types
    path = manager.get("/configuration").text.partition('href="/types/%3Cscript')[2].partition('"')[0]
    for page in (
        *(manager.get("/configuration"), manager.get(f"/types/%3Cscript{path}"), manager.get(WHOLE)),
        *(manager.get("/audit"), manager.get(EDIT, params={"section": "event_type", "name": HOSTILE})),
        *(manager.get("/configuration/remove", params={"section": "event_type", "name": HOSTILE}),),
        *(manager.get(EDIT, params={"section": "emitter_profile", "name": "shop"}),),
    ):
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "49" not in page.text.partition("<main")[2].partition("alert")[2][:60]
    plan = planned(manager, opened(manager, "event_type", HOSTILE), name="harmless")
    assert applied(manager, plan).status_code == 200
    assert "harmless" in in_use(parked.url).event_types


def test_names_that_only_sql_can_give_break_no_page(manager: TestClient, parked: ParkedBus) -> None:
    long, turned = "<b>" + "x" * 997, "a\u202eb"
    with writing(parked.url) as connection:
        connection.execute(sa.update(model.service).where(model.service.c.name == "store").values(name=long))
        connection.execute(sa.update(model.role).where(model.role.c.login == "store_1").values(login=turned))
    for path in (
        "/configuration",
        "/recipients",
        f"/services/{long}",
        f"/recipients/{turned}",
        "/types/clients",
        WHOLE,
    ):
        page = manager.get(path)
        assert page.status_code == 200, path
        assert "<b>x" not in page.text
    assert turned not in manager.get("/recipients").text


def test_a_form_that_nobody_made_is_refused(manager: TestClient) -> None:
    assert manager.post(EDIT, data={"section": "nonsense"}).status_code == 422
    assert manager.get(EDIT, params={"section": "nonsense"}).status_code == 422
    odd = {"section": "event_type", "row": ["x", "-1", "9" * 40], "node.x.name": "y", "name": "a"}
    assert manager.post("/configuration/check", data=odd).status_code == 200
    huge = {"section": "service", "name": "a", "kind": "worker", "attempts": "9" * 5000}
    assert manager.post(EDIT, data=huge).status_code == 422


def test_a_text_that_no_database_takes_is_refused(manager: TestClient) -> None:
    for text in ("\0", "[[event_type]]\nname = '\0'\n"):
        for path in ("/configuration/plan", "/configuration/file/check", "/configuration/apply", "/configuration/file"):
            assert manager.post(path, data={"file": text}).status_code == 422, path


def test_a_plan_of_a_version_that_is_none_is_refused(manager: TestClient) -> None:
    for wrong in ({"version": "-1"}, {"to": "x" * 5000}):
        assert manager.post("/configuration/plan", data={"file": "", **wrong}).status_code == 422


def test_a_form_with_a_text_that_no_database_takes_is_refused(manager: TestClient) -> None:
    for name in ("\0", "a\0b"):
        form = {"section": "service", "name": name, "kind": "worker"}
        assert manager.post(EDIT, data=form).status_code == 422
        assert manager.post("/configuration/check", data=form).status_code in (200, 422)


def test_settings_with_half_a_letter_are_refused(manager: TestClient) -> None:
    form = {"section": "bot", "name": "report", "call": "reports:nightly", "settings": '{"a": "\\ud800"}'}
    assert manager.post(EDIT, data=form).status_code in (409, 422)
    assert manager.post("/configuration/check", data=form).status_code in (409, 422)


def test_a_removal_of_nobody_is_refused(manager: TestClient) -> None:
    fields = {"section": "role", "stored": "nobody", "prune": "true", "file": "", "base": ""}
    assert manager.post("/configuration/plan", data=fields).status_code in (200, 404)
    assert manager.post("/configuration/apply", data={**fields, "base": "x"}).status_code in (404, 409)
