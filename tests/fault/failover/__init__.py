"""The trial of fail-over: machines of PostgreSQL and a broker are lost while envelopes flow.

``make trial-failover CYCLES=20 SEED=7 FOLDER=there`` runs it, and goes on where an earlier run in the folder ended.
``machines.py`` makes three machines with Patroni and etcd, ``trial.py`` strikes them, and ``judge.py`` judges, by
itself, what was acknowledged and what the consumer wrote.
"""
