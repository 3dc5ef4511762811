"""``xbus restore`` in a service that stops: all its processes get SIGTERM, and the broker tells it to end besides."""

import sys
import uuid
from pathlib import Path

from spark_worker.archive.run import begun
from tests.support.daemon import write_config
from tests.support.processes import run
from xbus.clock import SystemClock
from xbus.ids import Ids

TOLD_TO_END = """
import os, signal
from spark_worker.archive import command
from xbus.broker.journal.archive import plans as archive_plans

end_run = archive_plans.end_run

def interrupted_once_more(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    end_run(*arguments)

archive_plans.end_run = interrupted_once_more
command.put_back = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
command.restore()
"""


def test_one_that_is_told_to_end_leaves_its_place_to_the_next(sqlite_url: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url)

    ended = run(sys.executable, "-c", TOLD_TO_END, "-c", config, str(uuid.uuid4()))

    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    with begun(sqlite_url, SystemClock(), Ids()):
        pass
