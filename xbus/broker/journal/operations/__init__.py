"""Questions and actions of operators by commands: envelopes, roles, failures, parked work, corrections.

Each function is one bounded read, or one short transaction that leaves a history row. Its caller opens the transaction
of an action. Nothing here waits or asks a person: commands do. Commands import it; of the broker only its monitoring
does, the drill, and what must look for corrections.

Face: ``bots``, ``checkup``, ``coming``, ``copies``, ``corrections``, ``descriptors``, ``envelopes``, ``event_types``,
``failure_moves``, ``failures``, ``figures``, ``losses``, ``parked``, ``relocation``, ``roles``, ``stalled`` and
``why``.
"""
