"""Torture: a bus of real programs, struck at random from a seed, and a judge over what they wrote down.

    emitters ──proxy──► start_xbusbroker ──proxy──► workers, consumers
                              │ proxy
                          PostgreSQL, or a file

``make torture CYCLES=20 SEED=7 DB=sqlite FAULTS=all`` runs it, and prints one line of JSON. In the order of a run:

    settings.py    what is asked for
    bus.toml       the bus: event types, who gets them
    bus.py         its set-up, and the ways that items take
    database.py    the journal's database, which can be struck too
    arena.py       all programs and connections, each started, struck and ended by its id
    emitter.py     the programs: they send, and write down what was acknowledged,
    worker.py      ... pass on with a mark,
    consumer.py    ... and write down what they committed
    faults.py      which faults strike when: pure, from the seed
    strikes.py     carries them out, and writes down when it did
    history.py     what was written down, read back
    checker.py     judges it: pure
    run.py         all of the above, one after the other

Beside them: ``items.py`` makes items that tell where they come from, ``sending.py`` and ``old_sending.py`` have the
ways to send them, ``program.py`` owns a process, ``leash.py`` lets none outlive the run, ``proxy.py`` holds or cuts
connections, ``drain.py`` waits until all has arrived.
"""
