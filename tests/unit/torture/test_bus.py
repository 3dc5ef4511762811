"""The bus under torture, and what an edit makes of it."""

from tests.torture.bus import arrivals, chained, edited, read_bus, routes, sources


def test_an_edit_leaves_the_ways_of_items_and_of_the_nodes_only_those_that_emit() -> None:
    settled = read_bus()
    other = edited(settled)

    assert routes(other) == routes(settled)
    for name, event_type in settled.event_types.items():
        emitting = {node.name for node in event_type.nodes.values() if node.emits}
        assert event_type.nodes.keys() & other.event_types[name].nodes.keys() == emitting


def test_what_nodes_emit_is_a_way_of_what_was_sent() -> None:
    bus = read_bus()

    assert chained(bus) == {"book_1", "shelf_1"}
    assert routes(bus)["orders"]["shelf_1"] == routes(bus)["orders"]["book_1"] == ("price",)
    assert (arrivals(bus, "book_1"), arrivals(bus, "shelf_1")) == ({"prices": ("price",)}, {"copies": ("price",)})
    assert sources(bus) == {"prices": "orders", "copies": "orders"}
