"""The trial of readers: real programs that are killed and stopped at random while ranges are split and merged.

``make trial-readers CYCLES=500 SEED=7 DB=sqlite`` runs it, and prints one line of JSON. ``program.py`` reads and writes
down what it was given, ``trial.py`` starts and strikes programs and broker, ``judge.py`` judges what was written: pure.
"""
