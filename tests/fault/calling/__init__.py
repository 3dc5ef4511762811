"""The trial of subscriptions: gateways, broker and subscriber are killed at random while a shop publishes by HTTP.

``make trial-http CYCLES=200 SEED=7 DB=sqlite`` runs it, and prints one line of JSON. ``trial.py`` starts and strikes
the programs; ``judge.py`` judges, by itself, what the shop was told and what the subscriber got.
"""
