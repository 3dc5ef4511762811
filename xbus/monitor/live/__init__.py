"""The bus as it is just now, for all who look: one task takes a sample each few seconds, and tells open pages of it.

However many look, the journal is asked once. ``sampler`` asks and tells; ``plots`` makes graph and plots of what was
found, and is pure.
"""
