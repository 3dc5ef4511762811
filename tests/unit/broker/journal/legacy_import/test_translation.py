"""What the rows of an xbus.broker 0.2.0 are here, and which of them can't be."""

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
)
from xbus.broker.journal.legacy_import.entries import EmissionProfile, LegacyDescriptor, LegacyPerson
from xbus.broker.journal.legacy_import.rows import (
    OldBus,
    OldDescriptor,
    OldEmissionProfile,
    OldEmitter,
    OldEventType,
    OldNode,
    OldProfile,
    OldRole,
    OldService,
    OldUser,
)
from xbus.broker.journal.legacy_import.translation import Translation, translate
from xbus.rights import Right

HASH = "0123456789abcdef" * 5

OLD = OldBus(
    services=(OldService("s1", "names", False), OldService("s2", "store", True)),
    event_types=(OldEventType("t1", "flights", True),),
    nodes=(OldNode("n1", "t1", "s1", True, ("n2",)), OldNode("n2", "t1", "s2", False)),
    roles=(OldRole("names_1", HASH, "s1"), OldRole("store_1", None, "s2")),
    profiles=(OldProfile("p1", "airport", frozenset({"t1"})),),
    emitters=(OldEmitter("airport_1", HASH, "p1"),),
    users=(OldUser("u1", "ada", "Ada", "ada@example.org", HASH),),
    descriptors=(OldDescriptor("d1", "planes", b"<xml/>", "text/xml"),),
    emission_profiles=(OldEmissionProfile("uploads", "u1", "d1", "latin-1"),),
)


def losses(translation: Translation) -> list[str]:
    assert all(remark.is_loss for remark in translation.remarks)
    return [remark.sentence for remark in translation.remarks]


def notes(translation: Translation) -> list[str]:
    assert not any(remark.is_loss for remark in translation.remarks)
    return [remark.sentence for remark in translation.remarks]


def test_everything_has_its_counterpart() -> None:
    translation = translate(OLD)
    nodes = {"names": NodeSpec("names", "names", ("store",)), "store": NodeSpec("store", "store")}
    assert translation.bus == BusSpec(
        event_types={"flights": EventTypeSpec("flights", True, nodes)},
        services={"names": ServiceSpec("names", "worker"), "store": ServiceSpec("store", "consumer")},
        roles={"names_1": RoleSpec("names_1", "names"), "store_1": RoleSpec("store_1", "store")},
        profiles={"airport": ProfileSpec("airport", frozenset({"flights"}))},
        emitters={"airport_1": EmitterSpec("airport_1", "airport")},
    )
    assert translation.belongings.people == {"ada": LegacyPerson("ada", "Ada", "ada@example.org")}
    assert translation.belongings.descriptors == {"planes": LegacyDescriptor("planes", b"<xml/>", "text/xml")}
    assert translation.belongings.emission_profiles == {
        "uploads": EmissionProfile("uploads", "ada", "planes", "latin-1")
    }
    assert translation.passwords == {("role", "names_1"): HASH, ("emitter", "airport_1"): HASH, ("person", "ada"): HASH}
    assert (translation.refused, translation.remarks) == ({}, ())


def test_permissions_of_the_old_monitor_are_rights_here() -> None:
    def user(*permissions: str) -> OldBus:
        return OldBus(users=(OldUser("u1", "ada", None, None, None, frozenset(permissions)),))

    rights = {"xbus_manager": Right.MANAGER, "xbus_uploader": Right.UPLOADER, "xbus_data_clearer": Right.CLEARER}
    assert translate(user(*rights)).rights == {"ada": frozenset(rights.values())}
    assert translate(user()).rights == {}
    other = translate(user("xbus_uploader", "make_coffee", "a\nb"))
    assert other.rights == {"ada": frozenset({Right.UPLOADER})}
    assert notes(other) == [
        """person "ada" goes without permissions "'a\\nb'", "make_coffee", which mean nothing here"""
    ]


def test_an_empty_bus_is_an_empty_bus() -> None:
    translation = translate(OldBus())
    assert (translation.bus, translation.remarks) == (BusSpec(), ())


