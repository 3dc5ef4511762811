"""The broker's health turns bad while its database is away, is told all the same, and turns good again."""

import signal
from collections.abc import Callable

from click.testing import CliRunner

from tests.conftest import StartDaemon
from tests.support import postgres
from tests.support.bus import add_bus
from tests.support.waiting import wait_until
from xbus.admin.cli import main


def test_bad_while_the_database_is_away_and_good_again(
    cluster: postgres.Cluster, url: str, start_daemon: StartDaemon
) -> None:
    add_bus(url, {"test_event": {"c": []}})
    daemon = start_daemon(url)

    def health(*options: str) -> tuple[int, str]:
        answer = CliRunner().invoke(main, ["health", "-c", str(daemon.config), *options])
        return answer.exit_code, answer.stdout

    def becomes(code: int) -> Callable[[], bool]:
        return lambda: health()[0] == code

    assert health()[0] == 0
    cluster.stop(signal.SIGQUIT)
    wait_until(becomes(1), "its health turns bad")
    told = health()[1]
    assert "journal_unreadable" in told or "journal_unavailable" in told
    assert "see that it runs" in told
    cluster.start()
    wait_until(becomes(0), "its health turns good again")
    wait_until(lambda: "trouble is over" in daemon.log, "that is told")
