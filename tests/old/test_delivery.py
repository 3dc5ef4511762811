"""Old programs, unmodified and in processes of their own: emitter, worker and consumer, on the aiozmq of their time."""

import signal

from tests.conftest import StartDaemon
from tests.old.conftest import Old
from tests.support.bus import add_bus
from tests.support.showing import progress, shown
from tests.support.waiting import wait_until

CHAIN = {"test_event": {"w": ["c"], "c": []}}


def test_from_an_emitter_through_a_worker_to_a_consumer(old: Old, sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, CHAIN)
    daemon = start_daemon(sqlite_url)
    worker, consumer = old.worker(daemon, "w_1"), old.consumer(daemon, "c_1")
    sent = old.emits(daemon, envelopes=5, items=10)
    consumer.wait_for_envelopes(sent)

    of_one = ["start_event", *["send_item"] * 10, "end_event", "end_envelope"]
    for number, envelope_id in enumerate(sent):
        assert worker.verbs(envelope_id) == consumer.verbs(envelope_id) == of_one
        assert worker.items(envelope_id) == [f"{number}.{item}" for item in range(10)]
        assert consumer.items(envelope_id) == [f"{number}.{item} w_1" for item in range(10)]
        assert [args[2] for args in consumer.got("send_item") if args[0] == envelope_id] == [[n] for n in range(10)]
    assert [line["verb"] for line in consumer.told[:4] if "verb" in line] == [
        "get_metadata",
        "has_clearing",
        "has_immediate_reply",
    ]


def test_a_hundred_items_in_flight_and_twenty_envelopes_at_once(
    old: Old, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, CHAIN)
    daemon = start_daemon(sqlite_url)
    old.worker(daemon, "w_1")
    consumer = old.consumer(daemon, "c_1")
    sent = old.emits(daemon, items=100, in_flight=100) + old.emits(daemon, envelopes=20, at_once=20, items=5)
    consumer.wait_for_envelopes(sent)

    assert consumer.items(sent[0]) == [f"0.{item} w_1" for item in range(100)]
    for number, envelope_id in enumerate(sent[1:]):
        assert consumer.items(envelope_id) == [f"{number}.{item} w_1" for item in range(5)]
    assert sorted(consumer.committed) == sorted(sent)


def test_several_clients_of_one_login_and_a_cancelled_envelope(
    old: Old, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, CHAIN)
    daemon = start_daemon(sqlite_url)
    old.worker(daemon, "w_1")
    consumer = old.consumer(daemon, "c_1")
    several = [old.emitter(daemon, envelopes=5, items=3) for _ in range(3)]
    told = old.emitter(daemon, items=3, cancel=True).ended()
    sent = [line["envelope"] for emitter in several for line in emitter.ended() if "envelope" in line]
    consumer.wait_for_envelopes(sent)

    assert told[0]["cancelled"] is True
    assert len(set(sent)) == 15
    assert sorted(consumer.committed) == sorted(sent)
    assert consumer.verbs(told[0]["envelope"]) == []


def test_who_refuses_or_fails_is_asked_for_its_words_and_the_others_roll_back(
    old_client: Old, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"one": {"c": [], "d": []}, "two": {"w": ["e"], "e": []}})
    daemon = start_daemon(sqlite_url)
    refusing, other = old_client.consumer(daemon, "c_1", refuse="send_item"), old_client.consumer(daemon, "d_1")
    failing, behind = old_client.worker(daemon, "w_1", fail="send_item"), old_client.consumer(daemon, "e_1")
    # Who has just come reads the log alone at first: then what one refuses is no matter of the other.
    while True:
        (refused,) = old_client.emits(daemon, type="one", items=3)
        refusing.wait_for(lambda: [refused] in refusing.got("stop_envelope"), "is stopped")  # noqa: B023
        other.wait_for(lambda: {"stop_envelope", "end_envelope"} & {*other.verbs(refused)}, "is told")  # noqa: B023
        if "end_envelope" not in other.verbs(refused):
            break
    (failed,) = old_client.emits(daemon, type="two", items=3)
    for envelope_id, recipients in ((refused, (refusing, other)), (failed, (failing, behind))):
        for recipient in recipients:
            recipient.wait_for(lambda: [envelope_id] in recipient.got("stop_envelope"), "is stopped")  # noqa: B023
    wait_until(lambda: progress(sqlite_url, failed)["e_1"].state == "parked", "parked")

    (failure,) = shown(sqlite_url, refused).failures
    assert (failure.role, failure.verb, failure.code, failure.message, str(failure.indices)) == (
        "c_1",
        "send_item",
        "refused",
        "no such client",
        "[0]",
    )
    assert {role.state for role in progress(sqlite_url, refused).values()} == {"parked"}
    assert {failure.code for failure in shown(sqlite_url, failed).failures} == {"error_reply"}
    assert refusing.committed == behind.committed == []
    assert refused not in other.committed


def test_a_consumer_that_dies_gets_everything_once_it_is_back(
    old_client: Old, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(sqlite_url)
    old_client.worker(daemon, "w_1")
    dying, other = old_client.consumer(daemon, "c_1", die_at=12), old_client.consumer(daemon, "d_1")
    sent = old_client.emits(daemon, envelopes=4, items=5)
    assert dying.process.wait() == 1
    # What a crash of the broker leaves undone comes again; of what was done nothing may.
    wait_until(lambda: progress(sqlite_url, sent[-1])["d_1"].state == "done", "the other has all")
    daemon.kill()
    daemon.start()
    back = old_client.consumer(daemon, "c_1")
    back.wait_for_envelopes(sent[2:])

    assert dying.committed == sent[:2]
    assert sorted(back.committed) == sorted(sent[2:])
    assert back.verbs(sent[2])[0] == "stop_envelope"
    for number, envelope_id in enumerate(sent):
        of_one = [f"{number}.{item} w_1" for item in range(5)]
        assert other.items(envelope_id) == of_one
        assert (dying if number < 2 else back).items(envelope_id) == of_one
    assert sorted(other.committed) == sorted(sent)


WATCHED = {
    "supervision": {
        "enabled": "true",
        "node.polling.interval": 0.5,
        "node.polling.timeout": 1.5,
        "node.misses.threshold": 3,
    }
}
"""Soon, and not because the machine stood still for a moment."""


def test_a_consumer_that_hangs_in_mid_event_is_noticed_and_another_process_takes_its_role(
    old_client: Old, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(sqlite_url, WATCHED)
    worker, other = old_client.worker(daemon, "w_1"), old_client.consumer(daemon, "d_1")
    hangs = old_client.consumer(daemon, "c_1", hang="send_item")
    sent = old_client.emits(daemon, envelopes=3, items=4)
    hangs.wait_for(lambda: hangs.items(), "is in the midst of it")
    hangs.process.signal(signal.SIGSTOP)
    other.wait_for_envelopes(sent)
    wait_until(lambda: "pings in a row" in daemon.log, "it is taken off the list")
    successor = old_client.consumer(daemon, "c_1")
    successor.wait_for_envelopes(sent)

    of_all = {envelope_id: [f"{number}.{item} w_1" for item in range(4)] for number, envelope_id in enumerate(sent)}
    assert other.kept() == successor.kept() == of_all
    assert hangs.committed == []
    # Those that answer are left in peace.
    assert daemon.log.count("recipient left") == 1
    assert worker.process.runs
