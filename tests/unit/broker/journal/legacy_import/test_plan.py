"""What an import changes, and what it leaves as it is."""

from dataclasses import replace

import pytest

from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
    Stored,
)
from xbus.broker.journal.legacy_import.entries import Belongings, EmissionProfile, LegacyDescriptor, LegacyPerson, Owner
from xbus.broker.journal.legacy_import.plan import ImportPlan, Present, plan_import
from xbus.broker.journal.legacy_import.translation import Translation
from xbus.rights import Right

HASH, OTHER_HASH = "0123456789abcdef" * 5, "fedcba9876543210" * 5
OURS = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA"

AIRPORT: Owner = ("emitter", "airport_1")

SERVICES = {"names": ServiceSpec("names", "worker"), "store": ServiceSpec("store", "consumer")}


def event_type(name: str, *nodes: NodeSpec) -> EventTypeSpec:
    return EventTypeSpec(name, False, {node.name: node for node in nodes})


GOOD = event_type("flights", NodeSpec("names", "names", ("store",)), NodeSpec("store", "store"))
BAD = event_type("delays", NodeSpec("names", "names"))

BUS = BusSpec(
    event_types={"flights": GOOD},
    services=SERVICES,
    roles={"names_1": RoleSpec("names_1", "names"), "store_1": RoleSpec("store_1", "store")},
    profiles={"airport": ProfileSpec("airport", frozenset({"flights"}))},
    emitters={"airport_1": EmitterSpec("airport_1", "airport")},
)
BELONGINGS = Belongings(
    {"ada": LegacyPerson("ada", "Ada", None)},
    {"planes": LegacyDescriptor("planes", b"<xml/>", None)},
    {"uploads": EmissionProfile("uploads", "ada", "planes", "utf-8")},
)
WISHED = Translation(BUS, {}, BELONGINGS, {}, ())
NOTHING = Present(Stored(1, BusSpec(), BusSpec()), Belongings(), frozenset(), {})
EVERYTHING = Present(Stored(7, BUS, BusSpec()), BELONGINGS, frozenset(), {})


def here(in_use: BusSpec) -> Present:
    return replace(NOTHING, stored=Stored(1, in_use, BusSpec()))


def told(plan: ImportPlan) -> tuple[list[str], list[str]]:
    """The losses and the other remarks."""
    assert plan.bus.problems == ()
    return [str(remark) for remark in plan.remarks if remark.is_loss], [
        str(remark) for remark in plan.remarks if not remark.is_loss
    ]


def test_everything_is_added() -> None:
    plan = plan_import(NOTHING, WISHED)
    assert plan.changes == (
        'add event_type "flights"',
        'add service "names"',
        'add service "store"',
        'add role "names_1"',
        'add role "store_1"',
        'add emitter_profile "airport"',
        'add emitter "airport_1"',
        'add person "ada"',
        'add input_descriptor "planes"',
        'add emission_profile "uploads"',
    )
    assert told(plan) == ([], [])


def test_the_same_again_changes_nothing() -> None:
    assert plan_import(EVERYTHING, WISHED).changes == ()


def test_what_the_old_bus_does_not_have_stays() -> None:
    assert plan_import(EVERYTHING, Translation(BusSpec(), {}, Belongings(), {}, ())).changes == ()


def test_what_differs_is_changed() -> None:
    belongings = Belongings(
        {"ada": LegacyPerson("ada", "Ada", "ada@example.org")}, {"planes": LegacyDescriptor("planes", b"", "")}
    )
    bus = replace(BUS, profiles={"airport": ProfileSpec("airport", frozenset())})
    assert plan_import(EVERYTHING, replace(WISHED, bus=bus, belongings=belongings)).changes == (
        'change emitter_profile "airport": event_types',
        'change person "ada": email',
        'change input_descriptor "planes": content, mimetype',
    )


def test_who_was_disabled_stays_so() -> None:
    plan = plan_import(replace(EVERYTHING, disabled_people=frozenset({"ada", "bob"})), WISHED)
    assert plan.changes == ()
    assert told(plan) == ([], ['person "ada" is disabled here, and stays so: xbus person enable ada changes that'])


def test_people_get_rights_once() -> None:
    wished = replace(WISHED, rights={"ada": frozenset({Right.UPLOADER, Right.MANAGER})})
    assert plan_import(EVERYTHING, wished).changes == ('give person "ada" the rights: manager uploader',)
    present = replace(EVERYTHING, rights={"ada": frozenset({Right.VIEWER})})
    assert plan_import(present, wished).changes == ()


# -- what can't be -----------------------------------------------------------------------------------------------------


