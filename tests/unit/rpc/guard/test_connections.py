"""Messages find their connections, also where descriptors are used again."""

from xbus.rpc.guard.connections import UNKNOWN, ConnectionTable

A, B = b"\0aaaa", b"\0bbbb"


def test_the_first_message_binds_an_id_to_a_descriptor() -> None:
    connections = ConnectionTable()
    connections.began(7, 1.0)
    (begun,) = connections.open()
    assert connections.find(A) is None
    assert connections.bind(A, 7, 2.0) is begun
    assert connections.find(A) is begun
    assert (begun.descriptor, begun.since, begun.peer) == (7, 1.0, A)


def test_a_message_read_late_does_not_count_for_who_has_its_descriptor_now() -> None:
    connections = ConnectionTable()
    connections.began(7, 1.0)
    connections.ended(7)
    connections.began(7, 2.0)
    late = connections.bind(A, 7, 3.0)
    late.taken += 1000
    current = connections.bind(B, 7, 4.0)
    assert (current.taken, current.descriptor, late.descriptor) == (0, 7, UNKNOWN)
    assert connections.open() == [current]
    assert connections.find(A) is late


def test_a_message_of_a_connection_that_is_gone_counts_for_none() -> None:
    connections = ConnectionTable()
    connections.began(7, 1.0)
    connections.ended(7)
    assert connections.bind(A, 7, 2.0).descriptor == UNKNOWN
    assert connections.open() == []


def test_ids_of_connections_that_are_gone_are_forgotten_in_the_end() -> None:
    connections = ConnectionTable()
    for peer, descriptor in ((A, 7), (B, 8)):
        connections.began(descriptor, 1.0)
        connections.bind(peer, descriptor, 1.0)
    connections.ended(7)
    assert connections.find(A) is not None
    connections.forget_ended()
    assert connections.find(A) is None
    assert connections.find(B) is not None
