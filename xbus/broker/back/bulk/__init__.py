"""Large events and the bulk workers that transform them past the broker: attempts, leases, reports and waits.

The ordinary path asks this package only whether an envelope needs an output, and whether that is ready.
"""
