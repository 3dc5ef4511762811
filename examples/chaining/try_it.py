"""Sends two orders through the bus of this folder, in memory, and prints what its consumers get."""

from pathlib import Path

from examples.chaining.splitter import Splitter
from xbus.testing import Bus

with Bus.from_file(Path(__file__).with_name("bus.toml")) as bus:
    bus.serve(Splitter)
    bus.emit("orders", [{"client": 7, "amount": 1250}, {"client": 8, "amount": -300}])
    bus.run()
    print("billing:", bus.received("billing"))
    print("complaints:", bus.received("complaints"))
