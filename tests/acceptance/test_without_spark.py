"""Programs on a machine without Spark: those that need it say what to install, and the archive works all the same."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import write_config
from tests.support.journal import Scribe, add_small_bus, looking, settle_all
from tests.support.processes import run
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import SealReceipt

WITHOUT = """\
import sys
sys.modules.update(dict.fromkeys({packages}))
from {module} import {function}
sys.argv[0] = "{program}"
{function}()
"""


def without(
    packages: tuple[str, ...], program: str, module: str, function: str, *arguments: str | Path
) -> "subprocess.CompletedProcess[str]":
    """Run a program as where some packages are not installed."""
    text = WITHOUT.format(packages=packages, program=program, module=module, function=function)
    return run(sys.executable, "-c", text, *arguments)


def xbus(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return without(("pyspark", "py4j"), "xbus", "xbus.programs", "run_xbus", *arguments)


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("arguments", [[], ["--help"], ["--login", "w_1"]])
def test_the_spark_worker_says_what_to_install(package: str, arguments: list[str]) -> None:
    ended = without((package, "py4j"), "xbus-spark-worker", "spark_worker.programs", "run_worker", *arguments)

    assert ended.returncode == 1
    assert ended.stderr.startswith("xbus-spark-worker: the Spark worker needs py")
    assert ended.stderr.endswith(", which is not installed: pip install 'xbusd[spark]' [extra_missing]\n")
    assert len(ended.stderr.splitlines()) == 1


def test_checksum_says_what_to_install() -> None:
    ended = xbus("checksum", "--type", "flights")

    assert ended.returncode == 1
    assert "xbus checksum needs pyspark, which is not installed: pip install 'xbusd[spark]'" in ended.stderr


async def _put(url: str) -> list[SealReceipt]:
    async with Journal.open(url, "broker") as journal:
        scribe = await Scribe.of(journal)
        receipts = [await scribe.put([b"%d" % i for i in range(1000)], type_name="flights") for _ in range(3)]
        receipts.append(await scribe.put([b"note"]))
        await settle_all(journal, len(receipts))
    return receipts


@pytest.mark.parametrize("renamed", [False, True])
def test_envelopes_are_archived_and_restored(database_url: str, tmp_path: Path, renamed: bool) -> None:
    """The receipts count, under whatever name the type of the events goes by now."""
    with looking(database_url) as connection:
        add_small_bus(connection)
    receipts = asyncio.run(_put(database_url))
    config = write_config(tmp_path / "config.ini", database_url, {"journal": {"keep_settled_days": 0}})
    if renamed:
        exported = xbus("export", "-c", config).stdout
        changed = exported.replace('"flights"', '"departures"')
        changed = changed.replace('name = "departures"', 'name = "departures"\nrenamed_from = "flights"')
        (tmp_path / "renamed.toml").write_text(changed)
        applied = xbus("apply", "-c", config, tmp_path / "renamed.toml")
        assert 'rename event_type "flights" to "departures"' in applied.stdout, applied.stderr

    archived = xbus("archive", "-c", config, "--before", "90d", "--to", tmp_path / "archive", "--json")

    assert archived.returncode == 0, archived.stderr
    report = json.loads(archived.stdout)
    assert (report["envelopes"], report["items"], report["files"]) == (4, 3001, 2)
    assert "archived" in xbus("envelope", "show", "-c", config, str(receipts[0].envelope_id)).stdout
    restored = xbus("restore", "-c", config, str(receipts[0].envelope_id))
    assert (restored.returncode, restored.stderr) == (0, "")
    assert restored.stdout.endswith("is in the journal again.\n")


def test_a_master_needs_spark(tmp_path: Path, sqlite_url: str) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url)
    command = ("archive", "-c", config, "--before", "90d", "--to", tmp_path / "archive")

    ended = xbus(*command, "--master", "local[2]")

    assert ended.returncode == 1
    assert "xbus archive --master needs py" in ended.stderr
    assert "pip install 'xbusd[spark]'" in ended.stderr
    assert xbus(*command, "--conf", "a=b").returncode == 2
