"""Immediate replies: events delivered at their end, ahead of their envelope, because their emitter waits.

It uses dispatch and progress as an envelope's ordinary delivery does; nothing but the assembly imports it.
"""