def test_a_graph_that_can_not_be_run_is_left_out_and_profiles_keep_the_others() -> None:
    bus = replace(
        BUS,
        event_types={"flights": GOOD, "delays": BAD},
        profiles={"airport": ProfileSpec("airport", frozenset({"flights", "delays"}))},
    )
    plan = plan_import(NOTHING, replace(WISHED, bus=bus))
    assert told(plan) == (
        [
            'event_type "delays" is left out (node "names" is of the worker service "names" but leads to no node): '
            "describe it anew by xbus apply, then import again"
        ],
        ['emitter_profile "airport" goes without event_type "delays"'],
    )
    assert 'add event_type "flights"' in plan.changes
    assert 'add event_type "delays"' not in plan.changes


def test_an_event_type_that_was_described_anew_stays_in_the_profile() -> None:
    anew = event_type("delays", NodeSpec("store", "store"))
    profiles = {"airport": ProfileSpec("airport", frozenset({"flights", "delays"}))}
    wished = replace(WISHED, bus=replace(BUS, event_types={"flights": GOOD, "delays": BAD}, profiles=profiles))
    present = replace(
        EVERYTHING,
        stored=Stored(8, replace(BUS, event_types={"flights": GOOD, "delays": anew}, profiles=profiles), BusSpec()),
    )
    plan = plan_import(present, wished)
    assert plan.changes == ()
    assert told(plan) == (
        [],
        [
            'event_type "delays" stays as it is here; the old one can\'t be taken '
            '(node "names" is of the worker service "names" but leads to no node)'
        ],
    )


def test_what_the_translation_refused_is_told_in_the_same_way() -> None:
    profiles = {"airport": ProfileSpec("airport", frozenset({"flights", "delays"}))}
    wished = replace(WISHED, bus=replace(BUS, profiles=profiles), refused={"delays": ("a reason", "another")})
    losses, notes = told(plan_import(NOTHING, wished))
    assert losses == [
        'event_type "delays" is left out (a reason; another): describe it anew by xbus apply, then import again'
    ]
    assert notes == ['emitter_profile "airport" goes without event_type "delays"']


def test_a_service_of_another_kind_is_a_conflict_with_all_that_is_of_it() -> None:
    plan = plan_import(here(BusSpec(services={"store": ServiceSpec("store", "worker")})), WISHED)
    losses, _ = told(plan)
    assert losses == [
        'service "store" is left out (service "store" is a worker and stays one; take another name for a consumer)',
        'role "store_1" is left out (its service "store" is left out)',
        'event_type "flights" is left out (its service "store" is left out): '
        "describe it anew by xbus apply, then import again",
    ]
    assert 'add role "names_1"' in plan.changes


def test_what_the_old_bus_knew_nothing_of_stays_as_it_was_set_here() -> None:
    set_here = BusSpec(
        event_types={"flights": replace(BUS.event_types["flights"], bad_items="isolate")},
        services={"store": ServiceSpec("store", "consumer", "own", attempts=9)},
        roles={"store_1": RoleSpec("store_1", "store", ordered=True)},
    )
    assert plan_import(here(BUS.with_all(set_here)), WISHED).bus.changes == ()


def test_a_role_of_another_service_is_a_conflict_and_keeps_its_password() -> None:
    in_use = BusSpec(services={"else": ServiceSpec("else", "consumer")}, roles={"store_1": RoleSpec("store_1", "else")})
    plan = plan_import(here(in_use), replace(WISHED, passwords={("role", "store_1"): HASH}))
    losses, _ = told(plan)
    assert losses == [
        'role "store_1" is left out (role "store_1" belongs to service "else" for good; take another login)'
    ]
    assert plan.passwords == ()
    assert 'add event_type "flights"' in plan.changes


# -- passwords ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [None, OTHER_HASH])
def test_a_password_is_set_where_none_was_set_here(present: str | None) -> None:
    passwords = {} if present is None else {AIRPORT: present}
    plan = plan_import(replace(EVERYTHING, passwords=passwords), replace(WISHED, passwords={AIRPORT: HASH}))
    assert plan.changes == ('set password of emitter "airport_1"',)
    (change,) = plan.passwords
    assert (change.before, change.after) == (present, HASH)
    assert HASH not in repr(plan)


def test_an_untouched_password_needs_nothing() -> None:
    plan = plan_import(replace(EVERYTHING, passwords={AIRPORT: HASH}), replace(WISHED, passwords={AIRPORT: HASH}))
    assert (plan.changes, plan.remarks) == ((), ())


def test_a_password_that_was_set_or_hashed_anew_here_stays() -> None:
    plan = plan_import(replace(EVERYTHING, passwords={AIRPORT: OURS}), replace(WISHED, passwords={AIRPORT: HASH}))
    assert plan.changes == ()
    assert told(plan) == (
        [],
        ['these have logged in here already or got another password, and keep it: emitter "airport_1"'],
    )


def test_people_have_passwords_too() -> None:
    plan = plan_import(EVERYTHING, replace(WISHED, passwords={("person", "ada"): HASH}))
    assert plan.changes == ('set password of person "ada"',)
