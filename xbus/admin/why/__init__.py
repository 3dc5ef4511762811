"""Explains why an envelope, a role or an emitter is as it is: a code, a sentence, its proof, and a command that helps.

The facts come from ``xbus.broker.journal.operations.why``, and from the back where only its memory has them. All but
``inquiry`` is pure. Commands use this package; nothing here writes.
"""
