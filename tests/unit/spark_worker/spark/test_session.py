"""How a session is set up, and whether its cluster is there."""

import socket

import pytest

from spark_worker.items.errors import ClusterUnreachable
from spark_worker.spark.master import check_master, is_local, parsed_settings, places
from spark_worker.spark.session import check_reachable, settings
from tests.support.ports import free_port


def test_the_users_settings_win() -> None:
    made = settings("local[2]", {"spark.driver.memory": "4g", "spark.eventLog.enabled": "true"})

    assert made["spark.driver.memory"] == "4g"
    assert made["spark.eventLog.enabled"] == "true"
    assert made["spark.driver.host"] == "127.0.0.1"


def test_on_a_cluster_the_driver_is_where_others_reach_it() -> None:
    assert "spark.driver.host" not in settings("spark://spark.example:7077", {})
    assert settings("spark://127.0.0.1:7077", {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings("yarn", {})


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("spark://a:1", [("a", 1)]),
        ("spark://a:1,b:2", [("a", 1), ("b", 2)]),
        ("spark://a", [("a", 7077)]),
        ("local[*]", []),
        ("yarn", []),
    ],
)
def test_places_of_masters(master: str, expected: list[tuple[str, int]]) -> None:
    assert places(master) == expected


def test_local_masters() -> None:
    assert [is_local(master) for master in ("local", "local[*]", "local-cluster[1,1,1]", "spark://a:1")] == [
        *(True, True, False, False)
    ]


def test_a_master_that_nobody_serves_is_told_at_once() -> None:
    with pytest.raises(ClusterUnreachable, match=r"no Spark master answers at 127\.0\.0\.1"):
        check_reachable(f"spark://127.0.0.1:{free_port()}")


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"spark://127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}")


def test_pairs() -> None:
    assert parsed_settings(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ValueError, match="is not key=value"):
        parsed_settings(["a"])


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*]", "local[2,3]", "local-cluster[1,1,1024]", "yarn"),
        *("spark://a:1", "spark://a:1,b:2", "k8s://https://a:443"),
    ],
)
def test_what_is_a_master(master: str) -> None:
    assert check_master(master) == master


@pytest.mark.parametrize("master", ["", "locl", "local[x]", "local[0]", "local[", "spark//a:1", "a:7077", "spark://"])
def test_what_is_no_master_is_told_before_java_starts(master: str) -> None:
    with pytest.raises(ValueError, match="is no master: local"):
        check_master(master)
