"""The programs of the bus as pip installs them; each says in one line which extra it lacks."""

from xbus import ending, extras
from xbus.system import memory


def run_xbus() -> None:
    """Run ``xbus``."""
    with ending.in_one_line("xbus"):
        extras.require("the command xbus", "broker", extras.BROKER)
    from xbus.admin.cli import main

    main(prog_name="xbus")


def set_up_broker() -> None:
    """Run ``setup_xbusbroker``."""
    with ending.in_one_line("setup_xbusbroker"):
        extras.require("the broker", "broker", extras.BROKER)
    from xbus.broker.cli import setup

    setup(prog_name="setup_xbusbroker")


def start_broker() -> None:
    """Run ``start_xbusbroker``."""
    with ending.in_one_line("start_xbusbroker"):
        extras.require("the broker", "broker", extras.BROKER)
    memory.reuse_large_blocks()
    from xbus.broker.cli import start

    start(prog_name="start_xbusbroker")


def start_monitor() -> None:
    """Run ``start_xbusmonitor``."""
    with ending.in_one_line("start_xbusmonitor"):
        extras.require("the monitor", "monitor", extras.MONITOR)
    from xbus.monitor.program import start

    start(prog_name="start_xbusmonitor")


def start_http() -> None:
    """Run ``start_xbushttp``."""
    with ending.in_one_line("start_xbushttp"):
        extras.require("the gateway", "http", extras.HTTP)
    from xbus.http.program import start

    start(prog_name="start_xbushttp")
