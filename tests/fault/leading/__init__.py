"""The trial of two brokers that stand by for each other: the one that leads is struck, again and again.

``make trial-standby CYCLES=20 SEED=7 FOLDER=...`` strikes so often in each way, and prints a line of JSON: how long it
took until the other one led, and then until it delivered. Started again with the same folder it goes on. ``program.py``
sends and takes, ``trial.py`` strikes and measures, ``judge.py`` judges what was sent and taken: pure.
"""
