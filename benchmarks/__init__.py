"""What the bus does in a second, and what it takes, each beside the cost of the bare thing: ``python -m benchmarks``.

Each scenario is measured in turns with its floor, so that whatever else the machine does meanwhile slows both alike,
and is told as the median of its rounds. A scenario's module says what it measures and what its floor is.
"""
