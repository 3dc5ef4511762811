"""The bus under torture, and what an edit makes of it."""

from tests.torture.bus import edited, read_bus, routes


def test_an_edit_leaves_the_ways_of_items_and_none_of_the_nodes() -> None:
    settled = read_bus()
    other = edited(settled)

    assert routes(other) == routes(settled)
    for name, event_type in settled.event_types.items():
        assert not event_type.nodes.keys() & other.event_types[name].nodes.keys()