def test_an_emission_profile_needs_nobody() -> None:
    translation = translate(OldBus(emission_profiles=(OldEmissionProfile("uploads", None, None, "utf-8"),)))
    assert translation.belongings.emission_profiles["uploads"] == EmissionProfile("uploads", None, None, "utf-8")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, "a service has no name and"),
        ("", "service ''"),
        (" store", "service ' store'"),
        ("sto\x1bre", "service 'sto\\x1bre'"),
    ],
)
def test_a_strange_name_takes_what_needs_it_along(name: str | None, told: str) -> None:
    translation = translate(replace(OLD, services=(OLD.services[0], OldService("s2", name, True))))
    assert losses(translation) == [
        f"{told} is left out: a name must be of printable characters, without blanks around it",
        'role "store_1" is left out, as its service is',
    ]
    assert translation.refused == {"flights": ("a node is of a service that is left out",)}
    assert translation.bus.profiles["airport"].event_types == {"flights"}
    assert translation.bus.services.keys() == {"names"}


def test_a_profile_with_a_strange_name_takes_its_emitters_along() -> None:
    translation = translate(replace(OLD, profiles=(OldProfile("p1", "airport\n", frozenset()),)))
    assert losses(translation)[1] == 'emitter "airport_1" is left out, as its profile is'
    assert translation.bus.emitters == {}
    assert ("emitter", "airport_1") not in translation.passwords


def test_an_event_type_with_a_strange_name_is_in_no_profile() -> None:
    translation = translate(replace(OLD, event_types=(OldEventType("t1", "flights ", False),)))
    assert len(losses(translation)) == 1
    assert translation.bus.profiles["airport"].event_types == frozenset()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (OldEmissionProfile("uploads", "u2", None, "utf-8"), "as its person is"),
        (OldEmissionProfile("uploads", None, "d2", "utf-8"), "as its input_descriptor is"),
        (OldEmissionProfile("uploads", None, None, "x" * 65), "as its encoding is no name"),
    ],
)
def test_an_emission_profile_goes_with_what_it_needs(row: OldEmissionProfile, told: str) -> None:
    translation = translate(
        OldBus(
            users=(OldUser("u2", None, None, None, None),),
            descriptors=(OldDescriptor("d2", " ", b"", None),),
            emission_profiles=(row,),
        )
    )
    assert losses(translation)[-1] == f'emission_profile "uploads" is left out, {told}'
    assert translation.belongings.emission_profiles == {}


def test_an_edge_into_another_event_type_is_refused() -> None:
    other = OldNode("n3", "t2", "s2", True)
    first = replace(OLD.nodes[0], children=("n3",))
    translation = translate(replace(OLD, nodes=(first, OLD.nodes[1], other)))
    assert translation.refused == {"flights": ("a node leads to a node of another event type",)}
    assert translation.remarks == ()


def test_nodes_that_got_nothing_are_told() -> None:
    translation = translate(replace(OLD, nodes=(*OLD.nodes, OldNode("n3", "t1", "s2", False))))
    assert notes(translation) == [
        'event_type "flights" goes without node "store_2", which got nothing, as no node that is marked as a start '
        "leads there"
    ]


def test_a_node_that_becomes_two_is_told() -> None:
    translation = translate(replace(OLD, nodes=(OLD.nodes[0], replace(OLD.nodes[1], is_start=True))))
    assert translation.bus.event_types["flights"].nodes.keys() == {"names", "store", "store_start"}
    assert notes(translation) == [
        'event_type "flights": node "store" got items as emitted besides those of other nodes; the start node '
        '"store_start" of the same service hands them over'
    ]


@pytest.mark.parametrize("password", ["secret", HASH[:-1], HASH.upper()])
def test_a_password_that_let_nobody_in_is_left_out(password: str) -> None:
    translation = translate(replace(OLD, emitters=(OldEmitter("airport_1", password, "p1"),)))
    assert notes(translation) == ['the password of emitter "airport_1" is left out, as it let nobody in']
    assert ("emitter", "airport_1") not in translation.passwords


def test_what_has_no_counterpart_is_counted() -> None:
    translation = translate(
        replace(OLD, without_counterpart={"group": 1, "permission": 0, "description": 1200}, undelivered=2)
    )
    assert notes(translation) == [
        "left out, as there is no place for it here: 1 group, 1,200 descriptions",
        "the old broker still has 2 events to deliver, which stay there",
    ]


def test_no_hash_is_shown() -> None:
    assert HASH not in repr((OLD, translate(OLD)))
